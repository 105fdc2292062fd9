"""What the compiler makes of our kernels and of two peers', without a GPU.

``python benchmarks/kernels.py --artifacts`` runs it (some minutes of processor time for each
dtype); pages read the results with ``attn_course.kernels.artifact.comparison``. The peers are
compiled by the same functions as ours:

- FlexAttention's causal kernels as torch generates them without tuning (``flex_source.py``);
- the causal kernels of Triton's tutorial on fused attention, whose source is no part of this
  repository: ``--tutorial FILE`` takes a copy of the file named in ``TUTORIAL``. Its forward kernel
  is tuned on the device among several tiles; all those with three stages are compiled, and the one
  that spills least counts, the largest of several.
"""

import ast
import dataclasses
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import harness
import torch
from torch import Tensor

NAME = "kernel_artifacts"
ARCHES = (80, 90)
DTYPES = ("float16", "bfloat16", "float32")
HEAD_DIMS = (64, 128, 256)
TUTORIAL = (
    "https://github.com/triton-lang/triton/blob/dc6ee3ed2cf9b2b436544d6153351f9bc679cc61/"
    "python/tutorials/06-fused-attention.py"
)
POINTERS = {"*fp16": torch.float16, "*bf16": torch.bfloat16, "*fp32": torch.float32}
POINTERS |= {"*i32": torch.int32, "*i64": torch.int64}


def jitted(source: str) -> str:
    """Only the functions under ``triton.jit``, without other decorators, and what they import."""
    kept: list[ast.stmt] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("torch._inductor"):
            kept.append(node)
        if not isinstance(node, ast.FunctionDef):
            continue
        plain = [x for x in node.decorator_list if ast.unparse(x) == "triton.jit"]
        if plain:
            node.decorator_list = list(plain)
            kept.append(node)
    text = "\n\n\n".join(ast.unparse(ast.fix_missing_locations(node)) for node in kept)
    return f"import triton\nimport triton.language as tl\n\n{text}\n"


def load(source: str, folder: Path, name: str) -> ModuleType:
    """The functions as a module in a file, where Triton looks for the source."""
    path = folder / f"{name}.py"
    path.write_text(jitted(source))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path}: cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def measured(launch: Any, arch: int, **more: Any) -> dict[str, Any]:
    """One row, or the error in place of the figures."""
    from attn_course.kernels import artifact

    about = {"name": launch.name, "arch": arch, **more}
    try:
        return about | dataclasses.asdict(artifact.measure(launch, arch=arch))
    except Exception as error:
        return about | {"error": f"{type(error).__name__}: {str(error).splitlines()[0][:200]}"}


def ours(dtype: str) -> Iterator[dict[str, Any]]:
    """Every kernel of the package; in float32 without sizes that only repeat what others show."""
    from attn_course.kernels import artifact

    for arch in ARCHES:
        seen = set()
        for launch in artifact.catalogue(getattr(torch, dtype), arch=arch):
            if dtype == "float32" and ("d256" in launch.name or "window" in launch.name):
                continue
            if launch.name not in seen:
                seen.add(launch.name)
                yield measured(launch, arch, dtype=dtype)


def flex(dtype: str) -> Iterator[dict[str, Any]]:
    """FlexAttention's kernels, each generated for its architecture in a process of its own."""
    from attn_course.kernels import artifact

    script = Path(__file__).with_name("flex_source.py")
    for head_dim in HEAD_DIMS:
        for arch in ARCHES:
            words = ["--arch", str(arch), "--head-dim", str(head_dim), "--dtype", dtype]
            done = subprocess.run(
                [sys.executable, str(script), *words], capture_output=True, text=True
            )
            if done.returncode:
                raise SystemExit(
                    f"flex_source.py {' '.join(words)}: {done.stderr.splitlines()[-1]}"
                )
            for kernel, way in zip(json.loads(done.stdout), ("forward", "backward"), strict=True):
                with tempfile.TemporaryDirectory() as folder:
                    name = f"flex_{way}_{head_dim}_{arch}_{dtype}"
                    module = load(kernel["source"], Path(folder), name)
                    launch = artifact.Launch(
                        name=f"flash_{way} causal d{head_dim}",
                        kernel=getattr(module, kernel["name"]),
                        grid=(1,),
                        arguments={
                            argument: torch.empty(16, dtype=POINTERS[kind], device="meta")
                            for argument, kind in kernel["signature"].items()
                        },
                        options={x: kernel[x] for x in ("num_warps", "num_stages")},
                    )
                    yield measured(launch, arch, dtype=dtype)


def tutorial(source: str) -> Iterator[dict[str, Any]]:
    """The tutorial's kernels in float16, the one dtype that they compute in."""
    from attn_course.kernels import artifact

    with tempfile.TemporaryDirectory() as folder:
        module = load(source, Path(folder), "fused_attention_tutorial")
        for head_dim in HEAD_DIMS:
            rows = torch.empty(4, 16, 4096, head_dim, dtype=torch.float16, device="meta")
            sums = torch.empty(4, 16, 4096, dtype=torch.float32, device="meta")
            for arch in ARCHES:
                found = []
                for tile in ((128, 64), (128, 32), (64, 64), (64, 32)):
                    launch = _forward_launch(module, rows, sums, tile)
                    found.append(measured(launch, arch, dtype="float16", tile=list(tile)))
                fits = [x for x in found if x.get("shared", 1 << 20) <= artifact.SHARED[arch]]
                yield min(fits, key=lambda x: x["spilled"])
                yield measured(_backward_launch(module, rows, sums), arch, dtype="float16")


def _forward_launch(module: ModuleType, rows: Tensor, sums: Tensor, tile: tuple[int, int]) -> Any:
    from attn_course.kernels import artifact

    kernel, head_dim = module._attn_fwd, rows.shape[-1]
    values = (rows, rows, rows, 0.125, sums, rows, *rows.stride() * 4, *rows.shape[:3])
    arguments = dict(zip(kernel.arg_names, values, strict=False))
    arguments |= {"HEAD_DIM": head_dim, "BLOCK_M": tile[0], "BLOCK_N": tile[1], "STAGE": 3}
    return artifact.Launch(
        name=f"flash_forward causal d{head_dim}", kernel=kernel, grid=(1,), arguments=arguments,
        options={"num_warps": 4, "num_stages": 3},
    )  # fmt: skip


def _backward_launch(module: ModuleType, rows: Tensor, sums: Tensor) -> Any:
    from attn_course.kernels import artifact

    kernel, head_dim = module._attn_bwd, rows.shape[-1]
    values = (*(rows,) * 3, 0.125, *(rows,) * 4, sums, sums, *rows.stride(), *rows.shape[1:3])
    arguments = dict(zip(kernel.arg_names, values, strict=False))
    arguments |= {"BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32}
    arguments |= {"BLK_SLICE_FACTOR": 2, "HEAD_DIM": head_dim}
    return artifact.Launch(
        name=f"flash_backward causal d{head_dim}", kernel=kernel, grid=(1,), arguments=arguments,
        options={"num_warps": 4, "num_stages": 5},
    )  # fmt: skip


def table(record: dict[str, Any]) -> str:
    """The results in Markdown."""
    from attn_course.kernels import artifact

    lines = [
        "*resident*: warps that one processor of the chip holds at once, by registers and shared",
        "memory. *rows*: of the tile that a matrix product makes, the fewest; 0 where none is left",
        "to matrix instructions. A wgmma takes 64 rows at least: on sm_90 a tile with fewer is",
        "made by mma.",
        "",
    ]
    for part, found in record["parts"].items():
        lines += [
            f"## {part}", "",
            "| kernel | sm | registers | spilled | shared | warps | stages | resident | mma "
            "| wgmma | rows | 16-byte loads | other |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
            "| ---: |",
        ]  # fmt: skip
        for row in found["measured"]:
            if "error" in row:
                lines.append(f"| {row['name']} | {row['arch']} | {row['error']} |" + " |" * 10)
                continue
            figures = (
                "registers", "spilled", "shared", "warps", "stages", "resident", "mma", "wgmma",
                "rows", "wide_loads", "narrow_loads",
            )  # fmt: skip
            shown = {**row, "resident": artifact.resident_warps(row)}
            cells = " | ".join(str(shown[name]) for name in figures)
            lines.append(f"| {row['name']} | {row['arch']} | {cells} |")
        lines += ["", f"Compiled {found['date']} at commit {found['commit']}.", ""]
    named = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines.append(f"{named}; no GPU. The tutorial: <{record['tutorial']}>")
    return "\n".join(lines) + "\n"


def run(parts: list[str], dtypes: list[str], tutorial_file: Path | None) -> None:
    """Compile what is asked for, and keep it part by part."""
    for part in parts:
        if part == "tutorial":
            if tutorial_file is None:
                print(f"tutorial: left out; --tutorial FILE takes a copy of {TUTORIAL}")
                continue
            _keep("tutorial float16", list(tutorial(tutorial_file.read_text(encoding="utf-8"))))
            continue
        for dtype in dtypes:
            _keep(f"{part} {dtype}", list({"package": ours, "flexattention": flex}[part](dtype)))


def _keep(part: str, rows: list[dict[str, Any]]) -> None:
    kept = harness.keep(
        NAME, part, rows, {"tutorial": TUTORIAL}, seed=0, packages=("torch", "triton"),
        table=table, script=Path(__file__),
    )  # fmt: skip
    # where pages read recorded results
    (harness.ROOT / "experiments" / "results" / kept.name).write_text(kept.read_text())
