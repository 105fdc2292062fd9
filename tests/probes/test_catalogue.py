"""The catalogue is found in a checkout and in a wheel, and is read afresh when edited."""

import os

import pytest
from refusals import refused

from attn_course.probes import catalogue as module
from attn_course.probes.catalogue import load_catalogue

TEXT = '''
from attn_course.probes import call, misconception, witnesses

@misconception(of="f", name="{name}", fails=["f-one"])
def wrong(x):
    """You did
    this."""
    return x

@witnesses(of="f")
def calls(draw):
    yield call(draw.normal(2))
'''


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A package folder of its own, with room for a checkout and for a wheel's data."""
    package = tmp_path / "attn_course"
    (package / "probes" / "catalogue" / "42_new").mkdir(parents=True)
    (tmp_path / "solutions" / "42_new").mkdir(parents=True)
    monkeypatch.setattr(module, "_PACKAGE", package)
    checkout = tmp_path / "solutions" / "42_new" / "misconceptions.py"
    return checkout, package / "probes" / "catalogue" / "42_new" / "misconceptions.py"


def test_nothing_there_gives_an_empty_catalogue(places):
    assert load_catalogue("42_new").misconceptions == ()


def test_the_wheels_copy_is_found_and_the_checkout_goes_first(places):
    checkout, shipped = places
    shipped.write_text(TEXT.format(name="shipped"))
    assert [m.name for m in load_catalogue("42_new").of("f")] == ["shipped"]
    checkout.write_text(TEXT.format(name="edited"))
    assert [m.name for m in load_catalogue("42_new").of("f")] == ["edited"]


def test_oracles_come_by_the_name_of_the_set(places):
    checkout, shipped = places
    refused("42_new", module.load_oracles, "42_new")
    shipped.with_name("oracles.py").write_text("probes = 'of the wheel'\n")
    assert module.load_oracles("42_new")[1] == "of the wheel"
    checkout.with_name("oracles.py").write_text("right = abs\nprobes = 'edited'\n")
    oracles, probes = module.load_oracles("42_new")
    assert (oracles.right(-3), probes) == (3, "edited")


def test_an_edited_file_is_read_again(places):
    checkout, _ = places
    checkout.write_text(TEXT.format(name="first"))
    assert load_catalogue("42_new").of("f")[0].name == "first"
    checkout.write_text(TEXT.format(name="second"))
    os.utime(checkout, ns=(1, 1))
    found = load_catalogue("42_new")
    assert (found.of("f")[0].name, found.of("f")[0].message) == ("second", "You did\nthis.")
    assert (found.of("g"), found.witness_calls("g")) == ([], [])
    one, two = (found.witness_calls("f")[0].args[0] for _ in range(2))
    assert one.tolist() == two.tolist()


def test_a_broken_file_is_not_remembered(places):
    checkout, _ = places
    checkout.write_text("1 / 0")
    with pytest.raises(ZeroDivisionError):
        load_catalogue("42_new")
    checkout.write_text(TEXT.format(name="mended"))
    assert load_catalogue("42_new").of("f")[0].name == "mended"


@pytest.mark.parametrize("slug", ["", "../x", "00_warm_up/..", "0_a", "00-warm", "00_Warm"])
def test_a_slug_cannot_lead_elsewhere(slug):
    refused("slug", load_catalogue, slug)
