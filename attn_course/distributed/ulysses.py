"""Attention by an exchange: shards of the sequence for all heads become some heads of all of it."""

from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor

from attn_course.distributed.group import Member, agree, member
from attn_course.distributed.traffic import Traffic, current
from attn_course.functional.scaled_dot_product import AttentionFn, scaled_dot_product_attention


def ulysses_attention(
    query: Float[Tensor, "B H l E"],
    key: Float[Tensor, "B G s E"],
    value: Float[Tensor, "B G s Ev"],
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    attn_fn: AttentionFn = scaled_dot_product_attention,
    group: dist.ProcessGroup | None = None,
) -> Float[Tensor, "B H l Ev"]:
    """Attention over a sequence that lies in contiguous shards on the processes of a group.

    An all-to-all gives every process the whole sequence for ``H / P`` of the heads; any attention
    function computes them; a second all-to-all brings the outputs back. Jacobs et al. (2023).

    Args:
        query: The queries of this process, all heads.
        key: Its keys.
        value: Its values, one row per key.
        is_causal: Query i of the *whole* sequence attends to keys 0 to i.
        scale: What the dot products are multiplied with; 1/sqrt(E) if not given.
        enable_gqa: Query heads are a multiple of the key heads.
        attn_fn: What computes whole sequences, ``kernels.flash_attention`` for one.
        group: The processes; all by default.

    Returns:
        One row for each query of this process.

    Raises:
        ValueError: In *all* processes: as :func:`ring_attention`, if shards differ in length, or if
            the number of heads, of keys too, is no multiple of the number of processes.
    """
    own = member(group)

    def check() -> None:
        for name, rows in (("query", query), ("key", key)):
            if rows.shape[1] % own.world_size:
                raise ValueError(
                    f"{name}: expected a number of heads that the {own.world_size} processes "
                    f"divide, got {rows.shape[1]}"
                )

    shapes = agree(
        own, query, key, value,
        enable_gqa=enable_gqa, is_causal=is_causal, layout=0, scale=scale, check=check,
    )  # fmt: skip
    for name, lengths in (("query", shapes.queries), ("key", shapes.keys)):
        if len(set(lengths)) > 1:
            raise ValueError(f"{name}: expected equal shards, got lengths {lengths}")
    traffic = current()
    whole = [_Exchange.apply(rows, own, True, traffic) for rows in (query, key, value)]
    output = attn_fn(*whole, is_causal=is_causal, scale=scale, enable_gqa=enable_gqa)
    back: Tensor = _Exchange.apply(output, own, False, traffic)
    return back


def exchange_heads(
    rows: Float[Tensor, "B h l E"], *, gather: bool = True, group: dist.ProcessGroup | None = None
) -> Float[Tensor, "B g m E"]:
    """The all-to-all by itself: positions for heads, and back.

    Args:
        rows: Equal shapes in all processes.
        gather: From ``(B, H, L / P, E)`` to ``(B, H / P, L, E)``; otherwise back.
        group: The processes; all by default.

    Returns:
        The heads of this process, or its positions; the gradient takes the way back.

    Raises:
        ValueError: If the axis that is cut is no multiple of the number of processes.
    """
    own = member(group)
    dim, name = (1, "heads") if gather else (2, "positions")
    if rows.shape[dim] % own.world_size:
        raise ValueError(
            f"rows: expected a number of {name} that the {own.world_size} processes divide, got "
            f"{rows.shape[dim]}"
        )
    result: Tensor = _Exchange.apply(rows, own, gather, current())
    return result


def _exchange(rows: Tensor, own: Member, gather: bool, traffic: Traffic) -> Tensor:
    if own.world_size == 1:
        return rows.clone()
    cut, joined = (1, 2) if gather else (2, 1)
    sent = torch.stack(rows.chunk(own.world_size, dim=cut))  # one part for each process
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=own.group)
    traffic.messages += own.world_size - 1
    traffic.nbytes += sent[1:].numel() * sent.element_size()
    return torch.cat(received.unbind(0), dim=joined)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, own: Member, gather: bool, traffic: Traffic) -> Tensor:
        ctx.options = own, gather, traffic
        return _exchange(rows, own, gather, traffic)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        own, gather, traffic = ctx.options
        return _Exchange.apply(grad, own, not gather, traffic), None, None, None
