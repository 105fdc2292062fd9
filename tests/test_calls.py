"""Calls that are written as in torch or transformers, or wrong: the error says what to write."""

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from attn_course import functional, interop, nn, train
from attn_course._calls import explained
from attn_course._names import _OURS
from attn_course.train import generate

SIZES = {"vocab_size": 11, "embed_dim": 8, "num_heads": 2, "num_layers": 2}
heads = {"embed_dim": 8, "num_heads": 2}
x, rows, ids = torch.randn(2, 5, 8), torch.randn(2, 2, 5, 8), torch.randint(11, (2, 5))
real, square = torch.ones(2, 5).bool(), torch.ones(5, 5).bool()
attend = nn.MultiHeadAttention(**heads)
gpt = nn.gpt2_like(max_length=16, **SIZES)
bert = nn.bert_like(max_length=16, hidden_dim=16, **SIZES)
both = nn.vaswani_like(hidden_dim=16, **SIZES)
embed = partial(nn.TokenEmbedding, vocab_size=11, embed_dim=8)
embedding, learned, three = embed(), nn.LearnedPositions(max_length=8, embed_dim=8), [rows] * 3
part = partial(nn.decoder_only, embedding=embedding, num_layers=2, norm=lambda: norm)
norm = nn.LayerNorm(embed_dim=8)
dot = functional.scaled_dot_product_attention
window = functional.sliding_window_attention
write = partial(generate, gpt, ids, max_length=3)

WRONG: list[tuple[Callable[[], Any], str]] = [
    # names of others
    (lambda: attend(x, mask=square), "mask: .* write attn_mask=mask"),
    (lambda: attend(x, attention_mask=real), r"write attn_mask=attention_mask.bool\(\)\[:, None"),
    (lambda: attend(x, src_mask=square), "src_mask: .* write attn_mask=~src_mask"),
    (lambda: attend(x, need_weights=True), r"write module.weights\(query, key\)"),
    (lambda: attend(x, padding_mask=x[..., 0] > 0), r"write attn_mask=padding_mask\[:, None"),
    (lambda: nn.MultiHeadAttention(d_model=8, nhead=2), "d_model: .* write embed_dim=8"),
    (lambda: nn.MultiHeadAttention(**heads, batch_first=True), "the batch is always first"),
    (lambda: nn.gpt2_like(vocab_size=11, n_head=8), "write num_heads=8"),
    (lambda: nn.RMSNorm(dim=8), "write embed_dim=8"),
    (lambda: gpt(ids, attention_mask=real), r"write padding_mask=attention_mask.bool\(\)"),
    (lambda: gpt(ids, use_cache=True), r"write cache=model.new_cache\(\)"),
    (lambda: gpt.new_cache(max_length=16), r"write make=functools.partial\(KVCache"),
    (lambda: bert(ids, attention_mask=real), "write padding_mask=attention_mask"),
    (lambda: bert.encoder(x, src_key_padding_mask=~real), "write attn_mask=~src_key_padding_mask"),
    (lambda: both.decoder(x, x, memory_key_padding_mask=~real), r"write memory_mask=~memory_key_"),
    (lambda: dot(x, x, x, mask=square), "write attn_mask=mask"),
    (lambda: functional.attention(x, x, x, mask=square), "write attn_mask=mask"),
    (lambda: window(rows, rows, rows, window=3), "write window_size=3"),
    (lambda: generate(gpt, ids, max_new_tokens=3), "write max_length=3"),
    (lambda: write(do_sample=False), "write temperature=0"),
    (lambda: write(num_beams=2), r"write train.beam_search\("),
    (lambda: write(attention_mask=real), "write padding_mask=attention_mask"),
    (lambda: attend(x, is_casual=True), "did you mean is_causal?"),
    (lambda: nn.RotaryPositions(dim=8), "it has base, interleaved, scaling"),
    # without names
    (lambda: nn.MultiHeadAttention(8, 2), "write embed_dim=8, num_heads=2"),
    (lambda: nn.gpt2_like(11, 16), "gpt2_like: expected keywords, got 11, 16: its names are voc"),
    (lambda: nn.LanguageModel(embedding, []), "LanguageModel: .* write embedding=embedding"),
    (lambda: nn.KVCache(16), "KVCache: expected keywords, got 16: its names are max_length"),
    (lambda: window(rows, rows, rows, None, 3), "write window_size=3"),
    (lambda: dot(x, x, x, None, 0.1), "its names are is_causal, scale, dropout_p"),
    # of another kind
    (lambda: attend(x, square), "key: expected features, got a boolean .* write attn_mask=key"),
    (lambda: attend(x, attn_mask=square.expand(2, 5, 5)), r"write mask\[:, None\] for one mask"),
    (lambda: nn.MultiHeadAttention(**heads, attn_fn="sdpa"), "attn_fn: expected a function"),
    (lambda: nn.MultiHeadAttention(**heads, dropout=1.5), "dropout: expected a chance"),
    (lambda: nn.ChunkSelfAttention(**heads, dropout=-1.0), "dropout: expected a chance"),
    (lambda: nn.LSHSelfAttention(**heads, dropout=True + 1), "dropout: expected a chance"),
    (lambda: nn.MultiHeadAttention(**heads, position="rope"), "position: expected rotations or"),
    (lambda: nn.MultiHeadAttention(**heads, position=learned), "LearnedPositions, go into Token"),
    (lambda: embed(position=nn.RotaryPositions()), "rotations and biases go into MultiHead"),
    (lambda: nn.EncoderBlock(attention=nn.MultiHeadAttention, attention_norm=norm), "a module"),
    (lambda: part(attention=attend), "attention: expected a function that makes one for each"),
    (lambda: gpt.new_cache(16), "make: expected a function that makes .* got 16"),
    (lambda: gpt(ids, cache=nn.KVCache()), r"cache: expected model.new_cache\(\), got KVCache"),
    (lambda: gpt(ids, cache=nn.cache.ModelCache([])), "cache: expected 2 layers, got 0"),
    (lambda: attend(x, cache=gpt.new_cache()), r"cache: expected a KVCache\(\), .* got ModelCache"),
    (lambda: attend(x, cache=nn.KVCache), r"cache: expected a KVCache\(\)"),
    (lambda: bert.encoder(x, cache=gpt.new_cache()), "cache: expected one for each block"),
    (lambda: both.decode(ids, x, cache=nn.KVCache()), r"cache: expected model.new_cache\(\)"),
    (lambda: generate(gpt, "hello", max_length=3), "prompt: expected ids, got 'hello'"),
    (lambda: window(*three, window_size=3.0), "window_size: expected a whole number, got 3.0"),
    (
        lambda: window(rows[:, :, :1], *three[1:], window_size=3),
        "key: expected 1 positions .* has one",
    ),
    (lambda: gpt(ids.byte()), r"input_ids: expected integers, got .* write input_ids.long\(\)"),
    (lambda: nn.MultiHeadAttention(embed_dim=8, num_heads=2.0), "num_heads: expected a whole"),
    (lambda: write(temperature=-1), "temperature: expected at least 0"),
    (lambda: functional.sparse_attention(rows, rows, rows, pattern=square), "expected a Pattern"),
    (lambda: interop.load("Qwen/Qwen3-0.6B"), "path: .* got 'Qwen/Qwen3-0.6B': nothing is fetched"),
]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("call", "message"), WRONG, ids=[message for _, message in WRONG])
def test_a_wrong_call_is_told_what_to_write(call: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.parametrize(
    ("part", "name", "hint"),
    [
        (nn, "SwiGLU", "did you mean attn_course.nn.GatedFeedForward?"),
        (nn, "causal_mask", "did you mean attn_course.masks.causal_mask?"),
        (nn, "MultiheadAttention", "did you mean attn_course.nn.MultiHeadAttention?"),
        (functional, "rope", "did you mean attn_course.functional.apply_rope?"),
        (train, "Trainer", "did you mean attn_course.train.fit?"),
        (nn, "Holography", r"print\(attn_course.nn.__doc__\) lists them"),
    ],
)
def test_a_name_of_others_is_told_what_it_is_called_here(part: Any, name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=hint):
        getattr(part, name)


@pytest.mark.parametrize("ours", sorted(set(_OURS.values())))
def test_what_is_called_otherwise_elsewhere_exists(ours: str) -> None:
    part, _, name = ours.rpartition(".")
    assert name in importlib.import_module(f"attn_course.{part}").__all__


def test_an_error_within_a_call_is_not_replaced() -> None:
    @explained
    def call(mask: Tensor | None = None) -> None:
        raise TypeError("from within")

    with pytest.raises(TypeError, match="from within"):
        call(mask=None)
    with pytest.raises(TypeError, match=r"missing .* argument: 'max_length'"):
        generate(gpt, ids)
