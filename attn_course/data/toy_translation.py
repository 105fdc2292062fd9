"""A tiny invented translation: look up words, agree in gender, move words. Alignment known.

English-like sentences of the form *subject verb object* become French-like words in another order:
adjectives go behind their noun, last one first, and the verb goes to the end of the sentence::

    the old dog sees a small red house
    le chien vieux une maison rouge petite voit

The form of an article or adjective depends on the gender of the noun it goes with, so a word cannot
be translated from its own position alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator

from attn_course.data.batch import Batch, collate
from attn_course.data.vocabulary import Vocabulary

# masculine (0) and feminine (1) forms
ARTICLES = {"the": ("le", "la"), "a": ("un", "une")}
ADJECTIVES = {
    "old": ("vieux", "vieille"),
    "small": ("petit", "petite"),
    "green": ("vert", "verte"),
    "white": ("blanc", "blanche"),
    "happy": ("heureux", "heureuse"),
    "red": ("rouge", "rouge"),
}
NOUNS = {
    "dog": ("chien", 0),
    "cat": ("chat", 0),
    "book": ("livre", 0),
    "garden": ("jardin", 0),
    "boy": ("garçon", 0),
    "house": ("maison", 1),
    "girl": ("fille", 1),
    "table": ("table", 1),
    "flower": ("fleur", 1),
    "mouse": ("souris", 1),
}
VERBS = {
    "sees": "voit",
    "likes": "aime",
    "finds": "trouve",
    "follows": "suit",
    "paints": "peint",
    "wants": "veut",
}
TRANSLATION_SOURCE_VOCABULARY = Vocabulary([*ARTICLES, *ADJECTIVES, *NOUNS, *VERBS])
TRANSLATION_TARGET_VOCABULARY = Vocabulary(
    dict.fromkeys(
        [
            *(form for forms in ARTICLES.values() for form in forms),
            *(form for forms in ADJECTIVES.values() for form in forms),
            *(noun for noun, _ in NOUNS.values()),
            *VERBS.values(),
        ]
    )
)


@dataclass(frozen=True, kw_only=True)
class TranslationPair:
    """A sentence, its translation, and for each target word the place of its source word."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    alignment: tuple[int, ...]


def translate(words: Sequence[str]) -> TranslationPair:
    """Translate *article adjective... noun verb article adjective... noun*.

    Args:
        words: The source sentence.

    Raises:
        ValueError: If a word is unknown or the sentence does not have that form.
    """
    target: list[str] = []
    alignment: list[int] = []

    def say(word: str, place: int) -> None:
        target.append(word)
        alignment.append(place)

    def noun_phrase(start: int) -> int:
        end = start + 1
        while end < len(words) and words[end] in ADJECTIVES:
            end += 1
        if end >= len(words) or words[start] not in ARTICLES or words[end] not in NOUNS:
            raise ValueError(
                f"words: expected article, adjectives, noun from place {start}, "
                f"got {' '.join(words)!r}"
            )
        noun, gender = NOUNS[words[end]]
        say(ARTICLES[words[start]][gender], start)
        say(noun, end)
        for place in range(end - 1, start, -1):
            say(ADJECTIVES[words[place]][gender], place)
        return end + 1

    verb = noun_phrase(0)
    if verb >= len(words) or words[verb] not in VERBS:
        raise ValueError(f"words: expected a verb at place {verb}, got {' '.join(words)!r}")
    end = noun_phrase(verb + 1)
    if end != len(words):
        raise ValueError(f"words: expected {end} words, got {len(words)}: {' '.join(words)!r}")
    say(VERBS[words[verb]], verb)
    return TranslationPair(source=tuple(words), target=tuple(target), alignment=tuple(alignment))


def translation_pairs(
    number: int, generator: Generator, *, max_adjectives: int = 2
) -> list[TranslationPair]:
    """Draw sentences: every word and every number of adjectives is equally likely.

    Args:
        number: How many.
        generator: Source of all randomness; the same state gives the same sentences.
        max_adjectives: Most adjectives of one noun; 0 to this many are drawn, each at most once.

    Raises:
        ValueError: If ``number`` is negative, or ``max_adjectives`` is not between 0 and the number
            of adjectives.
    """
    if number < 0:
        raise ValueError(f"number: expected at least 0, got {number}")
    if not 0 <= max_adjectives <= len(ADJECTIVES):
        raise ValueError(f"max_adjectives: expected 0 to {len(ADJECTIVES)}, got {max_adjectives}")

    def draw(words: Sequence[str]) -> str:
        return words[int(torch.randint(len(words), (), generator=generator))]

    def noun_phrase() -> list[str]:
        count = int(torch.randint(max_adjectives + 1, (), generator=generator))
        order = torch.randperm(len(ADJECTIVES), generator=generator).tolist()
        adjectives = [list(ADJECTIVES)[place] for place in order[:count]]
        return [draw(list(ARTICLES)), *adjectives, draw(list(NOUNS))]

    return [translate([*noun_phrase(), draw(list(VERBS)), *noun_phrase()]) for _ in range(number)]


def translation(batch_size: int, generator: Generator, *, max_adjectives: int = 2) -> Batch:
    """A batch of ``translation_pairs`` as word ids.

    Ids are those of ``TRANSLATION_SOURCE_VOCABULARY`` and ``TRANSLATION_TARGET_VOCABULARY``.

    Args:
        batch_size: Rows.
        generator: Source of all randomness.
        max_adjectives: As in ``translation_pairs``.

    Returns:
        A batch with its ``alignment``.

    Raises:
        ValueError: If ``batch_size < 1`` or ``max_adjectives`` is out of range.
    """
    pairs = translation_pairs(batch_size, generator, max_adjectives=max_adjectives)
    return collate(
        [TRANSLATION_SOURCE_VOCABULARY.encode(pair.source) for pair in pairs],
        [TRANSLATION_TARGET_VOCABULARY.encode(pair.target) for pair in pairs],
        alignments=[pair.alignment for pair in pairs],
    )
