"""Recipes learn, stop, resume, and never overwrite a run."""

import json
from itertools import count

import pytest
import torch
from refusals import refused
from typer.testing import CliRunner

from attn_course.cli import app
from attn_course.data import PAD
from attn_course.train import teacher_forcing_loss
from attn_course.train.recipes import RECIPES, by_length, evaluate, report, run_recipe


def test_teacher_forcing_loss_is_the_mean_over_ids_that_count():
    recipe = RECIPES["reversal"]
    model, batch = recipe.build(0), recipe.held_out(7)
    logits = model(batch.source, batch.source_lengths, batch.target_in).detach().double()
    assert (batch.target_out == PAD).any()
    expected = torch.nn.functional.cross_entropy(logits.mT, batch.target_out, ignore_index=PAD)
    assert teacher_forcing_loss(model, batch).item() == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_learns_something_in_sixty_steps(tmp_path, name):
    _, history = run_recipe(name, folder=tmp_path, steps=60, seed=1)
    chance = 1 / len(RECIPES[name].target)
    assert history.evaluations[-1]["symbols"] > 2 * chance
    assert sum(history.loss[-5:]) < 0.75 * sum(history.loss[:5])
    saved = json.loads((tmp_path / "history.json").read_text())
    assert saved["loss"] == history.loss


def test_recipe_resumed_is_the_recipe_run_through(tmp_path, monkeypatch):
    through, _ = run_recipe("reversal", folder=tmp_path / "through", steps=12)
    calls = count(1)

    def stops(model, batch):
        if next(calls) == 6:
            raise KeyboardInterrupt
        return teacher_forcing_loss(model, batch)

    with monkeypatch.context() as patch:
        patch.setattr("attn_course.train.recipes.teacher_forcing_loss", stops)
        with pytest.raises(KeyboardInterrupt):
            run_recipe("reversal", folder=tmp_path / "parts", steps=12)
    parts, history = run_recipe("reversal", folder=tmp_path / "parts", steps=12, resume=True)
    assert len(history) == 12
    assert all(map(torch.equal, parts.parameters(), through.parameters()))
    assert not all(map(torch.equal, parts.parameters(), RECIPES["reversal"].build(0).parameters()))


def test_recipe_refuses_to_overwrite_and_to_resume_another_run(tmp_path):
    run_recipe("reversal", folder=tmp_path, steps=2)
    refused("holds a run", run_recipe, "reversal", folder=tmp_path, steps=2)
    refused("expected the settings", run_recipe, "dates", folder=tmp_path, steps=2, resume=True)
    refused("expected the settings", run_recipe, "reversal", folder=tmp_path, steps=3, resume=True)
    refused("found none", run_recipe, "reversal", folder=tmp_path / "none", steps=3, resume=True)


def test_held_out_batch_is_no_training_batch():
    recipe = RECIPES["dates"]
    assert torch.equal(recipe.held_out(5).source, recipe.held_out(5).source)
    first = recipe.sample(5, torch.Generator().manual_seed(0)).source
    assert not torch.equal(recipe.held_out(5).source, first)


def test_accuracy_by_length_averages_to_the_accuracy():
    recipe = RECIPES["reversal"]
    torch.manual_seed(0)
    model, batch = recipe.build(0), recipe.held_out(101)
    shares = by_length(model, batch)
    assert sorted(shares) == list(range(1, 11))
    counts = {n: int((batch.source_lengths == n).sum()) for n in shares}
    mean = sum(shares[n] * counts[n] for n in shares) / 101
    assert mean == pytest.approx(evaluate(model, batch)["sequences"])


def test_train_command_trains_reports_and_says_what_is_wrong(tmp_path):
    runner = CliRunner()
    listed = runner.invoke(app, ["train"])
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in RECIPES)

    arguments = ["train", "reversal", "--steps", "3", "--out", str(tmp_path / "run")]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0
    assert "3 steps" in done.stdout
    assert "held out: " in done.stdout

    again = runner.invoke(app, arguments)
    assert again.exit_code == 2
    assert "holds a run" in again.stderr
    assert runner.invoke(app, [*arguments, "--resume"]).exit_code == 0
    unknown = runner.invoke(app, ["train", "nothing"])
    assert unknown.exit_code == 2
    assert "expected one of reversal, dates, translation" in unknown.stderr


def test_report_shows_examples_in_words(tmp_path):
    model, history = run_recipe("translation", folder=tmp_path, steps=2)
    lines = report("translation", model, history)
    assert lines[0].startswith("2 steps")
    assert sum("->" in line for line in lines) == 3


def test_train_command_says_that_the_folder_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "inside"):
        asked = CliRunner().invoke(app, ["train", "reversal", "--steps", "2", "--out", str(folder)])
        assert asked.exit_code == 2
        assert "folder: expected a file that can be written" in asked.stderr
