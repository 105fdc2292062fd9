"""What runs again after which edit, on a book of two pages."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from bookbuild.common import Book, BookError, only_build
from bookbuild.execute import execute_book
from processes import python
from tiny_book import HEADER, cell

ROOT = Path(__file__).resolve().parents[2]


def page(title: str, code: str, tags: str = "") -> str:
    return HEADER.replace("# A", f"# {title}") + "Some words.\n\n" + cell(code, tags)


@pytest.fixture
def tiny(tmp_path: Path) -> Book:
    """Two pages with code, one without, and a package that they import."""
    source = tmp_path / "book"
    source.mkdir()
    contents = "format: jb-book\nroot: intro\nchapters: [{file: a}, {file: b}]"
    (source / "_toc.yml").write_text(contents)
    (source / "_config.yml").write_text("title: tiny\nexecute: {timeout: 60}\n")
    (source / "intro.md").write_text("# Intro\n")
    (source / "a.md").write_text(page("A", "print('first')"))
    (source / "b.md").write_text(page("B", "print('second')"))
    package = tmp_path / "package"
    package.mkdir()
    (package / "core.py").write_text("VALUE = 1\n")
    (tmp_path / "lock").write_text("numpy==1\n")
    return Book(source=source, package=package, lock=tmp_path / "lock")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_only_what_changed_runs_again(tiny: Book) -> None:
    assert sorted(execute_book(tiny).ran) == ["a", "b"]
    assert execute_book(tiny).ran == ()

    edit(tiny.source / "a.md", "Some words.", "Other words, and $x^2$.")
    assert execute_book(tiny).ran == (), "prose runs nothing"

    edit(tiny.source / "a.md", "first", "third")
    assert execute_book(tiny).ran == ("a",), "code runs its own page"


def test_an_imported_module_runs_its_pages_and_a_version_runs_all(tiny: Book) -> None:
    code = "if False:\n    import package.core\nprint('first')"
    (tiny.source / "a.md").write_text(page("A", code))
    execute_book(tiny)
    edit(tiny.package / "core.py", "1", "2")
    assert execute_book(tiny).ran == ("a",), "only page a imports the module"
    edit(tiny.lock, "numpy==1", "numpy==2")
    assert sorted(execute_book(tiny).ran) == ["a", "b"], "a change of versions"


def test_failed_cell_is_one_line_with_page_cell_and_error(tiny: Book) -> None:
    broken = page("A", "x = 1\nraise KeyError('no such head')")
    (tiny.source / "a.md").write_text(broken)
    with pytest.raises(BookError) as failure:
        execute_book(tiny)
    line = str(failure.value)
    assert "\n" not in line
    assert "a.md, cell 1 of 1 (line 11): KeyError: 'no such head'" in line
    report = (tiny.reports / "a.log").read_text()
    assert "raise KeyError" in report
    assert "Traceback" in report
    assert "\x1b" not in report
    edit(tiny.source / "a.md", "raise KeyError('no such head')", "print(x)")
    assert execute_book(tiny).ran == ("a",), "the page that had worked is not run again"
    assert not tiny.reports.exists()


def test_expected_error_is_no_failure_until_the_tag_goes(tiny: Book) -> None:
    (tiny.source / "a.md").write_text(page("A", "1 / 0", tags="raises-exception"))
    execute_book(tiny)
    (tiny.source / "a.md").write_text(page("A", "1 / 0"))
    with pytest.raises(BookError, match="ZeroDivisionError"):
        execute_book(tiny)


def test_cell_past_its_time_is_named(tiny: Book) -> None:
    edit(tiny.source / "_config.yml", "timeout: 60", "timeout: 1")
    (tiny.source / "a.md").write_text(page("A", "import time\ntime.sleep(30)"))
    with pytest.raises(BookError, match=r"a\.md, cell 1 of 1 .*past its time limit"):
        execute_book(tiny)


def test_page_leaves_nothing_beside_its_source(tiny: Book) -> None:
    (tiny.source / "a.md").write_text(page("A", "open('left.txt', 'w').write('x')"))
    execute_book(tiny)
    assert not list(tiny.source.rglob("left.txt"))


def test_two_builds_at_once_are_refused(tiny: Book) -> None:
    with only_build(tiny.build):
        code = (
            "import sys; sys.path.insert(0, sys.argv[1])\n"
            "from pathlib import Path\n"
            "from bookbuild.common import only_build\n"
            "with only_build(Path(sys.argv[2])): pass\n"
        )
        second = python("-c", code, ROOT / "tools", tiny.build, succeeds=False)
    assert second.returncode != 0
    assert "another build is at work" in second.stderr


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A book with the real settings and machine, and two pages of its own."""
    source = tmp_path / "book"
    source.mkdir()
    for name in ("_ext", "_static", "_templates", "vendor"):
        shutil.copytree(ROOT / "book" / name, source / name)
    for name in ("_config.yml", "references.bib"):
        shutil.copy(ROOT / "book" / name, source)
    (source / "_toc.yml").write_text("format: jb-book\nroot: intro\nchapters: [{file: a}]")
    (source / "intro.md").write_text("# Intro\n\nWords.\n")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "value.py").write_text("print('output-one')")
    code = f"import sys; sys.path.append({str(tmp_path)!r})\nimport package.value"
    (source / "a.md").write_text(page("A", code))
    return source


def build(source: Path) -> Any:
    command = (ROOT / "tools/book.py", "html", "--book", source)
    package = source.parent / "package"
    return python(*command, "--package", package, succeeds=False, timeout=200)


def test_page_shows_what_is_new_without_a_node_of_the_machine_and_warnings_fail(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert shutil.which("node") is None
    first = build(small)
    assert first.returncode == 0, first.stdout + first.stderr
    shown = small / "_build" / "html" / "a.html"
    assert "output-one" in shown.read_text()

    (small.parent / "package" / "value.py").write_text("print('output-two')")
    assert build(small).returncode == 0
    assert "output-two" in shown.read_text(), "the page is rendered anew with its new outputs"

    edit(small / "a.md", "Some words.", "Fresh words with $x^2$.")
    again = build(small)
    assert "0 of 1 pages with code must run" in again.stdout
    assert "Fresh words" in shown.read_text()
    assert 'class="katex"' in shown.read_text()

    edit(small / "a.md", "Fresh words", "{doc}`nowhere` $\\frac{1$ words")
    bad = build(small)
    assert bad.returncode == 1
    assert "a.md:8: WARNING: unknown document: 'nowhere'" in bad.stderr
    assert "invalid formula" in bad.stderr
    assert bad.stderr.strip().splitlines()[-1].startswith("book: error: Sphinx warned")
