"""The reach of stacked layers of sparse attention."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool
from torch import Tensor

from attn_course._checks import check_tensor


def receptive_field(
    mask: Bool[Tensor, "L L"] | Sequence[Bool[Tensor, "L L"]], num_layers: int | None = None
) -> Bool[Tensor, "N L L"]:
    r"""What the output of each layer can depend on: the product of the masks as truth values.

    .. math:: R^{(n)} = M^{(n)} R^{(n-1)}, \qquad R^{(0)} = I

    Position ``j`` is in row ``i`` of :math:`R^{(n)}` where a path of ``n`` attended pairs leads
    from ``i`` to ``j``. A path is not a use: trained layers may ignore it.

    Args:
        mask: True = may attend; one for all layers, or one for each, the first layer first.
        num_layers: How many layers there are, where they share one mask.

    Returns:
        One reach for each layer, the first layer first.

    Raises:
        ValueError: If the masks are not boolean squares of one size, or the numbers do not fit.

    Example:
        >>> from attn_course.masks import window_mask
        >>> receptive_field(window_mask(5, window_size=2, causal=True), 2)[-1].int()
        tensor([[1, 0, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 1, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 1, 1, 1]], dtype=torch.int32)
    """
    if isinstance(mask, Tensor):
        if num_layers is None or num_layers < 1:
            raise ValueError(f"num_layers: expected a positive number, got {num_layers}")
        masks = [mask] * num_layers
    else:
        masks = list(mask)
        if not masks or num_layers not in (None, len(masks)):
            raise ValueError(f"num_layers: expected {len(masks)}, at least 1, got {num_layers}")
    reached: list[Tensor] = []
    for number, one in enumerate(masks):
        check_tensor(f"mask[{number}]", one)
        if one.dtype != torch.bool or one.ndim != 2 or len({*one.shape, *masks[0].shape}) != 1:
            raise ValueError(
                f"mask[{number}]: expected a boolean square {tuple(masks[0].shape)}, "
                f"got {one.dtype} of shape {tuple(one.shape)}"
            )
        # a count of paths would overflow; whether there is one does not
        step = one.float() @ reached[-1].float() > 0 if reached else one
        reached.append(step)
    return torch.stack(reached)


def window_reach(*, window_size: int, num_layers: int, dilation: int | Sequence[int] = 1) -> int:
    r"""How many positions, from the first to the last, stacked windows span.

    .. math:: R = 1 + (W - 1) \sum_{n=1}^{N} d_n

    Beltagy et al. (2020), section 3.1, count :math:`N \cdot W` and :math:`N \cdot d \cdot W`.

    Args:
        window_size: :math:`W`, itself included.
        num_layers: :math:`N`.
        dilation: The same for all layers, or one for each.

    Raises:
        ValueError: If a number is not positive, or dilations and layers differ in number.

    Example:
        >>> window_reach(window_size=3, num_layers=4)
        9
    """
    each = [dilation] * num_layers if isinstance(dilation, int) else list(dilation)
    for name, number in (("window_size", window_size), ("num_layers", num_layers)):
        if number < 1:
            raise ValueError(f"{name}: expected a positive number, got {number}")
    if len(each) != num_layers or min(each) < 1:
        raise ValueError(f"dilation: expected {num_layers} positive numbers, got {dilation}")
    return 1 + (window_size - 1) * sum(each)
