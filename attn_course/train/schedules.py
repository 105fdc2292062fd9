"""Learning rate as a function of the step, counted from 0: what ``fit`` takes as ``schedule``."""

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def warmup_inverse_sqrt(*, embed_dim: int, warmup: int = 4000, factor: float = 1.0) -> Schedule:
    """Linear rise, then decay with the inverse square root of the step.

    .. math::

        \\mathrm{lr}(t) = \\mathrm{factor} \\cdot D^{-1/2}
        \\min\\left(t^{-1/2},\\; t \\cdot \\mathrm{warmup}^{-3/2}\\right),
        \\qquad t = \\mathrm{step} + 1

    The two branches meet at :math:`t = \\mathrm{warmup}`, where the rate is largest:
    :math:`\\mathrm{factor} / \\sqrt{D \\cdot \\mathrm{warmup}}`.

    Source: Vaswani et al. 2017, equation 3 (:math:`D` is their :math:`d_\\mathrm{model}`; they
    count steps from 1 and use ``factor=1``).

    Args:
        embed_dim: Width of the model, :math:`D`.
        warmup: Steps of the linear rise.
        factor: Multiplies the whole curve.

    Raises:
        ValueError: If an argument is not positive.

    Example:
        >>> rate = warmup_inverse_sqrt(embed_dim=512, warmup=4000)
        >>> rate(3999) > rate(0), rate(3999) > rate(8000)
        (True, True)
    """
    _positive("embed_dim", embed_dim)
    _positive("warmup", warmup)
    _positive("factor", factor)

    def rate(step: int) -> float:
        count = step + 1
        return factor * float(embed_dim**-0.5 * min(count**-0.5, count * warmup**-1.5))

    return rate


def warmup_cosine(*, peak: float, warmup: int, steps: int, floor: float = 0.0) -> Schedule:
    """Linear rise to ``peak`` in ``warmup`` steps, then half a cosine down to ``floor``.

    .. math::

        \\mathrm{lr}(t) = \\mathrm{floor} + \\frac{\\mathrm{peak} - \\mathrm{floor}}{2}
        \\left(1 + \\cos \\pi \\frac{t - \\mathrm{warmup}}
        {\\mathrm{steps} - \\mathrm{warmup}}\\right)
        \\qquad t = \\mathrm{step} + 1 > \\mathrm{warmup}

    Source: Loshchilov and Hutter 2017, equation 5, one period without restart; the warm-up is a
    later habit.

    Args:
        peak: Largest rate, reached at step ``warmup - 1`` (at once without warm-up).
        warmup: Steps of the linear rise, 0 for none.
        steps: Length of the whole run; from then on the rate stays at ``floor``.
        floor: Smallest rate.

    Raises:
        ValueError: If ``peak`` is not positive, ``floor`` is not between 0 and ``peak``, or
            ``warmup`` is not between 0 and ``steps - 1``.

    Example:
        >>> rate = warmup_cosine(peak=1.0, warmup=2, steps=10)
        >>> [round(rate(step), 2) for step in (0, 1, 2, 6, 10)]
        [0.5, 1.0, 0.96, 0.31, 0.0]
    """
    _positive("peak", peak)
    if not 0 <= floor <= peak:
        raise ValueError(f"floor: expected 0 to peak={peak}, got {floor}")
    if not 0 <= warmup < steps:
        raise ValueError(f"warmup: expected 0 to steps-1={steps - 1}, got {warmup}")

    def rate(step: int) -> float:
        count = step + 1
        if count <= warmup:
            return peak * count / warmup
        progress = min(1.0, (count - warmup) / (steps - warmup))
        return floor + 0.5 * (peak - floor) * (1 + math.cos(math.pi * progress))

    return rate


def _positive(name: str, value: float | int) -> None:
    if not value > 0:
        raise ValueError(f"{name}: expected more than 0, got {value}")
