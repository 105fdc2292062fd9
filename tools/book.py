"""Build the book or serve it: ``python tools/book.py html`` and ``python tools/book.py serve``.

``html`` runs the pages whose code, package or versions changed, renders the site into
``book/_build/html`` and checks what came out. A check of a page that does not hold on this machine
is shown on the page and counted; with ``--strict`` it fails the build. ``serve`` shows the site on
127.0.0.1. ``slides`` makes slides and question banks anew. ``sweep`` runs pages again with other
seeds and instruction sets and records the checks.
"""

import argparse
import os
import sys
import time
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # two threads: timings and last digits drift under load

try:
    from bookbuild.common import Book, BookError, complain, fail, only_build, say
except ModuleNotFoundError as _missing:
    print(
        f"book: error: the module {_missing.name} is missing: run 'make setup' and use "
        "'.venv/bin/python tools/book.py', or simply 'make book'",
        file=sys.stderr,
    )
    raise SystemExit(1) from None


def html(book: Book, *, strict: bool) -> None:
    """Execute, render, publish the notebooks, check."""
    from bookbuild.execute import execute_book, fill_cache
    from bookbuild.notebooks import publish
    from bookbuild.render import render
    from bookbuild.shown import check_shown
    from bookbuild.site import check_site

    start = time.monotonic()
    with only_build(book.build):
        executed = execute_book(book)
        failed = [(name, check) for name, check in executed.checks if not check["held"]]
        for name, check in failed:
            line = executed.pages[name].line(check)
            say(f"check: {name}.md:{line}: expected {check['code']}, got {check['value']}")
        held = f"{len(executed.checks) - len(failed)} of {len(executed.checks)} checks held"
        if strict and failed:
            fail(f"{held}; each line 'check:' above names one that did not")
        render(book, cache=fill_cache(book, executed))
        publish(book, executed.pages)
        kit(book)
        sites = check_site(book)
        problems, shown = check_shown(book, executed.pages)
        for problem in problems:
            say(f"shown: {problem}")
        if strict and problems:
            fail(
                f"{len(problems)} things are not shown as the pages say: 'shown:' above names each"
            )
    marked = "; the others are marked on their pages" if failed else ""
    say(
        f"done in {time.monotonic() - start:.0f} s: {os.path.relpath(book.html / 'index.html')}: "
        f"{len(sites)} pages, {shown['figure'] + shown['diagram']} figures, "
        f"{shown['explorer']} explorers, {shown['table']} tables, {shown['listing']} listings; "
        f"{held}{marked}"
    )


def kit(book: Book) -> None:
    """Slides and question banks, from the pages as the site shows them."""
    from bookbuild.questions import write_questions
    from bookbuild.slides import write_slides

    decks = write_slides(book)
    asked = write_questions(book)
    say(f"{len(decks)} decks of slides, {sum(decks.values())} slides; {asked} questions for Moodle")


def words(book: Book) -> None:
    """Length of every page, and the minutes that it takes a learner."""
    from bookbuild.reading import count

    for name in book.pages:
        reading = count(book.path(name).read_text(encoding="utf-8"))
        say(
            f"{name:36} {reading.words:6} words {reading.code_cells:4} code cells "
            f"{reading.questions:3} questions {reading.minutes:4} minutes"
        )


def add_sweep_options(command: argparse.ArgumentParser) -> None:
    from bookbuild.sweep import SEEDS, SETS

    command.add_argument("pages", nargs="*", help="such as 03 or 03_additive_attention; all")
    command.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    command.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    command.add_argument("--workers", type=int, default=1, help="runs at the same time")
    command.add_argument("--stale", action="store_true", help="only pages newer than their record")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every failure is one line on stderr and status 1."""
    parser = argparse.ArgumentParser(prog="tools/book.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (
        ("html", "build the site"),
        ("serve", "serve the built site"),
        ("sweep", "run pages under other seeds and instruction sets"),
        ("words", "length and minutes of every page"),
        ("slides", "make slides and question banks anew from the built site"),
        ("pdf", "print the built site into one PDF"),
        ("epub", "make an e-book of the built site"),
        ("zip", "pack the built site so that it opens by double click"),
        ("binder", "add Binder's environment to the built site, for publishing"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--book", type=Path, help="another book folder (for tests)")
        command.add_argument("--package", type=Path, help="another package folder (for tests)")
        if name in ("html", "serve", "slides"):
            command.add_argument("--part", default="", help="pages whose slug begins so, alone")
        if name == "serve":
            command.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))
        if name == "html":
            command.add_argument("--strict", action="store_true", help="fail on a failed check")
        if name == "sweep":
            add_sweep_options(command)
    chosen = parser.parse_args(arguments)
    chosen_folders = {"source": chosen.book, "package": chosen.package}
    folders = {name: path.resolve() for name, path in chosen_folders.items() if path}
    book = Book(**folders, part=getattr(chosen, "part", ""))
    try:
        if chosen.command == "html":
            html(book, strict=chosen.strict)
        elif chosen.command == "words":
            words(book)
        elif chosen.command == "slides":
            kit(book)
        elif chosen.command == "sweep":
            from bookbuild.sweep import sweep

            sweep(
                book,
                chosen.pages,
                seeds=chosen.seeds,
                sets=chosen.sets,
                workers=chosen.workers,
                stale=chosen.stale,
            )
        elif chosen.command == "pdf":
            from bookbuild.pdf import make_pdf

            make_pdf(book)
        elif chosen.command == "epub":
            from bookbuild.epub import make_epub

            make_epub(book)
        elif chosen.command == "zip":
            from bookbuild.archive import make_zip

            make_zip(book)
        elif chosen.command == "binder":
            from bookbuild.binder import write_environment

            write_environment(book)
        else:
            from bookbuild.serve import serve

            serve(book, port=chosen.port)
    except BookError as error:
        complain(str(error))
        return 1
    except KeyboardInterrupt:
        complain("interrupted: run the same command again to continue")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
