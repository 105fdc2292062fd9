"""The recorded translation run as table and figures."""

import json
from pathlib import Path

from refusals import refused

from attn_course.data import load_results, recorded
from attn_course.viz.translation import (
    translation_table,
)

PLAIN = {
    "hidden_size": 113, "parameters": 600_123, "bleu": 11.26, "interval": 0.74,
    "greedy_bleu": 10.13, "val_loss": [{"step": 3, "loss": 4.5}, {"step": 7, "loss": 2.347}],
    "by_length": [
        {"words": [1, 8], "sentences": 5, "bleu": 14.04},
        {"words": [9, 31], "sentences": 3, "bleu": 6.66},
    ],
    "examples": [{"source": ["▁Ein"], "output": ["▁A"], "weights": None}],
}  # fmt: skip
SEEN = {"source": ["▁Ein", "▁Hund", "."], "output": ["▁A", "▁dog"]}
DOT = {
    **PLAIN, "bleu": 23.0, "examples": [{**SEEN, "weights": [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]]}],
    "by_length": [
        {"words": [1, 8], "sentences": 5, "bleu": 24.0},
        {"words": [9, 31], "sentences": 3, "bleu": 22.0},
    ],
}  # fmt: skip
RECORD = {
    "experiment": "German to English",
    "setting": {
        "name": "reduced", "vocab_size": 1009, "steps": 2003, "batch_size": 31, "beam_size": 5,
    },
    "seed": 3, "signature": "nrefs:1|tok:13a", "missing": ["cosine"],
    "date": "2026-11-21 02:00 UTC", "commit": "abc1234",
    "machine": {"processor": "A processor", "device": "cpu", "threads": 1},
    "versions": {"torch": "2.13.0"}, "cpu_seconds": 1234,
    "corpus": {"train_pairs": 29_000, "epochs": 2.14}, "models": {"plain": PLAIN, "dot": DOT},
}  # fmt: skip


def test_table_has_a_row_per_model_and_says_how_it_was_run():
    table, caption = translation_table(RECORD).strip().split("\n\n")
    header, rule, plain, dot = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()
    )
    assert header == ["attention", "hidden", "parameters", "BLEU", "greedy", "loss", "1–8", "9–31"]
    assert len(rule) == len(header)
    numbers = ["113", "600,123", "11.3\u00a0±\u00a00.7", "10.1", "2.35", "14.0", "6.7"]
    assert plain == ["no attention", *numbers]
    assert (dot[0], dot[3]) == ("Luong, dot", "23.0\u00a0±\u00a00.7")
    for words in (
        "setting *reduced*", "29,000 pairs", "2,003 steps of 31 pairs (2.14 epochs)", "beam of 5",
        "nrefs:1 | tok:13a", "21 CPU minutes", "A processor, 1 thread", "torch 2.13.0", "seed 3",
        "2026-11-21", "commit abc1234", "Not run: Luong decoder, cosine",
    ):  # fmt: skip
        assert words in caption


def test_table_says_that_the_full_setting_was_not_run(monkeypatch, tmp_path):
    monkeypatch.setattr(recorded, "_CHECKOUT", tmp_path)
    (tmp_path / "translation_reduced.json").write_text(json.dumps(RECORD))
    text = translation_table()
    assert text.startswith(translation_table(RECORD).strip())
    assert "Setting *full*: not run, no GPU was at hand." in text
    (tmp_path / "translation_full.json").write_text(json.dumps(RECORD))
    assert "not run, no GPU" not in translation_table()
    assert text._repr_markdown_() == text


def test_records_are_found_by_name_and_a_path_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(recorded, "_CHECKOUT", tmp_path)
    assert load_results("nothing_yet") is None
    (tmp_path / "one.json").write_text('{"bleu": 7}')
    assert load_results("one") == {"bleu": 7}
    for name in ("../one", "one.json", ""):
        refused("name", load_results, name)


def test_the_checkout_is_where_the_experiments_write():
    root = Path(__file__).parents[2]
    assert root / "experiments" / "results" == recorded._CHECKOUT
