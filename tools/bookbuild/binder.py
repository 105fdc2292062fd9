"""The environment of the published notebooks: what Binder builds on the branch of the site."""

import os
import subprocess

from .common import ROOT, Book, fail, say


def commit_of_sources() -> str:
    """The commit that the site is built from: ``$GITHUB_SHA``, or that of the checkout."""
    if found := os.environ.get("GITHUB_SHA"):
        return found
    answer = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if answer.returncode:
        fail("this is no git checkout: set GITHUB_SHA to the commit that Binder is to install")
    return answer.stdout.strip()


def write_environment(book: Book) -> None:
    """Write ``binder/`` into the built site: torch for the CPU and the package at this commit."""
    if not (book.html / "index.html").is_file():
        fail(f"there is no site in {book.html}: run 'make html' first")
    folder = book.html / "binder"
    folder.mkdir(exist_ok=True)
    package = f"attn-course[book,exercises] @ git+{book.repository}@{commit_of_sources()}"
    (folder / "requirements.txt").write_text(
        f"--extra-index-url https://download.pytorch.org/whl/cpu\n{package}\n", encoding="utf-8"
    )
    (folder / "runtime.txt").write_text("python-3.11\n", encoding="utf-8")
    say(f"wrote {os.path.relpath(folder)}")
