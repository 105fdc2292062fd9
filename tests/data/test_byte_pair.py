import re
from collections import Counter
from itertools import pairwise

import pytest
import torch

from attn_course.data import BytePairs, load_python_manual

SPACE, L, O, W = (ord(each) for each in " low")  # noqa: E741


def test_merges_by_hand():
    # l-o and o-w occur three times each, and l-o has the smaller ids; then lo-w, then space-low
    # and low-e, twice each; then low-e within " lowe", the last pair that occurs twice.
    trained = BytePairs.train("low lower lowest", vocab_size=300)
    assert trained.merges == ((L, O), (256, W), (SPACE, 257), (258, ord("e")))
    assert trained.tokens[256:] == [b"lo", b"low", b" low", b" lowe"]
    assert trained.encode("low lower lowest").tolist() == [257, 259, *b"r", 259, *b"st"]


def test_vocab_size_ends_the_merges():
    assert BytePairs.train("low lower lowest", vocab_size=258).merges == ((L, O), (256, W))
    assert len(BytePairs.train("low lower lowest", vocab_size=258)) == 258


def test_no_merge_crosses_a_word_and_the_space_goes_with_the_word_behind_it():
    trained = BytePairs.train("a b " * 9, vocab_size=270)
    assert trained.tokens[256:] == [b" b", b" a"]


def test_overlapping_pairs_are_merged_from_the_left():
    assert BytePairs([(97, 97)]).encode("aaa").tolist() == [256, 97]


def test_an_earlier_merge_is_made_first():
    bc_then_ab = BytePairs([(98, 99), (97, 98)])
    assert bc_then_ab.encode("abc").tolist() == [97, 256]


def test_the_merges_are_those_of_counting_all_pairs_anew_after_each():
    text = load_python_manual("val")[:4001]
    words = [list(word.encode()) for word in re.findall(r" ?\w+| ?[^\w\s]+|\s", text)]
    merges = []
    for token in range(256, 256 + 37):
        counts = Counter(pair for word in words for pair in pairwise(word))
        best = min(counts, key=lambda pair, counts=counts: (-counts[pair], pair))
        merges.append(best)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = [token]
                i += 1
    trained = BytePairs.train(text, vocab_size=256 + 37)
    assert trained.merges == tuple(merges)
    assert trained.encode(text).tolist() == [each for word in words for each in word]


@pytest.mark.parametrize("text", ["", " ", "\n\n  x \t", "für 7 €, 字😀!", "don't  stop__now\r\n"])
def test_any_text_comes_back(text):
    trained = BytePairs.train(load_python_manual("val"), vocab_size=256 + 61)
    assert trained.decode(trained.encode(text)) == text


def test_a_text_that_was_not_seen_comes_back_in_fewer_tokens():
    trained = BytePairs.train(load_python_manual("val")[:20_000], vocab_size=256 + 101)
    text = load_python_manual("train")[:20_000]
    ids = trained.encode(text)
    assert trained.decode(ids) == text
    assert ids.dtype == torch.long
    assert len(ids) < 0.65 * len(text)


def test_a_broken_character_is_replaced_not_raised():
    assert BytePairs([]).decode(torch.tensor([0xC3])) == "�"
