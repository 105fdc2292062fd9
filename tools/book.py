"""Build the book or serve it: ``python tools/book.py html`` and ``python tools/book.py serve``.

``html`` runs the pages whose code, package or versions changed, renders the site into
``book/_build/html`` and checks what came out. ``serve`` shows it on 127.0.0.1.
"""

import argparse
import os
import sys
import time
from pathlib import Path

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # two threads: timings and last digits drift under load

try:
    from bookbuild.common import Book, BookError, complain, only_build, say
except ModuleNotFoundError as _missing:
    print(
        f"book: error: the module {_missing.name} is missing: run 'make setup' and use "
        "'.venv/bin/python tools/book.py', or simply 'make book'",
        file=sys.stderr,
    )
    raise SystemExit(1) from None


def html(book: Book) -> None:
    """Execute, render, publish the notebooks, check."""
    from bookbuild.execute import execute_book
    from bookbuild.notebooks import publish
    from bookbuild.render import render
    from bookbuild.site import check_site

    start = time.monotonic()
    with only_build(book.build):
        cache, _ = execute_book(book)
        render(book, cache=cache)
        publish(book)
        check_site(book)
    say(f"done in {time.monotonic() - start:.0f} s: {os.path.relpath(book.html / 'index.html')}")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; every failure is one line on stderr and status 1."""
    parser = argparse.ArgumentParser(prog="tools/book.py", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_text in (
        ("html", "build the site"),
        ("serve", "serve the built site"),
        ("binder", "add Binder's environment to the built site, for publishing"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--book", type=Path, help="another book folder (for tests)")
        command.add_argument("--package", type=Path, help="another package folder (for tests)")
        if name == "serve":
            command.add_argument("--port", type=int, default=int(os.environ.get("PORT", "8000")))
    chosen = parser.parse_args(arguments)
    chosen_folders = {"source": chosen.book, "package": chosen.package}
    book = Book(**{name: path.resolve() for name, path in chosen_folders.items() if path})
    try:
        if chosen.command == "html":
            html(book)
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
