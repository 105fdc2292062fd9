"""Are the recorded numbers those of today's code? ``make records`` makes one run of each anew.

One line for each record: *same*, *same but for rounding* (see ``experiments.repeat.agreement``),
*differs*, or *too long* where a run takes more than a minute (``--longest`` allows more). The exit
status is 1 where one differs. ``--stamp`` writes into each old record that came back that it was
reproduced, so that it is old no longer; what differs is made anew by ``python -m
experiments.NAME``. ``--old`` repeats only those that are old.

A record that is too long to repeat can be kept for a reason: ``--accept "the first rate of the LSTM
came back to 1e-4"`` writes it, with the date, into the records that are named.
"""

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness import commit, machine
from experiments.repeat import Agreement, again, code_hash, stamp
from experiments.sources import ROOT

RESULTS = ROOT / "experiments" / "results"
LONGEST = 60.0  # CPU-seconds of a run that is repeated
# records whose script has another name
SCRIPTS = {
    "banded_attention": "benchmarks/banded_attention.py",
    "kernel_artifacts": "benchmarks/kernel_artifacts.py",
    "language_model": "experiments/language_model/__main__.py",
    "translation": "experiments/translation/__main__.py",
    "translation_paired": "experiments/translation/paired.py",
    "translation_rates": "experiments/translation/rates.py",
    "translation_tuned": "experiments/translation/tuned.py",
}


def script(name: str) -> Path:
    """The script that makes a record; ``language_model_passes`` is made by ``language_model``."""
    while name not in SCRIPTS and not (ROOT / f"experiments/{name}.py").is_file() and "_" in name:
        name = name.rpartition("_")[0]
    return ROOT / SCRIPTS.get(name, f"experiments/{name}.py")


def read(name: str) -> dict[str, Any]:
    """A record."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def is_old(name: str) -> bool:
    """Whether a record is of other code than today's, or says of none."""
    path = script(name)
    return not path.is_file() or read(name).get("code") != code_hash(path)


def is_repeatable(record: dict[str, Any]) -> bool:
    """Whether it was made by ``experiments.repeat``, seed by seed."""
    runs = record.get("runs")
    return isinstance(runs, list) and all({"seed", "values", "cpu_seconds"} <= set(r) for r in runs)


def repeat_one(name: str, longest: float, stamped: bool) -> tuple[str, str, float]:
    """Repeat one record; its verdict, what is to be said of it, and the CPU-seconds."""
    record = read(name)
    if not is_repeatable(record):
        return "too long", f"made by {script(name).relative_to(ROOT)}", 0.0
    seconds = min(run["cpu_seconds"] for run in record["runs"])
    if seconds > longest:
        return "too long", f"{seconds:.0f} CPU-seconds a run", 0.0
    try:
        run, found = again(record)
    except SystemExit as error:
        return "differs", str(error), 0.0
    old = is_old(name)
    if stamped and old and found.verdict != "differs":
        stamp(record, found, code_hash(script(name)), RESULTS / f"{name}.json")
        old = False
    return found.verdict, told(found) + (", old" if old else ""), run["cpu_seconds"]


def accept(name: str, why: str) -> None:
    """Say in a record why it holds for today's code although it was not repeated."""
    from experiments.keeping import laid_out  # loads torch

    path, record = RESULTS / f"{name}.json", read(name)
    compact = path.read_text(encoding="utf-8") == laid_out(record)
    record["code"] = code_hash(script(name))
    today = {"date": time.strftime("%Y-%m-%d"), "commit": commit(), "machine": machine()}
    record["accepted"] = {"why": why, **today}
    text = laid_out(record) if compact else json.dumps(record, indent=1) + "\n"
    path.write_text(text, encoding="utf-8")


def told(found: Agreement) -> str:
    """An agreement in words."""
    if not found.apart:
        return f"{found.numbers} numbers"
    return f"{found.apart} of {found.numbers} numbers, furthest {found.furthest}"


def main() -> None:
    """Repeat the records that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m experiments.records", description=__doc__)
    known = sorted(path.stem for path in RESULTS.glob("*.json"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--old", action="store_true", help="only those that are old")
    parser.add_argument("--stamp", action="store_true", help="old ones that agree are old no more")
    parser.add_argument("--accept", metavar="WHY", help="keep the named old records for a reason")
    parser.add_argument("--longest", type=float, default=LONGEST, help="CPU-seconds; default: 60")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time; default: 1")
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.names) - set(known)):
        parser.error(f"no record is named {', '.join(unknown)}")
    if chosen.accept is not None:
        if not chosen.names:
            parser.error("--accept: name the records")
        for name in chosen.names:
            accept(name, chosen.accept)
            print(f"{name}: kept, {chosen.accept}")
        return
    names = [name for name in chosen.names or known if not chosen.old or is_old(name)]
    seconds, verdicts = 0.0, []
    with ThreadPoolExecutor(chosen.workers) as pool:
        results = pool.map(lambda name: repeat_one(name, chosen.longest, chosen.stamp), names)
        for name, (verdict, text, took) in zip(names, results, strict=True):
            print(f"{name:24}{verdict:23}{took:6.1f} s  {text}", flush=True)
            seconds += took
            verdicts.append(verdict)
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))
    print(f"{len(names)} records: {counts}; {seconds:.0f} CPU-seconds")
    sys.exit(int("differs" in verdicts))


if __name__ == "__main__":
    main()
