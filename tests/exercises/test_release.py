"""Releases: same text, same bytes; nothing stale, nothing given away, every fault in one line."""

import shutil
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from attn_course import __version__
from attn_course.cli import app
from attn_course.exercises import release as module
from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.release import (
    ReleaseError,
    build_releases,
    check_releases,
    find_leaks,
    find_root,
    make_notebooks,
)
from attn_course.exercises.source import find_slugs, read_exercise
from attn_course.exercises.submission import read_submission

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """# %% [markdown]
# # A small set

# %% nbgrader={"grade_id": "setup", "locked": true}
import math

# %% nbgrader={"grade_id": "double", "solution": true}
def double(x):
    ### BEGIN SOLUTION
    return x + x  # a secret way
    ### END SOLUTION


# %% nbgrader={"grade_id": "double-values", "grade": true, "points": 2}
assert double(2) == 4
### BEGIN HIDDEN TESTS
assert double(17) == 34
### END HIDDEN TESTS

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 1}
# The model answer that only graders read.
"""
SLUG = "42_small"


@pytest.fixture
def course(tmp_path):
    """A checkout with one small set."""
    (tmp_path / "nbgrader_config.py").touch()
    folder = tmp_path / "solutions" / SLUG
    folder.mkdir(parents=True)
    (folder / "exercise.py").write_text(SOURCE)
    return tmp_path


def source(course, **options):
    return read_exercise(course / "solutions" / SLUG / "exercise.py", **options)


def edit(course, old, new):
    path = course / "solutions" / SLUG / "exercise.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def released(course):
    return course / "exercises" / SLUG / f"{SLUG}.ipynb"


def problems(course):
    return check_releases(course, find_slugs(course))


@pytest.mark.parametrize("slug", find_slugs(ROOT))
def test_committed_release_is_what_its_source_makes_and_gives_nothing_away(slug):
    assert check_releases(ROOT, [slug]) == []


def test_no_release_lacks_a_source():
    folders = {p.parent.name for p in (ROOT / "exercises").glob("*/*.ipynb")}
    assert folders == set(find_slugs(ROOT))


def test_built_release_has_stubs_and_no_secrets(course):
    (path,) = build_releases(course, [SLUG])
    assert path == released(course)
    text = path.read_text()
    for secret in ("secret way", "x + x", "double(17)", "model answer", "BEGIN"):
        assert secret not in text
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = {cell["id"]: cell for cell in notebook.cells}
    assert "raise NotImplementedError" in cells["double"].source
    assert cells["double-values"].source == "assert double(2) == 4"
    assert "YOUR ANSWER HERE" in cells["report"].source
    assert cells["setup"].metadata.nbgrader.locked
    assert cells["setup"].metadata.editable is False
    counts = {"tests": {"double-values": 2}, "hidden": 1, "more": [], "minutes": {}}
    about = {"slug": SLUG, "solutions": ["double", "report"], "version": version(course)}
    assert notebook.metadata.attn_course == counts | about


LOOK = """# %% [markdown]
# ## 1. Twice

# %% nbgrader={"grade_id": "setup", "locked": true}"""
MORE = """# %% attn_course={"look": true}
raise SystemExit("a grader ran it")

# %% [markdown]
# # More

# %% [markdown]
# ## 2. Report

# %% [markdown] nbgrader={"grade_id": "report\""""


def test_the_heading_more_divides_a_set_and_core_leaves_out_what_follows(course):
    edit(course, '# %% nbgrader={"grade_id": "setup", "locked": true}', LOOK)
    edit(course, '# %% [markdown] nbgrader={"grade_id": "report"', MORE)
    whole, core = source(course), source(course, core=True)
    # 5 to start, 2.5 for a line, 2 for a test; 5 to start, 30 for a person's reading
    assert whole.metadata["attn_course"]["minutes"] == {"double": 10, "report": 35}
    assert whole.metadata["attn_course"]["more"] == ["report"]
    text = "\n".join(cell.source for cell in whole.cells)
    assert "*About 10 minutes, 2 points.*" in text
    assert "about 10 minutes for 2 points, and there is more: 35 minutes, 1 points" in text
    assert [cell.id for cell in core.cells] == [cell.id for cell in whole.cells][: len(core.cells)]
    assert core.metadata["attn_course"]["solutions"] == ["double"]
    found = load_assignment(nbformat.writes(whole).encode(), SLUG)
    assert found.more == ("report",)
    assert not [source for source in found.locked.values() if "a grader ran it" in source]
    handed = read_submission(whole, found)
    assert not [cell for cell in handed.cells if "a grader ran it" in cell["source"]]
    assert CliRunner().invoke(app, ["exercises", "build", "--help"]).output.count("--core")
    (release,) = build_releases(course, [SLUG], core=True)
    assert "report" not in release.read_text()


def version(course):
    return source(course).metadata["attn_course"]["version"]


@pytest.mark.parametrize(("old", "new", "counts"), [
    ("# # A small set", "# # A *small* set", False),
    ("The model answer that only graders read", "Another model answer", False),
    ("import math", "import math, cmath", True),
    ("double(17) == 34", "double(18) == 36", True),
    ('"points": 2', '"points": 3', True),
    ('"solution": true}\nd', '"solution": true} attn_course={"forbidden": ["sum"]}\nd', True),
])  # fmt: skip
def test_a_version_is_of_what_decides_a_mark(course, old, new, counts):
    before = version(course)
    package, _, digest = before.partition("+")
    assert package == __version__
    assert len(digest) == 8
    assert old in SOURCE
    edit(course, old, new)
    assert (version(course) != before) is counts


def test_same_text_gives_same_bytes_and_untouched_files(course):
    (path,) = build_releases(course, [SLUG])
    before = path.stat().st_mtime_ns
    made = make_notebooks(course, SLUG)
    assert made[1] == path.read_bytes()
    assert made == make_notebooks(course, SLUG)
    build_releases(course, [SLUG])
    assert path.stat().st_mtime_ns == before
    assert problems(course) == []


def test_a_cell_keeps_its_id_when_another_comes_before_it(course):
    before = {cell["id"] for cell in source(course).cells}
    edit(course, "# # A small set", "# # A small set\n\n# %% [markdown]\n# New.")
    after = {cell["id"] for cell in source(course).cells}
    assert before < after


def test_two_equal_texts_get_two_ids(course):
    edit(course, "# # A small set", "# Same.\n\n# %% [markdown]\n# Same.")
    ids = [cell["id"] for cell in source(course).cells]
    assert len(ids) == len(set(ids))


def test_missing_stale_and_orphaned_releases_are_told(course):
    assert "is missing: make exercises" in problems(course)[0]
    build_releases(course, [SLUG])
    edit(course, "double(2) == 4", "double(3) == 6")
    assert "is out of date: make exercises" in problems(course)[0]
    build_releases(course, [SLUG])
    shutil.copytree(course / "exercises" / SLUG, course / "exercises" / "41_gone")
    assert problems(course) == ["41_gone: a release without solutions/: delete it"]
    (course / "exercises" / SLUG / "solution.txt").touch()
    assert "files that no source makes: solution.txt" in problems(course)[0]


@pytest.mark.parametrize("planted", [
    "    return x + x",
    "return  x+x",
    "y = 1\nassert double(17) == 34",
    "# The model answer that only graders read.".removeprefix("# "),
    "### BEGIN SOLUTION",
])  # fmt: skip
def test_a_leak_is_found_however_it_is_spaced(course, planted):
    build_releases(course, [SLUG])
    notebook = nbformat.read(released(course), as_version=4)
    ours = source(course)
    assert find_leaks(ours, notebook) == []
    notebook.cells[0].source += f"\n{planted}"
    (found,) = find_leaks(ours, notebook)
    assert "holds a hidden line" in found


def test_the_build_itself_refuses_a_leak(course, monkeypatch):
    edit(course, "import math", "import math\nneeded = 1\nassert double(17) == 34 if 0 else 1")
    build_releases(course, [SLUG])
    leaking = nbformat.from_dict(source(course))
    monkeypatch.setattr(module, "prepared", lambda *_: (leaking, leaking))
    with pytest.raises(ReleaseError, match="'double' holds a hidden line of"):
        build_releases(course, [SLUG])


@pytest.mark.parametrize(("old", "new", "words"), [
    ('"grade_id": "double",', '"grade_id": "no spaces",', "grade_id: expected up to 64"),
    ('"grade_id": "double",', "", "grade_id: expected up to 64"),
    ('"grade_id": "setup",', '"grade_id": "double",', "is used twice"),
    (', "points": 2}', "}", "has no points"),
    ('"locked": true}', '"locked": true, "points": 3}', "has points but is not graded"),
    ('"locked": true}', '"lokced": true}', "unknown nbgrader metadata"),
    ("    ### END SOLUTION\n", "", "do not pair up"),
    ("### END HIDDEN TESTS\n", "", "do not pair up"),
    ("import math", "### BEGIN SOLUTION\nimport math\n### END SOLUTION", "would be released"),
    (
        "import math",
        "### BEGIN HIDDEN TESTS\nimport math\n### END HIDDEN TESTS",
        "would be released",
    ),
    (
        "    ### BEGIN SOLUTION\n    return x + x  # a secret way\n    ### END SOLUTION\n",
        "    return x + x\n",
        "needs a region",
    ),
    ("def double(x):", "def double(x:", "not Python"),
    ("double-values", "triple-values", "expected <function>-<property>"),
])  # fmt: skip
def test_a_faulty_source_is_refused_in_one_line(course, old, new, words):
    edit(course, old, new)
    with pytest.raises(ReleaseError, match=words) as caught:
        make_notebooks(course, SLUG)
    assert "\n" not in str(caught.value)


def test_what_nbgrader_refuses_is_told_with_its_reason(course, monkeypatch):
    from nbgrader.preprocessors import LockCells

    def refuse(*args):
        raise ValueError("the reason")

    monkeypatch.setattr(LockCells, "preprocess", refuse)
    with pytest.raises(ReleaseError, match="nbgrader refuses .* notebook: the reason"):
        make_notebooks(course, SLUG)


def test_a_checkout_is_found_from_inside_and_told_where_there_is_none(course, tmp_path_factory):
    assert find_root(course / "solutions" / SLUG) == course
    with pytest.raises(ReleaseError, match="no checkout"):
        find_root(tmp_path_factory.mktemp("elsewhere"))


def test_the_commands_say_it_in_one_line_and_exit_with_a_status(course, monkeypatch):
    monkeypatch.chdir(course)
    run = CliRunner()
    missing = run.invoke(app, ["exercises", "check"])
    assert (missing.exit_code, "is missing" in missing.output) == (1, True)
    built = run.invoke(app, ["exercises", "build"])
    assert (built.exit_code, built.output.strip()) == (0, f"exercises/{SLUG}/{SLUG}.ipynb")
    assert run.invoke(app, ["exercises", "check"]).exit_code == 0
    assert run.invoke(app, ["exercises", "build", "--check"]).exit_code == 0
    listed = run.invoke(app, ["exercises", "list"])
    assert listed.output.strip() == f"{SLUG}  3 points  double"
    unknown = run.invoke(app, ["exercises", "build", "nothing"])
    assert unknown.exit_code == 2
    assert "no exercise set 'nothing'; there are: 42_small" in unknown.output
    edit(course, "def double(x):", "def double(x:")
    for command in ("build", "check", "list"):
        faulty = run.invoke(app, ["exercises", command])
        assert (faulty.exit_code, "not Python" in faulty.output) == (1, True)
        assert "Traceback" not in faulty.output
