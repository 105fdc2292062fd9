"""The interactive blocks on a small site of their own: what is refused, what a reader meets."""

import functools
import http.server
import json
import re
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from attn_course import explorers

ROOT = Path(__file__).resolve().parents[2]
CONF = f"""
import sys
sys.path.insert(0, {str(ROOT / "book" / "_ext")!r})
extensions = [
    "myst_nb", "attn_interactive", "attn_sealed", "attn_source", "attn_numbers", "attn_figures",
    "attn_progress",
]
html_theme = "sphinx_book_theme"
html_theme_options = {{"repository_url": "https://github.com/somebody/course"}}
html_static_path = [{str(ROOT / "book" / "_static")!r}]
html_css_files, html_js_files = ["interactive.css"], ["interactive.js"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
html_math_renderer = "mathjax"
nb_ipywidgets_js = {{}}
"""
HEAD = """---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
# Page
"""
CELL = """
```{code-cell} ipython3
:tags: [after-predict]
1
```
"""
QUIZ = """
```{quiz} q-one
question: What is $x^2$ at `x = 3`?
from: earlier
options:
  - text: 6
    why: That is $2x$.
  - text: "**9**"
    correct: true
    why: |
      Three times three.

      - and a list
  - text: 27
    why: "That is the cube: one too many."
```
"""
PREDICT = """
```{predict} p-one
question: What does it print?
options:
  - "`nan`"
  - inf
answer: 1
key: "1 if x == float('inf') else 0"
why: It grows beyond the largest number.
```
"""
NUMBER = """
```{predict} p-two
question: How many?
type: number
answer: 0.25
tolerance: 0.05
key: 1 / 4
why: One of four.
```
"""
HEIGHTS = """() => Object.fromEntries([...document.querySelectorAll('.attn-explorer')].map(
  (one) => [one.id, one.getBoundingClientRect().height]))"""
EXPLORER = """
```{explorer} softmax_temperature
:caption: Move the scores of $z$.
```
"""


def build(folder: Path, pages: dict[str, str], execution: str = "off") -> tuple[Path, str]:
    """Build pages into HTML; the folder and what Sphinx complained about."""
    source = folder / "source"
    source.mkdir(parents=True)
    (source / "conf.py").write_text(f"{CONF}nb_execution_mode = {execution!r}\n")
    toc = "\n".join(pages)
    (source / "index.md").write_text(f"# Site\n```{{toctree}}\n{toc}\n```\n")
    for name, text in pages.items():
        (source / f"{name}.md").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-n", "-b", "html", source, folder / "html"],
        capture_output=True,
        text=True,
        timeout=200,
    )
    return folder / "html", re.sub(r"\x1b\[[0-9;]*m", "", done.stderr)


QUIZ_BODY = (
    "question: Q\noptions:\n  - text: a\n    correct: true\n    why: A\n  - text: b\n    why: B\n"
)
PREDICT_BODY = "question: Q\noptions: [a, b]\nanswer: 1\nkey: 0\nwhy: W\n"


def quiz(old: str = "", new: str = "") -> str:
    return "```{quiz} q\n" + QUIZ_BODY.replace(old, new) + "```"


def predict(old: str = "", new: str = "", rest: str = CELL) -> str:
    return "```{predict} p\n" + PREDICT_BODY.replace(old, new) + "```" + rest


CHOICE, NO_CELL = "options: [a, b]\nanswer: 1", "no cell with the tag after-predict follows before"
# name: (block, line of the block that is blamed, words of the message)
MISTAKES: dict[str, tuple[str, int, str]] = {
    "no-correct": (quiz("    correct: true\n"), 4, "no option is marked 'correct: true'"),
    "two-correct": (
        quiz("text: b\n", "text: b\n    correct: true\n"), 8, "options 1, 2 are all marked correct"
    ),
    "no-why": (quiz("    why: B\n"), 7, "'why' of option 2"),
    "no-question": (quiz("question: Q\n"), 2, "'question' is missing"),
    "one-option": (quiz("  - text: b\n    why: B\n"), 4, "at least two"),
    "misspelt": (quiz("why: B", "wy: B"), 8, "unknown key 'wy', did you mean 'why'?"),
    "twice": (quiz("why: B\n", "why: B\nquestion: again\n"), 9, "the key 'question' stands twice"),
    "maybe": (quiz("correct: true", "correct: yes"), 5, "must be true or false"),
    "yaml": ("```{quiz} q\nquestion: `x` is\noptions: []\n```", 2, "in quotes or after '|'"),
    "colon": (quiz("why: B", "why: no: b"), 8, "in quotes or after '|'"),
    "bad-id": (quiz().replace(" q\n", " Q 1\n", 1), 1, "the id must be lower-case"),
    "duplicate": (quiz() + "\n\n" + quiz(), 11, "duplicate id"),
    "nowhere": (
        quiz("question: Q", "from: 99_nowhere\nquestion: Q"), 2, "no page '99_nowhere' in the book"
    ),
    "range": (predict("answer: 1", "answer: 2"), 4, "0 to 1, got '2'"),
    "no-predict-why": (predict("why: W\n"), 2, "'why' is missing"),
    "tolerance": (predict(CHOICE, "answer: 2.36"), 3, "'tolerance' is missing"),
    "no-number": (
        predict(CHOICE, "type: number\nanswer: many"), 4, "must be a number, got 'many'"
    ),
    "no-cell": (predict(rest=""), 1, f"{NO_CELL} the next heading"),
    "cell-too-late": (predict(rest="\n\n## Next\n" + CELL), 1, f"{NO_CELL} the next heading"),
    "no-key": (predict("key: 0\n"), 2, "'key' (Python: the answer, from the result) is missing"),
    "key": (predict("key: 0", "key: 1 if"), 5, "'key' must be one Python expression"),
    "goals": (":::{goals}\n:::", 1, "the goals box is empty"),
    "source": (
        "```{source} attn_course.functional.attention.atention\n```", 1,
        "attn_course.functional.attention has no 'atention', did you mean 'attention'?",
    ),
    "explorer": ("```{explorer} softmx\n:caption: c\n```", 1, "no explorer 'softmx'"),
    "caption": ("```{explorer} bottleneck\n```", 1, "':caption:' is missing"),
    "set": ("```{exercise-set} 99_none\n```", 1, "no exercise set '99_none'"),
}  # fmt: skip


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> str:
    pages = {name: HEAD + "\n" + block + "\n" for name, (block, _, _) in MISTAKES.items()}
    pages["lonely-cell"] = HEAD + CELL
    pages["nested"] = HEAD + "\n" + quiz("why: B", "why: '{doc}`gone`'") + "\n"
    pages["earlier"] = HEAD + QUIZ.replace("from: earlier\n", "") + PREDICT + CELL + NUMBER + CELL
    return build(tmp_path_factory.mktemp("mistakes"), pages)[1]


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_an_error_with_page_and_line(name: str, complaints: str) -> None:
    _, line, words = MISTAKES[name]
    line += HEAD.count("\n") + 1
    mine = [row for row in complaints.splitlines() if f"/{name}.md" in row]
    assert len(mine) == 1, mine
    assert f"/{name}.md:{line}: ERROR: " in mine[0]
    assert words in mine[0]


def test_a_hidden_cell_without_prediction_is_an_error(complaints: str) -> None:
    assert re.search(
        r"/lonely-cell\.md.*ERROR: a cell tagged after-predict, but no predict", complaints
    )


def test_a_mistake_inside_a_text_is_reported(complaints: str) -> None:
    line = HEAD.count("\n") + 9
    assert re.search(rf"/nested\.md:{line}: WARNING: unknown document: 'gone'", complaints)


def test_right_blocks_raise_no_complaint(complaints: str) -> None:
    assert "/earlier.md" not in complaints


OUTPUTS = """
```{code-cell} ipython3
:tags: [after-predict]
print(SAID)
```
"""


FIGURE = (
    "```{code-cell} ipython3\nfrom IPython.display import HTML\n"
    'HTML(\'<svg class="attn-figure" role="img" aria-label="a" data-caption="CAPTION"></svg>\')\n'
    "```\n"
)
NUMBERS = (
    HEAD.replace("# Page", "# Numbers")
    + "See {eq}`eq-two`.\n\n$$\na = b\n$$ (eq-one)\n\n"
    + "$$\n\\unindexed / \\sqrt{d_k}\n$$ (eq-two)\n\n"
    + FIGURE.replace("CAPTION", "The first.")
    + '\n<div class="attn-progress" hidden></div>\n'
    + QUIZ.replace("Three times three", "Unmistakable").replace("q-one", "n-one")
    + PREDICT.replace("largest number", "unmistakable").replace("p-one", "n-two")
    + OUTPUTS.replace("SAID", "'findable'")
    + FIGURE.replace("CAPTION", "The second &amp; last.")
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A page with one of each, with outputs, served on this machine."""
    first = OUTPUTS.replace("SAID", "'in' + 'finite'")
    second = OUTPUTS.replace("SAID", "'quar' + 'ter'")
    page = "\n".join(
        [
            HEAD,
            ":::{goals}\n- Say what $x$ is.\n:::",
            "## Guess\n\nBefore the box.",
            PREDICT + first + "\n(a-place)=\nA paragraph that tells all.\n" + NUMBER + second,
            "## Next\n\nOpen to all. [There](#a-place)",
            "```{source} attn_course.nn.seq2seq.Encoder.forward\n```",
            ':::{misconception} "A title with `code`"\nIt is not so.\n:::',
            QUIZ,
            QUIZ.replace("q-one", "q-two"),
            "\n\n".join(["Filling."] * 60),
            *(EXPLORER.replace("softmax_temperature", name) for name in explorers.NAMES),
            "```{exercise-set} 00_warm_up\n```",
            "```{exercise-sets}\n```",
        ]
    )
    pages = {"page": page, "earlier": "# An earlier page\n", "04_numbers": NUMBERS}
    html, said = build(tmp_path_factory.mktemp("site"), pages, execution="force")
    assert "WARNING: " not in said.replace("[IPKernelApp] WARNING", "")
    assert "ERROR: " not in said  # of Sphinx; a kernel that ends may log its own
    handler = functools.partial(Quiet, directory=html)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/page.html"
    server.shutdown()


def fetch(site: str, name: str) -> str:
    with urllib.request.urlopen(site.replace("page.html", name)) as answer:
        return str(answer.read().decode())


@pytest.mark.book
def test_titles_equations_and_figures_are_numbered_by_chapter(site: str) -> None:
    text = fetch(site, "04_numbers.html")
    assert re.search(r"<h1>4 Numbers<", text)
    assert "4 Numbers" in re.search(r'<nav class="bd-links.*?</nav>', text, re.S)[0]  # type: ignore[index]
    assert re.search(r'See <a [^>]*href="#equation-eq-two">\(4\.2\)</a>', text)
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", text)
    assert [re.sub("<[^>]+>", "", one) for one in captions] == [
        "Figure 4.1. The first.",
        "Figure 4.2. The second &amp; last.",
    ]
    assert (
        "data-caption" not in text.replace("&quot;", "").split("<figure", 1)[1].split("</svg>")[0]
    )


@pytest.mark.book
def test_the_search_index_knows_sealed_words_but_no_answer(site: str) -> None:
    index = fetch(site, "searchindex.js")
    assert '"findabl' in index
    assert '"sqrt' in index
    assert '"d_k' in index
    for word in ("unmistak", "unindex"):
        assert f'"{word}' not in index, word


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: Any) -> None:
        """No line for each request."""


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """Contexts of one test, closed after it: an open page goes on drawing."""
    before = list(chromium.contexts)
    yield chromium
    for context in chromium.contexts:
        if context not in before:
            context.close()


def visit(browser: Any, site: str, **options: Any) -> Any:
    """A fresh visitor on the page; ``errors`` of the page are those of its scripts."""
    page = browser.new_context(**options).new_page()
    page.errors = []
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    # no request may leave this machine (the small site's own formulas would load MathJax)
    page.route("**/*", lambda r: r.continue_() if "127.0.0.1" in r.request.url else r.abort())
    page.goto(site, wait_until="domcontentloaded")
    return page


def show_explorers(page: Any) -> None:
    for name in explorers.NAMES:
        page.locator(f"#explorer-{name}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#explorer-{name}[data-ready]")


def seen(locator: Any) -> bool:
    """Whether a reader sees it: an element in a closed part has a place, but is not drawn."""
    return bool(
        locator.evaluate(
            "node => node.checkVisibility({contentVisibilityAuto: false, visibilityProperty: true})"
        )
    )


@pytest.mark.browser
def test_what_follows_a_box_is_closed_until_the_guess(browser: Any, site: str) -> None:
    page = visit(browser, site)
    output = page.get_by_text("infinite", exact=True)
    prose = page.get_by_text("A paragraph that tells all.")
    box = page.locator("#predict-p-one")
    second = page.locator("#predict-p-two")
    assert not seen(output)
    assert not seen(prose)
    assert not seen(second)
    assert seen(page.get_by_text("Before the box."))
    assert seen(page.get_by_text("Open to all."))
    assert not box.get_by_text("It grows beyond").is_visible()
    box.get_by_role("button", name="Record my guess").click()
    assert "Choose an answer first" in box.get_by_role("status").inner_text()
    box.get_by_role("radio", name="nan").check()
    assert not seen(output)
    box.get_by_role("button", name="Record my guess").click()
    assert seen(output)
    assert seen(prose)
    assert page.locator(".attn-said").all_inner_texts() == ["You said: nan"]
    assert "That is not what happens" in box.get_by_role("status").inner_text()
    assert box.get_by_text("It grows beyond").is_visible()
    assert page.evaluate("localStorage['attn:page:p-one']") == '{"choice":"A","first":"A"}'
    # a second box of the section closes its own part
    assert seen(second)
    assert not seen(page.get_by_text("quarter", exact=True))
    page.reload()
    assert seen(output)
    box.get_by_role("button", name="Forget my guess").click()
    assert not seen(output)
    page.get_by_role("button", name="Show without guessing").first.click()
    page.reload()
    assert seen(output)
    assert page.errors == []


@pytest.mark.browser
def test_a_link_into_a_closed_part_opens_it(browser: Any, site: str) -> None:
    page = visit(browser, site)
    prose = page.get_by_text("A paragraph that tells all.")
    assert not seen(prose)
    page.get_by_role("link", name="There").click()
    page.wait_for_timeout(100)
    assert seen(prose)
    page.goto("about:blank")
    page.goto(f"{site}#a-place")
    assert seen(prose)
    page.emulate_media(media="print")
    assert seen(page.get_by_text("quarter", exact=True))
    assert page.errors == []


@pytest.mark.browser
def test_a_number_is_judged_with_its_tolerance(browser: Any, site: str) -> None:
    page = visit(browser, site)
    page.get_by_role("button", name="Show without guessing").first.click()
    box = page.locator("#predict-p-two")
    box.get_by_role("textbox").fill("many")
    box.get_by_role("textbox").press("Enter")
    assert "Write a number" in box.get_by_role("status").inner_text()
    right = dict.fromkeys(("0.25", "0,3", "2e-1"), "right")
    for guess, verdict in (right | {"0.31": "not what", "-inf": "not what"}).items():
        assert not seen(page.get_by_text("quarter", exact=True))
        box.get_by_role("textbox").fill(guess)
        box.get_by_role("textbox").press("Enter")
        assert f"You said: {guess}. That is {verdict}" in box.get_by_role("status").inner_text()
        assert seen(page.get_by_text("quarter", exact=True))
        box.get_by_role("button", name="Forget my guess").click()


@pytest.mark.browser
def test_a_quiz_explains_every_option_and_remembers(browser: Any, site: str) -> None:
    page = visit(browser, site)
    box = page.locator("#quiz-q-one")
    reasons = ["That is ", "Three times three.", "That is the cube"]
    assert box.get_by_role("group").count() == 1  # a fieldset, named by its legend
    assert "x = 3" in box.get_by_role("group").locator("legend").inner_text()
    assert not any(box.get_by_text(words).first.is_visible() for words in reasons)
    # keyboard alone: to the first radio, down to the third, submit
    box.get_by_role("radio").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert all(box.get_by_text(words).first.is_visible() for words in reasons)
    status = box.get_by_role("status")
    assert status.get_attribute("aria-live") == "polite"
    assert "C is not right, the answer is B" in status.inner_text()
    assert "Answered 1 of 2 on this page, 0 right" in box.locator(".attn-count").inner_text()
    assert page.evaluate("document.activeElement.textContent") == "Try again"
    page.keyboard.press("Enter")
    assert not any(box.get_by_text(words).first.is_visible() for words in reasons)
    box.get_by_role("radio").nth(1).check()
    box.get_by_role("button", name="Check").click()
    assert "B is right" in status.inner_text()
    # the first try counts, and the other question has its own memory
    page.reload()
    assert "B is right" in status.inner_text()
    assert "Answered 1 of 2 on this page, 0 right" in box.locator(".attn-count").inner_text()
    assert page.locator("#quiz-q-two").get_by_role("radio", checked=True).count() == 0
    assert page.errors == []


@pytest.mark.browser
def test_a_broken_memory_does_not_break_the_page(browser: Any, site: str) -> None:
    page = visit(browser, site)
    page.evaluate(
        "localStorage['attn:page:q-one'] = '{not json';"
        "localStorage['attn:page:q-two'] = '{\"choice\": \"Z\"}';"
        "localStorage['attn:page:p-one'] = '7'"
    )
    page.reload()
    for name in ("#quiz-q-one", "#quiz-q-two", "#predict-p-one"):
        assert page.locator(name).get_by_role("radio").first.is_enabled(), name
    assert page.errors == []


@pytest.mark.browser
def test_without_storage_the_blocks_still_work(browser: Any, site: str) -> None:
    page = visit(browser, site)
    page.add_init_script(
        "Object.defineProperty(window, 'localStorage', {get() { throw new Error('denied') }})"
    )
    page.reload()
    box = page.locator("#quiz-q-one")
    box.get_by_role("radio").nth(1).check()
    box.get_by_role("button", name="Check").click()
    assert "B is right" in box.get_by_role("status").inner_text()
    assert "Answered 1 of 2" in box.locator(".attn-count").inner_text()


@pytest.mark.browser
def test_without_javascript_everything_can_be_read(browser: Any, site: str) -> None:
    page = visit(browser, site, java_script_enabled=False)
    assert seen(page.get_by_text("infinite", exact=True))
    assert seen(page.get_by_text("quarter", exact=True))
    assert page.get_by_role("button", name="Check").count() == 0
    assert page.get_by_role("button", name="Record my guess").count() == 0
    reason = page.locator("#quiz-q-one").get_by_text("Three times three.")
    assert not reason.is_visible()
    page.locator("#quiz-q-one summary").nth(1).click()
    assert reason.is_visible()


@pytest.mark.browser
def test_boxes_and_links(browser: Any, site: str) -> None:
    page = visit(browser, site)
    assert "about 15 minutes" in page.locator(".attn-goals").inner_text()
    listing = page.locator(".attn-source")
    assert "attn_course.nn.seq2seq.Encoder.forward" in listing.inner_text()
    assert listing.locator("pre").inner_text().startswith("class Encoder(nn.Module):\n    def for")
    assert '"""' not in listing.inner_text()
    assert page.locator(".attn-misconception code").inner_text() == "code"
    link = page.locator("#quiz-q-one").get_by_role("link", name="An earlier page")
    assert link.get_attribute("href") == "earlier.html"
    table = page.locator("#exercise-set-00_warm_up")
    assert "stable_softmax" in table.inner_text()
    assert "core: 19 points, about 80 minutes; more: " in table.inner_text()
    (row,) = page.locator("tr", has=page.locator("td:first-child", has_text="00_warm_up")).all()
    assert "19 points, about 80 minutes" in row.inner_text()
    rows = [float(t) for t in table.locator("tbody .attn-points").all_inner_texts()]
    assert sum(rows) == float(table.locator("tfoot .attn-points").inner_text())
    page.set_viewport_size({"width": 390, "height": 700})
    assert table.locator("tfoot .attn-points").is_visible()
    colab = table.get_by_role("link", name="Open it in Colab").get_attribute("href")
    assert colab == (
        "https://colab.research.google.com/github/somebody/course/blob/main"
        "/exercises/00_warm_up/00_warm_up.ipynb"
    )
    notebook = page.request.get(
        site.replace("page.html", table.get_by_role("link").first.get_attribute("href"))
    )
    assert notebook.ok
    assert "nbformat" in notebook.text()


@pytest.mark.browser
def test_what_is_done_is_marked_and_can_be_forgotten(browser: Any, site: str) -> None:
    place = site.replace("page.html", "04_numbers.html")
    page = visit(browser, place)
    mark = page.locator(".bd-links a", has_text="4 Numbers").locator(".attn-mark")
    assert mark.count() == 0
    box = page.locator("#quiz-n-one")
    box.get_by_role("radio").first.check()
    box.get_by_role("button", name="Check").click()
    assert mark.first.get_attribute("title") == "done: 1 of 1 questions answered"
    state = page.evaluate("window.attnProgress()")
    assert state["04_numbers"]["state"] == "done"
    assert state["page"]["state"] == "new"
    assert "Continue here: Page" in page.locator(".attn-progress").inner_text()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export my answers").click()
    saved = json.loads(Path(download.value.path()).read_text())
    assert saved == {"04_numbers": {"n-one": {"choice": "A", "first": "A"}}}
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Reset").click()
    page.wait_for_load_state("load")
    page.wait_for_timeout(200)
    assert mark.count() == 0
    assert page.errors == []


@pytest.mark.browser
def test_search_results_show_no_answer(browser: Any, site: str) -> None:
    page = visit(browser, site.replace("page.html", "search.html?q=findable"))
    page.wait_for_selector("#search-results li p.context", timeout=10_000)
    shown = page.locator("#search-results").inner_text()
    assert "Numbers" in shown
    assert "nmistakable" not in shown
    assert "findable" not in shown, "it stands in a sealed part"


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_explorers_load_late_and_keep_their_place(browser: Any, site: str, width: int) -> None:
    page = visit(browser, site, viewport={"width": width, "height": 700})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.reload()
    page.wait_for_load_state("load")
    page.wait_for_timeout(300)
    assert not [url for url in asked if re.search(rf"/({'|'.join(explorers.NAMES)})\.js", url)]
    # a section out of sight has a height that is guessed
    page.add_style_tag(content="section { content-visibility: visible !important }")
    before = page.evaluate(HEIGHTS)
    show_explorers(page)
    after = page.evaluate(HEIGHTS)
    moved = {name: after[name] - before[name] for name in before}
    assert {name: by for name, by in moved.items() if abs(by) > 3} == {}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.errors == []


@pytest.mark.browser
def test_labels_of_one_explorer_do_not_name_the_controls_of_another(
    browser: Any, site: str
) -> None:
    page = visit(browser, site)
    show_explorers(page)
    ids = page.evaluate("[...document.querySelectorAll('.attn-x [id]')].map((one) => one.id)")
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)


@pytest.mark.browser
def test_an_explorer_that_fails_says_so_in_its_place(browser: Any, site: str) -> None:
    page = visit(browser, site)
    page.route(
        "**/_explorers/bottleneck.js*",
        lambda r: r.fulfill(body="throw new Error('lost')", content_type="text/javascript"),
    )
    figure = page.locator("#explorer-bottleneck")
    figure.scroll_into_view_if_needed()
    alert = figure.get_by_role("alert")
    alert.wait_for()
    assert "could not be started (lost)" in alert.inner_text()
    page.unroute("**/_explorers/bottleneck.js*")
    alert.get_by_role("button", name="Try again").click()
    page.wait_for_selector("#explorer-bottleneck[data-ready]")


@pytest.mark.browser
def test_axe_finds_nothing_in_the_blocks(browser: Any, site: str) -> None:
    page = visit(browser, site)  # explorers have the same test each, in test_browser.py
    box = page.locator("#quiz-q-one")
    box.get_by_role("radio").first.check()
    box.get_by_role("button", name="Check").click()
    axe = Axe()
    for theme in ("light", "dark"):
        page.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        found = axe.run(page, context="main").response["violations"]
        mine = [
            (rule["id"], node["html"][:120], node["failureSummary"])
            for rule in found
            if rule["impact"] in ("serious", "critical", "moderate")
            for node in rule["nodes"]
            if "attn" in " ".join(map(str, node["target"])) + node["html"]
        ]
        assert mine == [], theme
