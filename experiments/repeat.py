"""Repeat an experiment over seeds and instruction sets, and record every run.

An experiment is a module with a function ``run(seed) -> {name: number or list}`` and two lines::

    if __name__ == "__main__":
        repeat(run, __file__)

``python -m experiments.NAME`` then runs it for 4 seeds under 3 instruction sets, each run in a
process of its own on one thread, and leaves ``experiments/results/NAME.json``. Runs that are
recorded for the same code are kept, so a run that was stopped continues where it was.
``--seeds 0 1 --sets native`` makes a part of it. Where two instruction sets are one on the machine
(``native`` may be ``avx2``), the second is not run again: its entry says ``same_as``.

The same code is the script and all that it imports (``experiments/sources.py``). Where that has
changed, one recorded run is made once more: if its numbers come back, the others are kept and the
record says when it was reproduced; else it begins anew. ``agreement`` says what "come back" means.
"""

import argparse
import functools
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness import commit, machine, versions
from experiments.sources import imported_files, source_hash

ROOT = Path(__file__).resolve().parents[1]
RESULTS = Path(__file__).resolve().parent / "results"
SETS = ("default", "avx2", "native")  # values of ATEN_CPU_CAPABILITY; native leaves it unset
SEEDS = (0, 1, 2, 3)
PACKAGES = ("torch", "numpy")
# a key below which the numbers are measured times or memory, by its first or last word; flex of
# banded_ways has times
MEASURED = re.compile(r"(mib|ms|seconds|times?)\b.*|memory, .*|.*\b(ms|seconds)|\w+_seconds|flex")
CLOSE = 1e-6  # relative


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
    """Hash of an experiment and of what it imports: a record with another one is old."""
    return source_hash(imported_files(path))


class Agreement(NamedTuple):
    """How a run that was made once more compares with what is recorded."""

    verdict: str  # "same", "same but for rounding" or "differs"
    numbers: int  # that were compared
    apart: int  # of them that are not the same
    furthest: str  # where it differs most, and by how much


def leaves(values: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every number or word of a run with its place, but measured times and memory."""
    if isinstance(values, dict):
        for key, value in values.items():
            if not MEASURED.fullmatch(key):
                yield from leaves(value, f"{place}/{key}" if place else key)
    elif isinstance(values, list):
        for number, value in enumerate(values):
            yield from leaves(value, f"{place}[{number}]")
    else:
        yield place, values


def is_close(one: Any, other: Any) -> bool:
    """Equal, or numbers that differ by a millionth."""
    if isinstance(one, float | int) and isinstance(other, float | int):
        return math.isclose(one, other, rel_tol=CLOSE)
    return bool(one == other)


def agreement(record: dict[str, Any], run: dict[str, Any]) -> Agreement:
    """Compare a run with the recorded ones of its seed; measured times are left out.

    Rounding on another processor is not that of the machine of the record. Three instruction sets
    show what it does: a number that is not the same agrees *but for rounding* where it is no
    further from a recorded one of its seed than twice the widest range, over all seeds, that this
    number has between instruction sets, or for one of a list any number of the list.

    Args:
        record: With runs that have ``seed``, ``set`` and ``values``.
        run: With ``seed`` and ``values``.
    """
    runs = [(one["seed"], dict(leaves(one["values"]))) for one in record["runs"]]
    new = dict(leaves(run["values"]))
    of_its_seed = [values for seed, values in runs if seed == run["seed"]]
    old = [values for values in of_its_seed if values.keys() == new.keys()]
    if not old:
        other = min((values.keys() ^ new.keys() for values in of_its_seed), key=len)
        return Agreement("differs", len(new), len(other), f"{min(other)}: only in one of them")
    spread: dict[str, float] = {}
    for seed in dict(runs):
        of_seed = [values for other, values in runs if other == seed]
        for place in new.keys() & of_seed[0].keys():
            found = [values[place] for values in of_seed if place in values]
            if all(isinstance(value, float | int) for value in found):
                kind = re.sub(r"\[\d+\]", "", place)
                spread[kind] = max(spread.get(kind, 0.0), max(found) - min(found))
    # the run under the instruction set whose numbers are nearest
    nearest = min(old, key=lambda values: sum(not is_close(values[p], new[p]) for p in new))
    apart = [place for place in new if not is_close(nearest[place], new[place])]
    if not apart:
        return Agreement("same", len(new), 0, "")

    def excess(place: str) -> float:
        """The distance in ranges between instruction sets; infinite where there is none."""
        if not isinstance(new[place], float | int):
            return math.inf
        distance = min(abs(values[place] - new[place]) for values in old)
        range_ = spread.get(re.sub(r"\[\d+\]", "", place), 0.0)
        return distance / range_ if range_ else math.inf if distance else 0.0

    worst = max(apart, key=excess)
    furthest = f"{worst}: {new[worst]!r}, recorded {nearest[worst]!r}"
    verdict = "same but for rounding" if excess(worst) <= 2 else "differs"
    return Agreement(verdict, len(new), len(apart), furthest)


def once(name: str, seed: int, instruction_set: str) -> dict[str, Any]:
    """One run in a process of its own: ``seed``, ``set``, ``values`` and ``cpu_seconds``.

    Raises:
        SystemExit: It failed; its own lines say why.
    """
    done = subprocess.run(
        [sys.executable, "-m", f"experiments.{name}", "--one", str(seed)],
        cwd=ROOT,
        env=environment(instruction_set),
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"seed {seed} under {instruction_set} failed: the lines above say why")
    return {"seed": seed, "set": instruction_set, **json.loads(done.stdout.splitlines()[-1])}


def again(record: dict[str, Any]) -> tuple[dict[str, Any], Agreement]:
    """The first recorded seed once more, under the machine's own instruction set."""
    run = once(record["experiment"], record["runs"][0]["seed"], "native")
    return run, agreement(record, run)


def stamp(record: dict[str, Any], found: Agreement, code: str, out: Path) -> None:
    """Keep the runs of a record whose numbers came back under today's code, and say so in it."""
    record["code"] = code
    record["reproduced"] = {
        "date": time.strftime("%Y-%m-%d"),
        "commit": commit(),
        "machine": machine(),
        "seed": record["runs"][0]["seed"],
        "verdict": found.verdict,
        "numbers": found.numbers,
        "apart": found.apart,
    }
    write(out, record)


def write(path: Path, record: dict[str, Any]) -> None:
    """Replace a record in one step: it is never half written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    temporary.write_text(json.dumps(record, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    temporary.replace(path)


def add(record: dict[str, Any], run: dict[str, Any], out: Path) -> None:
    """Put one more run into a record, and the record on disk."""
    here = machine()
    several = any("machine" in one for one in record["runs"])
    if several or (record["runs"] and record["machine"] != here):
        for one in record["runs"]:
            one.setdefault("machine", record["machine"])  # then every run says its own
        run = {**run, "machine": here}
    record["runs"].append(run)
    record["runs"].sort(key=lambda one: (one["seed"], SETS.index(one["set"])))
    record |= {
        "machine": here,
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
    if record.get("runs") and record.get("code") != code:
        print("the code has changed since: one recorded run once more", flush=True)
        _, found = again(record)
        print(f"{found.verdict}: {found.apart} of {found.numbers} {found.furthest}", flush=True)
        if found.verdict == "differs":
            record = {}
        else:
            stamp(record, found, code, out)
    if not record.get("runs"):
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
        add(record, once(path.stem, seed, instruction_set), out)
    print(f"{len(record['runs'])} runs in {out.relative_to(ROOT)}", flush=True)
