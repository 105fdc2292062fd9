"""The encoder-decoder: the paper's counts, torch's numbers, padding and caches."""

import math
from functools import partial

import pytest
import torch
from layers import drawn, leaf
from oracles import same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import nn as ours
from attn_course.nn.embeddings import real_positions

V, D, H, F, N = 23, 12, 3, 17, 2


def on_paper(**sizes: int) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in ours.vaswani_like(**sizes).parameters())


def test_one_number_of_words_gives_all_base_sized_rows_of_table_3() -> None:
    rows = [
        ({}, 65),
        ({"num_heads": 32}, 65),  # (A)
        ({"head_dim": 16, "value_head_dim": 64}, 58),  # (B)
        ({"head_dim": 32, "value_head_dim": 64}, 60),
        ({"num_layers": 2}, 36),  # (C)
        ({"num_layers": 4}, 50),
        ({"num_layers": 8}, 80),
        ({"embed_dim": 256, "head_dim": 32}, 28),
        ({"embed_dim": 1024, "head_dim": 128}, 168),
        ({"hidden_dim": 1024}, 53),
        ({"hidden_dim": 4096}, 90),
    ]
    fewest, most = 0.0, math.inf
    for sizes, millions in rows:
        width = sizes.get("embed_dim", 512)
        without_words = on_paper(vocab_size=1, **sizes) - width
        fewest = max(fewest, ((millions - 0.5) * 1e6 - without_words) / width)
        most = min(most, ((millions + 0.5) * 1e6 - without_words) / width)
    # between these every row comes out as printed, the "about 37000" of the text do not
    assert (math.ceil(fewest), math.floor(most)) == (41_004, 41_208)


def small(norm_first: bool = False) -> ours.Transformer:
    sizes = {"vocab_size": V, "embed_dim": D, "num_heads": H, "num_layers": N, "hidden_dim": F}
    return drawn(ours.vaswani_like(**sizes, norm_first=norm_first)).eval()


def sentences() -> tuple[Tensor, Tensor]:
    return torch.randint(V, (2, 7)), torch.randint(V, (2, 5))


@pytest.mark.parametrize("norm_first", [False, True])
def test_stacks_are_those_of_torch(norm_first: bool) -> None:
    theirs = drawn(nn.Transformer(D, H, N, N, F, batch_first=True, norm_first=norm_first)).eval()
    encoder = ours.TransformerEncoder(
        blocks=[ours.EncoderBlock.from_torch(layer) for layer in theirs.encoder.layers],
        norm=theirs.encoder.norm,
    )
    decoder = ours.TransformerDecoder(
        blocks=[ours.DecoderBlock.from_torch(layer) for layer in theirs.decoder.layers],
        norm=theirs.decoder.norm,
    )
    source, target = leaf(2, 7, D), leaf(2, 5, D)
    want = theirs(source, target, tgt_mask=torch.ones(5, 5, dtype=torch.bool).triu(1))
    got = decoder(target, encoder(source), is_causal=True)
    assert_close(got, want, **FLOAT64)
    same_gradients(got, want, [source, target], **FLOAT64)


def test_embedding_is_scaled_and_placed_and_its_table_gives_the_logits() -> None:
    model, (source, target) = small(), sentences()
    table = model.source_embedding.tokens.weight
    assert model.target_embedding is model.source_embedding
    place = ours.SinusoidalPositions(embed_dim=D)(torch.arange(7), 7).double()
    x = table[source] * math.sqrt(D) + place
    memory = model.encode(source)
    assert_close(memory, model.encoder(x), **FLOAT64)
    y = table[target] * math.sqrt(D) + place[:5]
    hidden = model.decoder(y, memory, is_causal=True)
    logits = model(source, decoder_input_ids=target)
    assert_close(logits, hidden @ table.T, **FLOAT64)


def test_logits_can_have_scale_bias_and_weights_of_their_own() -> None:
    model, (source, target) = small(), sentences()
    parts = {name: getattr(model, name) for name in ("encoder", "decoder")}
    embedding = model.source_embedding
    parts |= {"source_embedding": embedding, "target_embedding": embedding}
    other = ours.Transformer(logits_scale=0.25, logits_bias=True, **parts)
    bias = torch.randn(V, dtype=torch.float64)
    other.logits_bias.data = bias
    want = model(source, decoder_input_ids=target)
    assert_close(other(source, decoder_input_ids=target), 0.25 * want + bias, **FLOAT64)
    head = nn.Linear(D, 31).double()
    untied = ours.Transformer(output_projection=head, **parts)
    assert untied(source, decoder_input_ids=target).shape == (2, 5, 31)


@pytest.mark.parametrize("norm_first", [False, True])
def test_padding_of_source_and_target_changes_no_logits(norm_first: bool) -> None:
    model = small(norm_first)
    sources = [torch.randint(V, (1, length)) for length in (7, 4, 5)]
    targets = [torch.randint(V, (1, length)) for length in (3, 6, 2)]
    input_ids, decoder_input_ids = torch.randint(V, (3, 7)), torch.randint(V, (3, 6))
    real, decoder_real = (torch.zeros(ids.shape).bool() for ids in (input_ids, decoder_input_ids))
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        right = slice(0, source.shape[1])
        left = slice(6 - target.shape[1], 6)
        input_ids[row, right], real[row, right] = source[0], True
        decoder_input_ids[row, left], decoder_real[row, left] = target[0], True
    got = model(
        input_ids, real, decoder_input_ids=decoder_input_ids, decoder_padding_mask=decoder_real
    )
    for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
        want = model(source, decoder_input_ids=target)
        assert_close(got[row, decoder_real[row]], want[0], **FLOAT64)


@pytest.mark.parametrize(
    "make",
    [ours.KVCache, partial(ours.KVCache, max_length=5), partial(ours.SlidingCache, window_size=9)],
)
def test_cached_decoding_gives_the_logits_of_the_whole_target(make: object) -> None:
    model, (source, target) = small(), sentences()
    real = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    with torch.no_grad():
        memory, cache = model.encode(source, real), model.new_cache(make)
        got = [
            model.decode(token, memory, real, cache=cache)
            for token in target.split([2, 1, 1, 1], dim=1)
        ]
        want = model(source, real, decoder_input_ids=target)
        assert_close(torch.cat(got, dim=1), want, **FLOAT64)
        rows = torch.tensor([1, 1])
        turned = cache.select(rows)
        assert turned.length == 5
        assert turned.nbytes == cache.nbytes


def test_a_cache_goes_back_where_nothing_was_forgotten() -> None:
    model, (source, target) = small(), sentences()
    memory, cache = model.encode(source), model.new_cache()
    model.decode(torch.randint(V, (2, 3)), memory, cache=cache)
    cache.truncate(0)
    got = model.decode(target, memory, cache=cache)
    assert_close(got, model(source, decoder_input_ids=target), **FLOAT64)
    sliding = model.new_cache(partial(ours.SlidingCache, window_size=2))
    refused("sliding cache has forgotten", sliding.truncate, 0)


def test_what_does_not_fit_is_refused_by_name() -> None:
    model, (source, target) = small(), sentences()
    for mask in (torch.ones(2, 6).bool(), torch.ones(2, 7)):
        refused("padding_mask: expected a boolean mask", real_positions, mask, source)
    refused("input_ids: expected ids from 0 to 22", model, source + V, decoder_input_ids=target)


def test_token_embedding_adds_what_it_is_given() -> None:
    embedding = ours.TokenEmbedding(
        vocab_size=V, embed_dim=D, num_token_types=3, norm=nn.LayerNorm(D), scale=2.0
    )
    ids, types = torch.randint(V, (2, 5)), torch.randint(3, (2, 5))
    want = 2 * embedding.tokens.weight[ids] + embedding.token_types.weight[types]
    assert_close(embedding(ids, token_types=types), nn.functional.layer_norm(want, (D,)))
    first = 2 * embedding.tokens.weight[ids] + embedding.token_types.weight[0]
    assert_close(embedding(ids), nn.functional.layer_norm(first, (D,)))
    plain = ours.TokenEmbedding(vocab_size=V, embed_dim=D)
    refused("token_types: expected none", plain, ids, token_types=types)
