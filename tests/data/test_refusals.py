"""What the data of the course refuses, by the name of the argument and what was expected."""

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Any

import pytest
import torch
from refusals import refused

from attn_course import data
from attn_course.data import BABI_TASKS, BatchStream, BytePairs, Vocabulary, collate
from attn_course.data.babi import BABI_VOCABULARY
from attn_course.data.dates import date_pairs, write_date
from attn_course.data.stories import Story, encode_stories
from attn_course.data.streams import PairStream
from attn_course.data.tasks import symbol_vocabulary
from attn_course.data.toy_translation import translate, translation_pairs

DRAWN = torch.Generator().manual_seed(0)
babi, chase = partial(data.babi_batch, 3, DRAWN), partial(data.pointer_chase, generator=DRAWN)
scenes = partial(data.digit_scenes, data.load_digits("test"), generator=DRAWN)
pairs = partial(PairStream, seed=0)
TWO = [[4], [4]]


def told(support: tuple[int, ...] = (), **change: Any) -> list[Story]:
    parts = {"sentences": (("a",),), "question": ("b",), "answer": "c"} | change
    return [Story(**parts, support=support)]


encode = partial(encode_stories, vocabulary=BABI_VOCABULARY)
WORDS = "stories: expected words in every sentence"

REFUSED: list[tuple[str, Callable[[], object]]] = [
    *(row for task in (data.reversal, data.copy) for row in (
        ("^num_symbols: expected", partial(task, 3, DRAWN, num_symbols=0)),
        ("^min_length: expected", partial(task, 3, DRAWN, min_length=0)),
        ("^max_length: expected", partial(task, 3, DRAWN, min_length=5, max_length=4)),
    )),
    *(("expected", partial(task, 0, DRAWN)) for task in (
        data.reversal, data.copy, data.date_normalisation, data.translation
    )),
    ("^num_symbols: expected at least 1, got 0", partial(symbol_vocabulary, 0)),
    *(("^form: expected", partial(write_date, date(2000, 1, 1), form)) for form in (
        "{d} {m}", "{d} {dd} {m} {y}", "{day} {m} {y}"
    )),
    *(("^words: expected", partial(translate, text.split())) for text in (
        "", "the", "the dog", "dog sees the cat", "the dog sees", "the dog sees the cat cat",
        "x y z",
    )),
    *(("^max_adjectives: expected 0 to 6", partial(translation_pairs, 1, DRAWN, max_adjectives=n))
      for n in (-1, 7)),
    *(("^number: expected at least 0, got -1", partial(draw, -1, DRAWN)) for draw in (
        date_pairs, translation_pairs, BABI_TASKS["counting"]
    )),
    ("^targets: expected", partial(collate, [], [])),
    ("^targets: expected", partial(collate, [[4]], [[4], [5]])),
    ("^sources: expected", partial(collate, [[4], []], [[4], [5]])),
    *(("^alignments: expected", partial(collate, [[4]], [[4]], alignments=rows)) for rows in (
        [[0], [0]], [[0, 0]], [[1]], [[-2]]
    )),
    ("min_sentences: expected at least 2, got 1", partial(babi, min_sentences=1)),
    ("max_sentences: expected at least", partial(babi, min_sentences=5, max_sentences=4)),
    ("move_rate: expected at least 0 and below 1, got 1.0", partial(babi, move_rate=1.0)),
    ("task: expected one of one_supporting_fact", partial(babi, task="paths")),
    ("batch_size: expected at least 1, got 0", partial(data.babi_batch, 0, DRAWN)),
    ("stories: expected at least one", partial(encode, [])),
    (WORDS, partial(encode, told(sentences=()))),
    (WORDS, partial(encode, told(sentences=((),)))),
    (WORDS, partial(encode, told(question=()))),
    (r"stories: expected support from 0 to 0, got \(1,\) in 0", partial(encode, told((1,)))),
    ("max_sentences: expected at least 1, got 0", partial(encode, told(), max_sentences=0)),
    ("num_symbols: expected at least 2, got 1", partial(chase, 3, num_symbols=1)),
    ("steps: expected 1 to 7, got 0", partial(chase, 3, steps=0)),
    ("steps: expected 1 to 7, got 8", partial(chase, 3, steps=8)),
    ("batch_size: expected at least 1, got 0", partial(chase, 0)),
    ("expected", partial(BatchStream, data.reversal, batch_size=0, seed=0)),
    ("expected", partial(pairs, [], [], batch_size=1)),
    ("expected", partial(pairs, [[4]], TWO, batch_size=1)),
    ("expected", partial(pairs, TWO, TWO, batch_size=0)),
    ("expected", partial(pairs, TWO, TWO, batch_size=1, pool=0)),
    ("seed: expected that of the state, 1, got 0", lambda: pairs(TWO, TWO, batch_size=1)
     .load_state_dict(PairStream(TWO, TWO, batch_size=1, seed=1).state_dict())),
    *((f"ids: expected 0 to 5, got {bad}", partial(Vocabulary("ab").decode, [4, bad]))
      for bad in (-1, 6)),
    ("^tokens: expected", partial(Vocabulary, ["a", "b", "a"])),
    ("^tokens: expected", partial(Vocabulary, ["<pad>"])),
    ("^min_count: expected", partial(Vocabulary.from_sequences, [["a"]], min_count=0)),
    ("^max_size: expected", partial(Vocabulary.from_sequences, [["a"]], max_size=3)),
    ("vocab_size: expected at least 256, got 255", partial(BytePairs.train, "x", vocab_size=255)),
    (r"merges: expected ids below 256, got \(97, 256\)", partial(BytePairs, [(97, 256)])),
    ("split: expected 'train' or 'test', got 'all'", partial(data.load_digits, "all")),
    ("split: expected 'train' or 'val', got 'all'", partial(data.load_python_manual, "all")),
    ("batch_size: expected at least 1, got 0", partial(scenes, 0, num_tiles=3)),
    ("num_tiles: expected at least 1, got 0", partial(scenes, 2, num_tiles=0)),
]  # fmt: skip


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_bad_arguments_are_refused(message: str, call: Callable[[], object]) -> None:
    refused(message, call)
