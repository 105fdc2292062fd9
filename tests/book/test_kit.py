"""The instructor's kit: slides and questions against the sources, lesson plans, one deck in use."""

import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import lxml.etree
import lxml.html
import pytest
from bookbuild.common import Book
from bookbuild.slides import definitions

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "book" / "_ext"))

from attn_teaching import Chapter  # noqa: E402  the line above makes it importable
from course_map import NAMES  # noqa: E402
from interactive_blocks import BlockError, read_exercises, read_predict, read_quiz  # noqa: E402

from attn_course.probes.catalogue import load_catalogue  # noqa: E402

pytestmark = pytest.mark.book
BLOCK = re.compile(r"^```\{(quiz|predict)\} (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LESSON = re.compile(r"^```\{lesson\} (\S+)$", re.MULTILINE)
# Every slide in turn: what is cut off, wider than the slide, or smaller than 16 pixels.
CROWDED = """async () => {
  await document.fonts.ready;
  const found = [];
  for (let left = Reveal.getTotalSlides(); left--; Reveal.next()) {
    const slide = Reveal.getCurrentSlide(), edge = slide.getBoundingClientRect();
    const parts = [...slide.querySelectorAll("*")];
    const shown = parts.filter((one) => !one.closest("aside, svg, .katex-mathml"));
    const outside = shown.some((one) => {
      const { width, right, bottom } = one.getBoundingClientRect();
      return width && (right > edge.right + 1 || bottom > edge.bottom + 1);
    });
    const small = [slide, ...shown].some(({ style: { fontSize } }) =>
      fontSize.endsWith("px") && parseFloat(fontSize) < 16);
    const figure = slide.querySelector("figure svg")?.getBoundingClientRect().height < 250;
    const cut = slide.scrollHeight > slide.clientHeight;
    if (outside || small || figure || cut) found.push(slide.innerText.slice(0, 60));
  }
  return found;
}"""


@pytest.fixture(scope="module")
def questions(site: Path) -> dict[str, Any]:
    """The bank of all chapters, by the id of the question."""
    quiz = lxml.etree.parse(site / "questions" / "all.xml").getroot()
    return {one.findtext("idnumber"): one for one in quiz if one.get("type") != "category"}


@pytest.fixture(scope="module")
def decks(site: Path) -> dict[str, Any]:
    """The slides of each deck, in order."""
    paths = sorted((site / "slides").glob("[0-9][0-9].html"))
    return {
        path.stem: lxml.html.fromstring(path.read_text(encoding="utf-8")).xpath(
            "//section[not(section)]"
        )
        for path in paths
    }


def test_the_bank_is_what_the_pages_ask(book: Book, questions: dict[str, Any]) -> None:
    asked = {}
    for page in book.pages:
        found = BLOCK.findall(book.path(page).read_text(encoding="utf-8"))
        for kind, name, body in found if page.startswith("chapters/") else []:
            read = read_quiz if kind == "quiz" else read_predict
            asked[name] = read(name, body.splitlines())
    assert set(asked) == set(questions)
    for name, block in asked.items():
        answers = questions[name].findall("answer")
        formulas = len(re.findall(r"(?<!\\)\$[^$]+\$", block.question.source))
        text = questions[name].findtext("questiontext/text")
        assert text.count(r"\(") + text.count(r"\[") == formulas, name
        if block.options:
            right = [option.correct for option in block.options]
            assert [one.get("fraction") == "100" for one in answers] == right, name
        else:
            assert float(answers[0].findtext("text")) == pytest.approx(block.number)
            assert float(answers[0].findtext("tolerance")) == pytest.approx(block.tolerance)


def test_a_question_is_complete_and_has_one_right_answer(questions: dict[str, Any]) -> None:
    for name, one in questions.items():
        answers = one.findall("answer")
        fractions = Counter(answer.get("fraction") for answer in answers)
        assert fractions["100"] == 1, name
        assert fractions["0"] == len(answers) - 1, name
        texts = [answer.findtext("text") for answer in answers]
        assert all(texts), name
        assert len(set(texts)) == len(texts), name
        quiz = one.findtext("tags/tag/text") == "quiz"
        assert all(answer.findtext("feedback/text") for answer in answers) or not quiz, name
        assert one.findtext("generalfeedback/text"), name
        for text in one.itertext():
            assert not re.search(r"class=|katex|href=\"(?!https://)", text), name
            assert text.count(r"\(") == text.count(r"\)"), name
        assert one.findtext("name/text").startswith(name)
        if one.get("type") == "multichoice":
            assert (one.findtext("single"), len(answers) >= 2) == ("true", True), name
            assert one.findtext("shuffleanswers") == ("true" if quiz else "false")


def test_every_chapter_has_its_bank_and_its_category(site: Path) -> None:
    for slug in NAMES:
        quiz = lxml.etree.parse(site / "questions" / f"{slug[:2]}.xml").getroot()
        category, *rest = quiz
        assert f"/{slug[:2]} " in category.findtext("category/text")
        assert rest, slug


def test_a_deck_has_every_figure_and_prediction_of_its_chapter_once(book, site, decks) -> None:
    assert list(decks) == [slug[:2] for slug in NAMES]
    for slug in NAMES:
        slides = decks[slug[:2]]
        pages = [
            lxml.html.parse(site / f"{page}.html").getroot()
            for page in book.chapter(f"chapters/{slug}")
        ]
        open_ = "[not(ancestor::details)]"
        figures = [
            one.text_content()
            for page in pages
            for one in page.xpath(f'//span[@class="attn-figure-number"]{open_}')
        ]
        of_deck = Counter(
            one.text_content()
            for s in slides
            for one in s.xpath('.//span[@class="attn-figure-number"]')
        )
        assert of_deck == Counter(figures), slug
        guesses = [
            one for page in pages for one in page.xpath('//div[contains(@class, "attn-predict")]')
        ]
        asked = [i for i, s in enumerate(slides) if s.get("class") == "predict"]
        assert len(asked) == len(guesses) > 0, slug
        for place, guess in zip(asked, guesses, strict=True):
            assert not slides[place].xpath('.//*[@class="right" or @class="answer"]')
            shown = slides[place + 1]
            assert shown.get("class") == "predict solved"
            (right,) = shown.xpath('.//*[@class="right" or @class="answer"]')
            letters = [one.get("class") == "right" for one in shown.findall(".//ol/li")]
            if letters:
                assert "ABCDEFGHIJ"[letters.index(True)] == guess.get("data-answer")
            else:
                assert float(right.text_content()) == pytest.approx(float(guess.get("data-answer")))
        assert slides[0].find("h1") is not None
        assert sum(s.get("class") == "goals" for s in slides) == 1
        assert sum(bool(s.xpath('.//aside[@class="notes"]')) for s in slides) > len(slides) // 3


def test_a_slide_shows_functions_without_their_set_up() -> None:
    function = ["@jit", "def f(", "    x,", "):", "    y = x", "", "    return y"]
    assert definitions(["seed = 1", "", *function, "", "", "print(f(2))"]) == range(2, 9)
    assert definitions(["class A:", "    pass", "", ""]) == range(2)
    assert not definitions(["print(1)"])


def test_no_slide_says_a_label_alone_or_has_set_up_after_its_functions(decks) -> None:
    for number, slides in decks.items():
        for slide in slides:
            for one in slide.xpath("./p/strong[not(preceding-sibling::*)]"):
                alone = one.getparent().text_content() == one.text_content()
                assert not (alone and len(one.text_content().split()) < 4), (number, one.text)
        for code in (one for slide in slides for one in slide.xpath('.//div[@class="highlight"]')):
            lines = code.text_content().split("\n")
            assert definitions(lines) in (range(0), range(len(lines))), (number, lines)


@pytest.mark.browser
@pytest.mark.parametrize("number", ["07", "12"])
def test_nothing_on_a_slide_is_cut_off_or_tiny(chromium: Any, address: str, number: str) -> None:
    page = chromium.new_page(viewport={"width": 1280, "height": 720})
    failed: list[str] = []
    page.on("response", lambda one: failed.append(one.url) if one.status >= 400 else None)
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto(f"{address}slides/{number}.html")
    page.wait_for_function("window.Reveal?.isReady()")
    assert page.evaluate(CROWDED) == []
    assert failed == []
    page.close()


def test_every_chapter_has_one_plan_with_its_numbers(book: Book, site: Path) -> None:
    planned = [
        slug
        for page in book.pages
        if page.startswith("teaching/")
        for slug in LESSON.findall(book.path(page).read_text(encoding="utf-8"))
    ]
    assert planned == list(NAMES)
    html = lxml.html.parse(site / "teaching" / "transformer.html").getroot()
    rows = [
        [" ".join(cell.text_content().split()) for cell in row.findall("td")]
        for row in html.xpath('//section[@id="lesson-07"]//tr')
    ]
    known = Counter(one.of for one in load_catalogue("07_scaled_dot_product").misconceptions)
    for item in read_exercises("07_scaled_dot_product", ROOT):
        part, mistakes = "more" if item.more else "core", str(known[item.name] or "–")
        assert [item.name, part, str(item.minutes), f"{item.points:g}", mistakes] in rows


def test_a_plan_that_does_not_fit_its_chapter_is_refused(book: Book) -> None:
    one = Chapter("07_scaled_dot_product", book)
    right = [{"60 board": "a"}, {"10 predict sdp-divide": "b"}, {"20 exercise causal_mask": "c"}]
    assert [minutes for minutes, *_ in one.steps(right)] == [60, 10, 20]
    for step, message in (
        ({"10 predict wu-the": "b"}, "no predict 'wu-the'"),
        ({"10 explorer writer": "b"}, "no explorer 'writer'"),
        ({"10 exercise reachable": "b"}, "not in the core"),
        ({"10 lecture": "b"}, "not a step"),
        ({"15 board": "b"}, "takes 95 minutes"),
    ):
        with pytest.raises(BlockError, match=message):
            one.steps([right[0], step, right[2]])


def test_a_syllabus_adds_up_what_the_pages_and_sets_take(book: Book, site: Path) -> None:
    html = lxml.html.parse(site / "teaching.html").getroot()
    (weeks,) = html.xpath('//section[@id="fourteen-weeks"]//table')
    total = [cell.text_content() for cell in weeks.findall("tfoot/tr/th")]
    chapters = [Chapter(slug, book) for slug in NAMES]
    reading = sum(sum(one.minutes) for one in chapters)
    core = [item for one in chapters for item in one.core]
    minutes, points = sum(i.minutes for i in core), sum(i.points for i in core)
    expected = ["Total", "", f"{reading}", f"{minutes}", f"{points:g}", f"{reading + minutes} min"]
    assert total == expected
