"""What every benchmark writes beside its numbers: machine, versions, date, seed, commit, load."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from experiments.sources import imported_files, source_hash

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(pages / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
    }


def versions(packages: Sequence[str]) -> dict[str, str]:
    """Python and the packages that matter to a benchmark."""
    found = {name: importlib.metadata.version(name) for name in packages}
    return {"python": platform.python_version(), **found}


def commit() -> str:
    """The commit measured, with ``+changes`` when tracked files differ from it."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "attn_course", "solutions")
    return git("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")


def load() -> list[float]:
    """Load averages over 1, 5 and 15 minutes: a busy machine measures slow."""
    return [round(value, 2) for value in os.getloadavg()]


def keep(
    name: str,
    part: str,
    measured: Any,
    about: dict[str, Any],
    *,
    seed: int,
    packages: Sequence[str],
    table: Callable[[dict[str, Any]], str],
    script: Path | None = None,
) -> Path:
    """Put one part into ``results/<name>.json``, and renew its table, ``results/<name>.md``.

    Every part carries its own date, commit and load: parts may come from different runs. With a
    ``script`` it carries a hash of that and of what it imports too, and the record the hash that
    all parts have, or all of them where they differ.
    """
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    record = json.loads(path.read_text()) if path.exists() else {"benchmark": name, "parts": {}}
    record |= {**about, "machine": machine(), "versions": versions(packages), "seed": seed}
    record["parts"][part] = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "load": load(),
        "measured": measured,
    }
    if script is not None:
        record["parts"][part]["code"] = source_hash(imported_files(script))
        codes = {each.get("code", "unknown") for each in record["parts"].values()}
        record["code"] = ", ".join(sorted(codes))
    path.write_text(json.dumps(record, indent=1) + "\n")
    path.with_suffix(".md").write_text(table(record))
    print(f"{part}: kept in {path.relative_to(ROOT)}", file=sys.stderr)
    return path


@contextlib.contextmanager
def processor_time() -> Iterator[Callable[[], float]]:
    """Count the processor seconds of everything that is started within, whoever waits for it.

    A process that is killed together with its parent, as a jail is, is in no ``getrusage``; a
    control group counts it.

    Yields:
        A function that gives the seconds so far, this process's own included.

    Raises:
        PermissionError: no control group can be made here.
    """
    one = Path("/sys/fs/cgroup/cpuacct")  # of version 1, with a file for each quantity
    home = one if one.is_dir() else Path("/sys/fs/cgroup")
    group = home / f"attn-benchmark-{os.getpid()}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))

        def seconds() -> float:
            if home == one:
                return int((group / "cpuacct.usage").read_text()) / 1e9
            told = dict(line.split() for line in (group / "cpu.stat").read_text().splitlines())
            return int(told["usage_usec"]) / 1e6

        yield seconds
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        with contextlib.suppress(OSError):  # what is still ending in it keeps it for a moment
            group.rmdir()
