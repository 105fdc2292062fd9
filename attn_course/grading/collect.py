"""Find the submissions: nbgrader's folders, one notebook, or a zip of Canvas or Moodle."""

import dataclasses
import datetime
import hashlib
import lzma
import re
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Any

from attn_course.exercises.submission import MAX_BYTES, Unreadable, read_file

MAX_NAME = 100  # bytes; a gradebook holds 128 characters, a folder's name 255 bytes
# Students choose the file, and in Moodle the name as well: either may look like a mark of the
# platform. Canvas leaves no underscore in a name, so its first mark counts; Moodle's may be any.
CANVAS = re.compile(r"(?P<name>[^/]+?)_(?P<late>(?i:late)_)?(?P<id>\d+)_\d+_(?P<file>[^/]+)")
MOODLE = re.compile(r"_(?P<id>\d+)_assignsubmission_file(?=_|$)")
DAMAGED = (  # what zipfile raises; a name of no letters is an IndexError
    *(RuntimeError, zipfile.BadZipFile, OSError, EOFError, ValueError),
    *(IndexError, zlib.error, lzma.LZMAError),
)
_UNPRINTABLE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


class CollectError(ValueError):
    """The submissions cannot be used as given; the text says what to do."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HandIn:
    """What one student handed in.

    Args:
        student: id in the gradebook.
        data: bytes of the notebook, None when there is none, or why it could not be read.
        submitted: UTC, when known.
        late: marked late by the learning platform.
        note: what was unusual about the file.
        name: display name, when the platform gives one.
        place: how the platform begins the names of this student's files, for a zip of feedback.
        listed: the name is that of the class list.
        secret: by which nbgrader's exchange finds this student's feedback.
    """

    student: str
    data: bytes | str | None
    submitted: datetime.datetime | None = None
    late: bool = False
    note: str = ""
    name: str = ""
    place: str = ""
    listed: bool = False
    secret: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person may want to know of it."""
        return tuple(filter(None, (self.note, "late" if self.late else "")))


def collect(source: Path, slug: str, students: dict[str, str] | None = None) -> list[HandIn]:
    """Everything that was handed in for an assignment, sorted by student.

    Args:
        source: a folder ``<student>/<slug>/<slug>.ipynb``, one notebook, or a zip.
        slug: the assignment.
        students: names of the class by id: each has a hand-in, strangers have a note.

    Raises:
        CollectError: nothing of the kind is there, or the zip is not safe to read.
    """
    if source.is_dir():
        folders = [p for p in source.iterdir() if p.is_dir() and not p.name.startswith(".")]
        found = [_folder(student, slug) for student in sorted(folders)]
    elif source.suffix == ".ipynb" and source.exists():
        found = [HandIn(student=source.stem, data=_read(source))]
    elif source.is_file() and zipfile.is_zipfile(source):
        try:
            found = _archive(source, slug)
        except DAMAGED as error:
            raise CollectError(
                f"{source.name}: the zip is damaged ({error}): export it again"
            ) from None
    else:
        got = source.name if source.exists() else f"no {source}"
        raise CollectError(f"SUBMISSIONS: expected a folder, a notebook or a zip, got {got}")
    handed = {hand_in.student: hand_in for hand_in in map(_printable, found)}
    if students:
        handed = _of_class(handed, students)
    if not handed:
        raise CollectError(
            f"no submission in {source}: expected <student>/{slug}/{slug}.ipynb, "
            "or a zip as Canvas or Moodle export it"
        )
    return [handed[student] for student in sorted(handed)]


def _of_class(handed: dict[str, HandIn], students: dict[str, str]) -> dict[str, HandIn]:
    """A hand-in for everyone of the class, with the names of the list; strangers have a note."""
    found = {}
    for student in handed | students:
        item = handed.get(student, HandIn(student=student, data=None))
        stranger = "" if student in students else "not on the class list"
        note = "; ".join(filter(None, (item.note, stranger)))
        name, listed = students.get(student) or item.name, bool(students.get(student))
        found[student] = dataclasses.replace(item, name=name, note=note, listed=listed)
    return found


def _printable(hand_in: HandIn) -> HandIn:
    """Names as text that a database, a file and a terminal take, the same in every run."""

    def plain(text: str) -> str:
        return _UNPRINTABLE.sub(lambda found: f"\\x{ord(found[0]):02x}", text)

    student = plain(hand_in.student)
    if student != hand_in.student or len(student.encode()) > MAX_NAME:
        digest = hashlib.sha256(hand_in.student.encode(errors="surrogatepass")).hexdigest()
        short = student.encode()[:MAX_NAME].decode(errors="ignore")
        student = f"{short}-{digest[:8]}"  # no two may become one
    return dataclasses.replace(
        hand_in, student=student, note=plain(hand_in.note), name=plain(hand_in.name)
    )


def _read(path: Path) -> bytes | str:
    try:
        return read_file(path)
    except Unreadable as error:
        return f"{path.name}: {error}"


def _folder(student: Path, slug: str) -> HandIn:
    """One student's folder in nbgrader's layout; that it cannot be read is theirs alone."""
    folder, submitted, secret = student / slug, None, ""
    try:
        for link in (student, folder):
            if link.is_symlink():
                why = f"{link.name}: it is a symbolic link, which could lead to anyone's work"
                return HandIn(student=student.name, data=why)
        submitted = _time(_read(folder / "timestamp.txt"))
        secret = _secret(_read(folder / "submission_secret.txt"))
        place = folder if folder.is_dir() else student
        files = [p for p in sorted(place.iterdir()) if _is_notebook(p.name) or not p.is_dir()]
        best, said = _chosen(slug, [path.name for path in files])
        data, note = (said, "") if best is None else (_read(files[best]), said or "")
    except OSError as error:
        data, note = f"{slug}: it cannot be read: {error.strerror}", ""
    return HandIn(student=student.name, data=data, submitted=submitted, note=note, secret=secret)


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb") and not name.startswith("._")


def _chosen(slug: str, files: list[str]) -> tuple[int | None, str | None]:
    """The notebook among a student's files: of the assignment's name, the last attempt; else one.

    Returns:
        Its place and what was unusual, or None and why there is none: None if nothing was sent.
    """
    notebooks = [place for place, name in enumerate(files) if _is_notebook(name)]
    pattern = re.compile(rf"{re.escape(slug)}(?:-(\d{{1,9}}))?\.ipynb", re.IGNORECASE)
    attempts = [(int(m[1] or 0), -n) for n in notebooks if (m := pattern.fullmatch(files[n]))]
    if attempts:
        best = -max(attempts)[1]
        many = len(notebooks) > 1
        return best, f"{files[best]} was taken of {len(notebooks)}" if many else ""
    if len(notebooks) == 1:
        return notebooks[0], f"the file was named {files[notebooks[0]]}"
    if notebooks:
        why = f"{slug}.ipynb is missing and {len(notebooks)} notebooks of other names are there: "
        return None, why + ", ".join(sorted(files[n] for n in notebooks)[:3])
    nobodys = ("timestamp.txt", "submission_secret.txt", ".DS_Store")
    names = sorted(name for name in files if name not in nobodys and not name.startswith("._"))
    return None, f"no notebook was handed in, only {', '.join(names[:3])}" if names else None


def _time(data: bytes | str) -> datetime.datetime | None:
    """nbgrader's time of collection, as naive UTC; None for a file that holds none."""
    if isinstance(data, str):
        return None
    try:
        text = re.sub(r"\s*UTC$", "+00:00", data.decode().strip()[:64])
        found = datetime.datetime.fromisoformat(text)
        return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found
    except (ValueError, OverflowError):  # the latter: the first or the last day of the calendar
        return None


def _secret(data: bytes | str) -> str:
    """As nbgrader writes it; "" for a file that holds anything else."""
    good = isinstance(data, bytes) and re.fullmatch(rb"[0-9a-f]{128}", data)
    return good[0].decode() if good else ""


@dataclasses.dataclass(frozen=True)
class _Member:
    """A file of a zip, and whose it may be."""

    info: zipfile.ZipInfo
    file: str  # as the student named it
    student: str = ""
    name: str = ""
    late: bool = False
    place: str = ""
    why: str = ""  # it is not taken for anyone's work


def _archive(source: Path, slug: str) -> list[HandIn]:
    """Members are read in memory, one for each student, and never unpacked."""
    by_student: dict[str, list[_Member]] = {}
    with zipfile.ZipFile(source) as archive:
        for info in archive.infolist():
            why = _refusal(info)
            parts = (info.filename.replace("\\", "_") if why else info.filename).split("/")
            path = PurePosixPath(*(part for part in parts if part not in ("", ".", "..")))
            hidden = path.name.startswith("._") or {"__MACOSX", ".ipynb_checkpoints"} & set(parts)
            if info.is_dir() or hidden:
                continue
            for member in _of_students(path, slug, _Member(info, path.name, why=why)):
                by_student.setdefault(member.student, []).append(member)
        return [_best(archive, slug, found) for found in by_student.values()]


def _best(archive: zipfile.ZipFile, slug: str, members: list[_Member]) -> HandIn:
    """What one student handed in; a member that is refused is noted, or is why there is nothing."""
    good = [m for m in members if not m.why]
    first = (good or members)[0]
    # nbgrader writes a file of this name; beside what a platform exports, the student did
    exported = any(m.place for m in members)
    times = [m.info for m in good if m.file == "timestamp.txt" and not exported]
    refused = "; ".join(dict.fromkeys(m.why for m in members if m.why))
    best, said = _chosen(slug, [m.file for m in good])
    return HandIn(
        student=first.student,
        data=refused or said if best is None else _member(archive, good[best].info),
        submitted=_time(_member(archive, times[-1])) if times else None,
        late=any(m.late for m in good),
        note="" if best is None else "; ".join(filter(None, (said, refused))),
        name=first.name,
        place=first.place,
    )


def _refusal(info: zipfile.ZipInfo) -> str:
    """Why a member is not read; nobody else's work suffers from it."""
    path = PurePosixPath(info.filename.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", info.filename):
        return f"the member {info.filename!r} leaves the zip"
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"the member {info.filename!r} is a link"
    return ""


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes | str:
    name = PurePosixPath(info.filename).name
    if info.file_size > MAX_BYTES:  # one student's bomb must not cost the others their marks
        ratio = info.file_size / max(1, info.compress_size)
        return (
            f"{name}: refused: it unpacks {ratio:.0f}-fold, to {info.file_size >> 20} MiB, as a "
            f"zip bomb does; the limit is {MAX_BYTES >> 20}"
        )
    try:
        with archive.open(info) as file:
            data = file.read(MAX_BYTES + 1)
    except DAMAGED as error:
        return f"{name}: damaged in the zip: {error}"
    return data if len(data) <= MAX_BYTES else f"{name}: larger than {MAX_BYTES >> 20} MiB"


def _of_students(path: PurePosixPath, slug: str, member: _Member) -> list[_Member]:
    """Whose a member is, by its path: nobody's, one student's, or unclear among several."""

    def of(student: str, **more: Any) -> _Member:
        return dataclasses.replace(member, student=student, **more)

    for number, folder in enumerate(path.parts[:-1]):
        if marks := _marks(folder):
            place = f"{folder}/"
            return _one_or_unclear(folder, [of(m["id"], name=who, place=place) for who, m in marks])
        if folder == slug and number > 0:  # nbgrader's: what lies deeper is the student's own
            return [of(path.parts[number - 1], file="/".join(path.parts[number + 1 :]))]
    name, found = path.name, list[_Member]()
    if sent := CANVAS.fullmatch(name):
        late, place = sent["late"] is not None, name.removesuffix(sent["file"])
        found = [of(sent["id"], name=sent["name"], late=late, file=sent["file"], place=place)]
    for who, mark in _marks(name):
        file = name[mark.end() + 1 :] or name
        found.append(of(mark["id"], name=who, file=file, place=name.removesuffix(file)))
    if found:
        return _one_or_unclear(name, found)
    if path.suffix.lower() != ".ipynb":
        return []
    folders = [part for part in path.parts[:-1] if part != slug]
    return [of(folders[-1] if folders else path.stem)]


def _marks(text: str) -> list[tuple[str, re.Match[str]]]:
    """Every place where Moodle may have joined a name and a number, with that name."""
    return [(text[: m.start()], m) for m in MOODLE.finditer(text) if m.start() > 0]


def _one_or_unclear(name: str, found: list[_Member]) -> list[_Member]:
    students = list(dict.fromkeys(member.student for member in found))
    if len(students) == 1:
        return found[:1]
    why = f"{name} may have been handed in by {' or by '.join(students)}"
    return [dataclasses.replace(member, why=why) for member in found]
