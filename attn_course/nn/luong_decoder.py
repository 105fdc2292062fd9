"""Luong's decoder: attention after the state update, input feeding, windows."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course.nn.attention import Attention, AttentionMemory
from attn_course.nn.decoder_steps import embed_target, read_source
from attn_course.nn.parameters import SCORE, check_callable, check_positive
from attn_course.nn.recurrent import GRUCell, Recurrent, hidden_of, state_from
from attn_course.nn.scores import GeneralScore, LocationScore
from attn_course.nn.seq2seq import CellFactory


class LuongState(NamedTuple):
    """Where a :class:`LuongDecoder` stands; batch on axis 0 throughout.

    Attributes:
        recurrent: State of the cell.
        memory: The prepared source.
        alignment: Weights of the step that led here; 0 before the first.
        attentional: The last attentional vector, which input feeding hands on; 0 at first.
        steps: How many steps each row has done.
    """

    recurrent: Any
    memory: AttentionMemory
    alignment: Float[Tensor, "B S"]
    attentional: Float[Tensor, "B H"]
    steps: Int[Tensor, " B"]


class LuongDecoder(nn.Module):
    r"""Move first, then look: the new state asks, the answer goes to the output.

    .. math::
       h_t &= f(h_{t-1}, [y_{t-1}; \tilde h_{t-1}]) \\
       a_t &= \mathrm{softmax}_s\, \mathrm{score}(h_t, \bar h_s) \\
       c_t &= \textstyle\sum_s a_{ts} \bar h_s \\
       \tilde h_t &= \tanh(W_c [c_t; h_t]) \\
       p(y_t \mid y_{<t}, x) &= \mathrm{softmax}(W_s \tilde h_t)

    Luong, Pham and Manning (2015), equations 5 to 7, and section 3.3 for the *input feeding* of
    :math:`\tilde h_{t-1}` to the next step: without it a step does not know where the steps before
    it have looked. Then all steps can ask at once, after the recurrence. Differs from the paper:
    one layer of cells, GRU unless told otherwise, biases in the linear layers, and a first state
    :math:`h_0 = \tanh(W_0 z + b_0)` from the encoder's summary :math:`z`, where the paper's decoder
    starts from the encoder's last states as they are.

    Args:
        vocab_size: Number of target ids.
        embed_dim: Size of an embedding.
        context_size: Size of an annotation, which is that of the context vector.
        summary_size: Size of the encoder's summary, from which the first state is made.
        hidden_size: Size of the decoder's state and of the attentional vector.
        score: Has the methods of :class:`attn_course.nn.Score`;
            :class:`attn_course.nn.GeneralScore`, if ``None``.
        window: :class:`attn_course.nn.LocalM` or :class:`attn_course.nn.LocalP`; all places,
            if ``None``.
        input_feeding: Whether the attentional vector enters the next step.
        cell: Class of the cell, called as ``cell(input_size=..., hidden_size=...)``.

    Raises:
        ValueError: If a size is below 1, or ``score`` or ``window`` is no such module.
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
        check_positive(
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            context_size=context_size,
            summary_size=summary_size,
            hidden_size=hidden_size,
        )
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
        """The state before the first step; the keys are projected here, once per sentence.

        Raises:
            ValueError: If annotations or summary have another size than the decoder expects, the
                numbers of rows differ, or the mask is not boolean with one entry per place.
        """
        hidden, memory, alignment = read_source(self, annotations, summary, source_mask)
        return LuongState(
            recurrent=state_from(self.recurrent.cell, hidden),
            memory=memory,
            alignment=alignment,
            attentional=torch.zeros_like(hidden),
            steps=torch.zeros(len(hidden), dtype=torch.long, device=hidden.device),
        )

    def look(
        self,
        hidden: Float[Tensor, "B L H"],
        steps: Int[Tensor, "B L"],
        memory: AttentionMemory,
    ) -> tuple[Float[Tensor, "B L H"], Float[Tensor, "B L S"]]:
        """Attentional vectors and weights of states of the decoder."""
        window: Any = self.window
        longest, narrow = memory.mask.shape[-1], getattr(window, "half_width", torch.inf)
        # a score that looks at the numbers of places needs all of them
        if 2 * narrow + 2 < longest and not isinstance(self.attention.score, LocationScore):
            context, weights = window.attend(self.attention.score.compare, hidden, steps, memory)
            return torch.tanh(self.combine(torch.cat([context, hidden], dim=-1))), weights
        weigh = (lambda scores, _: window(scores, hidden, steps, memory.mask)) if window else None
        context, weights = self.attention.attend(hidden, memory, weigh=weigh)
        return torch.tanh(self.combine(torch.cat([context, hidden], dim=-1))), weights

    def forward(
        self, target_in: Int[Tensor, "B L"], state: LuongState
    ) -> tuple[Float[Tensor, "B L V"], Float[Tensor, "B L S"], LuongState]:
        """Logits and weights for every position of a known target, and the state at its end.

        Args:
            target_in: The target, shifted right, starting with ``BOS``. Logits and weights at
                ``t`` depend on the positions up to ``t`` only.
            state: From :meth:`init_state`, or from an earlier call.

        Raises:
            ValueError: If there is no position, an id is out of range, or the state is one of
                another number of rows.
        """
        words = embed_target(self.embedding, target_in, state.alignment)
        length = words.shape[1]
        steps = state.steps.unsqueeze(1) + torch.arange(length, device=words.device)  # (B, L)
        if not self.input_feeding:
            hiddens, recurrent = self.recurrent(words, state.recurrent)
            vectors, weights = self.look(hiddens, steps, state.memory)
        else:
            recurrent, vector = state.recurrent, state.attentional
            looks = []
            for t in range(length):
                recurrent = self.recurrent.cell(torch.cat([words[:, t], vector], -1), recurrent)
                query = hidden_of(recurrent).unsqueeze(1)  # (B, 1, H)
                looks.append(self.look(query, steps[:, t : t + 1], state.memory))
                vector = looks[-1][0].squeeze(1)
            vectors, weights = (torch.cat(parts, dim=1) for parts in zip(*looks, strict=True))
        after = state._replace(
            recurrent=recurrent,
            alignment=weights[:, -1],
            attentional=vectors[:, -1],
            steps=state.steps + length,
        )
        return self.output(vectors), weights, after
