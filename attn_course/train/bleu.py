"""BLEU: how many word sequences of a translation stand in a reference, over a whole corpus."""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

Tokens = Sequence[Hashable]


class Bleu(NamedTuple):
    """A BLEU score and what it is made of.

    Attributes:
        score: From 0 to 1; papers print a hundred times as much.
        precisions: Clipped share of n-grams, for n = 1, 2, ...
        brevity_penalty: 1 where the candidates are as long as the references or longer.
        ratio: Words of the candidates by words of the references.
    """

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    ratio: float


def ngrams(tokens: Tokens, n: int) -> Counter[tuple[Hashable, ...]]:
    """How often each run of ``n`` tokens stands in a sentence."""
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def bleu(candidates: Sequence[Tokens], references: Sequence[Tokens], *, max_order: int = 4) -> Bleu:
    r"""Corpus BLEU with one reference for each sentence, without smoothing.

    .. math:: \mathrm{BLEU} = \mathrm{BP} \cdot \Big(\prod_{n=1}^{N} p_n\Big)^{1/N}, \qquad
       \mathrm{BP} = \min\left(1,\; e^{1 - r/c}\right)

    :math:`p_n` is the share of n-grams of all candidates that stand in their references, each
    counted at most as often as there; :math:`c` and :math:`r` are the words of all candidates and
    of all references. The counts are summed over the corpus before they are divided. Papineni et
    al. (2002).

    Differs from ``sacrebleu``: tokens come as they are, so that scores can be compared only where
    the same tokens were made; an order without a match makes the score 0, where ``sacrebleu``
    smooths it by default.

    Args:
        candidates: What was written, as tokens.
        references: What should have been, one for each candidate.
        max_order: :math:`N`.

    Raises:
        ValueError: If the numbers of sentences differ, there is none, or ``max_order`` is below 1.

    Example:
        >>> found = bleu(["the cat sat on the mat".split()], ["the cat sat on a mat".split()])
        >>> round(found.score, 4)
        0.5373
    """
    if len(candidates) != len(references) or not candidates:
        raise ValueError(
            f"candidates: expected one for each of {len(references)} references and at least one, "
            f"got {len(candidates)}"
        )
    if max_order < 1:
        raise ValueError(f"max_order: expected at least 1, got {max_order}")
    precisions = []
    for n in range(1, max_order + 1):
        hits = total = 0
        for candidate, reference in zip(candidates, references, strict=True):
            said = ngrams(candidate, n)
            hits += (said & ngrams(reference, n)).total()
            total += said.total()
        precisions.append(hits / total if total else 0.0)
    written, wanted = sum(map(len, candidates)), sum(map(len, references))
    brevity = min(1.0, math.exp(1 - wanted / written)) if written else 0.0
    geometric = 0.0
    if min(precisions) > 0:
        geometric = math.exp(sum(map(math.log, precisions)) / max_order)
    ratio = written / wanted if wanted else math.inf
    return Bleu(brevity * geometric, tuple(precisions), brevity, ratio)
