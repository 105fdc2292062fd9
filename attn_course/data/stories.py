"""Stories with a question: as words, and as padded ids for a memory network."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attn_course.data.vocabulary import PAD, Vocabulary

Sentence = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Story:
    """Sentences, oldest first, and one question about them.

    Attributes:
        sentences: Words of each sentence, without the full stop.
        question: Words of the question, without the question mark.
        answer: One word.
        support: Places of the sentences that the answer follows from.
    """

    sentences: tuple[Sentence, ...]
    question: Sentence
    answer: str
    support: tuple[int, ...] = ()

    def __str__(self) -> str:
        lines = [f"{i} {' '.join(words)}." for i, words in enumerate(self.sentences)]
        why = " ".join(map(str, self.support))
        return "\n".join([*lines, f"{' '.join(self.question)}? {self.answer} ({why})"])


@dataclass(frozen=True, kw_only=True, eq=False)
class StoryBatch:
    """What a memory network is fed with, padded with ``PAD`` (a sentence of it is no sentence).

    Attributes:
        story: Word ids, oldest sentence first; ``N`` sentences of ``J`` words at most.
        question: Word ids.
        answer: The id of the answer.
        support: True at the sentences that the answer follows from.
    """

    story: Int[Tensor, "B N J"]
    question: Int[Tensor, "B Jq"]
    answer: Int[Tensor, " B"]
    support: Bool[Tensor, "B N"]

    def __len__(self) -> int:
        return self.story.shape[0]

    def to(self, device: torch.device | str) -> "StoryBatch":
        """The same batch on another device."""
        return StoryBatch(
            story=self.story.to(device),
            question=self.question.to(device),
            answer=self.answer.to(device),
            support=self.support.to(device),
        )


def encode_stories(
    stories: Sequence[Story], vocabulary: Vocabulary, *, max_sentences: int | None = None
) -> StoryBatch:
    """Map words to ids and pad: words at the end of a sentence, sentences at the end of a story.

    Args:
        stories: At least one.
        vocabulary: Words that it lacks become ``UNK``.
        max_sentences: Keep only so many, the most recent ones (Sukhbaatar et al., 2015, section
            4.2, keep 50).

    Raises:
        ValueError: If there is no story, a story or a question is empty, a sentence has no word, a
            supporting place is outside its story, or ``max_sentences < 1``.
    """
    if not stories:
        raise ValueError("stories: expected at least one, got none")
    if max_sentences is not None and max_sentences < 1:
        raise ValueError(f"max_sentences: expected at least 1, got {max_sentences}")
    for number, story in enumerate(stories):
        if not story.sentences or not story.question or not all(story.sentences):
            raise ValueError(f"stories: expected words in every sentence, got none in {number}")
        if any(not 0 <= place < len(story.sentences) for place in story.support):
            raise ValueError(
                f"stories: expected support from 0 to {len(story.sentences) - 1}, "
                f"got {story.support} in {number}"
            )
    dropped = [max(0, len(s.sentences) - (max_sentences or len(s.sentences))) for s in stories]
    kept = [s.sentences[first:] for s, first in zip(stories, dropped, strict=True)]
    most = max(len(sentences) for sentences in kept)
    longest = max(len(words) for sentences in kept for words in sentences)
    ids = [
        _filled([_filled(vocabulary.encode(w), longest, PAD) for w in s], most, [PAD] * longest)
        for s in kept
    ]
    asked = max(len(story.question) for story in stories)
    support = torch.zeros(len(stories), most, dtype=torch.bool)
    for row, (story, first) in enumerate(zip(stories, dropped, strict=True)):
        for place in story.support:
            if place >= first:
                support[row, place - first] = True
    return StoryBatch(
        story=torch.tensor(ids),
        question=torch.tensor(
            [_filled(vocabulary.encode(s.question), asked, PAD) for s in stories]
        ),
        answer=torch.tensor([vocabulary[s.answer] for s in stories]),
        support=support,
    )


def _filled(items: list, size: int, fill: object) -> list:  # type: ignore[type-arg]
    return items + [fill] * (size - len(items))
