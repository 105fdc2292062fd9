"""Our Triton kernels: what the compiler makes of them, and how fast they are on a GPU.

``python benchmarks/kernels.py --artifacts`` needs no GPU: see ``kernel_artifacts.py``.

``python benchmarks/kernels.py`` needs one, and takes less than eight minutes. Every output is
compared with float64 first (of attention on a part of the heads), and a row that is not close is no
row. Every kernel of the package is timed, beside each backend of torch's attention, pinned by
``sdpa_kernel``, beside compiled FlexAttention or torch's own operation, and beside two rates of the
same run: a matrix product's, and a copy's. All cases come in bfloat16 first, then in float16 as far
as the time allows. The times of all ways are taken in turn, with a cold cache, and a row holds
their medians. The ratio is the other's time by ours: 2 means twice as fast.

``python benchmarks/kernels.py --dry-run`` walks through all of it on a processor and writes
nothing: every kind of row by the interpreter, at sizes that say nothing about speed, and the sizes
of every whole case on tensors without memory.
"""

import argparse
import dataclasses
import functools
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

if "--dry-run" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # before the first import of a kernel

import harness
import kernel_artifacts
import torch
from kernel_cases import CASES, DRY, SEED, Case, distance, inputs, ours, peers, performed, walked
from triton.runtime.errors import OutOfResources

# what a way may say to a case that it can't do
REFUSALS = (RuntimeError, ValueError, NotImplementedError, OutOfResources)
BUDGET = 6 * 60  # seconds; a case that has not begun by then is left out, and named
# allowed distance from float64 in eps of the dtype by the largest entry
ROUNDINGS = 16
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}

Step = Callable[[], Any]
Timer = Callable[[Mapping[str, Step]], dict[str, list[float]]]


def device_timer(repeats: int, device: str = "cuda") -> Timer:
    """Seconds of each step by the device's clock, in turn, from a cold L2 cache."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device=device)

    def once(step: Step) -> float:
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3

    def timer(steps: Mapping[str, Step]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in steps}
        for step in steps.values():
            step()
        for _ in range(repeats):
            for name, step in steps.items():
                found[name].append(once(step))
        return found

    return timer


def wall_timer(repeats: int) -> Timer:
    """The same by the processor's clock, for the dry run."""

    def timer(steps: Mapping[str, Step]) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(repeats):
            for name, step in steps.items():
                start = time.perf_counter()
                step()
                found[name].append(time.perf_counter() - start)
        return found

    return timer


def rates(timer: Timer, dtype: torch.dtype, device: str, size: int) -> dict[str, float]:
    """What this run's device does at best here: operations a second, and bytes a second."""
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    source = torch.empty(16 * size * size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = timer({"product": lambda: a @ b, "copy": lambda: target.copy_(source)})
    return {
        "flops": 2 * size**3 / statistics.median(times["product"]),
        "bandwidth": 2 * source.numel() / statistics.median(times["copy"]),
    }


def row(
    case: Case,
    dtype: str,
    times: Mapping[str, list[float]],
    rate: Mapping[str, float],
    itemsize: int = 2,
) -> dict[str, Any]:
    """Medians, ratios with their spread, and shares of what the run's device can do."""
    middle = {name: statistics.median(found) for name, found in times.items()}
    least = max(case.flops / rate["flops"], case.nbytes(itemsize) / rate["bandwidth"])
    ratios = {
        name: sorted(theirs / mine for theirs, mine in zip(found, times["ours"], strict=True))
        for name, found in times.items()
        if name != "ours"
    }
    return {
        **dataclasses.asdict(case),
        "dtype": dtype,
        "ms": {name: round(value * 1e3, 4) for name, value in middle.items()},
        "ratio": {name: round(middle[name] / middle["ours"], 3) for name in ratios},
        "ratio_spread": {
            name: [round(found[0], 3), round(found[-1], 3)] for name, found in ratios.items()
        },
        "tflops": round(case.flops / middle["ours"] / 1e12, 2),
        "gbytes": round(case.nbytes(itemsize) / middle["ours"] / 1e9, 1),
        "of_product_rate": round(case.flops / middle["ours"] / rate["flops"], 3),
        "of_copy_rate": round(case.nbytes(itemsize) / middle["ours"] / rate["bandwidth"], 3),
        "of_bound": round(least / middle["ours"], 3),
    }


def measure(
    cases: list[Case], timer: Timer, device: str, *, size: int = 8192, budget: float = BUDGET
) -> Iterator[dict[str, Any]]:
    """A row for each case and dtype; first of all the rates, last what was left out."""
    began = time.monotonic()
    kinds = DTYPES if device == "cuda" else {"float16": torch.float16}
    rate = {name: rates(timer, dtype, device, size) for name, dtype in kinds.items()}
    yield {"rates": rate}
    for name, dtype in kinds.items():
        for case in cases:
            if time.monotonic() - began > budget:
                yield {**dataclasses.asdict(case), "dtype": name, "left_out": "no time"}
                continue
            yield compared(case, name, timer, rate[name], inputs(case, dtype, device), device)


def compared(
    case: Case,
    dtype: str,
    timer: Timer,
    rate: Mapping[str, float],
    tensors: list[torch.Tensor],
    device: str,
) -> dict[str, Any]:
    """One row; without times, if our kernel fails or is far from float64."""
    about = {**dataclasses.asdict(case), "dtype": dtype}
    ways = {"ours": ours(case), **peers(case, device)}
    errors, steps, refused = {}, {}, {}
    for way, attend in ways.items():
        try:
            errors[way] = round(distance(performed(attend, case, tensors), case, tensors), 2)
        except REFUSALS as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            if way == "ours":
                return {**about, "left_out": f"failed with {said}", "wrong": True}
            refused[way] = said
            continue
        steps[way] = functools.partial(performed, attend, case, tensors)
    found = {"roundings": errors, "refused": refused}
    if not errors["ours"] <= ROUNDINGS:  # NaN is far, too
        said = f"{errors['ours']} roundings from float64, at most {ROUNDINGS} are allowed"
        return {**about, "left_out": said, "wrong": True, **found}
    return {**row(case, dtype, timer(steps), rate, tensors[0].element_size()), **found}


def table(record: dict[str, Any]) -> str:
    """The results in Markdown."""
    lines = []
    for part, found in record["parts"].items():
        if part.startswith("dry"):
            raise ValueError("part: a dry run is no result")
        for row in found["measured"]:
            if "rates" in row:
                for dtype, rate in row["rates"].items():
                    lines.append(
                        f"{dtype}: a product runs at {rate['flops'] / 1e12:.0f} TFLOP/s, a copy at "
                        f"{rate['bandwidth'] / 1e9:.0f} GB/s."
                    )
        lines += [
            "",
            "| part | sizes | pattern | dtype | ours | TFLOP/s | of product "
            "| of copy | of bound | other / ours (spread) |",
            "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
        ]
        for row in found["measured"]:
            if "rates" in row:
                continue
            shape = ", ".join(map(str, row["shape"]))
            pattern = "causal" if row["is_causal"] else "full" if len(row["shape"]) == 6 else ""
            if row["window_size"] is not None:
                pattern = f"window {row['window_size']}"
            start = f"| {row['part']} | {shape} | {pattern} | {row['dtype']} |"
            if "left_out" in row:
                lines.append(f"{start} {row['left_out']} |" + " |" * 5)
                continue
            others = "; ".join(
                f"{name} {ratio:.2f} ({row['ratio_spread'][name][0]:.2f} to "
                f"{row['ratio_spread'][name][1]:.2f})"
                for name, ratio in row["ratio"].items()
            )
            others += "".join(f"; {name}: refused" for name in row["refused"])
            lines.append(
                f"{start} {row['ms']['ours']:.3f} ms | {row['tflops']:.0f} "
                f"| {row['of_product_rate']:.0%} | {row['of_copy_rate']:.0%} "
                f"| {row['of_bound']:.0%} | {others} |"
            )
        lines += [
            "",
            "Sizes: B, Hq, Hkv, L, S, E; of a product M, N, K; else rows and width.",
            f"Measured {found['date']} at commit {found['commit']}.",
            "",
        ]
    named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines.append(
        f"{record['device']}; {named}; seed {record['seed']}; median of {record['repeats']} "
        "interleaved repetitions with a cold cache."
    )
    return "\n".join(lines) + "\n"


def verdict(rows: list[dict[str, Any]]) -> int:
    """1, with a line for each row in which our kernel failed or is far from float64; else 0."""
    wrong = [x for x in rows if "wrong" in x]
    for x in wrong:
        print(f"{x['part']} {x['shape']} in {x['dtype']}: {x['left_out']}", file=sys.stderr)
    return 1 if wrong else 0


def dry_run() -> int:
    """Every kind of row, and the table that they would make; nothing is kept."""
    rows = list(measure(DRY, wall_timer(2), "cpu", size=64))
    for found in rows:
        print("dry run, no result:", found)
    part = {"date": "", "commit": "", "measured": rows}
    about = {"versions": {}, "device": "dry run, no result", "seed": SEED, "repeats": 2}
    print(table({"parts": {"device": part}, **about}))
    return verdict(rows)


def main() -> int:
    """Compile, measure, or walk through."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--artifacts", action="store_true", help="compile only; needs no GPU")
    parser.add_argument("--parts", nargs="*", default=["package", "flexattention", "tutorial"])
    parser.add_argument("--dtypes", nargs="*", default=list(kernel_artifacts.DTYPES))
    parser.add_argument("--tutorial", type=Path, help="a copy of the tutorial's file")
    parser.add_argument("--dry-run", action="store_true", help="interpreted, tiny, not kept")
    parser.add_argument("--repeats", type=int, default=20)
    chosen = parser.parse_args()
    if chosen.artifacts:
        kernel_artifacts.run(chosen.parts, chosen.dtypes, chosen.tutorial)
        return 0
    if chosen.dry_run:
        walked(CASES)
        return dry_run()
    if not torch.cuda.is_available():
        print(
            "benchmarks/kernels.py: needs a CUDA device, and torch sees none; --artifacts and "
            "--dry-run do without",
            file=sys.stderr,
        )
        return 2
    about = {"repeats": chosen.repeats, "device": torch.cuda.get_device_name()}
    found = []
    for one in measure(CASES, device_timer(chosen.repeats), "cuda"):
        print(one, flush=True)
        found.append(one)
    kept = harness.keep(
        "kernels", "device", found, about, seed=SEED, packages=("torch", "triton"), table=table
    )
    (harness.ROOT / "experiments" / "results" / kept.name).write_text(kept.read_text())
    return verdict(found)


if __name__ == "__main__":
    sys.exit(main())
