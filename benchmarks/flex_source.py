"""The Triton source that FlexAttention generates for a GPU that need not be there.

``python benchmarks/flex_source.py --arch 90 --head-dim 128 --dtype float16`` prints JSON: name,
source, warps and stages of the causal forward and backward kernel, as torch's compiler chooses them
without tuning. A process of its own, as torch is told here that it has that GPU.
"""

import argparse
import ast
import json
import math
import os
import sys
import types
from typing import Any

os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"

import torch
from torch._higher_order_ops.flex_attention import flex_attention as flex_operator
from torch._inductor import codecache
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torch.utils._pytree import tree_map
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

BATCH, HEADS, LENGTH, BLOCK = 4, 16, 4096, 128
PARTS = tuple(
    f"{full}{side}_{what}"
    for side in ("kv", "q")
    for full in ("", "full_")
    for what in ("num_blocks", "indices")
)
OPTIONS = {
    "BACKEND": "TRITON",
    "PRESCALE_QK": False,
    "ROWS_GUARANTEED_SAFE": False,
    "BLOCKS_ARE_CONTIGUOUS": False,
    "WRITE_DQ": True,
    "OUTPUT_LOGSUMEXP": True,
    "OUTPUT_MAX": False,
}


def pretend(arch: int) -> None:
    """Answer torch's and Triton's questions about the device."""
    from torch._dynamo import device_interface

    properties = types.SimpleNamespace(
        name="", major=arch // 10, minor=arch % 10, gcnArchName="", warp_size=32,
        multi_processor_count={80: 108, 90: 132}[arch], regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048, max_threads_per_block=1024, total_memory=80 << 30,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin={80: 163, 90: 227}[arch] << 10,
    )  # fmt: skip
    torch.cuda.get_device_properties = lambda *_: properties
    torch.cuda.get_device_capability = lambda *_: (arch // 10, arch % 10)
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_tf32_supported = lambda: True
    device_interface.CudaInterface.get_device_properties = staticmethod(lambda *_: properties)
    device_interface.caching_worker_device_properties["cuda"] = [properties]
    device_interface.caching_worker_current_devices["cuda"] = 0
    device: Any = types.SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", arch, 32), get_current_device=lambda: 0
    )
    driver.set_active(device)
    driver._default = device


def score_mod(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
    """The scores as they are."""
    return score


def mask_mod(b: Any, h: Any, m: Any, n: Any) -> Any:
    """Causal."""
    return m >= n


def traced(head_dim: int, dtype: torch.dtype, fake: FakeTensorMode) -> tuple[Any, list[Any]]:
    """The graph of forward and backward, and its inputs, none of which has memory."""
    blocks = create_block_mask(mask_mod, None, None, LENGTH, LENGTH, device="cpu", BLOCK_SIZE=BLOCK)
    with fake:
        tensors = [torch.empty(BATCH, HEADS, LENGTH, head_dim, dtype=dtype) for _ in range(4)]
        parts = [torch.empty(getattr(blocks, name).shape, dtype=torch.int32) for name in PARTS]

    def step(query: Any, key: Any, value: Any, grad: Any, *parts: Any) -> Any:
        leaves = [x.detach().requires_grad_() for x in (query, key, value)]
        whole: Any = dict(zip(PARTS, parts, strict=True))
        mask = BlockMask(
            seq_lengths=(LENGTH, LENGTH), **whole, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=mask_mod
        )
        output, _, _ = flex_operator(
            *leaves, score_mod, mask.as_tuple(), 1 / math.sqrt(head_dim), OPTIONS, (), ()
        )
        return (output.detach(), *torch.autograd.grad(output, leaves, grad))

    with fake:
        graph = make_fx(step, tracing_mode="real")(*tensors, *parts)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    # traced on the processor; from here on everything lies on the GPU that is not there
    for module in graph.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                tree_map(_moved, node.meta.get("val"))
    return graph, [_moved(x) for x in (*tensors, *parts)]


def _moved(value: Any) -> Any:
    if isinstance(value, FakeTensor):
        value.fake_device = torch.device("cuda:0")
    return value


def generated(arch: int, head_dim: int, dtype: torch.dtype) -> list[dict[str, Any]]:
    """Name, source, warps and stages of the kernels, forward first."""
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    graph, inputs = traced(head_dim, dtype, fake)
    pretend(arch)
    sources: list[str] = []
    load = codecache.PyCodeCache.load

    def note(source_code: str, *args: Any, **kwargs: Any) -> Any:
        sources.append(source_code)
        return load(source_code, *args, **kwargs)

    codecache.PyCodeCache.load = note  # type: ignore[assignment, method-assign]
    lowering = GraphLowering(graph, example_inputs=inputs)
    with V.set_graph_handler(lowering), V.set_fake_mode(fake), V.set_extern_kernel_nodes([]):
        lowering.run(*inputs)
    return [_described(source) for source in sources if "flex_attention" in source]


def _described(source: str) -> dict[str, Any]:
    """What the decorator of the generated kernel says about it."""
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call):
                given = {word.arg: word.value for word in decorator.keywords}
                return {
                    "name": node.name,
                    "source": source,
                    "num_warps": ast.literal_eval(given["num_warps"]),
                    "num_stages": ast.literal_eval(given["num_stages"]),
                    "signature": _signature(given["triton_meta"]),
                }
    raise ValueError("source: expected a kernel with triton_heuristics.template")


def _signature(meta: ast.expr) -> dict[str, str]:
    """The pointers' types by the names of the arguments."""
    assert isinstance(meta, ast.Dict)
    for key, value in zip(meta.keys, meta.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "signature":
            found: dict[str, str] = ast.literal_eval(value)
            return found
    raise ValueError("triton_meta: expected a signature")


def main() -> None:
    """Print the kernels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--arch", type=int, default=90, choices=[80, 90])
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16", "float32"])
    chosen = parser.parse_args()
    found = generated(chosen.arch, chosen.head_dim, getattr(torch, chosen.dtype))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
