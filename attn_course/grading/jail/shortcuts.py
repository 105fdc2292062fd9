"""Refuse the library calls that a question forbids, and say so.

Two nets: a ``TorchFunctionMode`` sees the public names (``torch.softmax``, the tensor method, the
function of ``torch.nn.functional``), a ``TorchDispatchMode`` sees the operator that any other
route to it ends in. Names outside torch are wrapped where they live.
"""

import contextlib
import importlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode


class ForbiddenShortcut(RuntimeError):
    """The submission called what the question asks to be written."""


def _refuse(name: str) -> None:
    raise ForbiddenShortcut(
        f"this question asks you to write it yourself: calling {name} is not allowed here"
    )


class _PublicNames(TorchFunctionMode):
    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = resolve_name(func) or getattr(func, "__name__", "")
        if name in self.names or name.split(".")[-1] in self.names:
            _refuse(name)
        return func(*args, **(kwargs or {}))


class _Operators(TorchDispatchMode):
    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self.names = names

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()  # "aten::_softmax"
        if name.split(".")[0] in self.names:
            _refuse(name)
        return func(*args, **(kwargs or {}))


def prepare() -> None:
    """Pay before the forks what torch's modes cost at their first use: a second of imports."""
    resolve_name(torch.softmax)
    with forbidden(("nothing", "aten::nothing")):
        x = torch.randn(2, 3, requires_grad=True)
        (x.exp() / x.amax(0, keepdim=True)).sum().backward()


@contextlib.contextmanager
def forbidden(names: Sequence[str]) -> Iterator[None]:
    """Refuse ``names`` while the block runs.

    Args:
        names: dotted names (``torch.softmax``), last parts (``softmax``: any torch function or
            method so named) or operators (``aten::_softmax``).
    """
    if not names:
        yield
        return
    operators = frozenset(name for name in names if "::" in name)
    public = frozenset(names) - operators
    with contextlib.ExitStack() as stack:
        for name in public:
            if "." in name and not name.startswith("torch."):
                stack.enter_context(_replaced(name))
        stack.enter_context(_PublicNames(public))
        if operators:
            stack.enter_context(_Operators(operators))
        yield


@contextlib.contextmanager
def _replaced(name: str) -> Iterator[None]:
    module_name, _, attribute = name.rpartition(".")
    module = importlib.import_module(module_name)
    original = getattr(module, attribute)

    def refuse(*args: Any, **kwargs: Any) -> None:
        _refuse(name)

    setattr(module, attribute, refuse)
    try:
        yield
    finally:
        setattr(module, attribute, original)
