"""One slug joins page, table of contents, solution, exercise and claims row: no orphans.

Tests are joined to a slug by ``tests/exercises``, which runs every folder of ``solutions/``.
"""

import re
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
SLUG = re.compile(r"\d\d_[a-z0-9_]+")


def toc_slugs(text: str) -> set[str]:
    return set(re.findall(rf"chapters/({SLUG.pattern})\b", yaml.safe_dump(yaml.safe_load(text))))


def claim_slugs(text: str) -> set[str]:
    rows = [line for line in text.splitlines() if line.lstrip().startswith("|")]
    return set(re.findall(rf"chapters/({SLUG.pattern})\b", "\n".join(rows)))


def places(root: Path) -> dict[str, set[str]]:
    """Where each slug is found, one set per place."""
    return {
        "book/chapters": {p.stem for p in (root / "book/chapters").glob("*.md")},
        "book/_toc.yml": toc_slugs((root / "book/_toc.yml").read_text()),
        "book/claims.md": claim_slugs((root / "book/claims.md").read_text()),
        "solutions": {p.parent.name for p in (root / "solutions").glob("*/exercise.py")},
        "misconceptions": {p.parent.name for p in (root / "solutions").glob("*/misconceptions.py")},
        "variants": {p.parent.name for p in (root / "solutions").glob("*/variants.py")},
        "exercises": {p.stem for p in (root / "exercises").glob("*/*.ipynb")},
    }


def orphans(found: dict[str, set[str]]) -> list[str]:
    """A line for every slug that some place lacks, or that is no slug at all."""
    every = set().union(*found.values())
    missing = [
        f"{slug}: not in {place}"
        for slug in sorted(every)
        for place, slugs in found.items()
        if slug not in slugs
    ]
    return missing + [f"{slug}: not a slug" for slug in sorted(every) if not SLUG.fullmatch(slug)]


def test_every_slug_is_everywhere() -> None:
    found = places(ROOT)
    assert {"00_warm_up", "01_recurrence", "02_seq2seq_bottleneck"} <= found["book/chapters"]
    assert orphans(found) == []


def test_folder_and_notebook_share_the_slug() -> None:
    for notebook in (ROOT / "exercises").glob("*/*.ipynb"):
        assert notebook.parent.name == notebook.stem


@pytest.mark.parametrize("place", ["book/chapters", "book/claims.md", "solutions", "exercises"])
def test_an_orphan_is_seen(place: str) -> None:
    found = {name: set(slugs) for name, slugs in places(ROOT).items()}
    found[place].discard("01_recurrence")
    assert orphans(found) == [f"01_recurrence: not in {place}"]


def test_pages_have_what_a_chapter_has() -> None:
    """Goals, a prediction, six questions, an explorer, listings, exercises, checks."""
    for page in sorted((ROOT / "book/chapters").glob("*.md")):
        text = page.read_text()
        assert re.search(r"^:::+\{goals\}$", text, re.M), f"{page.name}: no goals"
        assert len(re.findall(r"^```+\{predict\}", text, re.M)) >= 1, f"{page.name}: predictions"
        assert len(re.findall(r"^```+\{quiz\}", text, re.M)) >= 6, f"{page.name}: quiz"
        if page.stem != "20_capstone":  # it has a record of the reader's own in place of one
            assert re.search(r"^```+\{explorer\}", text, re.M), f"{page.name}: explorer"
        assert re.search(r"^```+\{source\}", text, re.M), f"{page.name}: package source"
        assert re.search(r"^```+\{exercise-set\}", text, re.M), f"{page.name}: exercises"
        cells = re.findall(r"^```+\{code-cell\}.*?\n(.*?)^```", text, re.M | re.S)
        assert sum("assert" in cell for cell in cells) >= 5, f"{page.name}: hardly any checks"


def test_pages_are_no_longer_than_agreed() -> None:
    sys.path.insert(0, str(ROOT / "tools"))
    from bookbuild.reading import count

    words = {p.name: count(p.read_text()).words for p in (ROOT / "book/chapters").glob("*.md")}
    assert {name: number for name, number in words.items() if number > 4500} == {}
