"""From the text source of an exercise set to the notebook that learners get.

``solutions/<slug>/exercise.py`` becomes ``build/source/<slug>/<slug>.ipynb``, and nbgrader's own
steps of ``generate_assignment`` make ``exercises/<slug>/<slug>.ipynb`` from it.
The same text gives the same bytes.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_course.exercises.source import find_slugs, read_exercise, regions

# Shorter lines (a bracket, `else:`) occur everywhere and give nothing away.
_SHORTEST_SECRET = 8


class ReleaseError(ValueError):
    """A release could not be made, differs from its source, or gives something away."""


@dataclass(frozen=True)
class Problem:
    """One reason why the committed release of a set is not what it should be."""

    slug: str
    text: str

    def __str__(self) -> str:
        return f"{self.slug}: {self.text}"


def find_root(start: Path) -> Path:
    """Return the checkout that ``start`` lies in.

    Raises:
        ReleaseError: If no folder above it holds ``solutions/``.
    """
    for folder in (start, *start.parents):
        if (folder / "solutions").is_dir() and (folder / "nbgrader_config.py").is_file():
            return folder
    raise ReleaseError(f"no checkout of the course (with solutions/) at or above {start}")


def choose_slugs(root: Path, wanted: Sequence[str]) -> list[str]:
    """Return the wanted sets, all of them when none is named.

    Raises:
        ReleaseError: If a wanted one does not exist.
    """
    known = find_slugs(root)
    for slug in wanted:
        if slug not in known:
            raise ReleaseError(f"no exercise set {slug!r}; there are: {', '.join(known) or 'none'}")
    return [slug for slug in known if not wanted or slug in wanted]


def source_bytes(root: Path, slug: str) -> bytes:
    """Return the notebook of ``build/source``: complete metadata, solutions and hidden tests.

    Raises:
        ReleaseError: If the text source is faulty.
    """
    return _to_bytes(_read(root, slug))


def build_sources(root: Path, slugs: Iterable[str]) -> list[Path]:
    """Write ``build/source/<slug>/<slug>.ipynb``, which stock nbgrader works from."""
    written = []
    for slug in slugs:
        target = root / "build" / "source" / slug / f"{slug}.ipynb"
        _write(target, source_bytes(root, slug))
        written.append(target)
    return written


def release_bytes(root: Path, slugs: Sequence[str]) -> dict[str, bytes]:
    """What nbgrader's ``generate_assignment`` makes of each set.

    Raises:
        ReleaseError: If nbgrader refuses a source, or a release gives something away.
    """
    from nbgrader.coursedir import CourseDirectory

    made: dict[str, bytes] = {}
    for slug in slugs:
        _, release = prepared(source_bytes(root, slug), slug, CourseDirectory())
        if leaks := find_leaks(_read(root, slug), release):
            raise ReleaseError(f"{slug}: {leaks[0]}")
        made[slug] = _to_bytes(release)
    return made


def prepared(notebook: bytes, slug: str, course: Any) -> tuple[Any, Any]:
    """The instructor's notebook after nbgrader's own steps of ``generate_assignment``.

    Args:
        notebook: With solutions and hidden tests.
        slug: Name of the assignment.
        course: nbgrader's ``CourseDirectory``, whose configuration counts.

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


def build_releases(root: Path, slugs: Sequence[str]) -> list[Path]:
    """Write sources and releases; return the releases."""
    made = release_bytes(root, slugs)
    build_sources(root, slugs)
    written = []
    for slug, content in made.items():
        target = root / "exercises" / slug / f"{slug}.ipynb"
        _write(target, content)
        written.append(target)
    return written


def check_releases(root: Path, slugs: Sequence[str], *, orphans: bool = True) -> list[Problem]:
    """Compare committed releases with their sources, and scan them for secrets.

    Args:
        root: The checkout.
        slugs: The sets to look at.
        orphans: Whether a release without a source is a problem too.
    """
    problems = []
    made = release_bytes(root, slugs)
    for slug in slugs:
        folder = root / "exercises" / slug
        path = folder / f"{slug}.ipynb"
        if not path.is_file():
            problems.append(Problem(slug, f"{path.relative_to(root)} is missing: make exercises"))
            continue
        committed = path.read_bytes()
        if committed != made[slug]:
            where = _first_change(made[slug], committed)
            problems.append(
                Problem(slug, f"{path.relative_to(root)} is out of date ({where}): make exercises")
            )
        try:
            leaks = find_leaks(_read(root, slug), _parse(committed))
        except ReleaseError as error:
            problems.append(Problem(slug, str(error)))
            continue
        problems += [Problem(slug, leak) for leak in leaks]
        extra = sorted(p.name for p in folder.iterdir() if p.name != path.name and p.is_file())
        if extra:
            problems.append(Problem(slug, f"files that no source makes: {', '.join(extra)}"))
    if orphans and (root / "exercises").is_dir():
        known = set(find_slugs(root))
        for folder in sorted(p for p in (root / "exercises").iterdir() if p.is_dir()):
            if folder.name not in known and any(folder.glob("*.ipynb")):
                problems.append(Problem(folder.name, "a release without solutions/: delete it"))
    return problems


def find_leaks(source: Any, release: Any) -> list[str]:
    """Scan a release, line by line, for the text of solution and hidden-test regions.

    A secret line that also stands in the public part of the source (an import, a call that the
    visible test makes too) is no secret.  Spaces, and comments at line ends, do not hide a line.

    Returns:
        One sentence per cell that gives something away.
    """
    public = {line for cell in source.cells for line in _lines(regions(cell)[0])}
    secrets: dict[str, str] = {}
    for cell in source.cells:
        for line in _lines("\n".join(regions(cell)[1])):
            if len(line) >= _SHORTEST_SECRET and line not in public:
                secrets.setdefault(line, cell["id"])
    leaks = []
    for cell in release.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id", cell.get("id", "?"))
        texts = [cell.source]
        if cell.cell_type == "code":
            texts += [str(output) for output in cell.get("outputs", [])]
            if cell.get("outputs"):
                leaks.append(f"the released cell {name!r} holds outputs")
        for line in [line for text in texts for line in _lines(text)]:
            if line in secrets:
                leaks.append(
                    f"the released cell {name!r} holds a hidden line of {secrets[line]!r}: {line!r}"
                )
                break
        if "### BEGIN" in cell.source:
            leaks.append(f"the released cell {name!r} holds a region marker")
    return leaks


def _read(root: Path, slug: str) -> Any:
    try:
        return read_exercise(root / "solutions" / slug / "exercise.py")
    except ValueError as error:
        raise ReleaseError(str(error)) from error


def _parse(content: bytes) -> Any:
    import nbformat

    try:
        return nbformat.reads(content.decode(), as_version=4)
    except Exception as error:
        raise ReleaseError(f"the release is no readable notebook: {error}") from error


def _to_bytes(notebook: Any) -> bytes:
    import nbformat

    text: str = nbformat.writes(notebook, version=nbformat.NO_CONVERT)
    return f"{text}\n".encode()


def _write(path: Path, content: bytes) -> None:
    # Nothing is touched when nothing changed: make and git compare times.
    if path.is_file() and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(content)
    partial.replace(path)


def _lines(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        code = line if line.lstrip().startswith("#") else line.split("  #")[0]
        lines.append("".join(code.split()))
    return lines


def _first_change(made: bytes, committed: bytes) -> str:
    ours, theirs = made.decode().splitlines(), committed.decode(errors="replace").splitlines()
    for number, (one, other) in enumerate(zip(ours, theirs, strict=False), start=1):
        if one != other:
            return f"line {number}"
    return f"expected {len(ours)} lines, got {len(theirs)}"
