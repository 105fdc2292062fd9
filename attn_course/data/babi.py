"""Stories after the bAbI tasks (Weston et al., 2015), drawn anew; the answer is always known.

Each task is a deterministic function of a ``torch.Generator``. People move between places and take
and drop objects; ``read_babi`` reads the original files into the same :class:`Story`.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Generator

from attn_course.data._world import MOVE, NOWHERE, TAKE, World, simulate
from attn_course.data.babi_file import read_babi
from attn_course.data.stories import Sentence, Story, StoryBatch, encode_stories
from attn_course.data.vocabulary import Vocabulary

__all__ = [
    "BABI_TASKS",
    "BABI_VOCABULARY",
    "babi_batch",
    "counting",
    "one_supporting_fact",
    "read_babi",
    "three_supporting_facts",
    "two_supporting_facts",
    "yes_no",
]

PEOPLE = ("Mary", "John", "Daniel", "Sandra")
PLACES = ("bathroom", "hallway", "garden", "office", "bedroom", "kitchen")
OBJECTS = ("football", "apple", "milk")
NUMBERS = ("none", "one", "two", "three")
# by MOVE, TAKE, DROP; without synonyms the first of each
VERBS = (
    ("moved to", "went to", "journeyed to", "travelled to"),
    ("took", "got", "grabbed", "picked up"),
    ("dropped", "left", "discarded", "put down"),
)
_VERB_WORDS = tuple(dict.fromkeys(word for kind in VERBS for verb in kind for word in verb.split()))
BABI_VOCABULARY = Vocabulary(
    (
        *(*PEOPLE, *PLACES, *OBJECTS, *NUMBERS, *_VERB_WORDS, "the", "there", "Where", "is", "was"),
        *("before", "Is", "in", "yes", "no", "How", "many", "objects", "carrying"),
    )
)

Asked = tuple[Sentence, str, tuple[int, ...]]
Past = dict[str, Any]


def one_supporting_fact(number: int, generator: Generator, **options: Any) -> list[Story]:
    """*Where is Mary?* The place of her last move (task 1). Arguments as in ``counting``."""

    def ask(past: Past) -> Iterator[Asked]:
        for person, event in enumerate(past["moved_at"][-1]):
            if event != NOWHERE:
                where = PLACES[past["place"][-1][person]]
                yield ("Where", "is", PEOPLE[person]), where, (event,)

    return _stories(number, generator, ask, facts=1, **options)


def two_supporting_facts(number: int, generator: Generator, **options: Any) -> list[Story]:
    """*Where is the milk?* Who touched it last, and where that person was (task 2).

    An object that is carried is where its holder moved last, before or after the taking; an object
    that was dropped is where the dropper was then. Arguments as in ``counting``.
    """

    def ask(past: Past) -> Iterator[Asked]:
        for thing, touched in enumerate(past["touched_at"][-1]):
            if touched == NOWHERE:
                continue
            actor, held = past["actor"][touched], past["holder"][-1][thing] != NOWHERE
            moved = past["moved_at"][-1 if held else touched][actor]
            where = PLACES[past["lies"][-1][thing]]
            yield ("Where", "is", "the", OBJECTS[thing]), where, (touched, moved)

    return _stories(number, generator, ask, facts=2, **options)


def three_supporting_facts(number: int, generator: Generator, **options: Any) -> list[Story]:
    """*Where was the milk before the kitchen?* Who carried it, whence and whither (task 3).

    The question names the place where the object is at the end; the answer is the place from which
    it last came there. Arguments as in ``counting``.
    """

    def ask(past: Past) -> Iterator[Asked]:
        for thing in range(len(OBJECTS)):
            way = [state[thing] for state in past["lies"]]
            for t in reversed(range(len(way) - 1)):
                if way[t] != way[t + 1] and way[t] != NOWHERE:
                    took, carrier = past["touched_at"][t][thing], past["actor"][t]
                    words = ("Where", "was", "the", OBJECTS[thing], "before", "the")
                    support = (took, past["moved_at"][t][carrier], t)
                    yield (*words, PLACES[way[t + 1]]), PLACES[way[t]], support
                    break

    return _stories(number, generator, ask, facts=3, **options)


def yes_no(number: int, generator: Generator, **options: Any) -> list[Story]:
    """*Is John in the office?* yes or no, equally likely (task 6).

    A wrong place is drawn evenly from the other places. Arguments as in ``counting``.
    """

    def ask(past: Past) -> Iterator[Asked]:
        wrong = len(PLACES) - 1
        for person, event in enumerate(past["moved_at"][-1]):
            if event != NOWHERE:
                here = past["place"][-1][person]
                others = [place for place in range(len(PLACES)) if place != here]
                for place in [here] * wrong + others:
                    words = ("Is", PEOPLE[person], "in", "the", PLACES[place])
                    yield words, "yes" if place == here else "no", (event,)

    return _stories(number, generator, ask, facts=1, **options)


def counting(
    number: int,
    generator: Generator,
    *,
    min_sentences: int = 4,
    max_sentences: int = 10,
    synonyms: bool = True,
    move_rate: float = 0.5,
) -> list[Story]:
    """*How many objects is John carrying?* none, one, two or three (task 7).

    Asked only of people who have taken something. The support is every taking and dropping of that
    person.

    Args:
        number: How many stories.
        generator: Source of all randomness; the same state gives the same stories.
        min_sentences: Shortest story; every length up to ``max_sentences`` is drawn equally often,
            and stories in which nothing can be asked are drawn again.
        max_sentences: Longest story.
        synonyms: Four verbs for every deed; otherwise one.
        move_rate: How often a person who could take or drop something moves instead.

    Raises:
        ValueError: If ``number`` is negative, ``min_sentences`` is smaller than the number of facts
            that the question needs (here two: a move and a taking), ``max_sentences`` is smaller
            than that, or ``move_rate`` is not at least 0 and below 1.
    """

    def ask(past: Past) -> Iterator[Asked]:
        for person, name in enumerate(PEOPLE):
            deeds = [
                t
                for t, (kind, actor) in enumerate(zip(past["kind"], past["actor"], strict=True))
                if actor == person and kind != MOVE
            ]
            if deeds:
                words = ("How", "many", "objects", "is", name, "carrying")
                yield words, NUMBERS[past["holder"][-1].count(person)], tuple(deeds)

    options = {"min_sentences": min_sentences, "max_sentences": max_sentences}
    return _stories(
        number, generator, ask, facts=2, synonyms=synonyms, move_rate=move_rate, **options
    )


BABI_TASKS: dict[str, Callable[..., list[Story]]] = {
    "one_supporting_fact": one_supporting_fact,
    "two_supporting_facts": two_supporting_facts,
    "three_supporting_facts": three_supporting_facts,
    "yes_no": yes_no,
    "counting": counting,
}


def babi_batch(
    batch_size: int, generator: Generator, *, task: str = "two_supporting_facts", **options: Any
) -> StoryBatch:
    """Stories of a task as padded ids of ``BABI_VOCABULARY``.

    Args:
        batch_size: Rows.
        generator: Source of all randomness.
        task: A name from ``BABI_TASKS``.
        **options: As in ``counting``.

    Raises:
        ValueError: If ``batch_size < 1``, there is no such task, or an option is out of range.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size: expected at least 1, got {batch_size}")
    if task not in BABI_TASKS:
        raise ValueError(f"task: expected one of {', '.join(BABI_TASKS)}, got {task!r}")
    return encode_stories(BABI_TASKS[task](batch_size, generator, **options), BABI_VOCABULARY)


def _stories(
    number: int,
    generator: Generator,
    ask: Callable[[Past], Iterator[Asked]],
    *,
    facts: int,
    min_sentences: int = 4,
    max_sentences: int = 10,
    synonyms: bool = True,
    move_rate: float = 0.5,
) -> list[Story]:
    """Simulate in bulk, cut each story at its length, and ask where something can be asked."""
    if number < 0:
        raise ValueError(f"number: expected at least 0, got {number}")
    if min_sentences < facts:
        raise ValueError(f"min_sentences: expected at least {facts}, got {min_sentences}")
    if max_sentences < min_sentences:
        raise ValueError(
            f"max_sentences: expected at least min_sentences={min_sentences}, got {max_sentences}"
        )
    if not 0 <= move_rate < 1:
        raise ValueError(f"move_rate: expected at least 0 and below 1, got {move_rate}")
    # a length is kept when its story is drawn again, so short stories are not the rarer for it
    lengths = torch.randint(
        min_sentences, max_sentences + 1, (number,), generator=generator
    ).tolist()
    stories: list[Story | None] = [None] * number
    missing = list(range(number))
    while missing:
        world = simulate(
            len(missing),
            max_sentences,
            generator,
            people=len(PEOPLE),
            places=len(PLACES),
            objects=len(OBJECTS),
            move_rate=move_rate,
        )
        drawn = torch.randint(4, world.kind.shape, generator=generator)
        verbs = (drawn * synonyms).tolist()
        picks = torch.rand(len(missing), generator=generator, dtype=torch.float64).tolist()
        pasts = _pasts(world, [lengths[place] for place in missing])
        for place, past, verb, pick in zip(list(missing), pasts, verbs, picks, strict=True):
            questions = list(ask(past))
            if questions:
                question, answer, support = questions[int(pick * len(questions))]
                stories[place] = Story(
                    sentences=_told(past, verb),
                    question=question,
                    answer=answer,
                    support=tuple(sorted(support)),
                )
        missing = [place for place in missing if stories[place] is None]
    return [story for story in stories if story is not None]


def _pasts(world: World, lengths: list[int]) -> Iterator[Past]:
    """Each story up to its length, as plain lists."""
    told = {name: getattr(world, name).tolist() for name in ("kind", "actor", "thing")}
    states = ("place", "holder", "lies", "moved_at", "touched_at")
    stood = {name: getattr(world, name).tolist() for name in states}
    for row, length in enumerate(lengths):
        yield {name: rows[row][:length] for name, rows in told.items()} | {
            name: rows[row][: length + 1] for name, rows in stood.items()
        }


def _told(past: Past, verbs: list[int]) -> tuple[Sentence, ...]:
    sentences = []
    for kind, actor, thing, verb in zip(
        past["kind"], past["actor"], past["thing"], verbs, strict=False
    ):
        what = PLACES[thing] if kind == MOVE else OBJECTS[thing]
        there = ("there",) if kind == TAKE else ()
        sentences.append((PEOPLE[actor], *VERBS[kind][verb].split(), "the", what, *there))
    return tuple(sentences)
