"""Tokens to integers and back, with four reserved places."""

from collections import Counter
from collections.abc import Iterable, Sequence

from jaxtyping import Int
from torch import Tensor

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")


class Vocabulary:
    """A fixed two-way table between tokens and the integers ``0 .. len(vocabulary) - 1``.

    The first four places are the same in every vocabulary: ``PAD`` fills short rows, ``BOS`` starts
    a decoder, ``EOS`` ends a sequence, ``UNK`` stands for every token that is not in the table.

    Args:
        tokens: The tokens from place 4 on, in order, each once.

    Raises:
        ValueError: If a token occurs twice or is one of the four reserved ones.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens: tuple[str, ...] = (*SPECIALS, *tokens)
        self._index = {token: index for index, token in enumerate(self.tokens)}
        if len(self._index) != len(self.tokens):
            twice = [token for token, count in Counter(self.tokens).items() if count > 1]
            raise ValueError(f"tokens: expected each token once, got more than one of {twice[:5]}")

    @classmethod
    def from_sequences(
        cls,
        sequences: Iterable[Sequence[str]],
        *,
        min_count: int = 1,
        max_size: int | None = None,
    ) -> "Vocabulary":
        """Count tokens and keep the frequent ones, most frequent first (ties in spelling order).

        Args:
            sequences: Tokenised texts; a plain string counts as its characters.
            min_count: Tokens seen less often than this become ``UNK``.
            max_size: Upper bound for ``len(vocabulary)``, the four reserved places included.

        Raises:
            ValueError: If ``min_count < 1`` or ``max_size`` leaves no room for the reserved places.
        """
        if min_count < 1:
            raise ValueError(f"min_count: expected at least 1, got {min_count}")
        if max_size is not None and max_size < len(SPECIALS):
            raise ValueError(f"max_size: expected at least {len(SPECIALS)}, got {max_size}")
        counts = Counter(token for sequence in sequences for token in sequence)
        for special in SPECIALS:
            counts.pop(special, None)
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        kept = [token for token in ranked if counts[token] >= min_count]
        return cls(kept if max_size is None else kept[: max_size - len(SPECIALS)])

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: object) -> bool:
        return token in self._index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.tokens == other.tokens

    def __hash__(self) -> int:
        return hash(self.tokens)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self)} tokens: {' '.join(self.tokens[4:10])} ...)"

    def __getitem__(self, token: str) -> int:
        """The place of a token; that of ``<unk>`` for a token that is not in the table."""
        return self._index.get(token, UNK)

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Map tokens to integers. Adds neither ``BOS`` nor ``EOS``: ``collate`` does."""
        return [self[token] for token in tokens]

    def decode(self, ids: Iterable[int] | Int[Tensor, " L"]) -> list[str]:
        """Map integers to tokens, up to the first ``EOS``, without ``PAD`` and ``BOS``.

        Args:
            ids: Integers, or a one-axis tensor of integers.

        Raises:
            ValueError: If an integer lies outside the table.
        """
        tokens: list[str] = []
        for index in map(int, ids):
            if not 0 <= index < len(self.tokens):
                raise ValueError(f"ids: expected 0 to {len(self.tokens) - 1}, got {index}")
            if index == EOS:
                break
            if index not in (PAD, BOS):
                tokens.append(self.tokens[index])
        return tokens
