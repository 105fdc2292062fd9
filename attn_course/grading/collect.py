"""Find the submissions: nbgrader's folders, one notebook, or a zip of Canvas or Moodle."""

import dataclasses
import datetime
import re
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from attn_course.grading.submission import MAX_BYTES, Unreadable, read_file

MAX_MEMBERS = 20_000
MAX_TOTAL = 4 << 30
MAX_RATIO = 300
CANVAS = re.compile(r"(?P<name>[^_/]+)_(?P<late>LATE_)?(?P<id>\d+)_\d+_(?P<file>[^/]+)")
MOODLE = re.compile(r"(?P<name>[^_/]+)_(?P<id>\d+)_assignsubmission_file_?")


class CollectError(ValueError):
    """The submissions cannot be used as given; the text says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Handed:
    """What one student handed in.

    Args:
        student: id in the gradebook.
        data: bytes of the notebook, None when there is none, or why it could not be read.
        submitted: UTC, when known.
        late: marked late by the learning platform.
        note: what was unusual about the file.
        name: display name, when the platform gives one.
    """

    student: str
    data: bytes | str | None
    submitted: datetime.datetime | None = None
    late: bool = False
    note: str = ""
    name: str = ""


def collect(source: Path, slug: str) -> list[Handed]:
    """Everything that was handed in for an assignment, sorted by student.

    Args:
        source: a folder ``<student>/<slug>/<slug>.ipynb``, one notebook, or a zip.
        slug: the assignment.

    Raises:
        CollectError: nothing of the kind is there, or the zip is not safe to read.
    """
    if not source.exists():
        raise CollectError(f"SUBMISSIONS: expected a folder, a notebook or a zip, got no {source}")
    if source.is_dir():
        found = [_folder(path, slug) for path in sorted(source.iterdir()) if _is_student(path)]
    elif source.suffix == ".ipynb":
        found = [Handed(student=source.stem, data=_read(source))]
    elif zipfile.is_zipfile(source):
        found = _archive(source, slug)
    else:
        raise CollectError(
            f"SUBMISSIONS: expected a folder, a notebook or a zip, got {source.name}"
        )
    if not found:
        raise CollectError(
            f"no submission in {source}: expected <student>/{slug}/{slug}.ipynb, "
            "or a zip as Canvas or Moodle export it"
        )
    return sorted(found, key=lambda handed: handed.student)


def _is_student(path: Path) -> bool:
    return not path.name.startswith(".") and path.is_dir() and not path.is_symlink()


def _read(path: Path) -> bytes | str:
    try:
        return read_file(path)
    except Unreadable as error:
        return f"{path.name}: {error}"


def _folder(student: Path, slug: str) -> Handed:
    """One student's folder in nbgrader's layout; one notebook of another name is taken for it."""
    folder = student / slug
    submitted = _timestamp(folder / "timestamp.txt")
    notebook, note = folder / f"{slug}.ipynb", ""
    if not notebook.exists() and not notebook.is_symlink():
        nearby = [folder, *([student] if not folder.is_dir() else [])]
        others = sorted(p for f in nearby if f.is_dir() for p in f.glob("*.ipynb"))
        if len(others) != 1:
            why = f"{slug}.ipynb is missing and {len(others)} notebooks of other names are there"
            data = why if others else None
            return Handed(student=student.name, data=data, submitted=submitted)
        notebook, note = others[0], f"the file was named {others[0].name}"
    return Handed(student=student.name, data=_read(notebook), submitted=submitted, note=note)


def _timestamp(path: Path) -> datetime.datetime | None:
    """nbgrader's time of collection, as naive UTC."""
    try:
        text = path.read_text(encoding="utf-8").strip()[:64]
        text = re.sub(r"\s*UTC$", "+00:00", text)
        found = datetime.datetime.fromisoformat(text)
    except (OSError, ValueError):
        return None
    return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found


def _archive(source: Path, slug: str) -> list[Handed]:
    """Members are read in memory and never unpacked, and still a name that would escape ends it."""
    with zipfile.ZipFile(source) as archive:
        members = [info for info in archive.infolist() if not info.is_dir()]
        check_archive(members, source.name)
        best: dict[str, tuple[bool, Handed]] = {}
        for info in members:
            path = PurePosixPath(info.filename)
            if path.suffix != ".ipynb" or path.name.startswith("._") or "__MACOSX" in path.parts:
                continue
            student, name, late = _platform_name(path, slug)
            exact = (
                path.stem == slug or re.search(rf"{re.escape(slug)}(-\d+)?$", path.stem) is not None
            )
            if student in best and best[student][0] >= exact:
                continue
            try:
                data: bytes | str = _member(archive, info)
            except (RuntimeError, zipfile.BadZipFile, OSError, EOFError) as error:
                data = f"{path.name}: damaged in the zip: {error}"
            submitted = datetime.datetime(*info.date_time) if info.date_time[0] > 1980 else None
            handed = Handed(student=student, data=data, submitted=submitted, late=late, name=name)
            best[student] = (exact, handed)
    return [handed for _, handed in best.values()]


def check_archive(members: Iterable[zipfile.ZipInfo], name: str) -> None:
    """Refuse a zip that would escape its folder or fill the memory.

    Raises:
        CollectError: naming the member.
    """
    members = list(members)
    if len(members) > MAX_MEMBERS:
        raise CollectError(f"{name}: refused: {len(members)} members, the limit is {MAX_MEMBERS}")
    total = 0
    for info in members:
        path = PurePosixPath(info.filename.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", info.filename):
            raise CollectError(f"{name}: refused: the member {info.filename!r} leaves the zip")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise CollectError(f"{name}: refused: the member {info.filename!r} is a link")
        total += info.file_size
        ratio = info.file_size / max(1, info.compress_size)
        if total > MAX_TOTAL or (info.file_size > (1 << 20) and ratio > MAX_RATIO):
            raise CollectError(
                f"{name}: refused: {info.filename!r} unpacks {ratio:.0f}-fold, to "
                f"{info.file_size >> 20} MiB, as a zip bomb does"
            )


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes | str:
    with archive.open(info) as file:
        data = file.read(MAX_BYTES + 1)
    return data if len(data) <= MAX_BYTES else f"{info.filename}: larger than {MAX_BYTES >> 20} MiB"


def _platform_name(path: PurePosixPath, slug: str) -> tuple[str, str, bool]:
    """Student id, display name and late mark from a member's path."""
    for part in path.parts[:-1]:
        if found := MOODLE.fullmatch(part):
            return found["id"], found["name"], False
    if found := CANVAS.fullmatch(path.name):
        return found["id"], found["name"], found["late"] is not None
    folders = [part for part in path.parts[:-1] if part != slug]
    name = folders[-1] if folders else path.stem
    return name, "", False
