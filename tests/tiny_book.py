"""A book of one chapter, for tests of the build."""

import json
from pathlib import Path
from typing import Any

from bookbuild.common import Book
from processes import python

TOOLS = Path(__file__).resolve().parents[1] / "tools"

HEADER = """---
file_format: mystnb
kernelspec: {display_name: Python 3, language: python, name: python3}
---

# A

"""


def cell(code: str, tags: str = "") -> str:
    options = f":tags: [{tags}]\n" if tags else ""
    return f"```{{code-cell}} ipython3\n{options}{code}\n```\n\n"


def tiny(folder: Path, *parts: str) -> Book:
    """A book whose chapter consists of these parts."""
    source = folder / "book"
    (source / "chapters").mkdir(parents=True)
    contents = "format: jb-book\nroot: intro\nchapters: [{file: chapters/00_a}]"
    (source / "_toc.yml").write_text(contents)
    (source / "_config.yml").write_text("title: tiny\nexecute: {timeout: 60}\n")
    (source / "intro.md").write_text("# Intro\n")
    (source / "chapters" / "00_a.md").write_text(HEADER + "".join(parts))
    package = folder / "attn_course"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (folder / "lock").write_text("numpy==1\n")
    return Book(source=source, package=package, lock=folder / "lock")


# In a process of its own: Sphinx looks through all objects of the one that it runs in.
BUILD = """import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bookbuild.common import Book
from bookbuild.execute import execute_book, fill_cache
from bookbuild.render import render
from bookbuild.shown import check_shown
folder, part = Path(sys.argv[2]), sys.argv[3]
book = Book(folder / "book", folder / "attn_course", folder / "lock", part)
executed = execute_book(book)
render(book, cache=fill_cache(book, executed))
problems, counts = check_shown(book, executed.pages)
print(json.dumps([problems, counts["figure"]]))
"""


def rendered(book: Book, config: str = "") -> Any:
    """Build the site; return what its pages lack of their sources, and how many figures it has."""
    (book.source / "vendor" / "katex").mkdir(parents=True, exist_ok=True)
    with (book.source / "_config.yml").open("a") as file:
        file.write(config)
    done = python("-c", BUILD, TOOLS, book.source.parent, book.part)
    return json.loads(done.stdout.splitlines()[-1])
