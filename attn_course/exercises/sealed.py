"""What an answer may not use: closed parts of the course, and calls that its question forbids.

``check`` refuses them while a learner's function runs. The grader takes them out of a whole
process; there, in the jail, this file stands beside the jail's own and knows nothing else of the
course.
"""

import importlib
import importlib.abc
import importlib.machinery
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType
from typing import Any

COURSE = "attn_course"
# What an answer may use of the course; everything else exists by name only.
OPEN_PARTS = (
    *("__init__.py", "py.typed", "_checks.py", "masks.py", "data", "viz"),
    *("probes/student.py", "probes/values.py", "probes/oracle.py", "probes/watch.py"),
)
OPEN = tuple(f"{COURSE}.{part.removesuffix('.py').replace('/', '.')}" for part in OPEN_PARTS)
# Forms of a name that is forbidden, and where torch keeps functions of Python.
AUTOGRAD = "autograd"
IMPORT = "import "
SCIPY = f"{IMPORT}scipy"
PYTHON_HOMES = (
    *("torch", "torch.nn.functional", "torch.nn.utils.clip_grad"),
    *("torch.functional", "torch.special", "torch.linalg"),
)
# Torch's libraries of kernels: what ``aten`` has under a name, others have for some tensors again.
LIBRARIES = ("aten", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "quantized", "_quantized")
WORDS = "this question asks you to write it yourself: using {} is not allowed here"


class ForbiddenShortcut(RuntimeError):
    """The answer called what the question asks to be written."""


class SealedError(RuntimeError):
    """The answer used a part of the course, or a package, that is closed to it."""


class Sealed(ModuleType):
    """Stands for a closed module, or any name of one: naming it works, using it says why not.

    A notebook's set-up cell imports closed parts for the test cells, so the import must work.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # modules below it can be named as well

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise SealedError(
            f"{self.__name__} is not available to a submission while it is graded: "
            "write it yourself (it may hold the reference answers)"
        )

    __call__ = __iter__ = __bool__ = __len__ = __getitem__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        return importlib.import_module(whole) if is_open(whole) else Sealed(whole)


class SealedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a package's modules and gives ones in which nothing works.

    Args:
        package: the package, or the module; nothing above it.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def covers(self, name: str) -> bool:
        """Whether a module is closed; where the course is, its open parts are not."""
        return is_below(name, self.package) and not (self.package == COURSE and is_open(name))

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if self.covers(name):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return Sealed(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def is_below(name: str, *packages: str) -> bool:
    """Whether a module is one of some packages or below one."""
    return f"{name}.".startswith(tuple(f"{package}." for package in packages))


def is_open(name: str) -> bool:
    """Whether a module is a part of the course that an answer may use."""
    return is_below(name, *OPEN)


def refusing(name: str) -> Callable[..., Any]:
    """A function that refuses; it needs no name of this module, so nothing here is worth patching.

    One that lost a default, say, could only fail in another way: there is no way to the original.
    """

    def refuse(
        *args: Any,
        _kind: type = ForbiddenShortcut,
        _text: str = WORDS.format(name),
        **kwargs: Any,
    ) -> Any:
        raise _kind(_text)

    return refuse


def refuse_in_place(function: Any, name: str) -> Callable[[], None]:
    """Give a function of Python a body that refuses, wherever it was copied to.

    Returns:
        What gives it its own body back.
    """
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    if type(function) is not FunctionType:
        return lambda: None
    before, new = (function.__code__, function.__kwdefaults__), refusing(name)
    function.__code__ = new.__code__.replace(co_freevars=function.__code__.co_freevars)
    function.__kwdefaults__ = new.__kwdefaults__

    def restore() -> None:
        function.__code__, function.__kwdefaults__ = before

    return restore


def operators_of(name: str) -> list[str]:
    """Torch's operators that a function's name stands for, without their overloads."""
    last = name.rpartition(".")[2]
    return [f"aten::{lead}{last}" for lead in ("", "_", "special_", "linalg_")]


def operators_like(pattern: str) -> list[str]:
    """The patterns that one of ``aten`` stands for: the same name in each library of kernels."""
    library, _, rest = pattern.partition("::")
    return [f"{one}::{rest}" for one in (LIBRARIES if library == "aten" else (library,))]


def with_scipy(names: Iterable[str]) -> tuple[str, ...]:
    """``names``, and SciPy where a call of torch is among them: it has most of them once more."""
    found = tuple(names)
    called = [name for name in found if name != AUTOGRAD and not name.startswith(IMPORT)]
    return tuple(dict.fromkeys([*found, *([SCIPY] if called else [])]))
