"""Turn the executed pages into a site with Sphinx, every warning an error."""

import hashlib
import json
import shutil
import sys
from pathlib import Path

from .common import ROOT, Book, fail, say

#: What shapes pages but is no page: a change here renders every page anew.
MACHINE = ("_config.yml", "_toc.yml", "_ext", "_static", "_templates", "vendor/inventory.yml")
#: The same outside the book: tables of exercises and explorers come from here.
IGNORED = shutil.ignore_patterns("inventory.yml")
AROUND = ("tools/bookbuild", "solutions", "attn_course/explorers")


def machine_hash(book: Book) -> str:
    """Hash of all that shapes pages but is not a page."""
    digest = hashlib.sha256(sys.version.encode() + book.lock.read_bytes())
    roots = [book.source / name for name in MACHINE] + [ROOT / name for name in AROUND]
    for root in roots:
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def gather_extra(book: Book) -> Path:
    """Files that are published as they are, outside ``_static`` (which every page loads)."""
    extra = book.build / "extra"
    shutil.rmtree(extra, ignore_errors=True)
    extra.mkdir(parents=True)
    shutil.copytree(book.source / "vendor", extra / "vendor", ignore=IGNORED)
    (extra / ".nojekyll").touch()  # GitHub Pages would drop folders that start with "_"
    return extra


def contents(book: Book) -> Path:
    """The table of contents, or that of a part: its pages and the list of references."""
    if not book.part:
        return book.source / "_toc.yml"
    first, *others = book.pages
    path = book.build / "toc.yml"
    entries = [{"file": name} for name in (*others, "bibliography")]
    path.write_text(json.dumps({"format": "jb-book", "root": first, "chapters": entries}))
    return path


def render(book: Book, *, cache: Path) -> None:
    """Build ``_build/html``.

    Raises:
        BookError: Sphinx warned or failed; its own lines above say where.
    """
    from jupyter_book.sphinx import build_sphinx

    stamp = book.build / "machine"
    fresh = not stamp.exists() or stamp.read_text() != machine_hash(book)
    if fresh:
        for name in ("html", ".doctrees", "jupyter_execute"):
            shutil.rmtree(book.build / name, ignore_errors=True)
        stamp.unlink(missing_ok=True)
    say("rendering" + (" every page" if fresh else " what changed"))
    overrides = {
        "nb_execution_mode": "cache",
        "nb_execution_cache_path": str(cache),
        "latex_individualpages": False,  # jupyter-book pops it unasked
        "external_toc_path": str(contents(book)),
        "html_extra_path": [str(gather_extra(book))],
    }
    if book.part:  # links to other pages lead nowhere there
        overrides["suppress_warnings"] = ["myst.xref_missing", "ref.doc", "ref.ref"]
    if "repository" in book.config:
        overrides["html_baseurl"] = book.site
    result = build_sphinx(
        book.source,
        book.html,
        path_config=book.source / "_config.yml",
        noconfig=True,
        confoverrides=overrides,
        force_all=False,
        quiet=True,
        warningiserror=True,
        keep_going=True,
    )
    if result != 0:
        fail("Sphinx warned or failed: each line above names the page and the line to mend")
    stamp.write_text(machine_hash(book))
