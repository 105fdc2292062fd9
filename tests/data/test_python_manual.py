"""The manual that comes with Python: two parts with nothing in common, the same every time."""

from attn_course.data import load_python_manual


def test_no_paragraph_stands_in_both_parts_or_twice() -> None:
    train, held_out = (load_python_manual(part).splitlines() for part in ("train", "val"))
    together = train + held_out
    assert len(together) == len(set(together))
    assert min(map(len, together)) >= 30


def test_there_is_enough_prose_in_plain_ascii() -> None:
    train, held_out = load_python_manual("train"), load_python_manual("val")
    assert len(train) > 150_000
    assert 0.08 < len(held_out) / len(train) < 0.25
    assert train.isascii()
    assert not {">>>", "::=", "\t"} & {mark for mark in (">>>", "::=", "\t") if mark in train}
    assert train.endswith("\n")
    # held out, but hardly with a character that training does not know
    assert len(set(held_out) - set(train)) <= 3
    assert sum(paragraph.count(" the ") for paragraph in train.splitlines()) > 1000
