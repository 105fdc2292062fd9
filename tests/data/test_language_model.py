"""The model that the package brings: its characters, its weights in int8, its command."""

import json
from functools import partial
from itertools import islice
from pathlib import Path

import torch
from refusals import refused
from typer.testing import CliRunner

from attn_course import data
from attn_course.cli import app
from attn_course.data.language_model import (
    DRAFT,
    WEIGHTS,
    model_card,
    save_language_model,
    to_int8,
)
from attn_course.nn import RotaryPositions, llama_like
from attn_course.train import cached_scorer, generate, speculative_decode, stream, top_k

ROOT = Path(__file__).resolve().parents[2]


def test_a_text_survives_encoding_and_a_foreign_character_is_named() -> None:
    characters = data.Characters("abc\n")
    assert characters.decode(characters.encode("a\ncab")) == "a\ncab"
    refused("'ä'", characters.encode, "bär")
    refused("twice", data.Characters, "aba")


def test_int8_is_off_by_half_a_step_at_most() -> None:
    weight = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    weight[2] = 0
    rows, scale = to_int8(weight)
    assert ((rows * scale[:, None] - weight).abs() <= scale[:, None] / 2 + 1e-7).all()
    assert (rows[[0, 1, 3, 4]].abs().amax(1) == 127).all()


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    config = {"vocab_size": 4, "embed_dim": 8, "num_heads": 2, "num_layers": 2, "hidden_dim": 12}
    model = llama_like(**config, position=RotaryPositions(interleaved=False)).eval()
    path = tmp_path / "small.safetensors"
    save_language_model(model, path, card={"config": config, "alphabet": "abc\n"})
    again, characters = data.load_language_model(path)
    ids = characters.encode("abba\ncab")[None]
    assert not again.training
    assert (again(ids) - model(ids)).abs().max() < 0.02
    save_language_model(again, path, card={"config": config, "alphabet": "abc\n"})
    twice, _ = data.load_language_model(path)
    torch.testing.assert_close(twice(ids), again(ids), rtol=1e-5, atol=1e-6)


def test_the_shipped_model_predicts_plays_as_its_card_says() -> None:
    model, characters = data.load_language_model()
    card = model_card()
    assert WEIGHTS.stat().st_size < 4e6
    assert sum(weight.numel() for weight in model.parameters()) == card["parameters"]
    loss = {key: card["int8_bits"][key] - card["float32_bits"][key] for key in card["int8_bits"]}
    assert all(abs(value) <= 0.01 for value in loss.values())
    assert sum(card["int8_bits"].values()) / 2 < 2.12  # the last tenth as a whole
    record = json.loads((ROOT / "experiments/results/shakespeare_model.json").read_text())
    assert record["card"] == card
    # the record's text is not at hand everywhere: a speech that everyone knows
    speech = characters.encode(
        "\nTo be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n"
    )
    with torch.no_grad():
        nats = torch.nn.functional.cross_entropy(model(speech[None, :-1])[0], speech[1:])
    assert nats / torch.log(torch.tensor(2.0)) < 3


def test_the_readable_card_has_the_numbers_of_the_record() -> None:
    record = json.loads((ROOT / "experiments/results/shakespeare_model.json").read_text())
    card, text = record["card"], WEIGHTS.with_name("README.md").read_text(encoding="utf-8")
    bits = [*card["int8_bits"].values(), *card["float32_bits"].values()]
    numbers = [f"{card['parameters']:,}", f"{card['cpu_seconds']} seconds"]
    for expected in [*numbers, *(f"{value:.4f}" for value in bits), record["versions"]["torch"]]:
        assert expected in text
    draft = model_card(DRAFT)
    small = [*draft["int8_bits"].values(), *draft["float32_bits"].values()]
    sizes = [f"{draft['parameters']:,}", f"{draft['cpu_seconds']} seconds"]
    for expected in [*sizes, *(f"{value:.4f}" for value in small)]:
        assert expected in text.partition("## The draft")[2]
    curve = record["curve"]
    rows = {row["step"]: f"{row['train_bits']:.4f} | {row['val_bits']:.4f}" for row in curve}
    lines = [line for line in text.splitlines() if "| 1." in line or "| 2." in line]
    shown = [line.strip("| ").split(" | ", 1) for line in lines]
    assert len(shown) == 7
    assert all(rows[int(step)] == found for step, found in shown)


def test_the_draft_is_small_has_the_same_characters_and_proposes_what_is_written() -> None:
    model, characters = data.load_language_model()
    draft, other = data.load_language_model("draft")
    card = model_card(DRAFT)
    assert DRAFT.stat().st_size < 150_000
    assert other.alphabet == characters.alphabet
    assert sum(weight.numel() for weight in draft.parameters()) == card["parameters"]
    for part, found in card["int8_bits"].items():
        assert abs(found - card["float32_bits"][part]) <= 0.01
        assert found > model_card()["int8_bits"][part]
    record = json.loads((ROOT / "experiments/results/language_contest.json").read_text())
    assert record["draft"] == card
    prompt = characters.encode("ROMEO:\n")
    likeliest = [partial(top_k, k=1)]
    drafted = speculative_decode(
        *(cached_scorer(model), cached_scorer(draft)), prompt, max_length=60, filters=likeliest
    )
    alone = generate(model, prompt, max_length=60, filters=likeliest)
    assert drafted.tokens.tolist() == alone.tokens[0].tolist()
    assert drafted.calls < 40


def test_a_stream_is_what_generate_draws_and_goes_on_behind_the_context() -> None:
    model, characters = data.load_language_model()
    prompt = characters.encode("ROMEO:\n")
    whole = generate(model, prompt, max_length=40, temperature=0.8, top_p=0.9, seed=3).tokens[0]
    options = {"temperature": 0.8, "top_p": 0.9, "seed": 3}
    assert list(islice(stream(model, prompt, context=64, **options), 40)) == whole.tolist()
    likeliest = list(islice(stream(model, prompt, context=16, temperature=0), 11))
    whole = generate(model, prompt, max_length=10, temperature=0).tokens[0]
    assert likeliest[:10] == whole.tolist()  # with the prompt and nine of them the cache is full
    read_anew = torch.cat([prompt, whole])[-8:]
    assert likeliest[10] == model(read_anew[None])[0, -1].argmax()
    refused("context", next, stream(model, prompt, context=1))
    refused("prompt", next, stream(model, prompt[:0]))


def test_it_writes_in_a_terminal() -> None:
    run = CliRunner().invoke(app, ["write", "ROMEO:", "--length", "30", "--seed", "1"])
    assert run.exit_code == 0, run.output
    assert run.stdout.startswith("ROMEO:")
    assert len(run.stdout) == len("ROMEO:") + 30 + 1
    again = CliRunner().invoke(app, ["write", "ROMEO:", "--length", "30", "--seed", "1"])
    assert again.stdout == run.stdout
    assert "int8_bits" in CliRunner().invoke(app, ["write", "--about"]).stdout
    refused = CliRunner().invoke(app, ["write", "bär"])
    assert refused.exit_code == 2
    assert "'ä'" in refused.output
