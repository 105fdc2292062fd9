"""Reach of stacked masks against walks in NumPy, the formula and gradients."""

import pytest
import torch
from mutation import mutant
from oracles import by_numpy
from refusals import refused
from torch.testing import assert_close

from attn_course.analysis import gradient_map, receptive_field, window_reach
from attn_course.functional import scaled_dot_product_attention, window_pattern


def test_reach_is_what_a_walk_finds() -> None:
    masks = [torch.rand(11, 11) < 0.2 for _ in range(3)]
    got = receptive_field(masks)
    assert_close(got, by_numpy.receptive_field(masks))
    assert not torch.equal(got[1], receptive_field(masks[::-1])[1])
    wrong = mutant(
        "attn_course.analysis.receptive_field", "receptive_field",
        "one.float() @ reached[-1].float()", "reached[-1].float() @ one.float()",
    )  # fmt: skip
    assert not torch.equal(wrong(masks), got)


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_formula_is_the_width_of_the_reach(is_causal: bool) -> None:
    for window, layers, dilation in ((3, 4, 1), (5, 2, 3), (1, 3, 1), (3, 3, [1, 2, 4])):
        steps = [dilation] * layers if isinstance(dilation, int) else dilation
        masks = [
            window_pattern(window_size=window, dilation=step, is_causal=is_causal).mask(61)[0, 0]
            for step in steps
        ]
        row = receptive_field(masks)[-1, 60 if is_causal else 30]
        seen = row.nonzero()[:, 0]
        want = window_reach(window_size=window, num_layers=layers, dilation=dilation)
        assert int(seen.max() - seen.min()) + 1 == want
        assert want == 1 + (window - 1) * sum(steps)


def test_gradients_reach_exactly_as_far() -> None:
    mask = window_pattern(window_size=3, dilation=2).mask(17)[0, 0]

    def stack(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = scaled_dot_product_attention(x, x, x, mask)
        return x

    felt = gradient_map(stack, torch.randn(2, 17, 5, dtype=torch.float64)) > 0
    assert_close(felt, receptive_field(mask, 3)[-1])


def test_bad_input_is_refused_by_name() -> None:
    refused("num_layers: expected a positive number", receptive_field, torch.ones(2, 2).bool())
    with pytest.raises(ValueError, match=r"mask\[1\]: expected a boolean square"):
        receptive_field([torch.ones(2, 2, dtype=torch.bool), torch.ones(3, 3, dtype=torch.bool)])
    refused("dilation: expected 3", window_reach, window_size=3, num_layers=3, dilation=[1, 2])
