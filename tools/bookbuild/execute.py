"""Run the pages that changed, several at once, into a cache that knows the package.

jupyter-cache finds a page by the text of its code cells alone, so a change in ``attn_course``
would leave old outputs in the book. Here the cache folder is named by a hash of everything else
that decides an output: package, recorded results, exact versions, interpreter. Prose is in none of
them, so an edit of prose runs nothing.
"""

import asyncio
import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.cache.main import JupyterCacheBase
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from traitlets.config import Config

from .common import Book, fail, say

WORKERS = 2
HEARTBEAT = 10.0  # seconds between signs of life of a running page
KEPT_CACHES = 3
ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@dataclass
class Run:
    """One page that must run, and what became of it."""

    page: str
    notebook: NotebookNode
    cell: int = 0
    started: float = 0.0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    error: str | None = None
    report: str = ""
    stderr: list[str] = field(default_factory=list)

    @property
    def cells(self) -> int:
        return sum(cell.cell_type == "code" for cell in self.notebook.cells)


def cache_key(book: Book) -> str:
    """Hash of package, records, lock file and interpreter: another key is another cache."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(book.package.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(path.relative_to(book.package).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for path in sorted(book.records.glob("*.json")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(book.lock.read_bytes())
    return digest.hexdigest()[:16]


def read_page(book: Book, page: str) -> NotebookNode | None:
    """The page as a notebook, read as the book itself reads it; None when it has no code."""
    path = book.path(page)
    text = path.read_text(encoding="utf-8")
    if not is_myst_markdown_notebook(text):
        return None
    extensions = book.config.get("parse", {}).get("myst_enable_extensions", [])
    notebook = read_myst_markdown_notebook(
        text, config=MdParserConfig(enable_extensions=set(extensions)), add_source_map=True
    )
    return notebook if any(cell.cell_type == "code" for cell in notebook.cells) else None


def is_cached(cache: JupyterCacheBase, notebook: NotebookNode) -> bool:
    """True when the same code cells, tags included, have been run."""
    try:
        cache.match_cache_notebook(notebook)
    except KeyError:
        return False
    return True


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
        on_cell_start=started,
        on_cell_executed=executed,
    )
    run.started = time.monotonic()
    try:
        await client.async_execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        note_failure(run, error)
    finally:
        run.seconds = time.monotonic() - run.started
        shutil.rmtree(folder, ignore_errors=True)
    for number, cell in enumerate(cell for cell in notebook.cells if cell.cell_type == "code"):
        for output in cell.get("outputs", ()):
            if output.output_type == "stream" and output.name == "stderr":
                run.stderr.append(f"cell {number + 1}: {' '.join(output.text.split())[:120]}")


def note_failure(run: Run, error: Exception) -> None:
    """Keep the failing cell and the whole traceback for the report."""
    code = [n for n, cell in enumerate(run.notebook.cells) if cell.cell_type == "code"]
    index = code[max(run.cell, 1) - 1]
    cell, line = run.notebook.cells[index], run.notebook.metadata.source_map[index]
    where = f"cell {run.cell} of {run.cells} (line {line})"
    run.error = f"{run.page}.md, {where}: {first_line(error)}"
    run.report = f"{run.error}\n\n{cell.source}\n\n{ANSI.sub('', str(error))}\n"


async def execute_all(runs: list[Run], *, timeout: int, workers: int) -> None:
    """Run pages ``workers`` at a time and say which page is at which cell."""
    gate = asyncio.Semaphore(workers)
    done = 0

    async def one(run: Run) -> None:
        nonlocal done
        async with gate:
            say(f"running {run.page} ({run.cells} cells)")
            await execute(run, timeout=timeout)
            done += 1
            verdict = "FAILED" if run.error else "done"
            say(
                f"[{done}/{len(runs)}] {verdict} {run.page} in {run.seconds:.1f} s "
                f"({run.cpu_seconds:.1f} CPU-s)"
            )

    async def heartbeat() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT)
            for run in runs:
                if run.started and not run.seconds:
                    seconds = time.monotonic() - run.started
                    say(f"  ... {run.page}: cell {run.cell} of {run.cells}, {seconds:.0f} s")

    pulse = asyncio.create_task(heartbeat())
    try:
        await asyncio.gather(*(one(run) for run in runs))
    finally:
        pulse.cancel()


def prune(folder: Path, keep: str) -> None:
    """Drop all but the newest caches."""
    caches = sorted(
        (path for path in folder.iterdir() if path.is_dir() and path.name != keep),
        key=lambda path: path.stat().st_mtime,
        reverse=True,
    )
    for path in caches[KEPT_CACHES - 1 :]:
        shutil.rmtree(path, ignore_errors=True)


def execute_book(book: Book, *, workers: int = WORKERS) -> tuple[Path, list[str]]:
    """Run every page that has no valid outputs yet.

    Returns:
        The cache folder and the names of the pages that ran.

    Raises:
        BookError: a cell failed; the reports lie in ``_build/reports``.
    """
    key = cache_key(book)
    folder = book.build / "cache" / key
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    prune(folder.parent, keep=key)
    shutil.rmtree(book.reports, ignore_errors=True)
    cache = get_cache(str(folder))

    notebooks = {page: read_page(book, page) for page in book.pages}
    runs = [
        Run(page=page, notebook=notebook)
        for page, notebook in notebooks.items()
        if notebook is not None and not is_cached(cache, notebook)
    ]
    total = sum(notebook is not None for notebook in notebooks.values())
    say(f"{len(runs)} of {total} pages with code must run (cache {key})")
    if not runs:
        return folder, []

    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment, not of $HOME
    timeout = int(book.config.get("execute", {}).get("timeout", 300))
    asyncio.run(execute_all(runs, timeout=timeout, workers=workers))

    failed = [run for run in runs if run.error]
    for run in runs:
        if run.error is None:
            for line in run.stderr:
                say(f"note: {run.page} wrote to stderr in {line}")
            record = {"execution_seconds": run.seconds, "cpu_seconds": run.cpu_seconds}
            cache.cache_notebook_bundle(
                CacheBundleIn(run.notebook, str(book.path(run.page)), data=record),
                check_validity=False,
                overwrite=True,
            )
        else:
            book.reports.mkdir(parents=True, exist_ok=True)
            report = book.reports / f"{run.page.replace('/', '_')}.log"
            report.write_text(run.report, encoding="utf-8")
    if failed:
        reports = os.path.relpath(book.reports)
        fail("; ".join(str(run.error) for run in failed) + f" (reports: {reports})")
    return folder, [run.page for run in runs]
