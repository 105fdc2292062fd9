"""``make page``: one chapter alone, whatever the others are like."""

from dataclasses import replace
from pathlib import Path

import pytest
from bookbuild import execute
from bookbuild.common import BookError
from tiny_book import HEADER, cell, rendered, tiny


def test_a_part_is_built_alone_and_links_to_other_pages_do_not_stop_it(tmp_path: Path) -> None:
    book = tiny(tmp_path, "[Next](01_b.md#there), {doc}`01_b`\n\n", cell("print(6 * 7)"))
    contents = book.source / "_toc.yml"
    contents.write_text(contents.read_text().replace("}]", "}, {file: chapters/01_b}]"))
    (book.source / "chapters/01_b.md").write_text(HEADER + cell("1 / 0"))
    (book.source / "bibliography.md").write_text("# References\n")
    part = replace(book, part="00")
    rendered(part, "only_build_toc_files: true\n")
    assert part.html != book.html
    assert "42\n" in (part.html / "chapters/00_a.html").read_text()
    assert not (part.html / "chapters/01_b.html").exists()
    assert "chapters/00_a.html" in (part.html / "index.html").read_text()
    with pytest.raises(AssertionError, match=r"01_b.*ZeroDivisionError"):
        rendered(replace(book, part="01"))
    with pytest.raises(BookError, match="no page's slug begins with 02"):
        _ = replace(book, part="02").pages


def test_a_page_that_needs_triton_is_kept_without_outputs_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    book = tiny(tmp_path, cell("import triton\n1 / 0"))
    monkeypatch.setattr(execute, "find_spec", lambda name: None)
    done = execute.execute_book(book)
    assert done.ran == ()
    assert not list(book.executed.iterdir()), "with Triton it must run"
    (shown,) = (one for one in done.notebooks["chapters/00_a"].cells if one.cell_type == "code")
    assert shown.outputs == []
    assert "chapters/00_a needs Triton" in capsys.readouterr().out
    monkeypatch.undo()
    with pytest.raises(BookError, match="ZeroDivisionError"):
        execute.execute_book(book)
