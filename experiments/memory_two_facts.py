"""Two supporting facts: one hop, two hops, controls, and what a missing sentence costs.

Chapter 06 plots its runs.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attn_course.data import babi_batch
from attn_course.data.babi import BABI_VOCABULARY
from attn_course.data.stories import StoryBatch
from attn_course.nn import MemoryNetwork
from experiments.repeat import repeat

STEPS, LINEAR_STEPS = 800, 250
PLACES = ("bathroom", "hallway", "garden", "office", "bedroom", "kitchen")
NETWORKS: dict[str, dict[str, Any]] = {
    "1 hop": {"hops": 1},
    "1 hop, wide start": {"hops": 1},
    "2 hops": {"hops": 2},
    "2 hops, no ages": {"hops": 2, "temporal_encoding": False},
}


def told(count: int, seed: int) -> StoryBatch:
    """Stories of 4 to 8 sentences, with one verb for each deed."""
    generator = torch.Generator().manual_seed(seed)
    return babi_batch(
        count, generator, task="two_supporting_facts", max_sentences=8, synonyms=False
    )


def train(net: MemoryNetwork, data: StoryBatch, *, seed: int, linear_steps: int) -> None:
    """Adam with warm-up and decay; the softmax of the hops is put in after ``linear_steps``."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    for step in range(STEPS):
        net.linear = step < linear_steps
        for group in optimizer.param_groups:
            group["lr"] = 0.02 * min(1, (step + 1) / 20) * (1 - 0.9 * step / STEPS)
        rows = torch.randint(len(data), (64,), generator=generator)
        loss = F.cross_entropy(net(data.story[rows], data.question[rows]), data.answer[rows])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 40.0)
        optimizer.step()


@torch.no_grad()
def answers(net: MemoryNetwork, batch: StoryBatch) -> Tensor:
    """The most probable word, (B,)."""
    return net(batch.story, batch.question).argmax(-1)


def share(where: Tensor) -> float:
    """The mean of a boolean tensor."""
    return where.double().mean().item()


def shuffled(story: Tensor, seed: int) -> Tensor:
    """The sentences of each story in random order; padding stays behind."""
    generator = torch.Generator().manual_seed(seed)
    real = (story != 0).any(-1)
    order = torch.rand(real.shape, generator=generator).masked_fill(~real, 2).argsort(1)
    return story.gather(1, order[..., None].expand_as(story))


def place_named_last(story: Tensor) -> Tensor:
    """The last word of each story that is a place."""
    places = torch.tensor([BABI_VOCABULARY[word] for word in PLACES])
    words = story.flatten(1)
    last = words.shape[1] - 1 - torch.isin(words, places).flip(1).int().argmax(1)
    return words.gather(1, last[:, None])[:, 0]


def facts(batch: StoryBatch, seed: int) -> dict[str, Tensor]:
    """One sentence of each story, marked: the two supporting facts, and one that is none."""
    touches = [(batch.story == BABI_VOCABULARY[verb]).any(-1) for verb in ("took", "dropped")]
    touching = touches[0] | touches[1]
    others = (batch.story != 0).any(-1) & ~batch.support
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(others.shape, generator=generator).masked_fill(~others, -1).argmax(1)
    return {
        "the taking or dropping": batch.support & touching,
        "the move": batch.support & ~touching,
        "some other sentence": F.one_hot(drawn, others.shape[1]).bool() & others,
    }


def run(seed: int) -> dict[str, Any]:
    """Error by network and control; where the hops look; answers changed by a missing sentence."""
    data, test = told(8000, 100 + seed), told(2000, 200 + seed)
    error, nets = {}, {}
    for name, options in NETWORKS.items():
        torch.manual_seed(seed)
        net = MemoryNetwork(
            vocab_size=len(BABI_VOCABULARY), embed_dim=32, max_sentences=8, **options
        )
        if name == "1 hop, wide start":
            for parameter in net.parameters():
                parameter.data *= 3  # a spread of 0.3
        train(net, data, seed=seed, linear_steps=0 if "wide" in name else LINEAR_STEPS)
        nets[name], error[name] = net, share(answers(net, test) != test.answer)
    two = nets["2 hops"]
    usual = answers(two, test)
    changed_order = replace(test, story=shuffled(test.story, seed))
    another = replace(test, story=test.story.roll(1, dims=0))
    error["2 hops, shuffled"] = share(answers(two, changed_order) != test.answer)
    error["2 hops, another story"] = share(answers(two, another) != test.answer)
    error["place named last"] = share(place_named_last(test.story) != test.answer)
    error["most frequent answer"] = share(data.answer.mode().values != test.answer)
    looks, changed, named = {}, {}, {}
    with torch.no_grad():
        _, looked = two.read(test.story, test.question)
    for name, marked in facts(test, seed).items():
        looks[name] = (looked * marked[:, None]).sum(2).mean(0).tolist()
        rows = marked.any(1)  # a story of two sentences has no third one
        story = test.story.masked_fill(marked[..., None], 0)
        left = answers(two, replace(test, story=story))
        changed[name] = share((left != usual)[rows])
        named[name] = share((story == test.answer[:, None, None]).flatten(1).any(1)[rows])
    return {"error": error, "looks": looks, "changed": changed, "place still named": named}


if __name__ == "__main__":
    repeat(run, __file__)
