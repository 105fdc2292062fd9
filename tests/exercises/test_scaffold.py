"""What ``attn-course new chapter`` lays out runs, and the author is told all that is missing."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import rules
from trial import Trial
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.exercises.release import build_releases, check_releases
from attn_course.exercises.source import read_exercise
from attn_course.probes import catalogue

ROOT = Path(__file__).resolve().parents[2]
SLUG = "22_my_topic"


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A checkout with the new chapter and no other."""
    for name in ("nbgrader_config.py", "book/_config.yml", "book/_toc.yml", "book/claims.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "tools" / "new_chapter", tmp_path / "tools" / "new_chapter")
    (tmp_path / "solutions").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogue, "_PACKAGE", tmp_path / "attn_course")
    made = CliRunner().invoke(app, ["new", "chapter", SLUG])
    assert made.exit_code == 0, made.output
    return tmp_path


def test_a_new_chapter_builds_and_its_set_does_what_it_declares(course):
    (release,) = build_releases(course, [SLUG])
    assert release.is_file()
    assert check_releases(course, [SLUG]) == []
    folder = course / "solutions" / SLUG
    tried = Trial(read_exercise(folder / "exercise.py"))
    assert all(result.full for result in tried.run().values())
    found = catalogue.collect(catalogue.load_module(folder / "misconceptions.py", "new_wrong"))
    for wrong in found.misconceptions:
        results = tried.run_with(wrong.of, wrong.function).values()
        assert {r.grade_id for r in results if not r.full} == set(wrong.fails)
        assert {r.misconception for r in results if not r.full} == {wrong.name}
    for right in catalogue.collect_variants(catalogue.load_module(folder / "variants.py", "new")):
        assert all(r.full for r in tried.run_with(right.of, right.function).values())


def test_every_rule_that_a_new_chapter_breaks_is_a_sentence_and_all_are_told(course):
    path = course / "solutions" / SLUG / "exercise.py"
    whole, core = read_exercise(path), read_exercise(path, core=True)
    page = (course / "book" / "chapters" / f"{SLUG}.md").read_text()
    counts = Counter({"row_means": 4}), Counter({"row_means": 2, "gone": 1})
    with pytest.raises(pytest.fail.Exception) as told:
        rules.keeps(
            [*rules.of_chapter(SLUG, page), *rules.of_set(SLUG, whole, core, Trial(whole), *counts)]
        )
    assert str(told.value).splitlines() == [
        f"{SLUG}: {rule}."
        for rule in (
            "a chapter has 6 {quiz} or more, not 0",
            "a chapter has 1 {explorer} or more, not 0",
            "a chapter has 1 {source} or more, not 0",
            "a chapter has 5 cells with a check (assert) or more, not 1",
            "the core, before '# More', takes 60 to 90 minutes, not 10",
            "the core has 2 to 5 graded functions, not 1",
            "graded functions follow the heading '# More'",
            "one cell with look=true uses two graded functions of the core",
            "a set has 3 graded functions or more, not 1",
            "a set has a program to mend (fixed_...)",
            "a set has a test to write (check_... or accepts_...)",
            "row_means has 6 misconceptions or more, not 4",
            "gone has misconceptions or variants, so a test cell uses it",
        )
    ]


def test_a_chapter_that_is_there_or_has_no_slug_is_refused(course):
    for slug, words in ((SLUG, "is there already"), ("my_topic", "expected two digits")):
        again = CliRunner().invoke(app, ["new", "chapter", slug])
        assert (again.exit_code, words in again.output) == (2, True)
