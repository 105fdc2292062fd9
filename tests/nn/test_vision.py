"""The Vision Transformer and its rival: written out, against torch's blocks, counts, refusals."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from layers import drawn, leaf
from oracles import same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import nn as ours
from attn_course.functional import interpolate_positions, sinusoidal_positions_2d
from attn_course.functional.vision import _standardize_weight
from attn_course.nn.residual_network import PreActivationBlock, StandardizedConv2d
from attn_course.nn.vision import (
    VIT_SIZES,
    LearnedGridPositions,
    PatchEmbedding,
    ShiftPositions,
    SinusoidalGridPositions,
)

SMALL: dict[str, Any] = {
    "image_size": (6, 10), "patch_size": (3, 2), "num_channels": 3, "embed_dim": 20,
    "num_heads": 5, "num_layers": 2, "hidden_dim": 13, "num_classes": 7,
}  # fmt: skip


@pytest.mark.parametrize("pool", ["class", "mean"])
@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
def test_it_is_torchs_encoder_over_strided_convolution(pool: Any, position: Any) -> None:
    model = drawn(ours.vit_like(**SMALL, pool=pool, position=position))
    images = leaf(2, 3, 6, 10)
    embedding, projection = model.embedding, model.embedding.projection
    kernel = projection.weight.view(20, 3, 3, 2)
    x = F.conv2d(images, kernel, projection.bias, stride=(3, 2)).flatten(2).mT
    table = sinusoidal_positions_2d(2, 5, 20, dtype=torch.float64)
    if pool == "class":
        x = torch.cat([embedding.class_token.expand(2, 1, 20), x], dim=1)
        table = torch.cat([torch.zeros(1, 20).double(), table])
    x = x + (embedding.position.weight if position == "learned" else table)
    for block in model.encoder.blocks:
        layer = nn.TransformerEncoderLayer(
            20, 5, 13, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True,
            norm_first=True,
        ).double()  # fmt: skip
        layer.self_attn = block.attention.to_torch()
        part = block.feed_forward
        layer.linear1, layer.linear2 = part.up_projection, part.down_projection
        layer.norm1.load_state_dict(block.attention_norm.state_dict())
        layer.norm2.load_state_dict(block.feed_forward_norm.state_dict())
        x = layer(x)
    norm = model.encoder.norm
    hidden = F.layer_norm(x, (20,), norm.weight, norm.bias, 1e-6)
    pooled = hidden[:, 0] if pool == "class" else hidden.mean(1)
    wanted = F.linear(pooled, model.head.weight, model.head.bias)
    found = model(images)
    assert_close(found, wanted, **FLOAT64)
    same_gradients(found, wanted, images, **FLOAT64)
    model.head = None
    assert_close(model(images), hidden, **FLOAT64)


@pytest.mark.parametrize(
    ("name", "parameters"),
    # the paper says 86M, 307M and 632M: 307 is the number of L with patches of 32 pixels
    [("B/16", 86_567_656), ("L/16", 304_326_632), ("H/14", 632_045_800)],
)
def test_the_papers_models_have_the_papers_number_of_parameters(name: str, parameters: int) -> None:
    with torch.device("meta"):
        model = ours.vit_like(**VIT_SIZES[name])
        larger = ours.vit_like(**(VIT_SIZES[name] | {"patch_size": 32}))
    assert sum(p.numel() for p in model.parameters()) == parameters
    if name == "L/16":
        assert sum(p.numel() for p in larger.parameters()) == 306_535_400


def test_images_of_another_size_get_interpolated_positions() -> None:
    model = drawn(ours.vit_like(**SMALL))
    images = torch.randn(2, 3, 9, 12, dtype=torch.float64)
    found = model(images)
    table = model.embedding.position.weight
    other = copy.deepcopy(model)
    other.embedding.position = LearnedGridPositions(grid_size=(3, 6), embed_dim=20, num_prefix=1)
    moved = interpolate_positions(table, (2, 5), (3, 6), num_prefix=1)
    other.embedding.position.weight = nn.Parameter(moved.detach())
    assert_close(found, other(images), **FLOAT64)
    free = drawn(ours.vit_like(**SMALL, position="sinusoidal"))
    assert free(images).shape == (2, 7)
    assert not [name for name, _ in free.named_parameters() if "position" in name]
    assert not [name for name in free.state_dict() if "nowhere" in name]


def test_without_positions_the_order_of_the_patches_does_not_matter() -> None:
    model = drawn(ours.vit_like(**SMALL, pool="mean"))
    images = torch.randn(2, 3, 6, 10, dtype=torch.float64)
    tiles = images.unflatten(3, (5, 2))[..., [3, 1, 4, 0, 2], :].flatten(3)  # columns of patches
    assert float((model(images) - model(tiles)).abs().max()) > 1e-3
    model.embedding.position = None
    assert_close(model(images), model(tiles), **FLOAT64)


def test_attention_is_injected_and_its_maps_can_be_captured() -> None:
    seen = []

    def attn_fn(query: Any, key: Any, value: Any, attn_mask: Any = None, **more: Any) -> Any:
        seen.append(query.shape)
        return F.scaled_dot_product_attention(query, key, value, attn_mask)

    model: Any = ours.vit_like(**SMALL, attn_fn=attn_fn).eval()
    images = torch.randn(2, 3, 6, 10)
    with ours.capture(model, "encoder.blocks.*.attention.weights") as captured:
        model(images)
    assert len(seen) >= 2
    assert seen[0] == (2, 5, 11, 4)
    assert all(weights.shape == (2, 5, 11, 11) for weights in captured.values())


def test_it_starts_with_a_head_of_zeros_and_tokens_that_differ() -> None:
    model = ours.vit_like(**SMALL)
    assert not model(torch.randn(2, 3, 6, 10)).detach().any()
    hidden = model.hidden(torch.randn(2, 3, 6, 10))
    assert float(hidden.std(1).min().detach()) > 0


@pytest.mark.usefixtures("unchecked")
def test_impossible_vision_transformers_are_refused() -> None:
    make = partial(ours.vit_like, **SMALL)
    message = r"image_size: expected sides that are multiples .*, got \(7, 10\)"
    refused(message, make, image_size=(7, 10))
    refused("position: expected 'learned' or 'sinusoidal', got 'no'", make, position="no")
    model, images = make(), torch.zeros(2, 3, 6, 10)
    refused("images: expected size 3 on axis 1", model, images[:, :1])
    refused("images: expected sides that are multiples", model, torch.zeros(2, 3, 6, 11))
    refused(r"images: expected torch.float32, got torch.float64", model, images.double())
    refused(r"images: expected a floating point tensor, got torch.ui", model, images.byte())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(images.bfloat16()).isfinite().all()
    embedding = PatchEmbedding(patch_size=2, num_channels=1, embed_dim=4, class_token=False)
    parts = {"embedding": embedding, "encoder": ours.TransformerEncoder(blocks=[])}
    message = "pool: expected 'mean' where there is no class token"
    refused(message, ours.VisionTransformer, **parts)
    message = "pool: expected 'class' or 'mean', got 'last'"
    refused(message, ours.VisionTransformer, **parts, pool="last")
    positions = SinusoidalGridPositions(embed_dim=6)
    refused("embed_dim: expected a positive multiple of 4", positions, 2, 2)


def test_multi_head_attention_is_a_convolution() -> None:
    """Cordonnier et al. (2020), theorem 1, with our modules, forwards and backwards."""
    for sides in ((3, 3), (1, 5), (3, 1)):
        convolution = nn.Conv2d(
            3, 3, sides, padding=(sides[0] // 2, sides[1] // 2), padding_mode="replicate"
        ).double()
        images = leaf(2, 3, 7, 4)
        attention = ours.attention_from_convolution(convolution, image_size=(7, 4))
        assert attention.num_heads == sides[0] * sides[1]
        wanted = convolution(images)
        found = attention(images.flatten(2).mT).mT.unflatten(-1, (7, 4))
        assert_close(found, wanted, **FLOAT64)
        same_gradients(found, wanted, images, **FLOAT64)


def test_other_convolutions_and_images_are_refused() -> None:
    make = partial(ours.attention_from_convolution, image_size=4)
    for message, convolution in (
        (r"padding_mode: expected 'replicate'", nn.Conv2d(1, 1, 3, padding=1)),
        (r"out_channels: expected 3, got 5", nn.Conv2d(3, 5, 3, padding=1)),
        (r"stride: expected \(1, 1\), got \(2, 2\)",
         nn.Conv2d(1, 1, 3, 2, padding=1, padding_mode="replicate")),
    ):  # fmt: skip
        refused(rf"convolution\.{message}", make, convolution)
    bias = ShiftPositions(image_size=(2, 3), kernel_size=3).bias
    refused("query_positions: expected size 6 on axis -1", bias, torch.arange(7), torch.arange(6))


def test_a_residual_network_is_its_formula() -> None:
    block = PreActivationBlock(in_channels=4, out_channels=8, stride=2, num_groups=2).double()
    x = torch.randn(2, 4, 6, 10, dtype=torch.float64)
    bent = F.group_norm(x, 2, block.norm1.weight, block.norm1.bias).relu()
    y = F.conv2d(bent, _standardize_weight(block.conv1.weight), stride=2, padding=1)
    y = F.group_norm(y, 2, block.norm2.weight, block.norm2.bias).relu()
    y = F.conv2d(y, _standardize_weight(block.conv2.weight), padding=1)
    beside = F.conv2d(bent, _standardize_weight(block.shortcut.weight), stride=2)
    assert_close(block(x), beside + y, **FLOAT64)
    plain = PreActivationBlock(in_channels=4, out_channels=4, num_groups=2)
    assert plain.shortcut is None
    assert plain(torch.randn(2, 4, 5, 7)).shape == (2, 4, 5, 7)
    model: Any = ours.ResidualNetwork(
        num_channels=3, widths=(4, 8, 12), num_classes=5, num_groups=2
    )
    images = torch.randn(2, 3, 8, 12)
    maps = model.feature_maps(images)
    assert maps.shape == (2, 12, 2, 3)
    assert float(maps.detach().min()) >= 0
    assert not model(images).detach().any()  # the head starts at 0
    nn.init.normal_(model.head.weight)
    assert_close(model(images), model.head(maps.mean((2, 3))))


@pytest.mark.parametrize(("dilations", "sees"), [((1,), 7), ((2,), 11), ((2, 4), 27)])
def test_what_a_residual_network_sees(dilations: tuple[int, ...], sees: int) -> None:
    """The receptive field, by gradient: norms aside, which mix all places."""
    model = ours.ResidualNetwork(
        num_channels=1, widths=[4] * len(dilations), dilations=dilations, num_groups=1
    ).double()
    for name, part in list(model.named_modules()):
        if isinstance(part, nn.GroupNorm):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], nn.Softplus())
    images = leaf(1, 1, 41, 41)
    output = model.blocks(model.stem(images))[0, :, 20, 20].square().sum()
    (gradient,) = torch.autograd.grad(output, images)
    rows = gradient[0, 0].abs().sum(1).nonzero().flatten()
    assert int(rows.max() - rows.min()) + 1 == sees


def test_impossible_networks_are_refused() -> None:
    make = partial(StandardizedConv2d, in_channels=1, out_channels=1)
    refused("kernel_size: expected an odd number, got 2", make, kernel_size=2)
    message = "dilations: expected one for each of at least one width"
    refused(message, ours.ResidualNetwork, widths=(8, 8), dilations=(1,))
