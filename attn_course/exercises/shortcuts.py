"""Refuse, while a learner's function runs, what its question forbids and the course's own answers.

The grader takes such calls out of a whole process, so that no submission can bring them back
(``grading/jail/shortcuts.py``, where the forms of a name are listed). Here the process is the
learner's own and holds the tests as well: the calls are refused as long as the function runs, which
tells whoever wants to know that the grader will not take this answer.
"""

import contextlib
import fnmatch
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from attn_course.exercises.sealed import (
    AUTOGRAD,
    COURSE,
    IMPORT,
    PYTHON_HOMES,
    WORDS,
    ForbiddenShortcut,
    Sealed,
    SealedFinder,
    operators_like,
    operators_of,
    refuse_in_place,
)

DERIVATIVES = ("aten::grad", "aten::backward", "aten::_make_dual")


@contextlib.contextmanager
def closed(more: Sequence[SealedFinder] = ()) -> Iterator[None]:
    """Within this, code that imports a closed part of the course gets names that do not work.

    Args:
        more: packages that are closed as well.
    """
    finders = [*more, SealedFinder(COURSE)]
    roots = tuple(finder.package for finder in finders)
    names = [n for n in sys.modules if n.startswith(roots) and any(f.covers(n) for f in finders)]
    before = {name: sys.modules[name] for name in names}
    sys.modules.update({name: Sealed(name) for name in before})
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if type(module) is Sealed]:
            del sys.modules[name]
        sys.modules.update(before)


class _Refusing:
    """A mode of torch that refuses whatever has one of some names of operators."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.patterns = patterns

    def refuse(self, name: str) -> None:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns):
            raise ForbiddenShortcut(WORDS.format(name.removeprefix("aten::").lstrip("_")))


class _Functions(_Refusing, TorchFunctionMode):
    """Sees what is called of torch, before torch takes it apart into operators."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.refuse(f"aten::{getattr(func, '__name__', '')}")
        return func(*args, **(kwargs or {}))


class _Operators(_Refusing, TorchDispatchMode):
    """Sees operators, whatever way leads to them."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else the first operation imports torch's compiler: seconds, in every process.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.refuse(func._schema.name)
        return func(*args, **(kwargs or {}))


def _python_functions(name: str) -> Iterator[Any]:
    """The functions of Python that a name stands for."""
    home, _, last = name.rpartition(".")
    for place in PYTHON_HOMES if not home or home.startswith("torch") else (home,):
        if hasattr(module := importlib.import_module(place), last):
            yield getattr(module, last)


@contextlib.contextmanager
def refused(names: Sequence[str], namespace: dict[str, Any]) -> Iterator[None]:
    """Within this the forbidden calls raise :class:`ForbiddenShortcut`.

    Args:
        names: as ``attn_course={"forbidden": [...]}`` lists them.
        namespace: the learner's global names; those of a forbidden package refuse as well.
    """
    hidden = [SealedFinder(name.removeprefix(IMPORT)) for name in names if name.startswith(IMPORT)]
    called = [n for n in names if not n.startswith(IMPORT) and n != AUTOGRAD and "::" not in n]
    patterns = [o for n in names if "::" in n for o in operators_like(n)]
    patterns += [o for n in called for o in operators_of(n)]
    patterns += DERIVATIVES if AUTOGRAD in names else ()
    swapped = {
        key: value
        for key, value in namespace.items()
        if any(finder.covers(_home(value)) for finder in hidden)
    }
    with contextlib.ExitStack() as stack:
        for name in called:
            for function in _python_functions(name):
                stack.callback(refuse_in_place(function, name))
        stack.callback(namespace.update, swapped)
        namespace.update({key: Sealed(key) for key in swapped})
        stack.enter_context(closed(hidden))
        if patterns:
            stack.enter_context(_Functions(patterns))
            stack.enter_context(_Operators(patterns))
        yield


def _home(value: object) -> str:
    """The module that a value is or comes from."""
    return str(getattr(value, "__module__", None) or getattr(value, "__name__", ""))


def guarded(function: Any, names: Sequence[str], namespace: dict[str, Any]) -> Callable[..., Any]:
    """The learner's function, which refuses what its question forbids while it runs."""
    if not isinstance(function, types.FunctionType):
        return function  # type: ignore[no-any-return]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with refused(names, namespace):
            return function(*args, **kwargs)

    return call
