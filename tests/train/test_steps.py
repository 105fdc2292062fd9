"""Decoding a Transformer with its caches is decoding it by reading everything again."""

import math
from functools import partial
from typing import Any

import pytest
import torch
from layers import drawn
from refusals import refused
from torch import Generator, Tensor
from torch.testing import assert_close

from attn_course import nn
from attn_course.nn import KVCache, gpt2_like, vaswani_like
from attn_course.train import beam_search, generate, greedy_decode, sample_decode
from attn_course.train.sampling import temperature, top_k, top_p
from attn_course.train.steps import start_from_prompt, start_from_source

V, B, BOS, EOS = 13, 3, 1, 2


@pytest.fixture
def language_model() -> Any:
    sizes = {"vocab_size": V, "embed_dim": 10, "num_heads": 5, "num_layers": 2}
    return drawn(gpt2_like(max_length=41, **sizes), std=0.5).eval()


@pytest.fixture
def transformer() -> Any:
    sizes = {"vocab_size": V, "embed_dim": 10, "num_heads": 5, "num_layers": 2}
    return drawn(vaswani_like(hidden_dim=7, **sizes), std=0.7).eval()


def reading_again(model: Any, prompt: Tensor) -> tuple[Any, Any]:
    """A step that keeps all tokens, and no cache."""

    def step(token: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        ids = torch.cat([ids, token.unsqueeze(1)], dim=1)
        return model(ids)[:, -1], ids

    return step, prompt[:, :-1]


def translating_again(model: Any, source: Tensor, mask: Tensor) -> tuple[Any, Any]:
    def step(token: Tensor, state: Any) -> tuple[Tensor, Any]:
        source, mask, ids = state
        ids = torch.cat([ids, token.unsqueeze(1)], dim=1)
        return model(source, mask, decoder_input_ids=ids)[:, -1], (source, mask, ids)

    return step, (source, mask, source[:, :0])


def same(a: Any, b: Any) -> None:
    for name in ("tokens", "lengths", "finished"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    assert_close(a.scores, b.scores, rtol=1e-9, atol=1e-9)


def test_a_language_model_decodes_alike_with_and_without_a_cache(language_model: Any) -> None:
    for length in (1, 5):
        prompt = torch.randint(0, V, (B, length))
        step, state = reading_again(language_model, prompt)
        options: dict[str, Any] = {"bos": prompt[:, -1], "eos": EOS, "max_length": 5}
        for cache in (None, language_model.new_cache(partial(KVCache, max_length=31))):
            start = start_from_prompt(language_model, prompt, cache=cache)
            again = greedy_decode(step, state, **options)
            same(greedy_decode(start.step, start.state, **options), again)
        start = start_from_prompt(language_model, prompt)
        again = beam_search(step, state, beam_size=3, **options)
        same(beam_search(start.step, start.state, beam_size=3, **options), again)


def test_an_encoder_decoder_decodes_alike_with_and_without_a_cache(transformer: Any) -> None:
    source = torch.randint(0, V, (B, 7))
    mask = torch.arange(7) < torch.tensor([7, 3, 5])[:, None]
    step, state = translating_again(transformer, source, mask)
    options: dict[str, Any] = {"bos": BOS, "eos": EOS, "max_length": 5}
    start = start_from_source(transformer, source, mask)
    same(greedy_decode(start.step, start.state, **options), greedy_decode(step, state, **options))
    options |= {"beam_size": 3, "length_penalty": 0.6}
    start = start_from_source(transformer, source, mask)
    found = beam_search(start.step, start.state, **options)
    same(found, beam_search(step, state, **options))
    # and a row in the batch is the row alone, without its padding
    for row, length in enumerate((7, 3, 5)):
        start = start_from_source(transformer, source[row : row + 1, :length])
        alone = beam_search(start.step, start.state, **options)
        assert_close(alone.scores[0], found.scores[row], rtol=1e-9, atol=1e-9)


def test_generate_writes_what_the_model_says(language_model: Any) -> None:
    prompt = torch.randint(0, V, (B, 4))
    ids = prompt
    for _ in range(9):
        ids = torch.cat([ids, language_model(ids)[:, -1:].argmax(-1)], dim=1)
    written = generate(language_model, prompt, max_length=9, filters=[partial(top_k, k=1)])
    assert torch.equal(written.tokens, ids[:, 4:])
    assert not written.finished.any()
    log_probabilities = language_model(ids)[:, 3:-1].log_softmax(-1)
    expected = log_probabilities.gather(-1, ids[:, 4:, None]).sum((1, 2))
    assert_close(written.scores, expected, rtol=1e-9, atol=1e-9)


def test_padding_on_the_left_changes_nothing(language_model: Any) -> None:
    texts = [torch.randint(0, V, (n,)) for n in (2, 5, 3)]
    prompt = torch.stack([torch.cat([torch.zeros(5 - len(t)).long(), t]) for t in texts])
    mask = torch.stack([torch.arange(5) >= 5 - len(t) for t in texts])
    likeliest = [partial(top_k, k=1)]
    written = generate(language_model, prompt, padding_mask=mask, max_length=7, filters=likeliest)
    for row, text in enumerate(texts):
        alone = generate(language_model, text[None], max_length=7, filters=likeliest)
        assert torch.equal(alone.tokens[0], written.tokens[row])


def test_one_call_is_a_chain_of_filters_with_a_seed(language_model: Any) -> None:
    prompt = torch.randint(0, V, (B, 4))
    chain = [partial(temperature, value=0.7), partial(top_k, k=4), partial(top_p, p=0.9)]
    seeded = Generator().manual_seed(3)
    wanted = generate(language_model, prompt, max_length=9, filters=chain, generator=seeded)
    options: dict[str, Any] = {"temperature": 0.7, "top_k": 4, "top_p": 0.9, "seed": 3}
    same(generate(language_model, prompt, max_length=9, **options), wanted)
    greedy = generate(language_model, prompt, max_length=9, temperature=0)
    likeliest = generate(language_model, prompt, max_length=9, filters=[partial(top_k, k=1)])
    same(greedy, likeliest)


def test_lists_of_any_lengths_are_prompts(language_model: Any, transformer: Any) -> None:
    texts = [torch.randint(0, V, (n,)).tolist() for n in (2, 5, 3)]
    for model, options in ((language_model, {}), (transformer, {"bos": BOS, "eos": EOS})):
        together = generate(model, texts, max_length=6, temperature=0, **options)
        for row, text in enumerate(texts):
            for alone in (text, torch.tensor(text)):
                found = generate(model, alone, max_length=6, temperature=0, **options)
                length = found.tokens.shape[1]
                assert torch.equal(found.tokens[0], together.tokens[row, :length])


def test_recurrent_encoder_decoders_write_as_well() -> None:
    sizes: dict[str, Any] = {"vocab_size": V, "embed_dim": 5, "hidden_size": 7}
    decoder = nn.Decoder(**sizes, context_size=7)
    model = nn.EncoderDecoder(encoder=nn.Encoder(**sizes), decoder=decoder)
    source, lengths = torch.randint(0, V, (B, 6)), torch.tensor([6, 2, 4])
    state = model.init_state(source, lengths)
    wanted = greedy_decode(model.step, state, bos=BOS, eos=EOS, max_length=5)
    texts = [row[:length].tolist() for row, length in zip(source, lengths, strict=True)]
    same(generate(model, texts, max_length=5, temperature=0, bos=BOS, eos=EOS), wanted)


def test_generate_refuses_by_name(language_model: Any, transformer: Any) -> None:
    call = partial(generate, max_length=3)
    for message, wrong in (
        (r"model: expected a language .* got Linear", lambda: call(torch.nn.Linear(1, 1), [1])),
        (r"bos: expected the id .*, got None", lambda: call(transformer, [1])),
        (r"bos: expected none, got 1", lambda: call(language_model, [1], bos=1)),
        (r"prompt: expected at least one token", lambda: call(language_model, [[1], []])),
        (r"prompt: expected at least one token", lambda: call(language_model, [])),
        (r"seed, generator: expected one", lambda: call(
            language_model, [1], seed=1, generator=Generator())),
        (r"temperature: expected at least 0", lambda: call(language_model, [1], temperature=-1.0)),
    ):  # fmt: skip
        refused(message, wrong)


def test_sampling_draws_each_text_as_often_as_it_is_probable() -> None:
    table = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.2, 0.3, 0.5]]).log()

    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return table[token], state

    rows = 40_000
    drawn = sample_decode(
        step, torch.zeros(rows, 1), bos=0, eos=2, max_length=2, pad=0,
        filters=[partial(top_p, p=0.95)], generator=Generator().manual_seed(3),
    )  # fmt: skip
    # from 0 the unlikely word falls out where it comes beyond 0.95, which 0.6 + 0.3 are not
    for first in range(3):
        share = float((drawn.tokens[:, 0] == first).double().mean())
        assert abs(share - float(table[0, first].exp())) < 5 * 0.5 / math.sqrt(rows)
    ended = drawn.tokens[:, 0] == 2
    assert torch.equal(drawn.finished & (drawn.lengths == 1), ended)
    assert (drawn.tokens[ended, 1] == 0).all()
    both = drawn.tokens[~ended]
    due = table[0, both[:, 0]] + table[both[:, 0], both[:, 1]]
    assert_close(drawn.scores[~ended], due.double())


def test_bad_starts_are_refused(language_model: Any) -> None:
    prompt = torch.zeros(B, 3, dtype=torch.long)
    mask = torch.tensor([True, True, False]).expand(B, 3)
    start = partial(start_from_prompt, language_model, prompt)
    refused("padding_mask: expected padding on the left", start, mask)
    refused("prompt: expected at least one token", start_from_prompt, language_model, prompt[:, :0])
    start = start_from_prompt(language_model, prompt)
    decode = partial(greedy_decode, start.step, eos=2, max_length=3)
    refused("bos: expected one per row where the state is a cache", decode, start.state, bos=1)
    refused(r"one batch size on axis 0, got \[2, 3\]", decode, (prompt,), bos=prompt[:2, 0])
