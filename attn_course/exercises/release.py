"""From the text source of an exercise set to the notebook that learners get.

``solutions/<slug>/exercise.py`` becomes ``build/source/<slug>/<slug>.ipynb``, and nbgrader's own
steps of ``generate_assignment`` make ``exercises/<slug>/<slug>.ipynb`` from it.
The same text gives the same bytes.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attn_course.exercises.source import MARKERS, find_slugs, read_exercise, regions

# Shorter lines (a bracket, `else:`) occur everywhere and give nothing away.
_SHORTEST_SECRET = 8


class ReleaseError(ValueError):
    """A release could not be made, differs from its source, or gives something away."""


def find_root(start: Path) -> Path:
    """Return the checkout that ``start`` lies in.

    Raises:
        ReleaseError: If no folder above it holds ``solutions/``.
    """
    for folder in (start, *start.parents):
        if (folder / "solutions").is_dir() and (folder / "nbgrader_config.py").is_file():
            return folder
    raise ReleaseError(f"no checkout of the course (with solutions/) at or above {start}")


def make_notebooks(root: Path, slug: str, *, core: bool = False) -> tuple[bytes, bytes]:
    """The instructor's notebook of a set, and what nbgrader's ``generate_assignment`` makes of it.

    Raises:
        ReleaseError: If the text source is faulty, nbgrader refuses it, or the release gives
            something away.
    """
    from nbgrader.coursedir import CourseDirectory

    try:
        source = read_exercise(root / "solutions" / slug / "exercise.py", core=core)
    except ValueError as error:
        raise ReleaseError(str(error)) from error
    whole = _to_bytes(source)
    _, release = prepared(whole, slug, CourseDirectory())
    if leaks := find_leaks(source, release):
        raise ReleaseError(f"{slug}: {leaks[0]}")
    return whole, _to_bytes(release)


def prepared(notebook: bytes, slug: str, course: Any) -> tuple[Any, Any]:
    """The instructor's notebook after nbgrader's own steps of ``generate_assignment``.

    Returns:
        What it saves to the gradebook, hidden tests included, and what it releases.

    Raises:
        ReleaseError: nbgrader refuses the notebook.
    """
    import nbformat
    from nbgrader.converters import GenerateAssignment
    from nbgrader.preprocessors import SaveCells

    maker = GenerateAssignment(coursedir=course, config=course.config)
    resources = {"nbgrader": {"assignment": slug, "notebook": slug, "student": "."}}
    saved = None
    try:
        made = nbformat.reads(notebook.decode(), as_version=4)
        for step in maker.preprocessors:
            if step is SaveCells:
                saved = copy.deepcopy(made)
            else:
                made, _ = step(parent=maker).preprocess(made, resources)
    except Exception as error:
        raise ReleaseError(f"{slug}: nbgrader refuses the instructor's notebook: {error}") from None
    return saved or made, made


def build_releases(root: Path, slugs: Sequence[str], *, core: bool = False) -> list[Path]:
    """Write ``build/source/<slug>/<slug>.ipynb`` and the releases; return the releases."""
    made = {slug: make_notebooks(root, slug, core=core) for slug in slugs}
    for slug, (whole, release) in made.items():
        _write(root / "build" / "source" / slug / f"{slug}.ipynb", whole)
        _write(_release_path(root, slug), release)
    return [_release_path(root, slug) for slug in slugs]


def check_releases(root: Path, slugs: Sequence[str]) -> list[str]:
    """Compare committed releases with what their sources make, which gives nothing away.

    Returns:
        A sentence for each release that is not what it should be, or that no source makes.
    """
    problems = []
    for slug in slugs:
        path = _release_path(root, slug)
        _, made = make_notebooks(root, slug)
        if not path.is_file():
            problems.append(f"{slug}: {path.relative_to(root)} is missing: make exercises")
            continue
        if path.read_bytes() != made:
            problems.append(f"{slug}: {path.relative_to(root)} is out of date: make exercises")
        if extra := sorted(p.name for p in path.parent.iterdir() if p != path and p.is_file()):
            problems.append(f"{slug}: files that no source makes: {', '.join(extra)}")
    found = {path.parent.name for path in (root / "exercises").glob("*/*.ipynb")}
    gone = sorted(found.difference(find_slugs(root)))
    return problems + [f"{name}: a release without solutions/: delete it" for name in gone]


def find_leaks(source: Any, release: Any) -> list[str]:
    """Scan a release, line by line, for the text of solution and hidden-test regions.

    A secret line that also stands in the public part of the source (an import, a call that the
    visible test makes too) is no secret.  Spaces, and comments at line ends, do not hide a line.

    Returns:
        One sentence per line that gives something away.
    """
    parts = [(cell["id"], *regions(cell)) for cell in source.cells]
    public = {line for _, text, _ in parts for line in _lines(text)}
    secrets = {
        line: name
        for name, _, hidden in [*parts, ("region markers", "", MARKERS)]
        for line in _lines("\n".join(hidden))
        if len(line) >= _SHORTEST_SECRET and line not in public
    }
    return [
        f"the released cell {cell['id']!r} holds a hidden line of {secrets[line]!r}: {line!r}"
        for cell in release.cells
        for line in _lines(cell.source)
        if line in secrets
    ]


def _to_bytes(notebook: Any) -> bytes:
    import nbformat

    text: str = nbformat.writes(notebook, version=nbformat.NO_CONVERT)
    return f"{text}\n".encode()


def _release_path(root: Path, slug: str) -> Path:
    return root / "exercises" / slug / f"{slug}.ipynb"


def _write(path: Path, content: bytes) -> None:
    # Nothing is touched when nothing changed: make and git compare times.
    if not path.is_file() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_bytes(content)
        partial.replace(path)


def _lines(text: str) -> list[str]:
    """Lines without spaces, and without the comment behind the code."""
    lines = [
        line if line.lstrip().startswith("#") else line.split("  #")[0]
        for line in text.splitlines()
    ]
    return ["".join(line.split()) for line in lines]
