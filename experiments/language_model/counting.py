"""What counting alone gives: n-grams of characters, no training."""

import math
from collections import Counter, defaultdict


class NGrams:
    r"""The next character from the last :math:`n - 1`, shorter histories mixed in.

    .. math:: p(c \mid h) = \frac{N(hc) + T(h)\, p(c \mid h')}{N(h) + T(h)}

    :math:`N` counts, :math:`T(h)` is how many different characters came after :math:`h`, and
    :math:`h'` is :math:`h` without its first character; below the empty history all characters are
    alike. Witten and Bell (1991), method C, as interpolated by Chen and Goodman (1999).

    Args:
        text: What is counted.
        order: Largest :math:`n`, the asked character included.
        alphabet: All characters that may come.
    """

    def __init__(self, text: str, *, order: int, alphabet: str) -> None:
        self.order, self.alphabet = order, alphabet
        self.after: list[dict[str, Counter[str]]] = []
        for length in range(order):
            table: dict[str, Counter[str]] = defaultdict(Counter)
            for place in range(length, len(text)):
                table[text[place - length : place]][text[place]] += 1
            self.after.append(dict(table))
        self.totals = [
            {history: counts.total() for history, counts in table.items()} for table in self.after
        ]

    def probabilities(self, history: str, character: str) -> list[float]:
        """The probability of a character by every order from 1 up, given what came before."""
        value = 1 / len(self.alphabet)
        found = []
        for length, table in enumerate(self.after):
            known = history[len(history) - length :] if length <= len(history) else None
            counts = None if known is None else table.get(known)
            if counts is not None and known is not None:
                seen = self.totals[length][known]
                value = (counts[character] + len(counts) * value) / (seen + len(counts))
            found.append(value)
        return found

    def bits(self, text: str) -> list[float]:
        """Bits per character of a text, by order from 1 up."""
        sums = [0.0] * self.order
        for place, character in enumerate(text):
            history = text[max(0, place - self.order + 1) : place]
            for order, value in enumerate(self.probabilities(history, character)):
                sums[order] -= math.log2(value)
        return [total / len(text) for total in sums]
