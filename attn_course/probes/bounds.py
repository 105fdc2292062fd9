"""Stop a kernel under Triton's interpreter that leaves its tensors, before it does any harm.

The interpreter follows every address: it reads numbers of another array, or ends the process. Here
each pointer carries the number of its argument in bits that no address has, so that an access is
compared with the tensor that it was meant for, and not with what happens to lie there.
"""

import inspect
import sys
from typing import Any

import numpy as np
from torch import Tensor

_BITS = np.uint64(48)  # of an address
_ADDRESS = np.uint64(2**48 - 1)
# What accesses memory, the words for it, and where its pointers and its mask are.
_ACCESSES = (
    ("create_masked_load", "reads", 0, 1),
    ("create_masked_store", "writes", 0, 2),
    ("create_atomic_rmw", "writes", 1, 3),
    ("create_atomic_cas", "writes", 0, None),
)


def keep_inside() -> None:
    """From now on a kernel that reads or writes outside of its tensors raises an ``IndexError``.

    Nothing happens where Triton is missing or compiles, or while ``kernels.trace`` notes accesses.
    """
    interpreter: Any = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None or getattr(interpreter, "_attn_inside", False):
        return
    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    convert, start = interpreter._implicit_cvt, executor.__call__
    given: list[tuple[Tensor, str]] = []
    launch: dict[str, Any] = {}

    def numbered(value: Any) -> Any:
        made = convert(value)
        if isinstance(value, Tensor) and "create_masked_load" not in vars(builder):
            named = (name for name, x in launch["arguments"] if _address(x) == _address(value))
            given.append((value, next(named, "")))
            made.handle.data = made.handle.data | np.uint64(len(given)) << _BITS
        return made

    def started(self: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = [*zip(inspect.signature(self.fn).parameters, args, strict=False)]
        launch.update(kernel=self.fn.__name__, arguments=[*arguments, *kwargs.items()])
        given.clear()
        try:
            return start(self, *args, **kwargs)
        except interpreter.InterpreterError as error:
            if isinstance(error.__cause__, IndexError):
                raise error.__cause__ from None
            raise

    def inside(pointers: Any, mask: Any, what: str) -> Any:
        seen = np.broadcast_to(True if mask is None else mask.data, pointers.data.shape)
        for number in np.unique(pointers.data[seen] >> _BITS):
            if not number:  # an address from somewhere else
                continue
            tensor, name = given[int(number) - 1]
            mine = pointers.data[seen & (pointers.data >> _BITS == number)] & _ADDRESS
            places = (mine.astype(np.int64) - tensor.data_ptr()) // tensor.element_size()
            outside = places[(places < 0) | (places >= _extent(tensor))]
            if outside.size:
                raise IndexError(
                    f"`{launch['kernel']}` {what} element {outside[0]} of `{name}`, which has "
                    f"{_extent(tensor)}, in program {tuple(builder.grid_idx)}"
                )
        return interpreter.TensorHandle(pointers.data & _ADDRESS, pointers.dtype)

    def checked(access: Any, what: str, at: int, mask: int | None) -> Any:
        def call(self: Any, *args: Any) -> Any:
            pointers = inside(args[at], None if mask is None else args[mask], what)
            return access(self, *args[:at], pointers, *args[at + 1 :])

        return call

    for method, *more in _ACCESSES:
        access = getattr(type(builder), method)
        setattr(type(builder), method, checked(access, *more))  # type: ignore[arg-type]
    interpreter._implicit_cvt, executor.__call__ = numbered, started
    interpreter._attn_inside = True


def _address(value: Any) -> int | None:
    return value.data_ptr() if isinstance(value, Tensor) else None


def _extent(tensor: Tensor) -> int:
    """Elements from the first of a tensor to its last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return 1 + sum((size - 1) * step for size, step in steps) if tensor.numel() else 0
