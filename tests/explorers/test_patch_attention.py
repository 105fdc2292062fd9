"""The model in the explorer's file does what its page says."""

import json

import torch

from attn_course.explorers import patch_attention
from attn_course.explorers.patch_attention import HEADS, compute, default_state


def test_it_tells_same_from_different_and_looks_across() -> None:
    state = default_state()
    result = compute(pixels=state["pixels"], asking=4, entry=5)
    assert result["same"] > 0.5
    weights = torch.tensor(result["weights"])
    assert weights.shape == (HEADS, 16)
    torch.testing.assert_close(weights.sum(-1), torch.ones(HEADS))
    assert float(weights[:, 11].max()) > 3 / 16  # from the left pattern to the right one
    other = list(state["pixels"])
    for i in (8 * 16 + 12, 8 * 16 + 13, 8 * 16 + 14, 8 * 16 + 15):
        other[i] = -other[i]
    assert compute(pixels=other, asking=4, entry=5)["same"] < 0.5
    assert json.loads(patch_attention.WEIGHTS.read_text(encoding="utf-8"))["right"] > 0.95


def test_only_attention_follows_a_pattern_that_moves() -> None:
    state = default_state()
    image = torch.tensor(state["pixels"]).view(16, 16)
    moved = image.clone()
    moved[8:12, 12:], moved[0:4, 12:] = 0, image[8:12, 12:]
    before = compute(pixels=state["pixels"], asking=4, entry=5)
    after = compute(pixels=moved.flatten().tolist(), asking=4, entry=5)
    assert before["fixed"] == after["fixed"]
    assert before["fixed"][5] == 1
    head = max(range(HEADS), key=lambda h: before["weights"][h][11])
    assert after["weights"][head][3] > after["weights"][head][11]
