"""Feed-forward modules: the formulas, written out with their own parameters."""

import torch
from oracles import same_gradients
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, silu
from torch.testing import assert_close

from attn_course.nn import FeedForward, GatedFeedForward


def normal(module: nn.Module) -> nn.Module:
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module.double()


def check(module: nn.Module, x: Tensor, want: Tensor) -> None:
    got, leaves = module(x), [x, *module.parameters()]
    assert_close(got, want, **FLOAT64)
    same_gradients(got, want, leaves, **FLOAT64)


def test_feed_forward_is_two_maps_with_a_bend_between() -> None:
    module = normal(FeedForward(embed_dim=5, hidden_dim=13, activation=gelu))
    up, down = module.up_projection, module.down_projection
    assert isinstance(up, nn.Linear)
    assert isinstance(down, nn.Linear)
    x = torch.randn(2, 7, 5, dtype=torch.float64, requires_grad=True)
    hidden = gelu(linear(x, up.weight, up.bias))
    check(module, x, linear(hidden, down.weight, down.bias))


def test_gated_feed_forward_switches_its_hidden_units() -> None:
    module = normal(GatedFeedForward(embed_dim=5, hidden_dim=13))
    weights = {name.split("_")[0]: weight for name, weight in module.named_parameters()}
    assert set(weights) == {"gate", "up", "down"}  # no biases
    x = torch.randn(2, 7, 5, dtype=torch.float64, requires_grad=True)
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
