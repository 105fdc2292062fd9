"""Compare two values and say in plain words how they differ, without printing the right one."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attn_course.probes.values import short

# torch.testing's defaults, spelled out because naming a misconception needs them slightly wider.
# Elements of one row share their sums, and one that is small because large terms cancel has the
# rounding of those: the absolute tolerance grows with the largest element of the row.
_TOLERANCE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}


_FEW = 128


@dataclass(frozen=True)
class Difference:
    """How a value differs: ``kind`` for programs, ``text`` for people."""

    kind: str
    text: str


def difference(
    got: object, expected: object, *, slack: float | int = 1.0, brief: bool = False
) -> Difference | None:
    """Return how ``got`` differs from ``expected``, or None when it does not.

    Types are compared strictly and never through ``==`` of the learner's own objects.
    Lists and tuples stand for each other; a number may be a Python, NumPy or 0-d tensor number
    where a plain number is expected; a tensor must be a tensor.

    Args:
        got: The value to judge.
        expected: The value to judge it by.
        slack: Factor on the tolerances of ``torch.testing``.
        brief: Say only that numbers differ and not how: counting and finding them costs many times
            what the comparison does.
    """
    if isinstance(expected, Tensor):
        return _tensor_difference(got, expected, slack, brief)
    if isinstance(expected, np.ndarray):
        return _array_difference(got, expected, slack, brief)
    if isinstance(expected, list | tuple):
        return _sequence_difference(got, expected, slack, brief)
    if type(expected) is dict:
        return _dict_difference(got, expected, slack, brief)
    if type(expected) in (float, int) or isinstance(expected, np.integer | np.floating):
        return _number_difference(got, expected, slack)
    if expected is None or type(expected) in (bool, str, bytes):
        if type(got) is not type(expected):
            return Difference("type", f"expected {kind_of(expected)}, got {kind_of(got)}")
        return (
            None
            if got == expected
            else Difference("value", f"expected {short(expected)}, got {short(got)}")
        )
    if type(got) is type(expected) and got is expected:
        return None
    return Difference("type", f"expected {kind_of(expected)}, got {kind_of(got)}")


def kind_of(value: object) -> str:
    """Name the type of a value as one would say it: ``a torch.Tensor``, ``None``, ``a list``."""
    if value is None:
        return "None"
    kind = type(value)
    if kind is Tensor:
        return "a torch.Tensor"
    if kind is torch.nn.Parameter:
        return "a torch.nn.Parameter"
    if kind is np.ndarray:
        return "a NumPy array"
    name = kind.__name__
    if issubclass(kind, np.generic):
        return f"a NumPy {name}"
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return f"{article} {name}"


def _plain(got: object, expected: Tensor) -> Tensor | Difference:
    if type(got) not in (Tensor, torch.nn.Parameter):
        hint = ""
        if got is None:
            hint = " (is a return missing?)"
        elif type(got) in (float, int, bool) or isinstance(got, np.generic):
            hint = " (use tensor operations only: .item() and float() leave torch)"
        elif isinstance(got, np.ndarray):
            hint = " (use torch operations only)"
        return Difference("type", f"expected a torch.Tensor, got {kind_of(got)}{hint}")
    tensor = torch.Tensor.detach(got)  # type: ignore[arg-type]
    if tensor.layout != torch.strided:
        return Difference("type", f"expected a dense tensor, got a {tensor.layout} one")
    if tensor.device != expected.device:
        return Difference(
            "type", f"expected a tensor on {expected.device}, got one on {tensor.device}"
        )
    return tensor.resolve_conj().resolve_neg()


def _tensor_difference(
    raw: object, expected: Tensor, slack: float | int, brief: bool
) -> Difference | None:
    got = _plain(raw, expected)
    if isinstance(got, Difference):
        return got
    expected = expected.detach()
    if got.shape != expected.shape:
        return Difference(
            "shape", f"expected shape {tuple(expected.shape)}, got {tuple(got.shape)}"
        )
    if brief and got.dtype != expected.dtype:
        return Difference("dtype", "")
    values = _value_difference(got, expected, slack, brief)
    if got.dtype != expected.dtype:
        right = "" if values is not None else " (the values themselves are right)"
        return Difference("dtype", f"expected dtype {expected.dtype}, got {got.dtype}{right}")
    return values


def _value_difference(
    got: Tensor, expected: Tensor, slack: float | int, brief: bool = False
) -> Difference | None:
    total = got.numel()
    floating = got.is_floating_point() or got.is_complex()
    if not floating or not (expected.is_floating_point() or expected.is_complex()):
        if got.dtype == expected.dtype and torch.equal(got, expected):
            return None
        wrong = got != expected
        if not bool(wrong.any()):
            return None
        where = _first(wrong)
        if expected.dtype == torch.bool and got.dtype == torch.bool and not brief:
            where += f", which should be {not bool(got[wrong][0])}"
        return Difference("value", f"{_count(wrong, total)} differ{_s(wrong)}{where}")
    coarse = got.dtype if _rank(got.dtype) <= _rank(expected.dtype) else expected.dtype
    rtol, atol = _TOLERANCE[coarse]
    alike = _alike(got, expected, rtol, atol, slack)
    if alike or (alike is False and brief):
        return None if alike else Difference("value", "")
    wide = torch.complex128 if got.is_complex() or expected.is_complex() else torch.float64
    a, b = got.to(wide), expected.to(wide)
    if torch.allclose(a, b, rtol=slack * rtol, atol=slack * atol):  # most are: ask nothing more
        return None
    nan = a.isnan() & ~b.isnan()
    if bool(nan.any()):
        return Difference("nan", f"{_count(nan, total)} {_be(nan)} NaN{_first(nan)}")
    infinite = a.isinf() & ~b.isinf() & ~b.isnan()
    if bool(infinite.any()):
        return Difference(
            "inf",
            f"{_count(infinite, total)} {_be(infinite)} infinite and should not be"
            f"{_first(infinite)}",
        )
    hidden = (b.isnan() & ~a.isnan()) | (b.isinf() & (a != b))
    if bool(hidden.any()):
        return Difference("value", f"{_count(hidden, total)} should not be finite{_first(hidden)}")
    same = (a == b) | (a.isnan() & b.isnan())
    gap = torch.where(same, torch.zeros_like((a - b).abs()), (a - b).abs())
    size = torch.where(b.isfinite(), b.abs(), 0.0)
    bound = slack * (atol * _row_scale(size) + rtol * size)
    wrong = gap > bound
    if not bool(wrong.any()):
        return None
    # Report the element furthest beyond its own tolerance: that one is certainly wrong.
    at = int(torch.where(wrong, gap, torch.full_like(gap, -1.0)).argmax())
    index = tuple(int(i) for i in np.unravel_index(at, tuple(got.shape))) if got.dim() else ()
    largest = float(gap.reshape(-1)[at])
    place = f" at index {index}" if index else ""
    if total == 1:
        return Difference("value", f"the value is off by {largest:.3g}{place}")
    return Difference(
        "value",
        f"{_count(wrong, total)} differ{_s(wrong)}, the largest difference {largest:.3g}{place}",
    )


def _row_scale(size: Tensor) -> Tensor:
    """The largest element of each row, at least 1."""
    return size.amax(-1, keepdim=True).clamp(min=1.0) if size.ndim else size.clamp(min=1.0)


def _alike(
    got: Tensor, expected: Tensor, rtol: float, atol: float, slack: float | int
) -> bool | None:
    """Whether all of a few real numbers are within the tolerances; None where it cannot tell.

    The sums of ``_value_difference`` in the same order, and so its answers. On the few numbers of
    a test Python is done before torch has begun.
    """
    if got.is_complex() or expected.is_complex() or got.numel() > _FEW:
        return None
    answer: bool | None = True
    rows, width = expected.reshape(-1).tolist(), expected.shape[-1] if expected.ndim else 1
    scale = 1.0
    for number, (a, b) in enumerate(zip(got.reshape(-1).tolist(), rows, strict=True)):
        if number % width == 0:
            row = rows[number : number + width]
            scale = max([1.0, *(size for size in map(abs, row) if size < math.inf)])
        gap, size = abs(a - b), abs(b)
        if a == b or gap <= slack * (rtol * size + atol) < math.inf:
            continue
        if math.inf > gap > slack * (atol * scale + rtol * size):
            return False
        answer = None  # infinite, NaN, or between two ways of rounding the bound
    return answer


def _rank(dtype: torch.dtype) -> int:
    order = (torch.bfloat16, torch.float16, torch.float32, torch.complex64)
    return order.index(dtype) if dtype in order else len(order)


def _count(mask: Tensor, total: int) -> str:
    number = int(mask.sum())
    return "the value" if total == 1 else f"{number} of {total} elements"


def _be(mask: Tensor) -> str:
    return "is" if int(mask.sum()) == 1 else "are"


def _s(mask: Tensor) -> str:
    return "s" if int(mask.sum()) == 1 else ""


def _first(mask: Tensor) -> str:
    if mask.numel() == 1:
        return ""
    index = tuple(int(i) for i in mask.nonzero()[0])
    return f", the first at index {index}"


def _array_difference(
    got: object, expected: Any, slack: float | int, brief: bool
) -> Difference | None:
    if type(got) is not np.ndarray:
        return Difference("type", f"expected a NumPy array, got {kind_of(got)}")
    if got.dtype == object or got.dtype.kind not in "biufc":
        return Difference("dtype", f"expected dtype {expected.dtype}, got {got.dtype}")
    if got.dtype != expected.dtype:
        return Difference("dtype", f"expected dtype {expected.dtype}, got {got.dtype}")
    return _tensor_difference(
        torch.from_numpy(np.array(got)), torch.from_numpy(np.array(expected)), slack, brief
    )


def _number_difference(got: object, expected: Any, slack: float | int) -> Difference | None:
    if type(got) is Tensor and got.dim() == 0:
        got = got.detach().item()
    whole = isinstance(expected, int | np.integer)
    numpys = issubclass(type(got), np.integer if whole else np.integer | np.floating)
    plain = type(got) is int or (type(got) is float and not whole)
    if not plain and not (numpys and type(got).__module__ == "numpy"):
        due = "an integer" if whole else "a number"
        return Difference("type", f"expected {due}, got {kind_of(got)}")
    number: Any = got
    if whole:
        if int(number) == int(expected):
            return None
        return Difference("value", f"the value is off by {abs(int(number) - int(expected))}")
    coarse = torch.float32 if isinstance(got, np.float32) else torch.float64
    one = torch.tensor(float(number), dtype=coarse)
    return _value_difference(one, torch.tensor(float(expected), dtype=torch.float64), slack)


def _sequence_difference(
    got: object, expected: Any, slack: float | int, brief: bool
) -> Difference | None:
    name = "tuple" if isinstance(expected, tuple) else "list"
    # By type(), not isinstance(): an object may lie about its __class__.
    if not issubclass(type(got), list | tuple):
        return Difference("type", f"expected a {name}, got {kind_of(got)}")
    base: Any = tuple if issubclass(type(got), tuple) else list
    items = list(base.__iter__(got))
    if len(items) != len(expected):
        return Difference("length", f"expected a {name} of {len(expected)}, got {len(items)}")
    for i, (one, other) in enumerate(zip(items, expected, strict=True)):
        found = difference(one, other, slack=slack, brief=brief)
        if found is not None:
            return Difference(found.kind, f"item {i} of the {name}: {found.text}")
    return None


def _dict_difference(
    got: object, expected: Any, slack: float | int, brief: bool
) -> Difference | None:
    if type(got) is not dict:
        return Difference("type", f"expected a dict, got {kind_of(got)}")
    missing = [key for key in expected if key not in got]
    extra = [key for key in got if key not in expected]
    if missing or extra:
        gone, more = short(missing, limit=400), short(extra, limit=400)
        return Difference("keys", f"missing keys {gone}, unexpected keys {more}")
    for key, other in expected.items():
        found = difference(got[key], other, slack=slack, brief=brief)
        if found is not None:
            return Difference(found.kind, f"entry {key!r}: {found.text}")
    return None
