"""Repeat an experiment over seeds and instruction sets, and record every run.

An experiment is a module with a function ``run(seed) -> {name: number or list}`` and two lines::

    if __name__ == "__main__":
        repeat(run, __file__)

``python -m experiments.NAME`` then runs it for 4 seeds under 3 instruction sets, each run in a
process of its own on one thread, and leaves ``experiments/results/NAME.json``. Runs that are
recorded for the same code are kept, so a run that was stopped continues where it was.
``--seeds 0 1 --sets native`` makes a part of it. Where two instruction sets are one on the machine
(``native`` may be ``avx2``), the second is not run again: its entry says ``same_as``.
"""

import argparse
import functools
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.harness import commit, machine, versions

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("default", "avx2", "native")  # values of ATEN_CPU_CAPABILITY; native leaves it unset
SEEDS = (0, 1, 2, 3)
PACKAGES = ("torch", "numpy")


def environment(instruction_set: str) -> dict[str, str]:
    """The environment of one run: one thread, and the instruction set that torch may use."""
    env = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")}
    env |= {"OPENBLAS_NUM_THREADS": "1"}
    env.pop("ATEN_CPU_CAPABILITY", None)
    if instruction_set != "native":
        env["ATEN_CPU_CAPABILITY"] = instruction_set
    return env


@functools.cache
def capability(instruction_set: str) -> str:
    """What torch makes of an instruction set on this machine, such as ``AVX2``."""
    code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=environment(instruction_set), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def twin(instruction_set: str, among: Iterable[str]) -> str | None:
    """Another set that is the same here: a run under it would repeat every bit."""
    same = (other for other in among if other != instruction_set)
    return next((o for o in same if capability(o) == capability(instruction_set)), None)


def code_hash(path: Path) -> str:
    """Hash of an experiment's source: a record with another one is older than the experiment."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def write(path: Path, record: dict[str, Any]) -> None:
    """Replace a record in one step: it is never half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def add(record: dict[str, Any], run: dict[str, Any], out: Path) -> None:
    """Put one more run into a record, and the record on disk."""
    record["runs"].append(run)
    record["runs"].sort(key=lambda one: (one["seed"], SETS.index(one["set"])))
    record |= {
        "machine": machine(),
        "versions": versions(PACKAGES),
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
    }
    write(out, record)


def repeat(run: Callable[[int], dict[str, Any]], file: str) -> None:
    """The command line of an experiment.

    Args:
        run: From a seed to the numbers of one run, in a form that JSON knows.
        file: ``__file__`` of the experiment.
    """
    path = Path(file).resolve()
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{path.stem}", description=run.__doc__
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="default: 0 1 2 3")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS, help="default: all three")
    parser.add_argument("--one", type=int, metavar="SEED", help="run one seed here and print it")
    chosen = parser.parse_args()
    if chosen.one is not None:
        import torch

        torch.set_num_threads(1)
        start = time.process_time()
        values = run(chosen.one)
        print(json.dumps({"values": values, "cpu_seconds": round(time.process_time() - start, 1)}))
        return
    out, code = RESULTS / f"{path.stem}.json", code_hash(path)
    record = json.loads(out.read_text(encoding="utf-8")) if out.is_file() else {}
    if record.get("code") != code:
        record = {"experiment": path.stem, "code": code, "runs": []}
    known = {(one["seed"], one["set"]) for one in record["runs"]}
    wanted = [(s, i) for s in chosen.seeds for i in chosen.sets if (s, i) not in known]
    for number, (seed, instruction_set) in enumerate(wanted, 1):
        print(f"[{number}/{len(wanted)}] seed {seed}, {instruction_set}", flush=True)
        made = {one["set"]: one for one in record["runs"] if one["seed"] == seed}
        same = twin(instruction_set, made)
        if same is not None:
            copied = {**made[same], "set": instruction_set, "same_as": same}
            add(record, copied, out)
            continue
        done = subprocess.run(
            [sys.executable, "-m", f"experiments.{path.stem}", "--one", str(seed)],
            cwd=ROOT,
            env=environment(instruction_set),
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"seed {seed} under {instruction_set} failed: the lines above say why")
        result = json.loads(done.stdout.splitlines()[-1])
        add(record, {"seed": seed, "set": instruction_set, **result}, out)
    print(f"{len(record['runs'])} runs in {out.relative_to(ROOT)}", flush=True)
