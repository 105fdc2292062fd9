"""Capture and patch: equal to what a model written out by hand does, and nothing left behind."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from mutation import rejects_changes
from refusals import refused
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course.nn import KVCache, MultiHeadAttention
from attn_course.nn.capture import at_positions, capture, patched, without_heads

B, L, D, HEADS = 2, 5, 6, 3


class TinyBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(embed_dim=D, num_heads=HEADS, value_projection=None)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.dropout(self.attention(query=x, is_causal=True))


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(TinyBlock() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def model() -> Iterator[Tiny]:
    tiny = Tiny().eval()
    yield tiny
    for module in tiny.modules():  # whatever a test does
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


X = torch.linspace(-1, 2, B * L * D).view(B, L, D).sin()


def test_captured_is_what_the_parts_give_by_hand(model: Tiny) -> None:
    names = ("blocks.0", "blocks.1.input", "blocks.*.attention.weights", "blocks.0.attention.heads")
    with capture(model, *names) as captured:
        output = model(X)
    first, second = model.blocks
    assert torch.equal(output, model(X))
    assert torch.equal(captured["blocks.0"], first(X))
    assert captured["blocks.0"] is captured["blocks.1.input"]
    for number, (block, x) in enumerate(((first, X), (second, first(X)))):
        weights = block.attention.weights(x, is_causal=True)
        assert torch.equal(captured[f"blocks.{number}.attention.weights"], weights)
    value = X.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    heads = first.attention.weights(X, is_causal=True) @ value
    assert_close(captured["blocks.0.attention.heads"], heads)
    assert set(captured) == {
        "blocks.0", "blocks.1.input", "blocks.0.attention.weights", "blocks.1.attention.weights",
        "blocks.0.attention.heads",
    }  # fmt: skip


def test_gradients_flow_into_what_is_captured(model: Tiny) -> None:
    with capture(model, "blocks.0") as captured:
        loss = model(X).square().sum()
    (grad,) = torch.autograd.grad(loss, captured["blocks.0"])
    middle = model.blocks[0](X).detach().requires_grad_()
    (expected,) = torch.autograd.grad(model.blocks[1](middle).square().sum(), middle)
    assert_close(grad, expected)


def test_every_call_is_kept_and_the_last_one_shown(model: Tiny) -> None:
    with capture(model, "blocks.0", "blocks.0.attention.query_projection") as captured:
        model(X)
        model(2 * X)
    assert len(captured.calls["blocks.0"]) == 2
    assert torch.equal(captured["blocks.0"], captured.calls["blocks.0"][1])
    assert not torch.equal(*captured.calls["blocks.0"])


def test_computing_weights_is_not_captured_itself(model: Tiny) -> None:
    names = ("blocks.0.attention.query_projection", "blocks.0.attention.weights")
    with capture(model, *names) as captured:
        model(X)
    assert len(captured.calls["blocks.0.attention.query_projection"]) == 1


def test_training_mode_and_random_numbers_stay_as_they_were(model: Tiny) -> None:
    model.train()
    torch.manual_seed(3)
    expected = model(X)
    torch.manual_seed(3)
    with capture(model, "blocks.*.attention.weights", "blocks.*.attention.heads", "blocks.*"):
        output = model(X)
    assert torch.equal(output, expected)
    assert model.training


def by_hand(model: Tiny, heads: tuple[int, ...]) -> Tensor:
    """The first block without some heads, then the second."""
    attention = model.blocks[0].attention
    value = X.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    mixed = attention.weights(X, is_causal=True) @ value
    mixed[:, list(heads)] = 0
    return model.blocks[1](X + attention.output_projection(mixed.transpose(1, 2).flatten(2)))


def check_ablation(model: Tiny, heads: tuple[int, ...], ablate: Any = without_heads) -> None:
    with patched(model, "blocks.0.attention.heads", ablate(*heads)):
        output = model(X)
    assert_close(output, by_hand(model, heads))


@pytest.mark.parametrize("heads", [(), (1,), (0, 2), (0, 1, 2)])
def test_a_head_ablated_is_a_head_of_zeros(model: Tiny, heads: tuple[int, ...]) -> None:
    check_ablation(model, heads)
    if heads:
        assert not torch.allclose(model(X), by_hand(model, heads))


def test_a_patch_carries_one_run_into_another(model: Tiny) -> None:
    other = X.flip(0) + 1
    with capture(model, "blocks.0") as clean:
        expected = model(other)
    with patched(model, "blocks.0", clean["blocks.0"]):
        assert torch.equal(model(X), expected)  # all of it: the rest of the model sees nothing else
    with patched(model, "blocks.1.input", clean["blocks.0"]):
        assert torch.equal(model(X), expected)
    # the last two positions only: those before cannot tell, by causality
    with patched(model, "blocks.0", at_positions(clean["blocks.0"], [3, 4])):
        output = model(X)
    assert torch.equal(output[:, :3], model(X)[:, :3])
    mixed = torch.cat([model.blocks[0](X)[:, :3], clean["blocks.0"][:, 3:]], dim=1)
    assert_close(output, model.blocks[1](mixed))


def test_whoever_captures_a_patched_place_sees_what_is_handed_on(model: Tiny) -> None:
    for order in (1, -1):
        with ExitStack() as stack:
            both = [capture(model, "blocks.0"), patched(model, "blocks.0", torch.zeros_like)]
            entered = [stack.enter_context(one) for one in both[::order]]
            model(X)
        captured = entered[::order][0]
        assert (captured["blocks.0"] == 0).all()
    with (
        patched(model, "blocks.0", lambda x: 3 * x),
        capture(model, "blocks.1.attention.weights") as captured,
    ):
        model(X)
    expected = model.blocks[1].attention.weights(3 * model.blocks[0](X), is_causal=True)
    assert_close(captured["blocks.1.attention.weights"], expected)


def test_nothing_is_left_behind_by_an_error(model: Tiny) -> None:
    expected = model(X)
    with pytest.raises(RuntimeError, match="stop"), capture(model, "blocks.0"):
        raise RuntimeError("stop")
    with pytest.raises(ZeroDivisionError), patched(model, "blocks.0", lambda x: 1 // 0):
        model(X)
    with pytest.raises(ValueError, match=r"blocks\.7"), capture(model, "blocks.0", "blocks.7"):
        pass
    assert torch.equal(model(X), expected)


def test_it_works_on_torch_s_own_encoder_in_eval_mode() -> None:
    layer = nn.TransformerEncoderLayer(D, 2, 7, batch_first=True, dropout=0.0)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    with torch.no_grad():
        expected = encoder(X)
        with capture(encoder, "layers.0", "layers.1.linear1", "layers.*.self_attn") as captured:
            assert_close(encoder(X), expected)
        assert_close(captured["layers.0"], encoder.layers[0](X))
        assert captured["layers.1.linear1"].shape == (B, L, 7)
        assert captured["layers.1.self_attn"].shape == (B, L, D)  # of a tuple the first
        with patched(encoder, "layers.0.self_attn", torch.zeros_like):
            assert not torch.allclose(encoder(X), expected)
        assert_close(encoder(X), expected)


def test_bad_names_and_values_say_what_is_there(model: Tiny) -> None:
    for message, wrong in (
        (r"there are blocks, blocks\.0, blocks\.0\.att", capture(model, "blocks.0.atention")),
        (r"0\.dropout\.weights: expected the name", capture(model, "blocks.0.dropout.weights")),
        ("can be captured, not patched", patched(model, "blocks.0.attention.weights", X)),
    ):
        refused(message, wrong.__enter__)
    with (
        patched(model, "blocks.0", torch.zeros(3, L, D)),
        pytest.raises(ValueError, match=r"blocks.0: expected shape \(2, 5, 6\), got \(3, 5, 6\)"),
    ):
        model(X)
    with capture(model, "blocks.0.attention.weights") as captured:
        with pytest.raises(KeyError, match="captured nothing; this place did not run"):
            captured["blocks.0.attention.weights"]
        refused("expected a run without a cache", model.blocks[0].attention, X, cache=KVCache())


test_the_ablation_by_hand_rejects_a_changed_line = rejects_changes(
    lambda wrong: check_ablation(Tiny().eval(), (1,), wrong),
    "attn_course.nn.capture.without_heads",
    ("found.index_fill(1, places, 0.0)", "found.index_fill(1, places, 1.0)"),
    ("found.index_fill(1, places, 0.0)", "found.index_fill(2, places, 0.0)"),
)


def test_the_package_s_own_model() -> None:
    from attn_course import nn as ours

    lm = ours.gpt2_like(
        vocab_size=11, max_length=7, embed_dim=D, num_heads=HEADS, num_layers=2
    ).eval()
    tokens = torch.randint(0, 11, (B, L))
    names = ("blocks.*.attention.weights", "blocks.0.attention.input", "blocks.0.attention.heads")
    with capture(lm, *names) as captured:
        logits = lm(tokens)
    assert torch.equal(logits, lm(tokens))
    weights = captured["blocks.0.attention.weights"]
    assert weights.shape == (B, HEADS, L, L)
    assert_close(weights.sum(-1), torch.ones(B, HEADS, L))
    assert (weights.triu(1) == 0).all()
    attention = lm.blocks[0].attention
    value = attention.value_projection(captured["blocks.0.attention.input"])
    heads = weights @ value.unflatten(-1, (HEADS, -1)).transpose(1, 2)
    assert_close(captured["blocks.0.attention.heads"], heads)
    with patched(lm, "blocks.*.attention.heads", without_heads(*range(HEADS))):
        silent = lm(tokens)
    with torch.no_grad():
        for block in lm.blocks:
            block.attention.output_projection.weight.zero_()
    assert_close(silent, lm(tokens))
