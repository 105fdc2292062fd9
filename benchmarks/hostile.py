"""Every hostile submission of ``tests/hostile`` through stock nbgrader and through ours.

``python benchmarks/hostile.py`` runs what is not recorded yet (about 10 minutes of processor time)
and writes ``results/hostile.json`` with the outcome of each submission, and ``results/hostile.md``;
what root and what an ordinary user finds are parts of their own.
Stock nbgrader runs in a throwaway course inside bubblewrap (see ``stock_in_a_box.py``). Submissions
that change nothing outside of their own kernel share one batch; after each batch it is checked that
they did not, and one that did is run again by itself.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness

sys.path.insert(0, str(harness.ROOT / "tests" / "hostile"))

import attacks
import broken_files
import target

from attn_course.grading import mounts

SEED = 7
PACKAGES = ("nbgrader", "nbclient", "ipykernel", "torch", "numpy")
FULL = 10.0
BUDGET = 60.0  # wall clock that one submission may take before its batch counts as stopped
CELL_SECONDS = 10  # stock: c.ExecutePreprocessor.timeout
HOME = "/home/teacher"
PORT = 8765
CANARIES = {name: f"{name}-canary-5b0c7e" for name in ("file", "environment", "network")}
SECRETS = {
    **CANARIES,
    "hidden tests": target.SECRET,
    "solution": "grown = shifted",
}
APART = ("neighbour", "same-process")  # may change what a later submission meets
SHARED = ("tamper", "spy", "exhaust")
PROGRESS = harness.ROOT / "build" / "benchmarks" / "hostile.json"


def cases() -> dict[str, bytes]:
    """Every hostile submission by name, and one that is only wrong."""
    found = {"baseline:wrong": target.as_bytes(target.submission(double=attacks.WRONG))}
    for name, source in attacks.ALL.items():
        found[name] = target.as_bytes(target.submission(**attacks.placed(source)))
    return found | {f"malformed:{n}": data for n, (data, _) in broken_files.MALFORMED.items()}


def filled(data: bytes, paths: list[str], port: int) -> bytes:
    """The paths and ports of this run in the place of their names."""
    text = data.replace(b"__PATHS__", json.dumps(json.dumps(paths))[1:-1].encode())
    return text.replace(b"__PORTS__", f"[{port}]".encode())


def digest(folder: Path) -> dict[str, str]:
    """Every file below a folder and a hash of its content."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


# Stock nbgrader


def template(folder: Path) -> None:
    """A course with its assignment generated, and ``ada``, who has full marks already."""
    (folder / "source/target").mkdir(parents=True)
    (folder / "source/target/target.ipynb").write_bytes(target.as_bytes(target.notebook()))
    (folder / "nbgrader_config.py").write_text(
        "c = get_config()\n"
        'c.CourseDirectory.course_id = "target"\n'
        f"c.ExecutePreprocessor.timeout = {CELL_SECONDS}\n"
    )
    hand_in(folder, {"ada": target.as_bytes(target.honest())})
    environment = {**os.environ, "PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"}
    for command in (["generate_assignment", "target"], ["autograde", "target"]):
        subprocess.run(
            ["nbgrader", *command], cwd=folder, env=environment, check=True, capture_output=True
        )
    assert marks(folder)["ada"] == FULL


def hand_in(folder: Path, submissions: dict[str, bytes]) -> None:
    """Write submissions where nbgrader looks for them."""
    for student, data in submissions.items():
        place = folder / "submitted" / student / "target"
        place.mkdir(parents=True)
        (place / "target.ipynb").write_bytes(data)


def marks(folder: Path) -> dict[str, float]:
    """Scores by student in nbgrader's gradebook, as its own exports add them up."""
    query = """SELECT a.student_id, sum(coalesce(g.manual_score, g.auto_score, 0)
                 + coalesce(g.extra_credit, 0))
               FROM submitted_assignment a
               JOIN submitted_notebook n ON n.assignment_id = a.id
               JOIN grade g ON g.notebook_id = n.id GROUP BY a.student_id"""
    with contextlib.closing(sqlite3.connect(folder / "gradebook.db")) as book:
        return {student: float(score) for student, score in book.execute(query)}


def box(folder: Path) -> list[str]:
    """Bubblewrap around one course: its own namespaces, nothing of the machine writable."""
    command = mounts.system_mounts()
    place = command.index("--tmpfs")  # of /tmp
    command[place:place] = ["--size", str(256 << 20)]
    for name in ("attn_course", "solutions"):
        command += ["--ro-bind", str(harness.ROOT / name), str(harness.ROOT / name)]
    command += ["--bind", str(folder), "/course", "--chdir", "/course", "--clearenv"]
    command += ["--ro-bind", str(folder.parent / "passwd"), "/etc/passwd"]
    command += ["--size", str(256 << 20), "--tmpfs", HOME]
    command += ["--ro-bind", str(Path(__file__).parent / "stock_in_a_box.py"), "/opt/box.py"]
    command += ["--ro-bind", str(folder.parent / "canary.ipynb"), "/opt/teacher/canary.ipynb"]
    environment = {
        "HOME": HOME,
        "PATH": f"{sysconfig.get_path('scripts')}:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "ATTN_CANARY": CANARIES["environment"],
        "ATTN_COURSE_SEED": str(SEED),
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    }
    for name, value in environment.items():
        command += ["--setenv", name, value]
    return [*command, "--as-pid-1", sys.executable, "/opt/box.py"]


def run_stock(base: Path, names: list[str]) -> dict[str, dict[str, Any]]:
    """A batch of hostile submissions between ``ada``, graded before, and ``zoe`` after them."""
    folder = base / "course"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base / "template", folder)
    paths = ["/opt/teacher/canary.ipynb", "/course/gradebook.db", "/course/source/target"]
    paths += ["/course/source/target/target.ipynb", "/course/submitted/ada/target/target.ipynb"]
    students = {f"m{number:03d}": name for number, name in enumerate(names)}
    found = cases()
    hand_in(folder, {s: filled(found[name], paths, PORT) for s, name in students.items()})
    hand_in(folder, {"zoe": target.as_bytes(target.honest())})
    watched = ("source", "release", "submitted/ada", "submitted/zoe", "autograded/ada")
    before = {name: digest(folder / name) for name in watched}
    order = {
        "canary": CANARIES["network"],
        "port": PORT,
        "students": [*students, "zoe"],
        "budget": BUDGET,
        "go_on": True,
    }
    most = (BUDGET + 60) * (len(names) + 1)
    done = subprocess.run(
        box(folder), input=json.dumps(order).encode(), timeout=most, capture_output=True
    )
    if not (folder / "reports.json").exists():
        raise RuntimeError(done.stderr.decode(errors="replace")[-2000:])
    reports = json.loads((folder / "reports.json").read_text())
    try:
        scores = marks(folder)
        book = "readable"
    except sqlite3.Error as error:
        scores, book = {}, f"unreadable: {error}"
    aside = folder / "set_aside"
    changed = [n for n in watched if digest(folder / n) != before[n]]
    changed += [] if scores.get("ada") == FULL else ["marks of ada"]
    changed += [] if scores.get("zoe") == FULL else ["marks of zoe"]
    stopped = {report["stopped_by"] for report in reports if report["stopped_by"]}
    rows = {}
    for student, name in students.items():
        output = outputs(folder / "autograded" / student / "target" / "target.ipynb")
        failed = any(student in report["failed"] for report in reports)
        rows[name] = {
            "score": None if failed or student in stopped else scores.get(student),
            "secrets": [kind for kind, text in SECRETS.items() if text in output],
            "stopped": student in stopped,
            "failed": failed,
            "neighbours": changed,
            "gradebook": book,
            "shared_with": len(names) - 1,
            "set_aside": (aside / student).exists(),
            "processes_left": reports[-1]["processes_left"] if len(names) == 1 else None,
            "seconds": max((r["seconds"].get(student, 0.0) for r in reports), default=0.0),
        }
    return rows


def outputs(path: Path) -> str:
    """What the cells of an autograded notebook show, as text."""
    if not path.exists():
        return ""
    cells = json.loads(path.read_text())["cells"]
    return json.dumps([cell.get("outputs") for cell in cells])


def stock(base: Path, kept: dict[str, Any]) -> dict[str, Any]:
    """All rows of stock nbgrader; those in ``kept`` are not run again."""
    template(base / "template")
    waiting = [n for n in cases() if n not in kept and n not in attacks.OWN_PROTOCOL]
    groups = [
        [n for n in waiting if n.split(":")[0] in ("baseline", "tamper", "spy")],
        [n for n in waiting if n.split(":")[0] == "exhaust"],
        [n for n in waiting if n.split(":")[0] == "malformed"],
        *[[n] for n in waiting if n.split(":")[0] in APART],
    ]
    while groups:
        names = groups.pop(0)
        for start in range(0, len(names), 10):
            part = names[start : start + 10]
            rows = run_stock(base, part)
            if len(part) > 1 and next(iter(rows.values()))["neighbours"]:
                print(f"stock: changed {rows[part[0]]['neighbours']}, one by one", file=sys.stderr)
                groups += [[name] for name in part]
                continue
            kept.update(rows)
            remember("stock", kept)
            for name, row in rows.items():
                print(f"stock: {name}: {row}", file=sys.stderr)
    return kept


# Ours


@contextlib.contextmanager
def service(text: str) -> Iterator[int]:
    """A server of this machine that tells a secret to whoever connects."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.2)
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = server.accept()
                with connection:
                    connection.sendall(text.encode())

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.getsockname()[1]
    stop.set()
    thread.join()
    server.close()


def ours(base: Path) -> dict[str, Any]:
    """One class, one command: after each hostile submission an honest one."""
    folder, names = base / "ours", list(cases())
    folder.mkdir()
    (folder / "source.ipynb").write_bytes(target.as_bytes(target.notebook()))
    (folder / "canary.ipynb").write_text(CANARIES["file"])
    paths = [str(folder / name) for name in ("canary.ipynb", "gradebook.db", "source.ipynb")]
    environment = {
        **os.environ,
        "ATTN_CANARY": CANARIES["environment"],
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    }
    command = [sys.executable, "-m", "attn_course.cli", "grade", str(folder)]
    command += ["--assignment", "target", "--source", "source.ipynb", "--seed", str(SEED)]
    command += ["--json", "marks.json", "--gradebook", "sqlite:///gradebook.db"]
    command += ["--feedback", "feedback", "--csv", "marks.csv", "--workers", "1"]
    command += ["--timeout", "20", "--call-timeout", "2"]
    with service(CANARIES["network"]) as port:
        for number, data in enumerate(cases().values()):
            hand_in(folder, {f"m{number:03d}": filled(data, paths, port)})
            hand_in(folder, {f"m{number:03d}-next": target.as_bytes(target.honest())})
        command[4] = str(folder / "submitted")
        before = digest(folder / "submitted")
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if not (folder / "marks.json").exists():
        raise RuntimeError(done.stderr[-3000:])
    found = {
        s["student"]: s for s in json.loads((folder / "marks.json").read_text())["submissions"]
    }
    unchanged = digest(folder / "submitted") == before
    with contextlib.closing(sqlite3.connect(folder / "gradebook.db")) as book:
        intact = book.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    recorded = marks(folder)
    rows = {}
    for number, name in enumerate(names):
        student = f"m{number:03d}"
        one, after = found.get(student), found.get(f"{student}-next")
        page = folder / "feedback" / student
        told = json.dumps(one) + "".join(
            p.read_text(errors="replace") for p in sorted(page.rglob("*")) if p.is_file()
        )
        neighbours = [] if after and after["score"] == FULL else ["marks of the next"]
        neighbours += [] if recorded.get(f"{student}-next") == FULL else ["gradebook"]
        neighbours += [] if unchanged and intact else ["files"]
        rows[name] = {
            "status": one["status"] if one else None,
            "score": one["score"] if one else None,
            "secrets": [kind for kind, text in SECRETS.items() if text in told],
            "stopped": one is None or after is None,
            "neighbours": neighbours,
            "seconds": one["seconds"] if one else None,
        }
    return rows


# The record


def remember(part: str, rows: dict[str, Any]) -> None:
    """Keep what is done, so that a stopped run goes on from there."""
    PROGRESS.parent.mkdir(parents=True, exist_ok=True)
    record = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    PROGRESS.write_text(json.dumps(record | {part: rows}, indent=1))


def counts(rows: dict[str, Any]) -> dict[str, Any]:
    """How many did what; a secret that every wrong answer is told does not count."""
    told = set(rows.get("baseline:wrong", {}).get("secrets", []))
    hostile = {n: r for n, r in rows.items() if not n.startswith("baseline")}
    kinds = {
        # a malformed file is an honest one that was broken: what is left of it earns its points
        "gained_points": [
            n for n, r in hostile.items() if (r["score"] or 0) > 0 and not n.startswith("malformed")
        ],
        "changed_a_neighbour": [n for n, r in hostile.items() if r["neighbours"]],
        "reached_a_secret": [n for n, r in hostile.items() if set(r["secrets"]) - told],
        "stopped_the_batch": [n for n, r in hostile.items() if r["stopped"]],
    }
    return {
        "submissions": len(hostile),
        "told_to_everybody": sorted(told),
        **{kind: sorted(names) for kind, names in kinds.items()},
        "any_of_these": len({name for names in kinds.values() for name in names}),
        "longest_seconds": max((r["seconds"] or 0.0 for r in hostile.values()), default=0.0),
    }


def table(record: dict[str, Any]) -> str:
    """Both graders in one table."""
    parts = record["parts"]
    kinds = ("gained_points", "changed_a_neighbour", "reached_a_secret", "stopped_the_batch")
    lines = ["| grader | submissions | " + " | ".join(k.replace("_", " ") for k in kinds) + " |"]
    lines += ["| --- " + "| ---: " * 5 + "|"]
    names = {"stock": "stock nbgrader", "ours": "attn-course grade"}
    for part, name in {**names, "ours_as_user": "attn-course grade, by an ordinary user"}.items():
        if part in parts:
            found = parts[part]["measured"]["counts"]
            cells = [str(found["submissions"]), *(str(len(found[kind])) for kind in kinds)]
            lines += [f"| {name} | {' | '.join(cells)} |"]
    lines += [""]
    for part in sorted({f"{part['date']} at commit {part['commit']}" for part in parts.values()}):
        lines += [f"Measured {part}."]
    forged = len(attacks.OWN_PROTOCOL)
    given = [parts[part]["measured"]["counts"]["submissions"] for part in ("ours", "stock")]
    later = given[0] - given[1] - forged
    lines += [
        f"Stock nbgrader {record['versions']['nbgrader']} is spared {forged} submissions that "
        f"forge our own grader's messages; {later} were written after it was measured. A batch "
        "counts as stopped where the next student was not graded, or not within "
        f"{BUDGET:.0f} s (cells were given {CELL_SECONDS} s)."
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("stock", "ours"), action="append")
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run has done")
    parser.add_argument("--case", action="append", help="stock: these alone, and print them only")
    given = parser.parse_args()
    if given.fresh:
        PROGRESS.unlink(missing_ok=True)
    kept = json.loads(PROGRESS.read_text()) if PROGRESS.exists() else {}
    about = {
        "assignment": "tests/hostile/target.py",
        "budget": BUDGET,
        "cell_seconds": CELL_SECONDS,
    }
    with tempfile.TemporaryDirectory(prefix="attn-hostile-") as name:
        base = Path(name)
        (base / "passwd").write_text(f"teacher:x:0:0::{HOME}:/bin/sh\n")
        (base / "canary.ipynb").write_text(CANARIES["file"])
        if given.case:
            template(base / "template")
            print(json.dumps(run_stock(base, given.case), indent=1))
            print((base / "course" / "log.txt").read_text()[-6000:], file=sys.stderr)
            return
        for part in given.only or ("ours", "stock"):
            rows = ours(base) if part == "ours" else stock(base, kept.get("stock", {}))
            measured = {"counts": counts(rows), "rows": rows}
            kept_as = "ours_as_user" if part == "ours" and os.getuid() else part
            harness.keep(
                "hostile", kept_as, measured, about, seed=SEED, packages=PACKAGES, table=table
            )


if __name__ == "__main__":
    main()
