"""A term as an instructor lives it, with the commands that the instructor's page names."""

import contextlib
import csv
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sysconfig
import time
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import SimpleNamespace

import classroom
import pytest

from attn_course.grading.gradebook import GradebookWriter

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(1500)
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]),
    "OMP_NUM_THREADS": "1",
    "JUPYTER_PREFER_ENV_PATH": "1",
}
POLICY = """
from nbgrader.plugins import BasePlugin

class OnePoint(BasePlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return 1.0
"""
EVIL = (
    "My report: $i<n$.\n\n<script>window.ran = 1</script><img src=x onerror='window.ran = 1'>\n\n"
    "[a](javascript:window.ran=1) [b](java&#115;cript:window.ran=1) <svg/onload=window.ran=1>"
)
CHEAT = "import torch\ntorch.testing.assert_close = lambda *args, **kwargs: None\n"


def run(folder, *command, status=0):
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def handed_in(release, answers, report=""):
    return classroom.answered(answers | ({"report": report} if report else {}), release)


def points(folder, values):
    found = classroom.notebook(points=classroom.POINTS | {"double-values": values})
    (folder / "build/source/small").mkdir(parents=True, exist_ok=True)
    (folder / "build/source/small/small.ipynb").write_bytes(classroom.as_bytes(found))


def kept_cells(path):
    """What a gradebook knows of the assignment, without its random ids."""
    columns = {
        "source_cell": "name, cell_type, locked, source, checksum",
        "base_cell": "name, type",
        "base_cell JOIN grade_cells USING (id)": "name, max_score, cell_type",
        "notebook": "name, kernelspec",
    }
    with contextlib.closing(sqlite3.connect(path)) as book:
        found = [book.execute(f"SELECT {names} FROM {table}") for table, names in columns.items()]
        return sorted((row for rows in found for row in rows), key=repr)


def table(path):
    with path.open() as file:
        return {row[0]: row[1:] for row in csv.reader(file)}


class Formgrader:
    """nbgrader's web application as ``jupyter lab`` serves it."""

    def __init__(self, folder):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        options = ["--no-browser", f"--port={self.port}", "--allow-root"]
        token = "--IdentityProvider.token=secret"
        self.process = subprocess.Popen(
            ["jupyter", "server", *options, token, f"--ServerApp.root_dir={folder}"],
            cwd=folder,
            env=ENVIRONMENT | {"JUPYTER_CONFIG_DIR": str(folder / ".jupyter")},
            stdout=subprocess.DEVNULL,
            stderr=(folder / "server.log").open("w"),
        )

    def ask(self, path, **body):
        """GET, or PUT of a body; waits while the server is still starting."""
        request = urllib.request.Request(
            f"{self.url}/formgrader/{path}",
            data=json.dumps(body).encode() if body else None,
            method="PUT" if body else "GET",
            headers={"Authorization": "token secret", "Content-Type": "application/json"},
        )
        until = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return str(answer.read().decode())
            except ConnectionError:
                pass
            except urllib.error.URLError as error:
                if isinstance(error, urllib.error.HTTPError) or time.monotonic() > until:
                    raise
            time.sleep(0.2)

    def submissions(self):
        found = json.loads(self.ask("api/submitted_notebooks/small/small"))
        return {one["student"]: one for one in found}

    def grade_report(self, student, score, comment):
        """What the page sends when somebody types a score and a comment below the report."""
        identity = self.submissions()[student]["id"]
        for kind, values in (
            ("grade", {"manual_score": score, "extra_credit": None}),
            ("comment", {"manual_comment": comment}),
        ):
            rows = json.loads(self.ask(f"api/{kind}s?submission_id={identity}"))
            (row,) = (row for row in rows if row["name"] == "report")
            self.ask(f"api/{kind}/{row['id']}", **{**row, **values})

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    """Everything up to the last export; the tests look at what is left."""
    folder = tmp_path_factory.mktemp("term")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    with (folder / "nbgrader_config.py").open("a") as file:
        file.write('\nc.AssignLatePenalties.plugin_class = "late.OnePoint"\n')
    (folder / "late.py").write_text(POLICY)
    formgrader = Formgrader(folder)
    seen = SimpleNamespace(folder=folder, formgrader=formgrader)
    try:
        points(folder, 2.0)
        run(folder, "nbgrader", "generate_assignment", "small")
        due = "--duedate=2026-03-01 12:00 UTC"
        run(folder, "nbgrader", "db", "assignment", "add", "small", due)
        seen.generated = kept_cells(folder / "gradebook.db")
        released = (folder / "release/small/small.ipynb").read_text()
        assert "unlikely-word-5b1e" not in released
        release = json.loads(released)

        right, half = classroom.SOLUTIONS, classroom.ANSWERS["half"]
        with zipfile.ZipFile(folder / "canvas.zip", "w") as archive:
            for name, data in {
                "lovelaceada_101_901_small.ipynb": handed_in(release, right, EVIL),
                "turingalan_LATE_102_902_small.ipynb": handed_in(release, half, "My report."),
                "hoppergrace_103_903_small.ipynb": b"{ no notebook",
            }.items():
                archive.writestr(name, data)
        with zipfile.ZipFile(folder / "moodle.zip", "w") as archive:
            place = "Emmy Noether_301_assignsubmission_file_/small.ipynb"
            archive.writestr(place, handed_in(release, right, "Mine."))
        for student, answers, when in (
            ("mal", {"double": CHEAT + half["double"], "squares": right["squares"]}, "2026-02-27"),
            ("zoe", right, "2026-03-03"),
        ):
            place = folder / "submitted" / student / "small"
            place.mkdir(parents=True)
            (place / "small.ipynb").write_bytes(handed_in(release, answers, "Short."))
            (place / "timestamp.txt").write_text(f"{when} 12:00:00 UTC")

        def grade(what, *options, status=0):
            command = ("attn-course", "grade", what, "--assignment", "small", *options)
            return run(folder, *command, status=status)

        canvas = ("--csv", "canvas.csv", "--csv-form", "canvas")
        seen.first = grade("canvas.zip", *canvas, status=1)
        seen.before = table(folder / "canvas.csv")
        grade("submitted", "--json", "one.json")
        run(folder, "nbgrader", "autograde", "small", "--student=mal", "--force")
        seen.cheated = formgrader.submissions()["mal"]["score"]
        formgrader.grade_report("zoe", 4.0, "Well said.")
        grade("submitted", "--json", "two.json")
        seen.mended = formgrader.submissions()["mal"]["score"]
        seen.pages = {
            student: formgrader.ask(f"submissions/{one['id']}/")
            for student, one in formgrader.submissions().items()
        }
        formgrader.grade_report("101", 3.0, "See me <b>soon</b>.")
        formgrader.grade_report("102", 2.5, "Good.")
        points(folder, 6.0)
        seen.last = grade("canvas.zip", *canvas, "--feedback", "feedback.zip", status=1)
        grade("submitted", "--csv", "plain.csv")
        moodle = ("--csv", "moodle.csv", "--csv-form", "moodle", "--tests-only")
        grade("moodle.zip", *moodle, "--feedback", "moodle-feedback.zip")
        run(folder, "nbgrader", "generate_feedback", "small")
        run(folder, "nbgrader", "export", "--to=nbgrader.csv")
        seen.kept = kept_cells(folder / "gradebook.db")
        run(folder, "nbgrader", "generate_assignment", "small", "--force")
        yield seen
    finally:
        formgrader.close()


def test_the_gradebook_is_the_one_that_generate_assignment_begins(term, tmp_path):
    """And it can go on: after changed points the release is made again, not deleted."""
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    for value, wanted in ((2.0, term.generated), (6.0, term.kept)):
        points = classroom.POINTS | {"double-values": value}
        data = classroom.as_bytes(classroom.notebook(points=points))
        url = f"sqlite:///{tmp_path}/gradebook.db"
        with GradebookWriter(url, data, "small", tmp_path):
            pass
        assert kept_cells(tmp_path / "gradebook.db") == wanted
    assert (term.folder / "release/small/small.ipynb").exists()
    assert not (term.folder / "build/gradebook.db").exists()


def test_marks_stay_empty_until_the_written_answers_are_graded(term):
    assert term.before["    Points Possible"][-1] == "9"
    assert [row[-1] for name, row in term.before.items() if "Points" not in name][1:] == [""] * 3
    assert "2 have written answers that nobody has graded" in term.first


def test_marks_for_canvas_hold_names_ids_and_everything_that_was_graded(term):
    """101: 6 + 3 of the tests and 3; 102: half right, 2.5, less one: late."""
    found = table(term.folder / "canvas.csv")
    assert found["    Points Possible"][-1] == "13"
    assert found["lovelaceada"] == ["101", "", "", "", "12"]
    assert found["turingalan"] == ["102", "", "", "", "4.5"]
    assert found["hoppergrace"][-1] == "", "never a zero"
    assert "1 came late; the late policy took 1 points off" in term.last


def test_marks_for_moodle_are_in_the_form_that_it_takes(term):
    with (term.folder / "moodle.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["Identifier"], row["Full name"]) == ("Participant 301", "Emmy Noether")
    assert (row["Grade"], row["Maximum Grade"]) == ("9", "9")
    assert row["Last modified (grade)"] == "", "Moodle refuses a file without the column"


def test_a_stock_grader_in_between_changes_no_mark(term):
    assert term.cheated == 2.0 + 3.0
    assert term.mended == 3.0
    one, two = (
        {s["student"]: s for s in json.loads((term.folder / name).read_text())["submissions"]}
        for name in ("one.json", "two.json")
    )
    assert one["mal"] == two["mal"]
    assert (one["zoe"]["score"], one["zoe"]["pending"]) == (5.0 - 1.0, ["report"])
    assert (two["zoe"]["score"], two["zoe"]["pending"]) == (9.0 - 1.0, [])


def test_a_late_hand_in_costs_what_the_policy_says_in_every_export(term):
    with (term.folder / "plain.csv").open() as file:
        ours = {row["student"]: row for row in csv.DictReader(file)}
    assert (ours["zoe"]["late"], ours["zoe"]["late_penalty"]) == ("late", "1")
    assert float(ours["zoe"]["score"]) == 6 + 3 + 4 - 1
    with (term.folder / "nbgrader.csv").open() as file:
        theirs = {row["student_id"]: row for row in csv.DictReader(file)}
    for student in ("mal", "zoe"):
        assert float(theirs[student]["score"]) == float(ours[student]["score"])
    canvas = table(term.folder / "canvas.csv")
    for name, student in (("lovelaceada", "101"), ("turingalan", "102")):
        assert float(theirs[student]["score"]) == float(canvas[name][-1])
        assert theirs[student]["last_name"] == name
    assert {row["max_score"] for row in theirs.values()} == {"13.0"}
    noether = theirs["301"]
    assert (noether["first_name"], noether["last_name"]) == ("Emmy", "Noether")


def test_formgrader_shows_what_was_handed_in_and_what_the_tests_said(term):
    found = term.formgrader.submissions()
    assert set(found) == {"101", "102", "103", "301", "mal", "zoe"}
    assert found["103"]["flagged"]
    assert "My report." in term.pages["102"]
    assert "Tensor-likes are not close" in term.pages["102"]
    assert "unreadable: it is not JSON" in term.pages["103"]
    for page in term.pages.values():
        assert "unlikely-word-5b1e" not in page
    assert "window.ran" in term.pages["101"]


def test_students_get_points_and_comments_back(term):
    with zipfile.ZipFile(term.folder / "feedback.zip") as archive:
        assert sorted(archive.namelist()) == [
            "hoppergrace_103_903_small.html",
            "lovelaceada_101_901_small.html",
            "turingalan_LATE_102_902_small.html",
        ], "the names by which Canvas knows whose file it is"
        ours = archive.read("lovelaceada_101_901_small.html").decode()
        late = archive.read("turingalan_LATE_102_902_small.html").decode()
    assert "12 of 13 points" in ours
    assert "See me &lt;b&gt;soon&lt;/b&gt;." in ours
    assert "1 points were taken off because it came late" in late
    with zipfile.ZipFile(term.folder / "moodle-feedback.zip") as archive:
        assert archive.namelist() == ["Emmy Noether_301_assignsubmission_file_/small.html"]
    theirs = (term.folder / "feedback/zoe/small/small.html").read_text()
    assert "Well said." in theirs
    assert "unlikely-word-5b1e" not in theirs + ours


@pytest.mark.browser
def test_nothing_of_a_students_runs_in_the_browser_of_who_grades(term, chromium):
    page = chromium.new_page()
    page.goto(f"{term.formgrader.url}/lab?token=secret", wait_until="domcontentloaded")
    identity = term.formgrader.submissions()["101"]["id"]
    page.goto(f"{term.formgrader.url}/formgrader/submissions/{identity}/")
    page.wait_for_selector("text=window.ran")
    page.wait_for_function("document.querySelector('textarea').placeholder !== null")
    assert page.evaluate("window.ran") is None
    links = page.eval_on_selector_all("a", "all => all.map(a => a.protocol)")
    assert "javascript:" not in links
    assert "i< n" in page.content().replace("&lt;", "<"), "a formula stays one"
    assert page.locator("input.score").count() == 3
    page.goto((term.folder / "feedback/101/small/small.html").as_uri())
    assert page.evaluate("window.ran") is None
    page.close()
