"""What the compiler makes of a kernel, for a GPU that need not be there.

``python -m attn_course.kernels.artifact --arch 90`` prints registers, spills, shared memory and
instruction counts of every launch. ``python -m attn_course.kernels.artifact flash`` keeps the
launches whose name contains a text. It needs a process without ``TRITON_INTERPRET``.
"""

import argparse
import contextlib
import dataclasses
import importlib
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from attn_course.kernels._launch import ASSUMED, INTERPRETED

TYPES = {
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float32: "*fp32",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
# bytes of shared memory that one program may take, by compute capability
SHARED = {80: 163 * 1024, 90: 227 * 1024}
# bytes that the chip adds to each program's share
KEPT = 1024
# of one processor of the chip: registers, and the most warps and programs at once
REGISTERS, WARPS, PROGRAMS = 65536, 64, 32


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """One call of a kernel as a launcher makes it, with its arguments by name."""

    name: str
    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    options: Mapping[str, int]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """What was counted in a compiled kernel.

    Attributes:
        name: Of the launch.
        arch: Compute capability, 80 for A100, 90 for H100 and H200.
        registers: For each thread; 255 is the most there can be.
        spilled: Bytes for each thread that did not fit into registers, stored and loaded.
        shared: Bytes of shared memory for each program.
        warps: Groups of 32 threads in a program.
        stages: Depth of the pipeline of loads.
        mma: Matrix instructions of a warp (``mma.sync``), in the text of the program.
        wgmma: Matrix instructions of four warps (``wgmma.mma_async``), sm_90 and later.
        rows: Of the tile that is the result of a matrix product, the fewest if there are several
            products; 0 if none is left to matrix instructions. A wgmma takes 64 at least.
        wide_loads: Loads of 16 bytes a thread, straight or into shared memory.
        narrow_loads: All other loads from global memory.
    """

    name: str
    arch: int
    registers: int
    spilled: int
    shared: int
    warps: int
    stages: int
    mma: int
    wgmma: int
    rows: int
    wide_loads: int
    narrow_loads: int


@contextlib.contextmanager
def recorded() -> Iterator[list[Launch]]:
    """Note every launch in the block in place of making it."""
    if INTERPRETED:
        raise ValueError("TRITON_INTERPRET: expected unset, interpreted kernels do not compile")
    launches: list[Launch] = []
    run = JITFunction.run

    def note(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in OPTIONS if name in kwargs}
        arguments = dict(zip(self.arg_names, args, strict=False)) | kwargs
        grid = grid(arguments) if callable(grid) else grid
        name = self.fn.__name__.removesuffix("_kernel")
        launches.append(
            Launch(name=name, kernel=self, grid=grid, arguments=arguments, options=options)
        )

    JITFunction.run = note
    try:
        yield launches
    finally:
        JITFunction.run = run


def compile_launch(launch: Launch, *, arch: int) -> Any:
    """Compile a launch to a cubin as a launch on a GPU would: sizes of 1 and multiples of 16 count.

    Args:
        launch: From :func:`recorded`.
        arch: Compute capability times ten.

    Returns:
        Triton's compiled kernel; ``asm`` holds ``ttgir``, ``ptx`` and ``cubin``.
    """
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    constexprs = {p.name for p in launch.kernel.params if p.is_constexpr}
    for place, name in enumerate(launch.kernel.arg_names):
        value = launch.arguments[name]
        if name in constexprs or (isinstance(value, int) and value == 1) or value is None:
            signature[name], constants[(place,)] = "constexpr", value
            continue
        if isinstance(value, Tensor):
            signature[name] = TYPES[value.dtype]
            aligned = True  # the allocator gives multiples of 512 bytes
        elif isinstance(value, int):
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            aligned = value % 16 == 0
        else:
            signature[name], aligned = "fp32", False
        if aligned:
            attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=dict(launch.options))


def measure(launch: Launch, *, arch: int) -> Artifact:
    """Compile a launch and count what there is to count."""
    compiled = compile_launch(launch, arch=arch)
    ptx = compiled.asm["ptx"]
    registers, spilled = _assembled(ptx, arch)
    loads = len(re.findall(r"\bld\.global", ptx)) + len(re.findall(r"cp\.async\.c[ag]", ptx))
    wide = len(re.findall(r"ld\.global\S*\.v4\.b32|ld\.global\S*\.v2\.b64", ptx))
    wide += len(re.findall(r"cp\.async\.c[ag]\.shared\.global[^;]*, 0x10\b", ptx))
    return Artifact(
        name=launch.name,
        arch=arch,
        registers=registers,
        spilled=spilled,
        shared=compiled.metadata.shared,
        warps=compiled.metadata.num_warps,
        stages=compiled.metadata.num_stages,
        mma=len(re.findall(r"\bmma\.sync", ptx)),
        wgmma=len(re.findall(r"\bwgmma\.mma_async", ptx)),
        rows=_rows(compiled.asm["ttgir"]),
        wide_loads=wide,
        narrow_loads=loads - wide,
    )


def _rows(ttgir: str) -> int:
    products = r"(?:tt\.dot|ttng\.warp_group_dot) .*-> tensor<(\d+)x\d+x\w+, #mma\d*>"
    return min(map(int, re.findall(products, ttgir)), default=0)


def resident_warps(row: Mapping[str, Any]) -> int:
    """How many warps one processor of the chip can hold, by registers and shared memory.

    Args:
        row: ``arch``, ``registers``, ``shared`` and ``warps`` of an :class:`Artifact`.

    Returns:
        Warps of as many whole programs as fit, at most 64. 0 if not one does.
    """
    if row["shared"] > SHARED[row["arch"]]:
        return 0
    registers = -(-row["registers"] // 8) * 8 * 32 * row["warps"]  # given out in eights
    # one kilobyte of the processor's memory stands beside what a single program may take
    shared = (SHARED[row["arch"]] + KEPT) // (row["shared"] + KEPT)
    programs = min(REGISTERS // registers, shared, WARPS // row["warps"], PROGRAMS)
    return int(programs * row["warps"])


def _assembled(ptx: str, arch: int) -> tuple[int, int]:
    """Registers of a thread and bytes spilled, from the assembler that ships with Triton."""
    assembler = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    target = re.search(r"\.target (\S+)", ptx)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "kernel.ptx"
        text.write_text(ptx)
        said = subprocess.run(
            [
                *(str(assembler), "-v", "--gpu-name", target[1] if target else f"sm_{arch}"),
                *("-o", str(Path(folder) / "kernel.cubin"), str(text)),
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stderr
    registers = re.search(r"Used (\d+) registers", said)
    spilled = re.findall(r"(\d+) bytes spill (?:stores|loads)", said)
    return int(registers[1]) if registers else 0, sum(map(int, spilled))


def _operator(module: str, name: str) -> Callable[..., Any]:
    found = getattr(importlib.import_module(f"attn_course.kernels.{module}"), name)
    plain: Callable[..., Any] = getattr(found, "_init_fn", found)
    return plain


def catalogue(dtype: torch.dtype = torch.bfloat16, *, arch: int = 80) -> list[Launch]:
    """Every launch of the package at sizes that a model has, recorded on tensors without memory.

    Args:
        dtype: Of the inputs.
        arch: Compute capability times ten; launchers choose tiles by it.
    """
    found: list[Launch] = []
    assumed, ASSUMED[0] = ASSUMED[0], arch

    def take(label: str, module: str, name: str, *args: Any) -> None:
        with recorded() as launches:
            _operator(module, name)(*args)
        found.extend(
            dataclasses.replace(one, name=f"{one.name} {label}".strip()) for one in launches
        )

    def empty(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.empty(*shape, dtype=dtype, device="meta")

    take("", "copy", "copy", empty(1 << 24))
    take("4096", "softmax", "_softmax", empty(8192, 4096))
    take("4096", "softmax", "_softmax_backward", empty(8192, 4096), empty(8192, 4096))
    take("4096", "layer_norm", "_layer_norm", empty(8192, 4096), empty(4096), empty(4096), 1e-5)
    mean = empty(8192, dtype=torch.float32)
    rows = empty(8192, 4096)
    take("4096", "layer_norm", "_layer_norm_backward", rows, empty(4096), mean, mean, rows)
    take("4096³", "matmul", "_matmul", empty(4096, 4096), empty(4096, 4096))
    for head_dim in (64, 128, 256):
        heads = empty(4, 16, 4096, head_dim)
        lse = empty(4, 16, 4096, dtype=torch.float32)
        for label, window in (("causal", None), ("window", 256)):
            if window is not None and head_dim != 128:
                continue
            options = (True, window, head_dim**-0.5)
            said = f"{label} d{head_dim}"
            take(said, "flash_attention", "_flash", heads, heads, heads, *options)
            take(
                said, "flash_attention", "_flash_backward",
                heads, heads, heads, heads, lse, heads, lse, *options,
            )  # fmt: skip
    query, cache = empty(8, 32, 128), empty(8, 8, 32768, 128)
    lengths = empty(8, dtype=torch.int32)
    take("d128", "decode_attention", "_whole", query, cache, cache, lengths, 128**-0.5, 0)
    pool, table = empty(16384, 16, 8, 128), empty(8, 2048, dtype=torch.int32)
    take(
        "d128 paged", "decode_attention", "_paged",
        query, pool, pool, table, lengths, 128**-0.5, 0,
    )  # fmt: skip
    heads = empty(2, 12, 4096, 64)
    take("window 513", "banded_matmul", "_banded", heads, heads, 256, 513, 1, -math.inf)
    take("window 513", "banded_matmul", "_summed", empty(2, 12, 4096, 513), heads, 256, 1, False)
    for size in (64, 128):
        x = empty(4, 16, 4096, size)
        inverse = empty(4, 16, 4096, dtype=torch.float32)
        take(f"d{size}", "linear_attention", "_linear", x, x, x, 64)
        take(
            f"backward d{size}", "linear_attention", "_linear_backward",
            x, x, x, x, inverse, x, 64,
        )  # fmt: skip
    ASSUMED[0] = assumed
    results = {0: "output", 1: "query", 2: "key", 3: "value"}
    return [
        dataclasses.replace(
            one, name=one.name.replace("chunk backward", f"{results[one.arguments['RESULT']]}")
        )
        if "RESULT" in one.arguments
        else one
        for one in found
    ]


def comparison(
    record: Mapping[str, Any] | None,
    *names: str,
    dtype: str = "float16",
    arches: Sequence[int] = (80, 90),
) -> str:
    """Recorded figures of some kernels, ours beside those of peers of the same name, as a table.

    Args:
        record: What ``load_results("kernel_artifacts")`` gives.
        names: Names of launches, such as ``"flash_forward causal d128"``.
        dtype: Of the inputs.
        arches: Compute capabilities.

    Returns:
        A line for each kernel and capability, and a last one with versions, date and commit; or a
        line that says that nothing has been recorded. The column ``warps`` is that of
        :func:`resident_warps`.

    Raises:
        ValueError: If nothing is recorded under a name.
    """
    if record is None:
        return "python benchmarks/kernels.py --artifacts has not been run for this copy"
    lines = [
        "kernel                       of              sm  regs spilled  shared  warps  mma wgmma"
        "  loads: 16 bytes, other"
    ]
    used = set()
    for name in names:
        found = [
            (part, row)
            for part, run in record["parts"].items()
            for row in run["measured"]
            if row["name"] == name and row["arch"] in arches and row["dtype"] == dtype
        ]
        if not found:
            raise ValueError(f"names: expected a recorded kernel, got {name!r} in {dtype}")
        # ours before the others
        found.sort(key=lambda pair: (pair[1]["arch"], not pair[0].startswith("package")))
        for part, row in found:
            used.add(part)
            of = part.split()[0]
            start = f"{name:28s} {'ours' if of == 'package' else of:14s} {row['arch']:3d}"
            if "error" in row:
                lines.append(f"{start}  {row['error']}")
                continue
            fits = " " if row["shared"] <= SHARED[row["arch"]] else "!"
            lines.append(
                f"{start} {row['registers']:5d} {row['spilled']:7d} {row['shared']:7d}{fits}"
                f"{resident_warps(row):6d} {row['mma']:4d} {row['wgmma']:5d}  "
                f"{row['wide_loads']:15d} {row['narrow_loads']:6d}"
            )
    runs = {(record["parts"][part]["date"][:10], record["parts"][part]["commit"]) for part in used}
    said = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    when = "; ".join(f"{date} at commit {commit}" for date, commit in sorted(runs))
    return "\n".join([*lines, f"{dtype}, {said}, compiled {when}"])


def main() -> None:
    """Print a table, or with ``--json`` a list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", default="", help="a text in the name of the launch")
    parser.add_argument("--arch", type=int, action="append", help="80, 90 (default: both)")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    found = [
        measure(x, arch=arch)
        for arch in chosen.arch or (80, 90)
        for x in catalogue(getattr(torch, chosen.dtype), arch=arch)
        if chosen.name in x.name
    ]
    if not found:
        sys.exit(f"no launch contains {chosen.name!r}")
    if chosen.json:
        print(json.dumps([dataclasses.asdict(x) for x in found], indent=1))
        return
    print(
        f"{'launch':36s}  sm  regs spill  shared warps stages  mma wgmma rows"
        "  loads of 16 bytes, other"
    )
    for x in found:
        print(
            f"{x.name:36s}  {x.arch} {x.registers:5d} {x.spilled:5d} {x.shared:7d} {x.warps:5d} "
            f"{x.stages:6d} {x.mma:4d} {x.wgmma:5d} {x.rows:4d}  {x.wide_loads:17d} "
            f"{x.narrow_loads:6d}"
        )


if __name__ == "__main__":
    main()
