"""Copy values faithfully, look through nested ones, and put them in a line of text."""

import itertools
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor

_NESTED = frozenset({Tensor, list, tuple, dict})
_MOST_LEAVES = 10_000  # that are looked at to choose how a value is shown
_MOST_SHOWN = 1000  # numbers of a tensor that are written out inside another value


def transform(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Apply ``leaf`` to everything inside nested plain lists, tuples and dicts."""
    kind = type(value)
    if kind is tuple:
        return tuple([transform(item, leaf) for item in value])
    if kind is list:
        return [transform(item, leaf) for item in value]
    if kind is dict:
        return {key: transform(item, leaf) for key, item in value.items()}
    return leaf(value)


def leaves(value: Any) -> Iterator[Any]:
    """Walk through nested plain lists, tuples and dicts."""
    if type(value) in (list, tuple):
        for item in value:
            yield from leaves(item)
    elif type(value) is dict:
        for item in value.values():
            yield from leaves(item)
    else:
        yield value


def copy(value: Any) -> Any:
    """Copy tensors and arrays inside ``value``, with their strides and gradient flags."""
    return transform(value, _copy_leaf)


def detach(value: Any) -> Any:
    """Cut a result from its graph, of which nobody else holds a part: its lists are changed."""
    kind = type(value)
    if kind is Tensor:
        return value.detach() if value.requires_grad else value
    if kind is tuple:
        return tuple([detach(item) if type(item) in _NESTED else item for item in value])
    if kind is list or kind is dict:
        for place, item in enumerate(value) if kind is list else value.items():
            if type(item) in _NESTED:
                value[place] = detach(item)
    return value


def freeze(value: Any) -> Any:
    """Copy a result and cut it from its graph, so that nothing done later can change it."""
    return transform(value, _freeze_leaf)


def size(value: Any) -> int:
    """Count the numbers inside ``value``."""
    total = 0
    for leaf in leaves(value):
        if isinstance(leaf, Tensor):
            total += leaf.numel()
        elif isinstance(leaf, np.ndarray):
            total += leaf.size
        else:
            total += 1
    return total


def changed(before: Any, after: Any) -> bool:
    """Whether any tensor or array inside ``after`` differs from ``before`` (NaN equals NaN)."""
    for one, other in zip(leaves(before), leaves(after), strict=False):
        if isinstance(one, Tensor):
            if one.shape != other.shape or one.dtype != other.dtype:
                return True
            a, b = one.detach(), other.detach()
            if not torch.equal(a, b) and not bool(((a == b) | ((a != a) & (b != b))).all()):
                return True
        elif isinstance(one, np.ndarray) and not np.array_equal(
            one, other, equal_nan=one.dtype.kind in "fc"
        ):
            return True
    # A list or dict that grew or shrank.
    return sum(1 for _ in leaves(before)) != sum(1 for _ in leaves(after))


def describe(value: Any) -> str:
    """Say what a value is in a few words: ``a float32 tensor of shape (3, 5)``."""
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return f"{dtype} {tuple(value.shape)}"
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape}"
    if type(value) in (list, tuple):
        inner = ", ".join(describe(item) for item in value)
        return f"[{inner}]" if type(value) is list else f"({inner})"
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    return short(value)


def show(value: Any, *, limit: int = 24) -> str:
    """Write a value out when it is small, describe it when it is not."""
    if type(value) in (Tensor, torch.nn.Parameter):
        if value.numel() > limit or value.numel() == 0:
            return f"<{describe(value)}>"
        return " ".join(repr(value.detach()).split())
    if type(value) is np.ndarray:
        return f"<{describe(value)}>" if value.size > limit else " ".join(repr(value).split())
    first = itertools.islice(leaves(value), _MOST_LEAVES)
    if type(value) in (list, tuple) and any(isinstance(leaf, Tensor) for leaf in first):
        inner = ", ".join(show(item, limit=limit // max(1, len(value))) for item in value)
        return f"[{inner}]" if type(value) is list else f"({inner})"
    if type(value) in (FunctionType, BuiltinFunctionType):
        return str(value.__name__)
    return short(value)


def short(value: Any, *, limit: int = 120) -> str:
    """Return ``repr(value)`` on one line, cut at ``limit``; a broken ``repr`` does no harm."""
    text = " ".join("".join(_parts(value, limit)).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _parts(value: Any, limit: int) -> Iterator[str]:
    """The text of a value piece by piece, and no more of it than is shown."""
    kind, left = type(value), limit + 1
    if kind in (list, tuple, dict):
        yield "[" if kind is list else "(" if kind is tuple else "{"
        for number, item in enumerate(value.items() if kind is dict else value):
            inner = f"{short(item[0])}: {short(item[1], limit=left)}" if kind is dict else None
            text = ", " * (number > 0) + (inner or "".join(_parts(item, left)))
            yield text
            left -= len(" ".join(text.split()))
            if left <= 0:
                return
        yield "]" if kind is list else "}" if kind is dict else ",)" if len(value) == 1 else ")"
    elif kind in (Tensor, torch.nn.Parameter, np.ndarray) and size(value) > _MOST_SHOWN:
        yield f"<{describe(value)}>"
    elif kind is int and value.bit_length() > 4 * limit:
        yield f"<a whole number of {value.bit_length()} bits>"
    elif kind in (str, bytes):
        yield repr(value[:left])
    else:
        try:
            yield repr(value)
        except Exception:
            yield f"<{kind.__name__}>"


def _copy_leaf(value: Any) -> Any:
    if isinstance(value, Tensor):
        return _copy_tensor(value)
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    return value


def _copy_tensor(value: Tensor) -> Tensor:
    source = value.detach()
    plain = source.layout != torch.strided
    if plain or (source.nbytes == source.untyped_storage().nbytes() and source.is_contiguous()):
        copied = source.clone()
        return copied.requires_grad_() if value.requires_grad else copied
    # clone() would make a slice or an expanded view contiguous; the learner must meet it as it is.
    storage = source.untyped_storage().clone()
    copied = torch.empty(0, dtype=source.dtype).set_(
        storage, source.storage_offset(), source.size(), source.stride()
    )
    return copied.requires_grad_(value.requires_grad)


def _freeze_leaf(value: Any) -> Any:
    if type(value) in (Tensor, torch.nn.Parameter):
        return value.detach().clone()
    if type(value) is np.ndarray:
        return value.copy()
    return value
