"""Run small kernels in Triton's interpreter and write which program touched what, as JSON.

    TRITON_INTERPRET=1 python experiments/export_memory_trace.py

The ``memory_trace`` explorer replays the file. A second, on one CPU thread; no random numbers
reach the file.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_course.explorers import memory_trace
from attn_course.kernels.copy import copy_kernel
from attn_course.kernels.softmax import softmax_kernel
from attn_course.kernels.trace import traced


@no_type_check
@triton.jit
def row_top_kernel(x, top, rows, width, WIDTH: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    values = tl.load(x + row * width + column, mask=column < width, other=-float("inf"))
    tl.store(top + row, tl.max(values))


@no_type_check
@triton.jit
def exponential_kernel(x, top, parts, rows, width, WIDTH: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    values = tl.load(x + row * width + column, mask=column < width)
    values = tl.exp(values - tl.load(top + row))
    tl.store(parts + row * width + column, values, mask=column < width)


@no_type_check
@triton.jit
def row_sum_kernel(parts, total, rows, width, WIDTH: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    values = tl.load(parts + row * width + column, mask=column < width, other=0.0)
    tl.store(total + row, tl.sum(values))


@no_type_check
@triton.jit
def quotient_kernel(parts, total, y, rows, width, WIDTH: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    values = tl.load(parts + row * width + column, mask=column < width)
    tl.store(y + row * width + column, values / tl.load(total + row), mask=column < width)


@no_type_check
@triton.jit
def product_kernel(a, b, c, M, N, K, BLOCK: tl.constexpr):
    m = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        left = tl.load(a + m[:, None] * K + k[None, :], (m[:, None] < M) & (k[None, :] < K), 0.0)
        right = tl.load(b + k[:, None] * N + n[None, :], (k[:, None] < K) & (n[None, :] < N), 0.0)
        total = tl.dot(left, right, total)
    tl.store(c + m[:, None] * N + n[None, :], total, (m[:, None] < M) & (n[None, :] < N))


def copied() -> None:
    copy_kernel[(3,)](torch.ones(10), torch.ones(10), 10, BLOCK=4)


def softmax_at_once() -> None:
    x, y = torch.randn(2, 4, 6)
    softmax_kernel[(4,)](x, y, 4, 6, ROWS=1, WIDTH=8)


def softmax_step_by_step() -> None:
    x, parts, y = torch.randn(3, 4, 6)
    top, total = torch.ones(2, 4)
    row_top_kernel[(4,)](x, top, 4, 6, WIDTH=8)
    exponential_kernel[(4,)](x, top, parts, 4, 6, WIDTH=8)
    row_sum_kernel[(4,)](parts, total, 4, 6, WIDTH=8)
    quotient_kernel[(4,)](parts, total, y, 4, 6, WIDTH=8)


def product(block: int) -> Callable[[], None]:
    def run() -> None:
        a, b, c = torch.randn(3, 8, 8)
        product_kernel[(8 // block, 8 // block)](a, b, c, 8, 8, 8, BLOCK=block)

    return run


SHAPE = {"rows": 4, "columns": 6}
SQUARE = {"rows": 8, "columns": 8}
# name: (what runs, the name and the shape of every argument, in the order of the picture)
EXAMPLES: Mapping[str, tuple[Callable[[], None], Mapping[str, tuple[str, Mapping[str, int]]]]] = {
    "copy, blocks of 4": (
        copied,
        {"source": ("x", {"rows": 1, "columns": 10}), "target": ("y", {"rows": 1, "columns": 10})},
    ),
    "softmax, one kernel": (
        softmax_at_once,
        {"scores": ("x", SHAPE), "weights": ("y", SHAPE)},
    ),
    "softmax, four kernels": (
        softmax_step_by_step,
        {
            "x": ("x", SHAPE),
            "top": ("maximum", {"rows": 4, "columns": 1}),
            "parts": ("exponentials", SHAPE),
            "total": ("sum", {"rows": 4, "columns": 1}),
            "y": ("y", SHAPE),
        },
    ),
    "matrix product, tiles of 2": (
        product(2),
        {"a": ("a", SQUARE), "b": ("b", SQUARE), "c": ("c", SQUARE)},
    ),
    "matrix product, tiles of 4": (
        product(4),
        {"a": ("a", SQUARE), "b": ("b", SQUARE), "c": ("c", SQUARE)},
    ),
}


def export() -> dict[str, Any]:
    """Every example as the explorer reads it."""
    found: dict[str, Any] = {}
    for name, (run, shown) in EXAMPLES.items():
        with traced() as accesses:
            run()
        found[name] = {
            "tensors": [{"name": label, **shape} for label, shape in shown.values()],
            "steps": [
                [
                    access.launch,
                    access.program[0] * (SPLIT.get(name, 1)) + access.program[1],
                    int(access.kind == "store"),
                    list(shown).index(access.tensor),
                    _places(access.places),
                ]
                for access in accesses
            ],
        }
    return found


# programs in two axes are counted row by row
SPLIT = {"matrix product, tiles of 2": 4, "matrix product, tiles of 4": 2}


def _places(places: Tensor) -> list[int]:
    return [int(place) for place in places]


if __name__ == "__main__":
    text = json.dumps(export(), separators=(",", ":"))
    memory_trace.TRACES.write_text(text + "\n", encoding="utf-8")
    print(f"{memory_trace.TRACES.name}: {len(text)} bytes")
