"""The model in the explorer's file does what its page says, and its numbers add up."""

import json
import random
from typing import Any

import pytest
import torch

from attn_course.explorers import transformer_flow
from attn_course.explorers.transformer_flow import HEADS, LAYERS, compute


def saved() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(transformer_flow.WEIGHTS.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("anna has a red ball . tom likes the red", "ball"),
        ("mia and ben went to the park . mia gave a cake to", "ben"),
        ("tom and lily went to the shop . lily gave a key to", "tom"),
    ],
)
def test_it_completes_what_can_be_known(text: str, word: str) -> None:
    top = compute(text=text, off=[], at=-1)["top"]
    assert top[0][0] == word
    assert top[0][1] > 0.5


def test_it_repeats_random_words_that_were_told_once() -> None:
    draw, right = random.Random(3), 0
    for _ in range(40):
        told = draw.sample(saved()["words"], 6)
        text = " ".join([*told, *told[:4]])
        right += compute(text=text, off=[], at=-1)["top"][0][0] == told[4]
    assert right >= 28  # a guess gives one


def test_its_best_induction_head_is_one() -> None:
    scores = saved()["induction"]
    assert len(scores) == LAYERS * HEADS
    assert max(scores[HEADS:]) > 0.3 > max(scores[:HEADS])


def test_weights_sum_to_one_and_shares_to_the_logit() -> None:
    result = compute(text=transformer_flow.EXAMPLES[0], off=[2], at=-1)
    weights = torch.tensor(result["weights"])
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert len(result["parts"]) == 1 + LAYERS * (HEADS + 1)
    assert result["parts"][1 + 2] == 0
    assert result["lens"][-1] == [result["top"][0][0], pytest.approx(result["top"][0][1])]


def test_a_head_that_is_off_changes_the_answer_and_not_its_own_weights() -> None:
    text = transformer_flow.EXAMPLES[0]
    whole = compute(text=text, off=[], at=-1)
    without = compute(text=text, off=list(range(HEADS, 2 * HEADS)), at=-1)
    assert without["top"][0][1] != whole["top"][0][1]
    assert without["weights"] == whole["weights"]


def test_unknown_words_are_marked_and_long_texts_are_cut() -> None:
    result = compute(text="the zebra " * 20, off=[], at=-1)
    assert len(result["tokens"]) == transformer_flow.MOST + 1
    assert result["known"][:3] == [True, True, False]
    assert compute(text="", off=[], at=-1)["tokens"] == ["start"]
