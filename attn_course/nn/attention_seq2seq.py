"""Encoder and decoder with attention, after Bahdanau, Cho and Bengio."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course._checks import check_at_least, check_axes, check_ids
from attn_course.masks import padding_mask
from attn_course.nn.attention import Attention, AttentionMemory
from attn_course.nn.decoder_steps import embed_target, read_source
from attn_course.nn.parameters import SCORE, check_callable
from attn_course.nn.recurrent import GRUCell, Recurrent, hidden_of, state_from
from attn_course.nn.scores import AdditiveScore
from attn_course.nn.seq2seq import CellFactory


class BidirectionalEncoder(nn.Module):
    r"""Read the source in both directions: one annotation per word, from the words on both sides.

    .. math:: h_j = [\overrightarrow h_j; \overleftarrow h_j]

    Bahdanau, Cho and Bengio (2015), section 3.2 and appendix A.2.1. Arguments as of
    :class:`Encoder`; ``hidden_size`` is that of each direction, half of an annotation's.

    Example:
        >>> encoder = BidirectionalEncoder(vocab_size=11, embed_dim=4, hidden_size=3)
        >>> annotations, summary = encoder(torch.randint(11, (2, 7)))
        >>> annotations.shape, summary.shape
        (torch.Size([2, 7, 6]), torch.Size([2, 3]))
    """

    def __init__(
        self, *, vocab_size: int, embed_dim: int, hidden_size: int, cell: CellFactory = GRUCell
    ) -> None:
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embed_dim=embed_dim, hidden_size=hidden_size)
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.forwards = Recurrent(cell=cell(input_size=embed_dim, hidden_size=hidden_size))
        self.backwards = Recurrent(
            cell=cell(input_size=embed_dim, hidden_size=hidden_size), reverse=True
        )

    def forward(
        self, source: Int[Tensor, "B S"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B H"]]:
        r"""Annotations, 0 at padding; the summary :math:`\overleftarrow h_1` (appendix A.2.2)."""
        check_axes("source", source, "B S")
        check_ids("source", source, self.embedding.num_embeddings)
        words = self.embedding(source)
        ahead, _ = self.forwards(words, lengths=source_lengths)
        back, summary = self.backwards(words, lengths=source_lengths)
        return torch.cat([ahead, back], dim=-1), hidden_of(summary)


class BahdanauState(NamedTuple):
    """State of a :class:`BahdanauDecoder`; batch on axis 0 throughout.

    Attributes:
        recurrent: State of the cell.
        memory: The prepared source.
        alignment: Weights of the last step; 0 before the first.
    """

    recurrent: Any
    memory: AttentionMemory
    alignment: Float[Tensor, "B S"]


class BahdanauDecoder(nn.Module):
    r"""Attention first, then recurrence: the previous state is the query, the context an input.

    .. math::
       \alpha_i &= \mathrm{softmax}_j\, a(s_{i-1}, h_j) \\
       c_i &= \textstyle\sum_j \alpha_{ij} h_j \\
       s_i &= f(s_{i-1}, [y_{i-1}; c_i]) \\
       p(y_i \mid y_{<i}, x) &= \mathrm{softmax}(W_o [s_i; y_{i-1}; c_i] + b_o)

    Bahdanau, Cho and Bengio (2015), equations 4 to 6 and appendix A.2.2, with :math:`s_0 =
    \tanh(W_s \overleftarrow h_1 + b_s)`. Differs from the paper: the output is one linear layer in
    place of the maxout layer, and takes :math:`s_i` as in equation 4, where the appendix writes
    :math:`s_{i-1}`; :math:`s_0` and the alignment model have biases; and the GRU resets after the
    product, as torch's does (:func:`attn_course.functional.gru_cell`). Arguments as of
    :class:`Decoder`, and:

    Args:
        context_size: Size of an annotation, which is that of the context vector.
        summary_size: Size of the encoder's summary, from which the first state is made.
        score: The alignment model :math:`a`, with the methods of
            :class:`attn_course.nn.scores.Score`; additive, with
            ``hidden_size`` units, if ``None``.

    Example:
        >>> decoder = BahdanauDecoder(
        ...     vocab_size=13, embed_dim=4, context_size=6, summary_size=3, hidden_size=5
        ... )
        >>> mask = torch.ones(1, 7, dtype=torch.bool)
        >>> state = decoder.init_state(torch.randn(1, 7, 6), torch.randn(1, 3), mask)
        >>> logits, weights, state = decoder(torch.randint(13, (1, 4)), state)
        >>> logits.shape, weights.shape
        (torch.Size([1, 4, 13]), torch.Size([1, 4, 7]))
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
        cell: CellFactory = GRUCell,
    ) -> None:
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embed_dim=embed_dim, hidden_size=hidden_size)
        check_at_least(1, context_size=context_size, summary_size=summary_size)
        if score is None:
            score = AdditiveScore(
                query_size=hidden_size, key_size=context_size, hidden_size=hidden_size
            )
        check_callable(SCORE, "prepare", "compare", score=score)
        self.context_size = context_size
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.initial = nn.Linear(summary_size, hidden_size)
        self.attention = Attention(score=score)
        self.cell = cell(input_size=embed_dim + context_size, hidden_size=hidden_size)
        self.output = nn.Linear(hidden_size + embed_dim + context_size, vocab_size)

    def init_state(
        self,
        annotations: Float[Tensor, "B S C"],
        summary: Float[Tensor, "B Z"],
        source_mask: Bool[Tensor, "B S"],
    ) -> BahdanauState:
        """The state before the first step; the keys are projected here, once per sentence."""
        hidden, memory, alignment = read_source(self, annotations, summary, source_mask)
        return BahdanauState(state_from(self.cell, hidden), memory, alignment)

    def forward(
        self, target_in: Int[Tensor, "B L"], state: BahdanauState
    ) -> tuple[Float[Tensor, "B L V"], Float[Tensor, "B L S"], BahdanauState]:
        """Logits and weights for every position of a known target, and the state at its end.

        The target is shifted right, starting with ``BOS``: logits and weights at ``t`` depend on
        the positions up to ``t`` only. The state is from :meth:`init_state` or an earlier call.
        """
        words = embed_target(self.embedding, target_in, state.alignment)
        recurrent, memory = state.recurrent, state.memory
        joined, alignments = [], []
        for t in range(words.shape[1]):
            query = hidden_of(recurrent).unsqueeze(1)  # (B, 1, H)
            context, weights = self.attention.attend(query, memory)
            context = context.squeeze(1)
            recurrent = self.cell(torch.cat([words[:, t], context], dim=-1), recurrent)
            joined.append(torch.cat([hidden_of(recurrent), words[:, t], context], dim=-1))
            alignments.append(weights.squeeze(1))
        logits: Tensor = self.output(torch.stack(joined, dim=1))
        state = BahdanauState(recurrent, memory, alignments[-1])
        return logits, torch.stack(alignments, dim=1), state


class AttentionEncoderDecoder(nn.Module):
    r"""A conditional language model of the target that attends to the source at every step.

    .. math:: p(y \mid x) = \prod_{t=1}^{T_y} p(y_t \mid y_1, \ldots, y_{t-1}, x)

    Bahdanau et al. (2015), equation 4: the context :math:`c_t` differs for each target word.

    Args:
        encoder: Maps source and lengths to annotations, one per source word, and a summary:
            :class:`BidirectionalEncoder` or :class:`attn_course.nn.Encoder`.
        decoder: :class:`BahdanauDecoder` or :class:`attn_course.nn.LuongDecoder`.

    Example:
        >>> encoder = BidirectionalEncoder(vocab_size=11, embed_dim=4, hidden_size=3)
        >>> decoder = BahdanauDecoder(
        ...     vocab_size=13, embed_dim=4, context_size=6, summary_size=3, hidden_size=5
        ... )
        >>> model = AttentionEncoderDecoder(encoder=encoder, decoder=decoder)
        >>> model.align(torch.randint(11, (1, 7)), None, torch.randint(13, (1, 4))).shape
        torch.Size([1, 4, 7])
    """

    def __init__(self, *, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder: Any = decoder  # duck-typed

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, " B"] | None,
        target_in: Int[Tensor, "B L"],
    ) -> Float[Tensor, "B L V"]:
        """Logits of a known target (teacher forcing); as :meth:`EncoderDecoder.forward`."""
        return self.decoder(target_in, self.init_state(source, source_lengths))[0]

    def align(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, " B"] | None,
        target_in: Int[Tensor, "B L"],
    ) -> Float[Tensor, "B L S"]:
        """The soft alignment: weights for every position of a known target, 0 at padding."""
        return self.decoder(target_in, self.init_state(source, source_lengths))[1]

    def init_state(
        self, source: Int[Tensor, "B S"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> Any:
        """Read the source; the state from which :meth:`step` starts. Batch on axis 0 throughout."""
        annotations, summary = self.encoder(source, source_lengths)
        if source_lengths is None:
            mask = torch.ones(source.shape, dtype=torch.bool, device=source.device)
        else:
            mask = padding_mask(source_lengths, source.shape[1])
        return self.decoder.init_state(annotations, summary, mask)

    def step(self, token: Int[Tensor, " B"], state: Any) -> tuple[Float[Tensor, "B V"], Any]:
        """Logits for the next token after ``token``, and the next state: one step of decoding.

        The weights of the step are ``state.alignment`` of the state that is returned.
        """
        check_axes("token", token, "B")
        logits, _, state = self.decoder(token.unsqueeze(1), state)
        return logits.squeeze(1), state
