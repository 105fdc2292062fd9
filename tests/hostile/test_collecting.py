"""What a student may choose (a file's name, a folder, a time) is never another's identity."""

import contextlib
import json
import os
import zipfile
from pathlib import Path

import pytest

from attn_course.grading.collect import CollectError, collect
from attn_course.grading.exports import file_names

SLUG = "small"


def found(path, members):
    with zipfile.ZipFile(path / "class.zip", "w") as archive:
        for name in members:
            archive.writestr(name, json.dumps({"cells": [], "sent": name}))
    return {item.student: item for item in collect(path / "class.zip", SLUG)}


def hand_in(folder):
    (folder / SLUG).mkdir(parents=True)
    (folder / SLUG / f"{SLUG}.ipynb").write_text("{}")


VICTIMS = {  # the honest one has id 222, the one who wants to be 222 has 111
    "moodle": ("Ada_222_assignsubmission_file_", "Mal_111_assignsubmission_file_"),
    "canvas": ("ada_222_9001_", "mal_111_9002_"),
    "moodle folders": ("Ada_222_assignsubmission_file_/", "Mal_111_assignsubmission_file_/"),
    "nbgrader": (f"222/{SLUG}/", f"111/{SLUG}/"),
}
TRICKS = ["x_222_assignsubmission_file_", "x_222_5_", "x_LATE_222_5_", "222/", f"222/{SLUG}/"]
TRICKS = [f"{trick}{SLUG}-9.ipynb" for trick in (*TRICKS, "x_222_assignsubmission_file_/")]
CASES = [(p, t) for p in VICTIMS for t in TRICKS if not (p == "canvas" and "/" in t)]


@pytest.mark.parametrize(("platform", "trick"), CASES)
def test_a_file_name_does_not_hand_in_for_somebody_else(tmp_path, platform, trick):
    victim, attacker = VICTIMS[platform]
    honest = f"{victim}{SLUG}.ipynb"
    handed = found(tmp_path, [honest, attacker + trick])
    assert sorted(handed) == ["111", "222"]
    assert json.loads(handed["222"].data)["sent"] == honest
    assert not handed["222"].late


@pytest.mark.parametrize("end", ["small.ipynb", "/small.ipynb"])
def test_a_display_name_does_not_hand_in_for_somebody_else(tmp_path, end):
    """Moodle's names are free text: one may end like the mark of another participant."""
    honest = f"vic_7_assignsubmission_file_{end}"
    forged = f"eve_7_assignsubmission_file_12_assignsubmission_file_{end}"
    handed = found(tmp_path, [honest, forged])
    assert sorted(handed) == ["12", "7"]
    assert json.loads(handed["7"].data)["sent"] == honest
    for text in (handed["12"].data, handed["7"].note):
        assert "may have been handed in by 7 or by 12" in str(text)


def test_a_name_of_both_platforms_is_unclear_to_all_whom_it_may_concern(tmp_path):
    forged = "vic_7_9_12_assignsubmission_file_small.ipynb"
    handed = found(tmp_path, [forged])
    assert [str(handed[student].data) for student in ("7", "12")] == [
        f"{forged} may have been handed in by 7 or by 12"
    ] * 2


OWN_TIMES = {  # a student's own file beside the notebook, and what nbgrader wrote
    "a file of Canvas": ("eve_late_12_2_small.ipynb", "eve_late_12_3_timestamp.txt", None),
    "a folder beside Canvas": ("eve_late_12_2_small.ipynb", "12/small/timestamp.txt", None),
    "a folder of Moodle": (f"E_12_assignsubmission_file_/{SLUG}.ipynb", "12/timestamp.txt", None),
    "a folder of her own": (f"12/{SLUG}/{SLUG}.ipynb", "sub/timestamp.txt", None),
    "beside nbgrader's": (f"12/{SLUG}/{SLUG}.ipynb", "12/small/timestamp.txt", "2026-03-01"),
}


@pytest.mark.parametrize("where", OWN_TIMES)
def test_a_time_of_the_students_own_does_not_cancel_late(tmp_path, where):
    notebook, own, written = OWN_TIMES[where]
    folder = "" if "late" in notebook else notebook.rpartition("/")[0] + "/"
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        archive.writestr(notebook, "{}")
        if written:
            archive.writestr(f"{folder}timestamp.txt", f"{written} 00:00:00 UTC")
        archive.writestr(folder + own, "2020-01-01 00:00:00 UTC")
    [hand_in] = collect(tmp_path / "class.zip", SLUG)
    assert hand_in.late == ("late" in notebook)
    assert str(hand_in.submitted)[:10] == str(written)


def test_a_student_of_a_hundred_thousand_files_stops_nobody(tmp_path):
    many = [f"mal_111_9_{number}.txt" for number in range(100_000)]
    handed = found(tmp_path, [*many, f"ada_222_9_{SLUG}.ipynb"])
    assert "only 0.txt" in handed["111"].data
    assert isinstance(handed["222"].data, bytes)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_a_time_outside_the_calendar_does_not_stop_the_class(tmp_path, time):
    """``nbgrader submit`` runs as the student, so the file is the student's."""
    for student in ("ada", "mal"):
        hand_in(tmp_path / "class" / student)
    (tmp_path / "class" / "mal" / SLUG / "timestamp.txt").write_text(time)
    handed = collect(tmp_path / "class", SLUG)
    assert [(item.student, item.submitted) for item in handed] == [("ada", None), ("mal", None)]
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        archive.writestr(f"mal/{SLUG}/{SLUG}.ipynb", "{}")
        archive.writestr(f"mal/{SLUG}/timestamp.txt", time)
    assert [item.submitted for item in collect(tmp_path / "class.zip", SLUG)] == [None]


@pytest.mark.parametrize("name", [b"ad\xff\xfea", b"ad\x1b[2Ja", b"a\rb", "a\u202eb".encode()])
def test_a_folder_of_any_name_is_a_student_that_can_be_written_down(tmp_path, name):
    """A database, a terminal and a file take the id; it stays the same from run to run."""
    hand_in(tmp_path / "class" / os.fsdecode(name))
    once, again = (collect(tmp_path / "class", SLUG)[0] for _ in range(2))
    assert once == again
    assert once.student.encode().decode().isprintable()
    assert all(file_names([once.student]).values())
    assert once.data == b"{}"


def test_no_two_students_become_one_by_how_their_names_are_written_down(tmp_path):
    """A name that is made printable, or short enough for a gradebook, may be another's already."""
    names = ["a\x1bb", r"a\x1bb", "n" * 150 + "1", "n" * 150 + "2", "é", "e\u0301"]
    for name in names:
        hand_in(tmp_path / "class" / name)
    handed = collect(tmp_path / "class", SLUG)
    assert len({item.student for item in handed}) == len(names)
    assert all(len(item.student) <= 128 for item in handed), "nbgrader's column"
    assert found(tmp_path, [f"{name}/{SLUG}/{SLUG}.ipynb" for name in names]).keys() == {
        item.student for item in handed
    }


@pytest.mark.parametrize("digits", [30, 4300, 5000])
def test_an_absurd_number_of_an_attempt_stops_nobody(tmp_path, digits):
    """Python reads no integer of so many digits; a name in a zip may be longer than one on disk."""
    absurd = f"mal_111_9_{SLUG}-{'9' * digits}.ipynb"
    handed = found(tmp_path, [absurd, f"mal_111_9_{SLUG}-2.ipynb", f"ada_222_9_{SLUG}.ipynb"])
    assert len(handed) == 2
    assert all(isinstance(item.data, bytes) for item in handed.values())
    assert f"{SLUG}-2.ipynb" in handed["111"].note
    alone = found(tmp_path, [absurd, f"ada_222_9_{SLUG}.ipynb"])
    assert len(alone) == 2


def test_a_folder_that_may_not_be_read_is_its_students_alone(tmp_path, monkeypatch):
    for student in ("ada", "mal"):
        hand_in(tmp_path / "class" / student)
    closed, stat = tmp_path / "class" / "mal" / SLUG, os.stat

    def looked(path, *args, **more):
        if Path(path).is_relative_to(closed) and Path(path) != closed:  # root may read anything
            raise PermissionError(13, "Permission denied")
        return stat(path, *args, **more)

    monkeypatch.setattr(os, "stat", looked)
    ada, mal = collect(tmp_path / "class", SLUG)
    assert ada.data == b"{}"
    assert "cannot be read" in mal.data


MARK = b"small/small.ipynb"
DAMAGE = {  # of a member's record in the directory at the end: offset and bytes
    "a name of no letters": (28, b"\0\0"),
    "a name of half a letter": (46, b"\xc3\xc3"),
    "encrypted": (8, b"\x01\x08"),
    "packed in no way that is known": (10, b"\x63\0"),
    "packed by another method": (10, b"\x0c\0"),
    "where another member begins": (42, b"\0\0\0\0"),
    "behind the end": (42, b"\xff\xff\xff\x7f"),
    "of more bytes than there are": (20, b"\xff\xff\xff\x7f"),
    "in another volume": (34, b"\x07\0"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_member_is_named_or_is_its_students_alone(tmp_path, how):
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for student in ("ada", "m\u00e4l"):
            archive.writestr(f"{student}/{MARK.decode()}", json.dumps({"of": student}))
    data = bytearray((tmp_path / "class.zip").read_bytes())
    place, new = data.rindex(b"PK\x01\x02") + DAMAGE[how][0], DAMAGE[how][1]
    data[place : place + len(new)] = new
    (tmp_path / "class.zip").write_bytes(data)
    with contextlib.suppress(CollectError):
        handed = {item.student: item.data for item in collect(tmp_path / "class.zip", SLUG)}
        assert handed["ada"] == b'{"of": "ada"}'
