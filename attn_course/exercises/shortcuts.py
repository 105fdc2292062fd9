"""Refuse the library calls that a question forbids.

The grader takes them out of a whole process, for good, before the first line of a submission runs
(:func:`remove`): nothing is left that it could patch back. Torch's operators are replaced where
every route to them ends, in the dispatcher; Python functions get another body; modules are hidden,
with their files. In ``check`` the process is the learner's own and holds the tests as well: there
the calls are refused as long as a learner's function runs (:func:`guarded`). Forms of a name:

- ``softmax``, ``torch.softmax``, ``torch.nn.functional.softmax``: all operators of torch so named,
  also with a leading underscore, and what torch and numpy have under that name in Python
- ``aten::*softmax*``: the same with wildcards, in all of torch's libraries of kernels
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

if __package__:
    from attn_course.exercises import sealed
else:  # in the jail, beside the jail's own files
    import sealed  # type: ignore[no-redef]

AUTOGRAD, IMPORT = sealed.AUTOGRAD, sealed.IMPORT
WORDS = "this question asks you to write it yourself: using {} is not allowed here"
PYTHON_HOMES = (  # where functions of Python are, and those of numpy
    *("torch", "torch.nn.functional", "torch.nn.utils.clip_grad"),
    *("torch.functional", "torch.special", "torch.linalg", "numpy"),
    *("torch.nn.attention.flex_attention", "torch._higher_order_ops.flex_attention"),
)
# Torch's libraries of kernels: what ``aten`` has under a name, others have for some tensors again.
LIBRARIES = ("aten", "mkl", "mkldnn", "mkldnn_prepacked", "onednn", "quantized", "_quantized")
OWN = tuple(f"{library}::" for library in (*LIBRARIES, "prim", "prims"))
CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
ONNX = "onnx::*"  # operators that are written in Python
DERIVATIVES = ("aten::_backward", "aten::_make_dual", "aten::_fw_primal")
ENTRIES = ("aten::grad", "aten::backward", *DERIVATIVES)  # also of what is no operator
WRITTEN_OUT = ("torch._refs", "torch._decomp")  # torch's own operators once more, in Python
WRITTEN_LATER = ("torch._decomp.decompositions_for_rng", "torch._decomp.decompositions_for_jvp")
BACKENDS = ("CPU", "SparseCPU", "SparseCsrCPU", "QuantizedCPU", "NestedTensorCPU", "MkldnnCPU")
GRAPHS = ("_jit_to_static", "parse_ir")  # their kernels are beside the dispatcher's
SCRIPT = ("_jit_", "_create_function", "parse_ir", "import_ir", "_import_ir", "_load_for")


def _modules(names: Iterable[str]) -> list[str]:
    """The modules among some forbidden names."""
    return [name.removeprefix(IMPORT) for name in names if name.startswith(IMPORT)]


def _operators_of(name: str) -> list[str]:
    """The operators that a name or a pattern stands for, without their overloads."""
    home, separator, last = name.rpartition("::")
    if separator:  # the same name in each library of kernels
        return [f"{one}::{last}" for one in (LIBRARIES if home == "aten" else (home,))]
    last = name.rpartition(".")[2]
    return [f"aten::{lead}{last}" for lead in ("", "_", "special_", "linalg_")]


def _in_python(name: str) -> list[Any]:
    """What a name or a pattern stands for in Python."""
    home, _, last = name.replace("::", ".").rpartition(".")
    if home and home.partition(".")[0] not in ("torch", *LIBRARIES):
        return [getattr(importlib.import_module(home), last)]
    match = functools.partial(fnmatch.fnmatchcase, pat=last)
    found = [value for key, value in _python_names() if match(key) or match(key.lstrip("_"))]
    return [value for value in found if callable(value)]


@functools.cache
def _python_names() -> list[tuple[str, Any]]:
    """What ``_in_python`` looks through."""
    for name in (*WRITTEN_OUT, *WRITTEN_LATER):
        importlib.import_module(name)
    written = [module for name, module in sys.modules.items() if name.startswith(WRITTEN_OUT)]
    homes = [*map(importlib.import_module, PYTHON_HOMES), torch.Tensor, *written]
    return [item for home in homes for item in vars(home).items()]


def refusing(name: str) -> Callable[..., Any]:
    """A function that refuses; it needs no name of this module, so nothing here is worth patching.

    One that lost a default, say, could only fail in another way: there is no way to the original.
    """

    def refuse(
        *args: Any,
        _kind: type = sealed.ForbiddenShortcut,
        _text: str = WORDS.format(name),
        **kwargs: Any,
    ) -> Any:
        raise _kind(_text)

    return refuse


def refuse_in_place(
    function: Any, name: str, namespace: dict[str, Any] | None = None
) -> Callable[[], None]:
    """Give a function of Python a body that refuses, wherever it was copied to.

    One of numpy has no body: each module that has it, and ``namespace``, gets another one.

    Returns:
        What gives it its own body back.
    """
    if isinstance(function, np.ufunc):
        mine = _places(function, [namespace]) if namespace else []
        return _swap([*_all_places(function), *mine], refusing(name))
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


def _swap(places: Iterable[tuple[dict[str, Any], str]], new: Any) -> Callable[[], None]:
    """Put ``new`` in some places; returns what puts back what was there."""
    before = [(names, key, names[key]) for names, key in places]
    for names, key, _ in before:
        names[key] = new

    def restore() -> None:
        for names, key, old in before:
            names[key] = old

    return restore


def _places(function: Any, scopes: Iterable[dict[str, Any]]) -> list[tuple[dict[str, Any], str]]:
    """Where something is, and by what name."""
    return [(names, key) for names in scopes for key, v in names.items() if v is function]


@functools.cache
def _all_places(function: np.ufunc) -> list[tuple[dict[str, Any], str]]:
    """The modules that have a function of numpy."""
    return _places(function, [vars(m) for m in list(sys.modules.values()) if type(m) is ModuleType])


class _Refusing:
    """A mode of torch that refuses whatever has one of some names of operators."""

    def __init__(self, patterns: Sequence[str]) -> None:
        super().__init__()
        self.patterns = patterns

    def refuse(self, name: str) -> None:
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns):
            word = name.removeprefix("aten::").lstrip("_")
            raise sealed.ForbiddenShortcut(WORDS.format(word))


class _Functions(_Refusing, TorchFunctionMode):
    """Sees what is called of torch, before torch takes it apart into operators."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.refuse(f"aten::{getattr(func, '__name__', '')}")
        return func(*args, **(kwargs or {}))


class _Operators(_Refusing, TorchDispatchMode):
    """Sees operators, whatever way leads to them."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Else the first operation imports torch's compiler: seconds, in every process.
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name if hasattr(func, "_schema") else f"aten::{func.__name__}"
        self.refuse(name)
        if name.startswith(OWN) or not isinstance(func, torch._ops.OpOverload):
            return func(*args, **(kwargs or {}))
        with self:  # else what it is made of would not be seen
            return func.redispatch(CPU, *args, **(kwargs or {}))


@contextlib.contextmanager
def _refused(names: Sequence[str], namespace: dict[str, Any]) -> Iterator[None]:
    """Within this the forbidden calls raise ``ForbiddenShortcut``.

    Args:
        names: see the head of this file.
        namespace: the learner's global names; those of a forbidden package refuse as well.
    """
    hidden = [sealed.SealedFinder(module) for module in _modules(names)]
    called = [name for name in names if not name.startswith(IMPORT) and name != AUTOGRAD]
    patterns = [operator for name in called for operator in _operators_of(name)]
    patterns += ENTRIES if AUTOGRAD in names else ()
    closed = [k for k, v in namespace.items() if any(f.covers(_home(v)) for f in hidden)]
    with contextlib.ExitStack() as stack:
        for name, function in _found(tuple(called)):
            stack.callback(refuse_in_place(function, name, namespace))
        for key in closed:
            stack.callback(_swap([(namespace, key)], sealed.Sealed(key)))
        stack.enter_context(sealed.closed(hidden))
        if patterns:
            patterns.append(ONNX)
            stack.callback(_close_scripts(GRAPHS, "a graph of operators"))
            stack.enter_context(_Functions(patterns))
            stack.enter_context(_Operators(patterns))
        yield


@functools.cache
def _found(names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """All that some names stand for in Python, once each."""
    found = {id(function): (name, function) for name in names for function in _in_python(name)}
    return list(found.values())


def _home(value: object) -> str:
    """The module that a value is or comes from; a function of arrays does not say: SciPy's, or
    numpy's."""
    if isinstance(value, np.ufunc) and vars(np).get(value.__name__) is not value:
        return "scipy.special"
    return str(getattr(value, "__module__", None) or getattr(value, "__name__", ""))


def guarded(function: Any, names: Sequence[str], namespace: dict[str, Any]) -> Callable[..., Any]:
    """The learner's function, which refuses what its question forbids while it runs."""
    kernel = hasattr(function, "__getitem__")  # it runs within the function that starts it
    if kernel or isinstance(function, type) or not callable(function):
        return function  # type: ignore[no-any-return]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _refused(names, namespace):
            return function(*args, **kwargs)

    return call


def prepare() -> None:
    """Before the forks: read the list of torch's operators once, and what it has in Python.

    What torch imports of that only when it is needed must be here before its files are hidden.
    """
    _by_name()
    _python_names()


def hidden_folders(names: Sequence[str]) -> list[str]:
    """Folders and files that must not be read: they hold a forbidden answer as source."""
    found = []
    modules = _modules(names)
    for name in [*modules, *(WRITTEN_OUT if len(modules) < len(names) else ())]:
        with contextlib.suppress(ImportError, AttributeError, ValueError):
            spec = importlib.util.find_spec(name)
            if spec is not None:
                found += spec.submodule_search_locations or [str(spec.origin)]
    return found


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
    elif "::" in name or "." not in name or name.startswith("torch."):
        _remove_torch_name(name)
    else:
        module, _, attribute = name.rpartition(".")
        _replace_name(importlib.import_module(module), attribute, name)


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
    found = [base for like in _operators_of(name) for base in fnmatch.filter(_by_name(), like)]
    _replace_operators([operator for base in found for operator in _by_name()[base]], name)
    written = _in_python(name)
    for function in written:
        refuse_in_place(function, name)
    if not found and not written:
        raise ValueError(f"forbidden: torch has nothing that is called {name!r}")


def _replace_operators(operators: Iterable[str], name: str, keys: Sequence[str] = BACKENDS) -> None:
    """A kernel that refuses, in C++ tables that no Python object leads back to."""
    homes: dict[str, list[str]] = {}
    for operator in operators:
        home, _, rest = operator.partition("::")
        homes.setdefault(home, []).append(rest)
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
    sys.meta_path.insert(0, sealed.SealedFinder(name))
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


def _close_scripts(starts: tuple[str, ...], word: str) -> Callable[[], None]:
    """Entries of TorchScript by how their names begin; returns what opens them again."""
    entries = vars(torch._C)
    return _swap([(entries, key) for key in entries if key.startswith(starts)], refusing(word))


def _slots(kind: type) -> dict[str, Any]:
    """The namespace of a C type."""
    slots: dict[str, Any] = gc.get_referents(vars(kind))[0]
    return slots
