"""Which program of a kernel reads and writes which entries, noted while the interpreter runs it.

For small inputs: every access is kept. Needs ``TRITON_INTERPRET=1`` before the first import of
``attn_course.kernels``.
"""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from triton.runtime import interpreter

from attn_course.kernels._launch import INTERPRETED

SECTOR = 32  # bytes: the smallest piece that a GPU fetches from its memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Access:
    """One load or store of one program.

    Attributes:
        launch: Which launch it belongs to, counted from 0.
        kernel: Name of the kernel.
        program: Its place in the grid.
        kind: ``"load"`` or ``"store"``.
        tensor: Name of the kernel's argument that it points into.
        places: Where the entries lie, counted from the argument's first one, in the order of the
            block; what the mask excludes is left out.
        itemsize: Bytes of an entry.
        lanes: Entries of the block, masked ones included.
    """

    launch: int
    kernel: str
    program: tuple[int, int, int]
    kind: str
    tensor: str
    places: Tensor
    itemsize: int
    lanes: int

    @property
    def nbytes(self) -> int:
        """Bytes that were asked for."""
        return self.places.numel() * self.itemsize

    @property
    def sectors(self) -> int:
        """Bytes that a GPU moves for it, in whole pieces of 32 bytes, each once."""
        return int((self.places * self.itemsize // SECTOR).unique().numel()) * SECTOR


class Trace:
    """All accesses in their order, and what they add up to.

    Programs come one after the other here; on a GPU many run at the same time.

    Args:
        accesses: Where it starts.
    """

    def __init__(self, accesses: Iterable[Access] = ()) -> None:
        self._accesses = list(accesses)

    def __iter__(self) -> Iterator[Access]:
        return iter(self._accesses)

    def __len__(self) -> int:
        return len(self._accesses)

    def append(self, access: Access) -> None:
        """Note one more."""
        self._accesses.append(access)

    def only(self, kind: str | None = None, tensor: str | None = None) -> "Trace":
        """The accesses of one kind, or to one argument."""
        return Trace(
            access
            for access in self
            if kind in (None, access.kind) and tensor in (None, access.tensor)
        )

    @property
    def launches(self) -> int:
        """How many kernels were started."""
        return len({access.launch for access in self})

    @property
    def programs(self) -> int:
        """How many programs touched memory, of all launches."""
        return len({(access.launch, access.program) for access in self})

    @property
    def nbytes(self) -> int:
        """How many bytes were asked for, as often as they were."""
        return sum(access.nbytes for access in self)

    @property
    def unique_nbytes(self) -> int:
        """How many bytes were asked for if each entry counts once for every launch and kind.

        No kernel can do with less unless it keeps something on the chip.
        """
        touched: dict[tuple[int, str, str], list[Tensor]] = {}
        sizes: dict[tuple[int, str, str], int] = {}
        for access in self:
            which = access.launch, access.kind, access.tensor
            touched.setdefault(which, []).append(access.places)
            sizes[which] = access.itemsize
        return sum(
            int(torch.cat(places).unique().numel()) * sizes[which]
            for which, places in touched.items()
        )

    @property
    def sectors(self) -> int:
        """How many bytes are moved in whole pieces of 32, each once per access.

        Large where neighbours in a block are no neighbours in memory.
        """
        return sum(access.sectors for access in self)

    def count(self, tensor: str, size: int, kind: str | None = None) -> Tensor:
        """How often each of the first ``size`` entries of an argument was touched."""
        counts = torch.zeros(size, dtype=torch.int64)
        for access in self.only(kind, tensor):
            counts += torch.bincount(access.places, minlength=size)[:size]
        return counts


@contextlib.contextmanager
def traced() -> Iterator[Trace]:
    """Note every load and store of the kernels that run in the block.

    Example:
        >>> with traced() as accesses:  # doctest: +SKIP
        ...     softmax(scores)

    Raises:
        ValueError: If the kernels are compiled and not interpreted.
    """
    if not INTERPRETED:
        raise ValueError("TRITON_INTERPRET: expected 1 before attn_course.kernels is imported")
    found = Trace()
    builder, executor = interpreter.interpreter_builder, interpreter.GridExecutor
    load, store, call = builder.create_masked_load, builder.create_masked_store, executor.__call__
    launches = 0
    kernel, arguments = "", list[tuple[str, int, int, int]]()

    def note(kind: str, pointers: Any, mask: Any) -> None:
        addresses = torch.from_numpy(pointers.data.reshape(-1).astype("int64"))
        seen = torch.from_numpy(mask.data.reshape(-1).astype(bool)).expand(len(addresses))
        asked = addresses[seen]
        name, start, itemsize = _whose(arguments, asked)
        found.append(
            Access(
                launch=launches - 1,
                kernel=kernel,
                program=tuple(builder.grid_idx),
                kind=kind,
                tensor=name,
                places=(asked - start) // itemsize,
                itemsize=itemsize,
                lanes=len(addresses),
            )
        )

    def noted_load(pointers: Any, mask: Any, *more: Any) -> Any:
        note("load", pointers, mask)
        return load(pointers, mask, *more)

    def noted_store(pointers: Any, value: Any, mask: Any, *more: Any) -> Any:
        note("store", pointers, mask)
        return store(pointers, value, mask, *more)

    def noted_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal launches, kernel, arguments
        known = inspect.signature(self.fn).parameters
        bound = inspect.signature(self.fn).bind(
            *args, **{name: value for name, value in kwargs.items() if name in known}
        )
        launches, kernel = launches + 1, self.fn.__name__
        arguments = [
            (name, value.data_ptr(), _extent(value), value.element_size())
            for name, value in bound.arguments.items()
            if isinstance(value, Tensor)
        ]
        return call(self, *args, **kwargs)

    builder.create_masked_load, builder.create_masked_store = noted_load, noted_store
    executor.__call__ = noted_call
    try:
        yield found
    finally:
        del builder.create_masked_load, builder.create_masked_store
        executor.__call__ = call


def _extent(tensor: Tensor) -> int:
    """Bytes from the first entry of a tensor to the end of its last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.element_size()


def _whose(
    arguments: Sequence[tuple[str, int, int, int]], addresses: Tensor
) -> tuple[str, int, int]:
    """The argument that addresses lie in: its name, where it starts, and the size of an entry."""
    for name, start, nbytes, itemsize in arguments:
        if len(addresses) and start <= int(addresses[0]) < start + nbytes:
            return name, start, itemsize
    return "", 0, 1
