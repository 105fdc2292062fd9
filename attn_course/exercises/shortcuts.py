"""Refuse, while a learner's function runs, the library calls that its question forbids.

The grader takes such calls out of a whole process, so that no submission can bring them back
(``grading/jail/shortcuts.py``, where the forms of a name are listed). Here the process is the
learner's own and holds the tests as well: the calls are refused as long as the function runs, which
tells whoever wants to know that the grader will not take this answer.
"""

import builtins
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

WORDS = "this question asks you to write it yourself: using {} is not allowed here"
CLOSED = (
    "{} is not available to a submission while it is graded: "
    "write it yourself (it may hold the reference answers)"
)
COURSE = "attn_course"
OPEN = ("attn_course", "attn_course.probes", "attn_course.probes.student")
PYTHON_HOMES = (
    *("torch", "torch.nn.functional", "torch.nn.utils", "torch.nn.utils.clip_grad"),
    *("torch.functional", "torch.special", "torch.linalg"),
)
DERIVATIVES = (
    ("torch.autograd", ("grad", "backward")),
    ("torch.autograd.functional", ("jacobian", "hessian", "vjp", "jvp", "hvp", "vhp")),
    ("torch.func", ("grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "grad_and_value")),
    ("torch", ("autograd",)),
)


class ForbiddenShortcut(RuntimeError):
    """The answer called what the question asks to be written."""


class ClosedError(RuntimeError):
    """The answer used a part of the course that may hold the answer."""


class Closed(types.ModuleType):
    """Stands for a module, or a name of one, that is closed: naming it works, using it does not."""

    __path__: list[str] = []  # noqa: RUF012  an import below it finds this attribute

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise ClosedError(CLOSED.format(self.__name__))

    __call__ = __iter__ = __bool__ = __len__ = __getitem__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Closed(f"{self.__name__}.{name}")


def is_closed(name: str) -> bool:
    """Whether a module of the course is closed to a submission."""
    return name.partition(".")[0] == COURSE and name not in OPEN


def guarded_import(names: Sequence[str] = ()) -> Callable[..., Any]:
    """``__import__`` for a learner's code: the course is closed, and what a question forbids."""
    modules = [name.removeprefix("import ") for name in names if name.startswith("import ")]
    real = builtins.__import__

    def find(
        name: str,
        globals: Any = None,
        locals: Any = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> Any:
        whole = [name, *(f"{name}.{one}" for one in fromlist or ())]
        if level == 0 and any(is_closed(one) for one in whole):
            if not fromlist:
                return Closed(COURSE)
            if name == "attn_course.probes":  # `student` is open, the probes are not
                return types.SimpleNamespace(
                    **{
                        one: importlib.import_module(f"{name}.student")
                        if one == "student"
                        else Closed(f"{name}.{one}")
                        for one in fromlist
                    }
                )
            return Closed(name)
        for module in modules:
            if level == 0 and any(one == module or one.startswith(f"{module}.") for one in whole):
                raise ForbiddenShortcut(WORDS.format(module))
        return real(name, globals, locals, fromlist, level)

    return find


def _operators(names: Sequence[str]) -> tuple[str, ...]:
    """Patterns of operators that the names stand for."""
    found: list[str] = []
    for name in names:
        if "::" in name:
            found.append(name)
        elif not name.startswith("import ") and name != "autograd":
            last = name.rpartition(".")[2]
            found += [f"aten::{lead}{last}" for lead in ("", "_", "special_", "linalg_")]
    return tuple(found)


class _Functions(TorchFunctionMode):
    """Refuses torch functions by name, before they do anything."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = {name.rpartition(".")[2]: name for name in names if "::" not in name}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").removeprefix("special_").removeprefix("linalg_")
        for one in (name, name.removeprefix("_")):
            if one in self.names:
                raise ForbiddenShortcut(WORDS.format(self.names[one]))
        if "autograd" in self.names and name == "backward":
            raise ForbiddenShortcut(WORDS.format("autograd"))
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    """Refuses operators, whatever way leads to them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.patterns = patterns

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else the first operation imports torch's compiler: seconds, in every process.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns):
            raise ForbiddenShortcut(WORDS.format(name.removeprefix("aten::").lstrip("_")))
        return func(*args, **(kwargs or {}))


def _python_places(names: Sequence[str]) -> Iterator[tuple[Any, str, str]]:
    """Where the Python functions stand that the names mean: module, attribute, name."""
    for name in names:
        if name == "autograd":
            for home, attributes in DERIVATIVES[:-1]:
                for attribute in attributes:
                    if hasattr(module := importlib.import_module(home), attribute):
                        yield module, attribute, name
        elif "::" not in name and not name.startswith("import "):
            home, _, last = name.rpartition(".")
            homes = PYTHON_HOMES if not home or home.startswith("torch") else (home,)
            for place in homes:
                if hasattr(module := importlib.import_module(place), last):
                    yield module, last, name


@contextlib.contextmanager
def refusing(names: Sequence[str], namespace: dict[str, Any]) -> Iterator[None]:
    """Within this the forbidden calls raise :class:`ForbiddenShortcut`.

    Args:
        names: as ``attn_course={"forbidden": [...]}`` lists them.
        namespace: the learner's global names; those bound to a forbidden function refuse as well.
    """

    def refuse(name: str) -> Callable[..., Any]:
        def no(*args: Any, **kwargs: Any) -> Any:
            raise ForbiddenShortcut(WORDS.format(name))

        return no

    restore: list[tuple[Any, str, Any]] = []
    swapped: list[tuple[str, Any]] = []
    hidden = [name.removeprefix("import ") for name in names if name.startswith("import ")]
    before = builtins.__import__
    try:
        refused = {}
        for module, attribute, name in _python_places(names):
            original = getattr(module, attribute)
            if not isinstance(original, types.ModuleType):
                refused[id(original)] = refuse(name)
                restore.append((module, attribute, original))
                setattr(module, attribute, refused[id(original)])
        for key, value in list(namespace.items()):
            home = getattr(
                value, "__name__" if isinstance(value, types.ModuleType) else "__module__", ""
            )
            there = next((h for h in hidden if str(home) == h or str(home).startswith(f"{h}.")), "")
            if id(value) in refused or there:
                swapped.append((key, value))
                namespace[key] = refused.get(id(value)) or refuse(there)
        builtins.__import__ = guarded_import(names)
        with contextlib.ExitStack() as modes:
            if names:
                modes.enter_context(_Functions(names))
            if patterns := _operators(names):
                modes.enter_context(_Operators(patterns))
            yield
    finally:
        builtins.__import__ = before
        for module, attribute, original in restore:
            setattr(module, attribute, original)
        for key, value in swapped:
            namespace[key] = value


def guarded(function: Any, names: Sequence[str], namespace: dict[str, Any]) -> Any:
    """The learner's function, which refuses what its question forbids while it runs."""
    if not isinstance(function, types.FunctionType):
        return function

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with refusing(names, namespace):
            return function(*args, **kwargs)

    return call


@contextlib.contextmanager
def closed_course() -> Iterator[None]:
    """Within this, code that imports a closed part of the course gets names that do not work."""
    before = builtins.__import__
    kept = {name: sys.modules[name] for name in list(sys.modules) if is_closed(name)}
    builtins.__import__ = guarded_import()
    try:
        yield
    finally:
        builtins.__import__ = before
        sys.modules.update(kept)
