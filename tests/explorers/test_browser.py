"""Explorers in Chromium: keyboard, mouse, finger, both themes, a phone."""

import base64
import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from attn_course import explorers
from attn_course.explorers import transformer_flow

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


# Things that stick out of the frame; labels below 11 px; numbers that touch their bars.
OUTSIDE = """node => {
  const frame = node.querySelector('.attn-x').getBoundingClientRect();
  const all = node.querySelectorAll('.attn-x :is(select, input, button, svg, table, p)');
  return [...all].filter((one) => {
    if (one.closest('.attn-x-scroll') || one.closest('details')) return false;
    const box = one.getBoundingClientRect();
    return box.width && (box.left < frame.left || box.right > frame.right);
  }).map((one) => one.outerHTML.slice(0, 80));
}"""
SMALL = """node => [...node.querySelectorAll('svg text, svg tspan')].filter((text) => {
  const svg = text.ownerSVGElement, box = svg.viewBox.baseVal;
  if (!text.textContent.trim() || !box || !box.width) return false;
  const scale = svg.getBoundingClientRect().width / box.width;
  return parseFloat(getComputedStyle(text).fontSize) * scale < 10.9;
}).map((text) => text.textContent)"""
TOUCHING = """node => [...node.querySelectorAll('.attn-x-gauge')].filter((one) => {
  const [digits, track] = ['digits', 'track'].map((part) =>
    one.querySelector(`.attn-x-${part}`).getBoundingClientRect());
  return one.offsetWidth && digits.right > track.left && digits.bottom > track.top;
}).length"""
PAINT = """theme => {
  const dark = theme === 'dark', style = document.documentElement.style;
  document.documentElement.dataset.theme = theme;
  document.body.style.background = dark ? '#14181e' : '#fff';
  style.setProperty('--pst-color-background', dark ? '#14181e' : '#fff');
  style.setProperty('--pst-color-text-base', dark ? '#ced6dd' : '#222832');
  style.setProperty('--pst-color-text-muted', dark ? '#9ca4af' : '#48566b');
}"""


class Finger:
    """One finger on a touch screen, by the events that a screen would send."""

    def __init__(self, page: Any) -> None:
        self.page, self.session = page, page.context.new_cdp_session(page)

    def _send(self, kind: str, *points: tuple[float, float]) -> None:
        touches = [{"x": x, "y": y} for x, y in points]
        self.session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": touches})

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 12) -> None:
        """Put down, move in a line, lift."""
        self._send("touchStart", start)
        for i in range(1, steps + 1):
            share = i / steps
            x, y = (a + share * (b - a) for a, b in zip(start, end, strict=True))
            self._send("touchMove", (x, y))
            self.page.wait_for_timeout(20)
        self._send("touchEnd")
        self.page.wait_for_timeout(120)


def centre(locator: Any) -> tuple[float, float]:
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def scrolled(page: Any) -> float:
    return float(page.evaluate("window.scrollY"))


def show(page: Any, locator: Any) -> None:
    """Put a thing into the middle of the screen."""
    locator.evaluate("node => node.scrollIntoView({ block: 'center' })")
    page.wait_for_timeout(100)


def complaints(page: Any) -> list[tuple[str, str, str]]:
    """What axe finds in the figure."""
    found = Axe().run(page, context="figure").response["violations"]
    return [
        (rule["id"], node["html"][:120], node["failureSummary"])
        for rule in found
        if rule["impact"] in ("serious", "critical", "moderate")
        for node in rule["nodes"]
    ]


def test_a_finger_drags_a_key_all_the_way_and_the_page_stays(opened: Any) -> None:
    page, figure = opened("score_playground", **PHONE)
    tip, plane = figure.get_by_role("slider", name="key 3"), figure.locator(".attn-x-plane")
    show(page, plane)
    before, box = scrolled(page), plane.bounding_box()
    # straight down, the way that would scroll
    x, y = centre(tip)
    Finger(page).drag((x, y), (x, y + 0.45 * box["height"]))
    assert scrolled(page) == before
    place = float(tip.get_attribute("aria-valuetext").split(", ")[1])
    assert place == pytest.approx(1.5 - 0.45 * 314 / (268 / 8), abs=0.15)
    # beside the arrows the same movement scrolls
    start = (box["x"] + 6, box["y"] + box["height"] - 6)
    Finger(page).drag(start, (start[0], start[1] - 150))
    assert scrolled(page) > before + 80


def test_a_passing_thumb_leaves_the_window_and_a_finger_across_moves_it(opened: Any) -> None:
    page, figure = opened("local_window", **PHONE)
    position = figure.get_by_role("slider", name="Centre p")
    chart = figure.locator(".attn-x-windows")

    def value() -> int:
        page.wait_for_timeout(60)
        return int(position.get_attribute("aria-valuenow"))

    show(page, chart)
    before, start_value = scrolled(page), value()
    for share in (0.1, 0.8):  # on the window, and beside it
        box = chart.bounding_box()
        start = (box["x"] + share * box["width"], box["y"] + 0.7 * box["height"])
        Finger(page).drag(start, (start[0] + 6, start[1] - 140))
        assert value() == start_value
    assert scrolled(page) > before + 150
    show(page, chart)
    before, box = scrolled(page), chart.bounding_box()
    start = (box["x"] + 0.15 * box["width"], box["y"] + 0.5 * box["height"])
    Finger(page).drag(start, (start[0] + 100, start[1] + 8))
    assert scrolled(page) == before
    moved = 10 * 100 * 380 / box["width"] / (372 / 18)
    assert value() == pytest.approx(start_value + moved, abs=15)


def test_a_finger_drags_a_neighbour_and_the_sense_follows(opened: Any) -> None:
    page, figure = opened("word_sense", **PHONE, **CALM)
    plane, river = figure.locator("svg"), figure.get_by_role("slider", name="river")
    senses = figure.locator(".attn-x-split span")
    assert senses.all_inner_texts() == ["water 75 %", "money 25 %"]
    show(page, plane)
    before, box = scrolled(page), plane.bounding_box()
    x, y = centre(river.locator("circle").first)
    Finger(page).drag((x, y), (box["x"] + 0.06 * box["width"], box["y"] + 0.42 * box["height"]))
    assert scrolled(page) == before
    water, money = (int(text.split()[1]) for text in senses.all_inner_texts())
    assert money > water + 30
    assert "leans to money" in figure.locator("[aria-live]").inner_text()
    figure.get_by_role("button", name="she sat down").click()
    assert senses.all_inner_texts() == ["water 75 %", "money 25 %"]


def test_the_sense_answers_to_the_keyboard(opened: Any) -> None:
    page, figure = opened("word_sense")
    river = figure.get_by_role("slider", name="river")
    river.focus()
    for _ in range(4):
        page.keyboard.press("Shift+ArrowLeft")
        page.keyboard.press("Shift+ArrowUp")
    page.wait_for_timeout(200)
    assert river.get_attribute("aria-valuetext").startswith("water 0, money 2.0, weight 0.32")
    senses = figure.locator(".attn-x-split span")
    assert senses.all_inner_texts() == ["water 25 %", "money 75 %"]
    figure.get_by_role("button", name="she took her").click()
    assert figure.get_by_role("slider").count() == 2  # cash and river
    assert senses.all_inner_texts() == ["water 50 %", "money 50 %"]


WITH_BARS = ("kv_cache", "memory_hops")


@pytest.mark.parametrize("name", explorers.NAMES)
def test_the_frame_is_the_same_for_all(opened: Any, name: str) -> None:
    page, figure = opened(name)
    question = figure.locator(".attn-x-question")
    assert question.count() == 1
    assert question.inner_text().endswith("?")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        picture, controls = (
            figure.locator(f".attn-x-{part}").bounding_box() for part in ("picture", "controls")
        )
        if width == 390:  # the picture first, below it what moves it
            assert controls["y"] >= picture["y"] + picture["height"] - 1
        else:
            assert controls["x"] >= picture["x"] + picture["width"] - 1
        assert figure.locator("details[open]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert figure.evaluate(OUTSIDE) == []
        assert figure.evaluate(SMALL) == []
    page.set_viewport_size({"width": 1280, "height": 800})
    assert figure.evaluate(TOUCHING) == 0
    assert figure.locator(".attn-x-gauge").count() >= 3 * (name in WITH_BARS)
    for summary in figure.locator("summary").all():
        summary.click()
    for theme in ("light", "dark"):
        page.evaluate(PAINT, theme)
        assert complaints(page) == []


def test_a_drag_draws_at_most_once_a_frame(opened: Any) -> None:
    page, figure = opened("gradient_reach")
    figure.get_by_text("More", exact=True).click()
    figure.get_by_role("slider", name="Sequence length").fill("100")
    page.wait_for_timeout(100)
    spent = figure.evaluate(
        """async (node) => {
          const range = node.querySelector('input[type=range]');
          const frame = () => new Promise((done) => requestAnimationFrame(done));
          const times = [];
          let draws = 0;
          const curve = node.querySelector('.attn-x-chart path[stroke-width="2.5"]');
          new MutationObserver(() => { draws += 1; }).observe(curve, { attributes: true });
          for (let f = 0; f < 10; f += 1) {
            await frame();
            for (let i = 0; i < 8; i += 1) {
              range.value = 0.2 + 0.01 * (8 * f + i);
              const start = performance.now();
              range.dispatchEvent(new Event('input', { bubbles: true }));
              times.push(performance.now() - start);
            }
          }
          await frame(); await frame();
          times.sort((a, b) => a - b);
          return { median: times[40], draws };
        }"""
    )
    assert spent["draws"] <= 12
    assert spent["median"] < 2  # seven of eight events wait for the next frame


def test_the_softmax_explorer_answers_to_the_keyboard(opened: Any) -> None:
    page, figure = opened("softmax_temperature")
    river, weights = figure.get_by_role("slider", name="river"), figure.locator("svg .attn-x-share")

    def tall() -> list[float]:
        page.wait_for_timeout(60)
        return [float(one.get_attribute("height")) for one in weights.all()]

    start = tall()
    assert start[1] == start[2] > 5 * start[0]
    river.focus()
    assert river.get_attribute("aria-valuetext") == "score 2.0, weight 0.468"
    page.keyboard.press("End")  # a score of 6
    assert tall()[1] > 50 * tall()[0] > 0
    figure.get_by_role("slider", name="Temperature").fill("-1.3")
    page.keyboard.press("Home")  # -6, at a temperature of 0.05
    river.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(300)
    assert river.get_attribute("aria-valuetext") == "score -6.0, weight 0"
    voice = figure.locator("[aria-live]")
    assert "below the smallest number of float32" in voice.inner_text()
    figure.get_by_role("button", name="Reset").click()
    assert tall() == start
    figure.get_by_text("More", exact=True).click()
    figure.get_by_role("slider", name="Move all scores by").fill("120")
    page.wait_for_timeout(300)
    naive = figure.get_by_role("region").get_by_role("row", name="bank").locator("td").last
    assert naive.inner_text() == "nan"
    assert "overflowed" in voice.inner_text()
    assert tall() == pytest.approx(start, abs=0.02)


def test_the_bottleneck_explorer_takes_typed_letters(opened: Any) -> None:
    page, figure = opened("bottleneck", **CALM)
    field, wrong = figure.get_by_role("textbox"), figure.locator("svg .attn-x-letter.attn-x-red")
    assert wrong.count() > 3  # the opening word is too long for it
    field.fill("Cabz9")
    assert field.input_value() == "cab"
    page.wait_for_timeout(100)
    letters = figure.locator("svg .attn-x-letter")
    assert letters.all_text_contents() == [*"cab", *"bac"]
    assert wrong.count() == 0
    assert "Only the letters" in figure.get_by_role("status").inner_text()
    field.fill("")
    assert letters.count() == 6
    dot = figure.get_by_role("slider", name="letters of a random word")
    dot.focus()
    page.keyboard.press("End")
    page.wait_for_timeout(100)
    assert len(field.input_value()) == 18
    assert dot.get_attribute("aria-valuetext") == "18 letters, 0 % come back whole"
    assert wrong.count() > 0
    field.fill("badge")
    page.wait_for_timeout(100)
    assert dot.get_attribute("aria-valuenow") == "5"


def test_a_longer_vector_moves_the_dot_and_not_the_cosine(opened: Any) -> None:
    page, figure = opened("score_playground", **CALM)
    strips = figure.locator(".attn-x-notice")

    def noticed() -> dict[str, bool]:
        page.wait_for_timeout(100)
        lines = [strips.nth(i).inner_text().split("\n") for i in range(strips.count())]
        assert all(line[1] in ("noticed", "did not notice") for line in lines)
        return {line[0].split(" ")[0]: line[1] == "noticed" for line in lines}

    assert [name for name, yes in noticed().items() if not yes] == ["location", "cosine"]
    assert figure.get_by_text("key 2: 2.0 × as long").count() == 1
    before = strips.first.locator("div span").nth(1).get_attribute("style")
    figure.get_by_role("button", name="Lengthen key 2").click()
    found = noticed()
    assert [name for name, yes in found.items() if not yes] == ["location", "cosine"]
    figure.get_by_role("button", name="Turn key 2").click()
    assert [name for name, yes in noticed().items() if not yes] == ["location"]
    figure.get_by_role("button", name="Reset").click()
    page.wait_for_timeout(100)
    assert strips.first.locator("div span").nth(1).get_attribute("style") == before


def test_vectors_move_by_mouse_and_by_arrow_keys(opened: Any) -> None:
    page, figure = opened("score_playground")
    tip = figure.get_by_role("slider", name="key 3")
    tip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowUp")
    page.wait_for_timeout(100)
    assert tip.get_attribute("aria-valuetext") == "-1.40, 2.00, length 2.44"
    plane = figure.locator(".attn-x-plane").bounding_box()
    page.mouse.move(*centre(tip))
    page.mouse.down()
    page.mouse.move(plane["x"] + plane["width"] / 2, plane["y"] - 200, steps=5)
    page.mouse.up()
    page.wait_for_timeout(100)
    # beyond the circle that vectors may reach, straight up
    x, y = map(float, tip.get_attribute("aria-valuetext").split(", ")[:2])
    assert abs(x) < 0.1
    assert y == pytest.approx(4, abs=0.01)


def test_a_pattern_is_painted_by_mouse_and_keys_and_layers_fill_it(opened: Any) -> None:
    page, figure = opened("pattern_painter", **CALM)
    depth, cost = figure.locator("b").first, figure.locator("b").last
    brush = figure.get_by_role("button", name=re.compile("^query"))
    brush.focus()
    assert brush.get_attribute("aria-label") == "query 11, key 5: reached in 6 layers"
    page.keyboard.press("Enter")
    assert (cost.inner_text(), depth.inner_text()) == ("59", "> 6")
    box = figure.locator("svg").bounding_box()
    cell = box["width"] * 17.6 / 380
    x, y = box["x"] + box["width"] * 24 / 380 + 0.5 * cell, box["y"] + box["width"] * 44 / 380
    page.mouse.move(x + 6 * cell, y + 0.5 * cell)  # along the first row
    page.mouse.down()
    page.mouse.move(x + 10 * cell, y + 0.5 * cell, steps=20)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert cost.inner_text() == "64"
    figure.get_by_role("button", name="global").click()
    assert (cost.inner_text(), depth.inner_text()) == ("39", "2")


def test_what_replaces_the_stream_leaves_no_copy(opened: Any) -> None:
    page, figure = opened("block_stream", **CALM)
    share, copy = figure.locator("b").first, figure.locator("b").last
    figure.get_by_role("button", name="pre-norm").click()
    page.wait_for_timeout(60)
    assert copy.inner_text() == "100 %"
    assert float(share.inner_text().rstrip(" %")) > 10
    figure.get_by_role("button", name="Residual connection").click()
    page.wait_for_timeout(60)
    assert (share.inner_text(), copy.inner_text()) == ("0 %", "0 %")


@pytest.mark.parametrize(("rescale", "right"), [(True, True), (False, False)])
def test_stale_weights_make_a_wrong_mean(opened: Any, rescale: bool, right: bool) -> None:
    page, figure = opened("online_softmax", **CALM)
    if not rescale:
        figure.get_by_role("button", name="Rescale").click()
    figure.get_by_role("button", name="Read the keys").click()
    page.wait_for_timeout(100)
    assert (figure.locator("b").inner_text() == "2.52") == right
    assert (figure.locator("svg .attn-x-stale").count() == 0) == right
    figure.get_by_role("button", name="falling").click()
    page.wait_for_timeout(100)
    assert figure.locator("b").inner_text() == "2.52"


def test_the_ring_shows_who_waits(opened: Any) -> None:
    page, figure = opened("ring_schedule", **CALM)
    assert figure.locator("svg .attn-x-idle").count() == 1
    figure.get_by_role("button", name="zigzag").click()
    figure.get_by_role("button", name="Pass the blocks").click()
    page.wait_for_timeout(100)
    chosen = figure.locator(".attn-x-picture .attn-x-panel")
    assert chosen.all_text_contents()[1:] == ["zigzag", "0 % waiting"]
    assert figure.locator("svg .attn-x-idle").count() == 0


def test_masks_are_joined_by_chips(opened: Any) -> None:
    page, figure = opened("mask_composer", **CALM)
    assert figure.locator("b").first.inner_text() == "1"
    figure.get_by_role("button", name="padding").click()
    figure.get_by_role("button", name="prefix").click()
    page.wait_for_timeout(100)
    assert figure.locator("b").first.inner_text() == "4"
    figure.get_by_role("button", name="score 0").click()
    page.wait_for_timeout(100)
    assert figure.locator("svg .attn-x-leak").count() > 30


def test_the_local_window_is_dragged_and_runs_off_the_edge(opened: Any) -> None:
    page, figure = opened("local_window")
    position = figure.get_by_role("slider", name="Centre p")
    width = figure.get_by_role("slider", name="Half-width D")
    show(page, figure.locator(".attn-x-windows"))
    chart = figure.locator(".attn-x-windows").bounding_box()
    y = chart["y"] + 0.25 * chart["height"]

    def place(at: float) -> float:
        return float(chart["x"] + chart["width"] * (4 + (at + 0.5) * 372 / 18) / 380)

    cut = figure.get_by_text("cut off: ")
    page.wait_for_timeout(100)
    assert cut.text_content() == "cut off: 76 %"
    page.mouse.move(place(12), y)  # outside the window: it jumps there, then is dragged
    page.mouse.down()
    page.mouse.move(place(10), y, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert float(position.get_attribute("aria-valuenow")) == pytest.approx(100, abs=1)
    assert int(cut.text_content()[9:-2]) < 30
    page.mouse.move(place(13), y)  # on the right edge
    page.mouse.down()
    page.mouse.move(place(12), y, steps=4)
    page.mouse.up()
    page.wait_for_timeout(100)
    assert width.get_attribute("aria-valuenow") == "2"

    def total(kind: str) -> float:
        figure.get_by_role("button", name=kind).click()
        return float(str(figure.get_by_text(re.compile("sum ")).text_content()).split()[-1])

    assert total("local-m") == 1
    assert 0.3 < total("local-p") < 1
    position.focus()
    page.keyboard.press("End")  # 17, behind a sentence of 14 words
    page.wait_for_timeout(300)
    assert total("local-m") == total("local-p") == 0
    assert cut.text_content() == "cut off: 100 %"
    assert "wholly behind the end" in figure.locator("[aria-live]").inner_text()
    figure.get_by_text("More", exact=True).click()
    assert figure.get_by_role("table").locator("tbody tr").count() == 14


def test_the_alignment_map_does_not_answer_its_own_task(opened: Any) -> None:
    # the task: a sentence in which an article looks at its noun
    page, figure = opened("alignment_map")
    cells = figure.locator(".attn-x-heat tbody tr").all()
    heads = figure.locator(".attn-x-heat thead th").all_inner_texts()
    for row in cells:
        if row.locator("th").inner_text() in ("le", "la", "un", "une"):
            weights = list(map(float, row.locator("td").all_inner_texts()))
            assert heads[weights.index(max(weights))] in ("the", "a")
    figure.get_by_role("textbox").fill("the old dog sees a small red house")
    page.wait_for_timeout(100)
    weights = figure.locator(".attn-x-heat tbody tr").first.locator("td").all_inner_texts()
    assert float(weights[2]) == max(map(float, weights))


def test_the_alignment_map_follows_a_typed_sentence(opened: Any) -> None:
    page, figure = opened("alignment_map")
    field = figure.get_by_role("textbox")
    rows = figure.locator(".attn-x-heat tbody tr")
    said = figure.locator(".attn-x-said").first
    status = figure.get_by_role("status")

    def fill(text: str) -> None:
        field.fill(text)
        page.wait_for_timeout(100)

    assert said.inner_text() == "une fille heureuse la fleur blanche peint"
    fill("A cat paints the house!")
    assert said.inner_text() == "un chat la maison peint"
    heads = figure.locator(".attn-x-heat thead th").all_inner_texts()
    assert heads == ["a", "cat", "paints", "the", "house"]
    assert rows.count() == 6  # five words and the end
    assert rows.locator(".attn-x-true").count() == 5
    assert status.inner_text() == ""
    # where the word comes from has the most weight, and a reader of tables hears it
    verb = rows.nth(4).locator("td").all_inner_texts()
    assert float(verb[2]) == max(map(float, verb))

    # a word is lost: outlines only as far as the answer is right
    fill("a red red red red red red mouse sees the cat")
    assert len(said.inner_text().split()) < 11
    assert 0 < rows.locator(".attn-x-true").count() < 5
    assert figure.locator(".attn-x-said .attn-x-no").count() > 0

    fill("the xylophone paints the house")
    assert "Unknown word: “xylophone”" in status.inner_text()
    assert "xylophone" in said.inner_text()
    assert rows.locator("th.attn-x-strange").all_inner_texts() == ["xylophone"]
    fill("cat " * 15)
    assert "15 words; the map has room for 14" in status.inner_text()
    assert "xylophone" in said.inner_text()
    fill("")
    assert "Type 1 to 14 words" in status.inner_text()

    figure.get_by_role("combobox", name="Example").select_option(index=1)
    figure.get_by_role("region").first.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert "For “fille” the weight of “girl” is 0.9" in figure.locator(".attn-x-cell").inner_text()


def test_the_alignment_map_writes_dates(opened: Any) -> None:
    page, figure = opened("alignment_map", viewport={"width": 390, "height": 700})
    figure.get_by_role("combobox", name="Model").select_option("dates")
    said = figure.locator(".attn-x-said").first
    page.wait_for_timeout(100)
    assert said.inner_text() == "1987-05-03"
    figure.get_by_role("textbox").fill("The 21st of December 2014")
    page.wait_for_timeout(100)
    assert said.inner_text() == "2014-12-21"
    assert figure.locator(".attn-x-heat thead th").count() == 25
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_one_hop_fails_and_a_sentence_that_is_needed_can_be_left_out(opened: Any) -> None:
    page, figure = opened("memory_hops", **CALM)
    voice = figure.locator("[aria-live]")

    def press(name: str) -> str:
        figure.get_by_role("button", name=name).click()
        page.wait_for_timeout(300)
        return str(voice.inner_text())

    page.wait_for_timeout(300)
    assert "2 hops the network answers garden, which is right" in voice.inner_text()
    assert figure.locator(".attn-x-hop").count() == 3  # to the milk, to the garden, to the answer
    assert "the right answer is garden" in press("1 hop")
    assert figure.locator("svg .attn-x-red").text_content() == "wrong: the story says garden"
    assert "garden, which is right" in press("2 hops")
    box = figure.get_by_role("checkbox", name="John took the milk there")
    box.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    assert box.get_attribute("aria-checked") == "false"
    assert box.evaluate("node => node === document.activeElement")
    assert "do not answer the question" in voice.inner_text()


@pytest.mark.parametrize("options", [{}, PHONE])
def test_heads_are_switched_off_in_the_model_itself(opened: Any, options: Any) -> None:
    page, figure = opened("transformer_flow", **options)
    heads, chance = figure.locator(".attn-x-flow-head"), figure.locator(".attn-x-big b")
    assert heads.count() == 36
    assert chance.inner_text() == "1.00 → 0.06"
    figure.get_by_role("button", name="All heads on").click()
    assert chance.inner_text() == "1.00"
    arcs = figure.locator(".attn-x-flow-arc")
    before = [arcs.nth(i).get_attribute("d") for i in range(arcs.count())]
    heads.nth(13).click()  # its arcs first, then the answer without it
    assert before != [arcs.nth(i).get_attribute("d") for i in range(arcs.count())]
    assert chance.inner_text() == "1.00"
    heads.nth(13).click()
    page.wait_for_function("document.querySelector('.attn-x-big b').textContent.includes('→')")
    ours = transformer_flow.read(text=transformer_flow.LINES[0][0], off=[13])
    found = transformer_flow.compute(before=ours["before"], after=ours["after"])
    shares = [float(share) for share in chance.inner_text().split(" → ")]
    assert shares == pytest.approx(found["steps"][-1][1:], abs=0.006)
    heads.nth(13).focus()
    page.keyboard.press("ArrowDown")
    assert heads.nth(19).evaluate("node => node === document.activeElement")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.attn-x-big').textContent.includes('2 heads')")
    assert heads.nth(19).get_attribute("aria-pressed") == "true"
    figure.get_by_role("button", name="All heads on").click()
    for head in (13, 13, 18, 18):  # two questions at once: only the last answer is drawn
        heads.nth(head).dispatch_event("click")
    page.wait_for_function("document.querySelector('.attn-x-big').textContent.includes('2 heads')")
    ours = transformer_flow.read(text=transformer_flow.LINES[0][0], off=[13, 18])
    found = transformer_flow.compute(before=ours["before"], after=ours["after"])
    shares = [float(share) for share in chance.inner_text().split(" → ")]
    assert shares == pytest.approx(found["steps"][-1][1:], abs=0.006)
    figure.get_by_text("More", exact=True).click()
    figure.get_by_role("textbox").fill("KING ÄRICHARD")
    page.wait_for_function("document.querySelectorAll('[aria-pressed=true]').length === 0")
    assert "left out" in figure.inner_text()


def test_the_model_writes_in_the_page(opened: Any) -> None:
    page, figure = opened("writer")
    text = figure.get_by_role("group", name="The text")
    before = text.inner_text()
    figure.get_by_role("button", name="Write").click()
    page.wait_for_function(
        f"document.querySelector('.attn-x-page').innerText.length > {len(before) + 20}"
    )
    figure.get_by_role("button", name="Stop").click()
    figure.get_by_text("More", exact=True).click()
    figure.get_by_role("textbox", name="Your own beginning").fill("KING ÄRICHARD")
    page.wait_for_timeout(500)
    assert text.inner_text() == "KING RICHARD"
    assert "left out" in figure.inner_text()
    first = figure.get_by_role("button", name="take ").first
    taken = first.get_attribute("aria-label")
    text.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelector('.attn-x-page .attn-x-asks').dataset.i === '10'")
    assert first.get_attribute("aria-label") != taken


def test_without_scripts_no_place_is_kept_for_a_picture(opened: Any) -> None:
    _, figure = opened("word_sense", java_script_enabled=False)
    host, still = (figure.locator(f".attn-{one}") for one in ("explorer-host", "x"))
    assert host.bounding_box()["height"] < still.bounding_box()["height"] + 1
    _, figure = opened("word_sense")
    tall = figure.locator(".attn-explorer-host").bounding_box()["height"]
    assert tall >= figure.locator(".attn-x").bounding_box()["height"] > 300


def test_the_decoding_tree_answers_to_the_keyboard(opened: Any) -> None:
    page, figure = opened("decoding_tree")
    said = figure.locator(".attn-x-said")
    assert said.inner_text() == "Written: a man walks"  # greedy, which is not the task's answer
    beam = figure.get_by_role("slider", name="Beam size")
    beam.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('.attn-x-said').textContent === 'Written: she walks'"
    )
    figure.get_by_text("More", exact=True).click()
    figure.get_by_role("slider", name="Length term").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "document.querySelector('.attn-x-said').textContent === 'Written: a dog runs'"
    )
    figure.get_by_role("combobox").select_option("draw")
    again = figure.get_by_role("button", name="Draw again")
    figure.get_by_role("slider", name="Nucleus").fill("0.1")  # only the likeliest word is left
    again.click()
    page.wait_for_function(
        "document.querySelector('.attn-x-said').textContent === 'Drawn: a man walks'"
    )


STILLS = explorers.NAMES
CALM = {"reduced_motion": "reduce"}
# The opening picture without what only a script could answer to.
STILL = """node => {
  const copy = node.querySelector('.attn-x-picture').cloneNode(true);
  const strip = (one, names) => {
    for (const { name } of [...one.attributes]) if (names.test(name)) one.removeAttribute(name);
  };
  for (const svg of copy.querySelectorAll('svg')) svg.setAttribute('role', 'img');
  for (const title of copy.querySelectorAll('svg title')) title.remove();
  for (const grip of copy.querySelectorAll('.attn-x-grip')) strip(grip, /^(?!transform$)/);
  for (const one of copy.querySelectorAll('[tabindex], [role=group]'))
    strip(one, /^(tabindex|role|aria-.*)$/);
  for (const one of copy.querySelectorAll('input, label')) one.remove();
  for (const one of copy.querySelectorAll('[data-i]')) strip(one, /^(title|data-i)$/);
  for (const one of copy.querySelectorAll('[class=""]')) strip(one, /^class$/);
  for (const one of copy.querySelectorAll('[style="--share: 0%"]')) strip(one, /^style$/);
  for (const one of copy.querySelectorAll('button')) {
    const span = document.createElement('span');
    span.style.cssText = one.style.cssText;
    span.append(...one.childNodes);
    one.replaceWith(span);
  }
  const question = node.querySelector('.attn-x-question').outerHTML;
  return `<div class="attn-x">${question}${copy.innerHTML}</div>\\n`;
}"""
# Texts of a drawing that lie over each other.
COLLIDING = """node => {
  const texts = [...node.querySelectorAll('.attn-x-picture svg text')];
  const boxes = texts.map((one) => one.getBoundingClientRect());
  return boxes.flatMap((a, i) => boxes.slice(0, i).flatMap((b, j) =>
    a.left < b.right && b.left < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom
      ? [texts[i].textContent + ' / ' + texts[j].textContent] : []));
}"""


@pytest.mark.parametrize("name", STILLS)
def test_the_still_is_the_picture_with_two_thirds_and_a_place_for_each_label(
    opened, name, tmp_path
):
    page, figure = opened(name, **CALM)
    now = figure.evaluate(STILL)
    (tmp_path / f"{name}.html").write_text(now, encoding="utf-8")
    assert explorers._source.still(name) == now, f"the new one is {tmp_path / name}.html"
    assert figure.locator("input[type=number]").count() == 0

    def check() -> None:
        for width, share in ((390, 0.9), (1280, 0.62)):
            page.set_viewport_size({"width": width, "height": 844})
            page.wait_for_timeout(60)
            parts = (figure.locator(f".attn-x{part}") for part in ("", "-picture"))
            frame, picture = (part.bounding_box()["width"] for part in parts)
            assert picture > share * frame
            assert figure.evaluate(COLLIDING) == []

    for key in ("Home", "End"):
        check()
        for grip in figure.get_by_role("slider").all():
            if grip.evaluate("node => node.matches('g')"):
                grip.focus()
                page.keyboard.press(key)
    for summary in figure.locator("summary").all():
        summary.click()
    for knob in figure.locator("details input[type=range]").all():
        knob.focus()
        page.keyboard.press("End")
    check()
    _, figure = opened(name, java_script_enabled=False)
    picture = figure.locator(".attn-x > :is(svg, .attn-x-page, .attn-x-scroll)").first
    assert picture.bounding_box()["height"] > 200
    assert figure.locator(".attn-x-question").is_visible()
    assert figure.locator("[tabindex], button, input").count() == 0


def test_a_model_grows_with_its_slider(opened: Any) -> None:
    page, figure = opened("growing_up", **PHONE)
    steps, shades = figure.get_by_role("slider"), figure.locator("svg .attn-x-plus")
    trained = [shades.nth(i).get_attribute("d") for i in range(shades.count())]
    text = figure.locator(".attn-x-controls p").nth(1).inner_text()
    steps.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(300)
    assert figure.locator("svg").get_by_text("step 0", exact=True).is_visible()
    assert trained != [shades.nth(i).get_attribute("d") for i in range(shades.count())]
    assert figure.locator(".attn-x-controls p").nth(1).inner_text() != text
    assert figure.locator("[aria-live]").inner_text().startswith("Step 0: ")
    box = steps.bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] - 2, box["y"] + box["height"] / 2)
    page.wait_for_timeout(300)
    assert trained == [shades.nth(i).get_attribute("d") for i in range(shades.count())]


def test_two_tokens_move_together_and_the_score_stays(opened: Any) -> None:
    page, figure = opened("rope_distances", **CALM)
    query = figure.get_by_role("slider", name="place of the query")
    hands = figure.locator(".attn-x-hand")

    def now() -> tuple[str, str | None]:
        page.wait_for_timeout(100)
        return figure.get_by_text("score at").text_content(), query.get_attribute("aria-valuenow")

    text, place = now()
    assert (text[:19], place) == ("score at distance 7", "19")
    turned = [hands.nth(i).get_attribute("d") for i in range(hands.count())]
    figure.get_by_role("slider", name="both tokens").focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert now() == (text, "24")
    assert turned != [hands.nth(i).get_attribute("d") for i in range(hands.count())]
    figure.get_by_role("button", name="Move both tokens").click()
    assert now() == (text, "63")
    visited = figure.locator(".attn-x-picture .attn-x-drop")
    assert visited.count() == 1  # the scores at other distances are the reader's to find
    query.focus()
    page.keyboard.press("PageDown")
    page.keyboard.press("PageUp")
    assert now() == (text, "63")
    assert visited.count() > 5
    page.keyboard.press("ArrowLeft")
    assert now()[0] != text


def test_the_tokens_move_by_themselves_until_a_hand_takes_one(opened: Any) -> None:
    page, figure = opened("rope_distances")
    query = figure.get_by_role("slider", name="place of the query")
    text = figure.get_by_text("score at").text_content()
    show(page, figure)
    page.wait_for_function(
        "Number(document.querySelectorAll('.attn-x-grip')[1].getAttribute('aria-valuenow')) > 24"
    )
    assert figure.get_by_text("score at").text_content() == text
    query.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(300)
    assert query.get_attribute("aria-valuenow") == "0"
    assert figure.get_by_role("button", name="Move both tokens").is_visible()


@pytest.mark.parametrize(
    ("name", "grip", "by", "expected"),
    [
        ("rope_distances", "place of the key", (20 * 316 / 63, 4), 32),
        ("rope_distances", "both tokens", (10 * 316 / 63, 2), 22),
        ("kv_cache", "words written", (20 * 368 / 83, 3), 60),
        ("hard_attention", "draws for each estimate", (0, 4 * 31), 7),
        ("block_stream", "part of the stack", (5 * 372 / 24, 3), 14),
        ("online_softmax", "tiles read", (-66, 2), 2),
        ("ring_schedule", "step", (90, 2), 2),
    ],
)
def test_a_finger_drags_the_thing_itself(
    opened: Any, name: str, grip: str, by: tuple[float, float], expected: int
) -> None:
    page, figure = opened(name, **PHONE, **CALM)
    thing, drawing = figure.get_by_role("slider", name=grip), figure.locator("svg").first
    show(page, drawing)
    before, scale = scrolled(page), drawing.bounding_box()["width"] / 380
    x, y = centre(thing)
    Finger(page).drag((x, y), (x + by[0] * scale, y + by[1] * scale))
    assert scrolled(page) == before
    assert int(thing.get_attribute("aria-valuenow")) == pytest.approx(expected, abs=1)


def test_a_longer_text_saves_more(opened: Any) -> None:
    page, figure = opened("kv_cache", **CALM)
    ratio, edge = figure.locator("b"), figure.get_by_role("slider", name="words written")

    def saved() -> float:
        page.wait_for_timeout(60)
        return float(ratio.inner_text().rstrip("×"))

    half = saved()
    figure.get_by_role("button", name="Write the text").click()
    assert saved() == pytest.approx(2 * half, rel=0.05)
    assert edge.get_attribute("aria-valuetext") == "83 of 83"
    edge.focus()
    page.keyboard.press("Home")
    assert saved() == 1
    figure.get_by_text("More", exact=True).click()
    assert figure.get_by_role("row", name="MHA").inner_text().split() == ["MHA", "0.5", "MB"]


def test_the_cloud_shrinks_with_draws_and_with_a_baseline(opened: Any) -> None:
    page, figure = opened("hard_attention", **CALM)
    cloud = figure.locator(".attn-x-drop")
    assert cloud.count() == 60

    def width() -> float:
        page.wait_for_timeout(60)
        places = [float(one.get_attribute("cx")) for one in cloud.all()]
        return max(places) - min(places)

    wide = width()
    assert wide > 100  # of 380
    figure.get_by_role("slider", name="Baseline").fill("16")
    assert width() < 0.7 * wide
    figure.get_by_role("button", name="Let draws fall").click()
    assert width() < 0.25 * wide
    grip = figure.get_by_role("slider", name="draws for each estimate")
    assert grip.get_attribute("aria-valuetext") == "256 draws"
    grip.focus()
    page.keyboard.press("ArrowUp")
    assert grip.get_attribute("aria-valuetext") == "128 draws"
    figure.get_by_text("More", exact=True).click()
    figure.get_by_role("button", name="Reset").click()
    assert width() == pytest.approx(wide)


def test_a_kernel_runs_and_larger_tiles_travel_less(opened: Any) -> None:
    page, figure = opened("memory_trace", **CALM)
    ratio = figure.locator(".attn-x-big b")
    assert ratio.inner_text() == "3.0×"
    figure.get_by_role("slider", name="Access").fill("97")
    page.wait_for_function("document.querySelector('.attn-x-big b').textContent === '2.0×'")
    figure.get_by_role("button", name="Run the kernel").click()
    page.wait_for_function("document.querySelector('.attn-x-big b').textContent === '3.0×'")
    assert figure.get_by_text("a · read 4×").is_visible()
    figure.get_by_role("combobox", name="Kernel").select_option("matrix product, tiles of 4")
    page.wait_for_function("document.querySelector('.attn-x-big b').textContent === '1.7×'")
    assert figure.get_by_text("a · read 2×").is_visible()
    figure.get_by_role("slider", name="Access").fill("1")
    page.wait_for_function("document.querySelectorAll('.attn-x-trace-now').length === 16")
    said = "document.querySelector('[aria-live]').textContent === 'Program 0 reads 16 of a.'"
    page.wait_for_function(said)


@pytest.mark.parametrize("options", [CALM, PHONE])
def test_attention_follows_a_pattern_that_is_dragged(opened: Any, options: Any) -> None:
    page, figure = opened("patch_attention", **options)
    links, fixed = (figure.locator("svg > g").nth(i).locator(".attn-x-patch-link") for i in (0, 1))
    grip = figure.get_by_role("application").first
    show(page, figure.locator("svg"))
    before, still = links.get_attribute("d"), fixed.get_attribute("d")
    x, y = centre(grip.locator(".attn-x-patch-grip"))
    high, place = grip.locator(".attn-x-patch-grip").bounding_box()["height"], scrolled(page)
    if "has_touch" in options:
        Finger(page).drag((x, y), (x, y - 2 * high))
    else:
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x, y - 2 * high, steps=4)
        page.mouse.up()
    page.wait_for_timeout(100)
    assert scrolled(page) == place
    assert links.get_attribute("d") != before
    assert fixed.get_attribute("d") == still
    grip.focus()
    for key in ("ArrowDown", "ArrowDown"):
        page.keyboard.press(key)
    page.wait_for_timeout(100)
    assert links.get_attribute("d") == before
    figure.get_by_text("More", exact=True).click()
    figure.get_by_role("button", name="Clear").click()
    figure.get_by_role("button", name="Paint").click()
    grip.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    page.wait_for_timeout(100)
    assert figure.locator(".attn-x-patch-dark").first.get_attribute("d").count("M") == 1


def test_a_picture_of_the_reader_s_own_becomes_patches(opened: Any) -> None:
    page, figure = opened("patch_attention")
    figure.get_by_text("More", exact=True).click()
    half = """() => {
      const canvas = document.createElement('canvas'), pen = canvas.getContext('2d');
      canvas.width = 64; canvas.height = 40; pen.fillStyle = '#fff'; pen.fillRect(0, 0, 64, 40);
      pen.fillStyle = '#000'; pen.fillRect(0, 0, 32, 40); return canvas.toDataURL(); }"""
    picture = base64.b64decode(page.evaluate(half).split(",")[1])
    figure.locator("input[type=file]").set_input_files(
        {"name": "half.png", "mimeType": "image/png", "buffer": picture}
    )
    page.wait_for_timeout(400)
    for kind in ("dark", "light"):
        pixels = figure.locator(f".attn-x-patch-{kind}").first.get_attribute("d")
        assert pixels.count("M") == 128


def test_pages_let_more_texts_run_than_reserved_memory(opened: Any) -> None:
    page, figure = opened("paged_cache", **CALM)
    titles = figure.locator(".attn-x-page-name")
    assert titles.all_text_contents() == ["reserved: 2 texts", "pages: 4 texts"]
    time = figure.get_by_role("slider", name="step")
    time.focus()
    page.keyboard.press("Home")
    page.wait_for_timeout(100)
    assert titles.all_text_contents() == ["reserved: 2 texts", "pages: 2 texts"]
    assert figure.locator(".attn-x-page-lost").count() == 0
    figure.get_by_role("combobox", name="Slots of a page").select_option("2")
    figure.get_by_role("button", name="Run").click()
    page.wait_for_timeout(200)
    assert time.get_attribute("aria-valuenow") == "48"
    assert titles.all_text_contents() == ["reserved: 0 texts", "pages: 0 texts"]
    assert figure.locator(".attn-x-big b").inner_text() == "6 : 2"
