"""What the processes of tests/distributed do; in a module, so that they can import it."""

import inspect
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from mutation import mutant
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attn_course.distributed import ring_attention, split_sequence, ulysses_attention
from attn_course.distributed.ring import Block
from attn_course.distributed.traffic import counted
from attn_course.distributed.ulysses import exchange_heads
from attn_course.functional import attention_with_lse, scaled_dot_product_attention

double = torch.float64


def draw(
    L: int, S: int, H: int = 3, G: int = 3, E: int = 5, Ev: int = 7, B: int = 2, size: float = 1.0
) -> list[Tensor]:
    """Query, key, value and a gradient of the output: the same in all processes."""
    generator = torch.Generator().manual_seed(L + 31 * S + H)
    shapes = (B, H, L, E), (B, G, S, E), (B, G, S, Ev), (B, H, L, Ev)
    sizes = (size, size, 1.0, 1.0)
    return [
        factor * torch.randn(*shape, generator=generator, dtype=double)
        for shape, factor in zip(shapes, sizes, strict=True)
    ]


def uneven(x: Tensor) -> list[Tensor]:
    """Shards of 1, 2, 3 ... times as many positions."""
    P = dist.get_world_size()
    unit = x.shape[2] // (P * (P + 1) // 2)
    return list(x.split([unit * (rank + 1) for rank in range(P)], dim=2))


def gaps(
    inputs: list[Tensor],
    attention: Callable[..., Tensor] = ring_attention,
    *,
    dtype: torch.dtype = double,
    layout: str = "contiguous",
    split: Callable[[Tensor], list[Tensor]] | None = None,
    group: dist.ProcessGroup | None = None,
    **options: Any,
) -> tuple[float, float]:
    """Largest difference of the output, and of a gradient, from attention to the whole."""
    rank = dist.get_rank(group)
    cut = split or (lambda x: split_sequence(x, dist.get_world_size(group), layout))
    *whole, push = [x.to(dtype).double() for x in inputs]
    whole = [x.requires_grad_() for x in whole]
    exact = {key: options[key] for key in ("is_causal", "scale", "enable_gqa") if key in options}
    expected = scaled_dot_product_attention(*whole, **exact)
    grads = torch.autograd.grad(expected, whole, push)
    parts = [cut(x.detach().to(dtype))[rank].requires_grad_() for x in whole]
    if attention is not ulysses_attention:
        options["layout"] = layout
    output = attention(*parts, group=group, **options)
    assert output.dtype == dtype
    found = torch.autograd.grad(output, parts, cut(push.to(dtype))[rank])
    assert [x.dtype for x in found] == [dtype] * 3
    pairs = zip(found, grads, strict=True)
    return (
        distance(output, cut(expected)[rank]),
        max(distance(mine, cut(theirs)[rank]) for mine, theirs in pairs),
    )


def distance(mine: Tensor, theirs: Tensor) -> float:
    assert mine.shape == theirs.shape
    return float((mine.detach().double() - theirs.detach()).abs().max())


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.numel = max(self.numel, leaf.numel())
        return result


def plain_backward(
    query: Tensor, key: Tensor, value: Tensor, output: Tensor, lse: Tensor, grad: Tensor,
    *, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradient of a block, with its table of weights, for as many heads of keys as queries."""
    scores = query @ key.mT * scale
    if is_causal:
        scores = scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf)
    weights = (scores - lse[..., None]).exp()
    dscores = weights * (grad @ value.mT - (grad * output).sum(-1, keepdim=True)) * scale
    return dscores @ key, dscores.mT @ query, weights.mT @ grad


def refusal(call: Callable[[], object]) -> str:
    try:
        call()
    except ValueError as error:
        return str(error)
    return "accepted"


MUTANTS = {
    "the blocks are averaged": ("part.to(dtype)], [lse[rows], part_lse.to(dtype)]",
        "part.to(dtype)], [lse[rows], 0 * part_lse.to(dtype)]"),
    "the own keys always": ("held = moving.wait()\n        output",
        "moving.wait()\n        output"),
    "the gradients stay": ("mine += coming.wait()", "coming.wait()"),
    "the gradients do not come home": ("home = mine if coming is None else coming.wait()",
        "home = mine; coming.wait()"),
    "the mask of the wrong owner": ("tile = plan.tile(length, owner)\n            if tile is None",
        "tile = plan.tile(length, plan.owner(step + 1))\n" "            if tile is None"),
}  # fmt: skip


def run_all() -> dict[str, Any]:
    """Every case in one start: a start takes seconds, a case does not."""
    P, rank = dist.get_world_size(), dist.get_rank()
    L, found = 12 * P, {}
    for is_causal in (False, True):
        for layout in ("contiguous", "zigzag", "striped"):
            name = f"{layout} {'causal' if is_causal else 'full'}"
            same = {"layout": layout, "is_causal": is_causal}
            found[f"float64 {name}"] = gaps(draw(L, L), **same)
            found[f"float32 {name}"] = gaps(draw(L, L), **same, dtype=torch.float32)
            found[f"bfloat16 {name}"] = gaps(draw(L, L), **same, dtype=torch.bfloat16)
            grouped = draw(L, L, H=6, G=2, E=3)
            found[f"float64 gqa {name}"] = gaps(grouped, **same, enable_gqa=True, scale=0.7)
            short = 2 * P if layout == "zigzag" else P
            found[f"float64 shortest {name}"] = gaps(draw(short, short, E=1, Ev=1), **same)
            found[f"float64 large {name}"] = gaps(draw(L, L, size=30.0), **same)
        cases = P * (P + 1) // 2 * 3
        shards = gaps(draw(cases, cases), split=uneven, is_causal=is_causal)
        found[f"float64 uneven {is_causal}"] = shards
        for H, G in ((P, P), (2 * P, P)):
            for dtype in ("float64", "float32", "bfloat16"):
                found[f"{dtype} ulysses {H // G} {is_causal}"] = gaps(
                    draw(L, L, H=H, G=G), ulysses_attention,
                    is_causal=is_causal, enable_gqa=H != G, dtype=getattr(torch, dtype),
                )  # fmt: skip
    found["float64 cross"] = gaps(draw(5 * P, 7 * P))
    found["float64 cross ulysses"] = gaps(draw(5 * P, 7 * P, H=4, G=4), ulysses_attention)
    block = Block(attention_with_lse, plain_backward)
    found["float64 block"] = gaps(draw(L, L), block=block, is_causal=True, layout="zigzag")

    found |= counts(L) | together(L)
    for name, (old, new) in MUTANTS.items():
        wrong = mutant("attn_course.distributed.ring", "ring_attention", old, new)
        found[f"mutant {name}"] = max(gaps(draw(L, L), wrong, is_causal=True, layout="zigzag"))
    if P == 4:
        pair = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
        found["float64 group"] = gaps(draw(L, L), group=pair, is_causal=True, layout="zigzag")
        outside = dist.new_group([0, 1])
        if rank > 1:
            x = torch.zeros(1, 1, 2, 1)
            found["outside"] = refusal(lambda: ring_attention(x, x, x, group=outside))
        dist.barrier()
    return found


def counts(L: int) -> dict[str, Any]:
    """What is sent and computed, and the largest tensor in memory."""
    P, rank, found = dist.get_world_size(), dist.get_rank(), {}
    for layout in ("contiguous", "zigzag", "striped"):
        *parts, push = [
            split_sequence(x.float(), P, layout)[rank].requires_grad_()
            for x in draw(L, L, H=2, G=2)
        ]
        with counted() as traffic:
            output = ring_attention(*parts, is_causal=True, layout=layout)
        forward = dict(vars(traffic))
        torch.autograd.grad(output, parts, push.detach())
        found[f"counts {layout}"] = forward, dict(vars(traffic))
    x = torch.zeros(1, P, 3, 5)
    with counted() as traffic:
        gathered = exchange_heads(x + rank)
    found["counts exchange"] = dict(vars(traffic)), tuple(gathered.shape)
    back = exchange_heads(gathered, gather=False)
    found["exchange comes back"] = bool(torch.equal(back, x + rank))
    long = 64 * P
    parts = [torch.zeros(1, 1, 64, 8, requires_grad=True) for _ in range(3)]
    with Largest() as seen:
        output = ring_attention(*parts, is_causal=True, layout="zigzag")
        torch.autograd.grad(output, parts, torch.zeros_like(output))
    found["largest"] = seen.numel, long * long
    return found


def together(L: int) -> dict[str, Any]:
    """All refuse, nobody waits, and the next call works."""
    P, rank, found = dist.get_world_size(), dist.get_rank(), {}
    odd = rank == 1
    x = torch.zeros(1, 4 if odd else 2, 4, 3)
    found["refused heads"] = refusal(lambda: ring_attention(x, x, x))
    x, y = torch.zeros(1, 2, 4, 3), torch.zeros(1, 2, 4, 2 if odd else 3)
    found["refused alone"] = refusal(lambda: ring_attention(x, y, x))
    found["refused mask"] = refusal(lambda: ring_attention(x, x, x, is_causal=odd))
    found["refused scale"] = refusal(lambda: ring_attention(x, x, x, scale=0.5 if odd else None))
    z = torch.zeros(1, 2, 2 if odd else 4, 3)
    same = {"is_causal": True, "layout": "zigzag"}
    found["refused lengths"] = refusal(lambda: ring_attention(z, z, z, **same))
    four, three = z.repeat(1, 2, 1, 1), torch.zeros(1, 3, 4, 3)
    found["refused ulysses lengths"] = refusal(lambda: ulysses_attention(four, four, four))
    found["refused ulysses"] = refusal(lambda: ulysses_attention(three, three, three))
    found["float64 after all that"] = gaps(draw(L, L), is_causal=True)

    # two layers, and two calls whose backward passes come in the other order
    *parts, push = [split_sequence(t, P)[rank].requires_grad_() for t in draw(L, L, Ev=5)]
    first = ring_attention(*parts, is_causal=True)
    second = ring_attention(first, parts[1], parts[2])
    grads = torch.autograd.grad((second * push).sum(), parts)
    *whole, push = [t.requires_grad_() for t in draw(L, L, Ev=5)]
    first = scaled_dot_product_attention(*whole, is_causal=True)
    second = scaled_dot_product_attention(first, whole[1], whole[2])
    expected = torch.autograd.grad((second * push).sum(), whole)
    found["float64 two layers"] = tuple(
        distance(mine, split_sequence(theirs, P)[rank])
        for mine, theirs in zip(grads, expected, strict=True)
    )
    return found


def fail_in_one() -> None:
    if dist.get_rank() == 1:
        raise KeyError("no such thing")
    dist.barrier()


def hang_in_one() -> None:
    if dist.get_rank() == 1:
        time.sleep(600)


def rank_and(value: int) -> tuple[int, int, int]:
    return dist.get_rank(), dist.get_world_size(), value


def names() -> list[str]:
    """The mutants' texts stand in the source: said before any process starts."""
    import attn_course.distributed.ring as ring

    source = inspect.getsource(ring)
    return [name for name, (old, _) in MUTANTS.items() if source.count(old) != 1]
