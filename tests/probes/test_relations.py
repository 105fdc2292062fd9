"""Relations between two answers: the mistakes that they recognise, and what they leave alone."""

import numpy as np
import pytest

from attn_course.probes.relations import RELATIONS

NUMBERS = np.random.default_rng(0).normal(size=(3, 4))
POSITIVE = np.abs(NUMBERS) + 0.3


def holding(got, base):
    """Names of the relations that hold between an answer and what is right."""
    arrays = [np.asarray(got, np.float64)], [np.asarray(base, np.float64)]
    return {relation.name for relation in RELATIONS if relation.holds(*arrays)}


def softmax(x):
    powers = np.exp(x)
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize(("name", "got", "base"), [
    ("the sign is wrong", -NUMBERS, NUMBERS),
    ("two axes are exchanged", NUMBERS.T, NUMBERS),
    ("reversed along the last axis", NUMBERS[:, ::-1], NUMBERS),
    ("shifted by one along the second axis from the end", np.roll(NUMBERS, 1, 0), NUMBERS),
    ("a softmax too many", softmax(NUMBERS), NUMBERS),
    ("the softmax is missing", NUMBERS, softmax(NUMBERS)),
    ("right up to a factor for each row", POSITIVE, POSITIVE / POSITIVE.sum(-1, keepdims=True)),
    ("the logarithm is missing", np.exp(NUMBERS), NUMBERS),
    ("a square root too many", np.sqrt(POSITIVE), POSITIVE),
    ("one minus the result", 1 - NUMBERS, NUMBERS),
    ("the tanh is missing", NUMBERS, np.tanh(NUMBERS)),
])  # fmt: skip
def test_a_mistake_is_recognised(name, got, base):
    assert name in holding(got, base)


def test_between_unrelated_numbers_nothing_holds():
    assert not holding(np.random.default_rng(1).normal(size=(3, 4)), NUMBERS)


@pytest.mark.parametrize("got", [0.37, -2.5, 1.0])
def test_a_single_number_has_no_softmax_and_no_sum(got):
    """Of any single number the softmax is 1, and so is the share of its own sum."""
    axis = {"a softmax too many", "the softmax is missing", "right up to a factor for each row"}
    assert not holding(got, 1.0) & axis
    assert not holding(1.0, got) & axis
