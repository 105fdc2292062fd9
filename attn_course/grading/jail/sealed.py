"""Inside the jail the parts of ``attn_course`` that hold answers exist by name only.

A notebook's set-up cell imports them for the test cells, which run elsewhere; so the import must
work, and any use must say why it cannot.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any


class SealedError(RuntimeError):
    """A learner's code used a part of the package that is closed while grading."""


class Sealed:
    """Stands for any name of a sealed module."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise SealedError(
            f"{self.__name__} is not available to a submission while it is graded: "
            "write it yourself (it may hold the reference answers)"
        )

    __call__ = __iter__ = __bool__ = __len__ = __getitem__ = _refuse

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Sealed(f"{self.__name__}.{name}")


class SealedModule(ModuleType):
    """A module in which every public name exists and none works."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Sealed(f"{self.__name__}.{name}")


class SealedFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a package's modules, and gives ones in which nothing works.

    Args:
        package: the package, or the module; nothing above it.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name == self.package or name.startswith(f"{self.package}."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return SealedModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def install() -> None:
    """Put the finder behind all others: what the jail does not have of the course is sealed."""
    sys.meta_path.append(SealedFinder("attn_course"))
