"""Every named property holds for a function that has it and is broken by one that lacks it."""

import sys
from types import SimpleNamespace

import pytest
import torch

from attn_course.probes import properties as p

X = torch.tensor([[1.0, 2.0, 3.0], [0.0, -1.0, 2.0]])
MASK = torch.tensor([[True, True, False], [False, False, False]])


def softmax(scores, dim=-1):
    return torch.softmax(scores, dim)


def masked(scores, mask):
    return softmax(scores.masked_fill(~mask, -torch.inf)).nan_to_num(0.0)


def mean_so_far(x):
    steps = torch.arange(1, x.shape[1] + 1, dtype=x.dtype)
    return x.cumsum(1) / steps[:, None]


def running(x):
    return x.cumsum(1)


def add_random(x):
    return x + torch.rand(())


SEQUENCE = torch.arange(30.0).view(2, 5, 3).sin()

# property, a function that has it, one that lacks it, arguments, a word of the symptom
CASES = [
    (p.finite, softmax, lambda x: x / 0, (X,), "numbers of the result"),
    (p.rows_sum_to_one, softmax, torch.sigmoid, (X,), "expected 1, got"),
    (p.rows_sum_to_one, softmax, lambda x: x.tolist(), (X,), "a list"),
    (p.rows_sum_to_one, softmax, lambda x: softmax(x, 0), (X,), "dim=-1"),
    (p.non_negative, softmax, torch.tanh, (X,), "below 0"),
    (p.shift_invariant, softmax, torch.sigmoid, (X,), "adding 3"),
    (p.scale_invariant, torch.sign, softmax, (X,), "multiplying"),
    (p.zero_where_masked(), masked, lambda s, m: softmax(s), (X, MASK), "exactly 0"),
    (p.zero_where_masked(), masked, lambda s, m: s / 0 - s / 0, (X, MASK), "exactly 0"),
    (p.causal(), running, lambda x: x.flip(1).cumsum(1), (SEQUENCE,), "changing positions after"),
    (p.causal(), mean_so_far, lambda x: x - x.mean(1, keepdim=True), (SEQUENCE,), "changing"),
    (p.permutation_equivariant(dim=1), torch.sin, running, (SEQUENCE,), "reversing axis 1"),
    (p.deterministic, softmax, add_random, (X,), "two calls"),
    (p.gradient_reaches(0), softmax, lambda x: softmax(x).detach(), (X,), "no gradient"),
    (p.gradient_reaches(0), softmax, lambda x: 0 * x, (X,), "zero everywhere"),
    (p.gradient_reaches(0), softmax, lambda x: (x - x).sqrt(), (X,), "NaN or infinite"),
    (p.memory_below(2**16), softmax, lambda x: x.expand(2**15, 2, 3).clone()[0], (X,), "MiB"),
    (p.returns_an_int, lambda x: 3, lambda x: torch.tensor(3), (X,), "got a torch.Tensor"),
    (p.starts_a_kernel, lambda x: Started()(x), torch.sin, (X,), "no Triton kernel"),
]  # fmt: skip


class Started:
    """As what Triton's interpreter calls to start a kernel."""

    def __call__(self, x):
        return x


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    place = SimpleNamespace(GridExecutor=Started)
    monkeypatch.setitem(sys.modules, "triton.runtime.interpreter", place)


@pytest.mark.parametrize(("claim", "has", "lacks", "args", "word"), CASES)
def test_property_is_kept_by_one_and_broken_by_the_other(claim, has, lacks, args, word):
    assert claim(has, *args) is None
    assert word in claim(lacks, *args)


def test_every_property_of_the_module_is_tried():
    claims = [case[0] for case in CASES]
    made = {claim.check.__qualname__.split(".")[0] for claim in claims} - {"_unmoved"}
    made |= {name for name, value in vars(p).items() if any(value is claim for claim in claims)}
    public = {
        name
        for name, value in vars(p).items()
        if not name.startswith("_")
        and (isinstance(value, p.Property) or getattr(value, "__module__", "") == p.__name__)
        and name not in ("Property", "Check")
    }
    assert public == made


def test_rows_follow_the_dim_of_the_call():
    assert p.rows_sum_to_one(softmax, X, dim=0) is None
    assert p.rows_sum_to_one(lambda x, dim: softmax(x, -1), X, dim=0) is not None


def test_checking_does_not_change_the_arguments():
    before = SEQUENCE.clone()
    p.causal()(running, SEQUENCE)
    assert torch.equal(before, SEQUENCE)
