"""From token ids to the vectors that the first block sees, and back to logits."""

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn
from torch.nn.functional import linear

from attn_course._checks import check_axes, check_ids


class TokenEmbedding(nn.Module):
    r"""A learned vector per word, and what else is added before the first block.

    .. math:: x_i = \mathrm{dropout}(\mathrm{norm}(s\, E_{t_i} + P_i + T_{y_i}))

    Vaswani et al. (2017), sections 3.4 and 3.5: :math:`s = \sqrt D` and sinusoids; GPT-2:
    :math:`s = 1` and learned positions; BERT (Devlin et al., 2019) also has token types :math:`T`
    and the norm. What is not given is not there. Initialisation: normal with standard deviation
    ``std``.

    Args:
        vocab_size: Number of token ids.
        embed_dim: Size of a vector.
        position: Maps positions to vectors: :class:`~attn_course.nn.SinusoidalPositions` or
            :class:`~attn_course.nn.LearnedPositions`.
        scale: :math:`s`.
        num_token_types: Number of token types, such as first and second sentence.
        norm: Applied to the sum.
        dropout: Chance that an entry is dropped, in training mode.
        std: Of the initial tables.
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
            positions: Where each token stands in its text; ``past``, ``past + 1``, ... if not
                given.
            token_types: 0 for all if not given.
            past: How many tokens came before, in a cache.

        Raises:
            ValueError: If an id is out of range, or there are more positions than vectors for them.
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
        output: Tensor = self.dropout(x)
        return output

    def logits(self, x: Float[Tensor, "B L D"]) -> Float[Tensor, "B L V"]:
        """How well each word's vector fits: the output projection, tied to the input (Press and
        Wolf, 2017)."""
        return linear(x, self.tokens.weight)


def real_positions(
    padding_mask: Bool[Tensor, "B L"], past: Int[Tensor, " B"] | None = None
) -> Int[Tensor, "B L"]:
    """Where each token stands among the real ones of its row; -1 at padding.

    Args:
        padding_mask: True = a real token.
        past: How many real tokens came before, per row.
    """
    place = padding_mask.long().cumsum(-1) - 1
    if past is not None:
        place = place + past.unsqueeze(-1)
    return torch.where(padding_mask, place, -1)


def check_padding_mask(padding_mask: Shaped[Tensor, "..."], input_ids: Int[Tensor, "B L"]) -> None:
    """Refuse a padding mask that is not boolean with one entry per token."""
    if padding_mask.dtype != torch.bool or padding_mask.shape != input_ids.shape:
        raise ValueError(
            f"padding_mask: expected a boolean mask of shape {tuple(input_ids.shape)} "
            f"(True = a real token), got {padding_mask.dtype} of shape {tuple(padding_mask.shape)}"
        )
