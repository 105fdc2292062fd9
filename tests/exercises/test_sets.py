"""Every exercise set, tried against its own solution, misconceptions and variants.

Run one set with ``pytest tests/exercises -k 00_warm_up``.
"""

import ast
import os
import re
from collections import Counter
from datetime import date
from functools import cache

import nbformat
import pytest
import rules
import torch
from cells import assigned, loaded
from sets import SLUGS, misconceptions, release, source, variants
from trial import Trial

from attn_course.exercises.source import regions
from attn_course.probes.catalogue import model_answer
from attn_course.probes.memo import remembering
from attn_course.probes.slips import slips

#: One seed in every run; the nightly run names more.
SEEDS = tuple(int(seed) for seed in os.environ.get("ATTN_SETS_SEEDS", "0").split())


@cache
def trial(slug, seed):
    return Trial(source(slug), seed=seed)


def _declared(load):
    """Collect per set; a set that does not load fails in a test of its own, not all the others."""
    for slug in SLUGS:
        try:
            found = load(slug)
        except Exception:
            continue
        yield from ((slug, one) for one in found)


def each(load, label):
    found = _declared(load)
    return [pytest.param(slug, one, id=f"{slug}-{one.of}-{label(one)}") for slug, one in found]


WRONG = each(misconceptions, lambda wrong: wrong.name.replace(" ", "_"))
RIGHT = each(variants, lambda right: right.function.__name__)


@pytest.mark.parametrize("slug", SLUGS)
def test_a_set_keeps_the_rules(slug):
    wrong = Counter(m.of for m in misconceptions(slug))
    right = Counter(v.of for v in variants(slug))
    whole, core = source(slug), source(slug, core=True)
    rules.keeps(rules.of_set(slug, whole, core, trial(slug, 0), wrong, right))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slug", SLUGS)
def test_solution_earns_full_marks_and_writes_nothing_to_stderr(slug, seed):
    for result in trial(slug, seed).run().values():
        assert result.full, f"{result.grade_id}: {result.score}/{result.points}\n{result.error}"
        assert result.stderr == ""


@pytest.mark.parametrize("slug", SLUGS)
def test_the_core_stands_alone_and_ends_in_something_to_look_at(slug, capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "Agg")
    import matplotlib.pyplot as plt

    tried = Trial(source(slug, core=True))
    for result in tried.run().values():
        assert result.full, f"{result.grade_id}: {result.error}"
    (look,) = tried.looks
    shown = []
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.gcf().axes))
    capsys.readouterr()
    exec(look, dict(tried.names))
    plt.close("all")
    assert capsys.readouterr().out or any(shown)


@pytest.mark.parametrize("slug", SLUGS)
def test_a_release_shows_no_oracle(slug):
    code = "\n".join(cell.source for cell in release(slug).cells if cell.cell_type == "code")
    assert f'load_oracles("{slug}")' in code
    assert not re.search(r"def right_|Probes\(", code)


@pytest.mark.parametrize(("slug", "wrong"), WRONG)
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


@pytest.mark.parametrize(("slug", "right"), RIGHT)
def test_variant_earns_full_marks(slug, right):
    for seed in SEEDS:
        for result in trial(slug, seed).run_with(right.of, right.function).values():
            assert result.full, f"{result.grade_id}\n{result.error}"


def lost(slug, seed, answers):
    """The test cells that take a point from a right answer."""
    same = trial(slug, 0)
    same.seed = seed
    try:
        with remembering(same.memo):
            results = [*same.run().values()]
        for right in answers:
            results += same.run_with(right.of, right.function).values()
    finally:
        same.seed = 0
    return {r.grade_id: f"seed {seed}: {r.error or r.stdout}" for r in results if not r.full}


# a kink between two differences; an entry of 72 that is small because large terms cancel
@pytest.mark.parametrize(
    ("slug", "seed"), [("09_transformer_block", 10642547), ("08_multi_head", 2067910092)]
)
def test_seeds_that_once_took_a_point_from_a_right_answer(slug, seed):
    assert not lost(slug, seed, variants(slug))


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("slug", SLUGS)
def test_no_right_answer_loses_a_point(slug):
    """Other seeds each night: 400 in 20 nights. What fails names its seed."""
    count = int(os.environ.get("ATTN_RIGHT_SEEDS", "20"))
    first = date.today().toordinal() * count
    for seed in range(first, first + count):
        assert not lost(slug, seed, variants(slug))


@pytest.mark.parametrize("slug", SLUGS)
def test_untouched_release_earns_nothing_and_says_not_started(slug):
    untouched = Trial(release(slug), seed=0)
    results = untouched.run()
    assert list(results) == list(trial(slug, 0).tests)
    for result in results.values():
        assert (result.score, result.not_started) == (0.0, True), str(result.error)
        assert "not started" in str(result.error)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_catalogue_and_the_variants_load(slug):
    assert misconceptions(slug)
    assert variants(slug)


@pytest.mark.parametrize("slug", SLUGS)
def test_small_changes_of_every_right_answer_can_be_made(slug):
    for of in {one.of for one in misconceptions(slug)}:
        answers = [model_answer(slug, of), *(v.function for v in variants(slug) if v.of == of)]
        answers += [one.right for one in misconceptions(slug) if one.of == of]
        made = [slips(of, a, more=more) for a in {*answers} - {None} for more in (False, True)]
        assert any(made), of


def late_definitions(cell):
    """Names that a cell defines only after a probe that may have failed."""
    late, early, failed = set(), set(), False
    for statement in ast.parse(cell).body:
        (late if failed else early).update(assigned(statement) - {"probe"})
        failed = failed or re.search(r"^probe\.[a-z]+\(", ast.unparse(statement)) is not None
    return late - early


@pytest.mark.parametrize("slug", SLUGS)
def test_no_test_cell_needs_what_a_failed_one_did_not_come_to(slug):
    """An oracle below a failing probe is never defined, and the next cell would cost points."""
    cells = [
        (cell.metadata["nbgrader"]["grade_id"], cell.source)
        for cell in source(slug).cells
        if cell.cell_type == "code" and cell.metadata.get("nbgrader", {}).get("grade")
    ]
    for place, (name, text) in enumerate(cells):
        late = late_definitions(text)
        for other, later in cells[place + 1 :]:
            assert late & loaded(later) == set(), f"{name} defines for {other}"


def test_the_order_of_definitions_is_seen():
    cell = "probe = 1\nx = 2\nprobe.equals(x)\ndef right(x):\n    return y\n"
    assert late_definitions(cell) == {"right"}
    assert "right" in loaded("probe.equals(right, x)\n")
    assert "right" not in loaded("right = 3\nprobe.equals(right)\n")


@pytest.mark.parametrize("slug", SLUGS)
def test_no_message_of_a_misconception_holds_a_line_of_the_solution(slug):
    lines = {
        " ".join(line.split())
        for cell in source(slug).cells
        for region in regions(cell)[1]
        for line in region.splitlines()
        if len(line.strip()) > 12
    }
    for wrong in misconceptions(slug):
        told = " ".join(wrong.message.split())
        assert [line for line in lines if line in told] == [], wrong.name


def test_the_harness_sees_a_misconception_that_loses_other_cells_than_declared():
    tried = trial("00_warm_up", 0)
    lost = {k for k, r in tried.run_with("stable_softmax", torch.sigmoid).items() if not r.full}
    assert lost != {"stable_softmax-values"}
    right = tried.run_with("stable_softmax", lambda scores, dim=-1: torch.softmax(scores, dim))
    assert {r.full for r in right.values()} == {True}


def test_a_swap_reaches_test_cells_through_other_functions():
    made = nbformat.v4.new_notebook()
    code = nbformat.v4.new_code_cell
    made.cells = [
        code("def inner(x):\n    return x"),
        code("class Outer:\n    def go(self, x):\n        return inner(x)"),
        code(
            "assert Outer().go(1) == 1",
            metadata={"nbgrader": {"grade": True, "grade_id": "outer-one", "points": 1}},
        ),
        code("0.5", metadata={"nbgrader": {"grade": True, "grade_id": "other-half", "points": 1}}),
    ]
    tried = Trial(made)
    assert {k: r.score for k, r in tried.run().items()} == {"outer-one": 1.0, "other-half": 0.5}
    assert tried.dependents("inner") == ["outer-one"]
    assert tried.run_with("inner", lambda x: 2)["outer-one"].score == 0.0
    assert tried.run()["outer-one"].score == 1.0
