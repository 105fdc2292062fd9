"""The same honest class through stock nbgrader and through ours: time, agreement, worst case.

Stock nbgrader is measured on part of the class and extrapolated in a straight line, which the
results say. ``--only each_set`` compares the processor time of a submission on every set.
"""

import argparse
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import harness
import nbformat
import numpy as np
from grading_table import markdown

sys.path.insert(0, str(harness.ROOT / "tests"))

import cells

from attn_course.exercises.assignment import load_assignment
from attn_course.exercises.source import find_slugs, read_exercise, solution_names
from attn_course.probes.catalogue import collect, collect_variants, load_module

SEED = 7
SETS = tuple(find_slugs(harness.ROOT))
TIMED = SETS[0]
REFUSED = ("write it yourself", "is not available to a submission")
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
PACKAGES = ("nbgrader", "nbclient", "ipykernel", "torch", "numpy", "distributed")
ENVIRONMENT = {
    **os.environ,
    "PATH": os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)]),
    "ATTN_COURSE_SEED": str(SEED),
    **THREADS,
}


# The class


def solutions(slug: str) -> dict[str, str]:
    """Right answers by grade id."""
    notebook = read_exercise(harness.ROOT / "solutions" / slug / "exercise.py")
    metas = [(cell, cell.metadata.get("nbgrader", {})) for cell in notebook.cells]
    return {
        m["grade_id"]: c.source for c, m in metas if c.cell_type == "code" and m.get("solution")
    }


@functools.cache
def catalogued(slug: str, kind: str) -> list[tuple[str, str]]:
    """Every misconception or variant that needs nothing closed, as (function, source of a cell)."""
    folder = harness.ROOT / "solutions" / slug
    module = load_module(folder / f"{kind}s.py", f"benchmark_{kind}_{slug}")
    found: list[Any] = collect_variants(module)
    if kind == "misconception":
        found = [one for one in collect(module).misconceptions if cells.has_a_cell(one)]
    assignment = load_assignment(
        nbformat.writes(read_exercise(folder / "exercise.py")).encode(), slug
    )
    return [
        (one.of, cells.as_cell(slug, one))
        for one in found
        if not cells.needs_closed(one, assignment.forbidden.get(one.of, ()))
    ]


def students(slug: str, count: int) -> Iterator[tuple[str, dict[str, str]]]:
    """A mixed class: (student, answers by grade id), the kinds in turn.

    One right answer in three is written in another way than the course's own.
    """
    wrong = catalogued(slug, "misconception")
    notebook = read_exercise(harness.ROOT / "solutions" / slug / "exercise.py")
    cell_of = solution_names(notebook)
    ways = {name: [source] for name, source in solutions(slug).items()}
    for of, source in catalogued(slug, "variant"):
        ways[cell_of[of]].append(source)
    names = list(ways)
    for number in range(count):
        kind = number % 6
        right = {  # two answers in three as the course has them, one in a way of its own
            name: found[(number + i) // 3 % len(found) if (number + i) % 3 == 0 else 0]
            for i, (name, found) in enumerate(ways.items())
        }
        answers = dict(right)
        if kind == 1:  # one answer is wrong
            of, source = wrong[number * 7 % len(wrong)]
            answers[cell_of[of]] = source
        elif kind == 2:  # several are
            for step in range(4):
                of, source = wrong[(number * 5 + step * 11) % len(wrong)]
                answers[cell_of[of]] = source
        elif kind == 3:  # half of them are not started
            answers = {name: right[name] for name in names[: len(names) // 2]}
        elif kind == 4:  # nothing is, or one cell is no Python
            answers = {} if number % 12 == 4 else {**right, names[number % len(names)]: "def f(x:"}
        elif kind == 5:  # one wrong, some not started, and prints
            of, source = wrong[number * 3 % len(wrong)]
            answers = {name: right[name] for name in names[::2]} | {cell_of[of]: source}
            answers[cell_of[of]] += "\nprint('trying', 6 * 7)"
        yield f"{'ab'[number % 2]}{number:03d}", answers


def hand_in(folder: Path, slug: str, count: int) -> None:
    """Write ``folder/<student>/<slug>/<slug>.ipynb`` for a class."""
    release = (harness.ROOT / "exercises" / slug / f"{slug}.ipynb").read_text()
    for student, answers in students(slug, count):
        notebook = json.loads(release)
        for cell in notebook["cells"]:
            name = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if name in answers:
                cell["source"] = answers[name]
        place = folder / student / slug
        place.mkdir(parents=True)
        (place / f"{slug}.ipynb").write_text(json.dumps(notebook))


# The graders


def run(command: list[str], folder: Path, *, allow: tuple[int, ...] = (0,)) -> None:
    """Run a program to its end; anything but an expected status stops the benchmark."""
    done = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    if done.returncode not in allow:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-3000:]}")


def timed(work: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def course(folder: Path, slug: str, count: int) -> Path:
    """A course for stock nbgrader with a class in it, assignment generated."""
    from attn_course.exercises.release import make_notebooks

    folder.mkdir(parents=True)
    shutil.copy(harness.ROOT / "nbgrader_config.py", folder)
    (folder / "solutions").symlink_to(harness.ROOT / "solutions")
    (folder / "build" / "source" / slug).mkdir(parents=True)
    (folder / "build" / "source" / slug / f"{slug}.ipynb").write_bytes(
        make_notebooks(folder, slug)[0]
    )
    run(["nbgrader", "generate_assignment", slug], folder)
    hand_in(folder / "submitted", slug, count)
    return folder


def stock(folder: Path, slug: str, who: str = "*") -> None:
    """Autograde and make feedback, as an instructor does."""
    run(["nbgrader", "autograde", slug, f"--student={who}"], folder)
    run(["nbgrader", "generate_feedback", slug, f"--student={who}"], folder)


def stock_two(folder: Path, slug: str) -> None:
    """Two nbgraders at once, each with half of the class, one gradebook."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda who: stock(folder, slug, who), ("a*", "b*")))


def stock_scores(folder: Path, slug: str) -> dict[tuple[str, str], float | None]:
    """Automatic scores in nbgrader's gradebook by (student, cell)."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{folder}/gradebook.db") as book:
        return {
            (submission.student.id, grade.name): grade.auto_score
            for submission in book.assignment_submissions(slug)
            for grade in submission.notebooks[0].grades
        }


def ours(folder: Path, submissions: Path, slug: str, *options: str) -> dict[str, Any]:
    """Grade with ``attn-course grade``: gradebook, feedback, CSV and JSON into a new folder."""
    folder.mkdir(parents=True)
    command = [sys.executable, "-m", "attn_course.cli", "grade", str(submissions)]
    command += ["--assignment", slug, "--seed", str(SEED), "--json", "marks.json"]
    command += ["--source", str(_instructor(folder, slug))]
    command += ["--gradebook", "sqlite:///gradebook.db", "--feedback", "feedback"]
    run([*command, "--csv", "marks.csv", *options], folder, allow=(0, 1))
    return dict(json.loads((folder / "marks.json").read_text()))


def _instructor(folder: Path, slug: str) -> Path:
    from attn_course.grading.command import instructor_notebook

    path = folder / "instructor.ipynb"
    path.write_bytes(instructor_notebook(slug, harness.ROOT, None))
    return path


# The measurements


def time_stock(base: Path, count: int, of: int) -> list[dict[str, Any]]:
    """One and two nbgrader processes on ``of`` submissions, extrapolated to ``count``."""
    rows = []
    first = course(base / "stock-1", TIMED, of)
    alone = timed(lambda: stock(first, TIMED, "a000"))
    rest = timed(lambda: stock(first, TIMED))  # those that are not graded yet
    each = (rest - alone) / (of - 2) if rest > alone else rest / (of - 1)
    rows.append(_row("stock nbgrader, 1 process", of, alone + rest, each, alone, count))
    second = course(base / "stock-2", TIMED, of)
    both = timed(lambda: stock_two(second, TIMED))
    each_two = max(both - alone, 0.0) / (of - 2)
    rows.append(_row("stock nbgrader, 2 processes", of, both, each_two, alone, count))
    return rows


def _row(
    name: str, of: int, seconds: float, each: float, fixed: float, count: int
) -> dict[str, Any]:
    total = seconds if of == count else fixed + (count - 1) * each
    return {
        "grader": name,
        "measured_on": of,
        "measured_seconds": round(seconds, 2),
        "seconds_for_class": round(total, 1),
        "extrapolated": of != count,
        "seconds_each": round(each, 3),
        "load": harness.load(),
    }


def time_ours(base: Path, count: int, of: int, repeats: int) -> list[dict[str, Any]]:
    """1 and 2 workers in turn, then dask, on ``of`` submissions: the median of some runs."""
    hand_in(base / "class", TIMED, of)
    hand_in(base / "one", TIMED, 1)
    whole: dict[str, list[float]] = {}
    alone: dict[str, list[float]] = {}
    loads: dict[str, list[float]] = {}

    def run_all(cases: dict[str, list[str]]) -> None:
        for _ in range(repeats):
            for name, options in cases.items():
                place = Path(tempfile.mkdtemp(dir=base))
                for runs, handed in ((alone, "one"), (whole, "class")):
                    loads[name] = harness.load()
                    done = timed(
                        lambda p=place, h=handed, o=options: ours(p / h, base / h, TIMED, *o)
                    )
                    runs.setdefault(name, []).append(done)
                found = f"{whole[name][-1]:.1f} s, one {alone[name][-1]:.1f} s"
                print(f"{name}: {found}", file=sys.stderr)

    run_all({"ours, 1 worker": ["--workers", "1"], "ours, 2 workers": ["--workers", "2"]})
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        run_all({"ours, dask LocalCluster, 2 workers": ["--scheduler", cluster.scheduler_address]})
    rows = []
    for name, seconds in whole.items():
        one, middle = statistics.median(alone[name]), statistics.median(seconds)
        row = _row(name, of, middle, max(middle - one, 0.0) / (of - 1), one, count)
        spread = {"fastest": round(min(seconds), 2), "slowest": round(max(seconds), 2)}
        rows.append(row | {"load": loads[name], "repeats": repeats, **spread})
    return rows


def each_set(
    base: Path, slugs: list[str], of: int, keep: Callable[[list[dict[str, Any]]], Any]
) -> list[dict[str, Any]]:
    """Wall clock and processor time of one submission on each set, beside stock nbgrader's.

    Ours grades a class of one and a class of ``of``, by one worker and by two: the difference is
    that of the others. Stock nbgrader, which has one process, grades six, one of each kind, less
    what its two programs take where nothing is left to be graded. Every set is kept as soon as it
    has been measured, beside those of earlier runs.
    """
    record = harness.RESULTS / "grading.json"
    parts = json.loads(record.read_text())["parts"] if record.exists() else {}
    rows = {row["set"]: row for row in parts.get("each_set", {"measured": []})["measured"]}
    start = np.zeros(2)
    with harness.processor_time() as clock:

        def spent(work: Callable[[], Any]) -> Any:
            begun = np.array([clock(), time.perf_counter()])
            work()
            return np.array([clock(), time.perf_counter()]) - begun

        def ours_each(slug: str, workers: int) -> Any:
            options, both = ("--workers", str(workers)), []
            for count in (1, of):
                place = base / f"ours-{slug}-{workers}-{count}"
                hand_in(place / "class", slug, count)
                work = functools.partial(ours, place / "run", place / "class", slug, *options)
                both.append(spent(work))
            return 1e3 * (both[1] - both[0]) / (of - 1)

        for slug in slugs:
            folder = course(base / f"stock-{slug}", slug, 6)
            whole = spent(lambda f=folder, s=slug: stock(f, s))
            start = start if start.any() else spent(lambda f=folder, s=slug: stock(f, s))
            (cpu, wall), alone, two = (
                1e3 * (whole - start) / 6,
                ours_each(slug, 1),
                ours_each(slug, 2),
            )
            rows[slug] = {
                "set": slug,
                "of": of,
                "commit": harness.commit(),
                "load": harness.load(),
                "stock_wall_ms": round(wall),
                "one_worker_wall_ms": round(alone[1]),
                "two_workers_wall_ms": round(two[1]),
                "stock_cpu_ms": round(cpu),
                "ours_cpu_ms": round(alone[0]),
            }
            print(rows[slug], file=sys.stderr, flush=True)
            keep([rows[name] for name in sorted(rows)])
    return [rows[name] for name in sorted(rows)]


def agreement(base: Path, counts: dict[str, int]) -> dict[str, Any]:
    """Cell by cell: our score against stock nbgrader's, on the same random inputs."""
    cells, differences = 0, []
    for slug, count in counts.items():
        folder = course(base / slug, slug, count)
        run(["nbgrader", "autograde", slug], folder)
        theirs = stock_scores(folder, slug)
        found = ours(base / f"agree-{slug}", folder / "submitted", slug, "--tests-only")
        for submission in found["submissions"]:
            for test in submission["tests"]:
                cells += 1
                other = theirs[submission["student"], test["grade_id"]]
                if other is None or test["score"] is None or abs(other - test["score"]) > 1e-9:
                    differences.append(
                        {
                            "assignment": slug,
                            "student": submission["student"],
                            "cell": test["grade_id"],
                            "stock": other,
                            "ours": test["score"],
                            "message": test["message"][:300],
                            "why": "it uses what the set forbids"
                            if any(words in test["message"] for words in REFUSED)
                            else None,
                        }
                    )
    submissions = sum(counts.values())
    return {
        "assignments": list(counts),
        "submissions": submissions,
        "cells": cells,
        "differences": differences,
    }


def edge_cases() -> dict[str, Any]:
    """Points of one cell at a time where the last value, or standard error, is unusual.

    Stock nbgrader: its own execution of the cells, then its own rule for the points of each.
    """
    sys.path.insert(0, str(harness.ROOT / "tests" / "grading"))
    import logging

    import nbformat
    from classroom import LIMITS, answered, as_bytes, notebook
    from edges import EDGES, LOUD
    from nbgrader.preprocessors import Execute
    from nbgrader.utils import determine_grade

    from attn_course.grading.sandbox import Zygote
    from attn_course.grading.verdict import grade_notebook

    names = {f"f{i}": name for i, name in enumerate([*EDGES, *LOUD])}
    answers, tests, due = {}, {}, {}
    for function, name in names.items():
        source, points, _ = EDGES.get(name, ("", 2.0, ""))
        answers[function] = f"def {function}():\n    {LOUD.get(name, 'pass')}"
        tests[f"{function}-x"] = f"{function}()\n{source}" if source else f"{function}()\nx = 1"
        due[f"{function}-x"] = points
    setup = "import numpy as np\nimport torch"
    made = notebook(answers, tests, dict.fromkeys(tests, 2.0), setup=setup)
    with Zygote() as zygote:
        assignment = load_assignment(as_bytes(made), "edges")
        found = grade_notebook(
            answered({}, made), assignment, zygote, student="ada", seed=SEED, limits=LIMITS
        )
    scored = {test.grade_id: test.score for test in found.tests}
    ran, _ = Execute(timeout=60).preprocess(nbformat.from_dict(made), {"metadata": {"path": "."}})
    rows = []
    for cell in ran.cells:
        if (name := cell.metadata.nbgrader.grade_id) in due:
            theirs: Any
            try:
                theirs = determine_grade(cell, logging.getLogger())[0]
            except Exception as error:
                theirs = f"{type(error).__name__}: {error}"[:200]
            right = isinstance(theirs, int | float) and abs(theirs - due[name]) < 1e-9
            rows.append(
                {
                    "case": names[name.removesuffix("-x")],
                    "due": due[name],
                    "stock": theirs if theirs == theirs else "nan",
                    "stock_right": right,
                    "ours": scored[name],
                    "ours_right": scored[name] == due[name],
                }
            )
    return {
        "cases": len(rows),
        "stock_right": sum(row["stock_right"] for row in rows),
        "ours_right": sum(row["ours_right"] for row in rows),
        "rows": rows,
    }


HOSTILE = {
    "a loop at top level": "while True:\n    pass",
    "every call loops": "def {name}(*args, **kwargs):\n    while True:\n        pass",
    "a long list at the last moment": "import time\ndef {name}(*args, **kwargs):\n"
    "    time.sleep(9.5)\n    return [0.5] * 190_000",
    "a large tensor at the last moment": "import time, torch\ndef {name}(*args, **kwargs):\n"
    "    time.sleep(9.5)\n    return torch.zeros(60_000_000)",
}


def worst_case(budget: float) -> list[dict[str, Any]]:
    """Wall clock of submissions that never end, and the processes that they leave."""
    import psutil

    from attn_course.grading.collect import HandIn
    from attn_course.grading.command import instructor_notebook
    from attn_course.grading.run import grade_class
    from attn_course.grading.sandbox import Limits

    notebook = instructor_notebook(TIMED, harness.ROOT, None)
    release = json.loads((harness.ROOT / "exercises" / TIMED / f"{TIMED}.ipynb").read_text())
    rows = []
    # The jail's own processes stay: they are here before the first of these.
    honest = [HandIn(student="honest", data=notebook)]
    grade_class(honest, notebook=notebook, slug=TIMED)
    for name, source in HOSTILE.items():
        cells = json.loads(json.dumps(release))
        for cell in cells["cells"]:
            meta = cell["metadata"].get("nbgrader", {})
            if meta.get("solution") and cell["cell_type"] == "code":
                cell["source"] = source.format(name=meta["grade_id"])
        before = {p.pid for p in psutil.Process().children(recursive=True)}
        handed = [HandIn(student="mallory", data=json.dumps(cells).encode())]
        begun = time.perf_counter()
        limits = Limits(wall_seconds=budget)
        result = grade_class(handed, notebook=notebook, slug=TIMED, limits=limits)[0]
        seconds = time.perf_counter() - begun
        time.sleep(1.0)
        left = {p.pid for p in psutil.Process().children(recursive=True)} - before
        rows.append(
            {
                "submission": name,
                "budget_seconds": budget,
                "wall_seconds": round(result.seconds, 2),
                "with_instructors_check": round(seconds, 2),
                "status": result.status,
                "score": result.score,
                "processes_left": len(left),
            }
        )
    return rows


def main() -> None:
    """Measure and write ``results/grading.json``; each part is kept as soon as it is there."""
    os.environ.update(THREADS)  # of this process too, before torch is imported
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--stock", type=int, default=12, help="submissions given to stock nbgrader")
    parser.add_argument("--ours", type=int, help="submissions given to ours; all when left out")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sets", default=",".join(SETS), help="agreement, each_set: on these")
    parser.add_argument("--budget", type=float, default=60.0)
    parts = ("worst_case", "each_set", "ours", "stock", "agreement", "edge_cases")
    parser.add_argument("--only", choices=parts, action="append", help="some parts; keep the rest")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="attn-bench-") as name:
        base = Path(name)
        about = {"assignment": TIMED, "submissions": given.count}

        def keep(part: str, measured: Any) -> None:
            harness.keep(
                "grading", part, measured, about, seed=SEED, packages=PACKAGES, table=markdown
            )

        sets = given.sets.split(",")
        work: dict[str, Callable[[], Any]] = {
            "each_set": lambda: each_set(
                base, sets, min(given.count, 31), lambda rows: keep("each_set", rows)
            ),
            "worst_case": lambda: worst_case(given.budget),
            "ours": lambda: time_ours(base, given.count, given.ours or given.count, given.repeats),
            "stock": lambda: time_stock(base, given.count, given.stock),
            "edge_cases": edge_cases,
            "agreement": lambda: agreement(base, dict.fromkeys(sets, 4)),
        }
        for part in given.only or parts:
            keep(part, work[part]())


if __name__ == "__main__":
    main()
