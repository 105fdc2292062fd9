"""Run pages again with other seeds and other instruction sets, and record what each check gave.

A page says what its code gave once, on one machine. Whether that is a result or luck shows when
the same code runs again: every seed that it names moved by a thousand, torch held to another set
of instructions. Where two sets are one on the machine (native may be avx2), the second is not run
again, and its entry says so.

A check is of one of three kinds, told by what it read: ``seeds``, another seed changes it;
``record``, the same numbers of a recorded experiment each time; ``algebra``, neither. Only the
first kind is tried anew by a sweep.

The record, ``book/sweep/<page>.json``, is committed; the page shows its counts, and a test names
the records that are older than their page, or than what it imports and loads.
"""

import datetime
import json
import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .common import ROOT, Book, fail, main_page, say, slug
from .execute import Page, Run, read_page, run_pages

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.harness import commit, machine
from experiments.repeat import SEEDS, SETS, environment, twin

STEP = 1000  # how far a seed of the page moves from one run to the next


KINDS = ("seeds", "record", "algebra")


@dataclass(frozen=True)
class Held:
    """How many checks of each kind a page has, and with how many seeds those of the first held.

    Args:
        kinds: Number of checks by kind.
        held: Seeds with which every check held, under every instruction set.
        seeds: Seeds that were run.
        sets: Instruction sets that were run.
    """

    kinds: dict[str, int]
    held: int
    seeds: int
    sets: int

    def __str__(self) -> str:
        n = self.kinds
        return (
            f"{n['seeds']} checks recomputed with {self.seeds} seeds (all held with {self.held}, "
            f"each under {self.sets} instruction sets), {n['record']} of records, "
            f"{n['algebra']} algebra"
        )


def record_path(book: Book, name: str) -> Path:
    return book.sweep / f"{slug(name)}.json"


def read_record(book: Book, name: str) -> dict[str, Any] | None:
    """The record of a page, None where there is none."""
    path = record_path(book, name)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def summary(record: dict[str, Any]) -> Held:
    """What a record says in one line."""
    runs = record["runs"]
    seeds = {run["seed"] for run in runs}
    return Held(
        kinds={kind: sum(one.get("kind") == kind for one in record["checks"]) for kind in KINDS},
        held=len(seeds - {run["seed"] for run in runs if run["failed"]}),
        seeds=len(seeds),
        sets=len({run["set"] for run in runs}),
    )


def about() -> dict[str, Any]:
    """Processor, system and commit, for the record."""
    return {"machine": machine(), "commit": commit()}


def today() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d")


def collect(page: Page, runs: list[tuple[int, str, Run]]) -> dict[str, Any]:
    """The record of one page: each check with its value in every run."""
    order: dict[tuple[int, int, str], dict[str, Any]] = {}
    listed, executed = [], dict[int, str]()
    for seed, instruction_set, run in runs:
        failed = []
        for check in run.checks:
            place = (check["cell"], check["line"], check["code"])
            new = {"code": check["code"], "values": {}, "reads": {}, "recorded": False}
            entry = order.setdefault(place, new)
            entry["reads"].setdefault(instruction_set, set()).add(check["reads"])
            entry["recorded"] |= check["recorded"]
            entry["values"][f"{seed}/{instruction_set}"] = check["value"]
            if not check["held"]:
                failed.append(check["code"])
        entry = {"seed": seed, "set": instruction_set}
        if (first := executed.setdefault(id(run), instruction_set)) != instruction_set:
            entry["same_as"] = first
        listed.append({**entry, "failed": failed, "cpu_seconds": round(run.cpu_seconds, 1)})
    checks = []
    for place in sorted(order, key=lambda place: place[:2]):
        values = order[place]["values"]
        same = len(set(values.values())) == 1
        value: Any = next(iter(values.values())) if same else values
        checks.append({"code": order[place]["code"], "kind": kind(order[place]), "value": value})
    return {
        "page": page.name,
        "code": page.code_hash,
        "uses": page.decides,
        **about(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("torch", "numpy")},
        },
        "date": today(),
        "runs": listed,
        "checks": checks,
    }


def kind(entry: dict[str, Any]) -> str:
    """What a check is, by what it read: with other seeds, the same set of instructions."""
    if any(len(digests) > 1 for digests in entry["reads"].values()):
        return "seeds"
    return "record" if entry["recorded"] else "algebra"


def find(book: Book, wanted: str) -> list[Page]:
    """The pages of a chapter by the start of its slug, such as ``03``, or one page by its own."""
    names = [name for name in book.pages if slug(name).startswith(wanted)]
    if len({main_page(name) for name in names}) != 1:
        found = ", ".join(names) or "none"
        fail(f"expected the start of one chapter's name, got {wanted!r} (which fits: {found})")
    pages = [page for name in names if (page := read_page(book, name))]
    return pages or fail(f"{names[0]} has no code")


def report(page: Page, seed: int, instruction_set: str, run: Run, *, values: bool) -> int:
    """Print what one run gave; returns how many checks did not hold."""
    if run.error:
        say(f"  {run.error}")
        return 1
    failed = [check for check in run.checks if not check["held"]]
    for check in run.checks:
        if values or not check["held"]:
            mark = "ok  " if check["held"] else "FAIL"
            say(f"  {mark} {page.name}.md:{page.line(check)}: {check['code']}  [{check['value']}]")
    say(
        f"{page.name}, seed {seed}, {instruction_set}: {len(run.checks) - len(failed)} of "
        f"{len(run.checks)} checks held ({run.cpu_seconds:.1f} CPU-s)"
    )
    return len(failed)


def sweep(
    book: Book, wanted: list[str], *, seeds: list[int], sets: list[str], workers: int, stale: bool
) -> None:
    """Run pages under every seed and instruction set; whole sweeps leave their record.

    Raises:
        BookError: a check did not hold in every run, or a page stopped.
    """
    whole_book = (read_page(book, name) for name in book.pages if "/" in name)
    named = [page for name in wanted for page in find(book, name)]
    pages = named if wanted else [page for page in whole_book if page]
    if stale:
        old = {page.name for page in pages if is_stale(book, page)}
        pages = [page for page in pages if page.name in old]
        say(f"{len(pages)} records are older than their page")
        done = renewed(book, pages, workers=workers)
        pages = [page for page in pages if page.name not in done]
    whole = set(SEEDS) <= set(seeds) and set(SETS) <= set(sets)
    bad = 0
    for page in pages:
        runs: list[tuple[int, str, Run]] = []
        for seed in seeds:
            made: dict[str, Run] = {}
            for instruction_set in sets:
                same = twin(instruction_set, made)
                if same is None:
                    fresh = read_page(book, page.name)
                    assert fresh is not None
                    env = environment(instruction_set)
                    made[instruction_set] = Run(fresh, fresh.notebook, seed * STEP, env)
                runs.append((seed, instruction_set, made[same or instruction_set]))
        os.environ.pop("ATEN_CPU_CAPABILITY", None)  # each run says which it wants
        run_pages(book, list({id(run): run for _, _, run in runs}.values()), workers=workers)
        for seed, instruction_set, run in runs:
            bad += report(page, seed, instruction_set, run, values=len(runs) == 1)
        if any(run.error for _, _, run in runs):
            continue
        if whole:
            book.sweep.mkdir(exist_ok=True)
            record = collect(page, runs)
            save(record_path(book, page.name), record)
            say(f"{page.name}: {summary(record)}")
    if bad:
        fail(f"{bad} checks did not hold in every run: each FAIL line above names one")


def save(path: Path, record: dict[str, Any]) -> None:
    """Replace a record in one step."""
    temporary = path.with_suffix(".part")
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def is_stale(book: Book, page: Page) -> bool:
    """True when a page has no record, or its code or what it uses is not what was swept."""
    record = read_record(book, page.name)
    now = {"code": page.code_hash, "uses": page.decides}
    return record is None or any(record.get(name) != value for name, value in now.items())


def renewed(book: Book, pages: list[Page], *, workers: int) -> set[str]:
    """Stamp records anew where pages give what they gave, though their code or its imports changed.

    One run a page, with the first seed: where each check has the value that a record of the chapter
    has for it, the change (a function was renamed, a figure drawn otherwise, a section moved to
    another page of the chapter) moved no number, and the values of the other runs hold as well.

    Returns:
        The names of the pages whose records were stamped.
    """
    known: dict[str, list[dict[str, Any]]] = {}
    for page in pages:
        own_first = sorted(book.chapter(page.name), key=lambda name: name != page.name)
        records = [read_record(book, name) for name in own_first]
        known[page.name] = [one for one in records if one and "uses" in one]
    pages = [page for page in pages if known[page.name]]
    native = environment("native")
    runs = [Run(page, page.notebook, SEEDS[0] * STEP, native) for page in pages]
    run_pages(book, runs, workers=workers)
    done = set[str]()
    for page, run in zip(pages, runs, strict=True):
        records = known[page.name]
        checks = matched(run, [check for one in records for check in one["checks"]])
        if run.error or checks is None:
            continue
        codes = {check["code"] for check in checks}
        record = {**records[0], "page": page.name, "checks": checks}
        record["runs"] = [
            {**one, "failed": [code for code in one["failed"] if code in codes]}
            for one in records[0]["runs"]
        ]
        record |= {"code": page.code_hash, "uses": page.decides}
        took = {"cpu_seconds": round(run.cpu_seconds, 1)}
        record |= {"renewed": {**about(), "date": today(), **took}}
        save(record_path(book, page.name), record)
        say(f"{page.name}: its numbers have not changed; stamped anew")
        done.add(page.name)
    return done


def matched(run: Run, recorded: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """The recorded checks that a run with the first seed gives again; None if one is not there."""
    place = f"{SEEDS[0]}/native"
    found, left = list[dict[str, Any]](), list(recorded)
    for check in sorted(run.checks, key=lambda one: (one["cell"], one["line"])):
        for one in left:
            value = one["value"].get(place) if isinstance(one["value"], dict) else one["value"]
            if (one["code"], value) == (check["code"], check["value"]):
                left.remove(one)
                found.append(one)
                break
        else:
            return None
    return found
