"""Word vectors from counts: who is found together, who is similar, and king - man + woman.

Chapter 07 shows this code and its numbers. Counts of neighbouring words are turned into pointwise
mutual information and factored, as in Levy and Goldberg (2014): the product of two tables of
vectors says who is found together, a product within one table who keeps the same company. The texts
are the English captions of Multi30k and tiny Shakespeare; a seed draws their lines anew, with
replacement. ``python -m experiments.word_vectors`` repeats the recorded runs.
"""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attn_course.data import load_multi30k, load_shakespeare
from experiments.repeat import repeat

MINIMUM, SIZE = 15, 64  # times that a word must occur; numbers per vector
PAIRS = (
    ("man", "woman"), ("men", "women"), ("boy", "girl"), ("boys", "girls"), ("his", "her"),
    ("he", "she"), ("guy", "lady"), ("male", "female"), ("father", "mother"), ("son", "daughter"),
)  # fmt: skip
SHOWN = ("shirt", "red", "dog", "his", "man", "wearing")
COMMON, NEAREST = 200, 10


@dataclass(frozen=True, kw_only=True, eq=False)
class Table:
    """Vectors of the words of a text.

    Attributes:
        words: The frequent words, the most frequent first.
        vectors: One row per word.
        sign: One +1 or -1 per column: ``(vectors * sign) @ vectors.T`` comes near the
            pointwise mutual information, 0 where it is negative.
    """

    words: list[str]
    vectors: Tensor
    sign: Tensor

    def row(self, word: str) -> int:
        """Its place."""
        return self.words.index(word)


def count_pairs(lines: Sequence[Sequence[str]], words: Sequence[str], *, window: int) -> Tensor:
    """How often each two words stand at most ``window`` places apart in a line."""
    place = {word: i for i, word in enumerate(words)}
    number, codes = len(words), []
    for line in lines:
        ids = [place[word] for word in line if word in place]
        for apart in range(1, window + 1):
            codes += [a * number + b for a, b in zip(ids, ids[apart:], strict=False)]
    found = torch.bincount(torch.tensor(codes), minlength=number**2).view(number, number)
    return (found + found.T).double()


def vectors(lines: Sequence[Sequence[str]], *, window: int) -> Table:
    """Count, take the mutual information, factor it."""
    often = Counter(word for line in lines for word in line)
    words = [word for word, n in often.most_common() if n >= MINIMUM]
    share = count_pairs(lines, words, window=window)
    share /= share.sum()
    alone = share.sum(0)
    together = (share / (alone[:, None] * alone)).log().clamp(min=0)  # log 0 is cut to 0
    values, columns = torch.linalg.eigh(together)
    largest = values.abs().argsort(descending=True)[:SIZE]
    return Table(
        words=words,
        vectors=columns[:, largest] * values[largest].abs().sqrt(),
        sign=values[largest].sign(),
    )


def similarity(table: Table) -> Tensor:
    """Cosines of all pairs of words."""
    unit = table.vectors / table.vectors.norm(dim=1, keepdim=True)
    return unit @ unit.T


def best(table: Table, scores: Tensor, word: str, number: int) -> list[str]:
    """The words of the highest scores, but the word itself."""
    order = scores[table.row(word)].argsort(descending=True).tolist()
    return [table.words[i] for i in order if table.words[i] != word][:number]


def overlap(left: Tensor, right: Tensor) -> float:
    """Share of the nearest words that two ways of scoring have in common, for common words."""
    shared = 0
    for a, b in zip(left[:COMMON], right[:COMMON], strict=True):
        shared += len(set(a.topk(NEAREST).indices.tolist()) & set(b.topk(NEAREST).indices.tolist()))
    return shared / COMMON / NEAREST


def analogies(table: Table) -> dict[str, float]:
    """a is to b as c is to what? For all pairs of pairs, the word nearest to b - a + c."""
    unit = table.vectors / table.vectors.norm(dim=1, keepdim=True)
    known = [pair for pair in PAIRS if all(word in table.words for word in pair)]
    right = {"all words": 0, "given words left out": 0, "c alone": 0, "a given word": 0}
    questions = list(itertools.permutations(known, 2))
    for first, second in questions:
        a, b, c, wanted = (table.row(word) for word in (*first, *second))
        scores, alone = unit @ (unit[b] - unit[a] + unit[c]), unit @ unit[c]
        nearest = int(scores.argmax())
        right["all words"] += nearest == wanted
        right["a given word"] += nearest in (a, b, c)
        for given in (a, b, c):
            scores[given] = alone[given] = -torch.inf
        right["given words left out"] += int(scores.argmax()) == wanted
        right["c alone"] += int(alone.argmax()) == wanted
    return {name: round(n / len(questions), 4) for name, n in right.items()} | {
        "questions": len(questions)
    }


def nearest_to_sum(table: Table, plus: Sequence[str], minus: str) -> list[Any]:
    """The words nearest to a sum of vectors, with their cosines, and the place of *queen*."""
    unit = table.vectors / table.vectors.norm(dim=1, keepdim=True)
    point = torch.stack([unit[table.row(word)] for word in plus]).sum(0) - unit[table.row(minus)]
    scores = unit @ (point / point.norm())
    order = scores.argsort(descending=True).tolist()
    given = {*plus, minus}
    others = [table.words[i] for i in order if table.words[i] not in given]
    return [
        [[table.words[i], round(scores[i].item(), 3)] for i in order[:4]],
        others.index("queen") + 1,
    ]


def drawn(lines: list[list[str]], generator: torch.Generator) -> list[list[str]]:
    """As many lines, with replacement."""
    return [
        lines[i] for i in torch.randint(len(lines), (len(lines),), generator=generator).tolist()
    ]


def run(seed: int) -> dict[str, Any]:
    """Neighbours and analogies in captions, king - man + woman in Shakespeare."""
    generator = torch.Generator().manual_seed(seed)
    captions = [
        re.findall("[a-z]+", pair[1].lower())
        for pair in load_multi30k("train", source="de", target="en")
    ]
    plays = [
        re.findall("[a-z]+", speech) for speech in load_shakespeare("train").lower().split("\n\n")
    ]
    result: dict[str, Any] = {}
    for window in (2, 5):
        table = vectors(drawn(captions, generator), window=window)
        alike = similarity(table).fill_diagonal_(-torch.inf)
        across = ((table.vectors * table.sign) @ table.vectors.T).fill_diagonal_(-torch.inf)
        result[f"captions, window {window}"] = {
            "words": len(table.words),
            "found together": {word: best(table, across, word, 4) for word in SHOWN},
            "similar": {word: best(table, alike, word, 4) for word in SHOWN},
            "in common": overlap(alike, across),
            "analogies": analogies(table),
        }
    table = vectors(drawn(plays, generator), window=5)
    found, place = nearest_to_sum(table, ("king", "woman"), "man")
    result["plays"] = {"words": len(table.words), "nearest": found, "place of queen": place}
    return result


if __name__ == "__main__":
    repeat(run, __file__)
