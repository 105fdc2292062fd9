"""From the text source of an exercise set to the notebook that learners get.

``solutions/<slug>/exercise.py`` becomes ``build/source/<slug>/<slug>.ipynb``, and nbgrader's own
``generate_assignment`` makes ``exercises/<slug>/<slug>.ipynb`` from it.
The same text gives the same bytes.
"""

import logging
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_course.exercises.source import find_slugs, read_exercise, secret_regions

# Shorter lines (a bracket, `else:`) occur everywhere and give nothing away.
_SHORTEST_SECRET = 8


class ReleaseError(Exception):
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
    """Run nbgrader's ``generate_assignment`` in a folder of its own; return each release.

    Raises:
        ReleaseError: If nbgrader refuses a source, or a release gives something away.
    """
    made: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="attn-course-") as name:
        course = Path(name)
        for slug in slugs:
            _write(course / "source" / slug / f"{slug}.ipynb", source_bytes(root, slug))
            _generate(course, slug)
            made[slug] = (course / "release" / slug / f"{slug}.ipynb").read_bytes()
            leaks = find_leaks(_read(root, slug), _parse(made[slug]))
            if leaks:
                raise ReleaseError(f"{slug}: {leaks[0]}")
    return made


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
    regions = secret_regions(source)
    public = {line for cell in source.cells for line in _lines(_public_part(cell))}
    secrets: dict[str, str] = {}
    for grade_id, text in regions:
        for line in _lines(text):
            if len(line) >= _SHORTEST_SECRET and line not in public:
                secrets.setdefault(line, grade_id)
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


def _generate(course: Path, slug: str) -> None:
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config import Config

    config = Config()
    config.CourseDirectory.root = str(course)
    config.CourseDirectory.assignment_id = slug
    # A gradebook records whom an assignment went to; the text of a release does not depend on it.
    config.GenerateAssignment.no_database = True
    config.SaveCells.enabled = False
    log = logging.getLogger("attn_course.release")
    log.propagate = False
    lines = _Lines()
    log.handlers[:] = [lines]
    converter = GenerateAssignment(coursedir=CourseDirectory(config=config), config=config)
    converter.log = log
    try:
        converter.start()
    except (Exception, SystemExit) as error:
        reason = lines.last() or str(error)
        raise ReleaseError(f"{slug}: nbgrader refuses the source: {reason}") from error


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(level=logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def last(self) -> str:
        told = [line.strip().splitlines()[-1] for line in self.lines if line.strip()]
        # nbgrader logs "There was an error" first and the traceback after it.
        told = [line for line in told if not line.startswith("There was an error")]
        return told[0] if told else ""


def _public_part(cell: Any) -> str:
    text = str(cell.source)
    meta = cell.metadata.get("nbgrader", {})
    if cell.cell_type == "markdown" and meta.get("solution"):
        return ""
    for begin, end in (
        ("### BEGIN SOLUTION", "### END SOLUTION"),
        ("### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS"),
    ):
        parts = text.split(begin)
        text = parts[0] + "".join(p.split(end, 1)[-1] for p in parts[1:])
    return text


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
