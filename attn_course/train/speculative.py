"""Speculative decoding: a small model proposes, the large one checks many words at once."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Generator, Tensor

from attn_course.train.sampling import Filter, probabilities_of

#: Ids (L,) and n to the logits (n, V) after each of the last n ids.
Scorer = Callable[[Tensor, int], Tensor]


class Speculated(NamedTuple):
    """What was written, and what it cost.

    Attributes:
        tokens: The new ids, ``eos`` included.
        proposed: Words that the draft proposed.
        accepted: How many of them were taken.
        calls: Runs of the target model; without a draft there is one per word.
    """

    tokens: Int[Tensor, " T"]
    proposed: int
    accepted: int
    calls: int


@torch.no_grad()
def speculative_decode(
    target: Scorer,
    draft: Scorer,
    prompt: Int[Tensor, " L"],
    *,
    max_length: int,
    num_drafts: int = 4,
    eos: int | None = None,
    filters: tuple[Filter, ...] | list[Filter] = (),
    generator: Generator | None = None,
) -> Speculated:
    r"""Sample from the target model with fewer runs of it, and from no other distribution.

    The draft :math:`q` writes up to ``num_drafts`` words one by one; the target :math:`p` scores
    them all in one run. From the first on, word :math:`x` is taken with probability

    .. math:: \min\left(1, \frac{p(x)}{q(x)}\right)

    and where one is refused, another is drawn from :math:`\max(0, p - q)`, scaled to sum to one,
    and the rest is thrown away. If all are taken, the target's run has paid for one word more.
    Either way :math:`q(x) \min(1, p/q) + P(\text{refused}) \cdot \text{residual}(x) = p(x)`.

    Leviathan et al. (2023), algorithm 1; Chen et al. (2023), algorithm 2.

    Args:
        target: The model that is sampled from.
        draft: Any model of the same words; the better it is, the more is taken.
        prompt: One text, not empty.
        max_length: Largest number of new words.
        num_drafts: Words per round.
        eos: Word that ends the text; None: ``max_length`` does.
        filters: Applied to both models' logits; it is the filtered target that is sampled from.
        generator: Source of the random numbers.

    Raises:
        ValueError: If the prompt is empty, ``max_length`` or ``num_drafts`` is below 1, or a
            scorer's logits have another shape than stated.

    Example:
        >>> from attn_course.nn import gpt2_like
        >>> sizes = {"vocab_size": 11, "max_length": 20, "embed_dim": 8, "num_heads": 2}
        >>> models = (gpt2_like(num_layers=n, **sizes).eval() for n in (2, 1))
        >>> target, draft = (cached_scorer(model) for model in models)
        >>> speculative_decode(target, draft, torch.tensor([1, 2, 3]), max_length=5).tokens.shape
        torch.Size([5])
    """
    for name, value in (("max_length", max_length), ("num_drafts", num_drafts)):
        if value < 1:
            raise ValueError(f"{name}: expected at least 1, got {value}")
    if prompt.ndim != 1 or not len(prompt):
        raise ValueError(f"prompt: expected one text, got shape {tuple(prompt.shape)}")
    ids, proposed, accepted, calls = prompt, 0, 0, 0
    end = len(prompt) + max_length
    while len(ids) < end:
        drafts, guesses = ids, []
        for _ in range(min(num_drafts, end - len(ids) - 1)):  # one word is the target's own
            guesses.append(_distribution("draft", draft, drafts, 1, filters)[0])
            drafts = _append(drafts, _draw(guesses[-1], generator))
        truth = _distribution("target", target, drafts, len(guesses) + 1, filters)
        calls, proposed = calls + 1, proposed + len(guesses)
        written, kept = ids, 0
        for p, q, word in zip(truth, guesses, drafts[len(ids) :].tolist(), strict=False):
            take = min(1.0, float(p[word] / q[word]))
            if _draw(torch.tensor([take, 1 - take], dtype=torch.float64), generator) == 1:
                break
            written, kept = _append(written, word), kept + 1
            if word == eos:
                break
        accepted += kept
        if eos is None or int(written[-1]) != eos or not kept:
            missed = truth[kept]
            if kept < len(guesses):
                missed = (truth[kept] - guesses[kept]).clamp(min=0)
                # refused by rounding alone: the two are the same
                missed = truth[kept] if float(missed.sum()) == 0 else missed
            written = _append(written, _draw(missed / missed.sum(), generator))
        ids = written
        if eos is not None and int(ids[-1]) == eos:
            break
    return Speculated(ids[len(prompt) :], proposed, accepted, calls)


def acceptance_rate(target: Float[Tensor, "*B V"], draft: Float[Tensor, "*B V"]) -> Tensor:
    r"""How probable it is that a word of the draft is taken.

    .. math:: \sum_x q(x) \min\left(1, \frac{p(x)}{q(x)}\right) = \sum_x \min(p(x), q(x))

    Leviathan et al. (2023), section 3.2: one minus the total variation distance.

    Args:
        target: Probabilities :math:`p`.
        draft: Probabilities :math:`q`.

    Example:
        >>> acceptance_rate(torch.tensor([0.5, 0.5]), torch.tensor([0.9, 0.1]))
        tensor(0.6000)
    """
    return torch.minimum(target, draft).sum(dim=-1)


def cached_scorer(model: Any) -> Scorer:
    """A scorer that computes only what is new since its last call.

    It goes back to the longest beginning that both texts share, so refused words are forgotten.

    Args:
        model: Such as :class:`~attn_course.nn.LanguageModel`: ``model(input_ids, cache=cache)``
            gives logits, ``model.new_cache()`` a cache with ``truncate``.

    Example:
        >>> from attn_course.nn import gpt2_like
        >>> model = gpt2_like(vocab_size=11, max_length=9, embed_dim=8, num_heads=2, num_layers=1)
        >>> cached_scorer(model.eval())(torch.tensor([1, 2, 3]), 2).shape
        torch.Size([2, 11])
    """
    cache = model.new_cache()
    seen = torch.empty(0, dtype=torch.long)

    def score(ids: Int[Tensor, " L"], count: int) -> Float[Tensor, "n V"]:
        nonlocal seen
        seen = seen.to(ids.device)
        shared = min(len(seen), len(ids))
        differs = (seen[:shared] != ids[:shared]).nonzero()
        past = min(int(differs[0]) if len(differs) else shared, len(ids) - count)
        cache.truncate(past)
        logits: Tensor = model(ids[past:].unsqueeze(0), cache=cache)[0]
        seen = ids.clone()
        return logits[-count:]

    return score


def _distribution(
    name: str, scorer: Scorer, ids: Tensor, count: int, filters: tuple[Filter, ...] | list[Filter]
) -> Float[Tensor, "n V"]:
    logits = scorer(ids, count)
    if logits.ndim != 2 or logits.shape[0] != count:
        raise ValueError(f"{name}: expected logits of shape ({count}, V), got {logits.shape}")
    return probabilities_of(logits, filters)


def _append(ids: Int[Tensor, " L"], word: int) -> Int[Tensor, " M"]:
    return torch.cat([ids, ids.new_tensor([word])])


def _draw(probabilities: Float[Tensor, " V"], generator: Generator | None) -> int:
    return int(torch.multinomial(probabilities, 1, generator=generator))
