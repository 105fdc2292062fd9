"""The wire between the trusted grader and the jail: a JSON header and raw buffers, never pickle.

Frame: ``b"ACW2"``, length of the header (uint32), length of all buffers (uint64), the header, the
buffers. The header is UTF-8 JSON: the length of each buffer, and the value. A value is encoded as
plain JSON where JSON is exact, otherwise as an object with the key ``"$"`` that names its kind.
Decoding runs no code of the sender: every kind is known, every size is checked against a cap before
memory is taken.
"""

import json
import math
import socket
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import torch

from attn_course.probes.values import leaves

MAGIC: Final = b"ACW2"
MAX_HEADER: Final = 16 << 20
MAX_BUFFERS: Final = 4096
MAX_BYTES: Final = 256 << 20
MAX_DEPTH: Final = 40
MAX_DIMS: Final = 32
MAX_INT_BITS: Final = 14_000  # 4,215 decimal digits, and Python prints up to 4,300
MAX_ELEMENTS: Final = 1 << 22  # of all tensors of an untrusted message, an axis of 0 counted as 1
MAX_ITEMS: Final = 200_000  # of an untrusted sender; our own exercises stay below 100
MAX_ALIKE: Final = 16  # keys of one dict or set that share a hash
HEAD: Final = struct.Struct("<4sIQ")

_NUMBERS: Final = (  # of torch and of numpy
    *("float16", "float32", "float64", "complex64", "complex128", "bool"),
    *("int8", "int16", "int32", "int64", "uint8"),
)
TORCH_DTYPES: Final[dict[str, torch.dtype]] = {
    f"torch.{name}": getattr(torch, name) for name in (*_NUMBERS, "bfloat16")
}
NUMPY_DTYPES: Final = frozenset([*_NUMBERS, "uint16", "uint32", "uint64"])
DTYPE_NAMES: Final = {dtype: name for name, dtype in TORCH_DTYPES.items()}
_SAME: Final = frozenset({type(None), bool, str, float})  # as JSON what they are in Python
_READ: Final = _SAME | {int}  # what json.loads gives that is a value already
_KEYS: Final = _READ | {bytes, tuple, torch.dtype}

Node = Any  # a JSON value
Buffers = list[bytes]
Hold = Callable[[object], dict[str, Any]]
Resolve = Callable[[dict[str, Any]], object]


class WireError(ValueError):
    """The bytes are not a frame of this protocol, or a value cannot cross.

    Everything here that sends or receives may raise it, before the first byte is sent.
    """


def encode(value: object, buffers: Buffers, hold: Hold | None = None, depth: int = 0) -> Node:
    """Turn ``value`` into a JSON node; the bytes of tensors and arrays go to ``buffers``.

    ``hold`` is called with an object of no plain kind, and gives the node that stands for it.
    """
    kind = type(value)
    if kind in _SAME:
        return value
    if depth > MAX_DEPTH:
        raise WireError(f"value nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, buffers)
    if isinstance(value, int) and kind is int:
        if value.bit_length() > MAX_INT_BITS:
            raise WireError("integer too large to cross the wire")
        return value
    if isinstance(value, dict):
        return _encode_dict(value, buffers, hold, depth)
    if isinstance(value, np.ndarray | np.generic) and str(value.dtype) in NUMPY_DTYPES:
        array = np.ascontiguousarray(value)
        buffers.append(array.tobytes())
        scalar = isinstance(value, np.generic)
        return {"$": "array", "d": str(array.dtype), "s": list(np.shape(value)), "scalar": scalar}
    if kind in (list, set, frozenset) or isinstance(value, tuple):
        each: Any = tuple.__iter__(value) if isinstance(value, tuple) else value
        items = [encode(x, buffers, hold, depth + 1) for x in each]
        name = "tuple" if isinstance(value, tuple) else "set"
        return items if kind is list else {"$": name, "v": items}
    if isinstance(value, torch.dtype):
        return {"$": "dtype", "v": str(value)}
    if kind is bytes:
        buffers.append(value)  # type: ignore[arg-type]
        return {"$": "bytes"}
    if hold is not None:
        return hold(value)
    raise WireError(f"a value of type {kind.__name__} cannot cross the wire")


def _encode_dict(value: dict[Any, Any], buffers: Buffers, hold: Hold | None, depth: int) -> Node:
    if {str}.issuperset(map(type, dict.keys(value))):
        plain = {k: encode(v, buffers, hold, depth + 1) for k, v in dict.items(value)}
        return {"$": "map", "v": plain}
    pairs = [
        [encode(k, buffers, hold, depth + 1), encode(v, buffers, hold, depth + 1)]
        for k, v in dict.items(value)
    ]
    return {"$": "dict", "v": pairs}


def _encode_tensor(value: torch.Tensor, buffers: Buffers) -> Node:
    name = DTYPE_NAMES.get(value.dtype)
    if name is None or value.layout != torch.strided:
        raise WireError(f"a tensor of dtype {value.dtype}, layout {value.layout} cannot cross")
    if value.nbytes > MAX_BYTES:  # before it is copied
        raise WireError(f"a tensor of more than {MAX_BYTES >> 20} MiB cannot cross")
    buffers.append(_as_array(value).tobytes())  # in C order
    return {
        "$": "tensor",
        "d": name,
        "s": list(value.shape),
        "st": list(value.stride()),
        "g": bool(value.requires_grad),
    }


def decode(
    node: Node,
    buffers: Sequence[bytes | bytearray],
    resolve: Resolve | None = None,
    *,
    strides: bool = False,
) -> Any:
    """Turn a JSON node and its buffers back into a value.

    Args:
        node: as :func:`encode` made it, or whatever a hostile sender made.
        buffers: consumed from the front, in the order of encoding.
        resolve: turns an ``object`` or ``callback`` node into what it stands for.
        strides: rebuild the memory layout of tensors; only for a sender that is trusted.
    """
    decoder = _Decoder(list(reversed(buffers)), resolve, strides)
    try:
        value = decoder.value(node, 0)
    except WireError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RuntimeError) as error:
        raise WireError(f"malformed value: {type(error).__name__}") from None
    if decoder.rest:
        raise WireError(f"{len(decoder.rest)} buffers that no value uses")
    return value


class _Decoder:
    """Decodes one message: what is left of its buffers, the first one last."""

    __slots__ = ("elements", "resolve", "rest", "strides")

    def __init__(self, rest: list[Any], resolve: Resolve | None, strides: bool) -> None:
        self.rest, self.resolve, self.strides = rest, resolve, strides
        self.elements = 0

    def shape(self, value: object) -> list[int]:
        """The shape of one more tensor; what a test computes with it grows with each of its axes.

        A tensor without a byte may claim a million columns.
        """
        found = _shape(value)
        self.elements += math.prod(max(1, size) for size in found)
        if self.elements > MAX_ELEMENTS and not self.strides:
            raise WireError(f"tensors of more than {MAX_ELEMENTS:,} elements in one answer")
        return found

    def value(self, node: Node, depth: int) -> Any:
        kind = type(node)
        if kind in _READ:
            return node
        if depth > MAX_DEPTH:
            raise WireError(f"value nested deeper than {MAX_DEPTH} levels")
        if kind is list:
            return self.items(node, depth)
        if kind is not dict:
            raise WireError("malformed value")
        match node["$"]:
            case "tensor":
                return _decode_tensor(node, self.shape(node["s"]), self.rest.pop(), self.strides)
            case "map":
                return {k: self.value(v, depth + 1) for k, v in dict.items(node["v"])}
            case "tuple":
                return tuple(self.items(node["v"], depth))
            case "array":
                return _decode_array(node, self.shape(node["s"]), self.rest.pop())
            case "dict":
                pairs = self.items(node["v"], depth)
                if any(type(pair) is not list or len(pair) != 2 for pair in pairs):
                    raise WireError("malformed dict")
                return dict(zip(_keys(k for k, _ in pairs), (v for _, v in pairs), strict=True))
            case "set":
                return set(_keys(self.items(node["v"], depth)))
            case "bytes":
                return bytes(self.rest.pop())
            case "dtype":
                return TORCH_DTYPES[node["v"]]
            case "object" | "callback" if self.resolve is not None:
                return self.resolve(node)
        raise WireError(f"unknown kind {str(node['$'])[:40]!r}")

    def items(self, nodes: object, depth: int) -> list[Any]:
        if type(nodes) is not list:
            raise WireError("malformed container")
        return [self.value(x, depth + 1) for x in nodes]


def _keys(values: Iterable[Any]) -> list[Any]:
    """What may be keys of a dict or members of a set: plain kinds, which code of ours hashes.

    The hash of a number or a tuple can be chosen, and one that shares the hash of a thousand others
    is compared with all of them.
    """
    keys = list(values)
    for key in keys:
        if type(key) not in _KEYS:
            raise WireError(f"a {type(key).__name__} cannot be a key")
    if len(keys) > MAX_ALIKE and max(Counter(map(hash, keys)).values()) > MAX_ALIKE:
        raise WireError(f"more than {MAX_ALIKE} keys that share a hash")
    return keys


def _shape(value: object, most: int = MAX_DIMS) -> list[int]:
    if type(value) is not list or len(value) > most:
        raise WireError("malformed shape")
    for x in value:
        if type(x) is not int or not 0 <= x <= MAX_BYTES:
            raise WireError("malformed shape")
    return value


def _check_bytes(data: bytes | bytearray, shape: list[int], dtype: str, itemsize: int) -> None:
    if math.prod(shape) * itemsize != len(data):
        raise WireError(f"shape {shape} of {dtype} with {len(data)} bytes")
    if dtype.endswith("bool") and data and np.frombuffer(data, np.uint8).max() > 1:
        raise WireError("a truth value is another byte than 0 and 1")


def _decode_tensor(
    node: dict[str, Any], shape: list[int], data: bytes | bytearray, strides: bool
) -> torch.Tensor:
    dtype = TORCH_DTYPES[node["d"]]
    _check_bytes(data, shape, node["d"], dtype.itemsize)
    own = data if type(data) is bytearray else bytearray(data)
    flat = torch.frombuffer(own, dtype=dtype) if own else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    if strides and data and list(tensor.stride()) != node["st"]:
        tensor = _with_strides(tensor, node["st"])
    if node["g"] is True and (dtype.is_floating_point or dtype.is_complex):
        tensor.requires_grad_()
    return tensor


def _with_strides(tensor: torch.Tensor, strides: list[int]) -> torch.Tensor:
    """The same values in another memory layout; an axis of stride 0 is expanded."""
    kept = [slice(None) if stride else slice(0, 1) for stride in strides]
    narrow = tensor[tuple(kept)]
    laid = torch.empty_strided(narrow.shape, strides, dtype=tensor.dtype)
    laid.as_strided(laid.shape, laid.stride()).copy_(narrow)
    return laid.expand(tensor.shape)


def _decode_array(node: dict[str, Any], shape: list[int], data: bytes | bytearray) -> Any:
    if node["d"] not in NUMPY_DTYPES:
        raise WireError("unknown array dtype")
    dtype = np.dtype(node["d"])
    _check_bytes(data, shape, dtype.name, dtype.itemsize)
    array = np.frombuffer(data, dtype=dtype).reshape(shape).copy()
    return array[()] if node.get("scalar") is True and not shape else array


_TO_JSON = json.JSONEncoder(check_circular=False, separators=(",", ":"))  # NaN as Python writes it


def pack(message: object, hold: Hold | None = None, *, items: int | None = None) -> bytes:
    """The frame of one message, of at most so many ``items`` where the other side counts them."""
    buffers: Buffers = []
    node = encode(message, buffers, hold)  # a tree: nothing in it contains itself
    header = _TO_JSON.encode([list(map(len, buffers)), node]).encode()
    total = sum(map(len, buffers))
    if items is not None and _more_than(items, header):
        raise WireError(f"message too large: more than {items} items")
    if len(header) > MAX_HEADER or len(buffers) > MAX_BUFFERS:
        raise WireError("message too large: more items than the wire allows")
    if total > MAX_BYTES:
        raise WireError(f"message too large: more than {MAX_BYTES >> 20} MiB")
    return b"".join((HEAD.pack(MAGIC, len(header), total), header, *buffers))


def _more_than(items: int, header: bytes | bytearray) -> bool:
    """Whether decoding would make more objects than that."""
    return len(header) > items and sum(map(header.count, (b",", b"[", b"{"))) > items


def send(connection: socket.socket, message: object, hold: Hold | None = None) -> None:
    """Send one message out of the jail; raises before the first byte if it cannot be sent whole."""
    connection.sendall(pack(message, hold, items=MAX_ITEMS))


def receive(
    connection: socket.socket,
    resolve: Resolve | None = None,
    *,
    strides: bool = False,
    wait: Callable[[], None] = lambda: None,
    count: Callable[[int], None] = lambda size: None,
) -> Any:
    """Receive one message.

    Args:
        connection: a stream socket.
        resolve: see :func:`decode`.
        strides: the sender is trusted: see :func:`decode`; it may send any number of items.
        wait: called before each read; sets the time-out that is left.
        count: called with the size of the message before it is taken.
    """

    def take(size: int) -> bytearray:
        taken = bytearray(size)
        rest = memoryview(taken)
        while rest:
            wait()
            if not (got := connection.recv_into(rest)):
                raise EOFError("the other side has closed the connection")
            rest = rest[got:]
        return taken

    magic, length, total = HEAD.unpack(take(HEAD.size))
    if magic != MAGIC or length > MAX_HEADER:
        raise WireError("not a frame of this protocol")
    if total > MAX_BYTES:
        raise WireError(f"message too large: more than {MAX_BYTES >> 20} MiB")
    count(length + total)
    header = take(length)
    if not strides and _more_than(MAX_ITEMS, header):
        raise WireError(f"header with more than {MAX_ITEMS} items")
    try:
        lengths, node = json.loads(header.decode())
    except (TypeError, ValueError, RecursionError):
        raise WireError("header is not JSON, or no pair") from None
    if sum(sizes := _shape(lengths, MAX_BUFFERS)) != total:
        raise WireError("buffers of another length than the header says")
    # bytearrays of their own, which a tensor takes as its memory: no second copy of any
    return decode(node, [take(size) for size in sizes], resolve, strides=strides)


def digest(value: Any) -> int:
    """A number that tells whether elements were changed; a copy would count as memory."""
    return zlib.crc32(np.ascontiguousarray(_as_array(value)).data)


def _as_array(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    try:
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        return (plain.view(torch.int16) if plain.dtype == torch.bfloat16 else plain).numpy()
    except (RuntimeError, TypeError) as error:
        raise WireError(f"a tensor without elements of its own cannot cross: {error}") from None


def floating(value: Any) -> list[Any]:
    """The floating tensors among :func:`arrays`."""
    found = arrays(value)
    return [x for x in found if isinstance(x, torch.Tensor) and x.is_floating_point()]


def arrays(value: Any) -> list[Any]:
    """Tensors and arrays inside plain containers, in the order of the wire."""
    return [x for x in leaves(value) if isinstance(x, torch.Tensor | np.ndarray)]


def noted(value: Any) -> list[str]:
    """The plain numbers and texts inside plain containers, and how many of anything else."""
    plain = (bool, int, float, str)
    return [repr(x) if type(x) in plain else "" for x in leaves(value)]
