"""Every exercise set, tried against its own solution, misconceptions and variants.

Run one set with ``pytest tests/exercises -k 00_warm_up``.
"""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from attn_course.grading.source import find_slugs, read_exercise, solution_names
from attn_course.grading.trial import Trial
from attn_course.probes.catalogue import collect, collect_variants, load_module

ROOT = Path(__file__).resolve().parents[2]
SLUGS = find_slugs(ROOT)
SEEDS = (0, 1, 2)


def folder(slug):
    return ROOT / "solutions" / slug


@cache
def notebook(slug):
    return read_exercise(folder(slug) / "exercise.py")


@cache
def trial(slug, seed):
    return Trial(notebook(slug), seed=seed)


@cache
def catalogue(slug):
    return collect(load_module(folder(slug) / "misconceptions.py", f"mis_{slug}"))


@cache
def variants(slug):
    return collect_variants(load_module(folder(slug) / "variants.py", f"var_{slug}"))


def _declared(load):
    """Collect per set; a set that does not load fails in a test of its own, not all the others."""
    for slug in SLUGS:
        try:
            found = load(slug)
        except Exception:
            continue
        yield from ((slug, one) for one in found)


def misconceptions():
    return [
        pytest.param(slug, m, id=f"{slug}-{m.of}-{m.name.replace(' ', '_')}")
        for slug, m in _declared(lambda slug: catalogue(slug).misconceptions)
    ]


def all_variants():
    return [
        pytest.param(slug, v, id=f"{slug}-{v.of}-{v.function.__name__}")
        for slug, v in _declared(variants)
    ]


def graded(slug):
    """Functions that have test cells, with the kind of item they belong to."""
    return [name for name in solution_names(notebook(slug)) if trial(slug, 0).dependents(name)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slug", SLUGS)
def test_solution_earns_full_marks_and_writes_nothing_to_stderr(slug, seed):
    for result in trial(slug, seed).run().values():
        assert result.full, f"{result.grade_id}: {result.score}/{result.points}\n{result.error}"
        assert result.stderr == ""


@pytest.mark.parametrize(("slug", "wrong"), misconceptions())
def test_misconception_loses_exactly_its_cells_and_is_named(slug, wrong):
    for seed in SEEDS:
        results = trial(slug, seed).run_with(wrong.of, wrong.function)
        lost = {r.grade_id: r for r in results.values() if not r.full}
        assert set(lost) == set(wrong.fails), {k: str(r.error) for k, r in lost.items()}
        for result in lost.values():
            if result.error is not None:
                assert result.misconception == wrong.name, f"seed {seed}\n{result.error}"
                assert len(wrong.message.split()) >= 8
            assert result.stderr == ""


@pytest.mark.parametrize(("slug", "right"), all_variants())
def test_variant_earns_full_marks(slug, right):
    for seed in SEEDS:
        for result in trial(slug, seed).run_with(right.of, right.function).values():
            assert result.full, f"{result.grade_id}\n{result.error}"


@pytest.mark.parametrize("slug", SLUGS)
def test_every_graded_function_has_six_misconceptions_and_two_variants(slug):
    wrong = Counter(m.of for m in catalogue(slug).misconceptions)
    right = Counter(v.of for v in variants(slug))
    names = graded(slug)
    assert set(wrong) | set(right) <= set(names)
    functions = [n for n in names if not n.startswith(("fixed_", "check_", "accepts_"))]
    assert len(functions) >= 4
    assert {n: wrong[n] for n in functions if wrong[n] < 6} == {}
    assert {n: right[n] for n in functions if right[n] < 2} == {}
    items = [n for n in names if n not in functions]
    assert {n: wrong[n] for n in items if wrong[n] < 2} == {}
