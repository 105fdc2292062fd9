"""``attn-course check``: what a learner sees for every state that a notebook can be in."""

import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest
import sets
from nbformat.v4 import new_code_cell, new_notebook
from processes import python
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.exercises import check
from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.check import CheckedTest, causes, check_notebook

SET = "00_warm_up"


def handed_in(folder, slug, changes=(), drop=(), first=()):
    """The release with right answers, some of them changed, some cells lost."""
    notebook = sets.filled(sets.release(slug), sets.answers(slug) | dict(changes))
    kept = [cell for cell in notebook.cells if sets.name_of(cell) not in drop]
    notebook.cells = [*map(new_code_cell, first), *kept]
    path = folder / f"{slug}.ipynb"
    nbformat.write(notebook, path)
    return path


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """One notebook with many faults, checked once."""
    changes = {
        "stable_softmax": "def stable_softmax(x, dim=-1):\n"
        "    import torch\n    return torch.softmax(x, dim)",
        "logsumexp": "def logsumexp(x, dim=-1):\n    return x.exp().sum(dim=dim).log()",
        "masked_softmax": "def masked_softmax(x:\n    return x",
        "cosine_similarity": "def cosine_similarity(q, k):\n    while True:\n        pass",
        "weighted_mean": "import os\ndef weighted_mean(weights, values):\n    os._exit(3)",
        "check_softmax": "def check_softmax(candidate):\n    raise NotImplementedError",
    }
    folder, first = tmp_path_factory.mktemp("check"), ["%matplotlib inline\n1 / 0"]
    path = handed_in(folder, SET, changes, first=first)
    before = path.read_bytes()
    result = check_notebook(path, timeout=5, seed=0)
    assert path.read_bytes() == before
    return result


def test_every_state_is_told_apart_and_nothing_else_is_lost(mixed):
    states = {}
    for test in mixed.tests:
        states.setdefault(test.grade_id.split("-")[0], set()).add(test.state)
    assert states["stable_softmax"] == {"wrong"}
    assert states["logsumexp"] == {"ok", "wrong"}
    assert states["masked_softmax"] <= {"wrong", "error"}
    assert states["cosine_similarity"] == {"timeout"}
    assert states["weighted_mean"] == {"error"}
    assert states["check_softmax"] == {"not started"}
    assert mixed.hidden_inputs
    assert not mixed.passed


def test_a_forbidden_shortcut_is_told_here_as_by_the_grader(mixed):
    told = {test.grade_id: test.message for test in mixed.tests}
    assert "write it yourself" in told["stable_softmax-values"]
    assert "SyntaxError" in told["masked_softmax-shapes"]
    assert "longer than 5 s" in told["cosine_similarity-values"]
    assert "the process ended" in told["weighted_mean-values"]
    notes = " | ".join(mixed.notes)
    assert "ZeroDivisionError" in notes
    assert "SyntaxError" in notes


def test_an_answer_imported_from_the_course_is_refused(tmp_path):
    answer = "from attn_course.reference import softmax as stable_softmax"
    result = check_notebook(handed_in(tmp_path, SET, {"stable_softmax": answer}), seed=0)
    tests = [t for t in result.tests if t.grade_id.startswith("stable_softmax-")]
    assert {t.score for t in tests} == {0.0}
    assert "not available to a submission" in tests[0].message


def test_one_cause_is_one_block(mixed):
    blocks = causes(mixed.tests)
    first = next([test.grade_id for test in block] for block in blocks)
    assert len(first) > 1
    assert all(grade_id.startswith("stable_softmax-") for grade_id in first)


@pytest.mark.parametrize("slug", sets.SLUGS)
def test_right_answers_have_full_marks_and_nothing_to_note(tmp_path, slug):
    result = check_notebook(handed_in(tmp_path, slug), seed=1)
    assert [(t.grade_id, t.message) for t in result.tests if t.state != "ok"] == []
    assert result.notes == []
    assert result.passed
    assert result.hidden_inputs


def test_without_the_sources_the_visible_tests_run_and_the_rest_is_counted(tmp_path, monkeypatch):
    wrong = "def logsumexp(x, dim=-1):\n    return x.exp().sum(dim=dim).log()"
    path = handed_in(tmp_path, SET, {"logsumexp": wrong})
    monkeypatch.setattr(check, "_CHECKOUT", tmp_path / "nowhere")
    result = check_notebook(path, seed=0)
    assert not result.hidden_inputs
    assert result.untested_properties > 10
    done = CliRunner().invoke(app, ["check", str(path)])
    assert f"{result.untested_properties} properties are untested" in done.output


def test_an_older_release_is_checked_by_the_tests_of_today_and_told_so(tmp_path):
    path = handed_in(tmp_path, SET)
    ours = nbformat.read(path, as_version=4).metadata["attn_course"]["version"]
    path.write_text(path.read_text().replace(ours, "0.0.9+ffff0000"))
    result = check_notebook(path, seed=0)
    assert result.passed
    first, second = result.notes
    assert first == f"another version of the set: 0.0.9+ffff0000; graded by {ours}"
    assert f"exercises/{SET}/{SET}.ipynb" in second


def test_a_lost_answer_costs_its_own_tests(tmp_path):
    result = check_notebook(handed_in(tmp_path, SET, drop=("logsumexp",)), seed=0)
    lost = {t.grade_id: t.message for t in result.tests if t.state != "ok"}
    assert set(lost) == {t.grade_id for t in result.tests if t.grade_id.startswith("logsumexp-")}
    assert set(lost.values()) == {"logsumexp: its cell is missing"}


@pytest.mark.parametrize(("name", "content", "words"), [
    ("none.ipynb", None, "No such file"),
    ("text.py", "x = 1", "not a notebook"),
    ("broken.ipynb", "{", "it is not JSON"),
    ("old.ipynb", "[]", "no notebook"),
    ("binary.ipynb", b"\xff\xfe\x00", "not UTF-8"),
    ("cells.ipynb", '{"cells": 3, "metadata": {}, "nbformat": 4}', "no list of cells"),
    ("other.ipynb", json.dumps(new_notebook()), "automatic test cell"),
])  # fmt: skip
def test_what_cannot_be_run_is_one_line_and_status_two(tmp_path, name, content, words):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 2
    assert words in done.output
    assert done.output.count("\n") == 1


def test_a_right_notebook_exits_with_zero_and_json_is_plain(tmp_path):
    done = CliRunner().invoke(app, ["check", "--json", str(handed_in(tmp_path, SET))])
    assert done.exit_code == 0
    (found,) = json.loads(done.output)
    assert found["passed"]
    assert found["hidden_inputs"]
    assert sum(test["score"] for test in found["tests"]) > 30
    assert all(test["score"] == test["max"] for test in found["tests"])


def test_core_and_more_are_told_apart(tmp_path):
    tests = [CheckedTest("f-a", 3.0, 4), CheckedTest("f-b", 0.0, 2), CheckedTest("g-a", 1.0, 5)]
    result = check.NotebookResult("x.ipynb", tests=tests, more=("g",))
    assert check._earned(result) == "Core: 3 of 6 points; more: 1 of 5"
    result.more = ()
    assert check._earned(result) == "4 of 11 points"
    done = CliRunner().invoke(app, ["check", str(handed_in(tmp_path, SET))])
    assert re.search(r"Core: (\d+) of \1 points; more: (\d+) of \2\.", done.output)


def test_a_set_up_that_fails_is_told_first_and_alone(tmp_path, monkeypatch):
    def broken(*args):
        found = load_assignment(*args)
        found.locked["setup"] = "import attn_course.nowhere"
        return found

    monkeypatch.setattr(check, "load_assignment", broken)
    result = check_notebook(handed_in(tmp_path, SET), seed=0)
    changed, note = result.notes  # the notebook's own cell differs from the broken one
    assert "setup" in changed
    assert "'setup': ModuleNotFoundError: No module named 'attn_course.nowhere'" in note
    assert {test.state for test in result.tests} == {"not run"}
    assert causes(result.tests) == []


def test_the_same_cause_with_other_numbers_is_one_block():
    causes_of = ("it is 1/2, a size", "it is 1/11, a size", "something else")
    tests = [
        CheckedTest(f"f-{i}", 0.0, 1, "m", state="wrong", parts={"likely cause": cause})
        for i, cause in enumerate(causes_of)
    ]
    assert [len(block) for block in causes(tests)] == [2, 1]


def test_a_report_is_told_in_its_own_parts(mixed):
    tests = [t for t in mixed.tests if t.function == "logsumexp" and t.state == "wrong"]
    for test in tests:
        assert next(iter(test.parts)) == "symptom"
        for label, text in test.parts.items():
            assert f"{label}: {text}" in " ".join(test.message.split())


def test_the_command_line_imports_nothing_heavy():
    code = (
        "import sys; import attn_course.cli, attn_course.exercises.check; "
        "print([m for m in ('torch', 'numpy', 'nbformat') if m in sys.modules])"
    )
    assert python("-c", code).stdout == "[]\n"


def test_nothing_is_left_behind(tmp_path):
    path = handed_in(tmp_path, SET, first=["open('left.txt', 'w').write('x')"])
    check_notebook(path, seed=0)
    left = [p for p in (tmp_path, Path.cwd()) if (p / "left.txt").exists()]
    for folder in left:
        (folder / "left.txt").unlink()
    assert left == []
    shutil.rmtree(tmp_path)


HIDE = """import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "triton":
            raise ModuleNotFoundError("No module named 'triton'", name="triton")
sys.meta_path.insert(0, Hide())
"""


def test_without_triton_a_right_answer_loses_its_kernel_and_nothing_else(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(HIDE)
    path = handed_in(tmp_path, "17_flash_attention")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(sets.ROOT)])}
    checks = ("-m", "attn_course.cli", "check", path, "--json")
    done = python(*checks, env=environment, succeeds=False)
    (found,) = json.loads(done.stdout)
    lost = {test["grade_id"].split("-")[0] for test in found["tests"] if test["state"] != "ok"}
    assert lost == {"flash_causal"}
    assert "Triton has wheels for Linux on x86-64 only" in done.stdout
