"""The pointers are one cycle, and the answer is where following them leads."""

import torch
from mutation import rejects_changes

from attn_course.data import pointer_chase


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def check(task) -> None:
    for size, steps in ((2, 1), (5, 4), (7, 3), (11, 2)):
        batch = task(23, generator(size), num_symbols=size, steps=steps)
        assert (batch.story.shape, batch.question.shape) == ((23, size, 2), (23, 1))
        for row in range(23):
            told = dict(batch.story[row].tolist())
            assert sorted(told) == sorted(told.values()) == list(range(4, 4 + size))
            way = [batch.question[row, 0].item()]
            for _ in range(size):
                way.append(told[way[-1]])
            assert way[-1] == way[0]
            assert len(set(way)) == size
            assert batch.answer[row] == way[steps]
            on_the_way = {s[0] for s in batch.story[row][batch.support[row]].tolist()}
            assert on_the_way == set(way[:steps])


def test_pointer_chase_by_following_the_pointers() -> None:
    check(pointer_chase)


test_following_the_pointers_rejects_a_changed_line = rejects_changes(
    check, "attn_course.data.pointer_chase.pointer_chase",
    ("cycle.roll(-1, dims=1)", "cycle.roll(1, dims=1)"),
    ("cycle[:, steps] +", "cycle[:, steps - 1] +"),
    ("order < steps", "order <= steps"),
    ("cycle.roll(-1, dims=1)", "cycle.flip(1)"),
    error=(AssertionError, KeyError),
)  # fmt: skip


def test_where_a_pointer_is_told_says_nothing_about_the_way() -> None:
    batch = pointer_chase(4000, generator(), num_symbols=5, steps=2)
    # each of 5 places holds 2 of 5 supporting sentences: 1600, four standard deviations are 124
    assert batch.support.sum(0).sub(1600).abs().max() < 124
    distance = (batch.answer - batch.question[:, 0]) % 5
    assert torch.bincount(distance, minlength=5)[0] == 0
    assert torch.bincount(distance, minlength=5)[1:].sub(1000).abs().max() < 110
