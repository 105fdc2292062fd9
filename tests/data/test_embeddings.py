"""The toy embedding table does what chapter 00 promises."""

import pytest
import torch
from refusals import refused

from attn_course.data import word_vectors
from attn_course.data.embeddings import SENSE_EXAMPLES

AMBIGUOUS = ("bank", "bat", "spring", "mint", "pitcher")


def contextual(sentence: str, word: str) -> dict[str, float]:
    vectors = word_vectors()
    rows = vectors.sentence(sentence)
    weights = torch.softmax(rows @ vectors[word], dim=0)
    return vectors.describe(weights @ rows)


def test_the_river_bank_by_hand():
    # scores the 0, river 2, bank 2: weights 1, e^2, e^2 over 1 + 2 e^2 = 15.778
    described = contextual("the river bank", "bank")
    assert described == pytest.approx({"water": 1.40493, "money": 0.46831}, abs=1e-5)


@pytest.mark.parametrize("example", SENSE_EXAMPLES, ids=lambda example: example.sentence)
def test_context_decides_the_sense(example):
    vectors = word_vectors()
    alone = vectors.describe(vectors[example.word])
    assert alone[example.sense] == alone[example.other] == 1.0
    described = contextual(example.sentence, example.word)
    assert described[example.sense] > 2 * described[example.other]


def test_without_context_an_ambiguous_word_stays_undecided():
    for word in AMBIGUOUS:
        entries = contextual(f"the {word} of the", word)
        assert (len(set(entries.values())), len(entries)) == (1, 2)


def test_every_ambiguous_word_has_an_example_of_each_sense():
    for word in AMBIGUOUS:
        senses = {example.sense for example in SENSE_EXAMPLES if example.word == word}
        assert senses == set(word_vectors().describe(word_vectors()[word]))


def test_table_is_as_documented():
    vectors = word_vectors()
    assert len(vectors) == len(set(vectors.words)) == 46
    assert vectors.table.shape == (46, 8)
    assert set(vectors.table.unique().tolist()) == {0.0, 1.0, 2.0}
    assert vectors.table.dtype == torch.float32
    # every axis is the main axis of some word
    assert bool((vectors.table == 2).any(dim=0).all())
    assert word_vectors().table is not vectors.table


def test_unknown_words_are_named_with_those_that_are_known():
    with pytest.raises(KeyError, match=r"no vector for 'quark'; the table has: bank bat"):
        word_vectors().sentence("the quark")
    refused("at least one word", word_vectors().sentence, "")
    assert "bank" in word_vectors()
    assert "quark" not in word_vectors()
