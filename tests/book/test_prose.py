"""Words of HOUSE_STYLE's list that no page, exercise or message uses."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AVOIDED = re.compile(
    r"\b(hand(s|ed|ing)? over|thrown out|given room|whoever|nobody|somebody|the last but one|"
    r"storeys?|lonely|takes? a look|as is told|in half of the cases at least|"
    r"costs? nothing to think)\b",
    re.IGNORECASE,
)
OTHER_LINES = re.compile(r"^[^#].*$", re.MULTILINE)
CODE = re.compile(r"^(`{3,})\{(?:code-cell|source|explorer|diagram).*?^\1$", re.M | re.S)
PAGES = [
    *(path for path in sorted((ROOT / "book").rglob("*.md")) if "_build" not in path.parts),
    *sorted((ROOT / "solutions").glob("*/exercise.py")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
]


def avoided(text: str) -> list[str]:
    """The sentences, by line, that use one of the words."""
    prose = CODE.sub(lambda block: "\n" * block[0].count("\n"), text)
    lines = enumerate(prose.splitlines(), 1)
    return [f"{number}: {line.strip()[:100]}" for number, line in lines if AVOIDED.search(line)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_standard_terms(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not avoided(text if path.suffix == ".md" else OTHER_LINES.sub("", text))


def test_a_word_of_the_list_is_found_outside_of_code_only() -> None:
    text = "A page.\n```{code-cell} python\nnobody = 1\n```\nWhoever reads this.\n"
    assert avoided(text) == ["5: Whoever reads this."]
