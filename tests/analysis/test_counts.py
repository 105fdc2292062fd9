"""Counts against torch's own counter, torch's modules, ours, and the numbers of known models."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from mutation import mutant
from refusals import refused
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attn_course import nn as ours
from attn_course.analysis import Sizes

MODULE = "attn_course.analysis.counts"
B, L, S = 3, 7, 11
D, HEADS, KV, E, EV, HIDDEN, WORDS = 60, 6, 2, 5, 3, 17, 23


def entries(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def flops(function: Callable[..., Any], *inputs: Any, **options: Any) -> int:
    """What torch counts, for one example of the batch."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        function(*inputs, **options)
    total = counter.get_total_flops()
    assert total % B == 0
    return total // B


def module(**options: Any) -> ours.MultiHeadAttention:
    with torch.device("meta"):
        return ours.MultiHeadAttention(embed_dim=D, num_heads=HEADS, **options)


def rows(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, device="meta")


Made = Callable[..., Sizes]
OURS = {"embed_dim": D, "num_heads": HEADS, "hidden_dim": HIDDEN}
LLAMA = {"gated": True, "attention_bias": False, "feed_forward_bias": False, "norm_bias": False}
SHAPES: list[dict[str, int]] = [
    {},
    {"num_kv_heads": KV},
    {"num_kv_heads": 1, "head_dim": E},
    {"num_kv_heads": KV, "head_dim": E, "value_head_dim": EV, "kdim": 13},
]


def check_attention_parameters(sizes: Made) -> None:
    wide = sizes(embed_dim=512, num_heads=8, attention_bias=False)
    assert wide.attention_parameters() == 4 * 512 * 512
    theirs = nn.MultiheadAttention(D, HEADS, kdim=13, vdim=13)
    assert sizes(kdim=13).attention_parameters() == entries(theirs)
    for shape in SHAPES:
        for bias in (True, False):
            made = entries(module(bias=bias, **shape))
            assert sizes(attention_bias=bias, **shape).attention_parameters() == made


def plain(query: Any, key: Any, value: Any, *, attn_mask: Any = None, **options: Any) -> Any:
    """Attention whose two matrix products torch's counter sees one by one."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    return (query @ key.mT).softmax(-1) @ value


def check_attention_flops(sizes: Made) -> None:
    for shape in SHAPES:
        attention, count = module(attn_fn=plain, **shape), sizes(**shape).attention_flops
        memory = rows(B, S, shape.get("kdim", D))
        expected = flops(attention, rows(B, L, D), memory)
        assert count(L, S) == expected
        # with a pair less, two products of one row less per head
        widths = attention.head_dim + attention.value_head_dim
        assert count(L, S, pairs=L * S - 1) == expected - 2 * HEADS * widths
    attention, cache = module(attn_fn=plain, num_kv_heads=KV), ours.KVCache()
    attention(rows(B, S, D), is_causal=True, cache=cache)
    step = flops(attention, rows(B, 1, D), is_causal=True, cache=cache)
    assert sizes(num_kv_heads=KV).attention_flops(1, cached_length=S) == step
    # by hand: projections 4 D^2 a position, scores and sums 2 D a pair, twice
    assert sizes().attention_flops(L) == 2 * (4 * L * D * D + 2 * L * L * D)


def check_feed_forward(sizes: Made) -> None:
    two = nn.Sequential(nn.Linear(D, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, D))
    assert sizes().feed_forward_parameters() == entries(two)
    assert sizes().feed_forward_flops(L) == flops(two, torch.zeros(B, L, D))
    three = [nn.Linear(D, HIDDEN), nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)]
    assert sizes(gated=True).feed_forward_parameters() == sum(map(entries, three))
    assert sizes(gated=True).feed_forward_flops(L) == 2 * L * 3 * D * HIDDEN
    bare = sizes(feed_forward_bias=False, hidden_dim=None)
    assert bare.feed_forward_parameters() == 2 * D * 4 * D


def check_block(sizes: Made) -> None:
    assert sizes().block_parameters() == entries(nn.TransformerEncoderLayer(D, HEADS, HIDDEN))
    decoder = nn.TransformerDecoderLayer(D, HEADS, HIDDEN)
    assert sizes().block_parameters(cross_attention=True) == entries(decoder)
    # Llama 3 8B, a block: 4096 wide, 32 heads over 8, 14336 hidden, no biases
    llama = sizes(embed_dim=4096, num_heads=32, num_kv_heads=8, hidden_dim=14336, **LLAMA)
    assert llama.block_parameters() == 218_112_000
    by_hand = 8 * L * D * D + 4 * L * L * D + 4 * L * D * HIDDEN
    assert sizes().block_flops(L) == by_hand
    cross = 2 * (2 * L * D * D + 2 * S * D * D + 2 * L * S * D)
    assert sizes().block_flops(L, memory_length=S) == by_hand + cross
    assert sizes(gated=True).block_flops(L) == by_hand + 2 * L * D * HIDDEN
    step = 8 * D * D + 4 * (S + 1) * D + 4 * D * HIDDEN
    assert sizes().block_flops(1, cached_length=S) == step
    assert sizes().block_flops(L, pairs=5) == by_hand - 4 * (L * L - 5) * D


def check_transformer_parameters(sizes: Made) -> None:
    # by hand: 37000 * 512 + 6 * (3,150,336 + 4,199,936)
    paper = {"vocab_size": 37000, "num_layers": 6, "hidden_dim": None, "attention_bias": False}
    assert sizes(embed_dim=512, num_heads=8, **paper).transformer_parameters() == 63_045_632
    assert sizes(embed_dim=1024, num_heads=16, **paper).transformer_parameters() == 214_171_648
    mine = sizes(num_layers=2, vocab_size=WORDS)
    theirs = entries(nn.Transformer(D, HEADS, 2, 2, HIDDEN)) + WORDS * D
    assert mine.transformer_parameters(last_norms=True) == theirs
    assert mine.transformer_parameters(tied=False, last_norms=True) == theirs + 2 * WORDS * D


def check_language_model_parameters(sizes: Made) -> None:
    """The numbers that the released models have."""
    small = {"embed_dim": 768, "num_heads": 12, "hidden_dim": None, "num_layers": 12}
    gpt2 = sizes(vocab_size=50257, **small)
    assert gpt2.language_model_parameters(positions=1024) == 124_439_808
    llama = {"embed_dim": 4096, "num_heads": 32, "num_layers": 32, **LLAMA}
    seven = sizes(vocab_size=32000, hidden_dim=11008, **llama)
    assert seven.language_model_parameters(tied=False) == 6_738_415_616
    eight = sizes(vocab_size=128256, hidden_dim=14336, num_kv_heads=8, **llama)
    assert eight.language_model_parameters(tied=False) == 8_030_261_248
    # BERT base is a stack without a last norm, but for a norm, a table of 2 and a pooler
    bert = sizes(vocab_size=30522, **small)
    bert = bert.language_model_parameters(positions=512, last_norm=False)
    assert bert + 2 * 768 + 2 * 768 + (768 * 768 + 768) == 109_482_240


def check_cache(sizes: Made) -> None:
    for heads in (HEADS, KV, 1):
        cache = ours.KVCache()
        key, value = torch.zeros(1, heads, L, E), torch.zeros(1, heads, L, EV)
        cache.append(key, value)
        shape = sizes(num_kv_heads=heads, head_dim=E, value_head_dim=EV)
        assert shape.cache_bytes(L, bytes_per_number=4) == cache.nbytes
    # Llama 2 7B at 4096 tokens in half precision: 2 GiB
    assert sizes(embed_dim=4096, num_heads=32, num_layers=32).cache_bytes(4096) == 2 * 2**30
    # DeepSeek-V2: 60 layers of 512 + 64 numbers
    assert sizes(num_layers=60, kv_rank=512, rope_dim=64).cache_bytes(1) == 69_120
    latent = sizes(num_layers=5, kv_rank=3, rope_dim=2)
    assert latent.cache_bytes(L, bytes_per_number=4) == L * 100


CHECKS = {
    "attention_parameters": check_attention_parameters, "attention_flops": check_attention_flops,
    "feed_forward": check_feed_forward, "block": check_block,
    "transformer_parameters": check_transformer_parameters,
    "language_model_parameters": check_language_model_parameters, "cache": check_cache,
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_agrees_with_every_oracle(name: str) -> None:
    CHECKS[name](partial(Sizes, **OURS))


@pytest.mark.parametrize(("name", "old", "new"), [
    ("attention_parameters", "kv_heads * (e + ev) + out", "self.num_heads * (e + ev) + out"),
    ("attention_parameters", "kdim * kv_heads * (e + ev) + out", "kv_heads * (e + ev) + out"),
    ("attention_parameters", "num_heads * ev * self", "num_heads * e * self"),
    ("attention_parameters", "+ kv_heads * (e + ev) + self.embed_dim", "+ self.embed_dim"),
    ("attention_flops", "return 2 * (projected", "return (projected"),
    ("attention_flops", "(key_length - cached_length)", "key_length"),
    ("attention_flops", "pairs * self.num_heads", "pairs * kv_heads"),
    ("attention_flops", "query_length * key_length if", "query_length * query_length if"),
    ("feed_forward", "inward * hidden_dim + self", "hidden_dim + self"),
    ("feed_forward", "(3 if self.gated else 2)", "2"),
    ("feed_forward", '"hidden_dim": 4 * d', '"hidden_dim": 2 * d'),
    ("block", "(attentions + 1) * self", "2 * self"),
    ("block", "(2 if self.norm_bias else 1)", "2"),
    ("block", "self.attention_flops(length, memory_length)", "self.attention_flops(length)"),
    ("block", "cached_length=cached_length, pairs=pairs)\n        if", ")\n        if"),
    ("transformer_parameters", "cross_attention=True)\n", "cross_attention=False)\n"),
    ("transformer_parameters", "(1 if tied else 3)", "(1 if tied else 2)"),
    ("transformer_parameters", "last_norms * 2", "last_norms"),
    ("language_model_parameters", "(1 if tied else 2) + positions", "(1 if tied else 2)"),
    ("language_model_parameters", "(1 if tied else 2)", "1"),
    ("language_model_parameters", " + last_norm * self._norm", ""),
    ("cache", "kv_heads * (e + ev)\n        return length",
     "2 * kv_heads * e\n        return length"),
    ("cache", "self.kv_rank + self.rope_dim if", "self.kv_rank if"),
])  # fmt: skip
def test_oracles_reject_a_changed_line(name: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[name](partial(mutant(MODULE, "Sizes", old, new), **OURS))


def test_our_models_have_as_many_parameters_and_operations_as_counted() -> None:
    with torch.device("meta"):
        base = ours.vaswani_like(vocab_size=37_000)
        big = ours.vaswani_like(vocab_size=37_000, embed_dim=1024, num_heads=16, hidden_dim=4096)
        grouped = ours.llama_like(
            vocab_size=WORDS, embed_dim=D, num_heads=HEADS, num_kv_heads=KV, num_layers=2,
            hidden_dim=HIDDEN,
        )  # fmt: skip
    paper = Sizes(embed_dim=512, num_heads=8, num_layers=6, vocab_size=37000, attention_bias=False)
    assert entries(base) == paper.transformer_parameters() == 63_045_632
    assert entries(big) == 214_171_648
    for model in (base, grouped):
        for part in model.modules():
            if isinstance(part, ours.MultiHeadAttention):
                part.attn_fn = plain
    source, target = (torch.zeros(B, n, dtype=torch.long, device="meta") for n in (S, L))
    found = flops(base.eval(), source, decoder_input_ids=target)
    assert found == paper.transformer_flops(S, L)
    found = flops(grouped.eval(), target)
    sizes = Sizes(**OURS, num_kv_heads=KV, num_layers=2, vocab_size=WORDS, gated=True)
    assert found == sizes.language_model_flops(L)


def test_heads_cost_nothing_and_half_of_the_pairs_half_of_the_square() -> None:
    one, twelve = (Sizes(embed_dim=D, num_heads=n, hidden_dim=HIDDEN) for n in (1, 12))
    assert one.block_flops(L) == twelve.block_flops(L)
    causal = one.block_flops(L, pairs=L * (L + 1) // 2)
    assert one.block_flops(L) - causal == 4 * D * L * (L - 1) // 2


@pytest.mark.parametrize(("message", "call"), [
    ("embed_dim: expected a multiple of num_heads = 7 where head_dim is not given, got 60",
     lambda: Sizes(embed_dim=D, num_heads=7)),
    ("num_kv_heads: expected a divisor of 6, got 4",
     lambda: Sizes(embed_dim=D, num_heads=6, num_kv_heads=4)),
    ("cached_length: expected 0 to 3, got 5",
     lambda: Sizes(**OURS).attention_flops(1, 3, cached_length=5)),
    ("length: expected at least 1, got 0", lambda: Sizes(**OURS).feed_forward_flops(0)),
    ("num_layers: expected at least 1", lambda: Sizes(**OURS, num_layers=0)),
    ("kdim: expected at least 1", lambda: Sizes(**OURS, kdim=0)),
    ("kv_rank: expected at least 0", lambda: Sizes(**OURS, kv_rank=-1)),
])  # fmt: skip
def test_bad_sizes_are_refused(message: str, call: Callable[[], object]) -> None:
    refused(message, call)
