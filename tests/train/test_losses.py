"""Label smoothing: by hand, by its definition, and as torch has it, forward and backward."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from mutation import rejects_changes
from oracles import gradient
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course.train import label_smoothing_loss, token_loss

B, L, V = 3, 5, 7


def check(loss: Callable[..., Tensor]) -> None:
    # by hand: p = (3/4, 1/4), right is the second; 0.8 and 0.1 each, of log p
    logits = torch.tensor([[[math.log(3), 0.0]]])
    by_hand = -(0.9 * math.log(1 / 4) + 0.1 * math.log(3 / 4))
    assert_close(loss(logits, torch.tensor([[1]]), smoothing=0.2), torch.tensor(by_hand))
    logits = 3 * torch.randn(B, L, V, dtype=torch.float64)
    target = torch.randint(1, V, (B, L))
    target[0, 3:] = target[2, 1:] = 0
    for smoothing in (0.0, 0.1, 0.7, 1.0):

        def theirs(z: Tensor, smoothing: float = smoothing) -> Tensor:
            return F.cross_entropy(z.mT, target, ignore_index=0, label_smoothing=smoothing)

        def ours(z: Tensor, smoothing: float = smoothing) -> Tensor:
            return loss(z, target, smoothing=smoothing)

        assert_close(ours(logits), theirs(logits), **FLOAT64)
        assert_close(gradient(ours, logits), gradient(theirs, logits), **FLOAT64)
    assert_close(loss(logits, target, smoothing=0.0), token_loss(logits, target), **FLOAT64)
    expected = F.cross_entropy(logits.mT, target, ignore_index=3, label_smoothing=0.1)
    assert_close(loss(logits, target, pad=3), expected, **FLOAT64)
    nothing = gradient(lambda z: loss(z, torch.zeros_like(target)), logits)
    assert (nothing == 0).all()
    assert loss(logits, torch.zeros_like(target)) == 0


def test_agrees_with_every_oracle() -> None:
    check(label_smoothing_loss)


test_oracles_reject_a_changed_line = rejects_changes(
    check, "attn_course.train.losses.label_smoothing_loss",
    ("smoothing * logs.mean(dim=-1)", "smoothing * logs.sum(dim=-1)"),
    ("smoothing * logs.mean(dim=-1)", "smoothing * logs.sum(dim=-1) / (logs.shape[-1] - 1)"),
    ("(1 - smoothing) * right", "right"),
    ("masked_fill(~counts, 0.0).sum()", "sum()"),
    ("/ counts.sum().clamp(min=1)", "/ counts.numel()"),
    ("/ counts.sum().clamp(min=1)", "/ counts.sum()"),
    ("return -mixed", "return mixed"),
    error=AssertionError,
)  # fmt: skip


def test_bad_smoothing_is_refused() -> None:
    inputs = torch.zeros(1, 1, 2), torch.ones(1, 1).long()
    refused(r"smoothing: expected 0 to 1, got 1\.1", label_smoothing_loss, *inputs, smoothing=1.1)


@pytest.mark.parametrize("pad", [0, 6, -100])
def test_token_loss_is_cross_entropy_over_real_ids(pad: int) -> None:
    logits, target = torch.randn(B, L, V, dtype=torch.float64), torch.randint(V, (B, L))
    target[0, 3:] = target[2, 1:] = pad
    ours = partial(token_loss, target_out=target, pad=pad)
    theirs = partial(F.cross_entropy, target=target, ignore_index=pad)
    assert_close(ours(logits), theirs(logits.mT), **FLOAT64)
    assert_close(gradient(ours, logits), gradient(theirs, logits.mT).mT, **FLOAT64)
    nothing = partial(token_loss, target_out=torch.full_like(target, pad), pad=pad)
    assert nothing(logits) == 0
    assert (gradient(nothing, logits) == 0).all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_need_not_be_an_id(smoothing: float) -> None:
    logits, target = torch.randn(B, L, V), torch.randint(V, (B, L))
    target[0, 3:] = target[2, 1:] = -100
    want = F.cross_entropy(logits.flatten(0, 1), target.flatten(), label_smoothing=smoothing)
    assert_close(label_smoothing_loss(logits, target, smoothing=smoothing, pad=-100), want)


def test_an_id_that_is_ruled_out_does_no_harm_without_smoothing() -> None:
    logits, target = torch.randn(B, L, V), torch.randint(1, V, (B, L))
    logits[..., 0] = -torch.inf
    want = token_loss(logits, target, pad=-100)
    assert_close(label_smoothing_loss(logits, target, smoothing=0.0, pad=-100), want)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("loss", [token_loss, label_smoothing_loss])
def test_targets_that_do_not_fit_are_refused(loss: Callable[..., Tensor]) -> None:
    logits = torch.randn(B, L, V)
    for shape in ((1, L), (B, L - 1), (B, 1), (B * L,)):
        refused(r"target_out: expected shape \(3, 5\)", loss, logits, torch.zeros(shape).long())
    refused("target_out: expected integers, got torch.float32", loss, logits, torch.zeros(B, L))
