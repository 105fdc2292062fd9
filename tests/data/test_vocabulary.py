"""Tokens to ids and back."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from attn_course.data import BOS, EOS, PAD, UNK, Vocabulary


def test_reserved_places_are_the_same_everywhere():
    vocabulary = Vocabulary(["x"])
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert vocabulary.tokens == ("<pad>", "<bos>", "<eos>", "<unk>", "x")
    assert len(vocabulary) == 5


@given(st.lists(st.sampled_from("abcdefg")))
def test_decode_undoes_encode(tokens):
    vocabulary = Vocabulary("abcdefg")
    assert vocabulary.decode(vocabulary.encode(tokens)) == tokens


def test_unknown_tokens_become_unk():
    vocabulary = Vocabulary("ab")
    assert vocabulary.encode("abz") == [4, 5, UNK]
    assert vocabulary.decode([4, UNK]) == ["a", "<unk>"]
    assert "a" in vocabulary
    assert "z" not in vocabulary


def test_decode_stops_at_the_first_eos_and_drops_bos_and_padding():
    vocabulary = Vocabulary("ab")
    assert vocabulary.decode(torch.tensor([BOS, 4, PAD, 5, EOS, 4])) == ["a", "b"]


def test_from_sequences_ranks_by_count_then_spelling():
    texts = [["b", "b", "b", "c"], ["c", "a", "d", "a"]]
    assert Vocabulary.from_sequences(texts).tokens[4:] == ("b", "a", "c", "d")
    assert Vocabulary.from_sequences(texts, min_count=2).tokens[4:] == ("b", "a", "c")
    assert Vocabulary.from_sequences(texts, max_size=6).tokens[4:] == ("b", "a")
    assert Vocabulary.from_sequences(["aab", "b"]).tokens[4:] == ("b", "a")[::-1]


def test_from_sequences_survives_reserved_tokens_in_the_text():
    assert Vocabulary.from_sequences([["<unk>", "a", "<eos>"]]).tokens[4:] == ("a",)


def test_vocabularies_with_the_same_tokens_are_equal():
    assert Vocabulary("ab") == Vocabulary(["a", "b"])
    assert hash(Vocabulary("ab")) == hash(Vocabulary("ab"))
    assert Vocabulary("ab") != Vocabulary("ba")
