"""Multi-head attention: against torch's module, by hand, and property by property."""

import copy
import inspect
from functools import partial
from typing import Any

import layers
import pytest
import torch
from layers import POSITIONS, drawn, leaf
from mutation import REJECTED, rejects_changes
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

from attn_course.functional import scaled_dot_product_attention
from attn_course.nn import KVCache, LayerNorm, MultiHeadAttention, RotaryPositions, SlidingCache
from attn_course.nn.cache import ModelCache
from attn_course.nn.low_rank import LowRankLinear

attention = partial(layers.attention, embed_dim=29)
B, L, S, H, E, DK, DV = 2, 7, 11, 3, 5, 13, 17
D = H * E


def gradients(output: Tensor, leaves: list[Tensor]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    weight = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    return list(torch.autograd.grad((output * weight).sum(), leaves, retain_graph=True))


def theirs(**options: Any) -> nn.MultiheadAttention:
    return drawn(nn.MultiheadAttention(D, H, batch_first=True, **options))


def packed(module: nn.MultiheadAttention, mine: MultiHeadAttention) -> list[tuple[Tensor, Any]]:
    """Each parameter of torch's with ours, as a parameter or a list of those it consists of."""
    inputs = [mine.query_projection, mine.key_projection, mine.value_projection]
    pairs: list[tuple[Tensor, Any]] = [(module.out_proj.weight, [mine.output_projection.weight])]
    if module.in_proj_weight is not None:
        pairs.append((module.in_proj_weight, [part.weight for part in inputs]))
    else:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        pairs += [(getattr(module, n), [p.weight]) for n, p in zip(names, inputs, strict=True)]
    if module.in_proj_bias is not None:
        pairs.append((module.in_proj_bias, [part.bias for part in inputs]))
        pairs.append((module.out_proj.bias, [mine.output_projection.bias]))
    return pairs


def check_like_torch(
    cls: type[MultiHeadAttention], options: dict[str, Any], masked: str, cross: bool
) -> None:
    module = theirs(**options)
    mine = cls.from_torch(module)
    query = leaf(B, L, D)
    key = leaf(B, S, options.get("kdim", D)) if cross else query
    value = leaf(B, S, options.get("vdim", D)) if cross else query
    attend = torch.rand(L, key.shape[1]) < 0.6
    attend[:, 0] = True
    real = torch.rand(B, key.shape[1]) < 0.7
    real[:, 0] = True
    their_mask: dict[str, Any] = {}
    my_mask: dict[str, Any] = {}
    if masked == "mask":
        their_mask, my_mask = {"attn_mask": ~attend}, {"attn_mask": attend}
    elif masked == "both":
        their_mask = {"attn_mask": ~attend, "key_padding_mask": ~real}
        my_mask = {"attn_mask": attend & real[:, None, None, :]}
    elif masked == "causal":
        future = torch.ones(L, key.shape[1], dtype=torch.bool).triu(1)
        their_mask, my_mask = {"attn_mask": future}, {"is_causal": True}
    want, want_weights = module(query, key, value, average_attn_weights=False, **their_mask)
    got = mine(query, key, value, **my_mask) if cross else mine(query, **my_mask)
    assert_close(got, want, **FLOAT64)
    assert_close(mine.weights(query, key, **my_mask), want_weights, **FLOAT64)
    inputs = [query, key, value] if cross else [query]
    pairs = packed(module, mine)
    assert_close(gradients(got, inputs), gradients(want, inputs), **FLOAT64)
    for their_parameter, parts in pairs:
        (wish,) = gradients(want, [their_parameter])
        assert_close(torch.cat(gradients(got, parts)), wish, **FLOAT64)


@pytest.mark.parametrize("masked", ["none", "mask", "both", "causal"])
@pytest.mark.parametrize(
    ("options", "cross"),
    [({}, False), ({"bias": False}, True), ({"kdim": DK, "vdim": DV}, True)],
    ids=["self", "cross, no bias", "cross, other widths"],
)
def test_output_weights_and_gradients_are_those_of_torch(
    options: dict[str, Any], cross: bool, masked: str
) -> None:
    check_like_torch(MultiHeadAttention, options, masked, cross)


def check_several(cls: type[MultiHeadAttention]) -> None:
    for options, cross in (({}, False), ({"kdim": DK, "vdim": DV}, True)):
        for masked in ("both", "causal"):
            check_like_torch(cls, options, masked, cross)


test_the_comparison_with_torch_rejects_mutants = rejects_changes(
    check_several,
    "attn_course.nn.multihead.MultiHeadAttention",
    ("join_heads(heads)", "heads.flatten(2).unflatten(1, (-1, 5)).flatten(2)"),
    ("join_heads(heads)", "heads.reshape(query.shape)"),
    ("is_causal=is_causal, dropout_p", "is_causal=False, dropout_p"),
    ("value = key if value is None else value", "value = key"),
    ('"scale": self.scale', '"scale": self.embed_dim**-0.5'),
    ("(made._inputs(), weights", "(made._inputs()[::-1], weights"),
    error=(*REJECTED, ValueError),
)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"kdim": DK, "vdim": DV}])
def test_weights_go_to_torch_and_back(options: dict[str, Any]) -> None:
    module = theirs(dropout=0.25, **options).eval()
    again = MultiHeadAttention.from_torch(module).to_torch()
    assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)
    assert (again.dropout, again.batch_first, again.training) == (0.25, True, False)


def test_torch_modules_that_do_more_are_refused_in_both_directions() -> None:
    with pytest.raises(ValueError, match="add_bias_kv"):
        MultiHeadAttention.from_torch(nn.MultiheadAttention(D, H, add_bias_kv=True))
    for options in (
        {"num_kv_heads": 1},
        {"position": RotaryPositions()},
        {"scale": 1.0},
        {"value_projection": None},
        {"head_dim": 2},
    ):
        refused("to_torch", MultiHeadAttention(embed_dim=D, num_heads=H, **options).to_torch)


def test_one_query_two_heads_by_hand() -> None:
    module = MultiHeadAttention(embed_dim=4, num_heads=2, bias=False, scale=1.0).double()
    eye = torch.eye(4, dtype=torch.float64)
    with torch.no_grad():
        for name in ("query", "key", "value", "output"):
            getattr(module, f"{name}_projection").weight.copy_(eye)
    log2, log3 = torch.tensor([2.0, 3.0], dtype=torch.float64).log().tolist()
    query = torch.tensor([[[1.0, 0.0, 0.0, 1.0]]], dtype=torch.float64)
    key = torch.tensor([[[log2, 5.0, 5.0, 0.0], [0.0, 7.0, 7.0, log3]]], dtype=torch.float64)
    # head 1 sees (log 2, 0): weights 2/3 and 1/3; head 2 sees (0, log 3): 1/4 and 3/4
    weights = torch.tensor([[2 / 3, 1 / 3], [1 / 4, 3 / 4]], dtype=torch.float64)
    assert_close(module.weights(query, key), weights[None, :, None], **FLOAT64)
    want = [2 / 3 * log2, 2 / 3 * 5 + 1 / 3 * 7, 1 / 4 * 5 + 3 / 4 * 7, 3 / 4 * log3]
    assert_close(module(query, key), torch.tensor([[want]], dtype=torch.float64), **FLOAT64)


@pytest.mark.parametrize("kv_heads", [1, 2, 3])
def test_grouped_heads_are_many_heads_that_share_keys_and_values(kv_heads: int) -> None:
    heads, sizes = 6, {"embed_dim": 17, "head_dim": 5, "value_head_dim": 7}
    grouped = MultiHeadAttention(num_heads=heads, num_kv_heads=kv_heads, **sizes).double()
    many = MultiHeadAttention(num_heads=heads, **sizes).double()
    for name, parameter in grouped.named_parameters():
        if name.startswith(("key", "value")):
            rows = parameter.unflatten(0, (kv_heads, -1))
            parameter = rows.repeat_interleave(heads // kv_heads, dim=0).flatten(0, 1)
        many.get_parameter(name).data.copy_(parameter.data)
    x = leaf(B, L, 17)
    got, want = grouped(x, is_causal=True), many(x, is_causal=True)
    assert_close(got, want, **FLOAT64)
    assert_close(gradients(got, [x]), gradients(want, [x]), **FLOAT64)
    assert_close(grouped.weights(x, is_causal=True), many.weights(x, is_causal=True), **FLOAT64)
    wish = gradients(want, [many.key_projection.weight])[0].unflatten(0, (kv_heads, -1, 5)).sum(1)
    (have,) = gradients(got, [grouped.key_projection.weight])
    assert_close(have, wish.flatten(0, 1), **FLOAT64)


def test_parameters_have_the_names_and_shapes_that_the_docstring_gives() -> None:
    module = MultiHeadAttention(
        embed_dim=29, num_heads=6, num_kv_heads=2, head_dim=5, value_head_dim=7, kdim=31, vdim=37
    )
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    assert shapes == {
        "query_projection.weight": (30, 29),
        "query_projection.bias": (30,),
        "key_projection.weight": (10, 31),
        "key_projection.bias": (10,),
        "value_projection.weight": (14, 37),
        "value_projection.bias": (14,),
        "output_projection.weight": (29, 42),
        "output_projection.bias": (29,),
    }
    bound = (6 / (30 + 29)) ** 0.5
    largest = float(module.query_projection.weight.detach().abs().max())
    assert 0.95 * bound < largest <= bound
    assert not module.output_projection.bias.any()


@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("position", POSITIONS)
def test_padding_on_either_side_changes_nothing(position: str, is_causal: bool) -> None:
    module = attention(position)
    rows = [leaf(1, length, 29) for length in (7, 4, 5)]
    padded = torch.full((3, 9, 29), 1e3, dtype=torch.float64)
    positions = torch.full((3, 9), -1)
    # left, right, and in the middle
    places = [torch.arange(2, 9), torch.arange(4), torch.tensor([0, 1, 2, 6, 7])]
    for n, (row, place) in enumerate(zip(rows, places, strict=True)):
        padded[n, place] = row[0].detach()
        positions[n, place] = torch.arange(len(place))
    got = module(padded, is_causal=is_causal, positions=positions)
    for n, (row, place) in enumerate(zip(rows, places, strict=True)):
        assert_close(got[n : n + 1, place], module(row, is_causal=is_causal), **FLOAT64)
    weights = module.weights(padded, is_causal=is_causal, positions=positions)
    assert not weights.movedim(-1, 1)[positions < 0].any()


@pytest.mark.parametrize("position", ["rope", "alibi", "t5"])
def test_moving_the_whole_text_changes_nothing_and_moving_one_token_does(position: str) -> None:
    module, x = attention(position), leaf(2, L, 29)
    here = torch.arange(L).expand(2, L)
    assert_close(module(x, positions=here + 53), module(x), **FLOAT64)
    apart = here.clone()
    apart[:, -1] += 3
    assert float((module(x, positions=apart) - module(x)).detach().abs().max()) > 1e-3


@pytest.mark.parametrize("position", POSITIONS)
def test_float_and_boolean_masks_say_the_same(position: str) -> None:
    module, x = attention(position), leaf(B, L, 29)
    mask = torch.rand(B, 1, L, L) < 0.6
    mask[..., 0] = True
    numbers = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    assert_close(module(x, attn_mask=numbers), module(x, attn_mask=mask), **FLOAT64)
    causal = torch.ones(L, L, dtype=torch.bool).tril()
    assert_close(module(x, attn_mask=causal), module(x, is_causal=True), **FLOAT64)


def test_a_query_without_keys_gives_the_bias_of_the_output_and_no_gradient() -> None:
    module, x = attention("alibi"), leaf(B, L, 29)
    mask = torch.ones(L, L, dtype=torch.bool)
    mask[3] = False
    output = module(x, attn_mask=mask)
    assert_close(output[:, 3], module.output_projection.bias.expand(B, -1), **FLOAT64)
    (grad,) = torch.autograd.grad(output[:, 3].sum(), x)
    assert not grad.any()


@pytest.mark.parametrize("position", ["none", "rope", "alibi"])
def test_torch_own_function_fits_in(position: str) -> None:
    theirs_inside = attention(position, attn_fn=nn.functional.scaled_dot_product_attention)
    ours = attention(position)
    ours.load_state_dict(theirs_inside.state_dict())
    x = leaf(B, L, 29)
    assert_close(theirs_inside(x, is_causal=True), ours(x, is_causal=True), **FLOAT64)


def test_dropout_is_for_training_only_and_goes_to_the_function() -> None:
    seen = []

    def spy(*args: Tensor, dropout_p: float, **options: Any) -> Tensor:
        seen.append(dropout_p)
        return scaled_dot_product_attention(*args, dropout_p=dropout_p, **options)

    module = MultiHeadAttention(embed_dim=D, num_heads=H, dropout=0.3, attn_fn=spy)
    x = torch.randn(B, L, D)
    module(x)
    module.eval()(x)
    assert seen == [0.3, 0.0]


def check_values(module: MultiHeadAttention, weight: Tensor, bias: Tensor) -> None:
    """The module is one whose values come from this weight and bias."""
    full = MultiHeadAttention(embed_dim=D, num_heads=H).double()
    state = {n: p for n, p in module.state_dict().items() if not n.startswith("value")}
    values = {"value_projection.weight": weight, "value_projection.bias": bias}
    full.load_state_dict(state | values)
    x = leaf(B, L, D)
    assert_close(module(x), full(x), **FLOAT64)


def test_without_value_projection_the_features_are_dealt_to_the_heads() -> None:
    module = MultiHeadAttention(embed_dim=D, num_heads=H, value_projection=None).double()
    assert not any(name.startswith("value") for name, _ in module.named_parameters())
    check_values(module, torch.eye(D), torch.zeros(D))
    sizes = {"embed_dim": 16, "num_heads": H, "head_dim": E, "value_projection": None}
    message = r"vdim: expected .* = 15 without a value projection"
    refused(message, MultiHeadAttention, **sizes)


def test_a_low_rank_value_projection_is_the_product_of_its_factors() -> None:
    low = LowRankLinear(in_features=D, out_features=D, rank=2)
    assert sum(p.numel() for p in low.parameters()) == 2 * (D + D) + D
    module = MultiHeadAttention(embed_dim=D, num_heads=H, value_projection=low).double()
    nn.init.normal_(low.up.bias)
    check_values(module, low.up.weight @ low.down.weight, low.up.bias)
    wrong = MultiHeadAttention(embed_dim=D, num_heads=H, value_projection=nn.Linear(D, 7))
    refused(r"value_projection\(value\): expected size 15", wrong, torch.randn(B, L, D))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"attn_mask": torch.ones(2, 7, 7).bool()}, "attn_mask: expected shape"),
        ({"attn_mask": torch.ones(2, 7).bool()}, r"mask\[:, None, None, :\]"),
        ({"attn_mask": torch.ones(7).bool()}, "attn_mask: expected shape"),
        ({"attn_mask": torch.ones(7, 7).bool(), "is_causal": True}, "attn_mask: expected none"),
        ({"attn_mask": torch.ones(7, 7).long()}, "attn_mask: expected a boolean .* torch.int64"),
        # ones and zeros joined with padding were once a bias that hid nothing
        (
            {"attn_mask": torch.ones(7, 7).long(), "positions": torch.zeros(2, 7).long()},
            "attn_mask: expected a boolean .* torch.int64",
        ),
        ({"positions": torch.zeros(2, 7).long(), "key": torch.zeros(2, 5, 15)}, "self-attention"),
        ({"key": torch.zeros(2, 7, 14)}, "key: expected size 15"),
        ({"value": torch.zeros(2, 6, 15)}, "value: expected size 7"),
        (
            {"key": torch.zeros(2, 5, 15).bfloat16()},
            r"key: expected torch.float32, got torch.bfloat16: write key.to\(torch.float32\)",
        ),
        (
            {"key_padding_mask": torch.zeros(2, 7).bool()},
            r"key_padding_mask: .* write attn_mask=~key_padding_mask\[:, None, None, :\]",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    module = MultiHeadAttention(embed_dim=15, num_heads=3)
    refused(message, module, torch.zeros(2, 7, 15), **arguments)


def test_the_signature_is_kept_and_a_module_can_be_copied() -> None:
    assert str(inspect.signature(LayerNorm)).startswith("(*, embed_dim: int")
    assert copy.deepcopy(LayerNorm(embed_dim=3)).eps == 1e-5


@pytest.mark.parametrize("cache", [None, KVCache, lambda: SlidingCache(window_size=3)])
@pytest.mark.parametrize("position", POSITIONS)
def test_no_token_and_no_key_are_sequences_too(position: str, cache: Any) -> None:
    module, x = attention(position), leaf(B, L, 29)
    options = {"is_causal": True, "cache": None if cache is None else cache()}
    assert module(x[:, :0], **options).shape == (B, 0, 29)
    assert_close(module(x, **options), module(x, is_causal=True, cache=cache and cache()))
    bias = module.output_projection.bias.expand(B, L, -1)
    assert_close(module(x, x[:, :0]), bias)


@pytest.mark.usefixtures("unchecked")
def test_fake_tensors_pass_and_nested_ones_are_refused_by_name() -> None:
    with FakeTensorMode():
        module = MultiHeadAttention(embed_dim=12, num_heads=3, position=RotaryPositions())
        cache = KVCache()
        for length in (5, 1):
            output = module(torch.empty(2, length, 12), is_causal=True, cache=cache)
            assert output.shape == (2, length, 12)
    module = MultiHeadAttention(embed_dim=15, num_heads=3)
    rows = [torch.zeros(3, 15), torch.zeros(5, 15)]
    for layout in (torch.jagged, torch.strided):
        nested = torch.nested.nested_tensor(rows, layout=layout)
        refused(r"query: expected a padded tensor .* nested", module, nested)


def test_what_is_printed_has_heads_grouped_heads_base_and_lengths() -> None:
    module = attention("rope")
    cache = KVCache(max_length=9)
    with torch.no_grad():
        module(leaf(1, 5, 29), is_causal=True, cache=cache)
    assert "num_heads=6, num_kv_heads=3, head_dim=4" in repr(module)
    assert "RotaryPositions(base=10000.0, interleaved=True)" in repr(module)
    assert repr(ModelCache([cache])) == (
        "ModelCache(length=5, layers=[KVCache(length=5, max_length=9)])"
    )


def test_sizes_that_do_not_divide_are_refused() -> None:
    make = partial(MultiHeadAttention, embed_dim=16)
    refused("embed_dim: expected a multiple of num_heads", make, num_heads=3)
    refused("num_kv_heads: expected a divisor", make, num_heads=4, num_kv_heads=3)
    refused("num_heads: expected at least 1", make, num_heads=0)
