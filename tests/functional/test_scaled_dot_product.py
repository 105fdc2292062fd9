"""Attention with torch's signature: by hand, NumPy, torch, gradcheck, and where ours differs."""

import math
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from mutation import rejects_changes
from oracles import by_numpy, same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course.functional import (
    attention_weights,
    attention_with_lse,
    flex_attention_fn,
    merge_attention,
)
from attn_course.functional import scaled_dot_product_attention as sdpa
from attn_course.functional._fast import scaled_dot_product as fast
from attn_course.probes import student

MODULE = "attn_course.functional.scaled_dot_product"
FAST = "attn_course.functional._fast.scaled_dot_product"
B, H, HKV, L, S, E, EV = 2, 6, 3, 5, 7, 11, 13


def rows(
    length: int = L, heads: int = H, kv_heads: int = H, *, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    shapes = ((B, heads, length, E), (B, kv_heads, S, E), (B, kv_heads, S, EV))
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def all_masks(length: int = L) -> Iterator[Tensor | None]:
    """None, booleans for pairs, keys, heads; biases; with an empty row wherever there is one."""
    yield None
    mask = torch.rand(length, S) < 0.6
    mask[0] = False
    yield mask
    yield torch.tensor([[True] * 4 + [False] * 3, [False] * S])[:, None, None, :]
    mask = torch.rand(B, H, length, S) < 0.6
    mask[1, 2, -1] = False
    yield mask
    yield torch.randn(H, length, S, dtype=torch.float64)
    yield torch.randn(length, S, dtype=torch.float64).masked_fill(~mask[1, 2], -torch.inf)


def check(attention: Callable[..., Tensor]) -> None:
    # by hand: scores ln 1 and ln 3, so weights 1/4 and 3/4
    query = torch.tensor([[[[1.0]]]])
    key = torch.tensor([[[[0.0], [math.log(3.0)]]]])
    value = torch.tensor([[[[8.0, 0.0], [0.0, 4.0]]]])
    assert_close(attention(query, key, value), torch.tensor([[[[2.0, 3.0]]]]))

    for length, kv_heads in ((L, H), (1, H), (L, HKV), (1, HKV), (11, 1)):
        gqa = kv_heads != H
        for mask in all_masks(length):
            tensors = rows(length, kv_heads=kv_heads)
            options = {"enable_gqa": gqa, "scale": 0.7 if mask is None else None}
            output = attention(*tensors, mask, **options)
            want = by_numpy.scaled_dot_product_attention(*tensors, mask, **options)
            assert_close(output, want, **FLOAT64)
            spread = [t.repeat_interleave(H // t.shape[1], dim=1) for t in tensors]
            allowed = torch.ones(1, S) if mask is None else mask
            allowed = allowed if allowed.dtype == torch.bool else allowed > -torch.inf
            empty = ~allowed.any(-1, keepdim=True)
            safe = None
            if mask is not None:
                safe = mask | empty if mask.dtype == torch.bool else mask.masked_fill(empty, 0.0)
            theirs = F.scaled_dot_product_attention(*spread, safe, scale=options["scale"])
            theirs = theirs.masked_fill(empty, 0.0)
            same_gradients(output, theirs, tensors, **FLOAT64)
    for length in (L, 11):
        tensors = rows(length)
        causal = attention(*tensors, is_causal=True)
        want = F.scaled_dot_product_attention(*tensors, is_causal=True)
        assert_close(causal, want, **FLOAT64)


def equation(*args: object, **options: object) -> Tensor:
    """What stands in the module, without the implementation that runs for it."""
    return sdpa.__wrapped__(*args, **options)


@pytest.mark.parametrize("form", [sdpa, equation])
def test_attention_agrees_with_every_oracle(form: Callable[..., Tensor]) -> None:
    check(form)


test_oracles_reject_a_changed_equation = rejects_changes(
    lambda wrong: check(wrong.__wrapped__),
    f"{MODULE}.scaled_dot_product_attention",
    ("_softmax(scores), dropout_p", "torch.softmax(scores, -1), dropout_p"),
    ("dim=-1).masked_fill(empty, 0.0)", "dim=-2).masked_fill(empty, 0.0)"),
    ("default_scale(query, scale)", "default_scale(query, None)"),
    ("default_scale(query, scale)", "default_scale(query.mT, scale)"),
    ("* default_scale(query, scale), mask)", "* default_scale(query, scale), None)"),
    ("attn_mask = causal_mask(*shape[-2:]", "attn_mask = ~causal_mask(*shape[-2:]"),
    ("repeat_interleave(groups, dim=-3)", "repeat(1, groups, 1, 1)"),
)


test_oracles_reject_a_changed_fast_path = rejects_changes(
    check,
    f"{FAST}.scaled_dot_product_attention",
    (".masked_fill(empty, 0.0)\n\n", "\n\n"),
    ("allowed.any(dim=-1, keepdim=True)", "allowed.all(dim=-1, keepdim=True)"),
    ("attn_mask | empty", "~attn_mask | empty"),
    ("attn_mask.masked_fill(empty, 0.0)", "attn_mask.exp().masked_fill(empty, 0.0)"),
    ("dropout_p, is_causal, scale=scale", "dropout_p, False, scale=scale"),
    ("dropout_p, is_causal, scale=scale", "dropout_p, is_causal, scale=None"),
    ("query, key, value, attn_mask, dropout_p", "query, key, value, None, dropout_p"),
    ("repeat(1, 1, groups, 1)", "repeat_interleave(groups, 2)"),
    (".reshape(len(spread), kv_heads, groups * length, spread.shape[-1])", "[:, :kv_heads]"),
    (".view(*shape[:3], value.shape[-1])", ".mT.reshape(*shape[:3], value.shape[-1])"),
)


def masks_of(kind: str, length: int) -> Tensor | None:
    """One of each kind, with an empty row and with keys that no query attends to."""
    mask = torch.rand(B, 1, length, S) < 0.7
    mask[..., -2:] = False
    mask[0, :, 0] = False
    bias = torch.randn(B, H, length, S).masked_fill(~mask, -torch.inf)
    return {"bool": mask, "pairs": mask[1, 0], "bias": bias}.get(kind)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["none", "causal", "bool", "pairs", "bias"])
@pytest.mark.parametrize(("length", "kv_heads"), [(1, H), (1, HKV), (L, HKV), (19, H)])
def test_what_runs_agrees_with_the_equation_forward_and_backward(
    kind: str, dtype: torch.dtype, length: int, kv_heads: int
) -> None:
    mask = masks_of(kind, length)
    options = {"is_causal": kind == "causal", "enable_gqa": kv_heads != H}
    for scale in (None, 0.7, -0.7, 0.0):
        tensors = [t.detach().to(dtype) for t in rows(length, kv_heads=kv_heads)]
        if mask is not None or kind == "causal":  # no query attends to these
            first = length if kind == "causal" else S - 2
            tensors[1][:, :, first:], tensors[2][:, :, first:] = torch.nan, torch.inf
        leaves = [t.requires_grad_() for t in tensors]
        half = dtype in (torch.bfloat16, torch.float16)
        wide = [t.detach().double().requires_grad_() for t in leaves] if half else leaves
        found = []
        for attend, given in ((sdpa, leaves), (equation, wide)):
            output = attend(*given, mask, scale=scale, **options)
            push = torch.linspace(-1, 1, output.numel()).view(output.shape).to(output.dtype)
            found.append((output, *torch.autograd.grad(output, given, push)))
        with torch.no_grad():  # other kernels run without gradients
            plain = sdpa(*leaves, mask, scale=scale, **options)
        for got, want in (*zip(*found, strict=True), (plain, found[1][0])):
            assert got.dtype == dtype
            atol = 8 * torch.finfo(dtype).eps * max(want.detach().abs().max().item(), 1)
            assert_close(got.to(want.dtype), want, rtol=0, atol=atol)


def test_transforms_see_the_equation_and_its_derivatives() -> None:
    query, key, value = (t.detach()[:1, :2] for t in rows())
    mask = torch.rand(L, S) < 0.6
    mask[0] = False

    def attend(q: Tensor) -> Tensor:
        return sdpa(q, key, value, mask)

    direction = torch.randn_like(query)
    _, found = torch.func.jvp(attend, (query,), (direction,))
    step = 1e-6 * direction
    assert_close(found, (attend(query + step) - attend(query - step)) / 2e-6, rtol=1e-6, atol=1e-8)
    with torch.autograd.forward_ad.dual_level():
        dual = attend(torch.autograd.forward_ad.make_dual(query, direction))
        assert_close(torch.autograd.forward_ad.unpack_dual(dual).tangent, found)
    leaves = tuple(t.requires_grad_() for t in (query, key, value))
    second = partial(equation, attn_mask=mask)
    assert torch.autograd.gradgradcheck(second, leaves, fast_mode=True)


def test_the_kernel_says_what_to_write_for_a_second_derivative() -> None:
    def attend(function: Callable[..., Tensor], x: Tensor) -> Tensor:
        return function(x, x.tanh(), x.cos()).square().sum()

    x = torch.randn(1, 2, 5, 3, dtype=torch.float64, requires_grad=True)
    fast, equation = partial(attend, sdpa), partial(attend, sdpa.__wrapped__)
    twice = torch.autograd.functional.hessian
    refused("write scaled_dot_product_attention.__wrapped__", twice, fast, x)
    want = twice(equation, x)
    assert_close(torch.func.hessian(fast)(x), want)
    (first,) = torch.autograd.grad(fast(x), x, create_graph=True)  # asked for, and not used
    assert_close(first, torch.autograd.grad(equation(x), x)[0])


@pytest.mark.usefixtures("unchecked")
def test_fake_tensors_pass_and_nested_ones_are_refused_by_name() -> None:
    query, key, value = (t.detach() for t in rows())
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(t) for t in (query, key, value)]
        mask = torch.rand(B, 1, 1, S) < 0.6
        for function in (sdpa, attention_with_lse, equation):
            output = function(*fakes, mask)
            assert (output[0] if isinstance(output, tuple) else output).shape == (B, H, L, EV)
    nested = torch.nested.nested_tensor([query[0], query[1]])
    refused("query: expected a padded tensor and a mask, got a nes", sdpa, nested, nested, nested)


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_gradcheck(kv_heads: int) -> None:
    leaf = partial(torch.randn, dtype=torch.float64, requires_grad=True)
    query, key, value = leaf(1, 2, 3, 2), leaf(1, kv_heads, 4, 2), leaf(1, kv_heads, 4, 2)
    mask = torch.tensor([[True, False, True, True], [False] * 4, [False, True, False, False]])
    bias = torch.randn(3, 4, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    for attn_mask in (mask, bias):
        lse = partial(attention_with_lse, attn_mask=attn_mask, enable_gqa=kv_heads == 1)
        assert torch.autograd.gradcheck(
            lambda q, k, v, f=lse: f(q, k, v)[0] * f(q, k, v)[1].nan_to_num(0, 0, 0)[..., None],
            [query, key, value],
            fast_mode=True,
        )
    first = query[:, :1], key[:, :1], value[:, :1]
    assert torch.autograd.gradcheck(lambda m: sdpa(*first, m), leaf(3, 4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("length", "kv_heads"), [(1, H), (1, HKV), (L, HKV), (19, H), (37, HKV)])
def test_half_precision_rounds_as_little_as_torch(
    dtype: torch.dtype, length: int, kv_heads: int
) -> None:
    tensors = [t.detach().to(dtype) for t in rows(length, kv_heads=kv_heads)]
    tensors[0] *= 5  # large scores: rounded to half precision they would be far off
    wide = [t.double() for t in tensors]
    mask = torch.rand(B, 1, length, S) < 0.7
    for attn_mask in (None, mask):
        options = {"attn_mask": attn_mask, "enable_gqa": kv_heads != H}
        exact = sdpa(*wide, **options)
        output = sdpa(*tensors, **options)
        theirs = F.scaled_dot_product_attention(*tensors, **options)
        assert output.dtype == dtype
        largest = exact.abs().max()
        error = (output.double() - exact).abs().max() / largest
        torchs = (theirs.double() - exact).nan_to_num().abs().max() / largest
        # half an eps is one rounding of the output; a float32 sum of 11 products has a few
        roundings = 4.0 if dtype == torch.float32 else 0.6
        assert error <= max(1.5 * torchs, roundings * torch.finfo(dtype).eps)


@pytest.mark.parametrize("kv_heads", [H, HKV])
def test_with_lse_and_weights_agree_with_numpy(kv_heads: int) -> None:
    tensors = rows(kv_heads=kv_heads)
    causal = [{"is_causal": True, "scale": scale} for scale in (None, 0.0, -0.7)]
    for given in (*({"attn_mask": mask} for mask in all_masks()), *causal):
        options = {"enable_gqa": kv_heads != H, **given}
        got = attention_with_lse(*tensors, **options)
        assert_close(got, by_numpy.attention_with_lse(*tensors, **options), **FLOAT64)
        weights = attention_weights(*tensors[:2], **options)
        assert_close(weights, by_numpy.attention_weights(*tensors[:2], **options), **FLOAT64)
    for dtype in (torch.bfloat16, torch.float16):
        output, lse = attention_with_lse(*rows(dtype=dtype))
        assert (output.dtype, lse.dtype) == (dtype, torch.float32)


def blocks(mask: Tensor, merge: Callable[..., tuple[Tensor, Tensor]]) -> None:
    query, key, value = rows()
    whole = attention_with_lse(query, key, value, mask)
    parts = [
        attention_with_lse(query, key[:, :, a:b], value[:, :, a:b], mask[..., a:b])
        for a, b in ((5, S), (0, 2), (2, 5))
    ]
    outputs, lses = zip(*parts, strict=True)
    got = merge(outputs, lses)
    assert_close(got, whole, **FLOAT64)
    assert_close(got, by_numpy.merge_attention(list(outputs), list(lses)), **FLOAT64)
    grads = [torch.autograd.grad(o.square().sum(), (query, key, value)) for o, _ in (got, whole)]
    assert_close(*grads, **FLOAT64)
    # far from 0, where exponentials overflow or vanish
    for shift in (-2000.0, 2000.0):
        shifted = merge(outputs, [lse + shift for lse in lses])
        assert_close(shifted, (whole[0], whole[1] + shift), **FLOAT64)


def block_mask() -> Tensor:
    mask = torch.rand(B, H, L, S) < 0.5
    mask[0, 0, 0] = False  # empty in every block
    mask[1, 0, 1, :5] = False  # in some
    return mask


def test_merged_blocks_are_attention_to_all() -> None:
    blocks(block_mask(), merge_attention)


test_blocks_reject_a_changed_line = rejects_changes(
    lambda wrong: blocks(block_mask(), wrong),
    f"{MODULE}.merge_attention",
    ("torch.exp(stacked - total.masked_fill(total == -torch.inf, 0.0))", "stacked.softmax(0)"),
    ("torch.exp(stacked - total.masked_fill(total == -torch.inf, 0.0))", "torch.exp(stacked)"),
    ("return output.sum(0).to(outputs[0].dtype)", "return output.mean(0)"),
    ("logsumexp(stacked, dim=0)", "stacked.exp().sum(0).log()"),
    ("logsumexp(stacked, dim=0)", "stacked.amax(0)"),
)


def output_and_lse(*arguments: Tensor, enable_gqa: bool) -> Tensor:
    output, lse = attention_with_lse(*arguments, enable_gqa=enable_gqa)
    return torch.cat([output.flatten(), lse.nan_to_num(0, 0, 0).flatten()])


@pytest.mark.parametrize("kv_heads", [H, HKV, 1])
@pytest.mark.parametrize("length", [1, L, 19])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_what_nobody_attends_to_may_be_anything(kv_heads: int, length: int, poison: float) -> None:
    mask = torch.ones(B, 1, length, S, dtype=torch.bool)
    mask[0, ..., 4:] = mask[1, ..., :2] = False
    mask[1, ..., 0, :] = length == 1
    bias = torch.randn(B, 1, length, S).masked_fill(~mask, -torch.inf)
    clean = [t.detach() for t in rows(length, kv_heads=kv_heads, dtype=torch.float32)]
    dirty = [t.clone() for t in clean]
    hidden = ~mask.any(-2)[:, :, :, None]  # (B, 1, S, 1)
    for tensor in dirty[1:]:
        tensor.masked_fill_(hidden, poison)
    option = {"enable_gqa": kv_heads != H}
    for attn_mask in (mask, bias, mask.expand(B, H, length, S)):
        want = sdpa(*clean, attn_mask, **option)
        assert want.isfinite().all()
        assert_close(sdpa(*dirty, attn_mask, **option), want)
        leaves = [t.requires_grad_() for t in dirty]
        weights = attention_weights(*leaves[:2], attn_mask, **option)
        for output in (
            sdpa(*leaves, attn_mask, **option),
            output_and_lse(*leaves, attn_mask, **option),
            weights + 0 * leaves[2].nan_to_num(0, 0, 0).sum(),
        ):
            assert output.isfinite().all()
            for grad in torch.autograd.grad(output.square().sum(), leaves):
                assert grad.isfinite().all()
        for tensor in dirty:
            tensor.requires_grad_(False)


def test_keys_behind_a_causal_corner_may_be_anything() -> None:
    query, key, value = (t.detach() for t in rows())
    want = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    key[:, :, L:], value[:, :, L:] = torch.nan, torch.inf
    assert_close(attention_with_lse(query, key, value, is_causal=True)[0], want, **FLOAT64)


def test_one_step_over_a_long_cache_copies_no_key() -> None:
    heads, kv_heads, keys, dim = 32, 8, 4096, 128
    mask = torch.ones(1, 1, 1, keys, dtype=torch.bool)
    mask[..., 4000:] = False
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        query = torch.randn(1, heads, 1, dim).to(dtype)
        key, value = (torch.randn(1, kv_heads, keys, dim).to(dtype) for _ in range(2))
        peak = student.peak_memory(sdpa, query, key, value, mask, enable_gqa=True)
        # three tables of scores in float32; in float16 a fourth, and some hundred widened keys
        scores, widened = 4 * heads * keys, 4 * 256 * kv_heads * dim
        half = dtype == torch.float16
        assert peak <= (3 + half) * scores + half * widened + 2**17


def test_many_queries_with_a_mask_copy_no_key() -> None:
    query, key = torch.randn(1, 2, 64, 64), torch.randn(1, 2, 5000, 64)
    mask = torch.ones(64, 5000, dtype=torch.bool)
    mask[:, 4000:] = False
    peak = student.peak_memory(sdpa, query, key, key, mask)
    assert peak < key.numel() * 4


def test_dropout_keeps_the_mean_and_empty_rows() -> None:
    query, key, value = (t.detach() for t in rows())
    mask = torch.ones(L, S, dtype=torch.bool)
    mask[0] = False
    kept = sdpa(query, key, value, mask)
    drawn = [sdpa(query, key, value, mask, dropout_p=0.3) for _ in range(150)]
    assert not torch.equal(drawn[0], drawn[1])
    assert all((output[..., 0, :] == 0).all() for output in drawn)
    assert (torch.stack(drawn).mean(0) - kept).abs().mean() < 0.08
    everything = sdpa(query, key, value, dropout_p=1.0)
    assert (everything == 0).all()


def test_no_keys_and_no_queries() -> None:
    query, key, value = rows()
    for mask in (None, torch.ones(L, 0, dtype=torch.bool)):
        nothing = (query, key[:, :, :0], value[:, :, :0], mask)
        assert (sdpa(*nothing) == 0).all()
        output, lse = attention_with_lse(*nothing)
        assert (output == 0).all()
        assert (lse == -torch.inf).all()


def test_fewer_axes_and_broadcast_batches() -> None:
    query, key, value = (t.detach() for t in rows())
    want = sdpa(query, key, value)
    one = sdpa(query[0, 0], key[0, 0], value[0, 0])
    assert_close(one, want[0, 0], **FLOAT64)
    assert_close(sdpa(query[0], key[0], value[0]), want[0], **FLOAT64)
    shared = sdpa(query, key[:1, :1], value[:1])
    spread = sdpa(query, key[:1, :1].expand(key.shape), value[:1].expand(value.shape))
    assert_close(shared, spread, **FLOAT64)
    for tensors in ((query, key[:1, :1], value[:1]), (query[0], key[0], value[0])):
        output, lse = attention_with_lse(*tensors)
        assert_close(output, sdpa(*tensors), **FLOAT64)
        assert lse.shape == output.shape[:-1]
    first = query[:, :, :1], key, value
    strided = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in first]
    assert_close(sdpa(*strided), want[:, :, :1], **FLOAT64)


def test_one_query_head_meets_all_key_heads_as_in_torch() -> None:
    query, key, value = rows()
    shared = sdpa(query[:, :1], key, value)
    assert_close(shared, F.scaled_dot_product_attention(query[:, :1], key, value), **FLOAT64)
    output, _ = attention_with_lse(query[:, :1], key, value)
    assert_close(output, shared, **FLOAT64)
    mask = torch.rand(B, H, 1, S) < 0.6
    output, _ = attention_with_lse(query[:, :1], key, value, mask)
    assert_close(sdpa(query[:, :1], key, value, mask), output, **FLOAT64)


def test_a_mask_with_one_row_for_one_example_is_no_riddle() -> None:
    query, key, value = (t[:1] for t in rows())
    mask = torch.tensor([[True] * 4 + [False] * 3])
    want = sdpa(query, key, value, mask.expand(L, S))
    assert_close(sdpa(query, key, value, mask), want, **FLOAT64)


@pytest.mark.parametrize("kv_heads", [H, HKV])
@pytest.mark.parametrize("length", [0, 1, L])
def test_no_examples_and_no_queries_of_grouped_heads(kv_heads: int, length: int) -> None:
    query, key, value = rows(length, kv_heads=kv_heads)
    for batch in (0, B):
        tensors = query[:batch], key[:batch], value[:batch]
        output = sdpa(*tensors, enable_gqa=True)
        again, lse = attention_with_lse(*tensors, enable_gqa=True)
        assert output.shape == again.shape == (batch, H, length, EV)
        assert lse.shape == (batch, H, length)
        assert attention_weights(*tensors[:2], enable_gqa=True).shape == (batch, H, length, S)


MESSAGES: list[tuple[dict[str, object], str]] = [
    ({"query": [[1.0]]}, "query: expected a torch tensor, got list"),
    ({"key": torch.zeros(B, H, S, E).numpy()}, "key: expected a torch tensor, got ndarray"),
    ({"value": torch.zeros(B, H, S, EV).long()}, "value: expected a floating point tensor"),
    ({"key": torch.zeros(B, H, S, E).half()}, "key: expected torch.float32 .* got torch.float16"),
    ({"key": torch.zeros(B, H, S, E - 1)}, "key: expected size 11 on axis -1"),
    ({"value": torch.zeros(B, H, S + 1, EV)}, "value: expected size 7 on axis -2"),
    ({"query": torch.zeros(E)}, r"query: expected at least axes \(S, E\)"),
    ({"key": torch.zeros(B, HKV, S, E)}, "key: expected 6 heads .* got 3 .*enable_gqa=True"),
    ({"key": torch.zeros(B + 1, H, S, E)}, "key: expected axes that broadcast"),
    (
        {"key": torch.zeros(B, 4, S, E), "enable_gqa": True},
        "key: .* heads .* that divides the query's 6, got 4",
    ),
    ({"value": torch.zeros(B, 2, S, EV), "enable_gqa": True}, "value: expected size 6 on axis -3"),
    ({"key": torch.zeros(B, H, S, E, device="meta")}, "key: expected device cpu, got meta"),
    (
        {"attn_mask": torch.ones(L, S).bool(), "is_causal": True},
        "attn_mask: expected None together with is_causal",
    ),
    ({"attn_mask": [[True]]}, "attn_mask: expected a torch tensor, got list"),
    ({"attn_mask": torch.ones(L, S).long()}, "attn_mask: expected a boolean mask .* torch.int64"),
    ({"attn_mask": torch.ones(S).bool()}, r"attn_mask: expected at least axes \(L, S\)"),
    ({"attn_mask": torch.ones(B, S).bool()}, r"write a padding mask as mask\[:, None, None, :\]"),
    (
        {"attn_mask": torch.ones(H, L, S).bool()},
        r"attn_mask: expected axes \(L, S\) or \(B, H, L, S\), got \(6, 5, 7\)",
    ),
    ({"attn_mask": torch.ones(L, S + 1).bool()}, "attn_mask: expected a shape that broadcasts to"),
    ({"dropout_p": 1.5}, "dropout_p: expected a chance from 0 to 1, got 1.5"),
]


@pytest.mark.parametrize(("changed", "message"), MESSAGES)
@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_refused(changed: dict[str, object], message: str) -> None:
    tensors = (torch.zeros(B, H, L, E), torch.zeros(B, H, S, E), torch.zeros(B, H, S, EV))
    arguments = dict(zip(("query", "key", "value"), tensors, strict=True)) | changed
    refused(message, sdpa, **arguments)
    arguments.pop("dropout_p", None)
    if "dropout_p" not in changed:
        refused(message, attention_with_lse, **arguments)


@pytest.mark.usefixtures("unchecked")
def test_blocks_that_do_not_fit_are_refused() -> None:
    output, lse = torch.zeros(B, L, EV), torch.zeros(B, L)
    for outputs, lses, message in (
        ([], [], "lses: expected one for each output, at least one, got 0 for 0"),
        ([output], [lse, lse], "lses: expected one for each output, at least one, got 2 for 1"),
        ([output, output[:1]], [lse, lse], r"outputs\[1\]: expected shape \(2, 5, 13\)"),
        ([output], [lse[:1]], r"lses\[0\]: expected shape \(2, 5\), got \(1, 5\)"),
        ([output], [[0.0]], r"lses\[0\]: expected a torch tensor, got list"),
    ):
        refused(message, merge_attention, outputs, lses)


@pytest.mark.usefixtures("unchecked")
def test_flex_attention_has_the_same_signature() -> None:
    query, key, value = (t.detach() for t in rows(S, kv_heads=HKV, dtype=torch.float32))
    heads, gqa = (query, key, value[..., :E]), {"enable_gqa": True}
    window = flex_attention_fn(mask_mod=lambda b, h, i, j: i - j < 3)
    behind = torch.arange(S)[:, None] - torch.arange(S)
    for is_causal in (False, True):
        mask = (behind < 3) & (behind >= 0) if is_causal else behind < 3
        assert_close(window(*heads, is_causal=is_causal, **gqa), sdpa(*heads, mask, **gqa))
    biased = flex_attention_fn(score_mod=lambda score, b, h, i, j: score - (i - j).abs())
    want = sdpa(*heads, -behind.abs().float(), scale=0.2, **gqa)
    assert_close(biased(*heads, scale=0.2, **gqa), want)
    refused("attn_mask: expected None", window, *heads, torch.ones(S, S).bool(), **gqa)
    refused(r"dropout_p: expected 0, .* got 0\.1", window, *heads, dropout_p=0.1, **gqa)


@pytest.mark.parametrize(
    ("features", "widened"),
    [
        # float16 forward and backward, bfloat16 forward and backward
        (("avx512", "amx_tile", "amx_fp16"), (False, False, False, False)),
        (("avx512",), (True, True, True, True)),
        ((), (True, True, False, True)),
    ],
)
def test_half_precision_is_widened_where_its_products_are_slow(
    features: tuple[str, ...], widened: tuple[bool, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def torchs(query: Tensor, *rest: object, **more: object) -> Tensor:
        seen.append(query.dtype == torch.float32)
        return original(query, *rest, **more)

    original = F.scaled_dot_product_attention
    supported = {f"_is_{feature}_supported" for feature in features}
    monkeypatch.setattr(fast, "_has", supported.__contains__)
    calls = []
    for dtype in (torch.float16, torch.bfloat16):
        tensors = [t.detach().to(dtype) for t in rows(19)]
        for needs_grad in (False, True):
            monkeypatch.setattr(F, "scaled_dot_product_attention", torchs)
            got = sdpa(*(t.requires_grad_(needs_grad) for t in tensors))
            monkeypatch.undo()
            monkeypatch.setattr(fast, "_has", supported.__contains__)
            want = original(*(t.double() for t in tensors))
            assert_close(got.double(), want, atol=8e-3 if dtype == torch.bfloat16 else 1e-3, rtol=0)
            calls.append(all(seen))
            assert got.dtype == dtype
            assert len(set(seen)) == 1
            seen.clear()
    assert tuple(calls) == widened


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("small", [0, fast.SMALL_KEYS])
@pytest.mark.parametrize("kind", ["none", "causal", "boolean", "bias"])
def test_widened_heads_give_what_float64_gives(
    dtype: torch.dtype, kind: str, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fast, "SMALL_KEYS", small)
    monkeypatch.setattr(fast, "_has", lambda feature: feature == "_is_avx512_supported")
    tensors = [t.detach().to(dtype) for t in rows(19, kv_heads=HKV)]
    length, keys = tensors[0].shape[-2], tensors[1].shape[-2]
    mask = {"boolean": torch.rand(length, keys) > 0.4, "bias": torch.randn(B, 1, length, keys)}
    options = {"is_causal": kind == "causal", "enable_gqa": True}
    got = sdpa(*tensors, mask.get(kind), **options)
    wide = mask[kind].double() if kind == "bias" else mask.get(kind)
    want = sdpa(*(t.double() for t in tensors), wide, **options)
    eps = torch.finfo(dtype).eps
    assert_close(got.double(), want, atol=4 * eps, rtol=0)
