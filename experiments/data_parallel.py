"""Data parallel training in four real processes: when is it the training of one process?

Chapter 19 shows this code and its runs. A small language model is trained for 40 steps by one
process with whole batches, and by four processes, through DistributedDataParallel, with a quarter
of each batch. Rows have very different lengths, so that processes hold different numbers of
targets. What counts is how far the parameters end from those of the one process.
``python -m experiments.data_parallel`` repeats the recorded runs.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.distributed import launch
from attn_course.functional import scaled_dot_product_attention
from attn_course.train.parallel import Parallel
from experiments.repeat import repeat

SYMBOLS, WIDTH, ROWS, LONGEST, STEPS, RATE = 11, 16, 16, 24, 40, 0.2
WORLD_SIZE = 4
# how the parts of the loss are joined, and which norm the model has
WAYS = {
    "weighted by targets": ("weighted", "layer"),
    "mean of means": ("plain", "layer"),
    "batch norm, weighted": ("weighted", "batch"),
}


class Model(nn.Module):
    """One look back, and a norm; 0 is padding."""

    def __init__(self, norm: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm = nn.LayerNorm(WIDTH) if norm == "layer" else nn.BatchNorm1d(WIDTH)
        self.output = nn.Linear(WIDTH, SYMBOLS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        x = x + scaled_dot_product_attention(query, key, value, is_causal=True)
        x = self.norm(x.flatten(0, 1)).unflatten(0, ids.shape)  # statistics over rows and positions
        logits: Tensor = self.output(F.relu(x))
        return logits


def loss(model: nn.Module, ids: Tensor) -> Tensor:
    """The mean over all targets that are no padding."""
    logits = model(ids[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)


def targets(ids: Tensor) -> int:
    return int((ids[:, 1:] != 0).sum())


def batches(seed: int) -> list[Tensor]:
    """Counting upwards in steps of one or two, for a few symbols or for many."""
    generator = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(STEPS):
        start = torch.randint(SYMBOLS - 1, (ROWS, 1), generator=generator)
        stride = torch.randint(1, 3, (ROWS, 1), generator=generator)
        ids = 1 + (start + stride * torch.arange(LONGEST)) % (SYMBOLS - 1)
        lengths = 2 + (torch.rand(ROWS, 1, generator=generator) ** 3 * (LONGEST - 2)).long()
        made.append(ids.masked_fill(torch.arange(LONGEST) >= lengths, 0))
    return made


def train(parallel: Parallel, joined: str, norm: str, seed: int) -> tuple[nn.Module, Tensor]:
    """The model after all steps, and the first step's gradient."""
    torch.manual_seed(seed)
    model = Model(norm).double()
    wrapped = parallel.wrap(model)
    first = torch.empty(0)
    shared = parallel.mean_loss(loss, wrapped, targets)
    for ids in batches(seed):
        model.zero_grad()
        if joined == "weighted":
            shared(model, ids).backward()  # type: ignore[no-untyped-call]
        else:
            loss(wrapped, parallel.shard(ids)).backward()  # type: ignore[no-untyped-call]
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        first = first if len(first) else gradient
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= RATE * parameter.grad
    return model, first


def compare(seed: int) -> dict[str, dict[str, float]]:
    """What one of the four processes finds; all find the same."""
    rank = dist.get_rank()
    many = Parallel(rank=rank, world_size=WORLD_SIZE, launched=True)
    found = {}
    for way, (joined, norm) in WAYS.items():
        alone, expected = train(Parallel(), joined, norm, seed)
        together, gradient = train(many, joined, norm, seed)
        one, other = (
            torch.cat([p.detach().flatten() for p in model.parameters()])
            for model in (alone, together)
        )
        torch.manual_seed(seed)
        start = torch.cat([p.detach().flatten() for p in Model(norm).double().parameters()])
        found[way] = {
            "gradient": float((gradient - expected).norm() / expected.norm()),
            "parameters": float((one - other).norm() / (one - start).norm()),
        }
    return found


def run(seed: int) -> dict[str, Any]:
    """Distances from the training of one process, relative to the way that it went."""
    found = launch(compare, WORLD_SIZE, seed, timeout=300)
    own = [[targets(ids[rank::WORLD_SIZE]) for rank in range(WORLD_SIZE)] for ids in batches(seed)]
    return {
        "ways": found[0],
        "equal in all processes": all(one == found[0] for one in found),
        "targets of the first step": own[0],
    }


if __name__ == "__main__":
    repeat(run, __file__)
