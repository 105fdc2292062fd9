"""Remember what functions of ours give: a class is graded on the same random inputs.

Only the oracle, the catalogue's misconceptions and the properties of these are remembered, never
anything that a learner's function gave. The key of an entry is all that the outcome depends on:
the inputs bit by bit, and the code, defaults, closure and globals of every function involved. What
has no such key, or draws random numbers, is computed each time. Nothing is remembered unless the
grader asks for it with ``remembering``.
"""

import contextlib
import dataclasses
import functools
import hashlib
import random
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attn_course.probes import student
from attn_course.probes.catalogue import Call
from attn_course.probes.oracle import NumpyOracle
from attn_course.probes.values import copy, leaves, size

MOST_NUMBERS = 4_000_000  # in all values that one memo keeps
MOST_ENTRIES = 10_000
_PLAIN = frozenset(
    {type(None), bool, int, str, bytes, torch.dtype, torch.Size, torch.device, type(...)}
)
_DATA = _PLAIN | {float, Tensor, torch.nn.Parameter, np.ndarray}
_BUILTIN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


class Unkeyable(Exception):
    """What a value does cannot be told from its parts."""


class Memo:
    """Outcomes by key; the oldest go first when it is full."""

    def __init__(self) -> None:
        self.hits = self.misses = 0  # a benchmark's question
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._numbers = 0

    def recall(self, key: Hashable) -> tuple[Any, ...]:
        """What is kept under ``key``, alone in a tuple; () when nothing is."""
        found = self._kept.get(key)
        if found is None:
            self.misses += 1
            return ()
        self.hits += 1
        return (found[0],)

    def keep(self, key: Hashable, value: Any, numbers: int) -> None:
        """Keep a value that counts as so many numbers."""
        if numbers > MOST_NUMBERS // 16 or key in self._kept:
            return
        self._kept[key] = (value, numbers)
        self._numbers += numbers
        while self._numbers > MOST_NUMBERS or len(self._kept) > MOST_ENTRIES:
            self._numbers -= self._kept.popitem(last=False)[1][1]


_active: ContextVar[Memo | None] = ContextVar("attn_course_memo", default=None)


@contextlib.contextmanager
def remembering(memo: Memo | None) -> Iterator[None]:
    """Use ``memo`` inside the block; None computes everything."""
    token = _active.set(memo)
    try:
        yield
    finally:
        _active.reset(token)


def remembered(
    work: Callable[[], Any], *involved: Any, kind: str, copied: Callable[[Any], Any] = copy
) -> Any:
    """What ``work()`` gives, or gave for the same ``involved``.

    Args:
        work: called without arguments when nothing is remembered.
        involved: everything that the outcome depends on.
        kind: keeps the uses of a memo apart.
        copied: makes what is kept, and what is given away of it.
    """
    memo = _active.get()
    if memo is None:
        return work()
    try:
        key = _key(kind, involved)
    except (Unkeyable, RecursionError):
        return work()
    for found in memo.recall(key):
        return copied(found)
    before = _random_state()
    value = work()
    # What has drawn random numbers or changed something of its own must do so every time.
    with contextlib.suppress(Unkeyable, RecursionError):
        content = getattr(value, "value", value)
        fingerprint(content)  # else a copy would share parts with what is kept
        if before == _random_state() and key == _key(kind, involved):
            memo.keep(key, copied(value), 1 + size(content))
    return value


def _key(kind: str, involved: tuple[Any, ...]) -> Hashable:
    return (kind, torch.get_default_dtype(), fingerprint(involved))


def _random_state() -> tuple[Any, ...]:
    numpys = np.random.get_state(legacy=False)["state"]  # noqa: NPY002  a test may draw from it
    drawn = numpys["key"].tobytes(), numpys["pos"]
    return torch.get_rng_state().numpy().tobytes(), drawn, random.getstate()


def fingerprint(value: Any, inside: frozenset[int] = frozenset()) -> Hashable:
    """A key that two values share only when nothing can tell them apart.

    Args:
        value: a plain value, a tensor or array, a container of these, or a function.
        inside: functions that this value was reached through.

    Raises:
        Unkeyable: it is anything else, such as an object of a learner.
    """
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind is float:
        return (kind, value.hex())
    if kind is Tensor or kind is torch.nn.Parameter:
        return (kind, *_tensor(value))
    if kind is tuple or kind is list:
        return (kind, *[fingerprint(item, inside) for item in value])
    if kind is dict:
        keys = [key if type(key) is str else fingerprint(key) for key in value]
        return (kind, *keys, *[fingerprint(item, inside) for item in value.values()])
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return (kind, value.dtype.str, value.shape, value.strides, _short(value.tobytes()))
    if isinstance(value, types.FunctionType):
        return _function(value, inside)
    if kind is Call:
        return (kind, _inputs(value), fingerprint(value.via, inside))
    if kind is functools.partial:
        return (kind, fingerprint((value.func, value.args, value.keywords), inside))
    if kind is NumpyOracle:
        return (kind, fingerprint(value.function, inside))
    if kind is student.Gradient:
        return (kind, value.wrt)
    if kind is slice:
        return (kind, fingerprint((value.start, value.stop, value.step)))
    if kind is types.ModuleType:
        name = value.__name__
        return (kind, name) if sys.modules.get(name) is value else _no(value)
    if isinstance(value, _BUILTIN):
        owner = getattr(value, "__self__", None)
        plain = owner is None or isinstance(owner, types.ModuleType | type)
        return (kind, value) if plain else _no(value)
    if isinstance(value, type | np.ufunc):
        return (kind, value) if _installed(value) else _no(value)
    if dataclasses.is_dataclass(kind) and kind.__hash__ is not None and _installed(kind):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
        return (kind, *(fingerprint(part, inside) for part in parts))
    return _no(value)


def _inputs(call: Call) -> Hashable:
    """The arguments, which nobody changes; kept from the second time if they are only data."""
    about = vars(call)
    found: Hashable = about.get("_inputs")
    if found is None:
        given = call.args, call.kwargs
        found = fingerprint(given)
        if about.setdefault("_asked", 0) and all(type(x) in _DATA for x in leaves(given)):
            about["_inputs"] = found
        about["_asked"] += 1
    return found


def _no(value: Any) -> Hashable:
    raise Unkeyable(type(value).__name__)


def _short(data: bytes) -> bytes:
    return data if len(data) <= 64 else hashlib.blake2b(data, digest_size=32).digest()


def _tensor(value: Tensor) -> tuple[Hashable, ...]:
    if value.layout != torch.strided or not value.is_cpu:
        raise Unkeyable("tensor")
    if value.is_conj() or value.is_neg() or value.grad_fn is not None:
        raise Unkeyable("tensor")
    plain, dtype = value.detach(), value.dtype
    plain = plain.view(torch.int16) if dtype == torch.bfloat16 else plain
    about = dtype, value.shape, value.stride(), value.requires_grad
    where = value.storage_offset(), value.untyped_storage().nbytes()
    return (*about, *where, _short(plain.numpy().tobytes()))


def _installed(value: Any) -> bool:
    """Whether a class or function is what its module holds under its name, and no test cell's."""
    module = getattr(value, "__module__", None) or "numpy"
    name = getattr(value, "__qualname__", None) or value.__name__
    return module != "__main__" and getattr(sys.modules.get(module), name, None) is value


def _function(function: types.FunctionType, inside: frozenset[int]) -> Hashable:
    if id(function) in inside:
        return "itself"
    module = function.__module__ or ""
    if module.startswith(("attn_course.", "torch.", "numpy.")) and _installed(function):
        return function
    inside |= {id(function)}
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    given = function.__defaults__, function.__kwdefaults__, cells
    names, writes = _globals_of(function.__code__)
    if writes:
        raise Unkeyable("it has a state")
    used = [(n, function.__globals__[n]) for n in names if n in function.__globals__]
    return (
        function.__name__,
        function.__code__,
        tuple(fingerprint(part, inside) for part in given),
        tuple((name, fingerprint(value, inside)) for name, value in used),
    )


@functools.lru_cache(maxsize=4096)
def _globals_of(code: types.CodeType) -> tuple[tuple[str, ...], bool]:
    """Names that may be globals of some code, and whether it writes outside its own variables."""
    import dis

    names, writes = set(code.co_names), False
    for step in dis.get_instructions(code):
        writes = writes or step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        # a variable of an outer function that is not reached through this one's own cells
        writes = writes or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner = _globals_of(constant)
            names |= set(inner[0])
            writes = writes or inner[1]
    return tuple(sorted(names)), writes
