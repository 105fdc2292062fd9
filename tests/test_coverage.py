"""One slug joins page, table of contents, solution, exercise and claim: no orphans.

Tests are joined to a slug by ``tests/exercises``, which runs every folder of ``solutions/``.
"""

import re
import sys
from pathlib import Path

import pytest
import rules
import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "book" / "_ext"))
import course_map  # noqa: E402  the line above makes it importable

SLUG = re.compile(r"\d\d_[a-z0-9_]+")


def toc_slugs(text: str) -> set[str]:
    return set(re.findall(rf"chapters/({SLUG.pattern})\b", yaml.safe_dump(yaml.safe_load(text))))


def claim_slugs(text: str) -> set[str]:
    return set(re.findall(rf"^:at: chapters/({SLUG.pattern})(?:/\w+)?\.md#", text, re.MULTILINE))


def places(root: Path) -> dict[str, set[str]]:
    """Where each slug is found, one set per place."""
    return {
        "book/_ext/course_map.py": set(course_map.NAMES),
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
        f"{slug} is missing in {place}."
        for slug in sorted(every)
        for place, slugs in found.items()
        if slug not in slugs
    ]
    return missing + [f"{slug} is no slug." for slug in sorted(every) if not SLUG.fullmatch(slug)]


PLACES = places(ROOT)


@pytest.mark.parametrize("slug", sorted(set().union(*PLACES.values())))
def test_a_chapter_is_everywhere_and_keeps_the_rules_of_a_chapter(slug: str) -> None:
    page = ROOT / "book/chapters" / f"{slug}.md"
    broken = [line for line in orphans(PLACES) if line.startswith(f"{slug} ")]
    further = {path.stem: path.read_text() for path in page.with_suffix("").glob("*.md")}
    if page.is_file():
        broken += rules.of_chapter(slug, page.read_text(), further)
    rules.keeps(broken)


def test_every_further_page_is_in_the_contents_below_its_chapter() -> None:
    parts = yaml.safe_load((ROOT / "book/_toc.yml").read_text())["parts"]
    entries = [entry for part in parts for entry in part["chapters"]]
    listed = {
        (entry["file"], section["file"])
        for entry in entries
        if entry["file"].startswith("chapters/")
        for section in entry.get("sections", ())
    }
    assert all(page.startswith(f"{main}/") for main, page in listed)
    below = {path.relative_to(ROOT / "book") for path in ROOT.glob("book/chapters/*/**/*.md")}
    assert {page for _, page in listed} == {path.with_suffix("").as_posix() for path in below}


def test_a_chapter_of_several_pages_keeps_its_rules_as_a_whole() -> None:
    def page(words: int, *names: str) -> str:
        boxes = "".join(f"```{{{name}}} x\n```\n" for name in names)
        return f"# A\n\n**Why?**\n\n{'word ' * words}\n\n{boxes}"

    cells = "```{code-cell} ipython3\nassert True\n```\n" * 3
    goals = ":::{goals}\n- One.\n:::\n"
    main = page(2900, "quiz", "quiz", "quiz", "source", "explorer", "exercise-set") + goals + cells
    main += "```{continued} 30_a/more.md\n```\n"
    more = page(2400, "predict", "quiz", "quiz", "quiz") + cells
    assert list(rules.of_chapter("30_a", main, {"more": more})) == []
    wrong = {"more": more + goals, "other": "# B\n\nNo question." + " word" * 2500}
    assert list(rules.of_chapter("30_a", main + " word" * 100, wrong)) == [
        "30_a: {goals} is on the main page, not on more.",
        "30_a: a page has 3000 words at most, not 3003.",
        "30_a: other has 2500 words at most, not 2503.",
        "30_a: other begins with its question, in bold.",
        "30_a: a page leads to other by {continued}.",
    ]


def test_the_places_hold_chapters() -> None:
    for slugs in PLACES.values():
        assert {"00_warm_up", "01_recurrence", "02_seq2seq_bottleneck"} <= slugs


def test_folder_and_notebook_share_the_slug() -> None:
    for notebook in (ROOT / "exercises").glob("*/*.ipynb"):
        assert notebook.parent.name == notebook.stem


@pytest.mark.parametrize("place", ["book/chapters", "book/claims.md", "solutions", "exercises"])
def test_an_orphan_is_seen(place: str) -> None:
    found = {name: set(slugs) for name, slugs in PLACES.items()}
    found[place].discard("01_recurrence")
    assert orphans(found) == [f"01_recurrence is missing in {place}."]
