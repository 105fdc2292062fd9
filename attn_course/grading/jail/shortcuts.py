"""Take the library calls that a question forbids out of a process, for good.

It is done before the first line of the submission runs, for the whole process and every thread of
it: nothing is left that a submission could patch back. Torch's operators are replaced where every
route to them ends, in the dispatcher; Python functions get another body; modules are hidden, with
their files. Forms of a name:

- ``softmax``, ``torch.softmax``, ``torch.nn.functional.softmax``: all operators of torch so named,
  also with a leading underscore, and what torch has under that name in Python
- ``aten::*softmax*``: operators, with wildcards, in all of torch's libraries of kernels
- ``numpy.exp``: a name of a module other than torch
- ``import scipy``: a module, closed as ``attn_course.reference`` is
- ``autograd``: all of torch's derivatives

What it can promise: the calls that are named, and every way to them that is known, are not there.
What computes the same under another name is not on the list: a backward formula of torch, a series,
a package that nobody thought of. That an answer has the *properties* asked for (shape, scale,
gradient, what it does at the edges) is what the tests decide; the list only spares honest learners
the detour by the library.
"""

import contextlib
import ctypes
import fnmatch
import functools
import gc
import importlib
import importlib.util
import itertools
import sys
import warnings
from collections.abc import Iterable, Sequence
from types import ModuleType
from typing import Any

import torch
from sealed import (
    AUTOGRAD,
    IMPORT,
    LIBRARIES,
    PYTHON_HOMES,
    SealedFinder,
    operators_like,
    operators_of,
    refuse_in_place,
    refusing,
)

DERIVATIVES = ("aten::_backward", "aten::_make_dual", "aten::_fw_primal")
WRITTEN_OUT = ("torch._refs", "torch._decomp")  # torch's own operators once more, in Python
BACKENDS = ("CPU", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "NestedTensorCPU", "MkldnnCPU")
GRAPHS = ("_jit_to_static", "parse_ir")  # their kernels are beside the dispatcher's
SCRIPT = ("_jit_", "_create_function", "parse_ir", "import_ir", "_import_ir", "_load_for")


def prepare() -> None:
    """Before the forks: read the list of torch's operators once."""
    _by_name()


def hidden_folders(names: Sequence[str]) -> list[str]:
    """Folders and files that must not be read: they hold a forbidden answer as source."""
    found = []
    for name in _hidden_modules(names):
        with contextlib.suppress(ImportError, AttributeError, ValueError):
            spec = importlib.util.find_spec(name)
            if spec is not None:
                found += spec.submodule_search_locations or [str(spec.origin)]
    return found


def _hidden_modules(names: Sequence[str]) -> list[str]:
    modules = [name.removeprefix(IMPORT) for name in names if name.startswith(IMPORT)]
    return [*modules, *(WRITTEN_OUT if len(modules) < len(names) else ())]


def remove(names: Sequence[str]) -> None:
    """Take ``names`` out of this process.

    Args:
        names: see the head of this file.

    Raises:
        ValueError: a name stands for nothing.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch tells that an operator was replaced
        for name in names:
            _remove(name)
        if not all(name.startswith(IMPORT) for name in names):
            _close_scripts(GRAPHS, "a graph of operators")


def _remove(name: str) -> None:
    if name.startswith(IMPORT):
        _hide_module(name.removeprefix(IMPORT))
    elif name == AUTOGRAD:
        _remove_autograd()
    elif "::" in name:
        found = [base for like in operators_like(name) for base in fnmatch.filter(_by_name(), like)]
        _replace_operators([operator for base in found for operator in _by_name()[base]], name)
    elif "." in name and not name.startswith("torch."):
        module, _, attribute = name.rpartition(".")
        _replace_name(importlib.import_module(module), attribute, name)
    else:
        _remove_torch_name(name)


@functools.cache
def _operators() -> list[str]:
    return list(torch._C._dispatch_get_all_op_names())


@functools.cache
def _by_name() -> dict[str, list[str]]:
    """All overloads of each operator."""
    found: dict[str, list[str]] = {}
    for operator in _operators():
        found.setdefault(_base(operator), []).append(operator)
    return found


def _base(operator: str) -> str:
    """``aten::add`` of ``aten::add.Tensor``."""
    return operator.partition(".")[0]


def _remove_torch_name(name: str) -> None:
    last = name.rpartition(".")[2]
    operators = [operator for base in operators_of(name) for operator in _by_name().get(base, ())]
    if operators:
        _replace_operators(operators, name)
    places = [*map(importlib.import_module, PYTHON_HOMES), torch.Tensor]
    places += [module for n, module in list(sys.modules.items()) if n.startswith(WRITTEN_OUT)]
    found = [vars(at)[n] for at in places for n in (last, f"_{last}") if n in vars(at)]
    for function in found:
        refuse_in_place(function, name)
    if not operators and not found:
        raise ValueError(f"forbidden: torch has nothing that is called {name!r}")


def _replace_operators(operators: Iterable[str], name: str, keys: Sequence[str] = BACKENDS) -> None:
    """A kernel that refuses, in C++ tables that no Python object leads back to."""
    homes: dict[str, list[str]] = {}
    for operator in operators:
        home, _, rest = operator.partition("::")
        homes.setdefault(home, []).append(rest)
    if not homes:
        raise ValueError(f"forbidden: torch has no operator {name!r}")
    for home, key in itertools.product(homes.keys() & set(LIBRARIES), keys):
        library = torch._C._dispatch_library("IMPL", home, key, __file__, 1)
        for operator in homes[home]:
            library.impl(operator, key, refusing(name))
        # nobody may let go of it: that would bring the operators back
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))


def _replace_name(module: ModuleType, attribute: str, name: str) -> None:
    if not hasattr(module, attribute):
        raise ValueError(f"forbidden: {module.__name__} has no {attribute!r}")
    refuse_in_place(getattr(module, attribute), name)
    setattr(module, attribute, refusing(name))


def _hide_module(name: str) -> None:
    """Any import of it, or of what is below it, gives names that refuse."""
    below = [n for n in sys.modules if n == name or n.startswith(f"{name}.")]
    for module in [sys.modules.pop(n) for n in below]:
        for value in list(vars(module).values()):
            members = vars(value).values() if isinstance(value, type) else [value]
            for member in members:
                if str(getattr(member, "__module__", "")).startswith(name):
                    refuse_in_place(member, name)
    sys.meta_path.insert(0, SealedFinder(name))
    parent, _, last = name.rpartition(".")
    if parent in sys.modules and last in vars(sys.modules[parent]):
        delattr(sys.modules[parent], last)


def _remove_autograd() -> None:
    """Backward: the engine's only entry, a slot of a C type. Forward: the operators of duals."""
    engine = torch._C._ImperativeEngine
    for name in ("run_backward", "queue_callback"):
        _slots(engine)[name] = refusing(AUTOGRAD)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(engine))
    operators = [o for o in _operators() if _base(o) in DERIVATIVES]
    _replace_operators(operators, AUTOGRAD, keys=("CPU", "AutogradCPU"))
    nodes = (torch._C.TensorBase, "grad_fn"), (torch._C._FunctionBase, "next_functions")
    for kind, name in nodes:  # a node can be called by itself
        _slots(kind)[name] = property(refusing(AUTOGRAD))
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))
    _close_scripts(SCRIPT, AUTOGRAD)  # aten::grad of TorchScript is no operator
    for name in ("__init__", "define", "create_function"):
        setattr(torch._C.CompilationUnit, name, refusing(AUTOGRAD))


def _close_scripts(starts: tuple[str, ...], word: str) -> None:
    """Entries of TorchScript by how their names begin."""
    for name in [name for name in vars(torch._C) if name.startswith(starts)]:
        setattr(torch._C, name, refusing(word))


def _slots(kind: type) -> dict[str, Any]:
    """The namespace of a C type."""
    slots: dict[str, Any] = gc.get_referents(vars(kind))[0]
    return slots
