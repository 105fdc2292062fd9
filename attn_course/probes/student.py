"""What a test cell may do with a learner's function beyond calling it.

In Jupyter and under stock nbgrader the learner's function lives in this process and the work is
done here.
A grader that keeps the learner's code in another process hands test cells a stub instead; when the
type of the stub has a method ``__attn_remote__(operation, args, kwargs, options)``, every helper
here passes its work to that method, and the other side calls ``perform``.
"""

import contextlib
import inspect
import io
import random
import sys
import textwrap
import tracemalloc
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from attn_course.probes.oracle import NumpyOracle, slope
from attn_course.probes.values import copy, leaves

REMOTE = "__attn_remote__"


class GradientMissing(Exception):
    """No gradient reaches an argument that the result depends on."""


class quiet:
    """Keep warnings and prints to stderr away: stock nbgrader scores any stderr text as 0."""

    def __enter__(self) -> None:
        self._warnings, self._stderr = warnings.catch_warnings(), sys.stderr
        self._warnings.__enter__()
        warnings.simplefilter("ignore")
        sys.stderr = io.StringIO()

    def __exit__(self, *error: Any) -> None:
        sys.stderr = self._stderr
        self._warnings.__exit__(*error)


class Gradient:
    """The adapter that ``grad`` returns."""

    def __init__(self, wrt: tuple[int | str, ...]) -> None:
        self.wrt = wrt
        names = ", ".join(f"argument {w}" if isinstance(w, int) else f"`{w}`" for w in wrt)
        self.__name__ = f"gradient with respect to {names}"

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if isinstance(function, NumpyOracle):
            return _numeric_gradient(function, args, kwargs, self.wrt)
        return _dispatch("grad", function, args, kwargs, {"wrt": list(self.wrt)})


def grad(*wrt: int | str) -> Callable[..., Any]:
    r"""Return an adapter that differentiates instead of calling.

    ``grad(0, "mask")(function, *args)`` returns
    :math:`\partial \sum_i c_i\, y_i / \partial x` for each named argument, where the :math:`y_i`
    are all floating numbers of the result and the :math:`c_i` are fixed and uneven (an even sum
    would hide what happens inside a softmax, whose outputs always add up to one).

    Args:
        wrt: Positions or keyword names of the arguments; the first argument when none is given.

    Returns:
        A function of ``(function, *args, **kwargs)`` that returns one gradient, or a tuple of
        them when several arguments are named.  It raises ``GradientMissing`` when the result
        is cut off from a named argument.
    """
    return Gradient(wrt or (0,))


def seed(function: Callable[..., Any], value: int) -> None:
    """Seed torch, NumPy and Python where the learner's ``function`` runs."""
    _dispatch("seed", function, (), {}, {"value": value})


def source(function: Callable[..., Any]) -> str:
    """Return the source text of the learner's ``function``, dedented.

    Raises:
        ValueError: If Python does not know the source.
    """
    return str(_dispatch("source", function, (), {}, {}))


def measure(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, int]:
    """Return the result of one call, and the peak of bytes that it holds beyond its inputs.

    Counts the storages of every torch operation that are alive at the same time, saved activations
    and the result included, plus whatever NumPy and Python allocate.
    Scratch memory inside a single torch operation is not seen. The function is called twice, once
    for torch's memory and once for the rest. The grader measures an ordinary call from outside as
    well: check its result, or an answer that gives nothing has the smallest peak.
    """
    result, peak = _dispatch("measure", function, args, kwargs, {})
    return result, int(peak)


def peak_memory(function: Callable[..., Any], *args: Any, **kwargs: Any) -> int:
    """Return the peak of bytes that one call holds beyond its inputs, as :func:`measure` does."""
    return measure(function, *args, **kwargs)[1]


def traces(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, bool, bool]:
    """Call the learner's ``function`` and look at what it leaves on the tensors it was given.

    Returns:
        Its result, whether a ``requires_grad`` was switched, and whether a ``.grad`` was left.
    """
    result, switched, left = _dispatch("traces", function, args, kwargs, {})
    return result, bool(switched), bool(left)


def starts_kernel(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Whether one call of the learner's ``function`` starts a Triton kernel."""
    return bool(_dispatch("starts", function, args, kwargs, {}))


def accepts_tolerantly(function: Callable[..., Any], *args: Any) -> bool:
    """Whether the learner's ``function`` says True when equality leaves room for rounding.

    Every ``torch.equal`` and ``==`` between floating tensors is taken with the tolerance of
    ``torch.allclose`` while it runs.
    """
    try:
        return _dispatch("tolerant", function, args, {}, {}) is True
    except Exception:
        return False


def launch(
    kernel: Any,
    grid: Sequence[int],
    *args: Any,
    writes: int | str | Sequence[int | str],
    **kwargs: Any,
) -> Any:
    """Launch the learner's Triton ``kernel[grid](*args, **kwargs)`` and return what it wrote.

    It works on copies, so that a kernel which writes where it should only read cannot change what
    the test compares with.

    Args:
        kernel: A function under ``triton.jit``.
        grid: Number of programs along each axis.
        args: Arguments of the kernel, tensors for its pointers.
        writes: Positions or keyword names of the arguments that it fills.
        kwargs: Named arguments of the kernel, its ``constexpr`` too.

    Returns:
        The named argument after the launch, or a tuple of them when ``writes`` is a sequence.
    """
    options = {
        "grid": list(grid),
        "writes": [writes] if isinstance(writes, int | str) else list(writes),
    }
    found = _dispatch("launch", kernel, args, kwargs, options)
    return found[0] if isinstance(writes, int | str) else tuple(found)


def perform(
    operation: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: dict[str, Any],
) -> Any:
    """Do in this process what a helper asks for, by its name.

    Raises:
        ValueError: If there is no helper of that name.
    """
    if operation == "grad":
        return _gradient(function, args, kwargs, tuple(options["wrt"]))
    if operation == "seed":
        return _seed(int(options["value"]))
    if operation == "source":
        return _source(function)
    if operation == "measure":
        return _measure(function, args, kwargs)
    if operation == "tolerant":
        return _tolerant(function, args, kwargs)
    if operation == "launch":
        return _launch(function, args, kwargs, options)
    if operation == "traces":
        return _traces(function, args, kwargs)
    if operation == "starts":
        return _starts(function, args, kwargs)
    raise ValueError(
        f"operation: expected grad, seed, source, measure, traces, tolerant, launch or starts, "
        f"got {operation!r}"
    )


def _dispatch(
    operation: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: dict[str, Any],
) -> Any:
    remote = getattr(type(function), REMOTE, None)
    if remote is not None:
        return remote(function, operation, args, kwargs, options)
    with quiet():
        return perform(operation, function, args, kwargs, options)


def _traces(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, bool, bool]:
    args, kwargs = copy(args), copy(kwargs)
    given = [x for x in leaves((args, kwargs)) if isinstance(x, Tensor)]
    asked = [x.requires_grad for x in given]
    result = function(*args, **kwargs)
    switched = [x.requires_grad for x in given] != asked
    return result, switched, any(x.is_leaf and x.grad is not None for x in given)


class _Tolerant(TorchFunctionMode):
    """Equality of floating tensors up to rounding."""

    EXACT = frozenset({torch.equal, torch.eq, Tensor.equal, Tensor.eq, Tensor.__eq__})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self.EXACT and len(args) == 2 and not kwargs:
            one, other = args
            floating = isinstance(one, Tensor) and one.is_floating_point()
            if floating and isinstance(other, Tensor) and one.dtype == other.dtype:
                if func in (torch.equal, Tensor.equal):
                    return one.shape == other.shape and torch.allclose(one, other, atol=1e-6)
                return torch.isclose(one, other, atol=1e-6)
        return func(*args, **(kwargs or {}))


def _tolerant(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    with _Tolerant():
        return bool(function(*copy(args), **copy(kwargs)))


def _weights(result: Tensor, start: int) -> Tensor:
    steps = torch.arange(start, start + result.numel(), dtype=torch.float64)
    return torch.cos(1.0 + 1.7 * steps).reshape(result.shape)


def _weighted_total(result: Any) -> Tensor:
    total = torch.zeros((), dtype=torch.float64)
    start = 0
    for leaf in leaves(_open(result)):
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            total = total + (_weights(leaf, start) * leaf.double()).sum()
            start += leaf.numel()
    return total


def _open(result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_open(item) for item in result)
    return result


def _gradient(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wrt: tuple[int | str, ...],
) -> Any:
    places, named = list(copy(args)), copy(kwargs)
    inputs: list[Tensor] = []
    for where in wrt:
        holder: Any = places if isinstance(where, int) else named
        holder[where] = holder[where].detach().requires_grad_(True)
        inputs.append(holder[where])
    with torch.enable_grad():
        result = function(*places, **named)
        total = _weighted_total(result)
        found: tuple[Any, ...] = (None,) * len(inputs)
        if total.requires_grad:
            found = torch.autograd.grad(total, inputs, allow_unused=True)
    missing = [w for w, g in zip(wrt, found, strict=True) if g is None]
    if missing:
        names = " and ".join(f"argument {w}" if isinstance(w, int) else f"`{w}`" for w in missing)
        if result is None:
            raise GradientMissing(
                f"no gradient reaches {names}: the function returned None (is a return missing?)"
            )
        raise GradientMissing(
            f"no gradient reaches {names}: the result is detached from it "
            "(by detach, item, numpy, no_grad, a new tensor or a step without derivative)"
        )
    return found[0] if len(found) == 1 else found


def _numeric_gradient(
    function: NumpyOracle,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    wrt: tuple[int | str, ...],
) -> Any:
    places = [a.double() if _floating(a) else a for a in copy(args)]
    named = {k: v.double() if _floating(v) else v for k, v in copy(kwargs).items()}
    found = []
    for where in wrt:
        holder: Any = places if isinstance(where, int) else named
        here = holder[where].detach()

        def total(moved: Tensor, holder: Any = holder, where: int | str = where) -> float:
            holder[where] = moved
            with torch.no_grad():
                return float(_weighted_total(function(*places, **named)))

        original = args[where] if isinstance(where, int) else kwargs[where]
        found.append(slope(total, here).to(original.dtype))
        holder[where] = here
    return found[0] if len(found) == 1 else tuple(found)


def _floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _seed(value: int) -> None:
    torch.manual_seed(value)
    np.random.seed(value % 2**32)  # noqa: NPY002 - a learner's legacy NumPy calls must repeat too
    random.seed(value)


def _launch(
    kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
) -> list[Any]:
    places, named = list(copy(args)), copy(kwargs)
    kernel[tuple(options["grid"])](*places, **named)
    return [places[w] if isinstance(w, int) else named[w] for w in options["writes"]]


def _starts(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    started: list[bool] = []
    with contextlib.ExitStack() as stack:
        # of a kernel that is interpreted, and of one that is compiled
        for place, kind, method in (
            ("triton.runtime.interpreter", "GridExecutor", "__call__"),
            ("triton.runtime.jit", "JITFunction", "run"),
        ):
            if (found := getattr(sys.modules.get(place), kind, None)) is not None:
                start = getattr(found, method)

                def noted(*a: Any, _start: Any = start, **k: Any) -> Any:
                    started.append(True)
                    return _start(*a, **k)

                stack.enter_context(mock.patch.object(found, method, noted))
        function(*copy(args), **copy(kwargs))
    return bool(started)


def _source(function: Callable[..., Any]) -> str:
    written = function
    if not (inspect.isroutine(function) or inspect.isclass(function)):
        written = getattr(function, "fn", function)  # of an object that triton.jit has made
    try:
        return textwrap.dedent(inspect.getsource(written))
    except (OSError, TypeError) as error:
        raise ValueError(f"function: expected one with known source, got {function!r}") from error


class _Storage(weakref.ref[torch.UntypedStorage]):
    """A storage that is followed: it tells its end, and knows its size as it was last seen."""

    __slots__ = ("address", "bytes")
    address: int
    bytes: int


class _Storages(TorchDispatchMode):
    """Follow which storages are alive, and how many bytes they were at most at one time."""

    def __init__(self, known: set[int]) -> None:
        super().__init__()
        self.known = known
        self.alive: dict[int, _Storage] = {}
        self.bytes = self.peak = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else the first operation imports torch's compiler: seconds, in every process.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in (result,) if type(result) is Tensor else leaves(result):
            if isinstance(leaf, Tensor) and leaf.layout == torch.strided:
                self._follow(leaf.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        address, size = storage._cdata, storage.nbytes()  # the address is its own while it lives
        if address in self.known:
            return
        followed = self.alive.get(address)
        if followed is None:
            followed = self.alive[address] = _Storage(storage, self._ended)
            followed.address, followed.bytes = address, 0
        self.bytes += size - followed.bytes  # which a resize changes
        followed.bytes = size
        self.peak = max(self.peak, self.bytes)

    def _ended(self, followed: _Storage) -> None:
        del self.alive[followed.address]
        self.bytes -= followed.bytes


def _measure(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, int]:
    given = copy((args, kwargs))
    tensors = [leaf for leaf in leaves(given) if isinstance(leaf, Tensor)]
    with _Storages({tensor.untyped_storage()._cdata for tensor in tensors}) as storages:
        result = function(*given[0], **given[1])
    # Python's own memory in a second call, which holds nothing of what follows the storages, and
    # nothing of what the first call of anything imports and caches.
    args, kwargs = copy(args), copy(kwargs)
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        function(*args, **kwargs)
        python = max(0, tracemalloc.get_traced_memory()[1] - before)
    finally:
        if not tracing:
            tracemalloc.stop()
    return result, int(storages.peak + python)
