"""Run the pages whose code, or what their code uses, changed; several at once.

An executed page is kept as ``_build/executed/<page>.ipynb`` with a key: a hash of its code cells,
of the modules of the package that it imports (and those that they import), of the records that it
loads, of the exact versions and of the interpreter. Prose is in none of them, so an edit of prose
runs nothing, and neither does an edit of a module that no page imports.
"""

import ast
import asyncio
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from . import in_kernel
from .asides import BlockError, blocks
from .common import ROOT, Book, fail, say
from .plain import DIRECTIVE, OPEN, find_close

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from experiments.sources import imported_by, source_hash

WORKERS = 2
HEARTBEAT = 10.0  # seconds between signs of life of a running page
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
ABOUT = ("code", "commit", "date", "reproduced", "accepted")  # of a record: not its numbers
RECORD = re.compile(r"load_(?:results|seeds)\(\s*(?:\"(\w+)\"|'(\w+)'|[^)])")


PROSE = ("alt", "caption")  # arguments of what shows a figure
DRAWING = ("viz", "figures")  # parts of the package that only draw


def bare(source: str) -> str:
    """The syntax of a cell, without comments, captions and alternative texts."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # such as a line for IPython
        return source
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [each for each in node.keywords if each.arg not in PROSE]
    return ast.dump(tree)


@dataclass
class Page:
    """One page with code, read once: its notebook, and what its outputs depend on."""

    book: Book
    name: str
    notebook: NotebookNode

    @cached_property
    def code_cells(self) -> list[tuple[int, NotebookNode]]:
        """The code cells, each with its index among all cells."""
        cells = enumerate(self.notebook.cells)
        return [(index, cell) for index, cell in cells if cell.cell_type == "code"]

    @cached_property
    def code_hash(self) -> str:
        """Hash of the code cells and of the keys of the predict boxes: what a sweep has run.

        Comments, captions and alternative texts are prose: they change no number.
        """
        asked = ("id", "code", "answer", "tolerance")
        cells = [
            [
                bare(cell["source"]),
                cell["fixed"],
                [[key[name] for name in asked] for key in cell["keys"]],
            ]
            for cell in self.specs
        ]
        return hashlib.sha256(json.dumps(cells).encode()).hexdigest()[:16]

    @cached_property
    def key(self) -> str:
        """Hash of everything that decides the outputs."""
        digest = hashlib.sha256(sys.version.encode() + self.book.lock.read_bytes())
        digest.update(Path(in_kernel.__file__).read_bytes())
        digest.update(self.code_hash.encode() + self.code.encode())
        tags = [cell.metadata.get("tags", []) for _, cell in self.code_cells]
        digest.update(json.dumps(tags).encode())
        digest.update(self.uses(self.modules).encode())
        return digest.hexdigest()[:16]

    @cached_property
    def code(self) -> str:
        return "\n".join(cell.source for _, cell in self.code_cells)

    @cached_property
    def modules(self) -> set[Path]:
        """What the page imports of the package and of the experiments, theirs included."""
        return imported_by(self.code, self.book.package.parent)

    @cached_property
    def decides(self) -> str:
        """Hash of what the page imports and loads; what only draws decides no check."""
        return self.uses({path for path in self.modules if path.parent.name not in DRAWING})

    def uses(self, modules: set[Path]) -> str:
        digest = hashlib.sha256(source_hash(modules).encode())
        for path in sorted(self.records(self.code)):
            record = json.loads(path.read_text(encoding="utf-8"))
            kept = {name: value for name, value in record.items() if name not in ABOUT}
            digest.update(path.stem.encode() + json.dumps(kept, sort_keys=True).encode())
        return digest.hexdigest()[:16]

    def records(self, code: str) -> Iterable[Path]:
        """The recorded results that the page loads; all of them where a name is computed."""
        names = [first or second for first, second in RECORD.findall(code)]
        if not all(names):
            return self.book.records.glob("*.json")
        paths = [self.book.records / f"{name}.json" for name in names]
        return [path for path in paths if path.is_file()]

    @cached_property
    def specs(self) -> list[dict[str, Any]]:
        """What the kernel is told about each code cell: where it stands, and its keys."""
        source_map = self.notebook.metadata.source_map
        found: list[dict[str, Any]] = []
        open_box: dict[str, Any] | None = None
        answered: dict[str, Any] | None = None  # the last cell that answers the open box

        def close() -> None:
            if open_box is not None and answered is not None:
                answered["keys"].append(open_box)

        for index, cell in enumerate(self.notebook.cells):
            if cell.cell_type == "code":
                tags = cell.metadata.get("tags", [])
                spec: dict[str, Any] = {
                    "source": cell.source,
                    # the line before the cell's first line of code, 1-based
                    "line": first_line_of_code(self.text, source_map[index], cell.source) - 1,
                    "fixed": "fixed-seed" in tags,
                    "keys": [],
                }
                found.append(spec)
                if "after-predict" in tags and open_box is not None:
                    answered = spec
            elif cell.cell_type == "markdown":
                for box in predict_boxes(cell.source, self.text, self.name):
                    close()
                    open_box, answered = box, None
        close()
        return found

    @cached_property
    def text(self) -> list[str]:
        return self.book.path(self.name).read_text(encoding="utf-8").splitlines()

    def line(self, check: dict[str, Any]) -> int:
        """The line of the page, 1-based, in which a check stands today."""
        cell = self.specs[check["cell"]]
        boxes = {key["id"]: key["line"] for key in cell["keys"]}
        return int(boxes.get(check.get("key"), cell["line"] + check["line"]))

    @property
    def stored(self) -> Path:
        return self.book.executed / f"{self.name.replace('/', '__')}.ipynb"

    def executed(self) -> NotebookNode | None:
        """The page with its outputs, if they are of today's code."""
        try:
            notebook = nbformat.read(self.stored, as_version=4)
        except (OSError, ValueError):
            return None
        return notebook if notebook.metadata.get("attn", {}).get("key") == self.key else None


def first_line_of_code(page: list[str], start: int, source: str) -> int:
    """The line of the page, 1-based, in which a cell's code begins."""
    first = next((line for line in source.splitlines() if line.strip()), "")
    for number in range(start, len(page)):
        if first and page[number].strip() == first.strip():
            return number + 1
    return start + 1


def predict_boxes(text: str, whole: list[str], page: str) -> Iterable[dict[str, Any]]:
    """The keys of the predict boxes in a piece of a page, with their lines, 1-based."""
    lines, number = text.splitlines(), 0
    while number < len(lines):
        opened = OPEN.match(lines[number])
        directive = opened and DIRECTIVE.match(opened["rest"])
        if opened and directive and directive["name"] == "predict":
            end = find_close(lines, number + 1, opened["fence"])
            fence = whole.index(lines[number]) + 1  # ids are unique on a page
            try:
                box = blocks.read_predict(directive["argument"], lines[number + 1 : end])
            except BlockError as error:
                where = fence + (0 if error.line is None else error.line + 1)
                fail(f"{page}.md:{where}: predict: {error}")
            if box.key is not None:
                right = [index for index, option in enumerate(box.options) if option.correct]
                yield {
                    "id": box.id,
                    "code": box.key.source,
                    "line": fence + 1 + box.key.line,
                    "answer": float(right[0]) if right else float(box.number or 0.0),
                    "tolerance": box.tolerance,
                }
            number = end
        number += 1


def read_page(book: Book, name: str) -> Page | None:
    """A page, read as the book itself reads it; None when it has no code."""
    text = book.path(name).read_text(encoding="utf-8")
    if not is_myst_markdown_notebook(text):
        return None
    extensions = book.config.get("parse", {}).get("myst_enable_extensions", [])
    notebook = read_myst_markdown_notebook(
        text, config=MdParserConfig(enable_extensions=set(extensions)), add_source_map=True
    )
    page = Page(book, name, notebook)
    return page if page.code_cells else None


@dataclass
class Run:
    """One page that runs, and what became of it."""

    page: Page
    notebook: NotebookNode
    shift: int = 0
    env: dict[str, str] = field(default_factory=dict)
    cell: int = 0
    started: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    error: str | None = None
    report: str = ""
    stderr: list[str] = field(default_factory=list)

    @property
    def cells(self) -> int:
        return len(self.page.code_cells)

    @property
    def checks(self) -> list[dict[str, Any]]:
        return checks_of(self.notebook)


def checks_of(notebook: NotebookNode) -> list[dict[str, Any]]:
    """What the checks of an executed page gave, in the order of the page."""
    return [
        dict(record)
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.get("outputs", ())
        for record in output.get("metadata", {}).get(in_kernel.RECORDS, ())
    ]


def first_line(error: BaseException) -> str:
    """The error in one line, as Python prints it last."""
    if isinstance(error, CellExecutionError):
        return " ".join(f"{error.ename}: {ANSI.sub('', error.evalue)}".split())[:300]
    if isinstance(error, CellTimeoutError):
        return "the cell ran past its time limit"
    if isinstance(error, DeadKernelError):
        return "the kernel died (out of memory?)"
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


async def execute(run: Run, *, timeout: int) -> None:
    """Run one page in its own kernel, in an empty folder, and note the error if there is one."""
    notebook, process = run.notebook, None
    folder = tempfile.mkdtemp(prefix="attn-book-")
    spec = Path(f"{folder}.json")
    spec.write_text(json.dumps({"shift": run.shift, "cells": run.page.specs}), encoding="utf-8")
    here = str(Path(__file__).resolve().parent)
    # one line and in quotes of its own: it travels through the kernel's command line
    start = f"import sys; sys.path.insert(0, {here!r}); import in_kernel; sys.path.pop(0); "
    start += f"in_kernel.install({str(spec)!r})"

    # Unix sockets: no port to collide, and no warning about plain TCP on every start.
    sockets = {"transport": "ipc", "ip": f"{folder}.ipc"} if os.name == "posix" else {}

    async def started(cell: NotebookNode, cell_index: int) -> None:
        run.cell += cell.cell_type == "code"

    async def executed(cell: NotebookNode, cell_index: int, execute_reply: object) -> None:
        nonlocal process
        if process is None:
            process = psutil.Process(client.km.provisioner.process.pid)
        used = process.cpu_times()
        run.cpu_seconds = used.user + used.system + used.children_user + used.children_system

    client = NotebookClient(
        notebook,
        timeout=notebook.metadata.get("execution", {}).get("timeout", timeout),
        kernel_name="python3",
        record_timing=False,  # it would change the cells' metadata, and with it their hash
        config=Config({"ConnectionFileMixin": sockets}),
        resources={"metadata": {"path": folder}},
        extra_arguments=[f"--IPKernelApp.exec_lines={start}"],
        on_cell_start=started,
        on_cell_executed=executed,
    )
    run.started = time.monotonic()
    try:
        await client.async_execute(env={**os.environ, **run.env})
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        note_failure(run, error)
    finally:
        run.seconds = time.monotonic() - run.started
        shutil.rmtree(folder, ignore_errors=True)
        spec.unlink(missing_ok=True)
    for number, (_, cell) in enumerate(run.page.code_cells):
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stderr":
                run.stderr.append(f"cell {number + 1}: {' '.join(output.text.split())[:120]}")


def note_failure(run: Run, error: Exception) -> None:
    """Keep the failing cell and the whole traceback for the report."""
    number = max(run.cell, 1) - 1
    cell = run.page.code_cells[number][1]
    where = f"cell {run.cell} of {run.cells} (line {run.page.specs[number]['line'] + 1})"
    run.error = f"{run.page.name}.md, {where}: {first_line(error)}"
    run.report = f"{run.error}\n\n{cell.source}\n\n{ANSI.sub('', str(error))}\n"


async def execute_all(runs: list[Run], *, timeout: int, workers: int) -> None:
    """Run pages ``workers`` at a time, the longest first, and say which is at which cell."""
    gate = asyncio.Semaphore(workers)
    done = 0

    async def one(run: Run) -> None:
        nonlocal done
        async with gate:
            say(f"running {run.page.name} ({run.cells} cells)")
            await execute(run, timeout=timeout)
            done += 1
            verdict = "FAILED" if run.error else "done"
            say(
                f"[{done}/{len(runs)}] {verdict} {run.page.name} in {run.seconds:.1f} s "
                f"({run.cpu_seconds:.1f} CPU-s)"
            )

    async def heartbeat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            for run in runs:
                if run.started and not run.seconds:
                    seconds = time.monotonic() - run.started
                    say(f"  ... {run.page.name}: cell {run.cell} of {run.cells}, {seconds:.0f} s")

    pulse = asyncio.create_task(heartbeat())
    try:
        await asyncio.gather(*(one(run) for run in runs))
    finally:
        pulse.cancel()


def run_pages(book: Book, runs: list[Run], *, workers: int) -> None:
    """Run pages, each in a kernel of this environment."""
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment, not of $HOME
    timeout = int(book.config.get("execute", {}).get("timeout", 300))
    asyncio.run(execute_all(runs, timeout=timeout, workers=workers))


@dataclass(frozen=True)
class Executed:
    """All pages with code, with their outputs."""

    pages: dict[str, Page]
    notebooks: dict[str, NotebookNode]
    ran: tuple[str, ...]

    @property
    def checks(self) -> list[tuple[str, dict[str, Any]]]:
        """Every check with the name of its page."""
        return [(name, check) for name in self.pages for check in checks_of(self.notebooks[name])]


def execute_book(book: Book, *, workers: int = WORKERS) -> Executed:
    """Run every page that has no valid outputs yet.

    Where there is no Triton (macOS), pages that use it keep their text and have no outputs.

    Raises:
        BookError: a cell failed; the reports lie in ``_build/reports``.
    """
    book.executed.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(book.reports, ignore_errors=True)
    read = {name: read_page(book, name) for name in book.pages}
    pages = {name: page for name, page in read.items() if page is not None}
    notebooks = {name: page.executed() for name, page in pages.items()}
    if find_spec("triton") is None:
        for name, page in pages.items():
            if notebooks[name] is None and re.search(r"\btriton\b|attn_course.kernels", page.code):
                say(f"note: {name} needs Triton (Linux on x86-64): its outputs are left out")
                notebooks[name] = page.notebook
    runs = [Run(page, page.notebook) for name, page in pages.items() if notebooks[name] is None]
    say(f"{len(runs)} of {len(pages)} pages with code must run")
    if runs:
        run_pages(book, runs, workers=workers)
    for run in runs:
        name = run.page.name
        if run.error is None:
            for line in run.stderr:
                say(f"note: {name} wrote to stderr in {line}")
            keep(run)
            notebooks[name] = run.notebook
        else:
            book.reports.mkdir(parents=True, exist_ok=True)
            report = book.reports / f"{name.replace('/', '_')}.log"
            report.write_text(run.report, encoding="utf-8")
    if failed := [run for run in runs if run.error]:
        reports = os.path.relpath(book.reports)
        fail("; ".join(str(run.error) for run in failed) + f" (reports: {reports})")
    done = {name: notebook for name, notebook in notebooks.items() if notebook is not None}
    return Executed(pages, done, tuple(run.page.name for run in runs))


def keep(run: Run) -> None:
    """Store an executed page with its key and what it took, in one step."""
    run.notebook.metadata["attn"] = {
        "key": run.page.key,
        "seconds": round(run.seconds, 1),
        "cpu_seconds": round(run.cpu_seconds, 1),
    }
    temporary = run.page.stored.with_suffix(".part")
    nbformat.write(run.notebook, temporary)
    temporary.replace(run.page.stored)


def fill_cache(book: Book, executed: Executed) -> Path:
    """Give the outputs to Sphinx in the form that it reads: a jupyter-cache."""
    folder = book.build / "cache"
    shutil.rmtree(folder, ignore_errors=True)
    cache = get_cache(str(folder))
    for name, notebook in executed.notebooks.items():
        cache.cache_notebook_bundle(
            CacheBundleIn(notebook, str(book.path(name))), check_validity=False, overwrite=True
        )
    return folder
