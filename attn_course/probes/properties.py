"""Named properties of a function, each with a symptom in words when it is broken.

A property is called with the function, its arguments and nothing else; it returns None when it
holds, and otherwise one clause that completes "what is wrong is: ...".
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attn_course.probes import student
from attn_course.probes.compare import difference, kind_of
from attn_course.probes.values import copy, leaves

Check = Callable[..., str | None]


@dataclass(frozen=True)
class Property:
    """A claim about a function and the check that decides it.

    Args:
        name: The claim, as one would say it: ``rows sum to one``.
        check: Called with ``(function, *args, **kwargs)``; returns the symptom, or None.
        costly: One call takes seconds: a failure is not searched for its cause by more calls.
    """

    name: str
    check: Check
    costly: bool = False

    @property
    def __name__(self) -> str:
        return self.name

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        return self.check(function, *args, **kwargs)


class _Fresh:
    """A function that gets copies of what it is given, and remembers whether NaN came back.

    A relation between two calls is not about what the first one does to its arguments; and NaN
    equals NaN, so that a result of nothing else would keep every relation.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.nan = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self.function(*copy(args), **copy(kwargs))
        for tensor in _tensors(result):
            if bool(tensor.detach().isnan().any()):
                count = int(tensor.detach().isnan().sum())
                self.nan = f"{count} of {tensor.numel()} numbers of the result are NaN"
        return result


def _relation(check: Check) -> Check:
    """A check that calls the function on copies and does not hold where the result is NaN."""

    @functools.wraps(check)
    def checked(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        fresh = _Fresh(function)
        return check(fresh, *args, **kwargs) or fresh.nan or None

    return checked


def _named(name: str) -> Callable[[Check], Property]:
    return lambda check: Property(name, check)


def _tensors(result: Any) -> list[Tensor]:
    return [leaf for leaf in leaves(result) if type(leaf) in (Tensor, torch.nn.Parameter)]


def _one_tensor(result: Any) -> Tensor | str:
    if type(result) in (Tensor, torch.nn.Parameter):
        return torch.Tensor.detach(result)
    return f"expected a torch.Tensor, got {kind_of(result)}"


@_named("every number is finite")
def finite(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """No NaN and no infinity anywhere in the result."""
    for tensor in _tensors(function(*args, **kwargs)):
        bad = ~torch.isfinite(tensor.detach())
        if bool(bad.any()):
            kind = "NaN" if bool(tensor.isnan().any()) else "infinite"
            return f"{int(bad.sum())} of {bad.numel()} numbers of the result are {kind}"
    return None


@_named("rows sum to one")
def rows_sum_to_one(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """The sums over ``dim`` (the keyword of the call, -1 without one) are all one."""
    weights = _one_tensor(function(*args, **kwargs))
    if isinstance(weights, str):
        return weights
    if weights.dim() == 0:
        return "the result has no axis to sum over"
    dim = kwargs.get("dim", -1)
    sums = weights.double().sum(dim)
    off = ~torch.isclose(sums, torch.ones_like(sums), rtol=1e-4, atol=1e-4)
    if bool(off.any()):
        return f"sums over dim={dim}: expected 1, got {float(sums[off].reshape(-1)[0]):.3g}"
    return None


@_named("no weight is negative")
def non_negative(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """No number of the result is below zero."""
    for tensor in _tensors(function(*args, **kwargs)):
        if tensor.numel() and float(tensor.detach().double().min()) < 0:
            return f"the smallest number is {float(tensor.min()):.3g}, below 0"
    return None


def bounded(low: float | int, high: float | int, *, margin: float | int = 1e-4) -> Property:
    """Every number of the result lies between ``low`` and ``high``."""

    @_relation
    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        for tensor in _tensors(function(*args, **kwargs)):
            if not tensor.numel():
                continue
            least, most = float(tensor.detach().min()), float(tensor.detach().max())
            if least < low - margin:
                return f"the smallest number is {least:.3g}, below {low:g}"
            if most > high + margin:
                return f"the largest number is {most:.3g}, above {high:g}"
        return None

    return Property(f"every number lies between {low:g} and {high:g}", check)


@_named("adding a constant to every score changes nothing")
@_relation
def shift_invariant(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Adding 3 to the first argument leaves the result as it was."""
    before = function(*args, **kwargs)
    after = function(args[0] + 3.0, *args[1:], **kwargs)
    found = difference(after, before, slack=10.0)
    return f"after adding 3 to the first argument, {found.text}" if found else None


@_named("a positive factor on an argument changes nothing")
@_relation
def scale_invariant(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Multiplying the first argument by 4 leaves the result as it was."""
    before = function(*args, **kwargs)
    after = function(args[0] * 4.0, *args[1:], **kwargs)
    found = difference(after, before, slack=10.0)
    return f"after multiplying the first argument by 4, {found.text}" if found else None


@_named("the two arguments may be exchanged")
@_relation
def symmetric(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Exchanging the first two arguments leaves the result as it was."""
    before = function(*args, **kwargs)
    after = function(args[1], args[0], *args[2:], **kwargs)
    found = difference(after, before, slack=10.0)
    return f"with the two arguments exchanged {found.text}" if found else None


@_named("the function is linear in its last argument")
@_relation
def linear_in_last(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Doubling the last argument doubles the result."""
    once = _one_tensor(function(*args, **kwargs))
    twice = function(*args[:-1], args[-1] * 2.0, **kwargs)
    if isinstance(once, str):
        return once
    found = difference(twice, once * 2.0, slack=10.0)
    return f"doubling the last argument does not double the result: {found.text}" if found else None


def ignores_masked(
    *, mask: int | str = 1, at: int = 0, dim: int = -1, fill: float | int = 50.0
) -> Property:
    """Changing what the mask forbids changes nothing.

    Args:
        mask: Place or keyword of the boolean mask (True = may attend).
        at: Place of the argument whose forbidden entries are changed.
        dim: Axis of that argument along which the mask's last axis runs.
        fill: Added to the forbidden entries.
    """

    @_relation
    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        allowed = args[mask] if isinstance(mask, int) else kwargs[mask]
        target = args[at]
        if dim in (-1, target.dim() - 1):
            forbidden = (~allowed).expand_as(target)
        else:
            forbidden = (~allowed).unsqueeze(-1).expand_as(target)
        changed = list(args)
        changed[at] = torch.where(forbidden, target + fill, target)
        before, after = function(*args, **kwargs), function(*changed, **kwargs)
        found = difference(after, before, slack=10.0)
        return f"after changing masked positions only, {found.text}" if found else None

    return Property("masked positions have no influence", check)


def zero_where_masked(*, mask: int | str = 1) -> Property:
    """The result is exactly zero wherever the mask is False."""

    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        allowed = args[mask] if isinstance(mask, int) else kwargs[mask]
        weights = _one_tensor(function(*args, **kwargs))
        if isinstance(weights, str):
            return weights
        leaked = weights[(~allowed).expand(weights.shape)]
        if bool(leaked.isnan().any()):
            return "masked positions get NaN instead of exactly 0"
        if leaked.numel() and bool((leaked != 0).any()):
            worst = float(leaked.double().abs().max())
            return f"masked positions get weights up to {worst:.3g} instead of exactly 0"
        return None

    return Property("masked positions get weight zero", check)


def empty_rows_are_zero(*, mask: int | str = 1) -> Property:
    """Rows in which the mask allows nothing come out as zeros, not NaN."""

    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        allowed = args[mask] if isinstance(mask, int) else kwargs[mask]
        result = _one_tensor(function(*args, **kwargs))
        if isinstance(result, str):
            return result
        empty = ~allowed.expand(*result.shape[:-1], allowed.shape[-1]).any(-1)
        rows = result[empty]
        if rows.numel() == 0 or bool((rows == 0).all()):
            return None
        if bool(rows.isnan().any()):
            return "a row in which everything is masked comes out as NaN instead of 0"
        worst = float(rows.double().abs().max())
        return f"a row in which everything is masked holds {worst:.3g} instead of 0"

    return Property("fully masked rows are zero", check)


def causal(*, at: int = 0, dim: int = 1) -> Property:
    """Position ``t`` of the result does not depend on later positions of an argument.

    Args:
        at: Place of the sequence among the arguments.
        dim: Axis of time, in the argument and in the result.
    """

    @_relation
    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        length = args[at].shape[dim]
        before = _one_tensor(function(*args, **kwargs))
        if isinstance(before, str):
            return before
        for t in range(length - 1):
            changed = list(copy(args))
            changed[at].narrow(dim, t + 1, length - t - 1).add_(1.0)
            after = _one_tensor(function(*changed, **kwargs))
            if isinstance(after, str):
                return after
            past = difference(after.narrow(dim, 0, t + 1), before.narrow(dim, 0, t + 1), slack=10.0)
            if past is not None:
                return f"changing positions after {t} changes results up to {t}: the future leaks"
        return None

    return Property("the past does not see the future", check)


def permutation_equivariant(*, at: tuple[int, ...] = (0,), dim: int = -2) -> Property:
    """Reversing an axis of the arguments reverses that axis of the result.

    Args:
        at: Places of the arguments that are reversed together.
        dim: The axis, in the arguments and in the result.
    """

    @_relation
    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        before = _one_tensor(function(*args, **kwargs))
        if isinstance(before, str):
            return before
        turned = [a.flip(dim) if i in at else a for i, a in enumerate(args)]
        found = difference(function(*turned, **kwargs), before.flip(dim), slack=10.0)
        return f"reversing axis {dim} of the input does not reverse the result" if found else None

    return Property(f"the order along axis {dim} carries through", check)


def permutation_invariant(*, at: tuple[tuple[int, int], ...]) -> Property:
    """Reversing axes of the arguments together changes nothing.

    Args:
        at: Pairs of an argument's place and the axis to reverse.
    """

    @_relation
    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        turned = list(args)
        for place, dim in at:
            turned[place] = args[place].flip(dim)
        found = difference(function(*turned, **kwargs), function(*args, **kwargs), slack=10.0)
        return f"after reordering the items {found.text}" if found else None

    return Property("the order of the items does not matter", check)


def batch_independent(*, at: tuple[int, ...] = (0,)) -> Property:
    """Each batch entry gives alone what it gives in the batch.

    Args:
        at: Places of the arguments that carry the batch on axis 0.
    """

    @_relation
    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        whole = _one_tensor(function(*args, **kwargs))
        if isinstance(whole, str):
            return whole
        for i in range(args[at[0]].shape[0]):
            alone = [a[i : i + 1] if place in at else a for place, a in enumerate(args)]
            found = difference(function(*alone, **kwargs), whole[i : i + 1], slack=10.0)
            if found is not None:
                return f"batch entry {i} gives another result alone than inside its batch"
        return None

    return Property("batch entries do not see each other", check)


@_named("the same input gives the same result")
@_relation
def deterministic(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Two calls with equal arguments return equal results."""
    found = difference(function(*args, **kwargs), function(*args, **kwargs))
    return f"two calls with the same input differ: {found.text}" if found else None


@_named("dtype and shape are kept")
def keeps_dtype_and_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """The result has the dtype and the shape of the first argument."""
    result = _one_tensor(function(*args, **kwargs))
    if isinstance(result, str):
        return result
    if result.shape != args[0].shape:
        return (
            f"expected shape {tuple(args[0].shape)}, that of the input, got {tuple(result.shape)}"
        )
    if result.dtype != args[0].dtype:
        return f"expected dtype {args[0].dtype}, that of the input, got {result.dtype}"
    return None


def gradient_reaches(*wrt: int | str) -> Property:
    """A finite gradient that is not all zero reaches each named argument."""

    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        for where in wrt:
            try:
                found = student.grad(where)(function, *args, **kwargs)
            except student.GradientMissing as error:
                return str(error)
            if not bool(torch.isfinite(found).all()):
                return f"the gradient of argument {where} holds NaN or infinite numbers"
            if not bool((found != 0).any()):
                return f"the gradient of argument {where} is zero everywhere"
        return None

    names = ", ".join(str(w) for w in wrt)
    return Property(f"a gradient reaches argument {names}", check)


def memory_below(limit: int, judged: Callable[[Any], str | None] | None = None) -> Property:
    """One call holds at most ``limit`` bytes beyond its inputs at any time.

    Args:
        limit: In bytes.
        judged: What is wrong with the result of that call: one that gives nothing needs nothing.
    """

    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        result, peak = student.measure(function, *args, **kwargs)
        if peak > limit:
            return f"the call holds {peak / 2**20:.2f} MiB at its peak, allowed {limit / 2**20:.2f}"
        return None if judged is None else judged(result)

    return Property(f"peak memory stays below {limit / 2**20:.2f} MiB", check)


# Claims that make sense for any function of tensors: diagnosis tries each on the oracle first, and
# where the oracle keeps it and the learner's function does not, that is the symptom.
UNIVERSAL = (deterministic, finite, rows_sum_to_one, non_negative, shift_invariant, scale_invariant)
