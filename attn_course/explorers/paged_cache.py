"""A memory for the keys of many texts: room in one piece for each, or pages as they are needed."""

from collections.abc import Sequence
from typing import Any

import anywidget
import traitlets

from attn_course.explorers._result import follow
from attn_course.explorers._source import esm, stylesheet

HEIGHT, HEIGHT_NARROW = 567, 708
WAYS = ("reserved", "pages")
INPUTS = ("requests", "slots", "longest", "page", "step")


def compute(
    *, requests: Sequence[Sequence[int]], slots: int, longest: int, page: int, step: int
) -> dict[str, Any]:
    """Who holds which slots after some steps, with memory reserved for each text and with pages.

    In each step texts that are finished leave, all others get a token, and those that wait are let
    in, in their order, while there is room. With pages, a text that needs one where none is free
    makes the youngest leave; what it had is computed again when its turn comes.

    Args:
        requests: When a text arrives, the tokens it comes with, and those that it will get.
        slots: Of the memory.
        longest: Slots that are reserved for each text in one piece.
        page: Slots of a page.
        step: How many steps.

    Returns:
        For each of ``WAYS``: ``owner``: for each slot its text or -1; ``filled``: whether it holds
        a token; ``texts``: ``state``, ``have`` and ``places`` (pages, or the first slot) of each;
        ``used``: slots with a token after each step; ``thrown``: texts that had to leave, and
        ``again`` their tokens.

    Raises:
        ValueError: If a size is not positive, or a text is too long.
    """
    if min(slots, longest, page) < 1 or step < 0:
        raise ValueError(f"sizes: expected 1 or more, got {slots}, {longest}, {page}, step {step}")
    if max(prompt + answer for _, prompt, answer in requests) > min(longest, slots):
        raise ValueError(f"requests: expected at most {min(longest, slots)} tokens each")
    sizes = {"reserved": longest, "pages": page}
    return {way: _run(requests, slots, sizes[way], step) for way in WAYS}


def _run(requests: Sequence[Sequence[int]], slots: int, size: int, step: int) -> dict[str, Any]:
    """The same with pieces of one size."""
    count = slots // size
    have = [prompt for _, prompt, _ in requests]
    left = [answer for _, _, answer in requests]
    state = ["to come"] * len(requests)
    places: list[list[int]] = [[] for _ in requests]
    queue: list[int] = []
    running: list[int] = []
    used, thrown, again = [], 0, 0

    def free() -> list[int]:
        taken = [place for text in running for place in places[text]]
        return [place for place in range(count) if place not in taken]

    for now in range(step + 1):
        for text in [text for text in running if left[text] == 0]:
            running.remove(text)
            state[text], places[text] = "done", []
        for text in list(running):
            if text not in running:  # thrown out in this step
                continue
            have[text], left[text] = have[text] + 1, left[text] - 1
            while have[text] > len(places[text]) * size and text in running:
                if not free():
                    youngest = running.pop()
                    state[youngest], places[youngest] = "waiting", []
                    queue.insert(0, youngest)
                    thrown, again = thrown + 1, again + have[youngest]
                else:
                    places[text].append(free()[0])
        for text, (arrival, _, _) in enumerate(requests):
            if arrival == now:
                state[text] = "waiting"
                queue.append(text)
        while queue and -(-have[queue[0]] // size) <= len(free()):
            text = queue.pop(0)
            places[text] = free()[: -(-have[text] // size)]
            state[text] = "running"
            running.append(text)
        used.append(sum(have[text] for text in running))
    owner, filled = [-1] * slots, [False] * slots
    for text in running:
        for number, place in enumerate(places[text]):
            for slot in range(size):
                owner[place * size + slot] = text
                filled[place * size + slot] = number * size + slot < have[text]
    texts = [
        {"state": state[text], "have": have[text], "places": places[text]}
        for text in range(len(requests))
    ]
    return {
        "owner": owner,
        "filled": filled,
        "texts": texts,
        "used": used,
        "thrown": thrown,
        "again": again,
    }


def default_state() -> dict[str, Any]:
    """The state a page starts with: two texts fit where memory is reserved, more with pages."""
    return {
        "kernel": False,
        "requests": [
            [0, 5, 9],
            [0, 9, 4],
            [1, 3, 16],
            [2, 12, 10],
            [3, 6, 3],
            [4, 7, 14],
            [6, 4, 7],
            [8, 10, 12],
        ],
        "slots": 64,
        "longest": 32,
        "page": 4,
        "step": 8,
    }


class PagedCache(anywidget.AnyWidget):
    """The live widget.

    Args:
        **state: Start values, such as ``page=8``.
    """

    _esm = esm("paged_cache")
    _css = stylesheet()

    kernel = traitlets.Bool(True).tag(sync=True)
    requests = traitlets.List().tag(sync=True)
    slots = traitlets.Int().tag(sync=True)
    longest = traitlets.Int().tag(sync=True)
    page = traitlets.Int().tag(sync=True)
    step = traitlets.Int().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)
    problem = traitlets.Unicode().tag(sync=True)

    def __init__(self, **state: Any) -> None:
        super().__init__(**(default_state() | {"kernel": True} | state))
        follow(self, compute, INPUTS)
