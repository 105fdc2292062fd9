"""A process among others: who it is, whether all mean the same call, and what it hands on."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from attn_course._checks import check_axes, check_device, check_floating
from attn_course.distributed.traffic import Traffic


class Member(NamedTuple):
    """One process of a group.

    Attributes:
        group: The group.
        rank: Which process of the group.
        world_size: How many it has.
    """

    group: dist.ProcessGroup
    rank: int
    world_size: int


def member(group: dist.ProcessGroup | None) -> Member:
    """This process in a group, or in the group of all."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            "group: expected a process group, got none: start the program with torchrun and call "
            "torch.distributed.init_process_group, or use attn_course.distributed.launch"
        )
    found = dist.group.WORLD if group is None else group
    rank = dist.get_rank(found)
    if found is None or rank < 0:
        raise ValueError(f"group: expected one with this process in it, got rank {rank}")
    return Member(found, rank, dist.get_world_size(found))


class Shapes(NamedTuple):
    """What all processes of a call know.

    Attributes:
        queries: Length of the shard of queries of each process.
        keys: Length of the shard of keys of each process.
    """

    queries: list[int]
    keys: list[int]


DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMMON = (
    "batch size", "query heads", "key heads", "head size of query and key", "head size of value",
    "dtype", "is_causal", "layout", "scale",
)  # fmt: skip


def agree(
    own: Member,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    enable_gqa: bool,
    is_causal: bool,
    layout: int,
    scale: float | None,
    check: Callable[[], None],
) -> Shapes:
    """Tell the others what this process was called with, and refuse together what does not fit.

    A process that refuses its inputs alone would leave the others waiting for its keys.
    """
    problem: ValueError | None = None
    said = [0.0] * (len(COMMON) + 3)
    try:
        _check_inputs(own, query, key, value, enable_gqa)
        check()
        common = (
            query.shape[0], query.shape[1], key.shape[1], query.shape[3], value.shape[3],
            DTYPES.index(query.dtype), is_causal, layout, math.nan if scale is None else scale,
        )  # fmt: skip
        said = [1.0, query.shape[2], key.shape[2], *common]
    except ValueError as error:
        problem = error
    backend = dist.get_backend(own.group)
    place = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else "cpu"
    table = [torch.zeros(len(said), dtype=torch.float64, device=place) for _ in range(own[2])]
    mine = torch.tensor(said, dtype=torch.float64, device=place)
    dist.all_gather(table, mine, group=own.group)
    rows = torch.stack(table).tolist()
    if problem is not None:
        raise problem
    for rank, row in enumerate(rows):
        if not row[0]:
            raise ValueError(f"group: expected inputs that fit everywhere, got a refusal in {rank}")
        for name, here, there in zip(COMMON, said[3:], row[3:], strict=True):
            if here != there and not (math.isnan(here) and math.isnan(there)):
                raise ValueError(
                    f"{name}: expected the same in all processes, got {here:g} in process "
                    f"{own.rank} and {there:g} in process {rank}"
                )
    return Shapes([int(row[1]) for row in rows], [int(row[2]) for row in rows])


def _check_inputs(own: Member, query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> None:
    for name, rows in (("query", query), ("key", key), ("value", value)):
        check_axes(name, rows, "B H L E")
        check_floating(name, rows)
        check_device(name, rows, query)
        if rows.dtype not in DTYPES:
            raise ValueError(f"{name}: expected one of {DTYPES}, got {rows.dtype}")
        if not rows.shape[2]:
            raise ValueError(f"{name}: expected at least one position, got {tuple(rows.shape)}")
        if rows.dtype != query.dtype:
            raise ValueError(f"{name}: expected {query.dtype} as query, got {rows.dtype}")
    if dist.get_backend(own.group) == "nccl" and query.device.type != "cuda":
        raise ValueError(f"query: expected a CUDA tensor for backend nccl, got {query.device}")
    heads, kv_heads = query.shape[1], key.shape[1]
    if heads != kv_heads and not (enable_gqa and kv_heads and heads % kv_heads == 0):
        wanted = f"a divisor of {heads} heads" if enable_gqa else f"{heads} heads"
        raise ValueError(f"key: expected {wanted}, got {kv_heads}")
    keys = (query.shape[0], kv_heads, key.shape[2], query.shape[3])
    if tuple(key.shape) != keys:
        raise ValueError(f"key: expected shape {keys}, got {tuple(key.shape)}")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(
            f"value: expected shape {tuple(key.shape[:3])} and a head size, got "
            f"{tuple(value.shape)}"
        )


class HandOver:
    """A message to the next process and one from the previous, both under way."""

    def __init__(
        self, own: Member, sent: Tensor, received: Tensor, traffic: Traffic, *, tag: int
    ) -> None:
        def peer(rank: int) -> int:
            return dist.get_global_rank(own.group, rank % own.world_size)

        self.sent, self.received = sent, received  # alive until both have arrived
        ops = [
            dist.P2POp(dist.isend, sent, peer(own.rank + 1), own.group, tag),
            dist.P2POp(dist.irecv, received, peer(own.rank - 1), own.group, tag),
        ]
        traffic.messages += 1
        traffic.nbytes += sent.numel() * sent.element_size()
        self.works = dist.batch_isend_irecv(ops)

    def wait(self) -> Tensor:
        """What came from the previous process."""
        for work in self.works:
            work.wait()
        return self.received
