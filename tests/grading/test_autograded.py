"""What a person sees of a hand-in is complete, and acts in no browser."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import classroom
import nbformat
import pytest
from nbgrader.utils import determine_grade

from attn_course.exercises.release import ReleaseError, prepared
from attn_course.exercises.submission import parse_notebook
from attn_course.exercises.testcell import TestResult as One
from attn_course.grading import autograded
from attn_course.grading.autograded import answers_in, graded_notebook, model_answers
from attn_course.grading.course import CourseError, hides_staff_cells, late_penalty, open_course
from attn_course.grading.results import Result
from attn_course.grading.staff import WithoutStaffCells

ROOT = Path(__file__).resolve().parents[2]

EVIL = [
    "<script>alert(1)</script>",
    "x\n\n<img src=x onerror=alert(1)>\n\n```\n<b>\n```\n",
    "</code></pre><svg onload=alert(1)>",
    "[here](javascript:alert(1)) \u2028[there](JaVa&#115;cript&colon;alert(1))",
    "[there]\n\n[there]: javascript:alert(1)",
    "<javascript:alert(1)> <!-- --> <?x ?> <![CDATA[<b>]]>",
    "![x](data:text/html,<script>alert(1)</script>)",
    "$\\href{javascript:alert(1)}{x}$",
    "[here](javascript\\:alert(1)) ![x](data\\:text/html,x)",
    "[there]\n\n[there]: vbscript\\:alert(1)",
    '$\\mmlToken{mi}[href="javascript: alert(1)"]{x}$',
    "![x](https://example.org/read.png) ![x](//example.org/read.png)",
    "![x][a] ![x](\\//example.org/a)\n\n[a]: https\\://example.org/read.png",
    "<https://example.org> ![x](HTTP:example.org/x)",
    "$\\style{background:url(/a)}{x}$ $\\bbox[background:url(/a)]{x}$",
    "\n> <b>1</b>\n- <i>2</i>\n\n    \n<b>3</b>",
]


@pytest.fixture(scope="module")
def release():
    course = open_course(Path("/nowhere"))
    saved, released = prepared(classroom.as_bytes(classroom.notebook()), "small", course)
    assert "unlikely-word-5b1e" in json.dumps(saved)
    assert "unlikely-word-5b1e" not in json.dumps(released)
    return released


def result(status="graded", **more):
    return Result(student="ada", assignment="small", status=status, **more)


def shown(data, found, release, **more):
    given = parse_notebook(data)["cells"] if found.status != "unreadable" else []
    page = json.loads(graded_notebook(given, found, release, **more))
    nbformat.validate(page)
    return page


def sources(page):
    return [cell["source"] for cell in page["cells"]]


TAGS = {"p", "pre", "code", "em", "a", "ul", "li", "blockquote", "span", "div", "img"}


class Tags(HTMLParser):
    """Tags of a page with their attributes."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, attrs))


def acts(evil, release):
    """Whether a tag or a link of the student's comes out of what nbgrader's pages do with it."""
    from nbconvert.filters import markdown2html

    found = classroom.notebook()
    found["cells"].append({"cell_type": "raw", "metadata": {}, "source": evil})
    data = classroom.answered({"report": evil}, found)
    page = shown(data, result("needs_review", reason=evil), release)
    assert {cell["cell_type"] for cell in page["cells"]} == {"code", "markdown"}
    texts = [cell["source"] for cell in page["cells"] if cell["cell_type"] != "code"]
    assert len(texts) == 3
    parser = Tags()
    parser.feed("".join(map(markdown2html, texts)))
    scheme = re.compile(r"(?i)\s*((javascript|data|vbscript|https?)\b\S*(:|&)|[/\\]{2})")
    links = "\\href", "\\mmlToken", "\\style", "\\bbox"
    return any(link in "".join(texts[1:]) for link in links) or any(
        tag not in TAGS
        or name.startswith("on")
        or (name in ("href", "src") and scheme.match(value or ""))
        for tag, attributes in parser.found
        for name, value in [("", ""), *attributes]
    )


@pytest.mark.parametrize("evil", EVIL)
def test_what_a_student_wrote_makes_no_tag_and_no_link(evil, release, monkeypatch):
    assert not acts(evil, release)
    monkeypatch.setattr(autograded, "_TAMED", ())
    assert acts(evil, release), "the control"


def test_outputs_and_metadata_of_a_student_are_left_behind(release):
    found = classroom.notebook()
    html = {"output_type": "display_data", "metadata": {}, "data": {"text/html": "<script>"}}
    for cell in found["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [html]
        cell["metadata"]["tags"] = ["mine"]
    found["metadata"]["widgets"] = {"evil": 1}
    page = shown(classroom.as_bytes(found), result(), release)
    assert "script" not in json.dumps(page)
    assert "mine" not in json.dumps(page)
    assert page["metadata"] == release["metadata"]


def test_pictures_in_an_answer_stay(release):
    found = classroom.notebook()
    good = {"a.png": {"image/png": "aGVsbG8="}}
    bad = {"b.svg": {"image/svg+xml": "PHN2Zz4="}, "c.png": {"image/png": '"><script>'}}
    found["cells"][-1]["attachments"] = good | bad
    named = " ".join(f"![x](attachment:{name})" for name in (*good, *bad, "none.png", "a.pngx"))
    page = shown(classroom.answered({"report": named}, found), result(), release)
    assert page["cells"][-1]["attachments"] == good
    assert re.findall(r"attachment:(\S+)\)", page["cells"][-1]["source"]) == ["a.png"]


def test_verdicts_stand_below_the_tests_and_hidden_tests_nowhere(release):
    tests = (One("double-values", 0.0, 2.0, "wrong sign"), One("squares-share", 3.0, 3.0))
    page = shown(classroom.answered({}), result(tests=tests), release)
    by_id = {cell["id"]: cell for cell in page["cells"]}
    assert by_id["double-values"]["outputs"][0]["text"] == "wrong sign\n"
    assert by_id["squares-share"]["outputs"] == []
    assert "unlikely-word-5b1e" not in json.dumps(page)
    assert by_id["report"]["metadata"]["nbgrader"]["points"] == 4.0


def test_an_edited_test_is_the_instructors_again_and_the_last_of_two_answers_counts(release):
    found = classroom.notebook()
    found["cells"].append({**found["cells"][1], "source": "def double(x): return 5"})
    data = classroom.answered({"squares-share": "3.0"}, found)
    data = data.replace(b"def double(x): return 5", b"def double(x): return 7")
    page = shown(data, result(), release)
    (double,) = (
        c for c in page["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == "double"
    )
    assert double["source"] == page["cells"][-1]["source"] == "def double(x): return 7"
    assert "enumerate(got)" in "".join(sources(page))


@pytest.mark.parametrize("lost", ["report", "double", "double-values", "setup"])
def test_a_cell_that_is_gone_is_back_in_its_place(lost, release):
    found = classroom.notebook()
    found["cells"] = [cell for cell in found["cells"] if cell["id"] != lost]
    page = shown(classroom.as_bytes(found), result(), release)
    assert [cell["id"] for cell in page["cells"]] == [cell["id"] for cell in release["cells"]]
    (cell,) = (cell for cell in page["cells"] if cell["id"] == lost)
    assert ("was missing" in cell["source"]) == (lost in ("report", "double"))


def test_what_cannot_be_read_has_a_page_that_says_so(release):
    page = shown(None, result("unreadable", reason="it is no notebook"), release)
    assert page["cells"][0]["source"] == "    unreadable: it is no notebook"
    assert [cell["id"] for cell in page["cells"][1:]] == [cell["id"] for cell in release["cells"]]


def test_a_model_answer_stands_below_the_students_and_in_no_feedback(release):
    notebook = classroom.as_bytes(classroom.notebook())
    page = shown(
        classroom.answered({"report": "Mine."}), result(), release, models=model_answers(notebook)
    )
    *_, answer, model = page["cells"]
    assert (answer["source"], "Write here." in model["source"]) == ("Mine.", True)
    step = WithoutStaffCells()
    kept, _ = step.preprocess(nbformat.reads(json.dumps(page), as_version=4), {})
    assert [cell["id"] for cell in kept.cells] == [cell["id"] for cell in release.cells]
    here, elsewhere = open_course(ROOT), open_course(Path("/nowhere"))
    assert (hides_staff_cells(here), hides_staff_cells(elsewhere)) == (True, False)


def test_more_text_than_a_person_reads_is_not_shown(release):
    found = classroom.notebook()
    found["cells"] += [{"cell_type": "markdown", "metadata": {}, "source": "<a://b " * 100_000}] * 7
    with pytest.raises(ValueError, match="a page shows"):
        shown(classroom.as_bytes(found), result(), release)


def test_half_characters_and_odd_cells_are_written_all_the_same(release):
    found = classroom.notebook()
    found["cells"] += [7, None, {"cell_type": []}, {"metadata": 3, "source": ["a", 1]}]
    data = classroom.as_bytes(found).replace(b"Write here.", b"half \\ud800 NUL \\u0000")
    page = shown(data, result(), release)
    assert any("half ? NUL" in source for source in sources(page))


def untouched(data, release):
    return autograded.untouched_answers(parse_notebook(data)["cells"], release)


def with_cells(release, *more, **sources):
    found = json.loads(classroom.answered(sources, release))
    found["cells"] += more
    return classroom.as_bytes(found)


def named(name, source):
    return {"cell_type": "markdown", "metadata": {"nbgrader": {"grade_id": name}}, "source": source}


def test_an_answer_left_as_released_is_the_one_to_which_nbgrader_gives_nothing(release):
    assert untouched(with_cells(release, double="mine"), release) == {"report"}
    assert untouched(with_cells(release, report="Mine."), release) == set()
    for data in (with_cells(release), with_cells(release, report="Mine.")):
        [cell] = [c for c in nbformat.reads(data, 4).cells if c.id == "report"]
        score, most = determine_grade(cell)
        assert (score == 0) == (untouched(data, release) == {"report"})
        assert most == 4.0


def test_an_answer_that_may_stand_elsewhere_waits_for_a_person(release):
    text = {"cell_type": "markdown", "metadata": {}, "source": "My answer."}
    again = named("report", "My answer.")
    raw, odd = {**text, "cell_type": "raw"}, named(["x"], "My answer.")
    for cell in (text, raw, again, odd, named("y", "z")):
        assert untouched(with_cells(release, cell), release) == set()
    for cell in ({**text, "source": " \n"}, {"cell_type": "code"}, 3):
        assert untouched(with_cells(release, cell), release) == {"report"}
    gone = [cell for cell in release.cells if cell.id != "report"]
    assert untouched(classroom.as_bytes({"cells": gone}), release) == set()


def test_earlier_answers_of_any_file(tmp_path):
    path = tmp_path / "x.ipynb"
    for content in ("", "[]", '{"cells": 3}', '{"cells": [3]}', "\xff"):
        path.write_text(content)
        assert set(answers_in(path)) <= {"None"}
    assert answers_in(tmp_path / "none.ipynb") == {}


def test_a_configuration_that_is_broken_or_a_notebook_that_nbgrader_refuses_is_one_line(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text("c = get_config()\nc.CourseDirectory.x = 1 / 0\n")
    with pytest.raises(CourseError, match=r"nbgrader_config\.py: ZeroDivisionError"):
        open_course(tmp_path)
    found = classroom.notebook()
    found["cells"][1]["source"] = "### BEGIN SOLUTION\nx = 1"
    with pytest.raises(ReleaseError, match="small: nbgrader refuses"):
        prepared(classroom.as_bytes(found), "small", open_course(Path("/nowhere")))


def test_the_late_policy_is_kept_between_nothing_and_the_score(tmp_path):
    (tmp_path / "nbgrader_config.py").write_text(
        'c = get_config()\nc.AssignLatePenalties.plugin_class = "policy_here.Hard"\n'
    )
    (tmp_path / "policy_here.py").write_text(
        "from nbgrader.plugins import BasePlugin\n"
        "class Hard(BasePlugin):\n"
        "    def late_submission_penalty(self, student_id, score, seconds):\n"
        "        return {'a': 100.0, 'b': -1.0, 'c': None}.get(student_id, seconds)\n"
    )
    course = open_course(tmp_path)
    kept = [late_penalty(course, name, 5.0, 2.0) for name in "abcd"]
    assert kept == [5.0, 0.0, None, 2.0]
    plain = SimpleNamespace(root=str(tmp_path), config=open_course(Path("/nowhere")).config)
    assert late_penalty(plain, "a", 5.0, 2.0) is None
