"""Attention to the keys of a window, and to a few global ones."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from attn_course.functional._fast import faster, window
from attn_course.functional._windows import check_window
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention
from attn_course.masks import window_mask


@faster(window.sliding_window_attention)
def sliding_window_attention(
    query: Float[Tensor, "B Hq L E"],
    key: Float[Tensor, "B Hkv L E"],
    value: Float[Tensor, "B Hkv L Ev"],
    attn_mask: Shaped[Tensor, "..."] | None = None,
    *,
    window_size: int,
    dilation: int | Sequence[int] = 1,
    is_causal: bool = False,
    global_mask: Bool[Tensor, "B L"] | None = None,
    symmetric: bool = True,
    scale: float | None = None,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
) -> Float[Tensor, "B Hq L Ev"]:
    r"""Scaled dot-product attention inside a window, plus chosen global positions.

    .. math:: o_i = \sum_{j \in S_i} \frac{e^{q_i \cdot k_j / \sqrt E}}{\sum_{j' \in S_i}
       e^{q_i \cdot k_{j'} / \sqrt E}}\, v_j, \qquad
       S_i = \{ j : \mathrm{window}(i, j) \lor g_i \lor g_j \}

    Beltagy et al. (2020): sliding window, dilated sliding window and global attention. The window
    is that of :func:`attn_course.masks.window_mask`. Time grows with L·W, not with L²; the backward
    pass computes the weights again, so that memory grows with L alone. The rest as of
    :func:`scaled_dot_product_attention`.

    Args:
        attn_mask: Padding: True = a key that counts, with axes ``(B or 1, 1, 1, L)``. Other masks
            are refused.
        window_size: How many keys a query attends to, itself included; odd if not causal.
        dilation: Distance of neighbours in the window; a list has one for each query head.
        is_causal: Whether a query attends only to keys up to its own, global ones included.
        global_mask: Positions that attend to all and that all attend to; padding does not count.
        symmetric: False: all attend to global positions, which attend to their window only.
        dropout_p: Only 0.

    Returns:
        One row for each query, 0 where all its keys are padding. Padding does not matter, NaN
        included.

    Raises:
        ValueError: If something is asked for that only a full mask can do, or an argument is wrong.

    Note:
        What runs takes the window block by block and agrees with this equation. The equation, with
        L² scores, runs under vmap and other transforms, and where a ``global_mask`` is compiled or
        exported: the number of global positions is not known then. Where they are known beforehand,
        :func:`sparse_attention` under ``window_pattern(...) | global_pattern(...)`` compiles to
        work that grows with L·(W + G). Second derivatives are those of the equation. *Differs from
        torch*: queries and keys are the same positions.

    Example:
        >>> query, key, value = torch.randn(3, 1, 2, 100, 8)
        >>> sliding_window_attention(query, key, value, window_size=5).shape
        torch.Size([1, 2, 100, 8])
    """
    dilations, real, chosen = check_window(
        query, key, value, attn_mask, window_size, dilation, is_causal, global_mask,
        dropout_p, enable_gqa,
    )  # fmt: skip
    mask = torch.stack(
        [
            window_mask(query.shape[2], window_size=window_size, causal=is_causal, dilation=step)
            for step in dilations
        ]
    ).to(query.device)  # (H, L, L)
    mask = mask | chosen[:, None, None, :]  # (B, H, L, L)
    if symmetric:
        mask = mask | chosen[:, None, :, None]
    if is_causal:
        mask = mask.tril()
    mask = mask & real[:, None, None, :]
    return scaled_dot_product_attention(query, key, value, mask, scale=scale, enable_gqa=enable_gqa)
