"""Band attention against masked attention, Hugging Face's Longformer and compiled FlexAttention.

``python benchmarks/banded_attention.py`` runs it (about five minutes), one thread, one process for
each instruction set: the band |i - j| <= 256, one example, 8 heads of 64 elements. A row is the
minimum of interleaved repetitions of ``time.process_time``, of two where one takes over 2 s;
outputs are compared with float64 first (up to 4096 positions). FlexAttention's
compilation is not counted. A peer that is missing or does not compile has a row with the reason.
"""

import argparse
import gc
import os
import time
from collections.abc import Callable, Iterator
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
LONG = 4096  # beyond, no comparison with float64 and no FlexAttention
SLOW = 2  # seconds of a call, of which there are two repetitions then


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
    if length > LONG:
        raise ValueError("its block mask is made of all pairs: several GiB")
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


MAKERS: dict[str, Callable[[int], Callable[..., Tensor]]] = {
    "ours": lambda _: ours,
    "masked": masked,
    "Hugging Face": hugging_face,
    "FlexAttention": flex,
}


def measure(part: str, repeats: int) -> Iterator[dict[str, Any]]:
    """One row for each length and dtype."""
    training = part == "training"
    for length, name in PARTS[part]:
        known = length <= LONG
        tensors = [torch.randn(1, HEADS, length, DIM).to(getattr(torch, name)) for _ in range(3)]
        exact = call(masked(length), [t.double() for t in tensors], training) if known else []
        peers, missing = {}, {}
        for peer, make in MAKERS.items():
            try:
                attention = make(length)
                results = call(attention, tensors, training) if known else []
            except Exception as error:
                if peer in ("ours", "masked"):
                    raise
                missing[peer] = " ".join(str(error).split())[:150]
                continue
            peers[peer] = attention
            for got, want in zip(results, exact, strict=True):
                distance = float((got.double() - want).abs().max() / want.abs().max())
                bound = ROUNDINGS * torch.finfo(got.dtype).eps
                if peer in ("ours", "masked") and not distance <= bound:
                    raise RuntimeError(f"{peer}: error {distance:.3g} at {length}, {name}")
        seconds: dict[str, list[float]] = {peer: [] for peer in peers}
        gc.disable()
        for turn in range(repeats):
            for peer, attention in list(peers.items())[:: 1 - turn % 2 * 2]:
                if turn > 1 and min(seconds[peer]) > SLOW:
                    continue
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
                    round(f(a / b for a, b in zip(some, seconds["ours"], strict=False)), 2)
                    for f in (min, max)
                ]
                for peer, some in seconds.items()
                if peer != "ours"
            },
            "peak_mib": {peer: round(value / 2**20, 2) for peer, value in peaks.items()},
            "output_mib": round(tensors[0].nbytes / 2**20, 2),
            "missing": missing,
        }
        yield row


def table(record: dict[str, Any]) -> str:
    """The results in Markdown."""
    lines = []
    for part, found in record["parts"].items():
        lines += [
            f"## {part}", "",
            "| N | dtype | set | ours | peer | its time | ratio | spread | our peak | its peak |",
            "| ---: | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |",
        ]  # fmt: skip
        for row in found["measured"]:
            case = f"| {row['length']} | {row['dtype']} | {row['set']} |"
            for peer, ratio in row["ratio"].items():
                low, high = row["ratio_spread"][peer]
                peak = row["peak_mib"].get(peer)
                theirs = "-" if peak is None else f"{peak:.1f} MiB"
                lines.append(
                    f"{case} {row['ms']['ours']:.1f} ms | {peer} "
                    f"| {row['ms'][peer]:.1f} ms | {ratio:.2f} | {low:.2f} to {high:.2f} "
                    f"| {row['peak_mib']['ours']:.1f} MiB | {theirs} |"
                )
            lines += [
                f"{case} | {peer} | not measured: {why} | | | | |"
                for peer, why in row["missing"].items()
            ]
        load = found["load"][0]
        lines += ["", f"Measured {found['date']} at commit {found['commit']}, load {load}.", ""]
    machine = record["machine"]
    named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines.append(
        f"One thread of {machine['processor']}, with AVX2 kept from wider instructions; {named}; "
        f"seed {record['seed']}; minimum of {record['repeats']} interleaved repetitions."
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    arguments = parser.parse_args()
    if harness.CHILD in os.environ:
        (part,) = arguments.parts
        torch.manual_seed(SEED)
        harness.give_rows(lambda: measure(part, arguments.repeats))
        return
    for part in arguments.parts:
        repeats = ["--repeats", str(arguments.repeats)]
        rows = harness.under_each_set(__file__, [*repeats, "--parts", part])
        kept = harness.keep(
            "banded_attention", part, rows, {"repeats": arguments.repeats}, seed=SEED,
            packages=("torch", "transformers"), table=table, script=Path(__file__),
        )  # fmt: skip
        # where pages read recorded results
        page = harness.ROOT / "experiments" / "results" / kept.name
        page.write_text(kept.read_text())


if __name__ == "__main__":
    main()
