"""Checks of a page: reported one by one, with values, seeds moved, the reader's build finished."""

from pathlib import Path
from typing import Any

import lxml.html
import nbformat
import pytest
from bookbuild.common import Book
from bookbuild.execute import Page, checks_of, execute_book, read_page
from bookbuild.reading import only_checks
from bookbuild.sweep import is_stale, read_record, renewed, summary, sweep
from processes import python
from tiny_book import cell, rendered, tiny

ROOT = Path(__file__).resolve().parents[2]


def checks(book: Book) -> list[dict]:
    return checks_of(execute_book(book).notebooks["chapters/00_a"])


def test_an_assert_is_split_and_says_what_it_got(tmp_path: Path) -> None:
    book = tiny(
        tmp_path, cell("x, values = 0.98, [0.5, 0.1]"), "Prose.\n\n",
        cell(
            "assert x > 0.9 and 0.1 < x < 0.96\n"
            "assert all(v > 0.3 for v in values)\n"
            "assert undefined > 1\n"
            "for k in range(3):\n    assert k < 2\n"
            "assert not values or x == 0.98"
        ),
        cell("print('the page went on')"),
    )  # fmt: skip
    found = checks(book)
    assert [(one["code"], one["held"], one["value"]) for one in found] == [
        ("x > 0.9", True, "0.98 > 0.9"),
        ("0.1 < x < 0.96", False, "0.1 < 0.98 < 0.96"),
        ("all((v > 0.3 for v in values))", False, "0.1 > 0.3"),
        ("undefined > 1", False, "NameError: name 'undefined' is not defined"),
        ("k < 2", False, "2 < 2"),
        ("not values or x == 0.98", True, "True"),
    ]
    page = execute_book(book).pages["chapters/00_a"]
    source = page.text
    assert [source[page.line(one) - 1].split()[0] for one in found] == ["assert"] * 6
    assert "all(v" in source[page.line(found[2]) - 1]


def test_asserts_in_functions_and_other_errors_stay_what_they_are(tmp_path: Path) -> None:
    book = tiny(
        tmp_path,
        cell(
            "def f(x):\n    assert x > 0\n    return x\n"
            "try:\n    f(-1)\nexcept AssertionError:\n    print('raised')"
        ),
    )
    executed = execute_book(book)
    notebook = executed.notebooks["chapters/00_a"]
    assert executed.checks == []
    assert "raised" in nbformat.writes(notebook)


PREDICT = """```{predict} aa-p
question: How many?
type: number
answer: 3
key: n
why: |
  So.
```

"""


def test_the_key_of_a_box_is_compared_with_its_answer(tmp_path: Path) -> None:
    book = tiny(tmp_path, PREDICT, cell("n = 4", "after-predict"))
    (found,) = checks(book)
    assert (found["held"], found["value"]) == (False, "the cell gives 4, the box says 3")
    page = execute_book(book).pages["chapters/00_a"]
    assert page.text[page.line(found) - 1] == "key: n"
    path = book.path("chapters/00_a")
    path.write_text(path.read_text().replace("answer: 3", "answer: 4"))
    assert [one["held"] for one in checks(book)] == [True]


SEEDED = """import random
import numpy as np
def make(seed):
    return int(np.random.default_rng(seed).integers(1 << 30))
one, two = make(5), make(seed=5)
print(one, two)
assert one == two
assert one == {wanted}
"""


def test_a_sweep_moves_every_seed_once_and_names_what_does_not_hold(tmp_path: Path) -> None:
    import numpy as np

    wanted = int(np.random.default_rng(5).integers(1 << 30))
    code = SEEDED.replace("{wanted}", str(wanted))
    book = tiny(tmp_path, cell(code), cell(code.replace("assert one", "assert two"), "fixed-seed"))
    with pytest.raises(Exception, match="1 checks did not hold"):
        sweep(book, [], seeds=[0, 1], sets=["native"], workers=2, stale=False)
    assert read_record(book, "chapters/00_a") is None, "a part of a sweep leaves no record"


def test_a_whole_sweep_is_recorded_until_the_code_changes(tmp_path, swept):
    book = tiny(tmp_path, cell("import os\nprint(os.environ.get('ATEN_CPU_CAPABILITY'))\nassert 1"))
    swept(book)
    record = read_record(book, "chapters/00_a")
    held = summary(record)
    assert (held.held, held.seeds, held.sets) == (2, 2, 3)
    assert held.kinds == {"seeds": 0, "record": 0, "algebra": 1}
    assert not is_stale(book, read_page(book, "chapters/00_a"))
    path = book.path("chapters/00_a")
    path.write_text(path.read_text().replace("# A", "# Another title"))
    assert not is_stale(book, read_page(book, "chapters/00_a")), "prose is not code"
    path.write_text(path.read_text().replace("assert 1", "assert 2"))
    assert is_stale(book, read_page(book, "chapters/00_a"))


def test_every_page_was_swept_as_it_stands_and_every_check_held() -> None:
    book = Book()
    old, failed = [], []
    for name in book.pages:
        page = read_page(book, name) if name.startswith("chapters/") else None
        if page is None:
            continue
        if is_stale(book, page):
            old.append(page.name)
            continue
        record = read_record(book, name)
        held = summary(record)
        if held.seeds < 4 or held.sets < 3 or held.held < held.seeds:
            failed.append(page.name)
    assert not old, f"records older than their page or what it uses: 'make sweep': {', '.join(old)}"
    assert not failed, f"checks that did not hold with every seed: {', '.join(failed)}"


KINDS = """import json
import numpy as np
from attn_course.data import load_results
rng = np.random.default_rng(0)
drawn = rng.random(3)
runs = load_results("alignment")["runs"]
def first():
    return runs[0]["cpu_seconds"]
assert drawn.max() < 1.0
assert drawn.shape == (3,)
assert first() > 0 and len(runs) > 3
assert all(run["cpu_seconds"] > 0 for run in runs)
assert np.array_equal(drawn * 2, drawn + drawn)
assert 1 + 1 == 2
runs = [1, 2]
assert runs == [1, 2]
"""


def test_a_check_is_of_the_kind_of_what_it_reads(tmp_path, swept):
    book = tiny(tmp_path, cell(KINDS))
    swept(book)
    assert [one["kind"] for one in read_record(book, "chapters/00_a")["checks"]] == [
        *("seeds", "algebra", "record", "record", "record", "seeds", "algebra", "algebra")
    ]


def test_nothing_to_compare_is_no_success(tmp_path: Path) -> None:
    code = "empty = []\nassert all(x > 0 for x in empty)\nassert all(bool(x) for x in empty)"
    found = checks(tiny(tmp_path, cell(code)))
    assert [(one["held"], one["value"]) for one in found] == [(False, "nothing to compare")] * 2


USES = """from attn_course import core
assert core.value() == 1
"""


def test_a_sweep_is_old_when_what_the_page_uses_has_changed(tmp_path, swept):
    book = tiny(tmp_path, cell(USES))
    core, path = book.package / "core.py", book.source / "chapters/00_a.md"
    core.write_text("def value():\n    return 1\n")

    def page() -> Page:
        return read_page(book, "chapters/00_a")

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(book.package.parent))
        # bytecode is old only when size or second of its source differ, and here neither may
        patch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        swept(book)
        assert not is_stale(book, page())
        core.write_text('def value():\n    """One."""\n    return 1\n')
        assert not is_stale(book, page()), "a docstring changes no number"
        core.write_text("def value():\n    return 2 - 1\n")
        assert is_stale(book, page())
        assert renewed(book, [page()], workers=1), "the page gives what it gave"
        assert not is_stale(book, page())
        core.write_text("def value():\n    return 2\n")
        assert not renewed(book, [page()], workers=1)
        assert is_stale(book, page())
        core.write_text("def value():\n    return 1\n")
        for source, same in (("drawn = 3\n" + USES, True), (USES.replace("== 1", ">= 1"), False)):
            text = path.read_text()
            path.write_text(text[: text.index("```{code-cell}")] + cell(source))
            assert is_stale(book, page())
            assert bool(renewed(book, [page()], workers=1)) == same, source


def test_only_modules_that_a_page_imports_decide_whether_it_runs(tmp_path: Path) -> None:
    book = tiny(tmp_path, cell("from attn_course import core\nprint(core.VALUE)"))
    for name, text in (
        ("core", "from attn_course.below import VALUE\n"),
        ("below", "VALUE = 1\n"),
        ("grading", "x = 1\n"),
    ):
        (book.package / f"{name}.py").write_text(text)
    before = read_page(book, "chapters/00_a").key
    (book.package / "grading.py").write_text("x = 2\n")
    assert read_page(book, "chapters/00_a").key == before
    (book.package / "below.py").write_text("VALUE = 2\n")
    assert read_page(book, "chapters/00_a").key != before


@pytest.mark.parametrize(("code", "alone"), [
    ("assert x\nimport torch\ntorch.testing.assert_close(a, b)", True),
    ("for a in b:\n    assert a", True),
    ("x = 1\nassert x", False),
    ("import torch", False),
    ("print(1)", False),
])  # fmt: skip
def test_a_cell_that_only_checks_is_none_to_read(code: str, alone: bool) -> None:
    assert only_checks(code) is alone


PARTS = (
    "## First\n\n", cell("x = 0.98"), cell("assert x > 0.5"), "It exceeds a half.\n\n",
    cell("print('kept')\nassert x < 1"), cell("y = 2 * x\nassert y > 1\nassert y < 2"),
    "## Second\n\n", cell("assert x > 0.1 and x < 0.96"), "It stays below $a$.\n\n",
    cell("print(y)"),
)  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a page with six checks, one of which does not hold."""
    folder = tmp_path_factory.mktemp("rendered")
    book = tiny(folder, *PARTS)
    extension = f"sphinx: {{local_extensions: {{attn_checks: {ROOT / 'book' / '_ext'}}}}}\n"
    rendered(book, "parse: {myst_enable_extensions: [dollarmath]}\n" + extension)
    return book.html


def article(path: Path) -> Any:
    (found,) = lxml.html.parse(str(path)).getroot().iterfind(".//article")
    return found


def test_a_check_that_holds_leaves_no_node_between_the_sentences(site: Path) -> None:
    page = article(site / "chapters" / "00_a.html")
    first = page.xpath('.//section[@id="first"]')[0]
    cells = first.xpath('./div[contains(@class, "cell ")]')
    sources = [" ".join(one.text_content().split()) for one in cells]
    assert sources == ["x = 0.98", "print('kept') assert x < 1 kept"]
    assert not first.xpath('.//details | .//*[contains(@class, "attn-check")]')


def test_a_check_that_fails_is_shown_at_its_place(site: Path) -> None:
    page = article(site / "chapters" / "00_a.html")
    (box,) = page.xpath('.//div[@class="attn-check-failed"]')
    assert "expected x < 0.96, got 0.98 < 0.96" in box.text_content()
    (cell_of_box,) = box.xpath('./ancestor::div[contains(@class, "cell ")]')
    assert "assert x > 0.1 and x < 0.96" in cell_of_box.text_content()
    assert cell_of_box.getnext().text_content().startswith("It stays below")


def test_the_foot_counts_what_the_list_holds_and_links_to_it(site: Path) -> None:
    page = article(site / "chapters" / "00_a.html")
    (foot,) = page.xpath('.//p[contains(@class, "attn-sweep")]')
    assert foot.getnext() is None
    assert foot.text_content() == "6 checks: 6 not swept yet."
    (link,) = foot.xpath("./a/@href")
    path = (site / "chapters" / link).resolve()
    assert path == site.resolve() / "checks" / "00_a.html"
    listed = article(path)
    assert len(listed.xpath('.//li[@class="attn-listed"]')) == 6
    targets = [f"../chapters/00_a.html#{one}" for one in ("first", "second")]
    assert listed.xpath(".//h2/a/@href") == targets
    text = listed.text_content()
    assert "x > 0.5: 0.98 > 0.5" in text
    assert text.count("did not hold in this build") == 1


def test_the_strict_build_fails_and_names_page_line_part_and_values(tmp_path: Path) -> None:
    book = tiny(tmp_path, cell("x = 0.98"), cell("assert x > 0 and x < 0.96"))
    command = (ROOT / "tools" / "book.py", "html", "--strict", "--book", book.source)
    done = python(*command, "--package", book.package, succeeds=False)
    assert done.returncode == 1
    assert "chapters/00_a.md:13: expected x < 0.96, got 0.98 < 0.96" in done.stdout
    assert "1 of 2 checks held" in done.stderr
