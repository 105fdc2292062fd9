"""Linformer: attention to a fixed number of mixtures of the keys."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attn_course.functional.low_rank import linformer_attention


class LengthProjection(nn.Module):
    r"""A learned matrix that mixes N positions into K: :math:`E` or :math:`F` of Linformer.

    Parameter: ``weight``, (K, N) for all heads or (H, K, N). Initialisation: normal, variance
    1/K, so that a mixture of keys compares like a key. Heads, keys and values, or layers share it
    by being given the same object.

    Args:
        max_length: :math:`N`, the longest sequence.
        rank: :math:`K`, the paper's :math:`k`.
        num_heads: One matrix per head; one for all if not given.

    Raises:
        ValueError: If a number is below 1.
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
    r"""What :class:`MultiHeadAttention` takes as ``attn_fn`` to become Linformer's attention.

    .. math:: O = \mathrm{softmax}\!\left(\frac{Q (E K)^\top}{\sqrt{d}}\right) F V

    Wang et al. (2020), equation 7. ``MultiHeadAttention(..., attn_fn=LinformerAttention(...))``
    owns its parameters.

    Args:
        key_projection: :math:`E`.
        value_projection: :math:`F`; the same object for the paper's key-value sharing.
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
        """The output, one row for each query.

        Args:
            query: What is looked for.
            key: What it is compared with, after mixing.
            value: What is mixed, twice.
            attn_mask: None, or a padding mask (B, 1, 1, S).
            is_causal: Must be False: a mixture holds something of every position.
            scale: Instead of 1/sqrt(E).
            dropout_p: Chance that a weight is dropped.
            enable_gqa: Must be False.

        Raises:
            ValueError: If it is asked for what mixtures can't do, or the text is too long.
        """
        if is_causal or enable_gqa:
            raise ValueError(
                "is_causal, enable_gqa: expected False, as every mixture holds something of every "
                f"position, got {is_causal}, {enable_gqa}"
            )
        padding = None
        if attn_mask is not None:
            shape = (key.shape[0], 1, 1, key.shape[2])
            if attn_mask.dtype != torch.bool or attn_mask.shape != shape:
                raise ValueError(
                    f"attn_mask: expected a boolean padding mask of shape {shape}, "
                    f"got {attn_mask.dtype} of shape {tuple(attn_mask.shape)}"
                )
            padding = attn_mask[:, 0, 0]
        return linformer_attention(
            query,
            key,
            value,
            self.key_projection.weight,
            self.value_projection.weight,
            padding_mask=padding,
            scale=scale,
            dropout_p=dropout_p,
        )
