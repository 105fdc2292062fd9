"""Do two explanations agree, and would other weights have done as well?"""

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Generator, Tensor

from attn_course._checks import (
    check_attn_mask,
    check_axes,
    check_device,
    check_dim,
    check_floating,
    check_size,
    compiling,
)


def _check_pair(names: str, a: Shaped[Tensor, "..."], b: Shaped[Tensor, "..."]) -> None:
    """Refuse two explanations that are not rows of numbers of one shape."""
    for name, values in zip(names.split(), (a, b), strict=True):
        check_floating(name, values)
        if values.ndim == 0 or values.shape != a.shape:
            want = "rows" if values.ndim == 0 else f"shape {tuple(a.shape)}"
            raise ValueError(f"{name}: expected {want}, got shape {tuple(values.shape)}")
        check_device(name, values, a)


def _check_ranked(a: Shaped[Tensor, "..."], b: Shaped[Tensor, "..."]) -> None:
    _check_pair("a b", a, b)
    if compiling():
        return
    for name, values in (("a", a), ("b", b)):
        if bool(values.isnan().any()):  # NaN is larger than nothing: it would pass for a tie
            raise ValueError(f"{name}: expected numbers, got NaN")


def _check_probabilities(p: Shaped[Tensor, "..."], q: Shaped[Tensor, "..."]) -> None:
    _check_pair("p q", p, q)
    if compiling():
        return
    for name, values in (("p", p), ("q", q)):
        if bool((values < 0).any()):
            raise ValueError(f"{name}: expected at least 0, got {float(values.min())}")


def _signs(values: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S S"]:
    """+1, 0 or -1 for every pair of entries: which one is larger."""
    # comparisons, not differences: inf - inf would be NaN, and tiny differences would vanish
    a, b = values.detach().unsqueeze(-1), values.detach().unsqueeze(-2)
    return (a > b).double() - (a < b).double()


def _correlation(a: Float[Tensor, "..."], b: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Cosine over the last axis; 0 where one of the two is constant."""
    norms = (a.square().sum(-1) * b.square().sum(-1)).sqrt()
    return ((a * b).sum(-1) / norms.masked_fill(norms == 0, 1.0)).clamp(-1.0, 1.0)


def kendall_tau(a: Float[Tensor, "*B S"], b: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    r"""How many pairs two rankings put in the same order (tau-b).

    .. math:: \tau = \frac{\#\text{pairs in the same order} - \#\text{pairs in opposite order}}
       {\sqrt{\#\text{pairs untied in } a}\,\sqrt{\#\text{pairs untied in } b}}

    Args:
        a: Importance of each place by one explanation.
        b: The same by another one.

    Returns:
        Numbers from -1 (opposite) to 1 (same order); 0 where an explanation is constant, for
        it ranks nothing. Memory grows with the square of S.

    Raises:
        ValueError: If an argument is not floating point or contains NaN, or the shapes differ.

    Example:
        >>> kendall_tau(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0]))
        tensor(0.3333)
    """
    _check_ranked(a, b)
    tau = _correlation(_signs(a).flatten(-2), _signs(b).flatten(-2))
    return tau.to(torch.promote_types(a.dtype, b.dtype))


def total_variation(p: Float[Tensor, "*B S"], q: Float[Tensor, "*B S"]) -> Float[Tensor, "*B"]:
    r"""Largest difference that two distributions give to any event.

    .. math:: \mathrm{TV}(p, q) = \tfrac12 \sum_s |p_s - q_s|

    Args:
        p: Probabilities.
        q: Probabilities.

    Returns:
        Numbers from 0 (equal) to 1 (nothing in common).

    Raises:
        ValueError: If an argument is not floating point or contains a negative number, or the
            shapes differ.

    Example:
        >>> total_variation(torch.tensor([0.5, 0.5]), torch.tensor([0.9, 0.1]))
        tensor(0.4000)
    """
    _check_probabilities(p, q)
    return (p - q).abs().sum(-1) / 2


def permute_weights(
    weights: Float[Tensor, "*B S"],
    generator: Generator | None = None,
    *,
    attn_mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*B S"]:
    r"""The same weights at other places: each row in an order of chance.

    The first test of Jain and Wallace 2019 (section 4.2.1): if the output stays, the weights did
    not say where it came from.

    Args:
        weights: Rows to be reordered, each by itself.
        generator: Source of the randomness; torch's own when None.
        attn_mask: True = may attend; only these places exchange their weights.

    Returns:
        Rows with the same entries.

    Raises:
        ValueError: If ``weights`` is not floating point, or the mask is not boolean or does not
            broadcast.

    Example:
        >>> permute_weights(torch.tensor([0.5, 0.3, 0.2])).sort().values
        tensor([0.2000, 0.3000, 0.5000])
    """
    check_floating("weights", weights)
    check_dim(weights, -1)
    allowed = torch.ones_like(weights, dtype=torch.bool)
    if attn_mask is not None:
        check_attn_mask(attn_mask, weights.shape, weights)
        allowed = attn_mask.expand_as(weights)
    keys = torch.rand(weights.shape, generator=generator, device=weights.device)
    # allowed places first, in their order and in one of chance; the others behind, left in place
    places = (~allowed).double().argsort(dim=-1, stable=True)
    sources = keys.masked_fill(~allowed, 2.0).argsort(dim=-1, stable=True)
    return torch.empty_like(weights).scatter(-1, places, weights.gather(-1, sources))


def equivalent_weights(
    weights: Float[Tensor, " S"], value: Float[Tensor, "S E"]
) -> Float[Tensor, " S"]:
    r"""Other weights with the same output, and little at the place of the largest weight.

    .. math:: \alpha' \ge 0, \qquad \textstyle\sum_s \alpha'_s = \sum_s \alpha_s, \qquad
       \sum_s \alpha'_s v_s = \sum_s \alpha_s v_s

    These are E + 1 equations for S weights. With more places than that, weights are not determined
    by what attention passes on (Brunner and others 2020). We walk from
    :math:`\alpha` along the directions that change nothing and take most from the largest weight,
    from edge to edge. A linear program would sometimes take a little more.

    Args:
        weights: Not negative.
        value: One vector per weight.

    Returns:
        The new weights; the old ones where the equations leave no freedom.

    Raises:
        ValueError: If an argument is not floating point or contains what is not finite, a weight is
            negative, or the sizes differ.

    Example:
        >>> weights, value = torch.tensor([0.6, 0.3, 0.1]), torch.tensor([[1.0], [1.0], [1.0]])
        >>> other = equivalent_weights(weights, value)
        >>> torch.allclose(other @ value, weights @ value), float(other[0]) < 0.1
        (True, True)
    """
    check_floating("weights", weights)
    check_floating("value", value)
    check_axes("weights", weights, "S")
    check_axes("value", value, "S E")
    check_size("value", value, 0, weights.shape[0])
    check_device("value", value, weights)
    if not bool((weights.isfinite() & (weights >= 0)).all()):
        raise ValueError("weights: expected finite numbers of at least 0")
    if not bool(value.isfinite().all()):
        raise ValueError("value: expected finite numbers")
    w, v = weights.detach().clone().double(), value.detach().double()
    if w.numel() == 0:
        return w.to(weights.dtype)
    largest = v.abs().amax().clamp(min=1e-30) if v.numel() else 1.0
    equations = torch.cat([v / largest, v.new_ones(len(v), 1)], dim=1)
    top, free = int(w.argmax()), torch.ones_like(w, dtype=torch.bool)
    for _ in range(len(w)):
        kept = equations[free]  # (F, E + 1)
        away = -(torch.arange(len(w), device=w.device) == top)[free].double()
        away = away - kept @ (torch.linalg.pinv(kept) @ away)
        if away.abs().max() < 1e-9:
            break
        falling = away < 0
        share = (w[free] / -away.where(falling, torch.full_like(away, -1.0))).where(
            falling, torch.full_like(away, torch.inf)
        )
        step, first = share.min(dim=0)
        places = free.nonzero().squeeze(-1)
        w[places] = (w[places] + step * away).clamp(min=0.0)
        w[places[first]] = 0.0
        free[places[first]] = False
        if int(places[first]) == top or not bool(free.any()):
            break
    return w.to(weights.dtype)
