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


def _unmoved(name: str, words: str, change: Callable[[Any], Any]) -> Property:
    """A change of the first argument leaves the result as it was."""

    @_relation
    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        before = function(*args, **kwargs)
        found = difference(function(change(args[0]), *args[1:], **kwargs), before, slack=10.0)
        return f"after {words}, {found.text}" if found else None

    return Property(name, check)


shift_invariant = _unmoved(
    "adding a constant to every score changes nothing",
    "adding 3 to the first argument",
    lambda x: x + 3.0,
)
scale_invariant = _unmoved(
    "a positive factor on an argument changes nothing",
    "multiplying the first argument by 4",
    lambda x: x * 4.0,
)


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
                return f"changing positions after {t} changes results up to {t}"
        return None

    return Property("the result does not depend on later positions", check)


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


@_named("the same input gives the same result")
@_relation
def deterministic(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """Two calls with equal arguments return equal results."""
    found = difference(function(*args, **kwargs), function(*args, **kwargs))
    return f"two calls with the same input differ: {found.text}" if found else None


def gradient_reaches(*wrt: int | str) -> Property:
    """A finite gradient that is not all zero reaches each named argument."""

    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        for where in wrt:
            try:
                found = student.grad(where)(function, *args, **kwargs)
            except student.GradientMissing as error:
                return str(error)
            if not bool(torch.isfinite(found).all()):
                return f"the gradient of argument {where} contains NaN or infinite numbers"
            if not bool((found != 0).any()):
                return f"the gradient of argument {where} is zero everywhere"
        return None

    names = ", ".join(str(w) for w in wrt)
    return Property(f"a gradient reaches argument {names}", check)


@_named("a Triton kernel is launched")
def starts_a_kernel(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """One call starts a kernel of Triton, interpreted or compiled."""
    started = student.starts_kernel(function, *args, **kwargs)
    return None if started else "the call launches no Triton kernel"


@_named("the result is a plain int")
def returns_an_int(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
    """The result is Python's own whole number, and no tensor or array that holds one."""
    result = function(*args, **kwargs)
    return None if type(result) is int else f"expected a plain int, got {kind_of(result)}"


def memory_below(limit: int, judged: Callable[[Any], str | None] | None = None) -> Property:
    """One call holds at most ``limit`` bytes beyond its inputs at any time.

    Args:
        limit: In bytes.
        judged: What is wrong with the result of that call: one that gives nothing needs nothing.
    """

    def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str | None:
        result, peak = student.measure(function, *args, **kwargs)
        if peak > limit:
            return f"the call uses {peak / 2**20:.2f} MiB at its peak, allowed {limit / 2**20:.2f}"
        return None if judged is None else judged(result)

    return Property(f"peak memory stays below {limit / 2**20:.2f} MiB", check)


# Claims that make sense for any function of tensors: diagnosis tries each on the oracle first, and
# where the oracle keeps it and the learner's function does not, that is the symptom.
UNIVERSAL = (deterministic, finite, rows_sum_to_one, non_negative, shift_invariant, scale_invariant)
