"""Alignments that decoding returns, and how far they are from the truth."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from mutation import mutant
from refusals import refused
from torch import Tensor
from torch.testing import assert_close

from attn_course.data import translation
from attn_course.train import alignment_error_rate, beam_search, greedy_decode
from attn_course.train.decoding import Decoded
from attn_course.train.metrics import alignment_mass

VOCAB, S, EOS = 5, 3, 2


class State(NamedTuple):
    """The words said so far, and a made-up alignment that depends on all of them."""

    said: Tensor
    alignment: Tensor
    nested: tuple[Tensor, tuple[Tensor]]


class Teller:
    """A random table of logits for every beginning; the alignment is a code of the beginning."""

    def __init__(self) -> None:
        self.table = torch.randn(VOCAB**6, VOCAB, dtype=torch.float64)

    def start(self, rows: int) -> State:
        row = torch.arange(rows)
        return State(row * 7 + 1, torch.zeros(rows, S), (row, (row,)))

    def alignment(self, said: Tensor) -> Tensor:
        return torch.stack([said.float(), (said % 11).float() + 1, (said % 13).float() + 2], -1)

    def step(self, token: Tensor, state: State) -> tuple[Tensor, State]:
        said = (state.said * VOCAB + token) % VOCAB**6
        assert torch.equal(state.nested[0], state.nested[1][0])  # rows stay together
        return self.table[said], State(said, self.alignment(said), state.nested)

    def expected(self, row: int, tokens: list[int]) -> Tensor:
        said, found = torch.tensor(row * 7 + 1), []
        for token in [1, *tokens[:-1]]:
            said = (said * VOCAB + token) % VOCAB**6
            found.append(self.alignment(said))
        return torch.stack(found)


def check(search: Callable[..., Decoded], **kwargs: Any) -> None:
    """Every hypothesis carries its own alignments, and zeros after its end."""
    torch.manual_seed(11)
    teller, ends = Teller(), set()
    decoded = search(teller.step, teller.start(4), bos=1, eos=EOS, max_length=6, **kwargs)
    assert decoded.alignments.shape == (*decoded.tokens.shape, S)
    alignments = decoded.alignments.view(4, -1, decoded.tokens.shape[-1], S)
    tokens, lengths = decoded.tokens.view(*alignments.shape[:3]), decoded.lengths.view(4, -1)
    for row in range(4):
        for k in range(alignments.shape[1]):
            length = int(lengths[row, k])
            ends.add(length)
            want = teller.expected(row, tokens[row, k, :length].tolist())
            assert_close(alignments[row, k, :length], want, rtol=0, atol=0)
            assert (alignments[row, k, length:] == 0).all()
    assert len(ends) > 1


def test_greedy_and_beam_return_the_alignment_of_every_token() -> None:
    check(greedy_decode)
    for beam_size in (1, 2, 5):
        check(beam_search, beam_size=beam_size)


def test_a_state_without_alignment_gives_none() -> None:
    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.randn(len(token), VOCAB), state

    greedy = greedy_decode(step, torch.zeros(2, 1), bos=1, eos=EOS, max_length=3)
    beam = beam_search(step, torch.zeros(2, 1), bos=1, eos=EOS, max_length=3, beam_size=2)
    assert greedy.alignments is None
    assert beam.alignments is None


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("greedy_decode", "alignment.masked_fill(finished.unsqueeze(1), 0.0)", "alignment"),
        ("beam_search", "alignments[:, :, t] = looked[rows, parents]", "alignments[:, :, t] = looked[:, :1]"),  # noqa: E501
        ("beam_search", "live_alignments[rows, parents]", "live_alignments[rows, parents * 0]"),
        ("beam_search", "live_alignments = alignments[rows, chosen]", "live_alignments = alignments[:, :k]"),  # noqa: E501
        ("beam_search", "choose(done.alignments, found.alignments)", "torch.cat([done.alignments, found.alignments], dim=1)[:, : done.scores.shape[1]]"),  # noqa: E501
        ("beam_search", "type(state)._make(parts) if", "tuple(parts) if"),
    ],
)  # fmt: skip
def test_oracle_rejects_a_changed_line(name: str, old: str, new: str) -> None:
    search = mutant("attn_course.train.decoding", name, old, new)
    with pytest.raises((AssertionError, AttributeError)):
        check(search, **({} if name == "greedy_decode" else {"beam_size": 3}))


WEIGHTS = torch.tensor(
    [
        [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.4, 0.3, 0.3], [0.0, 0.0, 0.0]],
        [[0.5, 0.5, 0.0], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]],
    ]
)
# row 0: right, wrong, no link known, no link made; row 1: right (first of equals), right, wrong, -
KNOWN = torch.tensor([[0, 1, -1, 2], [0, 1, 0, -1]])


def check_metrics(error: Callable[..., float], mass: Callable[..., float]) -> None:
    """By hand: 6 known links, 5 links made, 3 of them right."""
    assert error(WEIGHTS, KNOWN) == pytest.approx(1 - 2 * 3 / (5 + 6))
    assert mass(WEIGHTS, KNOWN) == pytest.approx((0.7 + 0.2 + 0.0 + 0.5 + 0.8 + 0.2) / 6)
    batch = translation(5, torch.Generator().manual_seed(0))
    right = torch.nn.functional.one_hot(batch.alignment.clamp(min=0)).double()
    assert error(right, batch.alignment) == 0
    assert mass(right, batch.alignment) == 1
    assert error(right.roll(1, -1), batch.alignment) == 1
    assert mass(right.roll(1, -1), batch.alignment) == 0
    assert error(torch.zeros_like(right), batch.alignment) == 1
    uniform = (batch.source_mask / batch.source_lengths[:, None]).unsqueeze(1).expand_as(right)
    known = (batch.alignment >= 0).sum(1)
    chance = (known / batch.source_lengths).sum() / known.sum()
    assert mass(uniform, batch.alignment) == pytest.approx(float(chance))


def test_alignment_metrics_by_hand() -> None:
    check_metrics(alignment_error_rate, alignment_mass)


@pytest.mark.parametrize(("old", "new"), [
    ("known = alignment >= 0", "known = alignment >= -1"),
    ("linked = known & (weights != 0).any(dim=-1)", "linked = known"),
    ("linked & (weights.argmax(dim=-1) == right)", "weights.argmax(dim=-1) == right"),
    ("(weights.argmax(dim=-1) == right)", "(weights.argmin(dim=-1) == right)"),
    ("mass[known].double()", "mass.double()"),
])  # fmt: skip
def test_metric_oracle_rejects_a_changed_line(old: str, new: str) -> None:
    names = ("alignment_error_rate", "alignment_mass")
    wrong = [mutant("attn_course.train.metrics", name, old, new) for name in names]
    with pytest.raises(AssertionError):
        check_metrics(*wrong)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("metric", [alignment_error_rate, alignment_mass])
def test_bad_alignments_are_refused(metric: Callable[..., float]) -> None:
    refused("alignment: expected one source position per target", metric, WEIGHTS, KNOWN[:, :3])
    outside, unknown = torch.full_like(KNOWN, 3), torch.full_like(KNOWN, -1)
    outside[0] = 0
    refused("alignment: expected places from -1 to 2, got 0 to 3", metric, WEIGHTS, outside)
    refused("alignment: expected at least one known position", metric, WEIGHTS, unknown)
    refused("weights: expected numbers, got NaN", metric, WEIGHTS * torch.nan, KNOWN)
    real = torch.tensor([[0.0, 1.5]])
    message = r"alignment: expected integers, got torch\.float32"
    refused(message, metric, torch.rand(1, 2, 3), real)
