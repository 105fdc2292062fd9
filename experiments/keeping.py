"""What long runs keep: where and when they were made, the seconds they took, a tidy file."""

import datetime
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from attn_course.train.checkpoint import require_writable, write_atomic
from benchmarks.harness import machine, versions
from experiments.sources import imported_files, source_hash

ROOT = Path(__file__).resolve().parents[1]
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|[\w.+-]+)'


class Clock(AbstractContextManager["Clock"]):
    """CPU and wall seconds of a model over all the starts of its run, kept in a file.

    Args:
        path: Where they are kept; what stands there is added to.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        before = json.loads(path.read_text()) if path.exists() else {"cpu": 0.0, "wall": 0.0}
        self._cpu, self._wall = before["cpu"], before["wall"]

    def __enter__(self) -> "Clock":
        self._started = time.process_time(), time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.save()

    def read(self) -> dict[str, float]:
        """Seconds so far."""
        cpu, wall = self._started
        return {
            "cpu": round(self._cpu + time.process_time() - cpu, 2),
            "wall": round(self._wall + time.perf_counter() - wall, 2),
        }

    def save(self) -> None:
        """Keep them."""
        write_atomic(json.dumps(self.read()).encode(), self.path)


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def laid_out(result: dict[str, Any]) -> str:
    """JSON with a line per entry, but a list of plain values in one line."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    # no string holds a newline, so this matches lists only
    return (
        re.sub(
            rf"\[\n\s*({_VALUE}(?:,\n\s*{_VALUE})*)\n\s*\]",
            lambda match: f"[{', '.join(re.findall(_VALUE, match[1]))}]",
            text,
        )
        + "\n"
    )


def claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Say whose folder it is, or refuse one that belongs to another run.

    Args:
        folder: Where checkpoints and results of one training go.
        wanted: Everything that they depend on, plain values only.

    Raises:
        ValueError: If it holds a run with other settings.
    """
    path = folder / "settings.json"
    if not path.exists():
        require_writable("work", path)
        write_atomic(json.dumps(wanted, indent=1).encode(), path)
    elif json.loads(path.read_text()) != wanted:
        raise ValueError(
            f"work: {folder} holds a run with other settings (its settings.json says which): "
            "name another folder with --work, or delete this one"
        )


def commit(made_with: Sequence[str]) -> str:
    """The commit of the checkout, with ``+changes`` where what the run depends on differs.

    Args:
        made_with: Folders and files of the repository.
    """

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", *made_with)
    return (git("rev-parse", "--short", "HEAD") or "none") + ("+changes" if changed else "")


def code_hash(path: Path) -> str:
    """Hash of a script and of what it imports."""
    return source_hash(imported_files(path))


def code_of(entries: Iterable[Mapping[str, Any]], trainer: Path, script: Path) -> str:
    """What a record says of its code: the script's hash if every entry is of today's trainer.

    Args:
        entries: Of the trainings; ``code`` is the trainer's hash when they were made.
        trainer: The module that trains.
        script: That makes the record.
    """
    made = {str(entry.get("code", "unknown")) for entry in entries}
    return code_hash(script) if made == {code_hash(trainer)} else ", ".join(sorted(made))


def today() -> str:
    """Date and time to the minute, UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def where(device: torch.device, packages: Sequence[str]) -> dict[str, Any]:
    """Machine, versions and threads.

    Args:
        device: What it ran on.
        packages: Whose versions count.
    """
    found = {
        **machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "load": [round(value, 2) for value in os.getloadavg()],
    }
    return {"machine": found, "versions": versions(packages)}
