"""Private variants: right answers earn full marks, mistakes are named, copies earn little."""

import json
import random
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest
from sets import ROOT, SLUGS, answers, filled, misconceptions, variants
from trial import Trial
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.exercises.check import check_notebook
from attn_course.exercises.release import check_releases, make_notebooks
from attn_course.exercises.source import read_exercise
from attn_course.exercises.vary import (
    VaryError,
    draw_convention,
    new_secret,
    read_secret,
    release_variants,
    tag_of,
    vary,
)
from attn_course.probes.varied import Convention

TEXT = "5bd1e995a7c3f0428e6d1b9f3c70d2e4"
SECRET, OTHER = read_secret(TEXT), read_secret("c0ffee0123456789abcdef9876543210")
SAMPLE = ("07_scaled_dot_product", "12_looking_inside", "16_gpu_memory")


@cache
def convention(slug, secret=SECRET):
    return Convention(slug, **draw_convention(ROOT, slug, secret))


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return tmp_path_factory.mktemp("variants")


@pytest.fixture(scope="module")
def trial(course):
    @cache
    def made(slug):
        name = vary(ROOT, slug, SECRET, course)
        return Trial(read_exercise(course / "solutions" / name / "exercise.py"))

    return made


def sampled(found, count, slug):
    return random.Random(slug).sample(found, min(count, len(found)))


@pytest.mark.parametrize("slug", SLUGS)
def test_the_model_answer_of_a_variant_earns_full_marks(slug, trial):
    for result in trial(slug).run().values():
        assert result.full, f"{result.grade_id}\n{result.error}"
        assert result.stderr == ""


@pytest.mark.parametrize("slug", SLUGS)
def test_a_mistake_in_a_variant_is_caught_and_named_as_in_the_set(slug, trial):
    for wrong in sampled(misconceptions(slug), 4, slug):
        new = convention(slug).functions[wrong.of]["name"]
        function = convention(slug).adapted(wrong.of, wrong.function, back=True)
        results = trial(slug).run_with(new, function)
        lost = {r.grade_id: r for r in results.values() if not r.full}
        assert set(lost) == {f.replace(wrong.of, new, 1) for f in wrong.fails}, wrong.name
        for result in lost.values():
            if result.error is not None:
                assert result.misconception == wrong.name, str(result.error)
                told = str(result.error)
                assert told.startswith(f"{new}: ")
                assert f"{wrong.of}(" not in told.replace(f"{new}(", "")


@pytest.mark.parametrize("slug", SLUGS)
def test_a_right_answer_in_a_variant_is_not_blamed(slug, trial):
    for right in sampled(variants(slug), 2, slug):
        new = convention(slug).functions[right.of]["name"]
        function = convention(slug).adapted(right.of, right.function, back=True)
        for result in trial(slug).run_with(new, function).values():
            assert result.full, f"{result.grade_id}\n{result.error}"


def copied(slug, course, *, renamed):
    """A variant with the public answers in it, as they are or with names replaced."""
    name = f"{slug}_{tag_of(SECRET)}"
    notebook = read_exercise(course / "solutions" / name / "exercise.py")
    about, cells = convention(slug), {}
    for cell, text in answers(slug).items():
        new = about.functions.get(cell, {}).get("name", cell)
        if renamed:
            for old, one in about.functions.items():
                text = re.sub(rf"(?<![.\w]){old}\b", one["name"], text)
            for old, one in about.arguments.items():
                text = re.sub(rf'(?<![.\w"]){old}\b(?!")', one, text)
        cells[new] = text
    return filled(notebook, cells)


@pytest.mark.parametrize(("slug", "most"), [("07_scaled_dot_product", 2), ("12_looking_inside", 7)])
def test_a_copied_answer_earns_nothing_and_little_with_names_replaced(slug, most, trial, course):
    trial(slug)
    for result in Trial(copied(slug, course, renamed=False)).run().values():
        assert result.score == 0.0, result.grade_id
    earned = Trial(copied(slug, course, renamed=True)).run().values()
    assert sum(result.score for result in earned) <= most


def test_the_same_secret_gives_the_same_variant_and_another_one_another(tmp_path):
    slug = "07_scaled_dot_product"
    made = []
    for place, secret in (("one", SECRET), ("two", SECRET), ("three", OTHER)):
        name = vary(ROOT, slug, secret, tmp_path / place)
        made.append((tmp_path / place / "solutions" / name / "exercise.py").read_text())
    assert made[0] == made[1]
    assert made[0] != made[2]
    orders = [[f["order"] for f in convention(slug, s).functions.values()] for s in (SECRET, OTHER)]
    assert orders[0] != orders[1]


@pytest.mark.parametrize(
    "text", ["7", "new ", "0" * 64, "5bd1e995a7c3f0428e6d1b9f3c70d2e", "x" * 40]
)
def test_a_secret_of_less_than_128_bits_is_refused(text):
    with pytest.raises(VaryError, match="128 bits"):
        read_secret(text)
    assert read_secret(new_secret()) != read_secret(new_secret())


def test_a_folder_that_git_would_take_in_is_refused():
    with pytest.raises(VaryError, match="outside of git"):
        release_variants(ROOT, ["00_warm_up"], SECRET, ROOT / "tests" / "exercises")


def test_no_text_of_a_variant_says_what_the_book_means_by_true(trial, course):
    text = ""
    for slug in SLUGS:
        trial(slug)
        notebook = read_exercise(course / "solutions" / f"{slug}_{tag_of(SECRET)}" / "exercise.py")
        cells = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
        text += "\n".join(cell.source for cell in cells)
    assert text.count("`False` means: ") >= 4
    assert "False = may attend" in text
    assert not re.search(r"True`? (means|=) |`True` at real|`True` where", text)
    for slug in SLUGS:
        for of, about in convention(slug).functions.items():
            assert not re.search(rf"(?<![.\w]){of}\((?!\))", text.replace("torch's own", "")), of
            assert f"`{about['name']}" in text


@pytest.mark.parametrize("slug", SAMPLE)
def test_a_release_of_a_variant_is_consistent_and_tells_nothing_of_the_secret(slug, course):
    (path,) = release_variants(ROOT, [slug], SECRET, course)
    name = path.stem
    assert path == course / "exercises" / name / f"{name}.ipynb"
    assert check_releases(course, [name]) == []
    written = path.read_text()
    assert TEXT not in written
    assert SECRET.decode() not in written
    assert "BEGIN" not in written
    untouched = Trial(nbformat.reads(written, as_version=4)).run()
    assert all(r.not_started for r in untouched.values())


def test_a_learner_checks_a_variant_with_its_own_visible_tests(course):
    slug = "12_looking_inside"
    (path,) = release_variants(ROOT, [slug], SECRET, course)
    whole, _ = make_notebooks(course, path.stem)
    notebook = json.loads(whole)
    lonely = Path(path).with_name("mine.ipynb")
    lonely.write_text(json.dumps(notebook))
    try:
        result = check_notebook(lonely, seed=1)
    finally:
        lonely.unlink()
    assert result.passed, [(t.grade_id, t.state, t.message) for t in result.tests]
    assert result.hidden_inputs  # the sources of the variant lie above it


def test_the_command_draws_a_secret_and_prints_it_once(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    made = CliRunner().invoke(
        app, ["exercises", "vary", "--seed", "new", "--out", str(tmp_path), "16_gpu_memory"]
    )
    assert made.exit_code == 0, made.output
    (drawn,) = re.findall(r"--seed ([0-9a-f]{32})", made.output)
    (path,) = tmp_path.glob("exercises/*/*.ipynb")
    assert drawn not in path.read_text()
    short = CliRunner().invoke(app, ["exercises", "vary", "--seed", "7", "--out", str(tmp_path)])
    assert (short.exit_code, "128 bits" in short.output) == (2, True)
