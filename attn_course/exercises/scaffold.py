"""Lay out a new chapter: its page, its exercise set, its entries in the contents and the claims.

What is written runs as it is (one graded function, one program to mend, one test to write, one
report); the author replaces the example piece by piece, and the tests of the sets say what is
still missing.
"""

import re
from pathlib import Path

TEMPLATES = "tools/new_chapter"  # of the checkout
_SLUG = re.compile(r"\d\d_[a-z0-9_]+")


def lay_out(root: Path, slug: str, *, set_only: bool = False) -> list[Path]:
    """Write the files of a new chapter, or its exercise set only; return what was changed.

    Raises:
        ValueError: If the slug is malformed, or something of that name is there.
    """
    if not _SLUG.fullmatch(slug):
        raise ValueError(f"slug: expected two digits and a name, as 07_masks, got {slug!r}")
    files = {} if set_only else {root / "book" / "chapters" / f"{slug}.md": "page.md"}
    for name in ("exercise.py", "oracles.py", "misconceptions.py", "variants.py"):
        files[root / "solutions" / slug / name] = name
    there = [path for path in files if path.exists()]
    if there:
        raise ValueError(f"{there[0].relative_to(root)} is there already")
    toc, claims = root / "book" / "_toc.yml", root / "book" / "claims.md"
    contents, cards = toc.read_text(encoding="utf-8"), claims.read_text(encoding="utf-8")
    chapters = [m.end() for m in re.finditer(r"^ *- file: chapters/\S+\n", contents, re.M)]
    settled = [m.end() for m in re.finditer(r"^:::\{claim\}(?:.*\n)+?:::\n", cards, re.M)]
    if not chapters or not settled:
        raise ValueError("book/_toc.yml and book/claims.md: expected the entries of a chapter")
    at, end = chapters[-1], settled[-1]
    title = slug[3:].replace("_", " ").capitalize()
    for path, name in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (root / TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")
        path.write_text(text.replace("@SLUG@", slug).replace("@TITLE@", title), encoding="utf-8")
    if set_only:
        return list(files)
    entry = f"      - file: chapters/{slug}\n"
    toc.write_text(contents[:at] + entry + contents[at:], encoding="utf-8")
    card = (root / TEMPLATES / "claim.md.txt").read_text(encoding="utf-8").replace("@SLUG@", slug)
    claims.write_text(f"{cards[:end]}\n{card}{cards[end:]}", encoding="utf-8")
    return [*files, toc, claims]
