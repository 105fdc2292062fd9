"""The networks in the explorer's file are as good as it says, and its stories have one answer."""

import json
from typing import Any

import pytest
import torch

from attn_course.data import BABI_TASKS, babi_batch
from attn_course.explorers import memory_hops


def saved() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(memory_hops.WEIGHTS.read_text(encoding="utf-8"))
    return content


def test_the_error_in_the_file_is_that_of_the_weights() -> None:
    # other stories than those measured; five standard errors of their share
    batch = babi_batch(
        600, torch.Generator().manual_seed(77), min_sentences=3, max_sentences=8, synonyms=False
    )
    for hops in memory_hops.HOPS:
        model = memory_hops.build(hops)
        memory_hops.load(model, saved()["weights"][str(hops)])
        with torch.no_grad():
            wrong = model(batch.story, batch.question).argmax(-1) != batch.answer
        expected = saved()["error"][str(hops)]
        error = 5 * max(expected * (1 - expected), 0.002) ** 0.5 / 600**0.5
        assert wrong.double().mean().item() == pytest.approx(expected, abs=error)


def test_one_hop_is_not_enough_and_two_are() -> None:
    error = saved()["error"]
    assert error["1"] > 0.4
    assert max(error["2"], error["3"]) < 0.01


def test_where_a_thing_is_agrees_with_the_generator() -> None:
    stories = BABI_TASKS["two_supporting_facts"](
        300, torch.Generator().manual_seed(5), synonyms=False
    )
    for story in stories:
        sentences = [" ".join(words) for words in story.sentences]
        assert memory_hops.follows(sentences, story.question[-1]) == story.answer
    assert memory_hops.follows(["John moved to the office"], "milk") == ""
    assert memory_hops.follows(["John took the milk there"], "milk") == ""


@pytest.mark.parametrize("name", memory_hops.STORIES)
def test_two_hops_answer_every_story_of_the_menu(name: str) -> None:
    thing, sentences = memory_hops.STORIES[name]
    result = memory_hops.compute(
        sentences=sentences, told=[True] * len(sentences), thing=thing, hops=2
    )
    assert result["answer"] == result["right"] != ""
    assert [round(sum(row), 9) for row in result["weights"]] == [1, 1]


def test_a_sentence_that_is_not_told_has_no_weight() -> None:
    thing, sentences = memory_hops.STORIES["the milk and John"]
    told = [True, True, False, True]
    for hops in memory_hops.HOPS:
        result = memory_hops.compute(sentences=sentences, told=told, thing=thing, hops=hops)
        assert all(row[2] == 0 for row in result["weights"])
        assert result["right"] == ""
