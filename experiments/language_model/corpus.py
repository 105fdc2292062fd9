"""The text as ids, and windows of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from attn_course.data import load_shakespeare


@dataclass(frozen=True, kw_only=True, eq=False)
class Corpus:
    """Training and validation text over one alphabet.

    Attributes:
        alphabet: All characters, sorted; the id of one is its place.
        train: Ids of the training text.
        val: Ids of the validation text, the end of the play book.
    """

    alphabet: str
    train: Int[Tensor, " N"]
    val: Int[Tensor, " M"]

    def encode(self, text: str) -> Int[Tensor, " L"]:
        """Ids of a text.

        Raises:
            ValueError: If it has a character that is not in the alphabet.
        """
        if foreign := set(text) - set(self.alphabet):
            raise ValueError(f"text: expected characters of the corpus, got {sorted(foreign)}")
        return torch.tensor([self.alphabet.index(each) for each in text], dtype=torch.long)

    def decode(self, ids: Tensor) -> str:
        """The text of some ids."""
        return "".join(self.alphabet[each] for each in ids.tolist())


def make_corpus(train: str, val: str) -> Corpus:
    """Ids by the alphabet of both texts: a character is known before it is seen."""
    alphabet = "".join(sorted(set(train + val)))
    places = {each: place for place, each in enumerate(alphabet)}
    ids = [torch.tensor([places[each] for each in text]) for text in (train, val)]
    return Corpus(alphabet=alphabet, train=ids[0], val=ids[1])


def shakespeare() -> Corpus:
    """Tiny Shakespeare, its last tenth for validation.

    Raises:
        DataError: If the file can be neither found nor downloaded.
    """
    return make_corpus(load_shakespeare("train"), load_shakespeare("val"))


class Windows:
    """Endless batches of windows that start anywhere in a text, one character longer than read.

    Args:
        ids: The text.
        length: Characters that a model reads; it is asked for as many, each one later.
        batch_size: Windows per batch.
        seed: Decides where they start.

    Raises:
        ValueError: If the text has no window.
    """

    def __init__(self, ids: Int[Tensor, " N"], *, length: int, batch_size: int, seed: int) -> None:
        if len(ids) <= length:
            raise ValueError(f"ids: expected more than length={length} characters, got {len(ids)}")
        self.ids, self.length, self.batch_size = ids, length, batch_size
        self.generator = torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[Tensor]:
        return self

    def __next__(self) -> Tensor:
        last = len(self.ids) - self.length
        starts = torch.randint(last, (self.batch_size, 1), generator=self.generator)
        return self.ids[starts + torch.arange(self.length + 1)]  # (B, L + 1)

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on with the next batch."""
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where ``state_dict`` was taken."""
        self.generator.set_state(state["generator"])
