"""Both sides of a comparison were tuned, or the page says how far."""

import ast
import json
import re
from collections.abc import Iterator
from statistics import median
from typing import Any

import pytest

from experiments.records import RESULTS, is_repeatable, read, script
from experiments.sources import ROOT
from experiments.tuning import TUNED, Tuned

# records whose code has a loop over rates and tries none
UNTRIED = dict.fromkeys(
    ("translation_tuned", "translation_paired"), "each model at its best rate of translation_rates"
)
PAGES = [*sorted((ROOT / "book" / "chapters").rglob("*.md")), ROOT / "book" / "claims.md"]


def by_seed(record: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """The values of the runs, seed by seed; a record that is no list of runs is one run."""
    if not is_repeatable(record):
        return [[record]]
    seeds: dict[int, list[dict[str, Any]]] = {}
    for run in record["runs"]:
        seeds.setdefault(run["seed"], []).append(run["values"])
    return list(seeds.values())


def scores(tuned: Tuned, seeds: list[list[dict[str, Any]]]) -> dict[str, dict[float, float]]:
    """For each side the median over seeds at each setting, of the median of a seed's runs."""
    found: dict[str, dict[float, list[float]]] = {}
    for runs in seeds:
        sides = [tuned.sides(values) for values in runs]
        for side in sides[0]:
            for setting in sides[0][side]:
                of_seed = median(each[side][setting] for each in sides)
                found.setdefault(side, {}).setdefault(setting, []).append(of_seed)
    return {
        side: {setting: median(values) for setting, values in sorted(settings.items())}
        for side, settings in found.items()
    }


def at_an_edge(settings: dict[float, float]) -> bool:
    """Whether no setting between the first and the last is as good as the best."""
    inner = list(settings.values())[1:-1]
    return not inner or max(inner) < max(settings.values())


def one_line(text: str) -> str:
    return " ".join(text.split())


def faults(tuned: Tuned, seeds: list[list[dict[str, Any]]], pages: str) -> Iterator[str]:
    found = scores(tuned, seeds)
    for side in tuned.edges.keys() - found.keys():
        yield f"{side}: has a sentence and is no side; sides are {', '.join(found)}"
    for side, settings in found.items():
        sentence = tuned.edges.get(side)
        if at_an_edge(settings) and sentence is None:
            shown = ", ".join(f"{setting:g}: {score:.4g}" for setting, score in settings.items())
            yield f"{side}: the best of {{{shown}}} is at an edge; widen the grid or say so"
        elif not at_an_edge(settings) and sentence is not None:
            yield f"{side}: the best is inside the grid and the page says that it is at an edge"
        elif sentence is not None and one_line(sentence) not in pages:
            yield f"{side}: on no page stands {sentence!r}"


@pytest.mark.parametrize("name", sorted(TUNED))
def test_the_best_setting_lies_inside_or_the_page_says_that_it_does_not(name):
    assert (RESULTS / f"{name}.json").is_file(), "no such record"
    pages = one_line("\n".join(page.read_text("utf-8") for page in PAGES))
    found = list(faults(TUNED[name], by_seed(read(name)), pages))
    assert not found, "\n".join(found)


def words(name: str) -> list[str]:
    return re.findall(r"[a-z]+", name.lower())


def tries_rates(source: str, values: Any = None) -> bool:
    """Whether an experiment tries several learning rates: by its code, or by what it records.

    In code: a name ``RATES``, or a loop whose variable is a rate. In a record: a list of several
    things below a key with the word ``rates``.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and node.id == "RATES":
            return True
        if isinstance(node, ast.For | ast.comprehension):
            names = [each for each in ast.walk(node.target) if isinstance(each, ast.Name)]
            if any({"rate", "rates", "lr"} & set(words(each.id)) for each in names):
                return True
    return recorded_rates(values)


def recorded_rates(values: Any) -> bool:
    if isinstance(values, list):
        return any(map(recorded_rates, values))
    if not isinstance(values, dict):
        return False
    several = (
        isinstance(value, list | dict) and len(value) > 1
        for key, value in values.items()
        if "rates" in words(key)
    )
    return any(several) or any(map(recorded_rates, values.values()))


def test_every_record_with_several_rates_says_where_its_best_lies():
    missing = []
    for path in sorted(RESULTS.glob("*.json")):
        values = json.loads(path.read_text("utf-8"))
        source = script(path.stem).read_text("utf-8")
        if path.stem not in TUNED | UNTRIED and tries_rates(source, values):
            missing.append(path.stem)
    assert not missing, f"no entry in experiments/tuning.py: {', '.join(missing)}"


def entry(**edges: str) -> Tuned:
    return Tuned(lambda values: {"a": values["a"], "b": values["b"]}, edges)


def seed(a: list[float], b: list[float]) -> list[dict[str, Any]]:
    """One seed under one instruction set, at the settings 0.1, 0.2, ..."""
    sides = {"a": a, "b": b}
    return [{side: {(i + 1) / 10: s for i, s in enumerate(v)} for side, v in sides.items()}]


INSIDE, LAST = [1.0, 3.0, 2.0], [1.0, 2.0, 3.0]


@pytest.mark.parametrize(("tuned", "seeds", "said"), [
    (entry(), [seed(INSIDE, INSIDE)], []),
    (entry(), [seed(INSIDE, [3.0, 3.0, 3.0])], []),
    (entry(), [seed(INSIDE, INSIDE), seed(INSIDE, INSIDE), seed(LAST, LAST)], []),
    (entry(), [seed(INSIDE, LAST)], ["b: the best of {0.1: 1, 0.2: 2, 0.3: 3} is at an edge"]),
    (entry(), [seed([1.0, 2.0], INSIDE)], ["a: the best of {0.1: 1, 0.2: 2} is at an edge"]),
    (entry(b="The last is\nbest."), [seed(INSIDE, LAST)], []),
    (entry(b="The first is best."), [seed(INSIDE, LAST)], ["b: on no page stands"]),
    (entry(a="The last is best."), [seed(INSIDE, INSIDE)], ["a: the best is inside"]),
    (entry(c="The last is best."), [seed(INSIDE, INSIDE)], ["c: has a sentence and is no"]),
])  # fmt: skip
def test_an_edge_needs_its_sentence(tuned, seeds, said):
    found = list(faults(tuned, seeds, "Words. The last is best. More words."))
    assert len(found) == len(said)
    assert all(part in each for part, each in zip(said, found, strict=True))


@pytest.mark.parametrize(("source", "values", "several"), [
    ("RATES = (1, 2)", {}, True),
    ("a, RATES = 1, (1, 2)", {}, True),
    ("[f(lr) for lr in (1, 2)]", {}, True),
    ("for i, rate in enumerate(x): pass", {}, True),
    ("RATE = 0.1", {"error rate": [1, 2]}, False),
    ("", {"side": {"at rates": [1, 2]}}, True),
    ("", {"rates": [1]}, False),
    ("for side in integrated: pass", {}, False),
])  # fmt: skip
def test_several_rates_are_seen(source, values, several):
    assert tries_rates(source, values) is several
