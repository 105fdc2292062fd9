"""The claims: one card each, short, with a filter and a search that work without a mouse."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lxml import html

ROOT = Path(__file__).resolve().parents[2]
VISIBLE = 70  # words of a card whose evidence is folded


def claims() -> list[str]:
    """The labels of the claims in the source."""
    text = (ROOT / "book" / "claims.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^:::\{claim\} .*\n(?::.*\n)*", text, re.MULTILINE)
    return [re.search(r"^:label: (\w+)$", block, re.MULTILINE)[1] for block in blocks]


@pytest.mark.book
def test_every_claim_is_a_card_of_few_words(site: Path) -> None:
    page = html.fromstring((site / "claims.html").read_bytes())
    cards = page.find_class("attn-claim")
    labels = claims()
    assert len(labels) > 90
    assert [card.find_class("attn-label")[0].text_content() for card in cards] == labels
    for card in cards:
        (details,) = card.findall("details")
        folded = details.text_content().split()[2:]  # "Full evidence" is seen
        seen = len(card.text_content().split()) - len(folded)
        assert seen <= VISIBLE, f"{card.get('id')} shows {seen} words"
        assert len(folded) > 10, card.get("id")


@pytest.fixture
def page(chromium: Any) -> Any:
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    yield page
    page.close()


def shown(page: Any) -> list[str]:
    """The labels of the cards in view."""
    found: list[str] = page.eval_on_selector_all(
        ".attn-claim", "all => all.filter(c => c.checkVisibility()).map(c => c.classList[1])"
    )
    return [name.removeprefix("attn-is-") for name in found]


@pytest.mark.browser
def test_claims_are_filtered_and_searched_from_the_keyboard(page, site, address):
    errors: list[str] = []
    page.on("console", lambda one: errors.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda one: errors.append(str(one)))
    labels = claims()
    page.goto(f"{address}claims.html")
    found = page.locator(".attn-filter output")
    assert (shown(page), found.inner_text()) == (labels, f"{len(labels)} of {len(labels)} claims")
    page.focus("input[name=verdict]:checked")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    of_label = Counter(labels)["false"]
    assert shown(page) == ["false"] * of_label
    assert found.inner_text() == f"{of_label} of {len(labels)} claims"
    page.focus(".attn-filter input[name=q]")
    page.keyboard.type("Chi-Square draft")  # stands in the folded evidence
    assert (shown(page), found.inner_text()) == (["false"], f"1 of {len(labels)} claims")
    assert page.evaluate("location.hash") == "#verdict=false&q=Chi-Square+draft"
    page.reload()
    assert shown(page) == ["false"]
    page.focus(".attn-filter button")
    page.keyboard.press("Enter")
    page.wait_for_function("location.hash === ''")
    assert shown(page) == labels
    page.select_option("select[name=chapter]", "claims-16")
    assert len(shown(page)) == page.locator("#claims-16 > .attn-claim").count() > 1
    page.evaluate("location.hash = 'masked-score-zero'")  # a link to a card that is hidden
    page.wait_for_function("document.querySelector('.attn-filter').elements.chapter.value === ''")
    assert shown(page) == labels
    assert errors == []


@pytest.mark.browser
def test_claims_are_all_there_without_javascript(chromium, site, address):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    try:
        page.goto(f"{address}claims.html")
        assert page.locator(".attn-claim:visible").count() == len(claims())
        assert not page.locator(".attn-filter").is_visible()
    finally:
        context.close()
