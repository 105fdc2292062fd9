"""Language models: published counts, causality, padding, and caches equal to the whole text."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from layers import drawn
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import nn as ours
from attn_course.functional import gelu
from attn_course.nn.encoder_model import MaskedWordHead

V, D, H, L = 23, 20, 5, 11


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_published_models_have_their_number_of_parameters() -> None:
    with torch.device("meta"):
        gpt2, bert, llama = ours.gpt2_like(), ours.bert_like(), ours.llama_like()
    assert count(gpt2) == 124_439_808
    assert count(bert) == 109_482_240
    assert count(llama) == 6_738_415_616
    assert not [name for name, _ in llama.named_parameters() if name.endswith("bias")]


POSITIONS = ("none", "learned", "sinusoidal", "rope", "alibi", "t5")


def small(position: str = "rope", norm_first: bool = True, tied: bool = True) -> ours.LanguageModel:
    """Together these have every part that a language model can have."""
    added = {
        "learned": lambda: ours.LearnedPositions(max_length=L, embed_dim=D),
        "sinusoidal": lambda: ours.SinusoidalPositions(embed_dim=D),
    }
    inside = {
        "rope": ours.RotaryPositions,
        "alibi": lambda: ours.AlibiPositions(num_heads=H),
        "t5": lambda: ours.RelativePositions(num_heads=H, bidirectional=False),
    }
    heads = {"embed_dim": D, "num_heads": H, "num_kv_heads": 1}
    bent = partial(ours.FeedForward, activation=gelu)
    feed_forward = ours.GatedFeedForward if norm_first else bent
    outer, inner = (kinds.get(position, lambda: None)() for kinds in (added, inside))
    model = ours.decoder_only(
        embedding=ours.TokenEmbedding(vocab_size=V, embed_dim=D, position=outer),
        num_layers=2,
        attention=partial(ours.MultiHeadAttention, **heads, position=inner),
        feed_forward=partial(feed_forward, embed_dim=D, hidden_dim=29),
        norm=partial(ours.RMSNorm if norm_first else ours.LayerNorm, embed_dim=D),
        norm_first=norm_first,
        tied=tied,
    )
    return drawn(model)


def text() -> Tensor:
    return torch.randint(V, (2, L))


@pytest.mark.parametrize("position", POSITIONS)
def test_logits_depend_on_no_later_token_and_on_every_earlier_one(position: str) -> None:
    model, ids = small(position), text()
    want = model(ids)
    for i in range(L):
        changed = ids.clone()
        changed[:, i] = (changed[:, i] + 1) % V
        differs = (model(changed) - want).abs().amax(-1) > 1e-12  # (B, L)
        assert differs.tolist() == [[j >= i for j in range(L)]] * 2


@pytest.mark.parametrize(
    ("position", "norm_first"), [("learned", False), *((name, True) for name in POSITIONS)]
)
def test_every_cached_step_gives_the_logits_of_the_whole_text(
    position: str, norm_first: bool
) -> None:
    model, ids = small(position, norm_first), text()
    with torch.no_grad():
        want = model(ids)
        for make in (
            ours.KVCache,
            partial(ours.KVCache, max_length=L),
            partial(ours.SlidingCache, window_size=L),
        ):
            cache = model.new_cache(make)
            got = [model(part, cache=cache) for part in ids.split([4, 1, 1, 3, 1, 1], dim=1)]
            assert_close(torch.cat(got, dim=1), want, **FLOAT64)
            assert cache.length == L
            assert cache.nbytes == 2 * 2 * 2 * L * 4 * 8  # layers, key and value, rows


PLACES = [torch.arange(L), torch.arange(3, L), torch.tensor([0, 1, 2, *range(6, L)])]


def padded() -> tuple[Tensor, Tensor]:
    """A full row, one padded on the left, and one whose prompt was padded on the right."""
    real = torch.zeros(3, L, dtype=torch.bool)
    for row, place in enumerate(PLACES):
        real[row, place] = True
    return torch.randint(V, (3, L)), real


@pytest.mark.parametrize("position", POSITIONS)
def test_padding_changes_no_logits_with_or_without_a_cache(position: str) -> None:
    model, (ids, real) = small(position), padded()
    with torch.no_grad():
        found = [model(ids, real)]
        for make in (ours.KVCache, partial(ours.SlidingCache, window_size=L)):
            cache = model.new_cache(make)
            steps = [model(ids[:, :6], real[:, :6], cache=cache)]
            # from here on all tokens are real: the mask may be left out
            steps += [model(token, cache=cache) for token in ids[:, 6:].split(1, dim=1)]
            found.append(torch.cat(steps, dim=1))
        for row, place in enumerate(PLACES):
            want = model(ids[row : row + 1, place])[0]
            for got in found:
                assert_close(got[row, place], want, **FLOAT64)


def test_rows_of_a_padded_cache_can_be_chosen() -> None:
    model, (ids, real) = small("learned"), padded()
    cache = model.new_cache()
    model(ids[:, :6], real[:, :6], cache=cache)
    rows = torch.tensor([2, 0])
    got = model(ids[rows][:, 6:], cache=cache.select(rows))
    assert_close(got, model(ids, real)[rows][:, 6:], **FLOAT64)
    refused("without padding to truncate", cache.truncate, 3)


def test_a_cache_without_padding_can_go_back() -> None:
    model, ids = small("learned"), text()
    cache = model.new_cache()
    model(torch.cat([ids[:, :4], ids[:, :3]], dim=1), cache=cache)
    cache.truncate(4)
    assert_close(model(ids[:, 4:], cache=cache), model(ids)[:, 4:], **FLOAT64)
    with pytest.raises(ValueError, match="padding_mask: expected from the first call"):
        model(ids[:, :1], torch.ones(2, 1).bool(), cache=cache)


def test_tied_output_is_the_table_and_untied_is_its_own() -> None:
    tied, untied = small(), small(tied=False)
    ids = text()
    assert_close(tied(ids), tied.hidden(ids) @ tied.embedding.tokens.weight.T, **FLOAT64)
    want = untied.hidden(ids) @ untied.output_projection.weight.T
    assert_close(untied(ids), want, **FLOAT64)
    assert count(untied) - count(tied) == V * D


def test_more_tokens_than_learned_positions_are_refused_with_a_cache_too() -> None:
    model, ids = small("learned"), text()
    cache = model.new_cache()
    model(ids, cache=cache)
    refused("length: expected at most 11, got 12", model, ids[:, :1], cache=cache)


def test_weights_that_write_to_the_residual_begin_smaller() -> None:
    model = ours.gpt2_like(vocab_size=101, max_length=50, embed_dim=60, num_heads=5, num_layers=8)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        elif "norm" in name:
            assert parameter.eq(1).all()
        else:
            writes = name.endswith(("output_projection.weight", "down_projection.weight"))
            want = 0.02 / 4 if writes else 0.02  # 4 = sqrt(2 * 8)
            assert float(parameter.detach().std()) == pytest.approx(want, rel=0.06)


def test_a_model_with_latent_attention_is_cached_like_the_others() -> None:
    sizes = {"embed_dim": D, "num_heads": 3, "head_dim": 5, "rope_dim": 4, "kv_rank": 7}
    model = ours.decoder_only(
        embedding=ours.TokenEmbedding(vocab_size=V, embed_dim=D),
        num_layers=2,
        attention=partial(ours.MultiHeadLatentAttention, **sizes),
        norm=partial(ours.RMSNorm, embed_dim=D),
    ).double()
    ids, cache = text(), model.new_cache()
    got = [model(part, cache=cache) for part in ids.split([4, 1, 6], dim=1)]
    assert_close(torch.cat(got, dim=1), model(ids), **FLOAT64)
    assert cache.nbytes == 2 * 2 * L * (7 + 4) * 8


def encoder(**options: Any) -> ours.EncoderModel:
    sizes = {"vocab_size": V, "embed_dim": D, "num_heads": H, "num_layers": 2, "hidden_dim": 29}
    return drawn(ours.bert_like(max_length=L, **sizes, **options))


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_no_vector_of_an_encoder(side: str) -> None:
    model = encoder()
    rows = [torch.randint(V, (1, length)) for length in (L, 4, 7)]
    kinds = [torch.randint(2, row.shape) for row in rows]
    ids, types = torch.randint(V, (3, L)), torch.randint(2, (3, L))
    real = torch.zeros(3, L, dtype=torch.bool)
    for n, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        place = slice(0, row.shape[1]) if side == "right" else slice(L - row.shape[1], L)
        ids[n, place], types[n, place], real[n, place] = row[0], kind[0], True
    got = model(ids, real, token_types=types)
    for n, (row, kind) in enumerate(zip(rows, kinds, strict=True)):
        assert_close(got[n, real[n]], model(row, token_types=kind)[0], **FLOAT64)


def test_the_head_of_masked_words_shares_the_table_of_the_embedding() -> None:
    model = encoder()
    model.pooler, tokens = None, model.embedding.tokens
    norm = ours.LayerNorm(embed_dim=D, eps=0.1)
    head = MaskedWordHead(embed_dim=D, tokens=tokens, activation=torch.tanh, norm=norm).double()
    nn.init.normal_(head.bias)
    model.head = head
    ids = text()
    inner = torch.tanh(model.hidden(ids) @ head.projection.weight.T + head.projection.bias)
    deviation = (inner.var(-1, keepdim=True, correction=0) + 0.1).sqrt()
    inner = (inner - inner.mean(-1, keepdim=True)) / deviation
    assert_close(model(ids), inner @ tokens.weight.T + head.bias, **FLOAT64)
    tables = [name for name, _ in model.named_parameters() if "tokens" in name]
    assert tables == ["embedding.tokens.weight"]


def test_an_encoder_looks_both_ways_and_ends_in_its_head_and_pooler() -> None:
    head: Callable[..., Any] = nn.Linear(D, 31)
    model = encoder(head=head)
    ids = text()
    hidden = model.hidden(ids)
    changed = ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % V
    assert bool(((model.hidden(changed) - hidden).abs().amax(-1) > 1e-12).all())
    assert_close(model(ids), head(hidden), **FLOAT64)
    projection = model.pooler.projection
    want = torch.tanh(hidden[:, 0] @ projection.weight.T + projection.bias)
    assert_close(model.pooler(hidden), want, **FLOAT64)
