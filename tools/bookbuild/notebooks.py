"""Publish every page with code as a notebook that runs anywhere.

Outputs are left out: the reader is to run the cells, and a guess recorded before a cell must not
be answered by the file. Code cells are those of the page, so the notebook is what the book ran.
"""

import hashlib
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import nbformat
from pybtex.database import Entry, parse_file

from .asides import BlockError, SourceError, chapter_number, read_source
from .common import Book, fail, main_page, say, slug
from .execute import Page
from .plain import EQUATION_LABEL, Context, convert
from .reading import count

BRANCH = "main"
Citer = Callable[[str, bool], str]  # (keys, textual) to the text of a citation
CODE_FIELDS = {"execution_count": None, "outputs": []}


def install_cell(book: Book, page: Page) -> str:
    """The first cell: installs the package where it is missing (Colab, a bare kernel).

    The experiments are scripts of the repository, and the wheel brings a copy for these pages.
    """
    text = (
        "# Installs the course package where it is missing; does nothing elsewhere.\n"
        "import importlib.util\n"
        "import subprocess\n"
        "import sys\n"
        "\n"
        'if importlib.util.find_spec("attn_course") is None:\n'
        f'    package = "attn-course[book] @ git+{book.repository}@{BRANCH}"\n'
        '    subprocess.run([sys.executable, "-m", "pip", "install", "-q", package], check=True)'
    )
    if re.search(r"^from experiments\b", page.code, re.M):
        text += (
            '\nif importlib.util.find_spec("experiments") is None:\n'
            "    from importlib.resources import files\n\n"
            "    # the package's copy, or in a checkout the folder beside the package\n"
            '    package = files("attn_course")\n'
            '    sys.path += [str(package / "scripts"), str(package.parent)]'
        )
    return text


def page_title(book: Book, page: str) -> str:
    """First heading of a page, with the number of the chapter."""
    path = book.source / f"{page}.md"
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("# "):
                return f"{chapter_number(page)} {line[2:]}".strip()
    return page.rsplit("/", 1)[-1].replace("_", " ")


def cited(entry: Entry, *, textual: bool) -> str:
    """``Bahdanau et al. (2015)``, or in brackets."""
    people = entry.persons.get("author") or entry.persons.get("editor") or []
    names = [" ".join(person.prelast_names + person.last_names) for person in people]
    if len(names) > 2:
        who = f"{names[0]} et al."
    else:
        who = " and ".join(names) or str(entry.fields.get("title", "?"))
    year = entry.fields.get("year", "n.d.")
    return f"{who} ({year})" if textual else f"{who}, {year}"


def citations(book: Book) -> Citer:
    """A function from citation keys to their text."""
    entries = {}
    for name in book.config.get("bibtex_bibfiles", []):
        if (book.source / name).is_file():
            entries.update(parse_file(str(book.source / name)).entries)

    def cite(keys: str, textual: bool) -> str:
        parts = [
            cited(entries[key.strip()], textual=textual) if key.strip() in entries else key.strip()
            for key in keys.split(",")
        ]
        return ", ".join(parts) if textual else f"({'; '.join(parts)})"

    return cite


def source_of(page: str, dotted: str) -> str:
    """The code of an object, as ``{source}`` shows it on the page."""
    try:
        return read_source(dotted).code
    except SourceError as error:
        fail(f"{page}.md: source: {error}")


def explorer_code(name: str) -> str:
    """Code that opens an explorer as a live widget."""
    return f'from attn_course import explorers\n\nexplorers.show("{name}")'


def equations(book: Book, page: str) -> dict[str, int]:
    """The labelled equations of a chapter, numbered through its pages."""
    texts = [book.path(name).read_text(encoding="utf-8") for name in book.chapter(page)]
    labels = [found["label"] for text in texts for found in EQUATION_LABEL.finditer(text)]
    return {label: number for number, label in enumerate(labels, 1)}


def to_notebook(book: Book, source: Page, cite: Citer) -> nbformat.NotebookNode:
    """The page as a notebook without outputs."""
    page = source.name
    site = book.site
    folder = book.config["repository"].get("path_to_book", "book")
    context = Context(
        page=page,
        site=site,
        source=f"{book.repository}/raw/{BRANCH}/{folder}/",
        cite=cite,
        title=partial(page_title, book),
        source_of=partial(source_of, page),
        explorer=explorer_code,
        minutes=count(book.path(page).read_text(encoding="utf-8")).minutes,
        chapter=chapter_number(page),
        equations=equations(book, page),
    )
    note = f"This notebook is the page [{page_title(book, page)}]({site}{page}.html) of the book."
    if (main := main_page(page)) != page and chapter_number(page):
        note += f" Its chapter begins with [{page_title(book, main)}]({site}{main}.html)."
    cells = [("markdown", note), ("code", install_cell(book, source))]
    for cell in source.notebook.cells:
        if cell.cell_type == "code":
            cells.append(("code", cell.source))
        elif cell.cell_type == "markdown":
            text = re.sub(r"\A# ", f"# {context.chapter} ".replace("#  ", "# "), cell.source)
            try:
                cells += convert(text, context)
            except BlockError as error:
                fail(f"{page}.md: {error}")
    return nbformat.from_dict(
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python"},
            },
            "cells": [
                {
                    "id": hashlib.sha256(f"{page}:{number}".encode()).hexdigest()[:12],
                    "cell_type": kind,
                    "metadata": {},
                    "source": text,
                }
                | (CODE_FIELDS if kind == "code" else {})
                for number, (kind, text) in enumerate(cells)
            ],
        }
    )


def publish(book: Book, pages: dict[str, Page]) -> list[Path]:
    """Write the notebooks of all pages with code below ``_notebooks``."""
    shutil.rmtree(book.notebooks, ignore_errors=True)
    book.notebooks.mkdir(parents=True)
    written, cite = [], citations(book)
    for page, source in pages.items():
        notebook = to_notebook(book, source, cite)
        nbformat.validate(notebook)
        path = book.notebooks / f"{slug(page)}.ipynb"
        path.write_text(nbformat.v4.writes(notebook) + "\n", encoding="utf-8")
        written.append(path)
    say(f"published {len(written)} notebooks in {book.notebooks.name}/")
    return written
