"""Process 1 of a throwaway namespace: stock nbgrader on hostile submissions, bounded, and a report.

``hostile.py`` starts it inside bubblewrap with ``/course`` writable and nothing else of the
machine. It needs the standard library only. Whatever hangs is ended after its budget, and the batch
goes on without it, so that one run tells of every submission what it did.
"""

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COURSE = Path("/course")
BEGINS = re.compile(r"Converting notebook \S*/submitted/([^/]+)/")
FAILED = re.compile(
    r"(?:error processing assignment|While processing assignment)[: ]+\S*/submitted/([^/]+)/"
)
MOST_BYTES = 8 << 30
MOST_CPU = 150


def serve(text: str, port: int) -> int:
    """A service of the machine that tells a secret to whoever connects; its process."""
    server = socket.create_server(("127.0.0.1", port))
    if (pid := os.fork()) != 0:
        server.close()
        return pid
    while True:
        connection, _ = server.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(text.encode())


def bound() -> None:
    """Limits of nbgrader and of all that it starts."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU, MOST_CPU))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def others(spared: set[int]) -> dict[int, str]:
    """Living processes of this namespace but this one and ``spared``."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in spared | {os.getpid()}:
            with contextlib.suppress(OSError):
                state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found[int(name)] = Path(f"/proc/{name}/comm").read_text().strip()
    return found


def end(spared: set[int]) -> None:
    """Kill them, and collect what has ended."""
    for pid in others(spared):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)


def batch(budget: float, spared: set[int], log: Any) -> dict[str, Any]:
    """One ``nbgrader autograde`` over all that is handed in; who was at work when it ended, how."""
    command = ["nbgrader", "autograde", "target"]
    process = subprocess.Popen(
        command, cwd=COURSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=bound
    )
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    report: dict[str, Any] = {"seconds": {}, "failed": [], "hung": None, "at_work": None}
    begun, text = time.monotonic(), ""
    while True:
        code = process.poll()
        with contextlib.suppress(BlockingIOError, ValueError):
            part = process.stdout.read() or b""
            log.write(part[:20000])
            text += part.decode(errors="replace")
        *lines, text = text.split("\n")
        for line in lines:
            report["failed"] += FAILED.findall(line)
            for student in BEGINS.findall(line):
                report["at_work"], begun = student, time.monotonic()
        if report["at_work"]:
            taken = round(time.monotonic() - begun, 2)
            report["seconds"][report["at_work"]] = taken
        if code is not None:
            break
        if time.monotonic() - begun > budget:
            report["hung"] = report["at_work"]
            end(spared)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            break
        time.sleep(0.05)
    report["exit"] = process.returncode
    report["processes_left"] = sorted(others(spared).values())
    return report


def main() -> None:
    """Batch after batch, each without the submission that stopped the last one."""
    order = json.loads(sys.stdin.read())  # on the command line everybody could read it
    # the first processes of a machine are somebody else's: a blow at them must not hit nbgrader
    spared = {subprocess.Popen(["sleep", "100000"]).pid for _ in range(8)}
    spared.add(serve(order["canary"], order["port"]))
    set_aside = COURSE / "set_aside"
    set_aside.mkdir(exist_ok=True)
    reports: list[dict[str, Any]] = []
    with open(COURSE / "log.txt", "ab") as log:
        for _ in range(len(order["students"]) + 1):
            report = batch(order["budget"], spared, log)
            graded = {p.name for p in (COURSE / "autograded").glob("*") if any(p.rglob("*.ipynb"))}
            left = [s for s in order["students"] if s not in graded | set(report["failed"])]
            left = [s for s in left if (COURSE / "submitted" / s).exists()]
            report["stopped_by"] = report["at_work"] if left else None
            reports.append(report)
            (COURSE / "reports.json").write_text(json.dumps(reports))
            if not left or not order["go_on"]:
                break
            end(spared)
            culprit = report["at_work"] or left[0]
            with contextlib.suppress(OSError):
                (COURSE / "submitted" / culprit).rename(set_aside / culprit)
            for student in report["failed"]:
                with contextlib.suppress(OSError):
                    (COURSE / "submitted" / student).rename(set_aside / student)
    os._exit(0)


if __name__ == "__main__":
    main()
