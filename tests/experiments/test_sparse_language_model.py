"""The sparse language models: what they may see, what is asked of them, whose the record is."""

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from attn_course.data import load_results
from experiments import sparse_language_model as experiment

NAMES = list(experiment.patterns())
WITH_FAR_PAIRS = ("window 4, global positions", "window 4, one long head")


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return load_results("sparse_language_model")


def test_the_record_holds_every_model_at_every_rate(record: dict[str, Any]) -> None:
    assert len({run["seed"] for run in record["runs"]}) >= 3
    for run in record["runs"]:
        assert list(run["values"]) == NAMES
        for name, pattern in experiment.patterns().items():
            found = run["values"][name]
            assert found["reach"] == experiment.farthest(pattern)
            assert found["pairs"] == pattern.mask(experiment.LENGTH).sum() / pattern.heads
            for task, score in (("text", min), ("mark", max)):
                tried = found[task]["rates"]
                assert sorted(one[1] for one in tried) == sorted(experiment.RATES[task])
                if task == "text":  # the rate is chosen on one part, the bits are of the other
                    assert found["text"]["bits"] == score(tried)[2]
            assert len(found["mark"]["by_distance"]) == experiment.LENGTH - 1
        assert len({found["parameters"] for found in run["values"].values()}) == 1


def test_what_the_page_says_of_the_mark_holds_in_every_seed(record: dict[str, Any]) -> None:
    for run in record["runs"]:
        for name, found in run["values"].items():
            said = torch.tensor(found["mark"]["by_distance"])
            if found["reach"] < experiment.LENGTH - 1:
                assert said[found["reach"] :].mean() < 0.2, name  # a guess is right in one of eight
            else:
                assert said.mean() > 0.95, name


def test_the_control_costs_as_much_as_the_models_with_far_pairs() -> None:
    pairs = {name: p.mask(96).sum() / p.heads for name, p in experiment.patterns().items()}
    assert all(pairs["window 17"] >= pairs[name] for name in WITH_FAR_PAIRS)
    assert pairs["window 4, dilation 1 and 4"] <= pairs["window 4"]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_depends_on_what_its_pattern_reaches_and_on_nothing_else(name: str) -> None:
    torch.manual_seed(0)
    pattern = experiment.patterns()[name]
    model = experiment.build(pattern, 16, 11).double()
    reach = experiment.farthest(pattern)
    tokens = torch.randint(10, (1, experiment.LENGTH))
    last = model(tokens)[0, -1]
    for back in {1, reach, min(reach + 1, 95)}:
        changed = tokens.clone()
        changed[0, -1 - back] = 10
        same = torch.equal(model(changed)[0, -1], last)
        assert same == (back > reach), back


def test_the_marked_symbol_is_asked_for_at_every_later_place() -> None:
    tokens, answers, distance = experiment.marked(50, torch.Generator().manual_seed(1))
    for row, wanted, away in zip(tokens, answers, distance, strict=True):
        (place,) = (row >= experiment.SYMBOLS).nonzero()[:, 0].tolist()
        assert away[place] == 0
        assert (wanted[: place + 1] == -100).all()
        assert (wanted[place + 1 :] == row[place] - experiment.SYMBOLS).all()


def test_training_learns_what_is_asked() -> None:
    torch.manual_seed(0)
    model = experiment.build(experiment.patterns()["all pairs"], 16, 16)
    draws = torch.Generator().manual_seed(0)
    tokens, answers, _ = experiment.marked(64, torch.Generator().manual_seed(9))

    def loss() -> float:
        with torch.no_grad():
            return float(cross_entropy(model(tokens).flatten(0, 1), answers.flatten()))

    before = loss()
    experiment.train(model, lambda: experiment.marked(16, draws)[:2], 0.01, 20)
    assert loss() < before - 0.2
