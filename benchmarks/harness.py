"""What every benchmark writes beside its numbers: machine, versions, date, seed, commit, load."""

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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


# how a processor that has AVX-512 is used as one that has not: by torch, MKL and oneDNN
INSTRUCTION_SETS = {
    "AVX512": {"ATEN_CPU_CAPABILITY": "avx512"},
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    },
}
CHILD = "ATTN_BENCHMARK_CHILD"


def under_each_set(script: str, arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Run a benchmark once in a child process for each instruction set, the widest first.

    Args:
        script: Its path; in a child it prints its rows as the last line, by :func:`give_rows`.
        arguments: Of the child.

    Returns:
        The rows with their ``set``, those of one case beside each other.
    """
    import torch

    native, known = torch.backends.cpu.get_cpu_capability(), list(INSTRUCTION_SETS)
    names = known[known.index(native) :] if native in known else [native]
    found = []
    for name in names:
        env = {**os.environ, **INSTRUCTION_SETS.get(name, {}), CHILD: name, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, script, *arguments]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
        rows = json.loads(done.stdout.splitlines()[-1])
        found.append([{"set": name, **row} for row in rows])
    return [row for same in zip(*found, strict=True) for row in same]


def give_rows(measure: Callable[[], Iterable[dict[str, Any]]]) -> None:
    """What a child does: print what it has measured as one line."""
    import torch

    torch.set_num_threads(1)
    if os.environ[CHILD] == "AVX2":  # the package asks torch what the processor has
        for name in dir(torch.cpu):
            if name.startswith(("_is_avx512", "_is_amx")):
                setattr(torch.cpu, name, lambda: False)
    rows = []
    for row in measure():
        print(*row.values(), file=sys.stderr, flush=True)
        rows.append(row)
    print(json.dumps(rows))


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
