"""Luong's decoder: attention after the state update, input feeding, windows."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course._checks import check_at_least
from attn_course.nn.attention import Attention, AttentionMemory
from attn_course.nn.decoder_steps import embed_target, read_source
from attn_course.nn.parameters import SCORE, check_callable
from attn_course.nn.recurrent import GRUCell, Recurrent, hidden_of, state_from
from attn_course.nn.scores import GeneralScore, LocationScore
from attn_course.nn.seq2seq import CellFactory


class LuongState(NamedTuple):
    """State of a :class:`LuongDecoder`, with the parts of :class:`BahdanauState`.

    Attributes:
        attentional: The last attentional vector, the input of the next step; 0 at first.
        steps: How many steps each row has done.
    """

    recurrent: Any
    memory: AttentionMemory
    alignment: Float[Tensor, "B S"]
    attentional: Float[Tensor, "B H"]
    steps: Int[Tensor, " B"]


class LuongDecoder(nn.Module):
    r"""Recurrence first, then attention: the new state is the query; the context enters the output.

    .. math::
       h_t &= f(h_{t-1}, [y_{t-1}; \tilde h_{t-1}]) \\
       a_t &= \mathrm{softmax}_s\, \mathrm{score}(h_t, \bar h_s) \\
       c_t &= \textstyle\sum_s a_{ts} \bar h_s \\
       \tilde h_t &= \tanh(W_c [c_t; h_t]) \\
       p(y_t \mid y_{<t}, x) &= \mathrm{softmax}(W_s \tilde h_t)

    Luong, Pham and Manning (2015), equations 5 to 7, and section 3.3 for the *input feeding* of
    :math:`\tilde h_{t-1}` to the next step: without it a step does not know to what earlier steps
    attended, but all steps attend at once, after the recurrence. Differs from the paper: one layer
    of cells, GRU unless given, biases in the linear layers, and a first state :math:`h_0 =
    \tanh(W_0 z + b_0)` from the encoder's summary :math:`z`, where the paper's decoder starts from
    the encoder's last states as they are. Arguments as of :class:`BahdanauDecoder`, and:

    Args:
        hidden_size: Size of the decoder's state and of the attentional vector.
        score: Has the methods of :class:`attn_course.nn.scores.Score`;
            :class:`attn_course.nn.scores.GeneralScore`, if ``None``.
        window: :class:`attn_course.nn.LocalM` or :class:`attn_course.nn.LocalP`; all positions
            if ``None``.
        input_feeding: Whether the attentional vector enters the next step.

    Example:
        >>> encoder = BidirectionalEncoder(vocab_size=11, embed_dim=4, hidden_size=3)
        >>> decoder = LuongDecoder(
        ...     vocab_size=13, embed_dim=4, context_size=6, summary_size=3, hidden_size=5
        ... )
        >>> model = AttentionEncoderDecoder(encoder=encoder, decoder=decoder)
        >>> model(torch.randint(11, (1, 7)), None, torch.randint(13, (1, 4))).shape
        torch.Size([1, 4, 13])
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        embed_dim: int,
        context_size: int,
        summary_size: int,
        hidden_size: int,
        score: nn.Module | None = None,
        window: nn.Module | None = None,
        input_feeding: bool = True,
        cell: CellFactory = GRUCell,
    ) -> None:
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embed_dim=embed_dim, hidden_size=hidden_size)
        check_at_least(1, context_size=context_size, summary_size=summary_size)
        if score is None:
            score = GeneralScore(query_size=hidden_size, key_size=context_size)
        check_callable(SCORE, "prepare", "compare", score=score)
        if window is not None:
            check_callable("a module such as LocalM(half_width=3), or None", window=window)
        self.context_size, self.input_feeding = context_size, input_feeding
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.initial = nn.Linear(summary_size, hidden_size)
        self.attention = Attention(score=score)
        self.window = window
        fed = hidden_size if input_feeding else 0
        self.recurrent = Recurrent(cell=cell(input_size=embed_dim + fed, hidden_size=hidden_size))
        self.combine = nn.Linear(context_size + hidden_size, hidden_size)
        self.output = nn.Linear(hidden_size, vocab_size)

    def init_state(
        self,
        annotations: Float[Tensor, "B S C"],
        summary: Float[Tensor, "B Z"],
        source_mask: Bool[Tensor, "B S"],
    ) -> LuongState:
        """The state before the first step, as :meth:`BahdanauDecoder.init_state`."""
        hidden, memory, alignment = read_source(self, annotations, summary, source_mask)
        return LuongState(
            recurrent=state_from(self.recurrent.cell, hidden),
            memory=memory,
            alignment=alignment,
            attentional=torch.zeros_like(hidden),
            steps=torch.zeros(len(hidden), dtype=torch.long, device=hidden.device),
        )

    def attend(
        self, hidden: Float[Tensor, "B L H"], steps: Int[Tensor, "B L"], memory: AttentionMemory
    ) -> tuple[Float[Tensor, "B L H"], Float[Tensor, "B L S"]]:
        """Attentional vectors and weights of states of the decoder."""
        window: Any = self.window
        longest, narrow = memory.mask.shape[-1], getattr(window, "half_width", torch.inf)
        # a score of positions needs all of them
        if 2 * narrow + 2 < longest and not isinstance(self.attention.score, LocationScore):
            context, weights = window.attend(self.attention.score.compare, hidden, steps, memory)
            return torch.tanh(self.combine(torch.cat([context, hidden], dim=-1))), weights
        weigh = (lambda scores, _: window(scores, hidden, steps, memory.mask)) if window else None
        context, weights = self.attention.attend(hidden, memory, weigh=weigh)
        return torch.tanh(self.combine(torch.cat([context, hidden], dim=-1))), weights

    def forward(
        self, target_in: Int[Tensor, "B L"], state: LuongState
    ) -> tuple[Float[Tensor, "B L V"], Float[Tensor, "B L S"], LuongState]:
        """Logits, weights and the last state, as :meth:`BahdanauDecoder.forward`."""
        words = embed_target(self.embedding, target_in, state.alignment)
        length = words.shape[1]
        steps = state.steps.unsqueeze(1) + torch.arange(length, device=words.device)  # (B, L)
        if not self.input_feeding:
            hiddens, recurrent = self.recurrent(words, state.recurrent)
            vectors, weights = self.attend(hiddens, steps, state.memory)
        else:
            recurrent, vector = state.recurrent, state.attentional
            parts = []
            for t in range(length):
                recurrent = self.recurrent.cell(torch.cat([words[:, t], vector], -1), recurrent)
                query = hidden_of(recurrent).unsqueeze(1)  # (B, 1, H)
                parts.append(self.attend(query, steps[:, t : t + 1], state.memory))
                vector = parts[-1][0].squeeze(1)
            vectors, weights = (torch.cat(rows, dim=1) for rows in zip(*parts, strict=True))
        after = state._replace(
            recurrent=recurrent,
            alignment=weights[:, -1],
            attentional=vectors[:, -1],
            steps=state.steps + length,
        )
        return self.output(vectors), weights, after
