"""BLEU by hand, against sacrebleu, and against mutants."""

import math
import random

import pytest
from mutation import mutant
from refusals import refused

from attn_course.train import bleu

WORDS = ["a", "the", "man", "dog", "cat", "sees", "runs", "walks", "home", "red", "old", "house"]


def corpus(seed: int) -> tuple[list[list[str]], list[list[str]]]:
    """References of 4 to 13 words, and candidates with some words dropped, changed and repeated."""
    rng = random.Random(seed)
    references = [rng.choices(WORDS, k=rng.randint(4, 13)) for _ in range(17)]
    candidates = []
    for row in references:
        said = [word if rng.random() < 0.8 else rng.choice(WORDS) for word in row]
        kept = said[: rng.randint(3, len(said))]
        candidates.append(kept + rng.choices(said, k=rng.randint(0, 2)))
    return candidates, references


def test_a_corpus_by_hand() -> None:
    found = bleu([["the", "the", "cat"]], [["the", "cat", "sat"]], max_order=2)
    assert found.precisions == (2 / 3, 1 / 2)
    assert (found.brevity_penalty, found.ratio) == (1, 1)
    assert found.score == pytest.approx(3**-0.5)


def test_a_candidate_of_half_the_length_is_punished_by_e() -> None:
    found = bleu([["a", "b"]], [["a", "b", "c", "d"]], max_order=1)
    assert (found.precisions, found.score) == ((1.0,), pytest.approx(math.exp(-1)))


def test_counts_are_summed_over_the_corpus() -> None:
    found = bleu([["a"], ["a", "b", "c", "d"]], [["b"], ["a", "b", "c", "d"]], max_order=1)
    assert found.precisions == (4 / 5,)


def test_an_order_without_a_match_gives_nothing() -> None:
    assert bleu([["b", "a"]], [["a", "b"]], max_order=2).score == 0
    assert (bleu([[]], [["a"]]).score, bleu([[]], [["a"]]).brevity_penalty) == (0, 0)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_that_of_sacrebleu(seed: int) -> None:
    sacrebleu = pytest.importorskip("sacrebleu", reason="the extra 'experiments' is not installed")
    candidates, references = corpus(seed)
    theirs = sacrebleu.corpus_bleu(
        [" ".join(row) for row in candidates],
        [[" ".join(row) for row in references]],
        tokenize="none",
        smooth_method="none",
    )
    ours = bleu(candidates, references)
    assert 100 * ours.score == pytest.approx(theirs.score)
    assert [100 * p for p in ours.precisions] == pytest.approx(theirs.precisions)
    assert ours.brevity_penalty == pytest.approx(theirs.bp)


@pytest.mark.parametrize(("old", "new"), [
    ("(said & ngrams(reference, n)).total()", "sum(said[g] for g in ngrams(reference, n))"),
    ("1 - wanted / written", "1 - written / wanted"),
    ("/ max_order)", "/ 1)"),
    ("range(len(tokens) - n + 1)", "range(len(tokens) - n)"),
])  # fmt: skip
def test_a_mutant_is_seen(old: str, new: str) -> None:
    wrong = mutant("attn_course.train.bleu", "bleu", old, new)
    pairs = [corpus(seed) for seed in range(3)]
    assert any(wrong(*pair).score != pytest.approx(bleu(*pair).score, abs=1e-9) for pair in pairs)


def test_sentences_without_a_partner_are_refused() -> None:
    refused("candidates: expected one for each of 2 references", bleu, [["a"]], [["a"], ["b"]])
    refused("max_order: expected at least 1", bleu, [["a"]], [["a"]], max_order=0)
