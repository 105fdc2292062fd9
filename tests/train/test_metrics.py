"""Accuracies by hand, against plain loops, and against mutants."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutation import mutant
from refusals import refused
from torch import Tensor

from attn_course.train.metrics import sequence_accuracy, token_accuracy

Metric = Callable[..., float]
PAD = 0
TARGET = torch.tensor([[4, 5, 6, 2, 0, 0], [7, 2, 0, 0, 0, 0], [8, 9, 4, 5, 7, 2]])
RIGHT = TARGET.clone()
ONE_WRONG = torch.tensor([[4, 5, 9, 2, 3, 3], [7, 2, 7, 7, 7, 7], [8, 9, 4, 5, 7, 2]])


def by_loop(predictions: Tensor, target: Tensor) -> tuple[float, float]:
    tokens, sequences = [], []
    for said, asked in zip(predictions.tolist(), target.tolist(), strict=True):
        padded = said + [None] * len(asked)
        right = [padded[t] == token for t, token in enumerate(asked) if token != PAD]
        tokens += right
        if right:
            sequences.append(all(right))
    return sum(tokens) / len(tokens), sum(sequences) / len(sequences)


def check(token: Metric, sequence: Metric) -> None:
    assert (token(RIGHT, TARGET), sequence(RIGHT, TARGET)) == (1.0, 1.0)
    assert token(ONE_WRONG, TARGET) == pytest.approx(11 / 12)
    assert sequence(ONE_WRONG, TARGET) == pytest.approx(2 / 3)
    # too short: what is missing is wrong; too long: what nobody asked for does not count
    assert token(RIGHT[:, :4], TARGET) == pytest.approx(10 / 12)
    assert sequence(RIGHT[:, :4], TARGET) == pytest.approx(2 / 3)
    longer = torch.cat([RIGHT, torch.full((3, 2), 9)], dim=1)
    assert (token(longer, TARGET), sequence(longer, TARGET)) == (1.0, 1.0)
    # to say padding where padding is asked for earns nothing
    nothing = torch.zeros_like(TARGET)
    assert (token(nothing, TARGET), sequence(nothing, TARGET)) == (0.0, 0.0)
    # a row without any target is no sequence
    empty = torch.cat([TARGET, torch.zeros(1, 6, dtype=torch.long)])
    said = torch.cat([ONE_WRONG, torch.ones(1, 6, dtype=torch.long)])
    assert sequence(said, empty) == pytest.approx(2 / 3)
    assert token(TARGET + 3, TARGET + 3, pad=3) == 1.0
    assert token(ONE_WRONG + 3, TARGET + 3, pad=3) == pytest.approx(11 / 12)


def test_agree_with_hand_values() -> None:
    check(token_accuracy, sequence_accuracy)


@given(
    number=st.integers(0, 10_000), rows=st.integers(1, 5), said=st.integers(1, 7),
    asked=st.integers(1, 7),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_agree_with_loops(number: int, rows: int, said: int, asked: int) -> None:
    torch.manual_seed(number)
    target = torch.randint(1, 3, (rows, asked))
    lengths = torch.randint(0, asked + 1, (rows, 1))
    target[torch.arange(asked) >= lengths] = PAD
    predictions = torch.randint(0, 3, (rows, said))
    if not bool((target != PAD).any()):
        with pytest.raises(ValueError, match="target: expected at least one id other than pad=0"):
            token_accuracy(predictions, target)
        return
    tokens, sequences = by_loop(predictions, target)
    assert token_accuracy(predictions, target) == pytest.approx(tokens)
    assert sequence_accuracy(predictions, target) == pytest.approx(sequences)


MODULE = "attn_course.train.metrics"


@pytest.mark.parametrize(("old", "new"), [
    ("return right & counts, counts", "return right, counts"),
    ("counts = target != pad", "counts = target != -1"),
    ("counts = target != pad", "counts = target != 0"),
    ("torch.zeros_like(counts)", "torch.ones_like(counts)"),
    ("right.sum() / counts.sum()", "right.sum() / counts.numel()"),
    ("(right == counts).all(dim=1)", "(right == counts).any(dim=1)"),
    ("(right == counts).all(dim=1)", "right.all(dim=1)"),
    ("[counts.any(dim=1)]", ""),
    ("whole.double().mean()", "right.double().mean()"),
])  # fmt: skip
def test_oracles_reject_a_changed_line(old: str, new: str) -> None:
    functions = [mutant(MODULE, n, old, new) for n in ("token_accuracy", "sequence_accuracy")]
    with pytest.raises(AssertionError):
        check(*functions)


@pytest.mark.usefixtures("unchecked")
def test_other_shapes_are_refused() -> None:
    for metric in (token_accuracy, sequence_accuracy):
        refused(r"one row per target row \(3, 6\), got \(2, 6\)", metric, TARGET[:2], TARGET)
        refused(r"got \(3, 6, 5\)", metric, torch.zeros(3, 6, 5), TARGET)
