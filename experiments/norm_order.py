"""Where the norm stands: stacks of blocks, pre-norm, post-norm, without a norm, without a residual.

Chapter 09 shows this code and plots its runs. A stack reads six symbols and writes them in reverse
order, all at once. Every order is trained with three learning rates, each with and without warm-up,
and the setting that does best on validation sequences counts. A small start multiplies the last
matrix of every attention and every feed-forward part by 0.1 before training. Networks of one order
are trained side by side, with one leading axis for them.
``python -m experiments.norm_order`` repeats the recorded runs.
"""

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.nn import EncoderBlock, FeedForward, LayerNorm, MultiHeadAttention
from experiments.repeat import repeat

# at which depths each order is tried
ORDERS = {
    "pre": (2, 6, 12),
    "post": (2, 6, 12),
    "post, small start": (12,),
    "no norm": (2, 12),
    "no norm, small start": (12,),
    "no residual": (2, 12),
}
RATES = (0.001, 0.003, 0.01)
SMALL = 0.1  # the last matrix of every part, at a small start
WARMUPS = (0, 80)  # steps in which the rate rises from 0
SETTINGS = tuple(itertools.product(WARMUPS, RATES))
SYMBOLS, LENGTH, WIDTH, HIDDEN = 8, 6, 16, 32
BATCH, STEPS = 16, 240
Part = Callable[[Tensor, dict[str, Tensor]], Tensor]


def draw(count: int, generator: torch.Generator) -> Tensor:
    """Sequences (count, LENGTH); the answer is each of them read backwards."""
    return torch.randint(SYMBOLS, (count, LENGTH), generator=generator)


def build(order: str, depth: int, seed: int) -> dict[str, Tensor]:
    """The same first numbers for all networks: Xavier uniform, as the package's modules start."""
    generator = torch.Generator().manual_seed(seed)

    def table(rows: int, columns: int, spread: float | None = None, last: bool = False) -> Tensor:
        bound = (6 / (rows + columns)) ** 0.5
        if spread is None:
            numbers = (2 * torch.rand(rows, columns, generator=generator) - 1) * bound
        else:
            numbers = spread * torch.randn(rows, columns, generator=generator)
        numbers = SMALL * numbers if last and order.endswith("small start") else numbers
        repeated: Tensor = numbers.repeat(len(SETTINGS), 1, 1)
        return repeated

    p = {
        "symbols": table(SYMBOLS, WIDTH, 0.5**0.5),
        "places": table(LENGTH, WIDTH, 0.5**0.5),
        "answer": table(SYMBOLS, WIDTH, WIDTH**-0.5),
    }
    shapes = dict.fromkeys("qkvo", (WIDTH, WIDTH)) | {
        "up": (HIDDEN, WIDTH),
        "down": (WIDTH, HIDDEN),
    }
    return p | {
        f"{i} {key}": table(*shape, last=key in ("o", "down"))
        for i in range(depth)
        for key, shape in shapes.items()
    }


def norm(x: Tensor) -> Tensor:
    """Mean 0 and variance 1 for each vector."""
    return F.layer_norm(x, x.shape[-1:])


def through(x: Tensor, weight: Tensor) -> Tensor:
    """A linear map of R networks, (R, B, L, in) and (R, out, in): one product for all tokens."""
    product: Tensor = x.flatten(1, 2) @ weight.mT
    return product.unflatten(1, x.shape[1:3])


def attend(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    """Attention of R networks with one head, (R, B, L, D)."""
    query, key, value = (through(x, w[name]) for name in "qkv")
    weights = (query @ key.mT / WIDTH**0.5).softmax(-1)
    return through(weights @ value, w["o"])


def feed(x: Tensor, w: dict[str, Tensor]) -> Tensor:
    """Feed-forward part of R networks."""
    return through(torch.relu(through(x, w["up"])), w["down"])


def join(x: Tensor, part: Part, w: dict[str, Tensor], order: str) -> Tensor:
    """What an order does with a part, attention or feed-forward."""
    if order == "pre":
        return x + part(norm(x), w)
    if order.startswith("post"):
        return norm(x + part(x, w))
    if order.startswith("no norm"):
        return x + part(x, w)
    return norm(part(x, w))  # no residual


def stack(x: Tensor, p: dict[str, Tensor], order: str) -> Tensor:
    """All blocks one after the other; a pre-norm stack ends in a norm."""
    for i in range(sum(name.endswith("up") for name in p)):
        w = {key: p[f"{i} {key}"] for key in ("q", "k", "v", "o", "up", "down")}
        x = join(join(x, attend, w, order), feed, w, order)
    return norm(x) if order == "pre" else x


def forward(p: dict[str, Tensor], order: str, symbols: Tensor) -> Tensor:
    """Logits (R, B, L, SYMBOLS)."""
    x = p["symbols"][:, symbols] + p["places"][:, None]
    return through(stack(x, p, order), p["answer"])


def train(order: str, depth: int, seed: int) -> dict[str, Tensor]:
    """One network for each setting, by Adam: a rise of the rate or none, then a straight fall."""
    start = build(order, depth, seed)
    sizes = [table[0].numel() for table in start.values()]
    # all tables of a network in one row: one step of Adam for all of them
    rows = torch.cat([table.flatten(1) for table in start.values()], dim=1).requires_grad_()

    def tables() -> dict[str, Tensor]:
        parts = zip(start.items(), rows.split(sizes, dim=1), strict=True)
        return {name: part.view_as(table) for (name, table), part in parts}

    generator = torch.Generator().manual_seed(seed + 1)
    peaks = torch.tensor([rate for _, rate in SETTINGS])
    rises = torch.tensor([warmup for warmup, _ in SETTINGS])
    first, second = torch.zeros_like(rows), torch.zeros_like(rows)
    for step in range(1, STEPS + 1):
        symbols = draw(BATCH, generator)
        logits = forward(tables(), order, symbols)
        answer = symbols.flip(1).repeat(len(SETTINGS), 1, 1)
        loss = F.cross_entropy(logits.flatten(0, 2), answer.flatten(), reduction="sum")
        (gradient,) = torch.autograd.grad(loss / symbols.numel(), rows)
        rate = peaks * (step / rises.clamp(min=1)).clamp(max=1) * (1 - 0.9 * step / STEPS)
        with torch.no_grad():
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient.square(), 0.02)
            root = (second / (1 - 0.98**step)).sqrt() + 1e-9
            rows -= rate[:, None] * first / (1 - 0.9**step) / root
    return tables()


@torch.no_grad()
def right(p: dict[str, Tensor], order: str, seed: int, count: int) -> Tensor:
    """Share of right symbols of each network; one whose numbers are no longer finite has 0."""
    symbols = draw(count, torch.Generator().manual_seed(seed))
    logits = forward(p, order, symbols)
    hits = (logits.argmax(-1) == symbols.flip(1)).double().mean((1, 2))
    return torch.where(logits.isfinite().all(-1).all(-1).all(-1), hits, 0.0)


@torch.no_grad()
def check_against_package(p: dict[str, Tensor], order: str, seed: int) -> None:
    """Pre and post are the blocks of the package."""
    x = torch.randn(3, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))
    expected = x
    for i in range(2):
        attention = MultiHeadAttention(embed_dim=WIDTH, num_heads=1, bias=False)
        network = FeedForward(embed_dim=WIDTH, hidden_dim=HIDDEN, bias=False)
        for key, module in (
            *zip("qkvo", ("query", "key", "value", "output"), strict=True),
            ("up", "up"),
            ("down", "down"),
        ):
            owner = network if key in ("up", "down") else attention
            linear = getattr(owner, f"{module}_projection")
            assert isinstance(linear, nn.Linear)
            linear.weight.copy_(p[f"{i} {key}"][0])
        expected = EncoderBlock(
            attention=attention,
            attention_norm=LayerNorm(embed_dim=WIDTH),
            feed_forward=network,
            feed_forward_norm=LayerNorm(embed_dim=WIDTH),
            norm_first=order == "pre",
        )(expected)
    expected = norm(expected) if order == "pre" else expected
    two = {name: value[:1] for name, value in p.items() if name[:2] in ("0 ", "1 ")}
    torch.testing.assert_close(stack(x[None], two, order)[0], expected, rtol=1e-3, atol=1e-4)


def run(seed: int) -> dict[str, Any]:
    """Share of right symbols for every order and depth: at the best setting, and at every one."""
    result: dict[str, Any] = {"settings": [list(setting) for setting in SETTINGS]}
    for order, depth in ((order, depth) for order, depths in ORDERS.items() for depth in depths):
        p = train(order, depth, seed)
        if order in ("pre", "post"):
            check_against_package(p, order, seed)
        validation = right(p, order, seed + 10_000, 500)
        test = right(p, order, seed + 20_000, 1000)
        result.setdefault(order, {})[str(depth)] = {
            "right": test[validation.argmax()].item(),
            "at settings": test.tolist(),
        }
    return result


if __name__ == "__main__":
    repeat(run, __file__)
