"""Our Triton kernels: what the compiler makes of them, and how fast they are on a GPU.

``python benchmarks/kernels.py --artifacts`` needs no GPU: see ``kernel_artifacts.py``.

``python benchmarks/kernels.py`` needs one, and takes less than eight minutes. Every output is
compared with float64 first, on a part of the heads, and a row that is not close is no row. Each
kernel is timed beside each backend of torch's attention, pinned by ``sdpa_kernel``, beside compiled
FlexAttention, and beside two rates of the same run: a matrix product's, and a copy's. The times of
all ways are taken in turn, with a cold cache, and a row holds their medians. The ratio is the
other's time by ours: 2 means twice as fast.

``python benchmarks/kernels.py --dry-run`` walks through all of it on a processor, by the
interpreter, at sizes that say nothing about speed, and writes nothing.
"""

import argparse
import dataclasses
import functools
import math
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
from torch import Tensor
from torch.nn import functional as F

SEED = 17
BUDGET = 7 * 60  # seconds; a case that has not begun by then is left out, and named
# allowed distance from float64 in eps of the dtype by the largest entry
ROUNDINGS = 16
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}

Step = Callable[[], Any]
Timer = Callable[[Mapping[str, Step]], dict[str, list[float]]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the tables.

    Attributes:
        part: ``"forward"``, ``"training"`` (forward and backward) or ``"decode"``.
        shape: B, Hq, Hkv, L, S, E.
        is_causal: Query i sees the keys 0 to i.
        window_size: Of the last keys, or None.
    """

    part: str
    shape: tuple[int, int, int, int, int, int]
    is_causal: bool = True
    window_size: int | None = None

    @property
    def pairs(self) -> int:
        """Pairs of query and key that are allowed, of one head."""
        L, S = self.shape[3:5]
        if not self.is_causal:
            return L * S
        width = self.window_size or S
        return sum(min(i + 1, width, S) for i in range(L))

    @property
    def flops(self) -> int:
        """Of the products, at two a term: two forward, five more backward."""
        B, H, _, _, _, E = self.shape
        products = {"forward": 2, "training": 7, "decode": 2}[self.part]
        return 2 * products * B * H * self.pairs * E

    def nbytes(self, itemsize: int) -> int:
        """That have to move: queries, keys, values and output, once each."""
        B, H, heads, L, S, E = self.shape
        return (2 * B * H * L + 2 * B * heads * S) * E * itemsize


CASES = [
    *(Case(part="forward", shape=(4, 16, 16, 4096, 4096, E)) for E in (64, 128, 256)),
    Case(part="forward", shape=(4, 16, 16, 4096, 4096, 128), is_causal=False),
    Case(part="forward", shape=(1, 32, 8, 16384, 16384, 128)),
    Case(part="forward", shape=(1, 16, 16, 16384, 16384, 128), window_size=1024),
    *(Case(part="training", shape=(4, 16, 16, 4096, 4096, E)) for E in (64, 128, 256)),
    Case(part="training", shape=(1, 16, 16, 16384, 16384, 128), window_size=1024),
    Case(part="decode", shape=(1, 32, 8, 1, 32768, 128), is_causal=False),
    Case(part="decode", shape=(16, 32, 8, 1, 8192, 128), is_causal=False),
]
DRY = [
    Case(part="forward", shape=(1, 2, 1, 37, 37, 16)),
    Case(part="forward", shape=(1, 2, 2, 37, 37, 16), window_size=5),
    Case(part="training", shape=(1, 2, 2, 33, 33, 16)),
    Case(part="decode", shape=(1, 4, 2, 1, 41, 16), is_causal=False),
]


def inputs(case: Case, dtype: torch.dtype, device: str) -> list[Tensor]:
    """Query, key, value, and what the output is pushed with."""
    B, H, heads, L, S, E = case.shape
    generator = torch.Generator(device).manual_seed(SEED)
    sizes = (B, H, L, E), (B, heads, S, E), (B, heads, S, E), (B, H, L, E)
    return [torch.randn(x, generator=generator, device=device).to(dtype) for x in sizes]


def window_mask(case: Case, device: str) -> Tensor | None:
    """The window as a dense mask, for ways that know no windows."""
    if case.window_size is None:
        return None
    away = torch.arange(case.shape[3], device=device)[:, None] - torch.arange(
        case.shape[4], device=device
    )
    return (away >= 0) & (away < case.window_size)


def ours(case: Case) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """The kernel that the case is about."""
    from attn_course import kernels

    if case.part == "decode":
        return lambda q, k, v: kernels.decode_attention(q, k, v, enable_gqa=True)[0]
    return lambda q, k, v: kernels.flash_attention(
        q, k, v, is_causal=case.is_causal, window_size=case.window_size, enable_gqa=True
    )


def peers(case: Case, device: str) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Each backend of torch's function by itself, and FlexAttention where it can be compiled."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    mask = window_mask(case, device)
    options: dict[str, Any] = {"attn_mask": mask}
    if mask is None:
        options = {"is_causal": case.is_causal}

    def pinned(backend: Any) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(
                    query, key, value, enable_gqa=query.shape[1] != key.shape[1], **options
                )

        return attend

    found = {
        f"torch {backend.name.removesuffix('_ATTENTION').lower()}": pinned(backend)
        for backend in (
            SDPBackend.FLASH_ATTENTION,
            SDPBackend.CUDNN_ATTENTION,
            SDPBackend.EFFICIENT_ATTENTION,
            SDPBackend.MATH,
        )
    }
    if device == "cuda":
        found["FlexAttention"] = flex(case)
    return found


def flex(case: Case) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Compiled, with the pattern of the case; its compilation is not timed."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    L, S = case.shape[3:5]
    width = case.window_size or S
    pattern = None
    if case.is_causal:

        def allowed(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return (i >= j) & (i - j < width)

        pattern = create_block_mask(allowed, None, None, L, S, device="cuda")
    compiled: Any = torch.compile(flex_attention, dynamic=False)
    return lambda q, k, v: compiled(
        q, k, v, block_mask=pattern, enable_gqa=q.shape[1] != k.shape[1]
    )


def performed(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], case: Case, tensors: list[Tensor]
) -> list[Tensor]:
    """The output, or with the gradients too."""
    *parts, push = tensors
    if case.part != "training":
        with torch.no_grad():
            return [attend(*parts)]
    leaves = [x.detach().requires_grad_() for x in parts]
    output = attend(*leaves)
    return [output.detach(), *torch.autograd.grad(output, leaves, push)]


def distance(found: list[Tensor], case: Case, tensors: list[Tensor]) -> float:
    """How far from float64, in eps of the dtype by the largest entry.

    One group of heads is looked at, and rows of scores are made 512 at a time, so that it fits.
    """
    _, H, heads, L, S, E = case.shape
    group = H // heads
    query, key, value, push = tensors
    q, g = (x[0, :group].double() for x in (query, push))  # (group, L, E)
    k, v = (x[0, 0].double() for x in (key, value))  # (S, E)
    scale = 1 / math.sqrt(E)
    expected = [torch.zeros_like(x) for x in (q, q, k, v)]
    columns = torch.arange(S, device=q.device)
    for start in range(0, L, 512):
        rows = slice(start, start + 512)
        scores = q[:, rows] @ k.T * scale
        if case.is_causal:
            away = torch.arange(start, min(start + 512, L), device=q.device)[:, None] - columns
            closed = (away < 0) | (away >= (case.window_size or S))
            scores = scores.masked_fill(closed, -torch.inf)
        weights = scores.softmax(-1)
        output = weights @ v
        expected[0][:, rows] = output
        dweights = g[:, rows] @ v.T
        mean = (g[:, rows] * output).sum(-1, keepdim=True)
        dscores = weights * (dweights - mean) * scale
        expected[1][:, rows] = dscores @ k
        expected[2] += torch.einsum("gls,gle->se", dscores, q[:, rows])
        expected[3] += torch.einsum("gls,gle->se", weights, g[:, rows])
    # output and gradient of the queries have the group's heads, those of keys and values one
    parts = [x[0, :group] if i < 2 else x[0, 0] for i, x in enumerate(found)]
    eps = torch.finfo(query.dtype).eps
    return max(
        ((one.double() - want).abs().max() / (eps * want.abs().max())).item()
        for one, want in zip(parts, expected, strict=False)
    )


def device_timer(repeats: int) -> Timer:
    """Seconds of each step by the device's clock, in turn, from a cold L2 cache."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

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
    for case in cases:
        for name, dtype in kinds.items():
            if time.monotonic() - began > budget:
                yield {**dataclasses.asdict(case), "dtype": name, "left_out": "no time"}
                continue
            tensors = inputs(case, dtype, device)
            ways = {"ours": ours(case), **peers(case, device)}
            errors, steps, refused = {}, {}, {}
            for way, attend in ways.items():
                try:
                    errors[way] = distance(performed(attend, case, tensors), case, tensors)
                except (RuntimeError, ValueError, NotImplementedError) as error:
                    if way == "ours":
                        raise
                    refused[way] = str(error).splitlines()[0][:120]
                    continue
                steps[way] = functools.partial(performed, attend, case, tensors)
            if errors["ours"] > ROUNDINGS:
                raise SystemExit(
                    f"{case} in {name}: ours is {errors['ours']:.1f} roundings from float64, "
                    f"at most {ROUNDINGS} are allowed"
                )
            found = row(case, name, timer(steps), rate[name], dtype.itemsize)
            rounded = {way: round(error, 2) for way, error in errors.items()}
            yield {**found, "roundings": rounded, "refused": refused}


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
            "| part | B, Hq, Hkv, L, S, E | pattern | dtype | ours | TFLOP/s | of product "
            "| of copy | of bound | other / ours (spread) |",
            "| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
        ]
        for row in found["measured"]:
            if "rates" in row:
                continue
            shape = ", ".join(map(str, row["shape"]))
            pattern = "causal" if row["is_causal"] else "full"
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
        lines += ["", f"Measured {found['date']} at commit {found['commit']}.", ""]
    named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines.append(
        f"{record['device']}; {named}; seed {record['seed']}; median of {record['repeats']} "
        "interleaved repetitions with a cold cache."
    )
    return "\n".join(lines) + "\n"


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
        rows = list(measure(DRY, wall_timer(2), "cpu", size=64))
        for found in rows:
            print("dry run, no result:", found)
        return 0
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
