"""Every page of the built site in Chromium: light, dark, and on a phone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from bookbuild.common import Book
from bookbuild.site import LIMIT

pytestmark = pytest.mark.browser
AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
WIDE_SCREEN = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}


@dataclass
class Visit:
    """What happened while a page was open."""

    foreign: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)


def watch(page: Any, address: str) -> Visit:
    """Write down requests and complaints of a page."""
    visit = Visit()

    def request(one: Any) -> None:
        if one.url.startswith(address):
            visit.files.add(one.url.removeprefix(address).split("?")[0].split("#")[0])
        elif not one.url.startswith(("data:", "blob:")):
            visit.foreign.append(one.url)

    page.on("request", request)
    page.on("requestfailed", lambda one: visit.failed.append(one.url))
    page.on(
        "response",
        lambda one: visit.failed.append(f"{one.status} {one.url}") if one.status >= 400 else None,
    )
    page.on("console", lambda one: visit.errors.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda one: visit.errors.append(str(one)))
    return visit


def show_everything(page: Any) -> None:
    """Scroll to the end, so that what loads late is loaded, and open what is folded."""
    page.evaluate(
        """async () => {
          document.querySelectorAll("details").forEach((box) => (box.open = true));
          document.querySelectorAll(".attn-seal-note button").forEach((button) => button.click());
          // a busy browser may leave frames out: nobody waits for one that does not come
          const frame = () => new Promise((done) => {
            requestAnimationFrame(done);
            setTimeout(done, 200);
          });
          for (let y = 0; y < document.documentElement.scrollHeight; y += innerHeight) {
            scrollTo(0, y);
            await frame();
            await frame();
          }
          scrollTo(0, 0);
        }"""
    )
    page.wait_for_load_state("networkidle")


WIDE = """() => {
  const limit = document.documentElement.clientWidth;
  const found = [];
  for (const box of document.querySelectorAll("body *")) {
    const edge = box.getBoundingClientRect();
    if (edge.width === 0 || edge.right <= limit + 1) continue;
    let parent = box.parentElement, held = false;
    for (; parent && parent !== document.body; parent = parent.parentElement) {
      const flow = getComputedStyle(parent).overflowX;
      if (flow !== "visible") { held = true; break; }
    }
    if (!held && getComputedStyle(box).position !== "fixed")
      found.push(box.tagName + "." + box.className + " " + Math.round(edge.right));
  }
  return [document.documentElement.scrollWidth - limit, found.slice(0, 5)];
}"""


# axe's time grows with the number of elements, and four in five of them are formulas and drawings,
# which take the colour of the text around them, and code in colours that were seen further up.
THIN = """() => {
  document.querySelectorAll(".katex").forEach((one) => one.replaceChildren("x"));
  for (const one of document.querySelectorAll("svg.attn-figure"))
    one.replaceChildren(...one.querySelectorAll(":scope > title"));
  const seen = new Set();
  for (const block of document.querySelectorAll(".highlight pre, dt.sig")) {
    const colours = [...block.querySelectorAll("[class]")].map((one) => one.className);
    if (colours.every((one) => seen.has(one))) block.textContent = block.textContent;
    colours.forEach((one) => seen.add(one));
  }
}"""
ACCESSIBLE = """async (options) => {
  const found = await axe.run({ resultTypes: ["violations"], ...options });
  return found.violations
    .filter((one) => ["serious", "critical"].includes(one.impact))
    .flatMap((one) => one.nodes.slice(0, 3).map((node) =>
      `${one.id} (${one.impact}): ${node.html.slice(0, 160)} ${node.failureSummary}`));
}"""
# Contrast is nine tenths of axe's time. Text of one look, in boxes of the same looks, has the same
# contrast everywhere: axe reads the first of each look.
LOOKS = """() => {
  const numbers = new Map(), looks = new Map(), first = new Set();
  const look = (one) => {
    if (!one) return 0;
    if (!looks.has(one)) {
      const style = getComputedStyle(one);
      const mine = [look(one.parentElement), one.tagName, one.className, style.color,
        style.backgroundColor, style.backgroundImage, style.opacity, style.fontSize,
        style.fontWeight, style.textDecorationLine, style.position].join("|");
      if (!numbers.has(mine)) numbers.set(mine, numbers.size + 1);
      looks.set(one, numbers.get(mine));
    }
    return looks.get(one);
  };
  for (const one of document.body.querySelectorAll("*")) {
    const words = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const read = (words || one.matches("input")) && one.checkVisibility() && !first.has(look(one));
    one.toggleAttribute("data-first", read);
    if (read) first.add(look(one));
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: "[data-first]" }] });
  return first.size;
}"""
DARK = """() => {
  document.documentElement.dataset.mode = "dark";
  document.documentElement.dataset.theme = "dark";
}"""
OF_COLOUR = ["color-contrast", "link-in-text-block"]
OF_SIZE = ["scrollable-region-focusable", "meta-viewport"]
# the theme sets and takes tab stops 300 ms after a change of the width
SETTLED = """() => new Promise((done) => {
  const later = () => setTimeout(done, 350);
  requestAnimationFrame(later);
  setTimeout(later, 400);  // a busy browser may leave frames out
})"""


def complaints(page: Any, rules: list[str] | None = None) -> list[str]:
    """What axe says of the page as it is shown now."""
    assert page.evaluate(LOOKS) > 10
    found: list[str] = page.evaluate(ACCESSIBLE, {"runOnly": rules} if rules else {})
    return found


def pages() -> list[str]:
    """The pages that people wrote, the search page, and one page each of source code and checks."""
    made = ["search", "genindex", "_modules/attn_course/functional/softmax"]
    return [*Book().pages, *made, "checks/07_scaled_dot_product"]


def weight(site: Path, files: set[str]) -> int:
    from bookbuild.site import weight as compressed

    return sum(compressed(site / name) for name in files if (site / name).is_file())


@pytest.mark.parametrize("name", pages())
def test_page_is_whole_quiet_light_and_accessible(chromium, site, address, name):
    """One visit of each page: everything in the light, colours in the dark, widths on a phone."""
    context = chromium.new_context(viewport=WIDE_SCREEN, reduced_motion="reduce")
    for key in ("mode", "theme"):
        context.add_init_script(f"localStorage.setItem('{key}', 'light')")
    page = context.new_page()
    visit = watch(page, address)
    try:
        page.goto(f"{address}{name}.html", wait_until="load")
        show_everything(page)
        assert visit.foreign == [], "requests to another host"
        assert visit.failed == [], "requests that failed"
        assert visit.errors == [], "errors in the console"
        if name.startswith("chapters/"):
            formulas = page.locator(".katex").count() > 0
            loaded = any("KaTeX" in file for file in visit.files)
            assert loaded == formulas, "pages with formulas load their fonts, and no others"
            assert not any("fontawesome" in file for file in visit.files)
            assert weight(site, visit.files) <= LIMIT

        for shape in (WIDE_SCREEN, PHONE):
            if shape == PHONE:
                page.set_viewport_size(shape)
                show_everything(page)  # the theme makes what scrolls focusable
            overflow, boxes = page.evaluate(WIDE)
            assert overflow <= 0, f"wider than {shape['width']} px: {boxes}"
        page.add_script_tag(path=str(AXE))
        page.evaluate(THIN)
        page.evaluate(SETTLED)
        assert complaints(page, OF_SIZE) == []
        page.set_viewport_size(WIDE_SCREEN)
        page.evaluate(SETTLED)
        assert complaints(page) == []
        page.evaluate(DARK)
        page.wait_for_timeout(300)
        assert complaints(page, OF_COLOUR) == []
    finally:
        context.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    page = chromium.new_page(viewport=WIDE_SCREEN)
    yield page
    page.close()


def test_search_finds_a_term_without_network(page: Any, site: Path, address: str) -> None:
    visit = watch(page, address)
    page.goto(f"{address}search.html?q=logsumexp")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    links = page.eval_on_selector_all("#search-results li a", "all => all.map(a => a.href)")
    assert any("functional" in link or "warm_up" in link for link in links)
    assert (visit.foreign, visit.errors) == ([], [])


def test_search_box_opens_from_the_keyboard(page: Any, site: Path, address: str) -> None:
    page.goto(f"{address}intro.html")
    page.keyboard.press("Control+k")
    page.wait_for_selector("dialog#pst-search-dialog[open]", timeout=5_000)
    page.keyboard.type("softmax")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"search\.html\?q=softmax"), timeout=10_000)


@pytest.mark.parametrize("query", ["sqrt d_k", "softmax", "√d"])
def test_search_prefers_prose_and_shows_a_sentence(
    page: Any, site: Path, address: str, query: str
) -> None:
    page.goto(f"{address}search.html?q={query}")
    page.wait_for_selector("#search-results li p.context", timeout=20_000)
    page.wait_for_timeout(1500)  # the order is settled when every page has been read
    first = page.locator("#search-results li").first
    assert "chapters/" in first.locator("a").first.get_attribute("href")
    assert len(first.locator("p.context").inner_text()) > 20


def test_the_index_is_on_its_way_when_the_search_box_is_in_focus(page, site, address):
    page.goto(f"{address}intro.html")
    assert page.locator("link[rel=prefetch]").count() == 0
    page.keyboard.press("Control+k")
    page.wait_for_selector("link[rel=prefetch][href$='searchindex.js']", state="attached")


def test_a_role_is_lit_in_formulas_words_and_pictures(page: Any, site: Path, address: str) -> None:
    page.goto(f"{address}chapters/07_scaled_dot_product.html")
    read = """() => ["query", "key"].map((role) => {
      const one = document.querySelector(`.katex .attn-${role}`);
      return getComputedStyle(one).color;
    })"""
    query, key = page.evaluate(read)
    page.locator(".katex .attn-query").first.hover()
    assert page.evaluate(read)[0] == query
    assert page.evaluate(read)[1] != key
    page.mouse.move(0, 0)
    term = page.locator("strong.attn-key").first
    term.focus()
    assert page.evaluate(read)[1] == key
    page.keyboard.press("Enter")
    term.evaluate("one => one.blur()")
    assert term.get_attribute("aria-pressed") == "true"
    assert page.evaluate(read)[0] != query
    page.keyboard.press("Escape")
    assert page.evaluate(read) == [query, key]
    page.locator(".katex .attn-query").first.dispatch_event("click")  # a tap
    assert page.evaluate(read)[1] != key
    page.keyboard.press("Escape")
    page.locator("svg.attn-diagram [style*='--attn-query'] rect").first.hover(
        position={"x": 5, "y": 5}
    )
    assert page.evaluate(read)[1] != key
    page.emulate_media(media="print")
    assert page.evaluate(read)[1] == key
    page.emulate_media(media="screen")
    page.goto(f"{address}chapters/04_score_functions.html")
    page.locator(".attn-explorer .attn-x-ofquery").first.hover()
    assert page.evaluate(read)[1] != key


def test_first_tab_stop_skips_to_the_text(page: Any, site: Path, address: str) -> None:
    page.goto(f"{address}chapters/00_warm_up.html")
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.textContent.trim()")
    assert focused == "Skip to main content"
    # the link slides in
    page.wait_for_function("document.activeElement.getBoundingClientRect().top >= 0", timeout=3000)
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main-content"


RING = """() => {
  const here = document.activeElement;
  const seen = [here, ...here.children].some((one) => {
    const style = getComputedStyle(one);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
    return ring || style.boxShadow !== "none";
  });
  return [seen, here.outerHTML.slice(0, 90)];
}"""


def test_focus_is_seen(page: Any, site: Path, address: str) -> None:
    page.goto(f"{address}chapters/00_warm_up.html")
    for _ in range(25):
        page.keyboard.press("Tab")
        seen, what = page.evaluate(RING)
        assert seen, what


def test_quiz_is_reached_and_answered_from_the_keyboard(page, site, address):
    page.goto(f"{address}chapters/00_warm_up.html")
    page.wait_for_load_state("networkidle")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skips to the text
    for _ in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('input[type=radio]')"):
            break
    assert page.evaluate("document.activeElement.matches('input[type=radio]')")
    page.keyboard.press("Space")
    assert page.evaluate("document.activeElement.checked")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_buttons_show_an_icon(chromium: Any, site: Path, address: str, theme: str) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    for key in ("mode", "theme"):
        page.add_init_script(f"localStorage.setItem('{key}', '{theme}')")
    try:
        page.goto(f"{address}chapters/00_warm_up.html")
        page.wait_for_load_state("networkidle")
        icons = page.evaluate(
            """() => [...document.querySelectorAll(":is(i, span)[class*='fa-']")]
              .filter((one) => one.offsetParent !== null)
              .map((one) => {
                const style = getComputedStyle(one), box = one.getBoundingClientRect();
                const ink = style.backgroundColor;
                return [one.className, style.maskImage, box.width, box.height, ink];
              })"""
        )
        assert len(icons) >= 4
        for name, mask, width, height, colour in icons:
            assert mask.startswith("url("), name
            assert min(width, height) >= 8, name
            assert colour not in ("rgba(0, 0, 0, 0)", "transparent"), name
    finally:
        page.close()


def test_figures_take_the_colour_of_the_page(page: Any, site: Path, address: str) -> None:
    page.goto(f"{address}chapters/00_warm_up.html")
    colours = []
    for theme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        page.wait_for_timeout(300)
        colours.append(
            page.evaluate(
                """() => {
                  const figure = document.querySelector("svg.attn-figure");
                  const words = [...figure.querySelectorAll("text")].pop();
                  return [getComputedStyle(words).fill, getComputedStyle(document.body).color];
                }"""
            )
        )
    (light, light_text), (dark, dark_text) = colours
    assert light == light_text
    assert dark == dark_text
    assert light != dark


def test_notebook_link_downloads_the_notebook(page: Any, site: Path, address: str) -> None:
    page.goto(f"{address}chapters/00_warm_up.html")
    link = page.locator("a.btn-download-notebook-button").first.get_attribute("href")
    answer = page.request.get(f"{address}chapters/{link}")
    assert (answer.status, answer.json()["nbformat"]) == (200, 4)
