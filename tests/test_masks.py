"""The padding mask by hand, against a loop, and its refusals."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutation import mutant

from attn_course.masks import padding_mask


def test_padding_mask_by_hand() -> None:
    mask = padding_mask(torch.tensor([3, 0, 1]), 3)
    assert mask.tolist() == [[True, True, True], [False, False, False], [True, False, False]]


@given(lengths=st.lists(st.integers(0, 7), max_size=5), extra=st.integers(0, 3))
def test_padding_mask_agrees_with_a_loop(lengths: list[int], extra: int) -> None:
    longest = max(lengths, default=0) + extra
    mask = padding_mask(torch.tensor(lengths, dtype=torch.long), longest)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[s < length for s in range(longest)] for length in lengths]


@pytest.mark.parametrize("new", ["<=", ">", ">="])
def test_the_hand_value_rejects_another_comparison(new: str) -> None:
    wrong = mutant("attn_course.masks", "padding_mask", ") < lengths", f") {new} lengths")
    assert not torch.equal(
        wrong(torch.tensor([3, 0, 1]), 3), padding_mask(torch.tensor([3, 0, 1]), 3)
    )


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (torch.tensor([2, 4]), "lengths: expected values from 0 to 3, got 2 to 4"),
        (torch.tensor([-1, 3]), "lengths: expected values from 0 to 3, got -1 to 3"),
        (torch.tensor([1.0, 2.0]), "lengths: expected 2 integers, one per row, got torch.float32"),
        (torch.tensor(2), "lengths: expected"),
        (torch.tensor([[1, 2]]), "lengths: expected"),
    ],
)
def test_other_lengths_are_refused(lengths: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        padding_mask.__wrapped__(lengths, 3)
