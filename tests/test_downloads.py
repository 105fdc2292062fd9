"""A downloaded notebook runs in an empty folder: the wheel, its extra ``book`` and a kernel are
installed, and there is no checkout, no network and no data."""

import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import nbformat
import pytest
from distributions import site_of
from processes import python

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from bookbuild.common import Book, slug  # noqa: E402  the line above makes it importable
from bookbuild.execute import read_page  # noqa: E402
from bookbuild.notebooks import citations, to_notebook  # noqa: E402

BOOK = Book()
CHEAP = ("chapters/07_scaled_dot_product/masks", "chapters/15_hashing_and_low_rank/low_rank")


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory) -> Path:
    """Python of a fresh environment that holds what the first cell installs, and a kernel."""
    folder = tmp_path_factory.mktemp("downloads")
    python("-m", "build", "--no-isolation", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", symlinks=True)
    (site,) = folder.glob("venv/lib/python*/site-packages")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    book = project["optional-dependencies"]["book"]
    site_of(wheel, site, [*project["dependencies"], *book, "ipykernel", "nbclient"])
    return folder / "venv/bin/python"


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=() if page in CHEAP else pytest.mark.long)
    for page in BOOK.pages if read_page(BOOK, page)
])  # fmt: skip
@pytest.mark.timeout(600)
def test_notebook_runs_alone(interpreter, tmp_path, page):
    notebook = to_notebook(BOOK, read_page(BOOK, page), citations(BOOK))
    where = "import attn_course, sys\nassert attn_course.__file__.startswith(sys.prefix)"
    notebook.cells.append(nbformat.v4.new_code_cell(where))
    path = tmp_path / f"{slug(page)}.ipynb"
    nbformat.write(notebook, path)
    environment = {
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "PATH": f"{interpreter.parent}:/usr/bin:/bin",
        "HTTPS_PROXY": "http://127.0.0.1:9",  # where nothing answers
    }
    command = [interpreter, "-c", "from nbclient.cli import main; main()", path]
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, check=False, **options)
    assert done.returncode == 0, done.stderr[-3000:]
