"""Feed-forward modules: the formulas, written out with their own parameters."""

import torch
from layers import drawn, leaf
from oracles import same_gradients
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, silu
from torch.testing import assert_close

from attn_course.nn import FeedForward, GatedFeedForward


def check(module: nn.Module, x: Tensor, want: Tensor) -> None:
    got = module(x)
    assert_close(got, want, **FLOAT64)
    same_gradients(got, want, [x, *module.parameters()], **FLOAT64)


def test_feed_forward_is_two_maps_with_a_bend_between() -> None:
    module = drawn(FeedForward(embed_dim=5, hidden_dim=13, activation=gelu), std=1.0)
    up, down = module.up_projection, module.down_projection
    x = leaf(2, 7, 5)
    hidden = gelu(linear(x, up.weight, up.bias))
    check(module, x, linear(hidden, down.weight, down.bias))


def test_gated_feed_forward_switches_its_hidden_units() -> None:
    module = drawn(GatedFeedForward(embed_dim=5, hidden_dim=13), std=1.0)
    weights = {name.split("_")[0]: weight for name, weight in module.named_parameters()}
    assert set(weights) == {"gate", "up", "down"}  # no biases
    x = leaf(2, 7, 5)
    hidden = silu(x @ weights["gate"].T) * (x @ weights["up"].T)
    check(module, x, hidden @ weights["down"].T)


def test_dropout_is_for_training_only() -> None:
    for module in (
        FeedForward(embed_dim=5, hidden_dim=101, dropout=0.5),
        GatedFeedForward(embed_dim=5, hidden_dim=101, dropout=0.5),
    ):
        x = torch.randn(3, 5)
        assert float((module(x) - module(x)).detach().abs().max()) > 0
        module.eval()
        assert_close(module(x), module(x), rtol=0, atol=0)


def test_weights_begin_xavier_uniform_and_biases_at_zero() -> None:
    module = FeedForward(embed_dim=29, hidden_dim=101)
    bound = (6 / 130) ** 0.5
    for part in (module.up_projection, module.down_projection):
        assert 0.97 * bound < float(part.weight.detach().abs().max()) <= bound
        assert not part.bias.any()
