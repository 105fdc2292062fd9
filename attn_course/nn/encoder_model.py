"""Encoder-only models: a vector for every token, from the tokens on both sides."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear

from attn_course._calls import explained
from attn_course.functional.feed_forward import gelu
from attn_course.nn.block import EncoderBlock
from attn_course.nn.embeddings import TokenEmbedding, real_positions
from attn_course.nn.feed_forward import FeedForward
from attn_course.nn.multihead import MultiHeadAttention
from attn_course.nn.norms import LayerNorm
from attn_course.nn.parameters import check_input
from attn_course.nn.positions import LearnedPositions
from attn_course.nn.reformer import ReformerEncoder
from attn_course.nn.transformer import TransformerEncoder


class EncoderModel(nn.Module):
    r"""An embedding, a stack of encoder blocks, and a head.

    Devlin et al. (2019), BERT.

    Args:
        embedding: From ids to vectors.
        encoder: Stack of encoder blocks.
        head: From vectors to logits, such as :class:`MaskedWordHead`; none if not given.
        pooler: From vectors to one vector per row, such as :class:`Pooler`.

    Example:
        >>> model = bert_like(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2)
        >>> ids, real = torch.tensor([[3, 4, 5, 0]]), torch.tensor([[True, True, True, False]])
        >>> model(ids, real).shape
        torch.Size([1, 4, 8])

        Each token attends to itself and to two tokens on each side:

        >>> from functools import partial
        >>> from attn_course.functional import sliding_window_attention
        >>> window = partial(sliding_window_attention, window_size=5)
        >>> blocks = [
        ...     EncoderBlock(
        ...         attention=MultiHeadAttention(
        ...             embed_dim=8, num_heads=2, position=RotaryPositions(), attn_fn=window
        ...         ),
        ...         attention_norm=LayerNorm(embed_dim=8),
        ...         feed_forward=FeedForward(embed_dim=8, hidden_dim=32),
        ...         feed_forward_norm=LayerNorm(embed_dim=8),
        ...     )
        ...     for _ in range(2)
        ... ]
        >>> embedding = TokenEmbedding(vocab_size=11, embed_dim=8)
        >>> EncoderModel(embedding=embedding, encoder=TransformerEncoder(blocks=blocks))(
        ...     ids, real
        ... ).shape
        torch.Size([1, 4, 8])
    """

    def __init__(
        self,
        *,
        embedding: TokenEmbedding,
        encoder: TransformerEncoder | ReformerEncoder,
        head: nn.Module | None = None,
        pooler: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.head, self.pooler = head, pooler

    def hidden(
        self,
        input_ids: Int[Tensor, "B L"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
        *,
        token_types: Int[Tensor, "B L"] | None = None,
        **options: Any,
    ) -> Float[Tensor, "B L D"]:
        """One vector per token; arguments as in :meth:`forward`."""
        positions = None if padding_mask is None else real_positions(padding_mask, input_ids)
        x = self.embedding(input_ids, positions, token_types)
        return self.encoder(x, positions=positions, **options)

    def forward(
        self,
        input_ids: Int[Tensor, "B L"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
        *,
        token_types: Int[Tensor, "B L"] | None = None,
        **options: Any,
    ) -> Float[Tensor, "B ..."]:
        """Logits of the head; the vectors themselves if there is none.

        Args:
            input_ids: Token ids.
            padding_mask: True = a real token.
            token_types: Which sentence each belongs to; 0 if not given.
            **options: Further arguments of the attention, such as ``global_mask`` of
                :class:`~attn_course.nn.LongformerSelfAttention`.
        """
        hidden = self.hidden(input_ids, padding_mask, token_types=token_types, **options)
        return hidden if self.head is None else self.head(hidden)


class Pooler(nn.Module):
    r"""One vector per row, from the first token: :math:`\tanh(W x_1 + b)`, as in BERT.

    Initialisation: normal, standard deviation 0.02, bias 0.

    Args:
        embed_dim: Size of a vector.

    Example:
        >>> Pooler(embed_dim=8)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 8])
    """

    def __init__(self, *, embed_dim: int) -> None:
        super().__init__()
        self.projection = nn.Linear(embed_dim, embed_dim)
        nn.init.normal_(self.projection.weight, std=0.02)
        nn.init.zeros_(self.projection.bias)

    def forward(self, hidden: Float[Tensor, "B L D"]) -> Float[Tensor, "B D"]:
        """One vector per row."""
        check_input("hidden", hidden, "B L D", self.projection.in_features, self.projection)
        return torch.tanh(self.projection(hidden[:, 0]))


class MaskedWordHead(nn.Module):
    r"""Logits of the word at each position, from the vectors of the encoder.

    .. math:: \mathrm{logits} = E\, \mathrm{norm}(\phi(W h + b)) + c

    Devlin et al. (2019), BERT, where :math:`E` is the table of the embedding. Initialisation:
    normal, standard deviation 0.02, biases 0.

    Args:
        embed_dim: Size of a vector.
        tokens: The table :math:`E`, shared with the embedding where it is
            ``model.embedding.tokens``.
        activation: :math:`\phi`.
        norm: Applied before the table.

    Example:
        >>> table, norm = nn.Embedding(11, 8), LayerNorm(embed_dim=8)
        >>> MaskedWordHead(embed_dim=8, tokens=table, norm=norm)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 11])
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        tokens: nn.Embedding,
        activation: Callable[[Tensor], Tensor] = gelu,
        norm: nn.Module,
    ) -> None:
        super().__init__()
        self.projection = nn.Linear(embed_dim, embed_dim)
        self.activation, self.norm, self.tokens = activation, norm, tokens
        self.bias = nn.Parameter(torch.zeros(tokens.num_embeddings))
        nn.init.normal_(self.projection.weight, std=0.02)
        nn.init.zeros_(self.projection.bias)

    def forward(self, hidden: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """One logit per word and position."""
        check_input("hidden", hidden, "... D", self.projection.in_features, self.projection)
        x = self.norm(self.activation(self.projection(hidden)))
        return linear(x, self.tokens.weight, self.bias)


@explained
def bert_like(
    *,
    vocab_size: int = 30522,
    max_length: int = 512,
    num_token_types: int = 2,
    embed_dim: int = 768,
    num_heads: int = 12,
    num_layers: int = 12,
    hidden_dim: int = 3072,
    head: nn.Module | None = None,
    dropout: float = 0.0,
    eps: float = 1e-12,
) -> EncoderModel:
    r"""BERT (Devlin et al., 2019), by default the base model: 109,482,240 parameters.

    Learned positions, token types, a norm on the embedding, post-norm, GELU, biases everywhere.
    Initialisation: normal, standard deviation 0.02, biases 0.

    .. math:: (V + T + Y) D + 2 D + N \left[ 4 (D^2 + D) + (2 D F + F + D) + 4 D \right]
       + \underbrace{(D^2 + D)}_{\text{pooler}}

    Letters as for :func:`gpt2_like`; :math:`Y` is ``num_token_types``. BERT's ``dropout`` is 0.1.

    Example:
        >>> model = bert_like(vocab_size=65, embed_dim=16, num_heads=2, num_layers=2, hidden_dim=32)
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 16])
    """
    norm = partial(LayerNorm, embed_dim=embed_dim, eps=eps)
    blocks = [
        EncoderBlock(
            attention=MultiHeadAttention(embed_dim=embed_dim, num_heads=num_heads, dropout=dropout),
            attention_norm=norm(),
            feed_forward=FeedForward(embed_dim=embed_dim, hidden_dim=hidden_dim, activation=gelu),
            feed_forward_norm=norm(),
            dropout=dropout,
        )
        for _ in range(num_layers)
    ]
    model = EncoderModel(
        embedding=TokenEmbedding(
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            position=LearnedPositions(max_length=max_length, embed_dim=embed_dim),
            num_token_types=num_token_types,
            norm=norm(),
            dropout=dropout,
        ),
        encoder=TransformerEncoder(blocks=blocks),
        head=head,
        pooler=Pooler(embed_dim=embed_dim),
    )
    for part in model.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.02)
    return model
