"""A book of one chapter, for tests of the build."""

from pathlib import Path

from bookbuild.common import Book

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
    (source / "_toc.yml").write_text(
        "format: jb-book\nroot: intro\nchapters: [{file: chapters/00_a}]"
    )
    (source / "_config.yml").write_text("title: tiny\nexecute: {timeout: 60}\n")
    (source / "intro.md").write_text("# Intro\n")
    (source / "chapters" / "00_a.md").write_text(HEADER + "".join(parts))
    package = folder / "attn_course"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (folder / "lock").write_text("numpy==1\n")
    return Book(source=source, package=package, lock=folder / "lock")
