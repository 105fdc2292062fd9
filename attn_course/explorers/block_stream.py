"""The residual stream of one token: what each part adds, what is left, what gradient comes back."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import anywidget
import torch
import traitlets
from torch import Tensor

from attn_course.explorers._result import follow, plain
from attn_course.explorers._source import esm, stylesheet
from attn_course.functional import feed_forward, layer_norm, scaled_dot_product_attention

HEIGHT, HEIGHT_NARROW = 548, 754
WIDTH, HIDDEN, TOKENS, DEEPEST = 16, 32, 6, 12
NORMS = ("post", "pre", "none")
INPUTS = ("seed", "depth", "norm", "residual", "token")


def _uniform(seed: int) -> Iterator[float]:
    """Park and Miller's generator, whose whole numbers JavaScript has too."""
    while True:
        seed = seed * 48271 % 2147483647
        yield seed / 2147483647


def _matrix(draws: Iterator[float], rows: int, columns: int, gain: float = 1.0) -> Tensor:
    """Uniform numbers of variance ``gain**2 / columns``."""
    values = [[2 * next(draws) - 1 for _ in range(columns)] for _ in range(rows)]
    bound = gain * math.sqrt(3 / columns)
    return torch.tensor(values, dtype=torch.float64) * bound


def compute(*, seed: int, depth: int, norm: str, residual: bool, token: int) -> dict[str, Any]:
    """One token's way through a stack of untrained blocks, by the package, in float64.

    Args:
        seed: Of inputs and weights.
        depth: Blocks.
        norm: ``post``, ``pre`` (with one more norm at the top) or ``none``.
        residual: Whether a part's output is added to the stream, or replaces it.
        token: Whose stream it is.

    Returns:
        At the bottom and after each part: ``shares`` of the token, of attention and of feed-forward
        in its vector, by the lengths of the three vectors whose sum it is; ``gradient``, the length
        of the derivative by it of one direction of the output; ``copied``, the same if every part's
        output is a constant.

    Raises:
        ValueError: If norm, depth or token is unknown.
    """
    if norm not in NORMS:
        raise ValueError(f"norm: expected one of {', '.join(NORMS)}, got {norm!r}")
    if not 1 <= depth <= DEEPEST:
        raise ValueError(f"depth: expected 1 to {DEEPEST}, got {depth}")
    if not 0 <= token < TOKENS:
        raise ValueError(f"token: expected 0 to {TOKENS - 1}, got {token}")
    draws = _uniform(seed)
    start = _matrix(draws, TOKENS, WIDTH, WIDTH**0.5)
    parts: list[Callable[[Tensor], Tensor]] = []
    for _ in range(depth):
        parts += [_attention(draws), _feed_forward(draws)]
    direction = _matrix(draws, 1, WIDTH)[0]
    direction = direction / direction.norm()

    def run(constant: bool) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Streams, outputs of the parts, and the sums that a norm gets."""
        x = start.clone().requires_grad_()
        streams, outputs, sums = [x], [], []
        for part in parts:
            output = part(layer_norm(x) if norm == "pre" else x)
            output = output.detach() if constant else output
            # 0 * x: without the residual connection nothing comes back, and not an error
            x = x + output if residual else 0 * x + output
            outputs.append(output.detach()[token])
            sums.append(x.detach()[token])
            x = layer_norm(x) if norm == "post" else x
            streams.append(x)
        return streams, outputs, sums

    def gradients(constant: bool) -> list[float]:
        streams = run(constant)[0]
        top = layer_norm(streams[-1]) if norm == "pre" else streams[-1]
        found = torch.autograd.grad(top[token] @ direction, streams)
        return [float(one[token].norm()) for one in found]

    streams, outputs, sums = run(constant=False)
    own = [one.detach()[token] for one in streams]
    kinds = torch.stack([own[0], torch.zeros_like(own[0]), torch.zeros_like(own[0])])  # (3, D)
    shares = [[1.0, 0.0, 0.0]]
    for n, (output, total) in enumerate(zip(outputs, sums, strict=True)):
        kinds = kinds * residual
        kinds[1 + n % 2] += output
        if norm == "post":  # the factor of the norm, the same for all three
            mean = total.mean()
            factor = layer_norm(total) @ (total - mean) / (total - mean).square().sum()
            kinds = (kinds - kinds.mean(-1, keepdim=True)) * factor
        lengths = kinds.norm(dim=-1)
        shares.append(plain(lengths / lengths.sum()))
    return {
        "shares": shares,
        "gradient": gradients(constant=False),
        "copied": gradients(constant=True),
    }


def _attention(draws: Iterator[float]) -> Callable[[Tensor], Tensor]:
    query, key, value, output = (_matrix(draws, WIDTH, WIDTH) for _ in range(4))

    def part(x: Tensor) -> Tensor:
        heads = ((x @ weight.T)[None, None] for weight in (query, key, value))  # (1, 1, L, E)
        return scaled_dot_product_attention(*heads)[0, 0] @ output.T

    return part


def _feed_forward(draws: Iterator[float]) -> Callable[[Tensor], Tensor]:
    inward, outward = _matrix(draws, HIDDEN, WIDTH, 2**0.5), _matrix(draws, WIDTH, HIDDEN)
    return lambda x: feed_forward(x, inward, outward)


def default_state() -> dict[str, Any]:
    """The state a page starts with: twelve blocks of the paper's order."""
    return {
        "kernel": False,
        "seed": 20,
        "depth": DEEPEST,
        "norm": "post",
        "residual": True,
        "token": 2,
        "at": 9,
    }


class BlockStream(anywidget.AnyWidget):
    """The live widget: its parts are those of :mod:`attn_course.functional`.

    Args:
        **state: Start values, such as ``norm="pre"`` or ``residual=False``.
    """

    _esm = esm("block_stream")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    seed = traitlets.Int().tag(sync=True)
    depth = traitlets.Int().tag(sync=True)
    norm = traitlets.Unicode().tag(sync=True)
    residual = traitlets.Bool().tag(sync=True)
    token = traitlets.Int().tag(sync=True)
    at = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
