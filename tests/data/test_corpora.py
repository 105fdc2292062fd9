"""Multi30k and tiny Shakespeare: on small files of our own, and on the real ones where they are."""

import gzip
import hashlib
import os
from pathlib import Path

import pytest
from refusals import refused
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.data import _fetch, load_multi30k, load_shakespeare, multi30k, shakespeare
from attn_course.data._fetch import RemoteFile
from attn_course.data.multi30k import words

ROOT = Path(__file__).parents[2]
REAL = Path(os.environ.get("ATTN_COURSE_DATA", ROOT.parent / "shared" / "data"))

real_data = pytest.mark.skipif(
    not (REAL / "multi30k").is_dir(), reason=f"no data in {REAL}: set ATTN_COURSE_DATA"
)


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setenv("ATTN_COURSE_DATA", str(REAL))


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Files of our own in the place of the real ones."""
    german = " Ein Hund.\nZwei Männerhüte.\u2028\n"
    (tmp_path / "multi30k").mkdir()
    for name, text in {"val.en": "A dog.\nTwo  men's hats.\n", "val.de": german}.items():
        content = gzip.compress(text.encode())
        (tmp_path / "multi30k" / f"{name}.gz").write_bytes(content)
        kept = {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        file = RemoteFile(path=f"multi30k/{name}.gz", url="http://127.0.0.1:1/", **kept)
        monkeypatch.setitem(multi30k.FILES, name, file)
    monkeypatch.setenv("ATTN_COURSE_DATA", str(tmp_path))
    monkeypatch.setattr(_fetch, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path


def test_multi30k_pairs_lines_and_nothing_else_that_looks_like_a_line_end(toy):
    pairs = [("A dog.", "Ein Hund."), ("Two  men's hats.", "Zwei Männerhüte.")]
    assert load_multi30k("val") == pairs


def test_multi30k_swaps_languages_and_prepares(toy):
    assert load_multi30k("val", source="de", target="en", prepare=words)[1] == (
        ["zwei", "männerhüte", "."],
        ["two", "men's", "hats", "."],
    )
    assert load_multi30k("val", prepare=len)[0] == (6, 10)


def test_multi30k_refuses_unknown_splits_and_languages(toy):
    refused(r"split: expected one of .*'train', 'val'", load_multi30k, "test")
    refused("target: expected 'en' or 'de', got 'fr'", load_multi30k, "val", target="fr")
    refused("split: expected", load_shakespeare, "test")


def test_words_by_hand():
    assert words("Two young, White males.") == ["two", "young", ",", "white", "males", "."]
    assert words("T-shirt; don't: Größe!") == ["t-shirt", ";", "don't", ":", "größe", "!"]
    assert words("  ") == []


@real_data
def test_real_multi30k_has_the_published_sizes(real):
    assert [len(load_multi30k(split)) for split in multi30k.SPLITS] == [29000, 1014, 1000]
    english, german = load_multi30k("train")[0]
    assert english == "Two young, White males are outside near many bushes."
    assert german.startswith("Zwei junge weiße Männer")
    assert all(source and target for source, target in load_multi30k("train"))


@real_data
def test_real_shakespeare_has_the_published_size_and_splits(real):
    text = load_shakespeare()
    assert (len(text), len(set(text))) == (1_115_394, 65)
    assert load_shakespeare("train") + load_shakespeare("val") == text
    assert len(load_shakespeare("val")) == 111_540
    assert text.startswith("First Citizen:\n")


@real_data
def test_sizes_in_the_code_are_those_of_the_files():
    for file in [*multi30k.FILES.values(), shakespeare.FILE]:
        assert (REAL / file.path).stat().st_size == file.size
        assert hashlib.sha256((REAL / file.path).read_bytes()).hexdigest() == file.sha256


def test_data_commands(toy):
    runner = CliRunner()
    listed = runner.invoke(app, ["data", "list"])
    assert listed.exit_code == 0
    lines = {line.split()[-1]: line for line in listed.stdout.splitlines()}
    assert lines["multi30k/val.en.gz"].startswith("here")
    assert lines["multi30k/train.en.gz"].startswith("not yet")
    assert "tinyshakespeare/input.txt" in lines

    where = runner.invoke(app, ["data", "where"])
    assert str(toy) in where.stdout
    unknown = runner.invoke(app, ["data", "fetch", "mnist"])
    assert unknown.exit_code == 2
    assert "expected one of multi30k, tinyshakespeare, got mnist" in unknown.stderr


def test_data_fetch_without_network_says_what_to_do(toy, monkeypatch):
    kept = {"path": "tinyshakespeare/input.txt", "size": 7, "sha256": "0" * 64}
    file = RemoteFile(url="http://127.0.0.1:1/x", **kept)
    monkeypatch.setattr("attn_course.data.cli.DATASETS", {"tinyshakespeare": (file,)})
    monkeypatch.setattr("attn_course.data._download._PAUSE", 0.0)
    failed = CliRunner().invoke(app, ["data", "fetch", "tinyshakespeare"])
    assert failed.exit_code == 1
    assert "http://127.0.0.1:1/x" in failed.stderr
    assert "Two ways out" in failed.stderr
