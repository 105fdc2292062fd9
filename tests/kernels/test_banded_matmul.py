"""Banded products: against the whole product in float64, forward and gradients."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from kernel_mutation import DEVICE, mutated
from oracles import agrees_with_float64
from refusals import refused
from torch import Tensor

from attn_course import kernels, masks
from attn_course.functional import scaled_dot_product_attention


def windowed(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
    """Attention in a window, with every pair in memory."""
    L = query.shape[-2]
    mask = masks.window_mask(
        L, window_size=options["window_size"], causal=options["is_causal"],
        dilation=options["dilation"], device=DEVICE,
    )  # fmt: skip
    return scaled_dot_product_attention(query, key, value, mask, scale=1.0)


def check(module: Any, L: int, **options: Any) -> None:
    """Both products and a softmax between them are attention in a window."""

    def banded(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        band = module.banded_matmul(query, key, **options)
        rest = {name: options[name] for name in ("is_causal", "dilation")}
        summed: Tensor = module.banded_sum(band.softmax(-1), value, **rest)
        return summed

    sizes = (2, 1, L, 5), (2, 1, L, 5), (2, 1, L, 7)
    inputs = [torch.randn(*size, device=DEVICE) for size in sizes]
    agrees_with_float64(banded, partial(windowed, **options), *inputs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize(("L", "window_size", "dilation"), [(1, 1, 1), (37, 5, 1), (41, 3, 7)])
def test_a_band_and_a_sum_are_attention_in_a_window(L, window_size, dilation, is_causal):
    check(kernels, L, window_size=window_size, is_causal=is_causal, dilation=dilation)


def test_what_does_not_fit_is_refused_by_name() -> None:
    rows, multiply = torch.ones(1, 1, 5, 3, device=DEVICE), kernels.banded_matmul
    even = partial(multiply, window_size=4)
    refused("window_size: expected an odd positive number, got 4", even, rows, rows)
    odd = partial(multiply, window_size=3)
    refused(r"key: expected shape \(1, 1, 5, 3\)", odd, rows, rows[:, :, :4])


@pytest.mark.parametrize(("old", "new"), [
    ("tl.where(inside, scores, FILL)", "tl.where(inside, scores, 0.0)"),
    ("column - left) * dilation\n        inside", "column - left)\n        inside"),
    ("row - away if TURNED", "row + away if TURNED"),
    ("place = start + (other if TURNED else row)", "place = start + row"),
    ("return window_size - 1 if is_causal", "return window_size if is_causal"),
    ("not turned)", "turned)"),
])  # fmt: skip
def test_the_oracle_rejects_planted_mistakes(old: str, new: str, tmp_path: Path) -> None:
    made = mutated(tmp_path, "banded_matmul", old, new)
    wrong = SimpleNamespace(banded_matmul=made.banded_matmul, banded_sum=made.banded_sum)
    run: Callable[..., None] = check
    with pytest.raises(AssertionError):
        run(wrong, 35, window_size=3, is_causal=True, dilation=2)
