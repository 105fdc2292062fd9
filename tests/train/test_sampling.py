"""Filters by hand, against plain loops, on ties and edges; draws against their distribution."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from mutation import rejects_changes
from refusals import refused
from tolerances import FLOAT64
from torch import Generator, Tensor
from torch.testing import assert_close

from attn_course.train.sampling import min_p, probabilities_of, sample, temperature, top_k, top_p

Function = Callable[..., Tensor]
# probabilities 0.1, 0.4, 0.2, 0.25, 0.05
LOGITS = torch.tensor([0.1, 0.4, 0.2, 0.25, 0.05], dtype=torch.float64).log() + 3


def left(logits: Tensor) -> list[int]:
    return (logits > -torch.inf).nonzero().flatten().tolist()


def rows(filtered: Tensor, given: Tensor) -> list[list[int]]:
    """Words left in each row, whose logits must be what they were."""
    kept = filtered > -torch.inf
    assert torch.equal(filtered[kept], given[kept])
    return [row.nonzero().flatten().tolist() for row in kept.flatten(0, -2)]


def check_top_k(top_k: Function) -> None:
    assert [left(top_k(LOGITS, k)) for k in (1, 2, 3, 5, 9)] == [
        [1], [1, 3], [1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4],
    ]  # fmt: skip
    ties = torch.tensor([1.0, 2.0, 2.0, 0.0, 2.0])
    assert [left(top_k(ties, k)) for k in (1, 2, 3, 4)] == [[1], [1, 2], [1, 2, 4], [0, 1, 2, 4]]
    logits = torch.randn(2, 3, 11).round(decimals=1)
    for k in (1, 4, 10):
        expected = [
            sorted(sorted(range(11), key=lambda v: (-row[v], v))[:k])
            for row in logits.flatten(0, 1).tolist()
        ]
        assert rows(top_k(logits, k), logits) == expected


def check_top_p(top_p: Function) -> None:
    # 0.4, 0.65, 0.85, 0.95, 1
    assert [left(top_p(LOGITS, p)) for p in (0.01, 0.39, 0.41, 0.64, 0.66, 0.86, 0.96, 1.0)] == [
        [1], [1], [1, 3], [1, 3], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4],
    ]  # fmt: skip
    assert left(top_p(torch.zeros(4), 0.5)) == [0, 1]
    logits = 2 * torch.randn(2, 3, 11)
    for p in (0.2, 0.7, 0.93):
        expected = []
        for row in logits.flatten(0, 1).double():
            words, mass = [], 0.0
            for word in sorted(range(11), key=lambda v: -row[v]):
                if mass >= p:
                    break
                words.append(word)
                mass += math.exp(row[word] - row.logsumexp(0))
            expected.append(sorted(words))
        assert rows(top_p(logits, p), logits) == expected
    wide = torch.randn(50_021)
    assert torch.equal(top_p(wide, 1.0), wide)


def check_min_p(min_p: Function) -> None:
    assert [left(min_p(LOGITS, p)) for p in (0.0, 0.12, 0.13, 0.24, 0.26, 0.49, 0.51, 0.7)] == [
        [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], [0, 1, 2, 3], [0, 1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 3],
        [1],
    ]  # fmt: skip
    assert left(min_p(torch.tensor([2.0, 1.0, 2.0]), 1.0)) == [0, 2]
    logits = 2 * torch.randn(2, 3, 11)
    for p in (0.05, 0.3):
        probabilities = logits.double().softmax(-1)
        keep = probabilities >= p * probabilities.amax(-1, keepdim=True)
        expected = [row.nonzero().flatten().tolist() for row in keep.flatten(0, 1)]
        assert rows(min_p(logits, p), logits) == expected


CHECKS = {"top_k": check_top_k, "top_p": check_top_p, "min_p": check_min_p}


@pytest.mark.parametrize("function", [top_k, top_p, min_p])
def test_agrees_with_every_oracle(function: Function) -> None:
    CHECKS[function.__name__](function)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS, "attn_course.train.sampling",
    ("top_k", "rank) < k", "rank) <= k"),
    ("top_k", "descending=True, stable=True)\n    rank", "descending=False)\n    rank"),
    ("top_k", ".scatter(-1, order, rank) < k", ".copy_(order) < k"),
    ("top_p", "cumsum(dim=-1) - ordered", "cumsum(dim=-1)"),
    ("top_p", "likelier < p))", "likelier < p)[..., :]).roll(1)"),
    ("top_p", "scatter(-1, order, likelier < p)", "scatter(-1, order, ordered > 1 - p)"),
    ("top_p", "return _kept(logits,", "return _kept(probabilities.log(),"),
    ("min_p", "+ math.log(p)", "+ p"),
    ("min_p", "+ math.log(p)", "* p"),
    ("min_p", "wide.amax(dim=-1, keepdim=True)", "wide.amax()"),
    ("min_p", "wide >=", "wide >"),
)  # fmt: skip


def test_temperature_is_a_power_of_the_probabilities() -> None:
    p = LOGITS.softmax(0)
    for value in (0.25, 1.0, 3.0):
        expected = p ** (1 / value) / (p ** (1 / value)).sum()
        assert_close(temperature(LOGITS, value).softmax(0), expected, **FLOAT64)


def test_filters_apply_in_their_order() -> None:
    hot, nucleus = partial(temperature, value=5.0), partial(top_p, p=0.5)
    assert left(nucleus(hot(LOGITS))) != left(hot(nucleus(LOGITS)))
    expected = nucleus(hot(LOGITS)).softmax(0)
    assert torch.equal(probabilities_of(LOGITS, [hot, nucleus]), expected)


def test_draws_follow_the_distribution() -> None:
    generator = Generator().manual_seed(5)
    logits = LOGITS.expand(3, 20_000, 5)
    drawn = sample(logits, [partial(top_k, k=3)], generator=generator)
    assert drawn.shape == (3, 20_000)
    share = torch.bincount(drawn.flatten(), minlength=5).double() / drawn.numel()
    expected = top_k(LOGITS, 3).softmax(0)
    assert (share - expected).abs().max() < 5 * 0.5 / math.sqrt(drawn.numel())
    assert share[0] == share[4] == 0


def test_draws_depend_on_the_generator_and_on_nothing_else() -> None:
    logits = torch.randn(7, 11)
    first = sample(logits, generator=Generator().manual_seed(3))
    torch.rand(5)
    assert torch.equal(sample(logits, generator=Generator().manual_seed(3)), first)
    assert sample(logits[0], [partial(top_k, k=1)]) == logits[0].argmax()


def test_bad_arguments_are_refused() -> None:
    for bad in (0.0, -1.0, math.inf, math.nan):
        refused("value: expected a positive number", temperature, LOGITS, bad)
    refused("k: expected at least 1, got 0", top_k, LOGITS, 0)
    for bad in (0.0, 1.1, math.nan):
        refused("p: expected above 0 and at most 1", top_p, LOGITS, bad)
    refused("p: expected 0 to 1", min_p, LOGITS, -0.1)
    for bad in (torch.full((3,), -torch.inf), torch.tensor([torch.nan, 0.0])):
        refused("logits: expected rows that give probabilities", sample, bad)
