"""Clipping of gradients by their common norm."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attn_course._checks import widest


def clip_by_global_norm(
    grads: Sequence[Float[Tensor, "..."]], max_norm: float
) -> tuple[list[Float[Tensor, "..."]], Float[Tensor, ""]]:
    r"""Shrink all gradients by one factor, so that their common norm is at most ``max_norm``.

    .. math:: N = \sqrt{\sum_i \lVert g_i \rVert^2}, \qquad
       g_i \leftarrow g_i \cdot \min\left(1, \frac{\mathrm{max\_norm}}{N + 10^{-6}}\right)

    One factor for all: the direction of the step stays, only its length changes. Pascanu, Mikolov
    and Bengio (2013), algorithm 1; the :math:`10^{-6}` is torch's guard against :math:`N = 0`.

    Args:
        grads: Gradients of any shapes; they are not changed.
        max_norm: Largest norm allowed, not negative.

    Returns:
        The clipped gradients, and the norm :math:`N` before clipping. Differs from
        ``torch.nn.utils.clip_grad_norm_``, which writes into the ``grad`` of parameters.

    Example:
        >>> clip_by_global_norm([torch.tensor([3.0]), torch.tensor([4.0])], max_norm=1.0)
        ([tensor([0.6000]), tensor([0.8000])], tensor(5.))
    """
    if not max_norm >= 0:
        raise ValueError(f"max_norm: expected a number >= 0, got {max_norm}")
    if not grads:
        return [], torch.zeros(())
    wide = [grad.to(widest(grad)) for grad in grads]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in wide]))
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    return [(g * factor).to(grad.dtype) for g, grad in zip(wide, grads, strict=True)], norm
