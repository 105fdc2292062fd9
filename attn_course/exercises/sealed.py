"""What of the course, and of the packages that a question forbids, is closed to an answer.

In the jail this file stands beside the jail's own and knows nothing else of the course.
"""

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

COURSE = "attn_course"
# What an answer may use of the course; everything else exists by name only.
OPEN_PARTS = (
    *("__init__.py", "py.typed", "_checks.py", "masks.py", "data", "viz"),
    *("probes/student.py", "probes/values.py", "probes/oracle.py", "probes/watch.py"),
    "probes/bounds.py",
)
OPEN = tuple(f"{COURSE}.{part.removesuffix('.py').replace('/', '.')}" for part in OPEN_PARTS)
# Forms of a forbidden name, which shortcuts.py explains.
AUTOGRAD = "autograd"
IMPORT = "import "
SCIPY = f"{IMPORT}scipy"
# Modules that have calls of torch once more, in Python or in kernels of their own.
PEERS = ("scipy", "sklearn", "transformers", "torch.ao.nn.quantizable", "torch.onnx.ops")
ATTENTION = "scaled_dot_product"
FLEX = ("flex_attention", "math_attention")  # the same once more


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
    return name == COURSE or is_below(name, *OPEN)


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
    attributes = []  # of modules that stay open
    for name, module in before.items():
        parent, _, last = name.rpartition(".")
        held = vars(sys.modules[parent]) if parent in sys.modules and parent not in before else {}
        if held.get(last) is module:
            attributes.append((held, last, module))
            held[last] = sys.modules[name]
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        for held, last, module in attributes:
            held[last] = module
        for finder in finders:
            sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if type(module) is Sealed]:
            parent, _, last = name.rpartition(".")
            if parent in sys.modules and vars(sys.modules[parent]).get(last) is sys.modules[name]:
                delattr(sys.modules[parent], last)
            del sys.modules[name]
        sys.modules.update(before)


def with_peers(names: Iterable[str]) -> tuple[str, ...]:
    """``names``, and what has the same once more where SciPy or a call of torch is among them."""
    found = list(names)
    called = [name for name in found if name != AUTOGRAD and not name.startswith(IMPORT)]
    found += [IMPORT + name for name in PEERS] if called or SCIPY in found else []
    found += FLEX if any(ATTENTION in name for name in called) else ()
    return tuple(dict.fromkeys(found))
