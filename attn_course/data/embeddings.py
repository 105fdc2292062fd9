"""A word-embedding table made by hand, small enough to compute with on paper.

Every axis has a meaning, every entry is 0, 1 or 2. A word with one meaning has a 2 on its axis; an
ambiguous word has a 1 on the axis of each of its meanings; function words are all zeros. So for
*bank* = (water 1, money 1) and *river* = (water 2)

.. math::

    \\text{bank}\\cdot\\text{bank} = 2,\\quad
    \\text{bank}\\cdot\\text{river} = 2,\\quad
    \\text{bank}\\cdot\\text{the} = 0,

and the mean of *the river bank* with weights softmax(2, 2, 0) lies at water 1.41, money 0.47.
Trained embeddings (word2vec, GloVe) have hundreds of axes without names; the arithmetic is the
same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

AXES = ("water", "money", "animal", "sport", "season", "metal", "person", "motion")

_ENTRIES: dict[str, dict[str, int]] = {
    # two meanings
    "bank": {"water": 1, "money": 1},
    "bat": {"animal": 1, "sport": 1},
    "spring": {"season": 1, "metal": 1},
    "mint": {"money": 1, "season": 1},
    "pitcher": {"water": 1, "sport": 1},
    # water
    "river": {"water": 2},
    "water": {"water": 2},
    "shore": {"water": 2},
    "boat": {"water": 2, "motion": 1},
    "fish": {"water": 1, "animal": 2},
    # money
    "money": {"money": 2},
    "loan": {"money": 2},
    "cash": {"money": 2},
    "account": {"money": 2},
    "coin": {"money": 2, "metal": 1},
    # animal
    "wings": {"animal": 2, "motion": 1},
    "cave": {"animal": 2},
    "dog": {"animal": 2},
    "bird": {"animal": 2, "motion": 1},
    # sport
    "ball": {"sport": 2, "motion": 1},
    "team": {"sport": 2, "person": 1},
    "game": {"sport": 2},
    "player": {"sport": 2, "person": 1},
    # season
    "summer": {"season": 2},
    "winter": {"season": 2},
    "flower": {"season": 2},
    "garden": {"season": 2},
    # metal
    "steel": {"metal": 2},
    "coil": {"metal": 2},
    "clock": {"metal": 2},
    # person
    "she": {"person": 2},
    "he": {"person": 2},
    "child": {"person": 2},
    # motion
    "runs": {"motion": 2},
    "flies": {"motion": 2},
    "holds": {},
    "opened": {},
    "broke": {},
    # function words
    "the": {},
    "a": {},
    "of": {},
    "to": {},
    "in": {},
    "at": {},
    "by": {},
    "and": {},
}


@dataclass(frozen=True)
class SenseExample:
    """A sentence, the ambiguous word in it, and the axis its context asks for."""

    sentence: str
    word: str
    sense: str
    other: str


SENSE_EXAMPLES = (
    SenseExample("the river bank", "bank", "water", "money"),
    SenseExample("she opened a bank account", "bank", "money", "water"),
    SenseExample("a boat by the bank", "bank", "water", "money"),
    SenseExample("the bank holds cash", "bank", "money", "water"),
    SenseExample("the bat flies to the cave", "bat", "animal", "sport"),
    SenseExample("the player broke the bat", "bat", "sport", "animal"),
    SenseExample("a flower in spring", "spring", "season", "metal"),
    SenseExample("the spring of the clock broke", "spring", "metal", "season"),
    SenseExample("mint in the garden", "mint", "season", "money"),
    SenseExample("a coin of the mint", "mint", "money", "season"),
    SenseExample("the pitcher holds water", "pitcher", "water", "sport"),
    SenseExample("the pitcher and the team", "pitcher", "sport", "water"),
)


@dataclass(frozen=True, kw_only=True, eq=False)
class WordVectors:
    """Words and one vector for each.

    Attributes:
        words: The words, in the order of the rows.
        axes: What each column stands for.
        table: One row per word.
    """

    words: tuple[str, ...]
    axes: tuple[str, ...]
    table: Float[Tensor, "V D"]

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.words

    def __getitem__(self, word: str) -> Float[Tensor, " D"]:
        """The vector of one word.

        Raises:
            KeyError: If the word is not in the table; the message lists the words that are.
        """
        if word not in self.words:
            raise KeyError(f"no vector for {word!r}; the table has: {' '.join(self.words)}")
        return self.table[self.words.index(word)]

    def sentence(self, words: str | Sequence[str]) -> Float[Tensor, "L D"]:
        """One row per word of a sentence; a string is split at spaces."""
        tokens = words.split() if isinstance(words, str) else words
        if not tokens:
            raise ValueError("words: expected at least one word, got none")
        return torch.stack([self[word] for word in tokens])

    def describe(self, vector: Float[Tensor, " D"]) -> dict[str, float]:
        """The entries of a vector that are not 0, by the name of their axis, largest first."""
        entries = {axis: float(value) for axis, value in zip(self.axes, vector, strict=True)}
        ranked = sorted(entries.items(), key=lambda item: -abs(item[1]))
        return {axis: value for axis, value in ranked if value != 0}


def word_vectors() -> WordVectors:
    """The hand-made table: 46 words, 8 named axes, entries 0, 1 and 2 (float32)."""
    table = torch.zeros(len(_ENTRIES), len(AXES))
    for row, entries in enumerate(_ENTRIES.values()):
        for axis, value in entries.items():
            table[row, AXES.index(axis)] = value
    return WordVectors(words=tuple(_ENTRIES), axes=AXES, table=table)
