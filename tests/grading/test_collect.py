"""What is handed in is found, named and bounded, whatever it looks like."""

import os
import socket
import stat
import struct
import time
import zipfile

import pytest
from classroom import SLUG, as_bytes, notebook

from attn_course.grading.collect import CollectError, collect

GOOD = as_bytes(notebook())


def layout(folder, student, name=f"{SLUG}.ipynb", data=GOOD):
    place = folder / student / SLUG
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_bytes(data)
    return place


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def by_student(source):
    return {item.student: item for item in collect(source, SLUG)}


def test_the_layout_of_nbgrader(tmp_path):
    place = layout(tmp_path, "ada")
    (place / "timestamp.txt").write_text("2026-03-01 12:30:00.5 UTC")
    (place / "submission_secret.txt").write_text("5f" * 64)
    (layout(tmp_path, "bob") / "submission_secret.txt").write_bytes(b"\xff")
    (tmp_path / "carol").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "notes.txt").write_text("no student")
    found = by_student(tmp_path)
    sent = {name: item.data for name, item in found.items()}
    assert sent == {"ada": GOOD, "bob": GOOD, "carol": None}
    assert str(found["ada"].submitted) == "2026-03-01 12:30:00.500000"
    assert found["bob"].submitted is None
    assert (found["ada"].secret, found["bob"].secret) == ("5f" * 64, "")


def test_one_notebook(tmp_path):
    path = tmp_path / "ada.ipynb"
    path.write_bytes(GOOD)
    assert by_student(path)["ada"].data == GOOD


def test_a_renamed_notebook_is_taken_and_several_are_not(tmp_path):
    layout(tmp_path, "ada", "final (2).ipynb")
    layout(tmp_path, "bob", "a.ipynb")
    layout(tmp_path, "bob", "b.ipynb")
    found = by_student(tmp_path)
    assert (found["ada"].data, found["ada"].note) == (GOOD, "the file was named final (2).ipynb")
    assert "2 notebooks of other names" in str(found["bob"].data)


OTHER_FILES = {
    "a document": (["report.docx"], "no notebook was handed in, only report.docx"),
    "four files": ([*"dcba"], "no notebook was handed in, only a, b, c"),
    "two notebooks": (
        ["b.ipynb", "a.IPYNB", "notes.txt"],
        "small.ipynb is missing and 2 notebooks of other names are there: a.IPYNB, b.ipynb",
    ),
    "nothing of the student's": (
        ["timestamp.txt", "submission_secret.txt", ".DS_Store", "._small.ipynb"],
        None,
    ),
}


@pytest.mark.parametrize("case", OTHER_FILES)
def test_a_folder_and_a_zip_say_the_same_of_other_files(tmp_path, case):
    names, wanted = OTHER_FILES[case]
    for name in names:
        layout(tmp_path / "class", "ada", name, b"PK")
    members = {f"class/ada/{SLUG}/{name}": b"PK" for name in names}
    assert by_student(tmp_path / "class")["ada"].data == wanted
    assert by_student(zipped(tmp_path / "class.zip", members))["ada"].data == wanted


def test_a_document_beside_the_folder_of_another_set_is_named(tmp_path):
    (tmp_path / "ada" / "another_set").mkdir(parents=True)
    assert by_student(tmp_path)["ada"].data is None
    (tmp_path / "ada" / "small.docx").write_bytes(b"PK")
    assert by_student(tmp_path)["ada"].data == "no notebook was handed in, only small.docx"


@pytest.mark.timeout(20)
def test_links_pipes_and_devices_are_refused_without_waiting(tmp_path, monkeypatch):
    secret = layout(tmp_path / "elsewhere", "x") / f"{SLUG}.ipynb"
    class_folder = tmp_path / "class"
    for name in ("link", "loop", "fifo", "folder", "device", "socket"):
        (class_folder / name / SLUG).mkdir(parents=True)
    (class_folder / "link" / SLUG / f"{SLUG}.ipynb").symlink_to(secret)
    loop = class_folder / "loop" / SLUG / f"{SLUG}.ipynb"
    loop.symlink_to(loop)
    os.mkfifo(class_folder / "fifo" / SLUG / f"{SLUG}.ipynb")
    os.mkfifo(class_folder / "fifo" / SLUG / "timestamp.txt")
    (class_folder / "folder" / SLUG / "timestamp.txt").mkdir()
    (class_folder / "device" / SLUG / "timestamp.txt").symlink_to("/dev/zero")
    (class_folder / "loop" / SLUG / "timestamp.txt").symlink_to("timestamp.txt")
    (class_folder / "folder" / SLUG / f"{SLUG}.ipynb").mkdir()
    (class_folder / "device" / SLUG / f"{SLUG}.ipynb").symlink_to("/dev/zero")
    monkeypatch.chdir(class_folder / "socket" / SLUG)  # a socket's address is short
    socket.socket(socket.AF_UNIX).bind(f"{SLUG}.ipynb")
    monkeypatch.chdir(tmp_path)
    (class_folder / "neighbour").mkdir()
    (class_folder / "neighbour" / SLUG).symlink_to(secret.parent)
    (class_folder / "student-link").symlink_to(secret.parent.parent)
    found = by_student(class_folder)
    links = ["device", "fifo", "folder", "link", "loop", "neighbour", "socket", "student-link"]
    assert sorted(found) == links, "one that is left out without a word is a zero in the end"
    others = {"fifo": "not a regular file", "folder": "not a regular file", "socket": "opened"}
    for name in links:
        assert isinstance(found[name].data, str)
        assert others.get(name, "symbolic link") in found[name].data, (name, found[name].data)
        assert found[name].submitted is None


def test_a_file_larger_than_the_limit_is_not_read(tmp_path):
    path = layout(tmp_path, "ada") / f"{SLUG}.ipynb"
    os.truncate(path, 3 << 30)  # sparse
    begun = time.monotonic()
    assert "3072 MiB" in str(by_student(tmp_path)["ada"].data)
    assert time.monotonic() - begun < 5


CANVAS = {
    "lovelaceada_12345_678901_small.ipynb": ("12345", "lovelaceada", False, GOOD),
    "turingalan_LATE_23456_678902_small-2.ipynb": ("23456", "turingalan", True, GOOD),
    "hopper_grace_34567_678903_homework.ipynb": ("34567", "hopper_grace", False, GOOD),
    "noetheremmy_late_45678_678904_small.ipynb": ("45678", "noetheremmy", True, GOOD),
}


def test_a_zip_of_canvas(tmp_path):
    members = {name: found[3] for name, found in CANVAS.items()}
    members |= {
        "turingalan_LATE_23456_678899_small-1.ipynb": b"an older attempt",
        "curiemarie_56789_678905_answers.pdf": b"%PDF",
        "__MACOSX/._lovelaceada_12345_678901_small.ipynb": b"x",
    }
    found = by_student(zipped(tmp_path / "canvas.zip", members))
    for student, name, late, data in CANVAS.values():
        item = found[student]
        assert (item.name, item.late, item.data) == (name, late, data)
    assert found["34567"].note == "the file was named homework.ipynb"
    assert found["56789"].data == "no notebook was handed in, only answers.pdf"
    assert len(found) == 5


def test_a_zip_of_moodle(tmp_path):
    members = {
        "Ada Lovelace_101_assignsubmission_file_/small.ipynb": GOOD,
        "Alan_Turing_102_assignsubmission_file/work/small.ipynb": GOOD,
        "Grace Hopper_103_assignsubmission_file_small.ipynb": GOOD,
        "Emmy Noether_104_assignsubmission_file_/one.ipynb": GOOD,
        "Emmy Noether_104_assignsubmission_file_/two.ipynb": GOOD,
    }
    found = by_student(zipped(tmp_path / "moodle.zip", members))
    names = {key: (item.name, item.data == GOOD) for key, item in found.items()}
    assert names == {
        "101": ("Ada Lovelace", True),
        "102": ("Alan_Turing", True),
        "103": ("Grace Hopper", True),
        "104": ("Emmy Noether", False),
    }
    assert "one.ipynb, two.ipynb" in str(found["104"].data)


def test_a_zip_in_the_layout_of_nbgrader(tmp_path):
    members = {
        f"submitted/ada/{SLUG}/{SLUG}.ipynb": GOOD,
        f"submitted/ada/{SLUG}/timestamp.txt": b"2026-03-01 12:30:00 UTC",
        f"submitted/ada/{SLUG}/.ipynb_checkpoints/{SLUG}-checkpoint.ipynb": b"old",
        f"submitted/bob/{SLUG}/{SLUG}.ipynb": GOOD,
    }
    found = by_student(zipped(tmp_path / "class.zip", members))
    assert sorted(found) == ["ada", "bob"]
    assert (found["ada"].data, str(found["ada"].submitted)) == (GOOD, "2026-03-01 12:30:00")


ODD = [
    *("../mal_7_8_x.ipynb", "/etc/mal_7_8_x.ipynb"),
    *("mal_7_8_a\\..\\x.ipynb", "C:\\mal_7_8_e.ipynb"),
]


@pytest.mark.parametrize("name", ODD)
def test_a_member_that_would_escape_is_its_students_alone(tmp_path, name):
    members = {"ada_1_2_small.ipynb": GOOD, name: GOOD}
    found = by_student(zipped(tmp_path / "slip.zip", members))
    assert sorted(found) == ["1", "7"]
    assert found["1"].data == GOOD
    assert "leaves the zip" in str(found["7"].data)
    found = by_student(zipped(tmp_path / "both.zip", {**members, "mal_7_9_small.ipynb": GOOD}))
    assert found["7"].data == GOOD
    assert "leaves the zip" in found["7"].note


def test_a_link_in_a_zip_is_its_students_alone(tmp_path):
    path = zipped(tmp_path / "link.zip", {f"bob/{SLUG}/{SLUG}.ipynb": GOOD})
    with zipfile.ZipFile(path, "a") as archive:
        info = zipfile.ZipInfo(f"ada/{SLUG}/{SLUG}.ipynb")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    found = by_student(path)
    assert found["bob"].data == GOOD
    assert "is a link" in str(found["ada"].data)


def told(data, field, value):
    """Other words of four bytes about the first member, where it begins and in the directory."""
    for sign, offset in zip((b"PK\x03\x04", b"PK\x01\x02"), field, strict=True):
        struct.pack_into("<I", data, data.find(sign) + offset, value)


def overwritten(data):
    data[60:400] = bytes(byte ^ 0x5A for byte in data[60:400])


# what the first member holds, what is done to the zip, what is said of it
HURT = {
    "a zip bomb": (bytes(40 << 20), lambda data: None, "as a zip bomb does"),
    "a lie of 10 bytes about 40 MiB": (
        bytes(40 << 20), lambda data: told(data, (22, 24), 10), "damaged in the zip"
    ),
    "damage": (GOOD * 3 + os.urandom(4000), overwritten, "damaged in the zip"),
    "encryption": (GOOD, lambda data: told(data, (6, 8), 0x80001), "encrypted"),
}  # fmt: skip


@pytest.mark.parametrize("how", HURT)
def test_a_member_that_cannot_be_unpacked_costs_only_its_own_student(tmp_path, how):
    content, change, words = HURT[how]
    members = {"a_1_2_small.ipynb": content, "b_3_4_small.ipynb": GOOD}
    path = zipped(tmp_path / "hurt.zip", members)
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)
    begun = time.monotonic()
    found = by_student(path)
    assert time.monotonic() - begun < 2
    assert words in str(found["1"].data)
    assert found["3"].data == GOOD


@pytest.mark.parametrize("cut", [0.2, 0.5, 0.9, 0.999])
def test_a_zip_cut_short_is_one_clear_line(tmp_path, cut):
    path = zipped(tmp_path / "cut.zip", {"a_1_2_small.ipynb": GOOD})
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * cut)])
    with pytest.raises(CollectError) as caught:
        collect(path, SLUG)
    assert len(str(caught.value).splitlines()) == 1


def test_any_byte_of_a_zip_may_be_wrong(tmp_path):
    """Only a CollectError or a list of submissions comes out."""
    import random

    whole = zipped(
        tmp_path / "a.zip", {"a_1_2_small.ipynb": GOOD, "b_3_4_x.ipynb": b"{}"}
    ).read_bytes()
    draw, outcomes = random.Random(5), set()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 4)):
            data[-draw.randrange(1, 330)] = draw.randrange(256)
        (tmp_path / "b.zip").write_bytes(data)
        try:
            collect(tmp_path / "b.zip", SLUG)
            outcomes.add("read")
        except CollectError:
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


@pytest.mark.parametrize("make", ["nothing", "empty folder", "text file", "empty zip"])
def test_nothing_to_grade_is_one_clear_line(tmp_path, make):
    path = tmp_path / "given"
    if make == "empty folder":
        path.mkdir()
    elif make == "text file":
        path.write_text("hello")
    elif make == "empty zip":
        zipped(path, {})
    with pytest.raises(CollectError) as caught:
        collect(path, SLUG)
    assert len(str(caught.value).splitlines()) == 1
