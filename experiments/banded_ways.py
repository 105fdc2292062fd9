"""How slow is a naive loop for banded attention? Seven ways to compute one band, timed in turns.

Chapter 18 shows these runs. One head, a window of 65 keys, four lengths. All ways give the same
numbers, which is checked first. A time is processor time of one thread, the least of several rounds
in which the ways take turns; memory is the peak beyond the inputs (of the loops over pairs and over
queries it is not taken: following their many steps takes long). Pair by pair is timed up to 512
positions. FlexAttention is compiled once, for the longest text; its memory is inside one operation,
and where torch does not compile it, as under a restricted instruction set, its number is null.
``python -m experiments.banded_ways`` repeats the recorded runs.
"""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.functional import sliding_window_attention, window_pattern
from attn_course.probes.student import peak_memory
from experiments.repeat import repeat

LENGTHS, SIZE, HALF, ROUNDS = (256, 512, 1024, 2048), 32, 32, 5
PAIRS_UP_TO = 512
Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def pair_by_pair(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Two loops in Python: a score at a time, then a value at a time."""
    output = torch.zeros_like(value)
    for i in range(len(query)):
        near = range(max(0, i - HALF), min(len(key), i + HALF + 1))
        scores = [float(query[i] @ key[j]) / SIZE**0.5 for j in near]
        top = max(scores)
        weights = [math.exp(score - top) for score in scores]
        total = sum(weights)
        for j, weight in zip(near, weights, strict=True):
            output[i] += weight / total * value[j]
    return output


def query_by_query(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One loop: a query and the slice of its keys."""
    rows = []
    for i in range(len(query)):
        near = slice(max(0, i - HALF), i + HALF + 1)
        rows.append((key[near] @ query[i] / SIZE**0.5).softmax(-1) @ value[near])
    return torch.stack(rows)


def diagonal_by_diagonal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One loop over the columns of the band, each of them a shift of all keys."""
    length, width = len(query), 2 * HALF + 1
    keys, values = (F.pad(rows, (0, 0, HALF, HALF)) for rows in (key, value))
    scores = torch.stack([(query * keys[c : c + length]).sum(-1) for c in range(width)], 1)
    place = torch.arange(length)[:, None] + torch.arange(-HALF, HALF + 1)
    outside = (place < 0) | (place >= length)
    weights = (scores / SIZE**0.5).masked_fill(outside, -math.inf).softmax(-1)
    output = torch.zeros_like(value)
    for c in range(width):
        output += weights[:, c, None] * values[c : c + length]
    return output


def copied_chunks(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """No loop: pieces of HALF queries, each beside a copy of the 3 · HALF keys around it."""
    length = len(query)
    more = -length % HALF
    queries = F.pad(query, (0, 0, 0, more)).unflatten(0, (-1, HALF))
    padded = (F.pad(rows, (0, 0, HALF, HALF + more)) for rows in (key, value))
    keys, values = (rows.unfold(0, 3 * HALF, HALF).mT.contiguous() for rows in padded)
    scores = queries @ keys.mT / SIZE**0.5  # (pieces, HALF, 3 HALF)
    row, column = torch.arange(HALF)[:, None], torch.arange(3 * HALF)
    far = (column - HALF - row).abs() > HALF
    place = torch.arange(len(queries))[:, None, None] * HALF + column - HALF
    closed = far | (place < 0) | (place >= length)
    output: Tensor = scores.masked_fill(closed, -math.inf).softmax(-1) @ values
    return output.flatten(0, 1)[:length]


def masked(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Torch's function under the dense mask, which is made anew in each call."""
    i = torch.arange(len(query))
    mask = (i[:, None] - i).abs() <= HALF
    q, k, v = (rows[None, None] for rows in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)[0, 0]


def package(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Blocks of queries and the keys that their windows touch."""
    heads = (rows[None, None] for rows in (query, key, value))
    return sliding_window_attention(*heads, window_size=2 * HALF + 1)[0, 0]


WAYS: dict[str, Way] = {
    "pair by pair": pair_by_pair,
    "query by query": query_by_query,
    "diagonal by diagonal": diagonal_by_diagonal,
    "copied chunks": copied_chunks,
    "masked SDPA": masked,
    "package": package,
}
LOOPS = ("pair by pair", "query by query")


def compiled_flex(length: int) -> Way:
    """FlexAttention for the pattern, compiled."""
    from torch.nn.attention import flex_attention as flex

    mod = window_pattern(window_size=2 * HALF + 1).mask_mod
    blocks = flex.create_block_mask(mod, None, None, length, length, device="cpu")
    made = torch.compile(flex.flex_attention)

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        q, k, v = (rows[None, None] for rows in (query, key, value))
        output: Tensor = made(q, k, v, block_mask=blocks)
        return output[0, 0]

    return attend


def timed(ways: dict[str, Way], rows: list[Tensor]) -> dict[str, float]:
    """Milliseconds of one call of each way, the least of some rounds."""
    best = dict.fromkeys(ways, math.inf)
    for turn in range(ROUNDS):
        for name, way in ways.items():
            if turn and name in LOOPS:  # long enough for one measurement
                continue
            start = time.process_time()
            way(*rows)
            best[name] = min(best[name], time.process_time() - start)
    return {name: round(1e3 * seconds, 4) for name, seconds in best.items()}


@torch.no_grad()
def run(seed: int) -> dict[str, Any]:
    """Milliseconds and mebibytes of every way at every length."""
    torch.manual_seed(seed)
    found: dict[str, Any] = {"lengths": list(LENGTHS), "ms": {}, "mib": {}, "flex": None}
    for length in LENGTHS:
        rows = [torch.randn(length, SIZE) for _ in range(3)]
        ways = {n: w for n, w in WAYS.items() if length <= PAIRS_UP_TO or n != "pair by pair"}
        exact = masked(*(x.double() for x in rows))
        for way in ways.values():
            torch.testing.assert_close(way(*rows), exact.float(), rtol=1e-3, atol=1e-4)
        for name, milliseconds in timed(ways, rows).items():
            found["ms"].setdefault(name, []).append(milliseconds)
        for name, way in ways.items():
            if name not in LOOPS:
                peak = peak_memory(way, *rows) / 2**20
                found["mib"].setdefault(name, []).append(round(peak, 3))
    try:
        flex = compiled_flex(length)
        torch.testing.assert_close(flex(*rows), exact.float(), rtol=1e-3, atol=1e-4)
    except Exception as error:
        print(f"FlexAttention: {error}"[:300])
    else:
        found["flex"] = timed({"FlexAttention": flex, "package": package}, rows)
    return found


if __name__ == "__main__":
    repeat(run, __file__)
