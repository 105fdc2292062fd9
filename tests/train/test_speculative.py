"""Speculative decoding samples from the target model: every outcome enumerated, none estimated."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from mutation import mutant
from refusals import refused
from torch import Generator, Tensor
from torch.testing import assert_close

from attn_course.nn import gpt2_like
from attn_course.train import speculative
from attn_course.train.sampling import top_k
from attn_course.train.speculative import (
    Speculated,
    acceptance_rate,
    cached_scorer,
    speculative_decode,
)

MODULE = "attn_course.train.speculative"
V = 3
Decode = Callable[..., Speculated]


class Table:
    """Logits that depend on the last two words: a model small enough to count through."""

    def __init__(self, seed: int, flat: float = 1.0, vocab: int = V) -> None:
        generator = Generator().manual_seed(seed)
        shape = (vocab, vocab, vocab)
        self.logits = flat * torch.randn(shape, generator=generator, dtype=torch.float64)

    def __call__(self, ids: Tensor, count: int) -> Tensor:
        padded = torch.cat([ids[:1], ids])
        return torch.stack([self.logits[padded[i - 1], padded[i]] for i in self.places(ids, count)])

    @staticmethod
    def places(ids: Tensor, count: int) -> range:
        return range(len(ids) - count + 1, len(ids) + 1)


class Branching:
    """Draws of one run: those that are prescribed, then the first word that is possible."""

    def __init__(self, prescribed: list[int]) -> None:
        self.prescribed, self.taken, self.probability = prescribed, [], 1.0
        self.left_out: list[list[int]] = []

    def __call__(self, probabilities: Tensor, generator: Any = None) -> int:
        shares = probabilities.tolist()
        possible = [word for word, share in enumerate(shares) if share]
        word = possible[0]
        if len(self.taken) < len(self.prescribed):
            word = self.prescribed[len(self.taken)]
        else:
            self.left_out += [[*self.taken, other] for other in possible[1:]]
        self.taken.append(word)
        self.probability *= shares[word]
        return word


def outcomes(run: Callable[[Branching], Any]) -> Iterator[tuple[float, Any]]:
    """Every outcome of a program that draws, with its exact probability: one run for each."""
    waiting: list[list[int]] = [[]]
    while waiting:
        draw = Branching(waiting.pop())
        result = run(draw)
        waiting += draw.left_out
        yield draw.probability, result


def distribution(
    decode: Decode, module: Any, target: Any, draft: Any, monkeypatch: Any, **options: Any
) -> dict[tuple[int, ...], float]:
    """Exact probability of every text that speculative decoding can write."""
    found: dict[tuple[int, ...], float] = {}

    def run(draw: Branching) -> tuple[int, ...]:
        monkeypatch.setitem(module, "_draw", draw)
        return tuple(decode(target, draft, torch.tensor([1]), **options).tokens.tolist())

    for probability, text in outcomes(run):
        found[text] = found.get(text, 0.0) + probability
    return found


def one_by_one(
    target: Any, *, max_length: int, eos: int | None = None, filters: Any = (), **_: Any
) -> dict[tuple[int, ...], float]:
    """Exact probability of every text, by the target alone."""
    done, open_texts = {}, {(): 1.0}
    for _step in range(max_length):
        longer = {}
        for text, probability in open_texts.items():
            logits = target(torch.tensor([1, *text]), 1)[0]
            for keep in filters:
                logits = keep(logits)
            for word, share in enumerate(logits.softmax(0).tolist()):
                if share:
                    into = done if word == eos else longer
                    into[(*text, word)] = probability * share
        open_texts = longer
    return {**done, **open_texts}


CASES: list[dict[str, Any]] = [
    {"vocab": 3, "max_length": 1, "num_drafts": 2},
    {"vocab": 3, "max_length": 3, "num_drafts": 1},
    {"vocab": 2, "max_length": 4, "num_drafts": 2},
    {"vocab": 3, "max_length": 2, "num_drafts": 4},
    {"vocab": 3, "max_length": 3, "num_drafts": 2, "eos": 0},
    {"vocab": 3, "max_length": 3, "num_drafts": 2, "filters": [partial(top_k, k=2)]},
]


def check(decode: Decode, module: Any, monkeypatch: Any, cases: list[dict[str, Any]]) -> None:
    """The distribution is that of the target, to the last digit, whatever the draft."""
    for case in cases:
        table = partial(Table, vocab=case["vocab"])
        options = {name: value for name, value in case.items() if name != "vocab"}
        target = table(1)
        for draft in (table(2), table(3, flat=6.0)):
            found = distribution(decode, module, target, draft, monkeypatch, **options)
            expected = one_by_one(target, **options)
            assert set(found) == set(expected), options
            ours = torch.tensor([found[text] for text in expected], dtype=torch.float64)
            theirs = torch.tensor(list(expected.values()), dtype=torch.float64)
            assert_close(ours, theirs, rtol=1e-12, atol=1e-14)
            assert sum(found.values()) == pytest.approx(1, abs=1e-12)


def test_the_distribution_is_that_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    check(speculative_decode, speculative.__dict__, monkeypatch, CASES[:2])
    # a copy whose shapes are not checked on each of thousands of calls
    copy = mutant(MODULE, "speculative_decode", "def ", "def ")
    check(copy, copy.__wrapped__.__globals__, monkeypatch, CASES[2:])


@pytest.mark.parametrize(("old", "new"), [
    ("take = min(1.0, float(p[word] / q[word]))", "take = min(1.0, float(p[word]))"),
    ("take = min(1.0, float(p[word] / q[word]))", "take = 1.0"),
    ("take = min(1.0, float(p[word] / q[word]))", "take = float(p[word] >= q[word])"),
    ("(truth[kept] - guesses[kept]).clamp(min=0)", "truth[kept]"),
    ("(truth[kept] - guesses[kept]).clamp(min=0)", "(truth[kept] - guesses[kept]).abs()"),
    ("(truth[kept] - guesses[kept]).clamp(min=0)", "guesses[kept]"),
    ("missed = truth[kept]\n", "missed = truth[kept - 1]\n"),
    ("_distribution(\"target\", target, drafts", "_distribution(\"target\", draft, drafts"),
    ("            if word == eos:\n                break\n", ""),
    ("end - len(ids) - 1", "end - len(ids)"),
])  # fmt: skip
def test_the_enumeration_rejects(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    changed = mutant(MODULE, "speculative_decode", old, new)
    with pytest.raises((AssertionError, RuntimeError)):
        check(changed, changed.__wrapped__.__globals__, monkeypatch, CASES[2:5])


def test_a_draft_that_is_the_target_is_always_right() -> None:
    target = Table(1)
    for seed in range(5):
        written = speculative_decode(
            target, target, torch.tensor([1]), max_length=10, num_drafts=4,
            generator=Generator().manual_seed(seed),
        )  # fmt: skip
        assert written.accepted == written.proposed == 8
        assert written.calls == 2  # five words a round
        assert len(written.tokens) == 10


def test_words_are_taken_as_often_as_the_two_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    p, q = Table(1).logits.softmax(-1), Table(2).logits.softmax(-1)
    by_hand = sum(min(float(a), float(b)) for a, b in zip(p[1, 1], q[1, 1], strict=True))
    assert float(acceptance_rate(p, q)[1, 1]) == pytest.approx(by_hand)
    assert_close(acceptance_rate(p, p), torch.ones(V, V, dtype=torch.float64))

    def run(draw: Branching) -> int:
        monkeypatch.setitem(speculative.__dict__, "_draw", draw)
        prompt = torch.tensor([1, 1])
        return speculative_decode(
            Table(1), Table(2), prompt, max_length=2, num_drafts=1
        ).accepted  # fmt: skip

    # two words are at most one proposal: after a refusal there is room for one word only
    taken = sum(probability for probability, accepted in outcomes(run) if accepted)
    assert taken == pytest.approx(by_hand, rel=1e-12)


def test_a_cached_scorer_is_the_model_after_refusals_too() -> None:
    model = gpt2_like(vocab_size=11, max_length=31, embed_dim=6, num_heads=3, num_layers=2)
    model = model.double().eval()
    score, plain = cached_scorer(model), lambda ids, count: model(ids[None])[0, -count:]
    text = torch.randint(0, 11, (13,))
    with torch.no_grad():
        for length, count, change in ((5, 1, None), (9, 4, None), (9, 2, 7), (6, 3, 2), (13, 1, 0)):
            if change is not None:
                text[change] = (text[change] + 1) % 11
            assert_close(score(text[:length], count), plain(text[:length], count))
    draft = gpt2_like(vocab_size=11, max_length=31, embed_dim=3, num_heads=1, num_layers=1)
    draft = draft.double().eval()
    runs = [
        speculative_decode(
            one(model), one(draft), torch.tensor([3, 1]), max_length=17,
            generator=Generator().manual_seed(2),
        )
        for one in (cached_scorer, lambda m: lambda ids, count: m(ids[None])[0, -count:])
    ]  # fmt: skip
    assert torch.equal(runs[0].tokens, runs[1].tokens)
    assert runs[0][1:] == runs[1][1:]


def test_bad_arguments_are_refused() -> None:
    table, prompt = Table(1), torch.tensor([1])
    decode = partial(speculative_decode, max_length=1)
    refused("max_length: expected at least 1", decode, table, table, prompt, max_length=0)
    refused("num_drafts: expected at least 1", decode, table, table, prompt, num_drafts=0)
    refused("prompt: expected one text", decode, table, table, prompt[:0])
    wrong = lambda ids, n: torch.zeros(7, V)  # noqa: E731
    refused(r"target: expected logits of shape \(1, V\)", decode, wrong, table, prompt)
