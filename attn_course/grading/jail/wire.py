"""The wire between the trusted grader and the jail: a JSON header and raw buffers, never pickle.

Frame: ``b"ACW1"``, header length (uint32), number of buffers (uint32), one uint64 length for each
buffer, the header as UTF-8 JSON, the buffers. A value is encoded as plain JSON where JSON is exact,
otherwise as an object with the key ``"$"`` that names its kind. Decoding runs no code of the
sender: every kind is known, every size is checked against a cap before memory is taken.
"""

import contextlib
import json
import math
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

MAGIC: Final = b"ACW1"
MAX_HEADER: Final = 16 << 20
MAX_BUFFERS: Final = 4096
MAX_BYTES: Final = 256 << 20
MAX_DEPTH: Final = 40
MAX_DIMS: Final = 32
MAX_INT_DIGITS: Final = 4096
MAX_ITEMS: Final = 1_000_000
MAX_KEYS: Final = 5000
SAFE_INT: Final = 2**53
WHOLE: Final = 1 << 16  # a message up to this size is sent, and read, at once

TORCH_DTYPES: Final[dict[str, torch.dtype]] = {
    str(dtype): dtype
    for dtype in (
        *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
        *(torch.complex64, torch.complex128),
    )
}
NUMPY_DTYPES: Final = frozenset(
    np.dtype(name).name
    for name in (
        *("float16", "float32", "float64", "complex64", "complex128", "bool"),
        *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    )
)

Node = Any  # a JSON value
Buffers = list[bytes]
Hold = Callable[[object], dict[str, Any]]
Resolve = Callable[[dict[str, Any]], object]


class WireError(ValueError):
    """The bytes are not a frame of this protocol, or a value cannot cross."""


def encode(value: object, buffers: Buffers, hold: Hold | None = None, depth: int = 0) -> Node:
    """Turn ``value`` into a JSON node; tensors and arrays go to ``buffers``.

    Args:
        value: what to send.
        buffers: receives the raw bytes.
        hold: called with an object of no plain kind; returns the node that stands for it.
        depth: how deep in containers ``value`` lies.

    Raises:
        WireError: the value is nested too deep, or is of no known kind and ``hold`` is None.
    """
    if depth > MAX_DEPTH:
        raise WireError(f"value nested deeper than {MAX_DEPTH} levels")
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return _encode_int(value)  # type: ignore[arg-type]
    if kind is float:
        return value if math.isfinite(value) else {"$": "float", "v": _hex(value)}  # type: ignore[arg-type]
    if kind is complex:
        return {"$": "complex", "v": [_hex(value.real), _hex(value.imag)]}  # type: ignore[attr-defined]
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, buffers)
    if isinstance(value, np.ndarray | np.generic) and str(value.dtype) in NUMPY_DTYPES:
        array = np.ascontiguousarray(value)
        buffers.append(array.tobytes())
        scalar = isinstance(value, np.generic)
        return {"$": "array", "d": str(array.dtype), "s": list(np.shape(value)), "scalar": scalar}
    if isinstance(value, torch.Size):
        return {"$": "size", "v": [int(x) for x in value]}
    if isinstance(value, torch.dtype):
        return {"$": "dtype", "v": str(value)}
    if kind is bytes:
        buffers.append(value)  # type: ignore[arg-type]
        return {"$": "bytes"}
    if kind is list:
        return [encode(x, buffers, hold, depth + 1) for x in value]  # type: ignore[attr-defined]
    if isinstance(value, tuple):
        items = [encode(x, buffers, hold, depth + 1) for x in tuple.__iter__(value)]
        return {"$": "tuple", "v": items}
    if isinstance(value, dict):
        if all(type(k) is str for k in dict.keys(value)):
            plain = {k: encode(v, buffers, hold, depth + 1) for k, v in dict.items(value)}
            return {"$": "map", "v": plain}
        pairs = [
            [encode(k, buffers, hold, depth + 1), encode(v, buffers, hold, depth + 1)]
            for k, v in dict.items(value)
        ]
        return {"$": "dict", "v": pairs}
    if kind is set or kind is frozenset:
        items = [encode(x, buffers, hold, depth + 1) for x in value]  # type: ignore[attr-defined]
        return {"$": "set", "v": items}
    if kind is slice:
        parts = (value.start, value.stop, value.step)  # type: ignore[attr-defined]
        return {"$": "slice", "v": [encode(x, buffers, hold, depth + 1) for x in parts]}
    if value is Ellipsis:
        return {"$": "ellipsis"}
    if hold is not None:
        return hold(value)
    raise WireError(f"a value of type {kind.__name__} cannot cross the wire")


def _hex(value: float) -> str:
    """The eight bytes of a float: exact for the payload of a NaN as well."""
    return struct.pack("<d", value).hex()


def _unhex(text: object) -> float:
    if type(text) is not str or len(text) != 16:
        raise WireError("malformed float")
    return float(struct.unpack("<d", bytes.fromhex(text))[0])


def _encode_int(value: int) -> Node:
    if abs(value) < SAFE_INT:
        return value
    text = hex(value)
    if len(text) > MAX_INT_DIGITS:
        raise WireError("integer too large to cross the wire")
    return {"$": "int", "v": text}


def _encode_tensor(value: torch.Tensor, buffers: Buffers) -> Node:
    if str(value.dtype) not in TORCH_DTYPES or value.layout != torch.strided:
        raise WireError(f"a tensor of dtype {value.dtype}, layout {value.layout} cannot cross")
    if value.numel() * value.element_size() > MAX_BYTES:  # before it is copied
        raise WireError(f"a tensor of more than {MAX_BYTES >> 20} MiB cannot cross")
    plain = value.detach().cpu()
    # clone, not contiguous(): that keeps the odd stride of a one-element slice, and view refuses it
    data = plain.clone(memory_format=torch.contiguous_format).resolve_conj().resolve_neg()
    buffers.append(data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b"")
    return {
        "$": "tensor",
        "d": str(value.dtype),
        "s": list(value.shape),
        "st": list(value.stride()),
        "g": bool(value.requires_grad),
    }


def decode(
    node: Node, buffers: Buffers, resolve: Resolve | None = None, *, strides: bool = False
) -> Any:
    """Turn a JSON node and its buffers back into a value.

    Args:
        node: as :func:`encode` made it, or whatever a hostile sender made.
        buffers: consumed from the front, in the order of encoding.
        resolve: turns an ``object`` or ``callback`` node into what it stands for.
        strides: rebuild the memory layout of tensors; only for a sender that is trusted.

    Raises:
        WireError: the node or a buffer is not what the protocol allows.
    """
    rest = list(reversed(buffers))
    try:
        value = _decode(node, rest, resolve, strides, 0)
    except WireError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, RuntimeError) as error:
        raise WireError(f"malformed value: {type(error).__name__}") from None
    if rest:
        raise WireError(f"{len(rest)} buffers that no value uses")
    return value


def _decode(node: Node, rest: Buffers, resolve: Resolve | None, strides: bool, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise WireError(f"value nested deeper than {MAX_DEPTH} levels")
    if node is None or type(node) in (bool, str, int, float):
        return node
    if type(node) is list:
        return [_decode(x, rest, resolve, strides, depth + 1) for x in node]
    if type(node) is not dict:
        raise WireError("malformed value")

    def items(key: str = "v") -> list[Any]:
        if type(node[key]) is not list:
            raise WireError("malformed container")
        return [_decode(x, rest, resolve, strides, depth + 1) for x in node[key]]

    match node["$"]:
        case "tensor":
            return _decode_tensor(node, rest.pop(), strides)
        case "array":
            return _decode_array(node, rest.pop())
        case "tuple":
            return tuple(items())
        case "dict":
            pairs = items()
            if any(type(pair) is not list or len(pair) != 2 for pair in pairs):
                raise WireError("malformed dict")
            _check_keys([k for k, _ in pairs])
            return {_key(k): v for k, v in pairs}
        case "map":
            if type(node["v"]) is not dict:
                raise WireError("malformed map")
            return {k: _decode(v, rest, resolve, strides, depth + 1) for k, v in node["v"].items()}
        case "set":
            _check_keys(members := items())
            return {_key(x) for x in members}
        case "float":
            return _unhex(node["v"])
        case "complex":
            real, imag = node["v"]
            return complex(_unhex(real), _unhex(imag))
        case "int":
            if type(node["v"]) is not str or len(node["v"]) > MAX_INT_DIGITS:
                raise WireError("malformed integer")
            return int(node["v"], 16)
        case "bytes":
            return rest.pop()
        case "size":
            return torch.Size(_shape(node["v"]))
        case "dtype":
            return TORCH_DTYPES[node["v"]]
        case "slice":
            return slice(*items())
        case "ellipsis":
            return Ellipsis
        case "object" | "callback" if resolve is not None:
            return resolve(node)
    raise WireError(f"unknown kind {str(node['$'])[:40]!r}")


def _check_keys(keys: list[Any]) -> None:
    """Numbers and tuples can be chosen to share one hash; texts cannot, so they may be many."""
    if sum(type(key) not in (str, bytes) for key in keys) > MAX_KEYS:
        raise WireError(f"more than {MAX_KEYS} keys that are no text")


def _key(value: object) -> Any:
    """A dict key or set member must be hashable by code of ours: plain kinds only."""
    if value is None or type(value) in (bool, int, float, str, bytes, tuple, torch.dtype):
        return value
    raise WireError(f"a {type(value).__name__} cannot be a key")


def _shape(value: object) -> list[int]:
    if type(value) is not list or len(value) > MAX_DIMS:
        raise WireError("malformed shape")
    if any(type(x) is not int or not 0 <= x <= MAX_BYTES for x in value):
        raise WireError("malformed shape")
    return value


def _decode_tensor(node: dict[str, Any], data: bytes, strides: bool) -> torch.Tensor:
    dtype, shape = TORCH_DTYPES[node["d"]], _shape(node["s"])
    if math.prod(shape) * dtype.itemsize != len(data):
        raise WireError(f"tensor of shape {shape} and {dtype} with {len(data)} bytes")
    if dtype == torch.bool and data.translate(None, b"\0\1"):
        raise WireError("a boolean tensor holds other bytes than 0 and 1")
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    tensor = flat.reshape(shape)
    if strides and tensor.numel() and list(tensor.stride()) != node["st"]:
        tensor = _with_strides(tensor, node["st"])
    wants_grad = node["g"] is True and (dtype.is_floating_point or dtype.is_complex)
    return tensor.requires_grad_(wants_grad)


def _with_strides(tensor: torch.Tensor, strides: list[int]) -> torch.Tensor:
    """The same values in another memory layout; an axis of stride 0 is expanded."""
    kept = [slice(None) if stride else slice(0, 1) for stride in strides]
    narrow = tensor[tuple(kept)]
    laid = torch.empty_strided(narrow.shape, strides, dtype=tensor.dtype)
    laid.as_strided(laid.shape, laid.stride()).copy_(narrow)
    return laid.expand(tensor.shape)


def _decode_array(node: dict[str, Any], data: bytes) -> Any:
    if node["d"] not in NUMPY_DTYPES:
        raise WireError("unknown array dtype")
    dtype, shape = np.dtype(node["d"]), _shape(node["s"])
    if math.prod(shape) * dtype.itemsize != len(data):
        raise WireError(f"array of shape {shape} and {dtype} with {len(data)} bytes")
    array = np.frombuffer(data, dtype=dtype).reshape(shape).copy()
    return array[()] if node.get("scalar") is True and not shape else array


def pack(message: object, hold: Hold | None = None) -> Buffers:
    """The parts of the frame of one message.

    Raises:
        WireError: it cannot be sent whole.
    """
    buffers: Buffers = []
    node = encode(message, buffers, hold)
    header = _to_json(node).encode()
    if len(header) > MAX_HEADER or len(buffers) > MAX_BUFFERS:
        raise WireError("message too large: more items than the wire allows")
    if sum(map(len, buffers)) > MAX_BYTES:
        raise WireError(f"message too large: more than {MAX_BYTES >> 20} MiB")
    lengths = struct.pack(f"<{len(buffers)}Q", *map(len, buffers))
    head = MAGIC + struct.pack("<II", len(header), len(buffers)) + lengths + header
    return [head, *buffers]


def send_frame(
    connection: socket.socket, frame: Buffers, wait: Callable[[], None] = lambda: None
) -> None:
    """Send what :func:`pack` made; ``wait`` sets the time-out that is left for each part."""
    if sum(map(len, frame)) <= WHOLE:  # each part would wake the other side once more
        frame = [b"".join(frame)]
    for part in frame:
        wait()
        connection.sendall(part)


def send(connection: socket.socket, message: object, hold: Hold | None = None) -> None:
    """Send one message; raises before the first byte if it cannot be sent whole."""
    send_frame(connection, pack(message, hold))


def receive(
    connection: socket.socket,
    resolve: Resolve | None = None,
    *,
    strides: bool = False,
    wait: Callable[[], None] = lambda: None,
    count: Callable[[int], None] = lambda size: None,
    ahead: bytearray | None = None,
) -> Any:
    """Receive one message.

    Args:
        connection: a stream socket.
        resolve: see :func:`decode`.
        strides: see :func:`decode`.
        wait: called before each read; sets the time-out that is left.
        count: called with the size of the message before it is taken.
        ahead: keeps what was read beyond the message, for the next one; None reads none.

    Raises:
        EOFError: the peer has closed.
        WireError: the frame breaks the protocol.
    """
    head = _read(connection, 12, wait, ahead)
    if head[:4] == b"FAIL":  # the jail's own code, before any of a submission
        said = head[4:] + bytes(ahead or b"")
        with contextlib.suppress(OSError):
            said += connection.recv(1000)
        raise WireError(f"it could not begin: {said.decode(errors='replace')}")
    header_length, parts = struct.unpack("<II", head[4:])
    if head[:4] != MAGIC or header_length > MAX_HEADER or parts > MAX_BUFFERS:
        raise WireError("not a frame of this protocol")
    lengths = struct.unpack(f"<{parts}Q", _read(connection, 8 * parts, wait, ahead))
    count(header_length + sum(lengths))
    if sum(lengths) > MAX_BYTES:
        raise WireError(f"message too large: more than {MAX_BYTES >> 20} MiB")
    header = _read(connection, header_length, wait, ahead)
    if sum(map(header.count, (b",", b"[", b"{"))) > MAX_ITEMS:  # each becomes an object of ours
        raise WireError(f"header with more than {MAX_ITEMS} items")
    buffers = [_read(connection, length, wait, ahead) for length in lengths]
    try:
        node = _from_json(str(header, "utf-8"))
    except (ValueError, RecursionError):
        raise WireError("header is not JSON") from None
    return decode(node, buffers, resolve, strides=strides)


def _no_constant(name: str) -> None:
    raise ValueError(name)


# Made once: json.dumps and json.loads make new ones at every call.
_to_json: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_from_json: Final = json.JSONDecoder(parse_constant=_no_constant).decode


def _read(
    connection: socket.socket, count: int, wait: Callable[[], None], ahead: bytearray | None
) -> bytes:
    out = bytearray() if ahead is None else ahead
    least = 0 if ahead is None else WHOLE
    while len(out) < count:
        wait()
        chunk = connection.recv(min(1 << 20, max(least, count - len(out))))
        if not chunk:
            raise EOFError("the other side has closed the connection")
        out += chunk
    taken = bytes(out[:count])
    del out[:count]
    return taken


def raw(value: Any) -> bytes:
    """The elements of a tensor or an array, to see whether they were changed."""
    if isinstance(value, torch.Tensor):
        # clone, not contiguous(): that keeps the odd stride of a one-element slice
        flat = value.detach().clone(memory_format=torch.contiguous_format).reshape(-1)
        return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    return bytes(value.tobytes())


def floating(value: Any) -> list[Any]:
    """The floating tensors among :func:`arrays`."""
    found = arrays(value)
    return [x for x in found if isinstance(x, torch.Tensor) and x.is_floating_point()]


def arrays(value: Any) -> list[Any]:
    """Tensors and arrays inside plain containers, in the order of the wire."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return [value]
    if type(value) in (list, tuple):
        return [x for item in value for x in arrays(item)]
    if type(value) is dict:
        return [x for item in value.values() for x in arrays(item)]
    return []
