"""Band attention against masked attention, Hugging Face's Longformer and compiled FlexAttention.

``python benchmarks/banded_attention.py`` runs it, one process, one thread: the band |i - j| <= 256,
one example, 8 heads of 64 entries. A row is the minimum of interleaved repetitions of
``time.process_time``; outputs are compared with float64 first (up to 4096 positions, beyond with
ours in float64). FlexAttention's compilation is not counted.
"""

import argparse
import gc
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness
import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.functional import sliding_window_attention, window_pattern
from attn_course.probes import student

SEED, HEADS, DIM, HALF = 14, 8, 64, 256
PARTS = {
    "forward": [(4096, "float32"), (4096, "bfloat16")],
    "training": [(4096, "float32"), (4096, "bfloat16")],
    "long": [(16384, "float32"), (16384, "bfloat16")],
}
ROUNDINGS = 40


def ours(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """The band and nothing else."""
    return sliding_window_attention(query, key, value, window_size=2 * HALF + 1)


def masked(length: int) -> Callable[..., Tensor]:
    """Torch's function with the dense mask."""
    i = torch.arange(length)
    mask = (i[:, None] - i).abs() <= HALF
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, mask)


def hugging_face(length: int) -> Callable[..., Tensor]:
    """The chunks of the Longformer in transformers, without its projections."""
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    config = LongformerConfig(
        hidden_size=HEADS * DIM, num_attention_heads=HEADS, attention_window=[2 * HALF]
    )
    theirs = LongformerSelfAttention(config, 0)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (rows.transpose(1, 2) for rows in (query / DIM**0.5, key, value))
        scores = theirs._sliding_chunks_query_key_matmul(q, k, HALF)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        weights = weights.nan_to_num(0.0)
        return theirs._sliding_chunks_matmul_attn_probs_value(weights, v, HALF).transpose(1, 2)

    return attend


def flex(length: int) -> Callable[..., Tensor]:
    """FlexAttention, compiled."""
    from torch.nn.attention import flex_attention as module

    mod = window_pattern(window_size=2 * HALF + 1).mask_mod
    mask = module.create_block_mask(mod, None, None, length, length, device="cpu")
    compiled = torch.compile(module.flex_attention)
    return lambda q, k, v: compiled(q, k, v, block_mask=mask)


def call(attention: Callable[..., Tensor], tensors: list[Tensor], training: bool) -> list[Tensor]:
    """The output, or the gradients of the inputs."""
    if not training:
        with torch.no_grad():
            return [attention(*tensors)]
    leaves = [t.detach().requires_grad_() for t in tensors]
    output = attention(*leaves)
    return list(torch.autograd.grad(output, leaves, torch.ones_like(output)))


def measure(part: str, repeats: int, with_flex: bool) -> list[dict[str, Any]]:
    """One row for each length and dtype."""
    rows, training = [], part == "training"
    for length, name in PARTS[part]:
        tensors = [torch.randn(1, HEADS, length, DIM).to(getattr(torch, name)) for _ in range(3)]
        peers = {"ours": ours, "masked": masked(length)}
        if not training:
            peers["Hugging Face"] = hugging_face(length)
            if with_flex and length <= 4096:
                peers["FlexAttention"] = flex(length)
        exact = call(
            ours if length > 4096 else masked(length), [t.double() for t in tensors], training
        )
        for peer, attention in peers.items():
            for got, want in zip(call(attention, tensors, training), exact, strict=True):
                error = float((got.double() - want).abs().max() / want.abs().max())
                if (
                    peer in ("ours", "masked")
                    and not error <= ROUNDINGS * torch.finfo(got.dtype).eps
                ):
                    raise RuntimeError(f"{peer}: error {error:.3g} at {length}, {name}")
        seconds: dict[str, list[float]] = {peer: [] for peer in peers}
        gc.disable()
        for turn in range(repeats):
            for peer, attention in list(peers.items())[:: 1 - turn % 2 * 2]:
                begun = time.process_time()
                call(attention, tensors, training)
                seconds[peer].append(time.process_time() - begun)
        gc.enable()
        least = {peer: min(some) for peer, some in seconds.items()}
        peaks = {
            peer: student.peak_memory(call, attention, tensors, training)
            for peer, attention in peers.items()
            if peer != "FlexAttention"  # its memory is inside one operation
        }
        row = {
            "length": length,
            "dtype": name,
            "ms": {peer: round(1e3 * value, 2) for peer, value in least.items()},
            "ratio": {p: round(v / least["ours"], 2) for p, v in least.items() if p != "ours"},
            "ratio_spread": {
                peer: [
                    round(f(a / b for a, b in zip(some, seconds["ours"], strict=True)), 2)
                    for f in (min, max)
                ]
                for peer, some in seconds.items()
                if peer != "ours"
            },
            "peak_mib": {peer: round(value / 2**20, 2) for peer, value in peaks.items()},
            "output_mib": round(tensors[0].nbytes / 2**20, 2),
        }
        print(part, row, flush=True)
        rows.append(row)
    return rows


def table(record: dict[str, Any]) -> str:
    """The results in Markdown."""
    lines = []
    for part, found in record["parts"].items():
        lines += [
            f"## {part}", "",
            "| N | dtype | ours | peer | its time | peer / ours | spread | our peak | its peak |",
            "| ---: | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
        ]  # fmt: skip
        for row in found["measured"]:
            for peer, ratio in row["ratio"].items():
                low, high = row["ratio_spread"][peer]
                peak = row["peak_mib"].get(peer)
                theirs = "-" if peak is None else f"{peak:.1f} MiB"
                lines.append(
                    f"| {row['length']} | {row['dtype']} | {row['ms']['ours']:.1f} ms | {peer} "
                    f"| {row['ms'][peer]:.1f} ms | {ratio:.2f} | {low:.2f} to {high:.2f} "
                    f"| {row['peak_mib']['ours']:.1f} MiB | {theirs} |"
                )
        load = found["load"][0]
        lines += ["", f"Measured {found['date']} at commit {found['commit']}, load {load}.", ""]
    machine = record["machine"]
    named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines.append(
        f"One thread of {machine['processor']}, {record['capability']}; {named}; seed "
        f"{record['seed']}; minimum of {record['repeats']} interleaved repetitions."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--no-flex", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    about = {"repeats": arguments.repeats, "capability": torch.backends.cpu.get_cpu_capability()}
    for part in arguments.parts:
        torch.manual_seed(SEED)
        rows = measure(part, arguments.repeats, not arguments.no_flex)
        kept = harness.keep(
            "banded_attention", part, rows, about, seed=SEED,
            packages=("torch", "transformers"), table=table, script=Path(__file__),
        )  # fmt: skip
        # where pages read recorded results
        page = harness.ROOT / "experiments" / "results" / kept.name
        page.write_text(kept.read_text())


if __name__ == "__main__":
    main()
