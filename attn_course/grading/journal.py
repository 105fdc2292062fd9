"""The journal of a run: a line for each result, so that a rerun goes on where the last one ended.

A result is written to the gradebook first and here second; a run that is killed between the two
grades that submission again, and writing it again changes nothing.
"""

import contextlib
import dataclasses
import hashlib
import hmac
import json
import os
import secrets
import time
from pathlib import Path
from typing import IO, Any

from attn_course.exercises.assignment import Assignment
from attn_course.grading.results import Result
from attn_course.grading.sandbox import Limits

VERSION = 6
LOCK_SECONDS = 2.0  # for the workers of a run that was killed just now


class JournalError(RuntimeError):
    """The journal cannot be used; the text says why."""


def run_key(assignment: Assignment, limits: Limits, *, sandbox: bool) -> str:
    """Changes when a rerun could give other results: another assignment, other limits."""
    content = json.dumps(
        [VERSION, dataclasses.asdict(assignment), dataclasses.asdict(limits), sandbox],
        sort_keys=True,
    )
    return hashlib.sha256(content.encode()).hexdigest()


def file_key(data: bytes | str | None) -> str:
    """Changes when the student hands in another file."""
    content = data.encode() if isinstance(data, str) else data or b""
    return hashlib.sha256(type(data).__name__.encode() + content).hexdigest()


def _locked(path: Path) -> IO[bytes]:
    """A lock that the system drops when this process ends, however it ends."""
    import fcntl

    file = path.open("ab")
    until = time.monotonic() + LOCK_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        time.sleep(0.05)
    file.close()
    raise JournalError(
        f"another run is grading with {path.with_suffix('')}: wait for it, or end it"
    )


class Journal(contextlib.AbstractContextManager["Journal"]):
    """Results so far, kept in a file that survives a kill at any moment.

    Args:
        path: the file; created when missing.
        key: of the run; a journal of another run is set aside as ``<name>.old``.
        seed: with which the instructor's solution is graded, and everyone where the instructor
            named it; None keeps the journal's, or draws one.
        fresh: set what is there aside.
    """

    def __init__(
        self, path: Path, *, key: str, seed: int | None = None, fresh: bool = False
    ) -> None:
        self.path, self._fixed = path, seed is not None
        self.results: dict[str, tuple[str, Result]] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path.with_name(path.name + ".lock"))
        try:
            self._open(key, seed, fresh)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, key: str, seed: int | None, fresh: bool) -> None:
        data = self.path.read_bytes() if self.path.exists() else b""
        length = data.rfind(b"\n") + 1  # a line cut short by a kill is none
        self._secret, earlier, same = secrets.token_hex(16), None, False
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):  # not ours
            header, *lines = map(json.loads, data[:length].splitlines())
            if not fresh:
                # a regrade draws the same inputs, for each student's last file
                earlier, self._secret = int(header["seed"]), str(header["secret"])
                for line in lines:
                    result = Result.from_json(line["result"])
                    self.results[line["student"]] = line["file"], result
                same = header["key"] == key and seed in (None, earlier)
        self.seed = next(s for s in (seed, earlier, secrets.randbits(31)) if s is not None)
        if same:
            os.truncate(self.path, length)
            self._file = self.path.open("ab")
            return
        self.results.clear()
        if data:
            os.replace(self.path, self.path.with_name(self.path.name + ".old"))
        self._file = self.path.open("wb")
        self._append({"key": key, "seed": self.seed, "secret": self._secret})

    def _append(self, data: dict[str, Any]) -> None:
        self._file.write(json.dumps(data).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def has(self, student: str, key: str) -> bool:
        """Whether this student's file is done."""
        return student in self.results and self.results[student][0] == key

    def seed_of(self, student: str, key: str) -> int:
        """The seed for a student's file, and for no other: a hash that a secret of the run keys.

        Feedback names the seed, and with it hidden inputs can be drawn at home: that tells nothing
        of another student's, or of those of a later file.
        """
        if self._fixed:
            return self.seed
        content = json.dumps([student, key]).encode()
        digest = hmac.digest(self._secret.encode(), content, "sha256")
        return int.from_bytes(digest[:4], "big") >> 1

    def add(self, result: Result, key: str) -> None:
        """Keep a result whose gradebook rows are committed."""
        self.results[result.student] = key, result
        self._append({"student": result.student, "file": key, "result": result.as_json()})

    def __exit__(self, *args: object) -> None:
        self._file.close()
        self._lock.close()
