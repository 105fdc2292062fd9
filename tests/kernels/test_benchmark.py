"""The benchmark of kernels: counts, ratios and tables by a clock that is made up, and its exits."""

import ast
import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import python
from refusals import refused

pytest.importorskip("triton", reason="no Triton here: kernels need Linux on x86-64")

from attn_course.kernels import artifact

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.append(str(BENCHMARKS))  # scripts there import each other by name
kernel_artifacts = importlib.import_module("kernel_artifacts")
spec: Any = importlib.util.spec_from_file_location("kernels_benchmark", BENCHMARKS / "kernels.py")
benchmark: Any = importlib.util.module_from_spec(spec)
sys.modules["kernels_benchmark"] = benchmark
spec.loader.exec_module(benchmark)

CASE = benchmark.Case(part="forward", shape=(2, 4, 2, 64, 64, 16))


def made_up(seconds: Mapping[str, list[float]]) -> Any:
    """A timer that runs every step once and says what it is told."""

    def timer(steps: Mapping[str, Any]) -> dict[str, list[float]]:
        for step in steps.values():
            step()
        return {name: seconds.get(name, [1.0, 1.0]) for name in steps}

    return timer


def test_pairs_and_operations_by_hand() -> None:
    assert (CASE.pairs, CASE.flops) == (64 * 65 // 2, 2 * 2 * 2 * 4 * CASE.pairs * 16)
    assert CASE.nbytes(2) == (2 * 2 * 4 * 64 + 2 * 2 * 2 * 64) * 16 * 2
    training = benchmark.Case(part="training", shape=(1, 1, 1, 4, 4, 8))
    assert (training.pairs, training.flops) == (10, 2 * 7 * 10 * 8)
    window = benchmark.Case(part="forward", shape=(1, 1, 1, 4, 4, 8), window_size=2)
    assert window.pairs == 1 + 2 + 2 + 2
    full = benchmark.Case(part="decode", shape=(1, 1, 1, 1, 9, 8), is_causal=False)
    assert (full.pairs, full.flops) == (9, 2 * 2 * 9 * 8)


def test_a_row_says_how_much_longer_the_other_takes_and_how_far_the_bound_is() -> None:
    times = {"ours": [2.0, 1.0, 4.0], "slow": [6.0, 4.0, 8.0], "fast": [1.0, 1.0, 1.0]}
    rate = {"flops": float(CASE.flops), "bandwidth": 1e30}  # the products take one second
    row = benchmark.row(CASE, "float16", times, rate)
    assert row["ms"] == {"ours": 2000.0, "slow": 6000.0, "fast": 1000.0}
    assert row["ratio"] == {"slow": 3.0, "fast": 0.5}
    assert row["ratio_spread"] == {"slow": [2.0, 4.0], "fast": [0.25, 1.0]}
    assert (row["of_product_rate"], row["of_bound"]) == (0.5, 0.5)
    rate = {"flops": 1e30, "bandwidth": CASE.nbytes(2) / 1.0}
    bound = benchmark.row(CASE, "float16", times, rate)
    assert (bound["of_copy_rate"], bound["of_bound"]) == (0.5, 0.5)


def test_operations_and_bytes_of_other_kernels_by_hand() -> None:
    product = benchmark.Case(part="matmul", shape=(2, 3, 5), is_causal=False)
    assert (product.flops, product.nbytes(2)) == (2 * 30, 2 * (10 + 15 + 6))
    both = benchmark.Case(part="matmul training", shape=(2, 3, 5), is_causal=False)
    assert (both.flops, both.nbytes(2)) == (3 * 60, 3 * 62)
    rows = benchmark.Case(part="softmax training", shape=(3, 7), is_causal=False)
    assert (rows.flops, rows.nbytes(4)) == (0, 5 * 21 * 4)
    linear = benchmark.Case(part="linear", shape=(1, 2, 2, 11, 11, 3))
    assert linear.flops == 2 * 2 * 2 * 11 * 3 * 3
    training = benchmark.Case(part="training", shape=(1, 1, 1, 4, 4, 8))
    assert training.nbytes(2) == 3 * 4 * 4 * 8 * 2


RIGHT = {"linear": "table of weights", "linear training": "table of weights"}


@pytest.mark.parametrize(
    "case", benchmark.DRY, ids=lambda case: f"{case.part}-{case.window_size}-{case.shape}"
)
def test_float64_agrees_with_torch_and_notices_a_small_error(case: Any) -> None:
    tensors = [x.float() for x in benchmark.inputs(case, torch.float16, "cpu")]
    way = "torch" if case.plain else RIGHT.get(case.part, "torch math")
    found = benchmark.performed(benchmark.peers(case, "cpu")[way], case, tensors)
    assert len(found) == (len(tensors) if case.training else 1)
    assert benchmark.distance(found, case, tensors) < benchmark.ROUNDINGS
    for place in range(len(found)):
        wrong = [x.clone() for x in found]
        # the last number of the first group of heads, whichever group is looked at
        last = wrong[place][0, 0, -1] if wrong[place].ndim == 4 else wrong[place].flatten()
        last[-1] += 1e-3 * wrong[place].abs().max()
        assert benchmark.distance(wrong, case, tensors) > benchmark.ROUNDINGS


def test_every_kernel_of_the_package_has_a_row() -> None:
    parts = {"forward", "training", "decode", "paged decode", "banded", "linear", "linear training"}
    parts |= {"softmax", "softmax training", "layer_norm", "layer_norm training", "matmul", "copy"}
    assert parts == {case.part for case in benchmark.CASES}
    assert parts <= {case.part for case in benchmark.DRY}
    assert any(case.window_size for case in benchmark.CASES if case.part == "training")


def test_whole_cases_fit_our_kernels() -> None:
    found = benchmark.walked(benchmark.CASES)
    assert len(found) == len(benchmark.CASES) - 1  # but for the copy


def test_what_is_far_from_float64_is_no_row(monkeypatch, capsys):
    right = benchmark.ours
    monkeypatch.setattr(benchmark, "ours", lambda case: lambda *x: 1.5 * right(case)(*x))
    rows = list(benchmark.measure(benchmark.DRY[:1], made_up({}), "cpu", size=16))
    assert "ms" not in rows[1]
    assert "roundings from float64" in rows[1]["left_out"]
    assert benchmark.verdict(rows) == 1
    assert "forward (1, 2, 1, 37, 37, 16) in float16" in capsys.readouterr().err


def test_a_kernel_that_fails_leaves_the_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    right = benchmark.ours

    def failing(case: Any) -> Any:
        def fails(*x: Any) -> Any:
            raise RuntimeError("out of luck")

        return fails if case.part == "matmul" else right(case)

    monkeypatch.setattr(benchmark, "ours", failing)
    cases = [case for case in benchmark.DRY if case.part in ("matmul", "copy")]
    _, product, copied = benchmark.measure(cases, made_up({}), "cpu", size=16)
    assert product["left_out"] == "failed with RuntimeError: out of luck"
    assert "ms" in copied
    assert (benchmark.verdict([product, copied]), benchmark.verdict([copied])) == (1, 0)


def test_the_clock_of_a_device_takes_its_steps_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    class Event:
        def __init__(self, *, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("event")

        def elapsed_time(self, end: object) -> float:
            return 250.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timer = benchmark.device_timer(2, device="cpu")
    found = timer({"a": lambda: done.append("a"), "b": lambda: done.append("b")})
    assert found == {"a": [0.25, 0.25], "b": [0.25, 0.25]}
    assert "".join(done).replace("event", ".") == "ab" + ".a..b." * 2


def test_the_dry_run_walks_through_every_kind_of_row_and_keeps_nothing() -> None:
    kept = BENCHMARKS / "results" / "kernels.json"
    before = kept.read_text() if kept.exists() else None
    done = python(BENCHMARKS / "kernels.py", "--dry-run")
    rows = [line for line in done.stdout.splitlines() if line.startswith("dry run, no result: {")]
    assert len(rows) == 1 + len(benchmark.DRY)
    refusers = {"torch cudnn", "torch efficient", "FlexAttention"}  # on a processor, or backward
    for case, line in zip(benchmark.DRY, rows[1:], strict=True):
        row = ast.literal_eval(line.partition(": ")[2])
        assert (row["part"], row["shape"]) == (case.part, case.shape)
        assert set(row["refused"]) <= refusers, row["refused"]
        assert ("FlexAttention" in row["refused"]) <= case.training
    assert (kept.read_text() if kept.exists() else None) == before


def test_the_table_names_refusals_and_what_there_was_no_time_for() -> None:
    seconds = {"ours": [0.5, 0.5], "torch math": [1.0, 2.0], "product": [1.0], "copy": [1.0]}
    rows = list(benchmark.measure(benchmark.DRY[:1], made_up(seconds), "cpu", size=16))
    assert rows[1]["ratio"]["torch math"] == 3.0
    rows += [
        x
        for x in benchmark.measure(benchmark.DRY[1:2], made_up(seconds), "cpu", size=16, budget=-1)
        if "left_out" in x
    ]
    part = {"date": "today", "commit": "abc", "load": [0.0], "measured": rows}
    record = {
        "parts": {"device": part}, "versions": {"torch": "2"}, "device": "a GPU", "seed": 1,
        "repeats": 2,
    }  # fmt: skip
    text = benchmark.table(record)
    for part in ("torch math 3.00 (2.00 to 4.00)", "torch cudnn: refused", "no time"):
        assert part in text
    refused("a dry run is no result", benchmark.table, {**record, "parts": {"dry": part}})


def test_without_a_gpu_it_says_so_in_one_line_and_ends_with_2() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    done = python(BENCHMARKS / "kernels.py", env=environment, succeeds=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "CUDA" in done.stderr


def test_of_a_foreign_file_only_the_kernels_are_run() -> None:
    source = (
        "import nothing_of_that_name\n"
        "raise RuntimeError('run')\n"
        "@tuned([1, 2])\n@triton.jit\ndef kernel(x):\n    return x\n"
        "def launcher():\n    pass\n"
    )
    text = kernel_artifacts.jitted(source)
    for part in ("nothing_of_that_name", "raise", "tuned", "launcher"):
        assert part not in text
    assert "@triton.jit\ndef kernel(x):" in text


def _row(name: str, arch: int, **more: Any) -> dict[str, Any]:
    figures = ("registers", "spilled", "shared", "mma", "wgmma", "wide_loads", "narrow_loads")
    about = {"name": name, "arch": arch, "dtype": "float16", "warps": 4}
    return {**about, **dict.fromkeys(figures, 7), **more}


def test_a_comparison_puts_peers_under_ours_and_marks_what_no_chip_can_hold() -> None:
    run = {"date": "2026-01-02 03:04 UTC", "commit": "abc"}
    record = {
        "versions": {"triton": "3"},
        "parts": {
            "package float16": {**run, "measured": [_row("a d64", 90), _row("a d64", 80)]},
            "tutorial float16": {**run, "measured": [_row("a d64", 80, shared=999_999)]},
            "flexattention float16": {
                **run, "measured": [{**_row("a d64", 90), "error": "OutOfResources: x"}],
            },
        },
    }  # fmt: skip
    lines = artifact.comparison(record, "a d64").splitlines()
    assert [line.split()[2] for line in lines[1:-1]] == [
        "ours", "tutorial", "ours", "flexattention",
    ]  # fmt: skip
    assert "999999!" in lines[2]
    assert "OutOfResources: x" in lines[4]
    assert lines[-1] == "float16, triton 3, compiled 2026-01-02 at commit abc"
    assert len(artifact.comparison(record, "a d64", arches=(80,)).splitlines()) == 4
    refused("names: expected a recorded kernel, got 'b'", artifact.comparison, record, "b")
    assert "has not been run" in artifact.comparison(None, "a d64")
