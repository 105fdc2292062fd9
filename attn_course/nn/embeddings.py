"""From token ids to the inputs of the first block, and back to logits."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import linear

from attn_course._checks import check_axes, check_ids, check_padding_mask
from attn_course.nn.positions import Biases, Rotates


class TokenEmbedding(nn.Module):
    r"""A learned vector per token, and what else is added before the first block.

    .. math:: x_i = \mathrm{dropout}(\mathrm{norm}(s\, E_{t_i} + P_i + T_{y_i}))

    Vaswani et al. (2017), sections 3.4 and 3.5: :math:`s = \sqrt D` and sinusoids; GPT-2:
    :math:`s = 1` and learned positions; BERT (Devlin et al., 2019) also has token types :math:`T`
    and the norm. Parts that are not given are left out. Initialisation: normal with standard
    deviation ``std``.

    Args:
        vocab_size: Number of token ids.
        embed_dim: Size of a vector.
        position: Maps positions to vectors: :class:`~attn_course.nn.SinusoidalPositions` or
            :class:`~attn_course.nn.LearnedPositions`.
        scale: :math:`s`.
        num_token_types: Number of token types, such as first and second sentence.
        norm: Applied to the sum.
        dropout: Chance that an element is dropped, in training mode.
        std: Of the initial tables.

    Example:
        >>> embedding = TokenEmbedding(vocab_size=11, embed_dim=8)
        >>> x = embedding(torch.tensor([[1, 2, 3]]))
        >>> x.shape, embedding.logits(x).shape
        (torch.Size([1, 3, 8]), torch.Size([1, 3, 11]))
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        embed_dim: int,
        position: nn.Module | None = None,
        scale: float = 1.0,
        num_token_types: int = 0,
        norm: nn.Module | None = None,
        dropout: float = 0.0,
        std: float = 0.02,
    ) -> None:
        super().__init__()
        if isinstance(position, Rotates | Biases | str):
            raise ValueError(
                "position: expected positions that are added, such as LearnedPositions(...), got "
                f"{position!r}: rotations and biases go into MultiHeadAttention"
            )
        self.tokens = nn.Embedding(vocab_size, embed_dim)
        self.position = position
        self.token_types = nn.Embedding(num_token_types, embed_dim) if num_token_types else None
        self.scale, self.norm = scale, norm
        self.dropout = nn.Dropout(dropout)
        for table in (self.tokens, self.token_types):
            if table is not None:
                nn.init.normal_(table.weight, std=std)

    def forward(
        self,
        input_ids: Int[Tensor, "B L"],
        positions: Int[Tensor, "B L"] | None = None,
        token_types: Int[Tensor, "B L"] | None = None,
        *,
        past: int = 0,
    ) -> Float[Tensor, "B L D"]:
        """One vector per token.

        Args:
            input_ids: Token ids.
            positions: Position of each token in its text; ``past``, ``past + 1``, ... if not given.
            token_types: 0 for all if not given.
            past: How many tokens a cache has.
        """
        check_axes("input_ids", input_ids, "B L")
        check_ids("input_ids", input_ids, self.tokens.num_embeddings)
        x: Tensor = self.tokens(input_ids)  # (B, L, D)
        if self.scale != 1.0:
            x = x * self.scale
        if self.position is not None:
            length = past + input_ids.shape[1]
            if positions is None:
                positions = torch.arange(past, length, device=input_ids.device)
            x = x + self.position(positions, length).to(x.dtype)
        if self.token_types is not None:
            x = x + self.token_types(
                torch.zeros_like(input_ids) if token_types is None else token_types
            )
        elif token_types is not None:
            raise ValueError("token_types: expected none, as the model has none")
        x = x if self.norm is None else self.norm(x)
        return self.dropout(x)

    def logits(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L V"]:
        """The output projection, tied to the input (Press and Wolf, 2017)."""
        return linear(x, self.tokens.weight)


def real_positions(
    padding_mask: Shaped[Tensor, "..."],
    input_ids: Int[Tensor, "B L"],
    *,
    past: Int[Tensor, " B"] | None = None,
) -> Int[Tensor, "B L"]:
    """Position of each token among the real ones of its row, ``past`` in a cache; -1 at padding."""
    check_padding_mask(padding_mask, input_ids.shape[0], input_ids.shape[1], input_ids)
    place = padding_mask.long().cumsum(-1) - 1
    if past is not None:
        place = place + past.unsqueeze(-1)
    return torch.where(padding_mask, place, -1)
