"""Keys and values shortened along the sequence: Linformer (Wang et al., 2020), and the spectrum."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attn_course._checks import (
    check_axes,
    check_floating,
    check_padding_mask,
    check_size,
    check_tensor,
)
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention


def _project_length(
    x: Float[Tensor, "B H S E"],
    projection: Float[Tensor, "*H K N"],
    padding_mask: Bool[Tensor, "B S"] | None = None,
) -> Float[Tensor, "B H K E"]:
    r"""Mix S positions into K of them: :math:`x' = P x`, along the sequence.

    Of a shorter sequence the first S columns of :math:`P` count; what is padding counts as 0.
    """
    check_floating("x", x)
    check_axes("x", x, "B H S E")
    check_tensor("projection", projection)
    length = x.shape[2]
    if projection.ndim not in (2, 3):
        raise ValueError(
            f"projection: expected axes (K, N) or (H, K, N), got {tuple(projection.shape)}"
        )
    if projection.shape[-1] < length:
        raise ValueError(
            f"x: expected at most {projection.shape[-1]} positions, as the projection has, "
            f"got {length}"
        )
    if projection.ndim == 3:
        check_size("projection", projection, 0, x.shape[1])
    if padding_mask is not None:
        check_padding_mask(padding_mask, x.shape[0], length, x)
        x = torch.where(padding_mask[:, None, :, None], x, 0.0)
    return projection[..., :length].to(x.dtype) @ x


def linformer_attention(
    query: Float[Tensor, "B H L E"],
    key: Float[Tensor, "B H S E"],
    value: Float[Tensor, "B H S Ev"],
    key_projection: Float[Tensor, "*H K N"],
    value_projection: Float[Tensor, "*H K M"],
    *,
    padding_mask: Bool[Tensor, "B S"] | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> Float[Tensor, "B H L Ev"]:
    r"""Attend to K mixtures of the keys in place of the S keys themselves.

    .. math:: O = \mathrm{softmax}\!\left(\frac{Q (E K)^\top}{\sqrt{d}}\right) F V

    Wang et al. (2020), equation 7; :math:`E` is our ``key_projection``, :math:`F` our
    ``value_projection``, their :math:`k` is K, their :math:`d` our E. Scores are L × K. A mixture
    contains something of every position, the last one included, so that there is no causal form.
    The rest as of :func:`scaled_dot_product_attention`.

    Args:
        key_projection: :math:`E`, (K, N) or one per head (H, K, N), for at most N positions.
        value_projection: :math:`F`, likewise.
        padding_mask: True = a real key; padding counts as 0 in the mixtures.

    Returns:
        One row for each query; 0 where all keys are padding.

    Example:
        >>> query, key, value = torch.randn(3, 2, 4, 9, 8)
        >>> linformer_attention(query, key, value, torch.randn(3, 9), torch.randn(3, 9)).shape
        torch.Size([2, 4, 9, 8])
    """
    check_axes("key", key, "B H S E")
    check_axes("value", value, "B H S E")
    check_size("value", value, 2, key.shape[2])
    return scaled_dot_product_attention(
        query,
        _project_length(key, key_projection, padding_mask),
        _project_length(value, value_projection, padding_mask),
        scale=scale,
        dropout_p=dropout_p,
    )
