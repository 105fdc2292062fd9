"""Sub-word tokens by byte-pair encoding: frequent pairs become one token."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from jaxtyping import Int
from torch import Tensor

Pair = tuple[int, int]

_PIECES = re.compile(r" ?\w+| ?[^\w\s]+|\s")  # every character is in one piece: nothing is lost


def _merged(ids: Sequence[int], pair: Pair, token: int) -> list[int]:
    """The same ids with each occurrence of a pair, from the left, as one token."""
    out, i = [], 0
    while i < len(ids):
        found = tuple(ids[i : i + 2]) == pair
        out.append(token if found else ids[i])
        i += 1 + found
    return out


class BytePairs:
    """Tokens of one or more bytes; any text becomes ids and the same text again.

    The first 256 ids are the bytes of UTF-8, so that no text is unknown; each merge adds one token
    that stands for two earlier ones. Merges do not cross the boundary of a word, and a word keeps
    the space before it. Sennrich, Haddow and Birch (2016), algorithm 1; the paper begins with
    characters and marks the end of a word. Bytes, and the space before a word, are GPT-2's
    (Radford and others, 2019).

    Args:
        merges: Pairs of ids in the order in which they were learned; pair ``n`` becomes the token
            ``256 + n``.

    Raises:
        ValueError: If a pair names a token that does not exist before it.
    """

    def __init__(self, merges: Iterable[Pair]) -> None:
        self.merges: tuple[Pair, ...] = tuple(merges)
        self.tokens = [bytes([each]) for each in range(256)]
        for left, right in self.merges:
            if not (0 <= left < len(self.tokens) and 0 <= right < len(self.tokens)):
                raise ValueError(
                    f"merges: expected ids below {len(self.tokens)}, got {left, right}"
                )
            self.tokens.append(self.tokens[left] + self.tokens[right])
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}
        self._known: dict[str, list[int]] = {}

    @classmethod
    def train(cls, text: str, *, vocab_size: int) -> "BytePairs":
        """Merge the most frequent pair, again and again; ties go to the smaller ids.

        Args:
            text: What pairs are counted in.
            vocab_size: Tokens in the end, the 256 bytes included; fewer where no pair occurs twice.

        Raises:
            ValueError: If ``vocab_size < 256``.
        """
        if vocab_size < 256:
            raise ValueError(f"vocab_size: expected at least 256, got {vocab_size}")
        words = Counter(_PIECES.findall(text))
        ids = {word: list(word.encode()) for word in words}
        counts: Counter[Pair] = Counter()
        where: defaultdict[Pair, set[str]] = defaultdict(set)

        def count(word: str, sign: int) -> None:
            for pair in pairwise(ids[word]):
                counts[pair] += sign * words[word]
                where[pair].add(word)

        for word in words:
            count(word, 1)
        merges: list[Pair] = []
        while 256 + len(merges) < vocab_size:
            best = max(counts, key=lambda pair: (counts[pair], -pair[0], -pair[1]), default=None)
            if best is None or counts[best] < 2:
                break
            for word in where.pop(best):
                count(word, -1)
                ids[word] = _merged(ids[word], best, 256 + len(merges))
                count(word, 1)
            where.pop(best, None)
            merges.append(best)
            counts += Counter()  # drops the pairs that are gone
        return cls(merges)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> Int[Tensor, " L"]:
        """Ids of a text: in each word the merge that was learned first is made first."""
        return torch.tensor(
            [each for piece in _PIECES.findall(text) for each in self._piece(piece)],
            dtype=torch.long,
        )

    def _piece(self, piece: str) -> list[int]:
        if piece not in self._known:
            ids = list(piece.encode())
            while pairs := [pair for pair in pairwise(ids) if pair in self._rank]:
                first = min(pairs, key=self._rank.__getitem__)
                ids = _merged(ids, first, 256 + self._rank[first])
            self._known[piece] = ids
        return self._known[piece]

    def decode(self, ids: Int[Tensor, " L"]) -> str:
        """The text of some ids; bytes that are no whole character become U+FFFD."""
        return b"".join(self.tokens[each] for each in ids.tolist()).decode(errors="replace")
