"""Caches: at every step the numbers of attention over the whole text."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import layers
import pytest
import torch
from layers import POSITIONS
from mutation import rejects_changes
from oracles import same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import nn as ours
from attn_course.functional import scaled_dot_product_attention

B, L, D, H = 2, 11, 17, 6
attention = partial(layers.attention, embed_dim=D)
STEPS = {
    "one by one": [1] * L,
    "a prompt, then one by one": [5] + [1] * (L - 5),
    "in chunks": [3, 2, 1, 5],
    "a prompt longer than the window": [8, 1, 2],
}


def text() -> Tensor:
    return torch.randn(B, L, D, dtype=torch.float64)


def stepwise(
    module: ours.MultiHeadAttention,
    x: Tensor,
    cache: ours.KVCache | ours.SlidingCache,
    steps: list[int],
    positions: Tensor | None = None,
) -> Tensor:
    outputs = []
    for n, part in enumerate(x.split(steps, dim=1)):
        begin = sum(steps[:n])
        place = None if positions is None else positions[:, begin : begin + part.shape[1]]
        outputs.append(module(part, is_causal=True, positions=place, cache=cache))
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize(
    "make", [ours.KVCache, partial(ours.KVCache, max_length=L)], ids=["grows", "fixed"]
)
def test_every_step_is_full_attention(
    make: Callable[[], ours.KVCache], position: str, steps: list[int]
) -> None:
    module, x, cache = attention(position), text(), make()
    with torch.no_grad():
        got = stepwise(module, x, cache, steps)
    assert_close(got, module(x, is_causal=True), **FLOAT64)
    assert cache.length == L
    assert cache.nbytes == 2 * B * 3 * L * 4 * 8


def visible(window: int, sinks: int, length: int = L) -> Tensor:
    i, j = torch.arange(length)[:, None], torch.arange(length)
    return (j <= i) & ((j > i - window) | (j < sinks))


@pytest.mark.parametrize("steps", list(STEPS.values())[1:], ids=list(STEPS)[1:])
@pytest.mark.parametrize("position", ["rope", "alibi"])
@pytest.mark.parametrize(("window", "sinks"), [(1, 0), (3, 2), (20, 1), (2, 20)])
def test_every_step_of_a_sliding_cache_is_attention_with_its_mask(
    window: int, sinks: int, position: str, steps: list[int]
) -> None:
    module, x = attention(position), text()
    cache = ours.SlidingCache(window_size=window, sinks=sinks)
    got = stepwise(module, x, cache, steps)
    assert_close(got, module(x, attn_mask=visible(window, sinks)), **FLOAT64)
    assert cache.nbytes == 2 * B * 3 * (window + sinks) * 4 * 8


def check_window(make: Callable[..., Any]) -> None:
    module, x = attention("rope"), text()
    want = module(x, attn_mask=visible(3, 2))
    # without the checked annotations, which know no mutants
    call = partial(inspect.unwrap(ours.MultiHeadAttention.forward), module, is_causal=True)
    for steps in STEPS.values():
        cache = make(window_size=3, sinks=2)
        got = [call(part, cache=cache) for part in x.split(steps, dim=1)]
        assert_close(torch.cat(got, dim=1), want, **FLOAT64)


test_the_comparison_rejects_mutants_of_the_sliding_cache = rejects_changes(
    check_window,
    "attn_course.nn.cache.SlidingCache",
    ("(behind < self.window_size)", "(behind <= self.window_size)"),
    ("at < self.sinks).unsqueeze", "at <= self.sinks).unsqueeze"),
    ("positions > last - self.window_size", "positions > last - self.window_size + 2"),
    ("inside & (at >= 0).unsqueeze(-2)", "inside"),
    ("(positions - self.sinks) % self.window_size", "positions % (self.window_size + 1)"),
    ("(behind >= 0) &", "(behind >= -1) &"),
)


def test_the_comparison_of_mutants_accepts_the_original() -> None:
    check_window(ours.SlidingCache)


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("sliding", [False, True])
def test_padding_on_either_side_changes_no_step(position: str, sliding: bool) -> None:
    module = attention(position)
    places = [torch.arange(L), torch.arange(4, L), torch.tensor([0, 1, 2, 5, *range(7, L)])]
    x = torch.randn(3, L, D, dtype=torch.float64)
    positions = torch.full((3, L), -1)
    for row, place in enumerate(places):
        positions[row, place] = torch.arange(len(place))
    cache = ours.SlidingCache(window_size=3, sinks=2) if sliding else ours.KVCache()
    got = stepwise(module, x, cache, [7] + [1] * (L - 7), positions)
    for row, place in enumerate(places):
        mask = visible(3, 2, len(place)) if sliding else visible(L, 0, len(place))
        want = module(x[row : row + 1, place], attn_mask=mask)
        assert_close(got[row : row + 1, place], want, **FLOAT64)


@pytest.mark.parametrize("position", ["rope", "alibi"])
def test_sinks_that_follow_stand_directly_before_the_window(position: str) -> None:
    window, sinks = 4, 2
    module, x = attention(position), text()
    cache = ours.SlidingCache(window_size=window, sinks=sinks, sinks_follow=True)
    for i, token in enumerate(x.split(1, dim=1)):
        got = module(token, is_causal=True, cache=cache)
        seen = visible(window, sinks)[i].nonzero().flatten()
        # a text of these tokens only, as if nothing had stood between
        want = module(x[:, seen], is_causal=True)[:, -1:]
        assert_close(got, want, **FLOAT64)
    refused("one token at a time beyond 6 tokens", module, x[:, :2], is_causal=True, cache=cache)


def test_a_prompt_that_fits_may_come_at_once_where_sinks_follow() -> None:
    module, x = attention("rope"), text()
    caches = [ours.SlidingCache(window_size=4, sinks=2, sinks_follow=True) for _ in range(2)]
    together = stepwise(module, x, caches[0], [6] + [1] * (L - 6))
    assert_close(together, stepwise(module, x, caches[1], [1] * L), **FLOAT64)


@pytest.mark.parametrize("make", [ours.KVCache, partial(ours.KVCache, max_length=L)])
def test_rows_can_be_chosen_and_tokens_forgotten(make: Callable[[], ours.KVCache]) -> None:
    module, x = attention("rope"), text()
    with torch.no_grad():
        cache = make()
        stepwise(module, x[:, :9], cache, [9])
        cache.truncate(5)
        turned = cache.select(torch.tensor([1, 1, 0]))
        # the old cache goes on as if it had not been copied
        got = module(x[:, 5:], is_causal=True, cache=cache)
        assert_close(got, module(x, is_causal=True)[:, 5:], **FLOAT64)
        rows = x[torch.tensor([1, 1, 0])]
        got = module(rows[:, 5:], is_causal=True, cache=turned)
    assert_close(got, module(rows, is_causal=True)[:, 5:], **FLOAT64)
    refused("length: expected 0 to 11, got 12", cache.truncate, 12)


def test_rows_of_a_sliding_cache_can_be_chosen() -> None:
    module, x = attention("rope"), text()
    cache = ours.SlidingCache(window_size=3, sinks=1)
    stepwise(module, x[:, :7], cache, [7])
    rows = torch.tensor([1, 1, 0])
    turned = cache.select(rows)
    stepwise(module, x[:, 7:], cache, [4])
    got = stepwise(module, x[rows][:, 7:], turned, [1] * 4)
    assert_close(got, module(x[rows], attn_mask=visible(3, 1))[:, 7:], **FLOAT64)


def test_gradients_flow_through_a_cache_that_grows() -> None:
    module, x = attention("rope"), text().requires_grad_()
    for cache, mask in (
        (ours.KVCache(), visible(L, 0)),
        (ours.SlidingCache(window_size=3, sinks=1), visible(3, 1)),
    ):
        got = stepwise(module, x, cache, [3, 2, 1, 5])
        want = module(x, attn_mask=mask)
        same_gradients(got, want, [x, *module.parameters()], **FLOAT64)


def test_a_mask_beside_a_cache_counts_all_keys_so_far() -> None:
    module, x, cache = attention("alibi"), text(), ours.KVCache()
    mask = torch.rand(B, 1, L, L) < 0.6
    mask[..., 0] = True
    outputs = [
        module(token, attn_mask=mask[:, :, i : i + 1, : i + 1], cache=cache)
        for i, token in enumerate(x.split(1, dim=1))
    ]
    want = module(x, attn_mask=mask & visible(L, 0))
    assert_close(torch.cat(outputs, dim=1), want, **FLOAT64)


def test_a_cross_cache_projects_the_memory_once() -> None:
    module = ours.MultiHeadAttention(embed_dim=D, num_heads=H, head_dim=4, kdim=11).double()
    x, memory = text(), torch.randn(B, 7, 11, dtype=torch.float64)
    mask = torch.rand(B, 1, 1, 7) < 0.7
    mask[..., 0] = True
    cache, want = ours.CrossCache(), module(x, memory, attn_mask=mask)
    first = module(x[:, :5], memory, attn_mask=mask, cache=cache)
    later = module(x[:, 5:], torch.full_like(memory, torch.nan), attn_mask=mask, cache=cache)
    assert_close(torch.cat([first, later], dim=1), want, **FLOAT64)
    assert cache.nbytes == 2 * B * H * 7 * 4 * 8
    turned = cache.select(torch.tensor([1, 0]))
    got = module(x.flip(0), memory, attn_mask=mask.flip(0), cache=turned)
    assert_close(got, want.flip(0), **FLOAT64)
    rotating = ours.MultiHeadAttention(embed_dim=D, num_heads=1, position=ours.RotaryPositions())
    with pytest.raises(ValueError, match="no CrossCache where the attention has positions"):
        rotating(x.float(), memory.float(), cache=ours.CrossCache())


def test_what_a_cache_cannot_hold_is_refused() -> None:
    rows = torch.zeros(2, 3, 4, 5)
    cache = ours.KVCache(max_length=6)
    cache.append(rows, rows)
    refused("at most 6 tokens in all, got 8", cache.append, rows, rows)
    refused("expected no gradients", ours.KVCache(max_length=9).append, rows.requires_grad_(), rows)
    refused("expected size 2 on axis 0", cache.append, rows[:1], rows[:1])
    with pytest.raises(ValueError, match="positions: expected at every call"):
        cache.append(rows[:, :, :1], rows[:, :, :1], torch.zeros(2, 1, dtype=torch.long))
    for wrong in ({"window_size": 0}, {"window_size": 3, "sinks": -1}):
        refused("window_size, sinks", ours.SlidingCache, **wrong)
    refused("max_length: expected at least 1", ours.KVCache, max_length=0)
    module = attention("none")
    with pytest.raises(ValueError, match="attn_mask: expected none with a sliding cache"):
        module(text(), attn_mask=visible(3, 0), cache=ours.SlidingCache(window_size=3))


def refuses(query: Tensor, *args: Any, **options: Any) -> Tensor:
    """An ``AttentionFn`` that takes no new token alone."""
    if query.shape[2] == 1:
        raise ValueError("attn_mask: expected none")
    return scaled_dot_product_attention(query, *args, **options)


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "another batch": lambda model, cache: model(torch.tensor([[1]]), cache=cache),
    "no such id": lambda model, cache: model(torch.tensor([[1], [99]]), cache=cache),
    "a mask of another size": lambda model, cache: model(
        torch.tensor([[1], [2]]), torch.ones(2, 2).bool(), cache=cache
    ),
    "too many": lambda model, cache: model(torch.ones(2, 20).long(), cache=cache),
    "a second block that fails": lambda model, cache: second_fails(model, cache),
}


def second_fails(model: Any, cache: Any) -> Any:
    attend = model.blocks[1].attention
    plain, attend.attn_fn = attend.attn_fn, refuses
    try:
        return model(torch.tensor([[1], [2]]), cache=cache)
    finally:
        attend.attn_fn = plain


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "make",
    [ours.KVCache, partial(ours.KVCache, max_length=9), partial(ours.SlidingCache, window_size=4)],
)
def test_a_refused_call_leaves_the_cache_as_it_was(name: str, padded: bool, make: Any) -> None:
    model = ours.gpt2_like(
        vocab_size=11, max_length=12, embed_dim=8, num_heads=2, num_layers=2
    ).eval()
    real = torch.tensor([[False, True, True], [True] * 3]) if padded else None
    wanted, cache = model.new_cache(make), model.new_cache(make)
    ids, later = torch.randint(11, (2, 3)), torch.randint(11, (2, 1))
    with torch.no_grad():
        for one in (wanted, cache):
            model(ids, real, cache=one)
        refused("expected", WRONG[name], model, cache)
        assert cache.length == 3
        for _ in range(2):
            assert_close(model(later, cache=cache), model(later, cache=wanted))


def test_a_refused_call_leaves_the_caches_of_a_decoder_as_they_were() -> None:
    model = ours.vaswani_like(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2, hidden_dim=16)
    model, source = model.eval(), torch.randint(11, (2, 5))
    memory, cache = model.encode(source), model.new_cache()
    model.decoder.blocks[1].cross_attention.attn_fn = refuses
    refused("attn_mask", model.decode, source[:, :1], memory, torch.ones(2, 5).bool(), cache=cache)
    assert (cache.length, cache.real, cache.nbytes) == (0, None, 0)
