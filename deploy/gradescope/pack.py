"""Pack the autograder of a set for Gradescope.

    python deploy/gradescope/pack.py 07_scaled_dot_product autograder.zip

``--no-sandbox`` is for the case that Gradescope's containers do not let the jail start. A notebook
can then read the hidden tests and write its own mark; every result says that there was no jail.
"""

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import nbformat

from attn_course.exercises.source import read_exercise

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def pack(slug: str, target: Path, *, sandbox: bool = True) -> None:
    """Write the zip: two scripts, the package as a wheel, and the instructor's notebook."""
    source = nbformat.writes(read_exercise(ROOT / "solutions" / slug / "exercise.py"))
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(target, "w") as archive:
        build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", folder]
        subprocess.run([*build, ROOT], check=True, stdout=subprocess.DEVNULL)
        (wheel,) = Path(folder).glob("*.whl")
        for path in (HERE / "setup.sh", HERE / "run_autograder", wheel):
            archive.write(path, path.name)
        archive.writestr(f"{slug}.ipynb", source)
        archive.writestr("slug", f"{slug}\n")
        archive.writestr("options", "\n" if sandbox else "--no-sandbox\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slug")
    parser.add_argument("target", type=Path)
    parser.add_argument("--no-sandbox", action="store_true")
    given = parser.parse_args()
    pack(given.slug, given.target, sandbox=not given.no_sandbox)
