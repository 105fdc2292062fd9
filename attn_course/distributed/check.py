"""Compare sharded attention with whole attention, on the devices at hand.

``torchrun --nproc-per-node 4 -m attn_course.distributed.check`` does it on GPUs through NCCL where
there are any, otherwise on CPUs through Gloo; chapter 19 calls :func:`check` in four processes.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from attn_course.distributed.ring import ring_attention
from attn_course.distributed.schedule import split_sequence
from attn_course.distributed.traffic import counted
from attn_course.distributed.ulysses import ulysses_attention
from attn_course.functional.scaled_dot_product import scaled_dot_product_attention


def check(
    length: int = 48,
    *,
    num_heads: int = 4,
    num_kv_heads: int = 4,
    head_dim: int = 5,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
    group: dist.ProcessGroup | None = None,
) -> list[dict[str, Any]]:
    """What this process finds: largest differences, and its counts.

    Every process makes the whole sequence, which is what the sharded functions avoid, computes
    ordinary attention and its gradients on it, and compares its own shards.

    Args:
        length: Of the whole sequence, a multiple of twice the number of processes.
        num_heads: Heads of queries.
        num_kv_heads: Heads of keys.
        head_dim: Entries of a head.
        dtype: Of all tensors.
        seed: Of the numbers, the same in every process.
        group: The processes; all by default.

    Returns:
        A dict for each way, with ``way``, ``is_causal``, ``layout``, ``output`` and ``gradient``
        (the largest differences), ``forward_bytes``, ``backward_bytes``, ``messages``, ``blocks``,
        ``skipped`` and ``pairs``.
    """
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    nccl = dist.get_backend(group) == "nccl"
    place = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")
    generator = torch.Generator().manual_seed(seed)
    heads = (num_heads, num_kv_heads, num_kv_heads, num_heads)
    query, key, value, push = (
        torch.randn(2, h, length, head_dim, generator=generator, dtype=torch.float64).to(dtype)
        for h in heads
    )
    rows: list[dict[str, Any]] = []
    for is_causal in (False, True):
        whole = [x.double().to(place).requires_grad_() for x in (query, key, value)]
        expected = scaled_dot_product_attention(
            *whole, is_causal=is_causal, enable_gqa=num_heads != num_kv_heads
        )
        grads = torch.autograd.grad(expected, whole, push.double().to(place))
        ways = [("ring", layout) for layout in ("contiguous", "zigzag", "striped")]
        if num_kv_heads % world_size == 0:
            ways.append(("ulysses", "contiguous"))
        for way, layout in ways:

            def own(x: Tensor, layout: str = layout) -> Tensor:
                return split_sequence(x.detach().to(place), world_size, layout)[rank]

            parts = [own(x).requires_grad_() for x in (query, key, value)]
            options: dict[str, Any] = {
                "is_causal": is_causal, "enable_gqa": num_heads != num_kv_heads, "group": group,
            }  # fmt: skip
            with counted() as traffic:
                if way == "ring":
                    output = ring_attention(*parts, layout=layout, **options)
                else:
                    output = ulysses_attention(*parts, **options)
            forward_bytes = traffic.nbytes
            found = torch.autograd.grad(output, parts, own(push))
            pairs = zip(found, grads, strict=True)
            rows.append(
                {
                    "way": way,
                    "is_causal": is_causal,
                    "layout": layout,
                    "output": _gap(output, own(expected)),
                    "gradient": max(_gap(mine, own(theirs)) for mine, theirs in pairs),
                    "forward_bytes": forward_bytes,
                    "backward_bytes": traffic.nbytes - forward_bytes,
                    "messages": traffic.messages,
                    "blocks": traffic.blocks,
                    "skipped": traffic.skipped,
                    "pairs": traffic.pairs,
                }
            )
    return rows


def _gap(mine: Tensor, theirs: Tensor) -> float:
    return float((mine.detach().double() - theirs.detach().double()).abs().max())


def check_groups(sizes: tuple[int, ...], **options: Any) -> dict[int, list[dict[str, Any]]]:
    """:func:`check` in rings of several sizes, by processes that were started once.

    Args:
        sizes: Of the rings; each divides the number of processes, which form several rings side by
            side.
        **options: For :func:`check`.

    Returns:
        What this process found in its ring of each size.
    """
    world_size, rank = dist.get_world_size(), dist.get_rank()
    found = {}
    for size in sizes:
        first = range(0, world_size, size)
        # every process has to take part in the making of every group
        rings = [dist.new_group(list(range(start, start + size))) for start in first]
        found[size] = check(**options, group=rings[rank // size])
    return found


def main() -> None:
    """Run under torchrun."""
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    world_size = dist.get_world_size()
    dtype = torch.float32
    rows = check(16 * world_size, num_heads=2 * world_size, num_kv_heads=world_size, dtype=dtype)
    if dist.get_rank() == 0:
        print(f"{world_size} processes, {dist.get_backend()}, {dtype}; largest differences here")
        for row in rows:
            mask = "causal" if row["is_causal"] else "full"
            print(
                f"{row['way']:8s} {row['layout']:11s} {mask:7s} output {row['output']:.1e} "
                f"gradient {row['gradient']:.1e} bytes {row['forward_bytes']} forward, "
                f"{row['backward_bytes']} backward"
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
