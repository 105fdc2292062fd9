"""Linformer: attention to a fixed number of mixtures of the keys."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attn_course.functional.low_rank import linformer_attention
from attn_course.nn.masking import real_tokens


class LengthProjection(nn.Module):
    r"""A learned matrix that mixes N positions into K: :math:`E` or :math:`F` of Linformer.

    Parameter: ``weight``, (K, N) for all heads or (H, K, N). Initialisation: normal, variance
    1/K, so that a mixture of keys compares like a key. Heads, keys and values, or layers share it
    by being given the same object.

    Args:
        max_length: :math:`N`, the longest sequence.
        rank: :math:`K`, the paper's :math:`k`.
        num_heads: One matrix per head; one for all if not given.

    Example:
        >>> LengthProjection(max_length=16, rank=4).weight.shape
        torch.Size([4, 16])
    """

    def __init__(self, *, max_length: int, rank: int, num_heads: int | None = None) -> None:
        super().__init__()
        if min(max_length, rank, 1 if num_heads is None else num_heads) < 1:
            raise ValueError(
                "max_length, rank, num_heads: expected at least 1, "
                f"got {max_length}, {rank}, {num_heads}"
            )
        heads = () if num_heads is None else (num_heads,)
        self.weight = nn.Parameter(torch.randn(*heads, rank, max_length) * rank**-0.5)


class LinformerAttention(nn.Module):
    r"""Linformer's attention, as an ``attn_fn`` of :class:`MultiHeadAttention`.

    .. math:: O = \mathrm{softmax}\!\left(\frac{Q (E K)^\top}{\sqrt{d}}\right) F V

    Wang et al. (2020), equation 7. ``MultiHeadAttention(..., attn_fn=LinformerAttention(...))``
    owns its parameters.

    Args:
        key_projection: :math:`E`.
        value_projection: :math:`F`; the same object for the paper's key-value sharing.

    Example:
        >>> from attn_course.nn.linformer import LengthProjection
        >>> mixture = LengthProjection(max_length=16, rank=4)
        >>> linformer = LinformerAttention(key_projection=mixture, value_projection=mixture)
        >>> attention = MultiHeadAttention(embed_dim=8, num_heads=2, attn_fn=linformer)
        >>> attention(torch.randn(1, 10, 8)).shape
        torch.Size([1, 10, 8])
    """

    def __init__(
        self, *, key_projection: LengthProjection, value_projection: LengthProjection
    ) -> None:
        super().__init__()
        self.key_projection, self.value_projection = key_projection, value_projection

    def forward(
        self,
        query: Float[Tensor, "B H L E"],
        key: Float[Tensor, "B H S E"],
        value: Float[Tensor, "B H S Ev"],
        attn_mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        scale: float | None = None,
        dropout_p: float = 0.0,
        enable_gqa: bool = False,
    ) -> Float[Tensor, "B H L Ev"]:
        """The output, one row for each query: :func:`attn_course.functional.linformer_attention`.

        Raises:
            ValueError: If the mask is no padding mask (B, 1, 1, S), ``is_causal`` or ``enable_gqa``
                is True, which mixtures of all positions can't do, or the text is too long.
        """
        if is_causal or enable_gqa:
            raise ValueError(
                "is_causal, enable_gqa: expected False, as every mixture contains every position, "
                f"got {is_causal}, {enable_gqa}"
            )
        return linformer_attention(
            query,
            key,
            value,
            self.key_projection.weight,
            self.value_projection.weight,
            padding_mask=real_tokens(attn_mask, None, (key.shape[0], key.shape[2])),
            scale=scale,
            dropout_p=dropout_p,
        )
