"""Several processes train to what one process trains to, whatever tokens each of them holds."""

import importlib.util
import json
from functools import partial
from pathlib import Path

import pytest
import torch
from oracles import same_state
from processes import python
from refusals import refused

from attn_course.data import EOS, PAD, collate
from attn_course.train import load_checkpoint
from attn_course.train.parallel import Parallel, count_targets, start_parallel

WORKER = Path(__file__).with_name("parallel_worker.py")
# sums over rows in another order, in float64, after eleven steps of Adam
CLOSE = {"rtol": 1e-8, "atol": 1e-10}


def worker():
    spec = importlib.util.spec_from_file_location("parallel_worker", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def two(request, tmp_path_factory) -> tuple[str, Path, list[dict]]:
    """Two processes have run: which kind, their folder, what each has seen."""
    folder = tmp_path_factory.mktemp(request.param)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    python(*torchrun, WORKER, request.param, folder, timeout=200)
    seen = [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in (0, 1)]
    return request.param, folder, seen


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    path = tmp_path_factory.mktemp("one") / "whole.pt"
    model, history = worker().train(Parallel(), path)
    return model, history, load_checkpoint(path)


# but for clocks and what nothing here draws from: the shape checker draws from ``random``
assert_close = partial(same_state, but=("seconds", "python", "numpy"), **CLOSE)


def test_two_processes_see_the_loss_and_gradient_of_one(one, two):
    _, history, _ = one
    for seen in two[2]:
        assert seen["loss"] == pytest.approx(history.loss, rel=1e-9)
        assert seen["grad_norm"] == pytest.approx(history.grad_norm, rel=1e-9)
    assert max(history.grad_norm) > 0.5  # clipped, in parts too


def test_two_processes_leave_the_checkpoint_of_one(one, two):
    assert_close(load_checkpoint(two[1] / "whole.pt"), one[2])


def test_a_run_stopped_in_one_process_and_resumed_ends_like_a_whole_one(two):
    assert_close(load_checkpoint(two[1] / "resumed.pt"), load_checkpoint(two[1] / "whole.pt"))
    assert [seen["stopped"] for seen in two[2]] == [worker().STOPPED] * 2


def test_only_the_first_process_writes(two):
    first, second = two[2]
    assert first["written"] == ["whole.pt", "resumed.pt", "resumed.pt"]
    assert second["written"] == []


def test_every_process_gets_the_whole_model_back(one, two):
    kind, _, seen = two
    model, _, _ = one
    numbers = sum(each.numel() for each in model.parameters())
    assert seen[0]["parts"] == [list(each.shape) for each in model.state_dict().values()]
    assert seen[0]["logits"] == pytest.approx(seen[1]["logits"], rel=1e-12)
    held = [each["held"] for each in seen]
    assert held == [numbers, numbers] if kind == "ddp" else sum(held) == numbers
    assert max(held) <= numbers if kind == "ddp" else max(held) < 0.6 * numbers


def test_one_process_goes_on_where_two_stopped(two, tmp_path):
    """A checkpoint says nothing about how many wrote it."""
    (tmp_path / "again.pt").write_bytes((two[1] / "resumed.pt").read_bytes())
    _, history = worker().train(Parallel(), tmp_path / "again.pt")
    assert history.loss == pytest.approx(two[2][0]["loss"], rel=1e-9)


def batch(*targets: int):
    """Rows whose targets have these lengths."""
    return collate(
        [[5 + row] for row in range(len(targets))],
        [[7] * length for length in targets],
        alignments=[[0] * length for length in targets],
    )


@pytest.mark.parametrize("world_size", [2, 3, 5])
def test_every_row_is_in_one_shard(world_size):
    whole = batch(1, 2, 3, 5, 7, 11, 13)
    shards = [Parallel(rank=rank, world_size=world_size).shard(whole) for rank in range(world_size)]
    assert sum(map(len, shards)) == len(whole)
    rows = torch.cat([shard.source[:, 0] for shard in shards])
    assert torch.equal(rows.sort().values, whole.source[:, 0])
    assert sum(map(count_targets, shards)) == count_targets(whole) == sum((2, 3, 4, 6, 8, 12, 14))
    for shard in shards:
        assert len(shard.source_lengths) == len(shard) == len(shard.target_in)
        assert (shard.alignment == -1).sum() > 0
    rows = torch.arange(7).unsqueeze(1)
    assert Parallel(rank=1, world_size=3).shard(rows).flatten().tolist() == [1, 4]


def test_a_process_without_a_row_gets_padding_that_counts_nothing():
    whole = batch(2, 3)
    shards = [Parallel(rank=rank, world_size=3).shard(whole) for rank in range(3)]
    assert [count_targets(shard) for shard in shards] == [3, 4, 0]
    assert len(shards[2]) == 1
    assert (shards[2].target_out == PAD).all()
    assert (shards[0].target_out == EOS).any()
    shard = Parallel(rank=2, world_size=3).shard
    refused(r"batch: expected a row for each of 3 processes, got 2", shard, torch.zeros(2, 5))


def test_a_batch_that_is_not_divisible_is_refused():
    Parallel(world_size=3).check_batch_size(33)
    with pytest.raises(ValueError, match=r"batch_size: expected a multiple of the 3 .*got 32"):
        Parallel(world_size=3).check_batch_size(32)


def test_alone_nothing_is_changed():
    parallel, model, whole = Parallel(), torch.nn.Linear(2, 3), batch(1, 2)
    assert parallel.main
    assert parallel.wrap(model) is model
    assert parallel.unwrap(model, lambda: pytest.fail("built")) is model
    assert parallel.shard(whole) is whole
    assert parallel.sum(7) == 7
    assert parallel.any(True)
    assert not parallel.any(False)


def test_a_launch_that_cannot_be_is_refused(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with start_parallel(device="cpu") as parallel:
        assert (parallel.rank, parallel.world_size) == (0, 1)
        assert not parallel.launched
    fsdp, missing = start_parallel("fsdp", device="cpu"), start_parallel(device="cuda:93")
    refused(r"parallel: .*fsdp.*torchrun --nproc", fsdp.__enter__)
    refused(r"device: .*got cuda:93", missing.__enter__)


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_kind_is_refused():
    refused(r"parallel: expected ddp or fsdp, got zero", start_parallel("zero").__enter__)
