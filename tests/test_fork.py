"""A fork has one setting for its address, and a command that changes it and its copies."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.exercises.source import read_exercise, repository

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from bookbuild.common import Book  # noqa: E402  the line above makes it importable

# what GitHub, the package index and readers see as it is
COPIES = [
    *("CITATION.cff", "README.md", "book/_config.yml", "book/instructors.md"),
    *("deploy/github-classroom/attention.yml", "pyproject.toml"),
]


def git(*arguments: str, folder: Path = ROOT) -> list[str]:
    """Lines that git prints; none where it finds nothing."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def naming(address: str, folder: Path = ROOT) -> list[str]:
    """Tracked files that name an address or the owner's site, the log and releases left out."""
    owner = address.split("/")[-2]
    pattern = rf"{re.escape(address)}|{owner}\.github\.io"
    places = ("--", ".", ":!CHANGELOG.md", ":!exercises")
    return git("grep", "-lIiE", pattern, *places, folder=folder)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """All tracked files, in a repository of their own."""
    for name in git("ls-files"):
        if (ROOT / name).is_file():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    git("init", "--quiet", folder=tmp_path)
    git("add", "--all", folder=tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_only_what_is_shown_as_it_is_repeats_the_address():
    assert naming(repository(ROOT)) == COPIES
    assert Book().repository == repository(ROOT)


def test_a_fork_keeps_nothing_of_the_old_owner(copy):
    owner, name = "some-one", "my.course"
    old, new = repository(copy), f"https://github.com/{owner}/{name}"
    done = CliRunner().invoke(app, ["fork", f"{owner}/{name}"])
    assert done.exit_code == 0, done.output
    assert not naming(old, copy)
    assert not git("grep", "-lF", old, "--", "exercises", folder=copy)
    assert naming(new, copy) == COPIES
    book = Book(source=copy / "book")
    assert (book.repository, book.site) == (new, f"https://{owner}.github.io/{name}/")
    set_ = read_exercise(copy / "solutions/00_warm_up/exercise.py")
    released = nbformat.read(copy / "exercises/00_warm_up/00_warm_up.ipynb", as_version=4)
    (cell,) = [cell for cell in set_.cells if cell["id"] == "installed"]
    assert f'git+{new}"' in cell.source
    assert cell.source in [cell.source for cell in released.cells]
    # and back: nothing else was changed
    assert CliRunner().invoke(app, ["fork", old.removeprefix("https://github.com/")]).exit_code == 0
    assert not git("diff", "--stat", folder=copy)


@pytest.mark.parametrize("name", ["someone", "https://github.com/some/one", "a/b/c", "a b/c"])
def test_a_name_that_is_none_is_refused(copy, name):
    done = CliRunner().invoke(app, ["fork", name])
    assert done.exit_code == 2
    assert "expected OWNER/NAME" in done.output
