"""Our scaled dot-product attention against torch's own, one thread, with AVX-512 and with AVX2.

``python benchmarks/attention.py`` runs it (about two minutes of processor time), in one process for
each instruction set. A row is the minimum of interleaved repetitions of ``time.process_time``; the
ratio is torch's minimum by ours, so that 2 means twice as fast, and the spread is that of the
ratios of single repetitions. Both outputs are compared with float64 first. The part ``import``
is the cumulative time of ``import attn_course.nn``, and torch's within it.
"""

import argparse
import gc
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import harness
import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.functional import scaled_dot_product_attention
from attn_course.probes import student

SEED = 9
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# allowed distance from float64, in eps of the dtype by the largest output
ROUNDINGS = 40

# part: (B, Hq, Hkv, L, S, E, mask), mask one of "", "causal", "padding"
CASES: dict[str, list[tuple[int, int, int, int, int, int, str]]] = {
    "decode": [
        (1, 32, 8, 1, 4096, 128, ""),
        (1, 32, 8, 1, 4096, 128, "padding"),
        (1, 32, 8, 4, 4096, 128, "padding"),
        (4, 32, 8, 1, 512, 64, "padding"),
        (1, 16, 16, 1, 2048, 64, ""),
        (1, 16, 1, 1, 2048, 64, ""),
    ],
    "prefill": [
        (1, 8, 8, 512, 512, 64, "causal"),
        (1, 8, 8, 512, 512, 64, "padding"),
        (1, 4, 4, 2048, 2048, 64, "causal"),
        (1, 8, 2, 509, 509, 128, "causal"),
        (2, 8, 8, 61, 61, 64, "padding"),
    ],
    "training": [
        (1, 8, 8, 256, 256, 64, "causal"),
        (2, 8, 8, 256, 256, 64, "padding"),
        (1, 8, 2, 509, 509, 64, "causal"),
    ],
}


PARTS = [*CASES, "import"]


def inputs(
    shape: tuple[int, int, int, int, int, int, str], dtype: torch.dtype
) -> tuple[list[Tensor], dict[str, Any]]:
    """Query, key and value, and the options of the call."""
    batch, heads, kv_heads, length, keys, dim, mask = shape
    sizes = ((batch, heads, length, dim), *[(batch, kv_heads, keys, dim)] * 2)
    tensors = [torch.randn(size).to(dtype) for size in sizes]
    options: dict[str, Any] = {"enable_gqa": heads != kv_heads}
    if mask == "causal":
        options["is_causal"] = True
    elif mask == "padding":
        options["attn_mask"] = (torch.arange(keys) < keys * 9 // 10)[None, None, None]
    return tensors, options


def call(
    attention: Callable[..., Tensor],
    tensors: list[Tensor],
    options: dict[str, Any],
    training: bool,
) -> list[Tensor]:
    """The output, or the gradients of the inputs."""
    if not training:
        with torch.no_grad():
            return [attention(*tensors, **options)]
    leaves = [t.detach().requires_grad_() for t in tensors]
    output = attention(*leaves, **options)
    return list(torch.autograd.grad(output, leaves, torch.ones_like(output)))


def measure(part: str, repeats: int) -> Iterator[dict[str, Any]]:
    """One row for each case and dtype."""
    peers = {"torch": F.scaled_dot_product_attention, "ours": scaled_dot_product_attention}
    training = part == "training"
    for shape in CASES[part]:
        for name, dtype in DTYPES.items():
            tensors, options = inputs(shape, dtype)
            exact = call(peers["torch"], [t.double() for t in tensors], options, training)
            for peer in peers.values():
                for got, want in zip(call(peer, tensors, options, training), exact, strict=True):
                    error = (got.double() - want).abs().max() / want.abs().max()
                    if not error <= ROUNDINGS * torch.finfo(dtype).eps:
                        raise RuntimeError(f"{peer}: error {float(error):.3g} at {shape}, {name}")
            seconds: dict[str, list[float]] = {peer: [] for peer in peers}
            gc.disable()
            for turn in range(repeats):
                # each goes first as often: the first one finds what the last row left in the caches
                for peer, attention in list(peers.items())[:: 1 - turn % 2 * 2]:
                    begun = time.process_time()
                    call(attention, tensors, options, training)
                    seconds[peer].append(time.process_time() - begun)
            gc.enable()
            ratios = [a / b for a, b in zip(seconds["torch"], seconds["ours"], strict=True)]
            least = {peer: min(some) for peer, some in seconds.items()}
            peaks = {
                peer: student.peak_memory(call, attention, tensors, options, training)
                for peer, attention in peers.items()
            }
            row = {
                **dict(zip(("B", "Hq", "Hkv", "L", "S", "E", "mask"), shape, strict=True)),
                "dtype": name,
                "torch_ms": round(1e3 * least["torch"], 3),
                "ours_ms": round(1e3 * least["ours"], 3),
                "ratio": round(least["torch"] / least["ours"], 2),
                "ratio_spread": [round(min(ratios), 2), round(max(ratios), 2)],
                "torch_peak_mib": round(peaks["torch"] / 2**20, 2),
                "ours_peak_mib": round(peaks["ours"] / 2**20, 2),
            }
            yield row


def measure_import(repeats: int) -> list[dict[str, Any]]:
    """Median milliseconds that ``import attn_course.nn`` takes, torch and all, and torch alone."""
    command = [sys.executable, "-X", "importtime", "-c", "import attn_course.nn"]
    cumulative = re.compile(r"\|\s+(\d+) \|\s*([\w.]+)$", re.M)
    times = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        times.append({name: int(each) / 1e3 for each, name in cumulative.findall(done.stderr)})
    return [
        {
            "module": "attn_course.nn",
            "total_ms": round(statistics.median(each["attn_course.nn"] for each in times), 1),
            "torch_ms": round(statistics.median(each["torch"] for each in times), 1),
            "repeats": repeats,
        }
    ]


def table(record: dict[str, Any]) -> str:
    """The results in Markdown."""
    lines = []
    for part, found in record["parts"].items():
        if part == "import":
            (row,) = found["measured"]
            rest = row["total_ms"] - row["torch_ms"]
            lines += [
                "## import", "",
                f"`import {row['module']}` takes {row['total_ms']:.0f} ms, torch "
                f"{row['torch_ms']:.0f} ms of them and the rest {rest:.0f} ms "
                f"(medians of {row['repeats']}).", "",
            ]  # fmt: skip
            continue
        lines += [
            f"## {part}",
            "",
            "| B, Hq, Hkv, L, S, E | mask | dtype | set | torch | ours | torch / ours | spread "
            "| peak of torch | of ours |",
            "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for row in found["measured"]:
            sizes = ", ".join(str(row[key]) for key in ("B", "Hq", "Hkv", "L", "S", "E"))
            low, high = row["ratio_spread"]
            lines.append(
                f"| {sizes} | {row['mask'] or 'none'} | {row['dtype']} | {row['set']} "
                f"| {row['torch_ms']:.2f} ms | {row['ours_ms']:.2f} ms "
                f"| {row['ratio']:.2f} | {low:.2f} to {high:.2f} "
                f"| {row['torch_peak_mib']:.2f} MiB | {row['ours_peak_mib']:.2f} MiB |"
            )
        lines += ["", f"Measured {found['date']} at commit {found['commit']}.", ""]
    machine = record["machine"]
    named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines.append(
        f"One thread of {machine['processor']}, with AVX2 kept from wider instructions; {named}; "
        f"seed {record['seed']}; minimum of {record['repeats']} interleaved repetitions. "
        "Peaks count the storages of torch operations beyond the inputs, not the scratch memory "
        "inside one."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    arguments = parser.parse_args()
    if harness.CHILD in os.environ:
        (part,) = arguments.parts
        torch.manual_seed(SEED)
        harness.give_rows(lambda: measure(part, arguments.repeats))
        return
    for part in arguments.parts:
        repeats = ["--repeats", str(arguments.repeats)]
        if part == "import":
            rows = measure_import(5)
        else:
            rows = harness.under_each_set(__file__, [*repeats, "--parts", part])
        about = {"repeats": arguments.repeats}
        harness.keep("attention", part, rows, about, seed=SEED, packages=("torch",), table=table)


if __name__ == "__main__":
    main()
