"""Ring attention: queries stay, keys and values go round, and partial results are joined."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from attn_course.distributed.group import HandOver, Member, agree, member
from attn_course.distributed.schedule import LAYOUTS, check_layout, ring_block, ring_tile
from attn_course.distributed.traffic import Traffic, current
from attn_course.functional.scaled_dot_product import merge_attention
from attn_course.functional.tiled_attention import _tiled_gradients, tiled_attention


class Block(NamedTuple):
    """How one process computes with one block of keys; a fused kernel takes this form too.

    Attributes:
        forward: ``forward(query, key, value, is_causal=, scale=, enable_gqa=)`` gives output and
            natural log-sum-exp, as ``kernels.flash_attention_with_lse`` does.
        backward: ``backward(query, key, value, output, lse, grad, is_causal=, scale=)`` gives what
            this block adds to the gradients of query, key and value. Output and log-sum-exp are
            those over all blocks.
    """

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]


def _tiled_backward(
    query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, grad: Tensor,
    *, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    kv_heads = key.shape[1]
    query, output, lse, grad = (x.unflatten(1, (kv_heads, -1)) for x in (query, output, lse, grad))
    dquery, dkey, dvalue = _tiled_gradients(
        query, key[:, :, None], value[:, :, None], output, lse, grad, torch.zeros_like(lse),
        is_causal, scale, query_tile=256, key_tile=256,
    )  # fmt: skip
    return dquery.flatten(1, 2), dkey[:, :, 0], dvalue[:, :, 0]


def _tiled_forward(
    query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool, scale: float, enable_gqa: bool
) -> tuple[Tensor, Tensor]:
    return tiled_attention(
        query, key, value,
        is_causal=is_causal, scale=scale, enable_gqa=enable_gqa, query_tile=256, key_tile=256,
    )  # fmt: skip


TILED = Block(_tiled_forward, _tiled_backward)
"""Plain torch, in tiles of 256: no table of scores, on any device."""


def ring_attention(
    query: Float[Tensor, "B H l E"],
    key: Float[Tensor, "B G s E"],
    value: Float[Tensor, "B G s Ev"],
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    layout: str = "contiguous",
    block: Block = TILED,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "B H l Ev"]:
    r"""Attention over a sequence that lies in shards on the processes of a group.

    Every process calls it with its own shard and gets the output of its own queries. In each of P
    steps it computes with the keys and values at hand, which are on their way to the next process
    meanwhile, and joins what it finds:

    .. math:: \mathrm{lse} = \log \sum_b e^{\mathrm{lse}_b}, \qquad
       o = \sum_b e^{\mathrm{lse}_b - \mathrm{lse}}\, o_b

    Backward, keys and values go round once more, and their gradients with them: the weights are
    made again from the log-sum-exp of all blocks. Liu et al. (2023); the zigzag layout is that of
    load-balanced context parallelism, the striped one that of Brandon et al. (2023).

    Exact, but for the order of sums. A process holds its own shard, two blocks of keys and values,
    and no table of scores. It sends P - 1 messages forward and 2 P - 1 backward.

    Args:
        query: The queries of this process.
        key: Its keys.
        value: Its values, one row per key.
        is_causal: No query attends to a later key; ``layout`` says which keys are later.
        scale: What the dot products are multiplied with; 1/sqrt(E) if not given.
        enable_gqa: Query heads are a multiple of the key heads; only key heads are sent.
        layout: How :func:`split_sequence` has cut the sequence. ``"contiguous"`` shards may have
            different lengths. Under a causal mask they also have different work; ``"zigzag"`` and
            ``"striped"`` shards are balanced. Without a mask the layout does not matter.
        block: What computes one block.
        group: The processes; all by default. Gloo sends CPU tensors, NCCL those of GPUs.

    Returns:
        One row for each query of this process, in the dtype of the query. Partial results are
        joined, and gradients of keys and values added up, in float32 or better.

    Raises:
        ValueError: In *all* processes: if there is no process group, if shapes or dtypes do not fit
            in one of them, if two of them do not mean the same call, or if a causal mask meets
            shards that the layout does not allow.

    Note:
        All processes must call the backward pass too, in the same order. There is no second
        derivative. Positions that enter otherwise, such as rotary embeddings, are those of
        :func:`shard_positions`.
    """
    own = member(group)

    def check() -> None:
        check_layout(layout)
        if is_causal and query.shape[2] != key.shape[2]:
            raise ValueError(
                f"key: expected as many keys as queries with is_causal=True, {query.shape[2]}, "
                f"got {key.shape[2]}"
            )
        if is_causal and layout == "zigzag" and query.shape[2] % 2:
            raise ValueError(
                f"query: expected an even number of positions for layout zigzag, got "
                f"{query.shape[2]}"
            )

    shapes = agree(
        own, query, key, value,
        enable_gqa=enable_gqa, is_causal=is_causal, scale=scale, check=check,
        layout=LAYOUTS.index(layout) if layout in LAYOUTS else -1,
    )  # fmt: skip
    if is_causal and layout != "contiguous" and len(set(shapes.keys)) > 1:
        raise ValueError(f"key: expected equal shards for layout {layout}, got {shapes.keys}")
    scale = 1 / math.sqrt(max(1, query.shape[-1])) if scale is None else scale
    plan = _Plan(own, is_causal, scale, enable_gqa, layout, block, shapes.keys, current())
    output: Tensor = _Ring.apply(query, key, value, plan)
    return output


class _Plan(NamedTuple):
    own: Member
    is_causal: bool
    scale: float
    enable_gqa: bool
    layout: str
    block: Block
    lengths: Sequence[int]
    traffic: Traffic

    def tile(self, length: int, owner: int) -> Any:
        """What is to be done with the keys of ``owner``; None for nothing."""
        return ring_tile(
            self.own.rank, owner, (length, self.lengths[owner]),
            is_causal=self.is_causal, layout=self.layout,
        )  # fmt: skip

    def owner(self, step: int) -> int:
        return ring_block(self.own.world_size, step, self.own.rank)


class _Shapes(NamedTuple):
    """A block of keys and values, or of their gradients, as one message."""

    batch: int
    heads: int
    sizes: tuple[int, int]

    def pack(self, key: Tensor, value: Tensor) -> Tensor:
        return torch.cat([key.reshape(-1), value.reshape(-1)])

    def empty(self, length: int, like: Tensor) -> Tensor:
        return like.new_empty(self.batch * self.heads * length * sum(self.sizes))

    def unpack(self, flat: Tensor, length: int) -> tuple[Tensor, Tensor]:
        lead = self.batch, self.heads, length
        numbers = [self.batch * self.heads * length * size for size in self.sizes]
        key, value = flat.split(numbers)
        return key.view(*lead, self.sizes[0]), value.view(*lead, self.sizes[1])


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, plan: _Plan) -> Tensor:
        dtype, length = torch.promote_types(query.dtype, torch.float32), query.shape[2]
        world_size = plan.own.world_size
        shapes = _Shapes(key.shape[0], key.shape[1], (key.shape[3], value.shape[3]))
        output = query.new_zeros(*query.shape[:3], value.shape[3], dtype=dtype)
        lse = query.new_full(query.shape[:3], -math.inf, dtype=dtype)
        held = shapes.pack(key, value)
        for step in range(world_size):
            owner = plan.owner(step)
            if step + 1 < world_size:
                room = shapes.empty(plan.lengths[plan.owner(step + 1)], held)
                moving = HandOver(plan.own, held, room, plan.traffic, tag=0)
            tile = plan.tile(length, owner)
            if tile is None:
                plan.traffic.skipped += 1
            else:
                keys, values = shapes.unpack(held, plan.lengths[owner])
                part, part_lse = plan.block.forward(
                    query[:, :, tile.rows], keys[:, :, tile.columns], values[:, :, tile.columns],
                    is_causal=tile.is_causal, scale=plan.scale, enable_gqa=plan.enable_gqa,
                )  # fmt: skip
                plan.traffic.blocks += 1
                plan.traffic.pairs += tile.pairs
                rows = (slice(None), slice(None), tile.rows)
                output[rows], lse[rows] = merge_attention(
                    [output[rows], part.to(dtype)], [lse[rows], part_lse.to(dtype)]
                )
            if step + 1 < world_size:
                held = moving.wait()
        output = output.to(query.dtype)
        ctx.save_for_backward(query, key, value, output, lse)
        ctx.plan = plan
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise NotImplementedError(
                "ring_attention: create_graph, as it has no second derivative"
            )
        query, key, value, output, lse = ctx.saved_tensors
        plan: _Plan = ctx.plan
        length, world_size, dtype = query.shape[2], plan.own.world_size, lse.dtype
        shapes = _Shapes(key.shape[0], key.shape[1], (key.shape[3], value.shape[3]))
        dquery = torch.zeros_like(query, dtype=dtype)
        held = shapes.pack(key, value)
        coming: HandOver | None = None
        for step in range(world_size):
            owner = plan.owner(step)
            if step + 1 < world_size:
                room = shapes.empty(plan.lengths[plan.owner(step + 1)], held)
                moving = HandOver(plan.own, held, room, plan.traffic, tag=0)
            mine = torch.zeros_like(shapes.empty(plan.lengths[owner], lse))
            tile = plan.tile(length, owner)
            if tile is not None:
                keys, values = shapes.unpack(held, plan.lengths[owner])
                rows = (slice(None), slice(None), tile.rows)
                columns = (slice(None), slice(None), tile.columns)
                parts = plan.block.backward(
                    query[rows], keys[columns], values[columns], output[rows], lse[rows],
                    grad[rows], is_causal=tile.is_causal, scale=plan.scale,
                )  # fmt: skip
                dquery[rows] += parts[0]
                for whole, part in zip(
                    shapes.unpack(mine, plan.lengths[owner]), parts[1:], strict=True
                ):
                    whole[columns] += part
            # the gradients of these keys, from those who had them before; then to the next one
            if coming is not None:
                mine += coming.wait()
            if world_size > 1:
                room = shapes.empty(plan.lengths[plan.owner(step + 1)], lse)
                coming = HandOver(plan.own, mine, room, plan.traffic, tag=1)
            if step + 1 < world_size:
                held = moving.wait()
        home = mine if coming is None else coming.wait()
        dkey, dvalue = shapes.unpack(home, key.shape[2])
        return dquery.to(query.dtype), dkey.to(key.dtype), dvalue.to(value.dtype), None
