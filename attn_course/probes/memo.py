"""Keep what the reference and the catalogue give: a class is graded on the same random inputs.

Functions of a module are kept by, such as those of ``attn_course.reference`` and of a catalogue,
and functions of an instructor's cell that compute and do nothing else (see ``_code``). Whatever
else a cell or a learner defines has no key, and is computed each time. So is what draws random
numbers. Nothing is kept unless the grader asks for it with ``remembering``.
"""

import contextlib
import ctypes
import dataclasses
import dis
import functools
import hashlib
import random
import types
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attn_course.probes.catalogue import Call
from attn_course.probes.oracle import NumpyOracle
from attn_course.probes.values import copy, leaves, size

MOST_NUMBERS = 4_000_000  # in all values that one memo keeps
MOST_ENTRIES = 10_000
_PLAIN = (type(None), bool, int, str, bytes, torch.dtype, torch.Size, torch.device, type(...))
# What a function must not do or name that is kept by its code: it could change, or read, more than
# its arguments.
_EFFECTS = {"STORE_GLOBAL", "STORE_ATTR", "DELETE_GLOBAL", "DELETE_ATTR", "IMPORT_NAME"}
_IMPURE = frozenset(
    [
        *("open", "print", "input", "eval", "exec", "globals", "locals", "vars", "environ"),
        *("setattr", "delattr", "iter", "next", "id", "hash", "default_rng", "getrandbits"),
    ]
)
_OURS = ("attn_course.", "attn_course_catalogue_", "torch", "numpy")  # modules of functions
_MODULES = ("attn_course.", "torch.", "numpy.", "math.", "itertools.", "functools.")


class Unkeyable(Exception):
    """What a value does cannot be told from its parts."""


class Memo:
    """Outcomes by key; the oldest go first when it is full."""

    def __init__(self) -> None:
        self.kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.hits = self._numbers = 0

    def keep(self, key: Hashable, value: Any, numbers: int) -> None:
        """Keep a value that counts as so many numbers."""
        if numbers > MOST_NUMBERS // 16:
            return
        self.kept[key] = (value, numbers)
        self._numbers += numbers
        while self._numbers > MOST_NUMBERS or len(self.kept) > MOST_ENTRIES:
            self._numbers -= self.kept.popitem(last=False)[1][1]


_MT19937_BYTES = 4 * 625  # its words and its place among them
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
        work: called without arguments when nothing is kept.
        involved: everything that the outcome depends on.
        kind: keeps the uses of a memo apart.
        copied: makes what is kept, and what is given away of it.
    """
    memo = _active.get()
    if memo is None:
        return work()
    try:
        key = (kind, torch.get_default_dtype(), fingerprint(involved))
    except Unkeyable:
        return work()
    if key in memo.kept:
        memo.hits += 1
        return copied(memo.kept[key][0])
    before = _random_state()
    value = work()
    content = getattr(value, "value", value)
    plain = all(isinstance(x, (Tensor, np.ndarray, float, *_PLAIN)) for x in leaves(content))
    if plain and before == _random_state():
        memo.keep(key, copied(value), 1 + size(content))
    return value


def _random_state() -> tuple[Any, ...]:
    drawn: Any = np.random.mtrand.get_bit_generator()  # a test may draw from it
    if type(drawn) is np.random.MT19937:  # its state as Python numbers takes longer than most work
        drawn = ctypes.string_at(drawn.ctypes.state_address, _MT19937_BYTES)
    else:
        drawn = repr(drawn.state)
    return torch.get_rng_state().numpy().tobytes(), drawn, random.getstate()


def fingerprint(value: Any) -> Hashable:
    """A key that two values share only when nothing can tell them apart.

    Args:
        value: a plain value, a tensor or array, a container of these, or a function of a module.

    Raises:
        Unkeyable: it is anything else, such as an object of a learner.
    """
    kind = type(value)
    if kind in _PLAIN:
        return (kind, value)
    if kind is float:
        return (kind, value.hex())
    if kind is Tensor:
        return (kind, *_tensor(value))
    if kind in (tuple, list):
        return (kind, *map(fingerprint, value))
    if kind is dict:
        return (kind, *map(fingerprint, value), *map(fingerprint, value.values()))
    if kind is np.ndarray and value.dtype.kind in "biufc":
        return (kind, value.dtype.str, value.shape, value.strides, _short(value.tobytes()))
    if kind is types.ModuleType and f"{value.__name__}.".startswith(_MODULES):
        return (kind, value.__name__)
    if kind is functools.partial:
        return (kind, *map(fingerprint, (value.func, value.args, value.keywords)))
    if kind is NumpyOracle:
        return (kind, fingerprint(value.function))
    if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
        if str(getattr(value, "__module__", "")).startswith(_OURS):
            return (kind, value)  # one object for as long as the module lives, and the key holds it
        if isinstance(value, types.FunctionType):
            return _code(value)
    elif kind is Call:  # nobody changes its arguments, and a search asks for it thousands of times
        if "_key" not in vars(value):
            asked = value.args, value.kwargs, value.via
            vars(value)["_key"] = (kind, *map(fingerprint, asked))
        return vars(value)["_key"]  # type: ignore[no-any-return]
    elif kind.__module__.startswith("attn_course.probes."):  # an adapter, a property
        if dataclasses.is_dataclass(kind):
            parts = [getattr(value, field.name) for field in dataclasses.fields(value)]
        else:
            parts = list(vars(value).values())
        return (kind, *map(fingerprint, parts))
    raise Unkeyable(kind.__name__)


_open: ContextVar[tuple[types.CodeType, ...]] = ContextVar("attn_course_open", default=())


def _code(function: types.FunctionType) -> Hashable:
    """A key of a function outside of our modules: its code, and everything that this reads.

    Raises:
        Unkeyable: it could depend on more than that, or do more than compute.
    """
    code = function.__code__
    if code in _open.get():  # it calls itself
        return code
    read = _read(code)
    if read is None:
        raise Unkeyable(code.co_name)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    used = {name: function.__globals__[name] for name in read if name in function.__globals__}
    if any(isinstance(x, dict | list | set) for x in [*cells, *used.values()]):
        raise Unkeyable(code.co_name)
    token = _open.set((*_open.get(), code))
    try:
        more = function.__defaults__, function.__kwdefaults__, cells
        return (code, *map(fingerprint, (*more, *used, *used.values())))
    finally:
        _open.reset(token)


@functools.lru_cache(maxsize=1024)
def _read(code: types.CodeType) -> tuple[str, ...] | None:
    """The global names that a code reads; None where it could do more than compute."""
    read, inner = set(), [code]
    for one in inner:
        if _IMPURE.intersection(one.co_names):
            return None
        inner += [const for const in one.co_consts if isinstance(const, types.CodeType)]
        for step in dis.get_instructions(one):
            outer = step.opname == "STORE_DEREF" and step.argval in code.co_freevars
            if step.opname in _EFFECTS or outer:
                return None
            read |= {step.argval} if step.opname == "LOAD_GLOBAL" else set()
    return tuple(sorted(read))


def _short(data: bytes) -> bytes:
    return data if len(data) <= 64 else hashlib.blake2b(data, digest_size=32).digest()


def _tensor(value: Tensor) -> tuple[Hashable, ...]:
    strange = value.layout != torch.strided or not value.is_cpu or value.grad_fn is not None
    if strange or value.is_conj() or value.is_neg():
        raise Unkeyable("tensor")
    plain = value.detach()
    plain = plain.view(torch.int16) if value.dtype == torch.bfloat16 else plain
    about = value.dtype, value.shape, value.stride(), value.requires_grad
    where = value.storage_offset(), value.untyped_storage().nbytes()
    return (*about, *where, _short(plain.numpy().tobytes()))
