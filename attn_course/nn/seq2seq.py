"""Encoder and decoder around one fixed context vector: sequence to sequence, no attention."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course._checks import check_at_least, check_axes, check_ids, check_size
from attn_course.nn.recurrent import Cell, GRUCell, Recurrent, hidden_of, state_from

CellFactory = Callable[..., Cell]


class Encoder(nn.Module):
    r"""Read the source, and return one vector for all of it.

    .. math:: h_t = f(x_t, h_{t-1}), \qquad c = h_{T_x}

    Bahdanau, Cho and Bengio (2015), equation 1, with Sutskever's choice of :math:`q`: the context
    is the last hidden state, of the same size for a source of 5 words and of 50. A recurrent
    network: that of a Transformer is :class:`~attn_course.nn.TransformerEncoder`.

    Args:
        vocab_size: Number of source ids.
        embed_dim: Size of an embedding.
        hidden_size: Size of the context vector.
        cell: Class of the cell, called as ``cell(input_size=..., hidden_size=...)``.
        reverse: Read the source backwards (Sutskever et al., 2014, section 3.3).

    Example:
        >>> encoder = Encoder(vocab_size=11, embed_dim=4, hidden_size=3)
        >>> states, context = encoder(torch.randint(11, (2, 7)), torch.tensor([7, 5]))
        >>> states.shape, context.shape
        (torch.Size([2, 7, 3]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        embed_dim: int,
        hidden_size: int,
        cell: CellFactory = GRUCell,
        reverse: bool = False,
    ) -> None:
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embed_dim=embed_dim, hidden_size=hidden_size)
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.recurrent = Recurrent(
            cell=cell(input_size=embed_dim, hidden_size=hidden_size), reverse=reverse
        )

    def forward(
        self, source: Int[Tensor, "B S"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B S H"], Float[Tensor, "B H"]]:
        """All hidden states, 0 at padding, not used by this model, and the context vector."""
        check_axes("source", source, "B S")
        check_ids("source", source, self.embedding.num_embeddings)
        outputs, state = self.recurrent(self.embedding(source), lengths=source_lengths)
        return outputs, hidden_of(state)


class Decoder(nn.Module):
    r"""Generate the target word by word; every step gets the same context vector.

    .. math::
       s_0 &= \tanh(W_s c + b_s) \\
       s_t &= f(s_{t-1}, [y_{t-1}; c]) \\
       p(y_t \mid y_{<t}, c) &= \mathrm{softmax}(W_o [s_t; y_{t-1}; c] + b_o)

    This is the decoder of Cho et al. (2014, section 2.2), which Bahdanau et al. (2015, equation 3)
    call RNNencdec: the context enters *every* step and every output, so that nothing is lost on the
    way through the decoder and the context vector is the only bottleneck. Sutskever et al. (2014)
    give it as the initial state only. The output is one linear layer in place of Cho's maxout.
    Arguments as of :class:`Encoder`, with ``vocab_size`` of the target, and:

    Args:
        context_size: Size of the context vector.
        hidden_size: Size of the decoder's state.

    Example:
        >>> decoder = Decoder(vocab_size=13, embed_dim=4, context_size=3, hidden_size=5)
        >>> state = decoder.init_state(torch.randn(2, 3))
        >>> logits, state = decoder(torch.randint(13, (2, 4)), state)
        >>> logits.shape
        torch.Size([2, 4, 13])
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        embed_dim: int,
        context_size: int,
        hidden_size: int,
        cell: CellFactory = GRUCell,
    ) -> None:
        super().__init__()
        check_at_least(1, vocab_size=vocab_size, embed_dim=embed_dim)
        check_at_least(1, context_size=context_size, hidden_size=hidden_size)
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.initial = nn.Linear(context_size, hidden_size)
        self.recurrent = Recurrent(
            cell=cell(input_size=embed_dim + context_size, hidden_size=hidden_size)
        )
        self.output = nn.Linear(hidden_size + embed_dim + context_size, vocab_size)

    def init_state(self, context: Float[Tensor, "B C"]) -> tuple[Float[Tensor, "B C"], Any]:
        """The state before the first step: the context, and the state of the cell.

        An LSTM starts with :math:`s_0` as its hidden state and with an empty cell.
        """
        check_axes("context", context, "B C")
        check_size("context", context, -1, self.initial.in_features)
        hidden = torch.tanh(self.initial(context))
        return context, state_from(self.recurrent.cell, hidden)

    def forward(
        self, target_in: Int[Tensor, "B L"], state: tuple[Float[Tensor, "B C"], Any]
    ) -> tuple[Float[Tensor, "B L V"], tuple[Float[Tensor, "B C"], Any]]:
        """Logits for every position of a known target (teacher forcing), and the state at its end.

        The target is shifted right: position ``t`` is :math:`y_{t-1}`, the first one ``BOS``. The
        logits at ``t`` depend on the positions up to ``t`` only.
        """
        context, before = state
        check_axes("target_in", target_in, "B L")
        check_size("target_in", target_in, 0, context.shape[0])
        check_ids("target_in", target_in, self.embedding.num_embeddings)
        words = self.embedding(target_in)  # (B, L, embed_dim)
        contexts = context.unsqueeze(1).expand(-1, words.shape[1], -1)  # (B, L, C)
        hiddens, after = self.recurrent(torch.cat([words, contexts], dim=-1), before)
        logits: Tensor = self.output(torch.cat([hiddens, words, contexts], dim=-1))
        return logits, (context, after)


class EncoderDecoder(nn.Module):
    r"""A conditional language model of the target given the source.

    .. math:: p(y \mid x) = \prod_{t=1}^{T_y} p(y_t \mid y_1, \ldots, y_{t-1}, c)

    Bahdanau et al. (2015), equation 2; Sutskever et al. (2014), equation 1.

    Args:
        encoder: Maps source and lengths to a pair of hidden states and context.
        decoder: Has the methods of :class:`Decoder`.

    Example:
        >>> model = EncoderDecoder(
        ...     encoder=Encoder(vocab_size=11, embed_dim=4, hidden_size=3),
        ...     decoder=Decoder(vocab_size=13, embed_dim=4, context_size=3, hidden_size=5),
        ... )
        >>> model(torch.randint(11, (2, 7)), None, torch.randint(13, (2, 4))).shape
        torch.Size([2, 4, 13])
    """

    def __init__(self, *, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(
        self,
        source: Int[Tensor, "B S"],
        source_lengths: Int[Tensor, " B"] | None,
        target_in: Int[Tensor, "B L"],
    ) -> Float[Tensor, "B L V"]:
        """Logits for every position of a known target: teacher forcing.

        Args:
            source: Padded source ids.
            source_lengths: How many ids of each source row count; all, if ``None``.
            target_in: Target ids shifted right, starting with ``BOS``; padding at the end needs no
                lengths, because no position looks ahead. Leave padded positions out of the loss.
        """
        return self.decoder(target_in, self.init_state(source, source_lengths))[0]

    def init_state(
        self, source: Int[Tensor, "B S"], source_lengths: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B C"], Any]:
        """Read the source; the state from which :meth:`step` starts. Batch on axis 0 throughout."""
        _, context = self.encoder(source, source_lengths)
        return self.decoder.init_state(context)

    def step(
        self, token: Int[Tensor, " B"], state: tuple[Float[Tensor, "B C"], Any]
    ) -> tuple[Float[Tensor, "B V"], tuple[Float[Tensor, "B C"], Any]]:
        """Logits for the next token after ``token``, and the next state: one step of decoding."""
        check_axes("token", token, "B")
        logits, state = self.decoder(token.unsqueeze(1), state)
        return logits.squeeze(1), state
