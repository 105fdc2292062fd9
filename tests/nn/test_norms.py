"""Norm modules: torch's numbers and gradients, and parameters that begin as they should."""

import pytest
import torch
from layers import drawn, leaf
from tolerances import FLOAT64
from torch import nn
from torch.testing import assert_close

from attn_course.nn import LayerNorm, RMSNorm


@pytest.mark.parametrize("eps", [1e-5, 0.3])
@pytest.mark.parametrize("kind", ["layer", "layer without bias", "rms"])
def test_output_and_gradients_are_those_of_torch(kind: str, eps: float) -> None:
    mine: nn.Module
    theirs: nn.Module
    if kind == "rms":
        mine, theirs = RMSNorm(embed_dim=7, eps=eps), nn.RMSNorm(7, eps=eps)
    else:
        bias = kind == "layer"
        mine = LayerNorm(embed_dim=7, eps=eps, bias=bias)
        theirs = nn.LayerNorm(7, eps=eps, bias=bias)
    assert_close(mine.state_dict(), theirs.state_dict(), rtol=0, atol=0)
    mine, theirs, x = mine.double(), drawn(theirs, std=1.0), leaf(2, 5, 7)
    mine.load_state_dict(theirs.state_dict())
    weight = torch.randn_like(x)
    got, want = mine(x), theirs(x)
    assert_close(got, want, **FLOAT64)
    have = torch.autograd.grad((got * weight).sum(), [x, *mine.parameters()])
    wish = torch.autograd.grad((want * weight).sum(), [x, *theirs.parameters()])
    assert_close(have, wish, **FLOAT64)
