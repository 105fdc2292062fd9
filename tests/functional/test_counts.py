"""Counts against torch's own counter, torch's modules, ours, and the numbers of known models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from mutation import mutant
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from attn_course import functional as f
from attn_course import nn as ours

MODULE = "attn_course.functional.counts"
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


SHAPES: list[dict[str, int]] = [
    {},
    {"num_kv_heads": KV},
    {"num_kv_heads": 1, "head_dim": E},
    {"num_kv_heads": KV, "head_dim": E, "value_head_dim": EV, "kdim": 13},
]


def check_attention_parameters(count: Callable[..., int]) -> None:
    assert count(embed_dim=512, num_heads=8, bias=False) == 4 * 512 * 512
    theirs = nn.MultiheadAttention(D, HEADS, kdim=13, vdim=13)
    assert count(embed_dim=D, num_heads=HEADS, kdim=13) == entries(theirs)
    for shape in SHAPES:
        for bias in (True, False):
            made = entries(module(bias=bias, **shape))
            assert count(embed_dim=D, num_heads=HEADS, bias=bias, **shape) == made


def plain(query: Any, key: Any, value: Any, *, attn_mask: Any = None, **options: Any) -> Any:
    """Attention whose two matrix products torch's counter sees one by one."""
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    return (query @ key.mT).softmax(-1) @ value


def check_attention_flops(count: Callable[..., int]) -> None:
    for shape in SHAPES:
        attention = module(attn_fn=plain, **shape)
        memory = rows(B, S, shape.get("kdim", D))
        expected = flops(attention, rows(B, L, D), memory)
        given = {"embed_dim": D, "num_heads": HEADS, "key_length": S, **shape}
        assert count(query_length=L, **given) == expected
        # with a pair less, two products of one row less per head
        widths = attention.head_dim + attention.value_head_dim
        assert count(query_length=L, pairs=L * S - 1, **given) == expected - 2 * HEADS * widths
    attention, cache = module(attn_fn=plain, num_kv_heads=KV), ours.KVCache()
    attention(rows(B, S, D), is_causal=True, cache=cache)
    step = flops(attention, rows(B, 1, D), is_causal=True, cache=cache)
    given = {"embed_dim": D, "num_heads": HEADS, "num_kv_heads": KV}
    assert count(query_length=1, cached_length=S, **given) == step
    # by hand: projections 4 D^2 a position, scores and sums 2 D a pair, twice
    assert count(query_length=L, embed_dim=D, num_heads=HEADS) == 2 * (
        4 * L * D * D + 2 * L * L * D
    )


def check_feed_forward(count: Callable[..., int]) -> None:
    two = nn.Sequential(nn.Linear(D, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, D))
    assert count(embed_dim=D, hidden_dim=HIDDEN) == entries(two)
    three = [nn.Linear(D, HIDDEN), nn.Linear(D, HIDDEN), nn.Linear(HIDDEN, D)]
    assert count(embed_dim=D, hidden_dim=HIDDEN, gated=True) == sum(map(entries, three))
    assert count(embed_dim=D, hidden_dim=HIDDEN, gated=True, bias=False) == 3 * D * HIDDEN
    assert count(embed_dim=D, hidden_dim=HIDDEN, bias=False) == 2 * D * HIDDEN


def check_feed_forward_flops(count: Callable[..., int]) -> None:
    two = nn.Sequential(nn.Linear(D, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, D))
    assert count(length=L, embed_dim=D, hidden_dim=HIDDEN) == flops(two, torch.zeros(B, L, D))
    gated = count(length=L, embed_dim=D, hidden_dim=HIDDEN, gated=True)
    assert gated == 2 * L * 3 * D * HIDDEN


def check_block_parameters(count: Callable[..., int]) -> None:
    sizes = {"embed_dim": D, "num_heads": HEADS, "hidden_dim": HIDDEN}
    assert count(**sizes) == entries(nn.TransformerEncoderLayer(D, HEADS, HIDDEN))
    decoder = nn.TransformerDecoderLayer(D, HEADS, HIDDEN)
    assert count(**sizes, cross_attention=True) == entries(decoder)
    # Llama 3 8B, a block: 4096 wide, 32 heads over 8, 14336 hidden, no biases
    llama = count(
        embed_dim=4096, num_heads=32, num_kv_heads=8, hidden_dim=14336, gated=True,
        attention_bias=False, feed_forward_bias=False, norm_bias=False,
    )  # fmt: skip
    assert llama == 218_112_000


def check_block_flops(count: Callable[..., int]) -> None:
    sizes = {"embed_dim": D, "num_heads": HEADS, "hidden_dim": HIDDEN}
    by_hand = 8 * L * D * D + 4 * L * L * D + 4 * L * D * HIDDEN
    assert count(length=L, **sizes) == by_hand
    cross = 2 * (2 * L * D * D + 2 * S * D * D + 2 * L * S * D)
    assert count(length=L, memory_length=S, **sizes) == by_hand + cross
    gated = 2 * L * D * HIDDEN
    assert count(length=L, gated=True, **sizes) == by_hand + gated
    step = 8 * D * D + 4 * (S + 1) * D + 4 * D * HIDDEN
    assert count(length=1, cached_length=S, **sizes) == step
    assert count(length=L, pairs=5, **sizes) == by_hand - 4 * (L * L - 5) * D


def check_transformer_parameters(count: Callable[..., int]) -> None:
    # by hand: 37000 * 512 + 6 * (3,150,336 + 4,199,936)
    assert count(vocab_size=37000) == 63_045_632
    big = {"embed_dim": 1024, "num_heads": 16, "hidden_dim": 4096}
    assert count(vocab_size=37000, **big) == 214_171_648
    theirs = nn.Transformer(D, HEADS, 2, 2, HIDDEN)
    sizes = {"embed_dim": D, "num_heads": HEADS, "hidden_dim": HIDDEN, "num_layers": 2}
    mine = count(vocab_size=WORDS, attention_bias=True, last_norms=True, **sizes)
    assert mine == entries(theirs) + WORDS * D
    untied = count(vocab_size=WORDS, tied=False, **sizes)
    assert untied == count(vocab_size=WORDS, **sizes) + 2 * WORDS * D


def check_language_model_parameters(count: Callable[..., int]) -> None:
    """The numbers that the released models have."""
    gpt2 = count(
        vocab_size=50257, embed_dim=768, num_heads=12, hidden_dim=3072, num_layers=12,
        positions=1024,
    )  # fmt: skip
    assert gpt2 == 124_439_808
    llama: dict[str, Any] = {
        "tied": False, "gated": True, "bias": False, "norm_bias": False, "num_layers": 32,
        "embed_dim": 4096, "num_heads": 32,
    }  # fmt: skip
    assert count(vocab_size=32000, hidden_dim=11008, **llama) == 6_738_415_616
    grouped = count(vocab_size=128256, hidden_dim=14336, num_kv_heads=8, **llama)
    assert grouped == 8_030_261_248
    # BERT base is a stack without a last norm, but for a norm, a table of 2 and a pooler
    bert = count(
        vocab_size=30522, embed_dim=768, num_heads=12, hidden_dim=3072, num_layers=12,
        positions=512, last_norm=False,
    )  # fmt: skip
    assert bert + 2 * 768 + 2 * 768 + (768 * 768 + 768) == 109_482_240


def check_cache(count: Callable[..., int]) -> None:
    for heads in (HEADS, KV, 1):
        cache = ours.KVCache()
        key, value = torch.zeros(1, heads, L, E), torch.zeros(1, heads, L, EV)
        cache.append(key, value)
        sizes = {"num_kv_heads": heads, "head_dim": E, "value_head_dim": EV}
        assert count(length=L, num_layers=1, bytes_per_number=4, **sizes) == cache.nbytes
    # Llama 2 7B at 4096 tokens in half precision: 2 GiB
    assert count(length=4096, num_layers=32, num_kv_heads=32, head_dim=128) == 2 * 2**30


def check_latent(count: Callable[..., int]) -> None:
    # DeepSeek-V2: 60 layers of 512 + 64 numbers
    assert count(length=1, num_layers=60, kv_rank=512, rope_dim=64) == 69_120
    assert count(length=L, num_layers=5, kv_rank=3, rope_dim=2, bytes_per_number=4) == L * 100


CHECKS = {
    "attention_parameters": check_attention_parameters,
    "attention_flops": check_attention_flops,
    "feed_forward_parameters": check_feed_forward,
    "feed_forward_flops": check_feed_forward_flops,
    "block_parameters": check_block_parameters,
    "block_flops": check_block_flops,
    "transformer_parameters": check_transformer_parameters,
    "language_model_parameters": check_language_model_parameters,
    "cache_bytes": check_cache,
    "latent_cache_bytes": check_latent,
}


@pytest.mark.parametrize("name", CHECKS)
def test_agrees_with_every_oracle(name: str) -> None:
    CHECKS[name](getattr(f, name))


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("attention_parameters", "kdim * kv_heads * (e + ev)", "kdim * num_heads * (e + ev)"),
        ("attention_parameters", "kdim * kv_heads * (e + ev)", "embed_dim * kv_heads * (e + ev)"),
        ("attention_parameters", "num_heads * ev * embed_dim", "num_heads * e * embed_dim"),
        ("attention_parameters", "+ kv_heads * (e + ev) + embed_dim)", "+ embed_dim)"),
        ("attention_flops", "return 2 * (projected", "return (projected"),
        ("attention_flops", "(key_length - cached_length)", "key_length"),
        ("attention_flops", "pairs * num_heads", "pairs * kv_heads"),
        ("attention_flops", "query_length * key_length if", "query_length * query_length if"),
        ("feed_forward_parameters", "inward * hidden_dim + embed_dim", "hidden_dim + embed_dim"),
        ("feed_forward_flops", "bias=False\n", "bias=True\n"),
        ("block_parameters", "(attentions + 1) * norm", "2 * norm"),
        ("block_parameters", "(2 if norm_bias else 1)", "2"),
        ("block_flops", "key_length=memory_length", "key_length=length"),
        ("block_flops", "pairs=pairs, **heads", "**heads"),
        ("transformer_parameters", "cross_attention=cross", "cross_attention=False"),
        ("transformer_parameters", "(1 if tied else 3)", "(1 if tied else 2)"),
        ("language_model_parameters", "(1 if tied else 2) + positions", "(1 if tied else 2)"),
        ("language_model_parameters", "+ last_norm * embed_dim * (2 if norm_bias else 1)", ""),
        ("cache_bytes", "(head_dim + ev)", "2 * head_dim"),
        ("latent_cache_bytes", "(kv_rank + rope_dim)", "2 * (kv_rank + rope_dim)"),
    ],
)
def test_oracles_reject_a_changed_line(name: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        CHECKS[name](mutant(MODULE, name, old, new))


def test_our_models_have_as_many_parameters_and_operations_as_counted() -> None:
    with torch.device("meta"):
        base = ours.vaswani_like(vocab_size=37000)
        gpt2, llama = ours.gpt2_like(), ours.llama_like()
        grouped = ours.llama_like(
            vocab_size=WORDS, embed_dim=D, num_heads=HEADS, num_kv_heads=KV, num_layers=2,
            hidden_dim=HIDDEN,
        )  # fmt: skip
    assert entries(base) == f.transformer_parameters(vocab_size=37000)
    assert entries(gpt2) == 124_439_808
    assert entries(llama) == 6_738_415_616
    for model in (base, grouped):
        for part in model.modules():
            if isinstance(part, ours.MultiHeadAttention):
                part.attn_fn = plain
    source, target = (torch.zeros(B, n, dtype=torch.long, device="meta") for n in (S, L))
    found = flops(base.eval(), source, decoder_input_ids=target)
    assert found == f.transformer_flops(source_length=S, target_length=L, vocab_size=37000)
    found = flops(grouped.eval(), target)
    sizes = {"embed_dim": D, "num_heads": HEADS, "num_kv_heads": KV, "hidden_dim": HIDDEN}
    sizes |= {"vocab_size": WORDS, "num_layers": 2}
    assert found == f.language_model_flops(length=L, gated=True, **sizes)


def test_heads_cost_nothing_and_half_of_the_pairs_half_of_the_square() -> None:
    sizes = {"embed_dim": D, "hidden_dim": HIDDEN, "length": L}
    assert f.block_flops(num_heads=1, **sizes) == f.block_flops(num_heads=12, **sizes)
    causal = f.block_flops(num_heads=1, pairs=L * (L + 1) // 2, **sizes)
    assert f.block_flops(num_heads=1, **sizes) - causal == 4 * D * L * (L - 1) // 2


@pytest.mark.parametrize(
    ("message", "call"),
    [
        (
            "embed_dim: expected a multiple of num_heads = 7 where head_dim is not given, got 60",
            lambda: f.attention_parameters(embed_dim=D, num_heads=7),
        ),
        (
            "num_kv_heads: expected a divisor of 6, got 4",
            lambda: f.attention_parameters(embed_dim=D, num_heads=6, num_kv_heads=4),
        ),
        (
            "cached_length: expected 0 to 3, got 5",
            lambda: f.attention_flops(
                query_length=1, key_length=3, embed_dim=D, num_heads=6, cached_length=5
            ),
        ),
        ("length: expected at least 1, got 0", lambda: f.feed_forward_flops(
            length=0, embed_dim=D, hidden_dim=3)),
        ("num_layers: expected at least 1", lambda: f.transformer_parameters(
            vocab_size=3, num_layers=0)),
        ("kv_rank: expected at least 1", lambda: f.latent_cache_bytes(
            length=1, num_layers=1, kv_rank=0, rope_dim=2)),
    ],
)  # fmt: skip
def test_bad_sizes_are_refused(message: str, call: Callable[[], int]) -> None:
    with pytest.raises(ValueError, match=message):
        call()
