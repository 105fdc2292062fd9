"""The loop does what it says, and a resumed run is the run that was never stopped."""

import contextlib
import itertools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from oracles import same_state
from processes import python
from refusals import refused
from torch import Tensor, nn

from attn_course.data import Batch, BatchStream, reversal
from attn_course.train import fit, load_checkpoint, warmup_cosine
from attn_course.train.checkpoint import write_atomic
from attn_course.train.decoding import Decoded
from attn_course.train.history import History


class Tagger(nn.Module):
    """Embedding, dropout, GRU, output: draws random numbers in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(12, 7)
        self.dropout = nn.Dropout(0.3)
        self.rnn = nn.GRU(7, 11, batch_first=True)
        self.norm = nn.BatchNorm1d(11)
        self.output = nn.Linear(11, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.rnn(self.dropout(self.embedding(tokens)))
        return self.output(self.norm(hidden.transpose(1, 2)).transpose(1, 2))


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    # NumPy takes part, so that its state has to come back too; ``random`` cannot here, because the
    # shape checker of the tests draws from it: see the test with processes
    noise = float(np.random.rand())  # noqa: NPY002
    logits = model(batch.source)
    targets = batch.target_out[:, : logits.shape[1]]
    return nn.functional.cross_entropy(logits.transpose(1, 2), targets) * (1 + 0.01 * noise)


def stream() -> BatchStream:
    return BatchStream(lambda n, g: reversal(n, g, max_length=5), batch_size=13, seed=3)


def build() -> tuple[Tagger, torch.optim.Adam]:
    torch.manual_seed(0)
    np.random.seed(1)  # noqa: NPY002
    model = Tagger()
    return model, torch.optim.Adam(model.parameters(), lr=1.0)


def run(
    steps: int, path: Path | None = None, *, made=None, batches=None, loss=cross_entropy, **options
):
    model, optimizer = made or build()
    settings = {"schedule": warmup_cosine(peak=0.02, warmup=4, steps=20), "seed": 7}
    settings |= {"clip_norm": 0.5, "checkpoint_path": path} | options
    batches = stream() if batches is None else batches
    history = fit(model, batches, loss, optimizer=optimizer, steps=steps, **settings)
    return model, optimizer, history


def slope_times_weight(model: nn.Module, slope: Tensor) -> Tensor:
    return (model[0] * slope).sum()


def loss_that(act, call: int):
    """Cross-entropy that calls ``act`` with its value at this call, counted from 1."""
    calls = itertools.count(1)

    def loss(model: nn.Module, batch: Batch) -> Tensor:
        value = cross_entropy(model, batch)
        return act(value) if next(calls) == call else value

    return loss


def ctrl_c(value: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGINT)
    return value


def interrupt(value: Tensor) -> Tensor:
    raise KeyboardInterrupt


def assert_same_run(first, second) -> None:
    same_state(first[0].state_dict(), second[0].state_dict(), rtol=0, atol=0)
    ours, theirs = first[1].state_dict()["state"], second[1].state_dict()["state"]
    assert len(ours) > 0
    same_state(ours, theirs, rtol=0, atol=0)
    assert (first[2].loss, first[2].grad_norm) == (second[2].loss, second[2].grad_norm)
    assert (first[2].lr, first[2].evaluations) == (second[2].lr, second[2].evaluations)


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    before = [parameter.clone() for parameter in model.parameters()]
    yield
    assert all(map(torch.equal, model.parameters(), before))


class Killed(BaseException):
    """Stands for a run that ends without a chance to tidy up."""


def killed_after(steps: int, error: type[BaseException] = Killed):
    def callback(done: int, history: History) -> None:
        if done == steps:
            raise error

    return callback


def test_fit_is_deterministic_and_the_loss_falls():
    first, second = run(20), run(20)
    assert_same_run(first, second)
    assert np.mean(first[2].loss[-5:]) < 0.9 * np.mean(first[2].loss[:5])


@pytest.mark.parametrize(("every", "kill", "at"), [
    (1, 2, 1), (1, 11, 10), (1, 14, 13), (1, 20, 19), (5, 13, 10),
])  # fmt: skip
def test_fit_resumes_bit_for_bit_from_the_last_checkpoint_before_a_kill(tmp_path, every, kill, at):
    path = tmp_path / "run.pt"
    with pytest.raises(Killed):
        run(20, path, checkpoint_every=every, callbacks=[killed_after(kill)])
    assert load_checkpoint(path)["step"] == at
    # what a new process would not have
    torch.manual_seed(99)
    assert_same_run(run(20, path, resume=True), run(20))


def test_fit_resumes_in_parts_as_in_one_go(tmp_path):
    path = tmp_path / "run.pt"
    for steps in (0, 3, 3, 11, 20):
        parts = run(steps, path, resume=True)
    assert_same_run(parts, run(20))


@pytest.mark.parametrize("batches", [
    lambda: list(itertools.islice(stream(), 6)), lambda: (batch for batch in stream()),
])  # fmt: skip
def test_fit_resumes_plain_iterables_by_drawing_again(tmp_path, batches):
    path = tmp_path / "run.pt"
    run(10, path, batches=batches())
    resumed = run(20, path, batches=batches(), resume=True)
    assert_same_run(resumed, run(20, batches=batches()))


def test_fit_saves_on_keyboard_interrupt_from_within_the_loss(tmp_path):
    # without BatchNorm's running means, which a forward pass changes before it is interrupted
    def frozen(loss):
        return lambda model, batch: (model.norm.eval(), loss(model, batch))[1]

    path, through = tmp_path / "run.pt", frozen(cross_entropy)
    with pytest.raises(KeyboardInterrupt):
        run(20, path, loss=frozen(loss_that(interrupt, 8)))
    assert load_checkpoint(path)["step"] == 7
    assert_same_run(run(20, path, loss=through, resume=True), run(20, loss=through))


@pytest.mark.parametrize("of_a_callback", [True, False])
def test_fit_finishes_the_step_and_saves_on_ctrl_c(tmp_path, of_a_callback):
    path, before = tmp_path / "run.pt", signal.getsignal(signal.SIGINT)
    callbacks = [killed_after(6, KeyboardInterrupt)] if of_a_callback else []
    with pytest.raises(KeyboardInterrupt):
        run(20, path, loss=loss_that(ctrl_c, 99 if of_a_callback else 6), callbacks=callbacks)
    assert signal.getsignal(signal.SIGINT) is before
    assert load_checkpoint(path)["step"] == 6
    assert_same_run(run(20, path, resume=True), run(20))


def test_fit_interrupts_at_once_on_the_second_ctrl_c(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(20, tmp_path / "run.pt", loss=loss_that(lambda value: ctrl_c(ctrl_c(value)), 6))
    assert load_checkpoint(tmp_path / "run.pt")["step"] == 5


def test_fit_runs_outside_the_main_thread():
    results = []
    thread = threading.Thread(target=lambda: results.append(run(3)))
    thread.start()
    thread.join()
    assert len(results[0][2]) == 3


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_fit_names_the_step_of_a_loss_that_is_not_finite(tmp_path, bad):
    path = tmp_path / "run.pt"
    with pytest.raises(FloatingPointError, match=r"loss is (nan|inf) at step 4"):
        run(20, path, loss=loss_that(lambda value: value * bad, 5), checkpoint_every=2)
    saved = load_checkpoint(path)
    assert saved["step"] == 4
    assert all(torch.isfinite(value).all() for value in saved["model"].values())


def test_fit_names_the_step_of_a_gradient_that_is_not_finite():
    # sqrt has an infinite gradient at 0 although its value is finite
    def loss(model: nn.Module, batch: Batch) -> Tensor:
        return (model.output.bias * 0.0).abs().sum().sqrt() + cross_entropy(model, batch)

    with pytest.raises(FloatingPointError, match="gradient norm is nan at step 0"):
        run(2, loss=loss)


@pytest.mark.parametrize(("clip_norm", "step"), [(1.4, 0.1 * 1.4 / 7), (None, 0.1), (8.0, 0.1)])
def test_fit_clips_to_the_norm_and_records_the_norm_before(clip_norm, step):
    start = torch.tensor([3.0, -1.0, 2.0])
    model = nn.ParameterList([nn.Parameter(start.clone())])
    slope = torch.tensor([6.0, -2.0, 3.0])  # norm 7
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = {"optimizer": optimizer, "steps": 2, "clip_norm": clip_norm}
    history = fit(model, [slope], slope_times_weight, **options)
    assert history.grad_norm == pytest.approx([7.0, 7.0])
    assert history.loss == pytest.approx([26.0, 26.0 - 49 * step])
    torch.testing.assert_close(model[0].detach(), start - 2 * step * slope, rtol=1e-5, atol=1e-6)


def test_fit_follows_the_schedule_in_every_group():
    model = nn.ParameterList([nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))])
    optimizer = torch.optim.SGD([{"params": [parameter]} for parameter in model], lr=9.0)
    rates = [0.5, 0.25, 2.0]
    options = {"optimizer": optimizer, "steps": 3, "schedule": rates.__getitem__}
    history = fit(model, [1.0], lambda model, _: (model[0] + 2 * model[1]).sum(), **options)
    assert history.lr == rates
    assert [parameter.item() for parameter in model] == [-2.75, -5.5]


def test_fit_evaluates_in_evaluation_mode_without_changing_the_training():
    modes = []

    def evaluate(model: nn.Module) -> dict[str, float]:
        modes.append((model.training, torch.is_grad_enabled()))
        return {"draw": float(torch.rand(()))}

    watched = run(20, evaluate=evaluate, eval_every=7, callbacks=[lambda *_: torch.rand(3)])
    plain = run(20)
    assert modes == [(False, False)] * 3
    assert [entry["step"] for entry in watched[2].evaluations] == [7, 14, 20]
    assert watched[2].loss == plain[2].loss


def test_fit_leaves_the_mode_of_the_model_as_it_was():
    model, optimizer = build()
    model.eval()
    run(1, made=(model, optimizer))
    assert not model.training


def test_checkpoint_is_whole_when_saving_is_cut(tmp_path, monkeypatch):
    path = tmp_path / "run.pt"
    run(3, path)
    before = path.read_bytes()

    def broken(state, file):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(OSError, match="disk full"):
        run(6, path, resume=True)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run.pt"]


def test_a_checkpoint_can_be_read_by_whom_the_umask_allows(tmp_path):
    path = tmp_path / "run.pt"
    before = os.umask(0o027)
    try:
        write_atomic(b"first", path)
        assert path.stat().st_mode & 0o777 == 0o640
        path.chmod(0o604)
        write_atomic(b"second", path)
        assert path.stat().st_mode & 0o777 == 0o604
    finally:
        os.umask(before)


def test_fit_refuses_checkpoints_of_other_runs(tmp_path):
    path = tmp_path / "run.pt"
    run(5, path)
    refused("steps: expected at least 5", run, 4, path, resume=True)
    refused("seed: expected 7", run, 9, path, resume=True, seed=8)
    other = nn.Linear(2, 3)
    made, message = (other, torch.optim.Adam(other.parameters())), "with .*, got one without"
    refused(f"model: expected that of .*, {message}", run, 9, path, made=made, resume=True)
    path.write_bytes(b"no checkpoint")
    refused("expected a file written by fit", run, 6, path, resume=True)


def test_fit_starts_afresh_when_there_is_nothing_to_resume(tmp_path):
    assert_same_run(run(4, tmp_path / "deep" / "run.pt", resume=True), run(4))
    assert (tmp_path / "deep" / "run.pt").exists()


@pytest.mark.parametrize(("options", "message"), [
    ({"steps": -1}, "^steps: "),
    ({"clip_norm": 0.0}, "^clip_norm: "),
    ({"checkpoint_every": 0}, "^checkpoint_every: "),
    ({"checkpoint_every": 2}, "^checkpoint_path: "),
    ({"resume": True}, "^checkpoint_path: "),
    ({"eval_every": 2}, "^evaluate: "),
    ({"batches": itertools.islice(stream(), 1)}, "endless iterator, got one with 1 batches"),
    ({"batches": []}, "at least one batch"),
    ({"batches": torch.ones(3)}, r"batches: expected a list .*, got Tensor: write \[batch\]"),
    ({"loss": lambda model, batch: model(batch.source).sum((1, 2))},
     r"loss: expected a scalar, got shape \(13,\)"),
    ({"loss": lambda model, batch: 1.0}, "loss: expected a tensor, got float"),
    ({"loss": lambda model, batch: torch.ones(())}, "loss: .*got a constant"),
])  # fmt: skip
def test_fit_refuses_by_name(options, message):
    refused(message, run, **{"steps": 2} | options)


def test_progress_prints_ten_lines_off_a_terminal_and_none_unasked(capfd):
    run(20, progress=None)
    run(20, progress=False)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    run(20, progress=True)
    out, err = capfd.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert len(lines) == 10
    assert lines[0].startswith("step 2/20  loss ")
    assert lines[-1].startswith("step 20/20  loss ")


SCRIPT = """
import random, sys, time
import torch
from torch import nn
from attn_course.data import BatchStream, reversal
from attn_course.train import fit

path, steps, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
random.seed(5)
torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Embedding(12, 8), nn.Dropout(0.5), nn.Linear(8, 12))

def loss(model, batch):
    time.sleep(pause)
    logits = model(batch.source) * (1 + 0.1 * random.random())
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.source.flatten())

optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
kept = {"checkpoint_path": path, "checkpoint_every": 1, "resume": True}
stream = BatchStream(reversal, batch_size=4, seed=1)
fit(model, stream, loss, optimizer=optimizer, steps=steps, seed=3, **kept)
"""


def test_fit_resumes_bit_for_bit_in_another_process_after_sigkill(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(SCRIPT)
    through, parts = tmp_path / "through.pt", tmp_path / "parts.pt"
    python(script, through, 40, 0, timeout=120)

    process = subprocess.Popen([sys.executable, script, parts, "40", "0.05"])
    while not parts.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.3)
    process.kill()
    process.wait()
    assert 1 <= load_checkpoint(parts)["step"] < 40
    python(script, parts, 40, 0, timeout=120)

    first, second = load_checkpoint(through), load_checkpoint(parts)
    assert first["history"]["loss"] == second["history"]["loss"]
    same_state(first["model"], second["model"], rtol=0, atol=0)
    same_state(first["optimizer"]["state"], second["optimizer"]["state"], rtol=0, atol=0)


@pytest.mark.parametrize("path", ["folder", "file/run.pt"])
def test_fit_says_before_the_first_step_that_the_checkpoint_cannot_be_written(tmp_path, path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    calls = []
    with pytest.raises(ValueError, match=r"^checkpoint_path: expected a file that can be written"):
        run(2, tmp_path / path, loss=lambda *arguments: calls.append(arguments))
    assert not calls
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.parametrize("rate", [math.nan, math.inf, -0.1])
def test_fit_refuses_a_schedule_that_gives_no_rate_before_it_harms_the_model(rate):
    made = build()
    message = r"^schedule: expected a rate >= 0 at step 0, got"
    with unchanged(made[0]):
        refused(message, run, 2, made=made, schedule=lambda step: rate)


def test_fit_refuses_another_optimizer_and_changes_nothing(tmp_path):
    path = tmp_path / "run.pt"
    run(5, path)
    saved = path.read_bytes()
    for build_other, message in (
        (lambda m: torch.optim.SGD(m.parameters(), lr=0.1), "optimizer: expected that of .*, Adam, "
         "got SGD"),
        (lambda m: torch.optim.Adam([{"params": [p]} for p in m.parameters()]),
         r"optimizer: expected that of .*, with groups of \[\d+\] parameters, got \[1, 1"),
    ):  # fmt: skip
        model, _ = build()
        with unchanged(model):
            refused(message, run, 9, path, made=(model, build_other(model)), resume=True)
        assert path.read_bytes() == saved
    # written before checkpoints named their optimizer
    old = load_checkpoint(path)
    del old["optimizer_class"]
    torch.save(old, path)
    assert len(run(6, path, resume=True)[2]) == 6
    del old["optimizer"]["param_groups"][0]["betas"]
    torch.save(old, path)
    refused(r"optimizer: expected .*, without betas, got Adam", run, 6, path, resume=True)


def test_fit_refuses_a_model_of_other_sizes_and_leaves_it_as_it_was(tmp_path):
    path = tmp_path / "run.pt"
    model, other = (nn.Sequential(nn.Linear(2, 3), nn.Linear(3, size)) for size in (2, 5))
    batches, options = [torch.ones(1, 2)], {"loss": lambda model, x: model(x).square().sum()}
    run(1, path, made=(model, torch.optim.Adam(model.parameters())), batches=batches, **options)
    options |= {"made": (other, torch.optim.Adam(other.parameters())), "resume": True}
    message = r"1.weight of shape \(2, 3\), got shape \(5, 3\)"
    with unchanged(other):
        refused(message, run, 1, path, batches=batches, **options)


def test_fit_refuses_an_optimizer_of_another_model():
    model, _ = build()
    _other, optimizer = build()
    message = r"^optimizer: expected parameters of the model only, got"
    refused(message, run, 1, made=(model, optimizer))
    some = torch.optim.Adam(list(model.parameters())[:2])  # a part is what fine-tuning trains
    assert len(run(1, made=(model, some))[2]) == 1


def test_a_fresh_run_never_overwrites_a_checkpoint(tmp_path):
    path = tmp_path / "run.pt"
    run(3, path)
    saved = path.read_bytes()
    refused(r"checkpoint_path: expected a file .* resume=True goes", run, 3, path)
    assert path.read_bytes() == saved


def test_a_history_and_what_was_decoded_are_shown_in_one_line():
    shown = repr(run(4)[2])
    assert shown.startswith("History(4 steps, loss ")
    assert repr(History()) == "History(0 steps, 0 evaluations)"
    decoded = Decoded(torch.ones(2, 9), torch.ones(2), torch.ones(2), torch.ones(2) > 0)
    assert repr(decoded) == (
        "Decoded(shapes: tokens=(2, 9), lengths=(2,), scores=(2,), finished=(2,), alignments=None)"
    )


def test_batches_may_be_compared():
    one, other = next(stream()), next(stream())
    assert one == one
    assert one != other
