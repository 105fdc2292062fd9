"""Decoders with attention: the papers' formulas, padding, no look ahead, one alignment for all."""

from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from mutation import mutant, rejects_changes
from oracles import same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import functional
from attn_course.nn import (
    Attention,
    AttentionEncoderDecoder,
    BahdanauDecoder,
    BidirectionalEncoder,
    Encoder,
    GRUCell,
    LocalM,
    LocalP,
    LSTMCell,
    LuongDecoder,
    RNNCell,
    make_score,
)
from attn_course.nn.recurrent import hidden_of
from attn_course.nn.scores import SCORES
from attn_course.train import beam_search, greedy_decode

SOURCE_VOCAB, VOCAB, E_SOURCE, E_TARGET, H = 13, 11, 3, 5, 6
LENGTHS, L = [4, 9, 1, 6], 5
WINDOWS = ("global", "local-m", "local-p")


def build(
    decoder: Any = LuongDecoder,
    *,
    score: str = "general",
    window: str = "global",
    cell: Any = GRUCell,
    encoder: Any = BidirectionalEncoder,
    model: Any = AttentionEncoderDecoder,
    **kwargs: Any,
) -> AttentionEncoderDecoder:
    if window == "local-m":
        kwargs["window"] = LocalM(half_width=1)
    elif window == "local-p":
        kwargs["window"] = LocalP(half_width=2, query_size=H)
    each = H // 2 if encoder is BidirectionalEncoder else H
    return model(
        encoder=encoder(vocab_size=SOURCE_VOCAB, embed_dim=E_SOURCE, hidden_size=each, cell=cell),
        decoder=decoder(
            vocab_size=VOCAB,
            embed_dim=E_TARGET,
            context_size=H,
            summary_size=each,
            hidden_size=H,
            score=make_score(score, query_size=H, key_size=H, hidden_size=7, max_length=20),
            cell=cell,
            **kwargs,
        ),
    ).double()


# every decoder there is
KINDS: dict[str, dict[str, Any]] = {"bahdanau": {"decoder": BahdanauDecoder, "score": "additive"}}
KINDS |= {
    f"luong {window}{'' if fed else ' unfed'}": {"window": window, "input_feeding": fed}
    for window in WINDOWS
    for fed in (True, False)
}


def batch() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.randint(0, SOURCE_VOCAB, (len(LENGTHS), max(LENGTHS)))
    return source, torch.tensor(LENGTHS), torch.randint(3, VOCAB, (len(LENGTHS), L))


def rows_alone(
    model: AttentionEncoderDecoder, source: Tensor, lengths: list[int], target_in: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits of the batch and of its rows one by one: both are the same, and so are all weights."""
    whole = (source, torch.tensor(lengths), target_in)
    logits, weights, alone = model(*whole), model.align(*whole), []
    for row, length in enumerate(lengths):
        one = (source[row : row + 1, :length], None, target_in[row : row + 1])
        alone.append(model(*one))
        assert_close(model.align(*one)[0], weights[row, :, :length], **FLOAT64)
        assert (weights[row, :, length:] == 0).all()
    assert_close(torch.cat(alone), logits, **FLOAT64)
    return logits, torch.cat(alone)


def check_padding(model: AttentionEncoderDecoder) -> None:
    """Another padding, and no padding at all, give the same logits, weights and gradients."""
    source, lengths, target_in = batch()
    logits, alone = rows_alone(model, source, LENGTHS, target_in)
    other = source.clone()
    for row, length in enumerate(LENGTHS):
        other[row, length:] = (other[row, length:] + 1) % SOURCE_VOCAB
    other = F.pad(other, (0, 3), value=2)
    again = model(other, lengths, target_in)
    assert_close(again, logits, **FLOAT64)
    weights = model.align(source, lengths, target_in)
    assert_close(model.align(other, lengths, target_in)[..., :-3], weights, **FLOAT64)
    for each in (again, alone):
        same_gradients(each, logits, [*model.parameters()], unused=True, **FLOAT64)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_of_the_source_changes_nothing(kind: str) -> None:
    check_padding(build(**KINDS[kind]))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("decoder", [BahdanauDecoder, LuongDecoder])
def test_padding_changes_nothing_with_any_score(decoder: Any, score: str) -> None:
    check_padding(build(decoder, score=score))


def weights_by_hand(
    model: AttentionEncoderDecoder, hidden: Tensor, notes: Tensor, t: int
) -> Tensor:
    """Weights of one sentence for one state: score, window, softmax, Gaussian, in the open."""
    decoder = model.decoder
    scores = decoder.attention.score(hidden.view(1, 1, -1), notes.unsqueeze(0))[0, 0]
    window = getattr(decoder, "window", None)
    if window is None:
        return scores.softmax(-1)
    centre = torch.tensor(float(t)).double()
    if not isinstance(window, LocalM):
        centre = len(notes) * torch.sigmoid(window.v @ torch.tanh(window.weight @ hidden))
    inside = [s for s in range(len(notes)) if abs(s - centre.item()) <= window.half_width]
    weights = torch.zeros_like(scores)
    if inside:
        weights[inside] = scores[inside].softmax(-1)
    if isinstance(window, LocalM):
        return weights
    places = torch.arange(len(notes), dtype=torch.float64)
    return weights * torch.exp(-((places - centre) ** 2) / (2 * (window.half_width / 2) ** 2))


def by_formula(
    model: AttentionEncoderDecoder, source: Tensor, target_in: Tensor
) -> tuple[Tensor, Tensor]:
    """One sentence, word by word, with the equations of the two papers."""
    decoder = model.decoder
    notes, summary = model.encoder(source.unsqueeze(0))
    notes = notes[0]
    state: Any = torch.tanh(decoder.initial(summary))
    bahdanau = not hasattr(decoder, "combine")
    cell = decoder.cell if bahdanau else decoder.recurrent.cell
    if isinstance(cell, LSTMCell):
        state = (state, torch.zeros_like(state))
    fed = torch.zeros(H, dtype=torch.float64)
    logits, alignments = [], []
    for t, token in enumerate(target_in):
        word = decoder.embedding.weight[token]
        if bahdanau:
            weights = weights_by_hand(model, hidden_of(state)[0], notes, t)
            context = weights @ notes
            state = cell(torch.cat([word, context]).unsqueeze(0), state)
            logits.append(decoder.output(torch.cat([hidden_of(state)[0], word, context])))
        else:
            entered = torch.cat([word, fed]) if decoder.input_feeding else word
            state = cell(entered.unsqueeze(0), state)
            weights = weights_by_hand(model, hidden_of(state)[0], notes, t)
            fed = torch.tanh(decoder.combine(torch.cat([weights @ notes, hidden_of(state)[0]])))
            logits.append(decoder.output(fed))
        alignments.append(weights)
    return torch.stack(logits), torch.stack(alignments)


def check_decoding(model: AttentionEncoderDecoder) -> None:
    """Teacher forcing equals the formula, equals step by step, and never looks ahead."""
    source, lengths, target_in = batch()
    logits, weights = model(source, lengths, target_in), model.align(source, lengths, target_in)
    for row, length in enumerate(LENGTHS):
        want_logits, want_weights = by_formula(model, source[row, :length], target_in[row])
        assert_close(logits[row], want_logits, **FLOAT64)
        assert_close(weights[row, :, :length], want_weights, **FLOAT64)
        leaves = [*model.parameters()]
        same_gradients(logits[row], want_logits, leaves, unused=True, **FLOAT64)
    state = model.init_state(source, lengths)
    assert (state.alignment == 0).all()
    for t in range(L):
        step, state = model.step(target_in[:, t], state)
        assert_close(step, logits[:, t], **FLOAT64)
        assert_close(state.alignment, weights[:, t], **FLOAT64)
    # in two calls: the state at the end of the first is all the second needs
    decoder, cut = model.decoder, 2
    first = decoder(target_in[:, :cut], model.init_state(source, lengths))
    second = decoder(target_in[:, cut:], first[2])
    for place, whole in enumerate((logits, weights)):
        assert_close(torch.cat([first[place], second[place]], dim=1), whole, **FLOAT64)
    assert_close(first[2].alignment, weights[:, cut - 1], **FLOAT64)
    for t in range(L):
        changed = target_in.clone()
        changed[:, t] = (changed[:, t] + 1) % VOCAB
        assert_close(model(source, lengths, changed)[:, :t], logits[:, :t], rtol=0, atol=0)
        assert_close(model.align(source, lengths, changed)[:, :t], weights[:, :t], rtol=0, atol=0)
        assert (model(source, lengths, changed)[:, t:] != logits[:, t:]).any(dim=-1).all()


@pytest.mark.parametrize("cell", [GRUCell, LSTMCell, RNNCell])
@pytest.mark.parametrize("kind", KINDS)
def test_teacher_forcing_is_the_formula_and_is_decoding_step_by_step(kind: str, cell: Any) -> None:
    check_decoding(build(**KINDS[kind], cell=cell))


def test_a_plain_encoder_serves_too() -> None:
    for decoder in (BahdanauDecoder, LuongDecoder):
        check_decoding(build(decoder, encoder=Encoder))


BAHDANAU, LUONG = "attn_course.nn.attention_seq2seq", "attn_course.nn.luong_decoder"
LOCAL = "attn_course.nn.local_window"

test_decoding_oracle_rejects_a_changed_line = rejects_changes(
    lambda wrong: check_decoding(build(wrong)), f"{BAHDANAU}.BahdanauDecoder",
    ("query = hidden_of(recurrent).unsqueeze(1)", "query = words[:, :1, :1].expand(-1, -1, 6)"),
    ("torch.cat([words[:, t], context], dim=-1)", "torch.cat([words[:, t], 0 * context], dim=-1)"),
    ("torch.cat([hidden_of(recurrent), words[:, t], context]", "torch.cat([hidden_of(recurrent), words[:, t], 0 * context]"),  # noqa: E501
    ("state_from(self.cell, hidden)", "state_from(self.cell, 0 * hidden)"),
    ("BahdanauState(recurrent, memory, alignments[-1])", "BahdanauState(recurrent, memory, alignments[0])"),  # noqa: E501
    ("BahdanauState(recurrent, memory, alignments[-1])", "BahdanauState(state.recurrent, memory, alignments[-1])"),  # noqa: E501
)  # fmt: skip
test_local_decoding_oracle_rejects_a_changed_line = rejects_changes(
    lambda wrong: check_decoding(build(wrong, window="local-m")), f"{LUONG}.LuongDecoder",
    ("vector = parts[-1][0].squeeze(1)", "pass"),
    ("steps[:, t : t + 1]", "steps[:, :1]"),
    ("torch.tanh(self.combine(", "(self.combine("),
    ("torch.cat([context, hidden], dim=-1)", "torch.cat([hidden, context], dim=-1)"),
    ("steps=state.steps + length", "steps=state.steps"),
    ("attentional=vectors[:, -1]", "attentional=vectors[:, 0] * 0"),
    ("alignment=weights[:, -1]", "alignment=weights[:, 0] * 0"),
    ("recurrent=recurrent,", "recurrent=state.recurrent,"),
)  # fmt: skip


WINDOW_SIZES: dict[str, dict[str, int]] = {
    "LocalM": {"half_width": 2},
    "LocalP": {"half_width": 2, "query_size": H},
}


def check_window_of_scores(name: str, window: Any) -> None:
    """Given all scores, a window closes the padding, and what lies behind it changes nothing."""
    window = window(**WINDOW_SIZES[name]).double()
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    hidden = torch.randn(len(LENGTHS), L, H, dtype=torch.float64)
    steps = torch.arange(L).expand(len(LENGTHS), L)
    scores = torch.randn(len(LENGTHS), L, max(LENGTHS), dtype=torch.float64)
    weights = window(scores, hidden, steps, mask)
    for row, length in enumerate(LENGTHS):
        assert (weights[row, :, length:] == 0).all()
        own = slice(row, row + 1)
        alone = window(scores[own, :, :length], hidden[own], steps[own], mask[own, :length])
        assert_close(alone[0], weights[row, :, :length], **FLOAT64)


@pytest.mark.parametrize("window", [LocalM, LocalP])
def test_a_window_of_scores_closes_the_padding(window: Any) -> None:
    check_window_of_scores(window.__name__, window)


test_padding_oracle_rejects_a_changed_window = rejects_changes(
    {name: partial(check_window_of_scores, name) for name in WINDOW_SIZES}, LOCAL,
    ("LocalM", "window & mask.unsqueeze(1)", "window | ~mask.unsqueeze(1)"),
    ("LocalP", "local_p_position(hidden, self.weight, self.v, mask.sum(-1))", "local_p_position(hidden, self.weight, self.v, mask.sum(-1) * 0 + mask.shape[-1])"),  # noqa: E501
    ("LocalP", "self.half_width, mask.unsqueeze(1))", "self.half_width)"),
)  # fmt: skip


def test_padding_oracle_rejects_lengths_of_the_whole_row(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = "memory.mask.sum(-1),", "memory.mask.sum(-1) * 0 + memory.mask.shape[-1],"
    monkeypatch.setattr(LOCAL + "._attend", mutant(LOCAL, "_attend", old, new))
    with pytest.raises(AssertionError):
        check_padding(build(window="local-m"))


test_padding_oracle_rejects_a_forgotten_length = rejects_changes(
    lambda wrong: check_padding(build(model=wrong)), f"{BAHDANAU}.AttentionEncoderDecoder",
    ("padding_mask(source_lengths, source.shape[1])", "source >= 0"),
    ("self.encoder(source, source_lengths)", "self.encoder(source)"),
    error=AssertionError,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_prepared_once_for_a_sentence(kind: str) -> None:
    model = build(**KINDS[kind])
    score = model.decoder.attention.score
    score.prepare = Mock(wraps=score.prepare)
    source, lengths, target_in = batch()
    model(source, lengths, target_in)
    assert score.prepare.call_count == 1
    state = model.init_state(source, lengths)
    greedy_decode(model.step, state, bos=1, eos=2, max_length=7)
    assert score.prepare.call_count == 2


@pytest.mark.parametrize("kind", KINDS)
def test_alignments_of_decoding_are_those_of_teacher_forcing(kind: str) -> None:
    torch.manual_seed(2)
    model = build(**KINDS[kind])
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -1.0, 1.0)
    model.decoder.output.bias.data[2] += 1.5  # so that some hypotheses end early
    source, lengths, _ = batch()
    state = model.init_state(source, lengths)
    greedy = greedy_decode(model.step, state, bos=1, eos=2, max_length=8)
    beam = beam_search(model.step, state, bos=1, eos=2, beam_size=3, max_length=8)
    one = beam_search(model.step, state, bos=1, eos=2, beam_size=1, max_length=8)
    assert_close(one.alignments[:, 0], greedy.alignments, **FLOAT64)
    assert len(set(beam.lengths.flatten().tolist())) > 1
    spread = [greedy._replace(tokens=greedy.tokens[:, None], lengths=greedy.lengths[:, None],
                              alignments=greedy.alignments[:, None]), beam]  # fmt: skip
    for decoded in spread:
        assert decoded.alignments.shape == (*decoded.tokens.shape, max(LENGTHS))
        for k in range(decoded.tokens.shape[1]):
            tokens = decoded.tokens[:, k]
            target_in = torch.cat([torch.ones_like(tokens[:, :1]), tokens[:, :-1]], dim=1)
            forced = model.align(source, lengths, target_in)
            said = torch.arange(tokens.shape[1]) < decoded.lengths[:, k, None]
            want = forced.masked_fill(~said.unsqueeze(-1), 0.0)
            assert_close(decoded.alignments[:, k], want, **FLOAT64)


def test_the_summary_is_the_backward_state_at_the_first_word() -> None:
    encoder = BidirectionalEncoder(vocab_size=SOURCE_VOCAB, embed_dim=E_SOURCE, hidden_size=H)
    source, lengths, _ = batch()
    notes, summary = encoder(source, lengths)
    assert_close(summary, notes[:, 0, H:], rtol=0, atol=0)
    assert (encoder.forwards.reverse, encoder.backwards.reverse) == (False, True)
    words = encoder.embedding(source)
    ways = [way(words, lengths=lengths)[0] for way in (encoder.forwards, encoder.backwards)]
    assert_close(notes, torch.cat(ways, dim=-1))


def test_the_toolkit_projects_only_what_it_is_given() -> None:
    query, key, value = torch.randn(2, 3, 5), torch.randn(2, 7, 5), torch.randn(2, 7, 4)
    mask = torch.rand(2, 3, 7) < 0.7
    plain = Attention()
    assert not list(plain.parameters())
    want = functional.attention(query, key, value, attn_mask=mask)
    assert_close(plain(query, key, value, mask), want)
    assert_close(plain(query, key), functional.attention(query, key, key))
    wq, wk, wv = (nn.Linear(n, m, bias=False) for n, m in ((5, 6), (5, 6), (4, 2)))
    whole = Attention(query_projection=wq, key_projection=wk, value_projection=wv)
    want = functional.attention(wq(query), wk(key), wv(value), attn_mask=mask)
    assert_close(whole(query, key, value, mask), want)
    for normalize in (functional.masked_softmax, None):
        both = Attention(key_projection=wk, query_projection=wq, normalize=normalize)
        real = torch.arange(7) < torch.tensor([[4], [7]])
        memory = both.prepare(key, real)
        assert_close(both.attend(query, memory), both(query, key, None, real.unsqueeze(1)))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("decoder", [BahdanauDecoder, LuongDecoder])
def test_bad_arguments_are_refused(decoder: Any) -> None:
    ids, model = torch.ones(2, 3, dtype=torch.long), build(decoder)
    state, start = model.init_state(ids), model.decoder.init_state
    refused("source: expected ids from 0 to 12, got 13 to 13", model, 13 * ids, None, ids)
    refused("target_in: expected ids from 0 to 10, got 11 to 11", model, ids, None, 11 * ids)
    refused("target_in: expected size 2 on axis 0", model.decoder, ids[:1], state)
    refused("target_in: expected at least one position", model, ids, None, ids[:, :0])
    long = torch.tensor([4, 4])
    refused("lengths: expected values from 0 to 3, got 4 to 4", model, ids, long, ids)
    refused(r"token: expected axes \(B\)", model.step, ids, state)
    (notes, summary), mask = model.encoder(ids), torch.ones(2, 3).bool()
    refused("annotations: expected size 6 on axis -1", start, notes[..., :5], summary, mask)
    refused("summary: expected size 2 on axis 0", start, notes, summary[:1], mask)
    for other in (mask[:1], mask[:, :2], mask.double(), mask[:, None]):
        prepare = model.decoder.attention.prepare
        refused("mask: expected a boolean mask of shape", prepare, notes, other)
    sizes = {"vocab_size": 3, "embed_dim": 2, "context_size": 4, "summary_size": 2}
    refused("hidden_size: expected at least 1, got 0", decoder, **sizes, hidden_size=0)
    for score in ("general", 3, functional.dot_score):
        options = sizes | {"hidden_size": 5, "score": score}
        refused("score: expected a module with prepare and comp", decoder, **options)


@pytest.mark.parametrize("decoder", [BahdanauDecoder, LuongDecoder])
def test_decoding_without_rows_gives_no_rows(decoder: Any) -> None:
    model = build(decoder)
    state = model.init_state(torch.zeros(0, 3, dtype=torch.long))
    found = beam_search(model.step, state, bos=1, eos=2, beam_size=2, max_length=3)
    assert found.tokens.shape[:2] == (0, 2)
    assert greedy_decode(model.step, state, bos=1, eos=2, max_length=3).tokens.shape[0] == 0


@pytest.mark.parametrize("cell", [GRUCell, LSTMCell])
@pytest.mark.parametrize("kind", KINDS)
def test_sources_of_length_zero_are_answered_without_looking(kind: str, cell: Any) -> None:
    model = build(**KINDS[kind], cell=cell)
    source, _, target_in = batch()
    lengths = torch.tensor([0, 9, 0, 3])
    logits, weights = model(source, lengths, target_in), model.align(source, lengths, target_in)
    assert logits.isfinite().all()
    assert (weights[lengths == 0] == 0).all()
    logits.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    found = beam_search(
        model.step, model.init_state(source, lengths), bos=1, eos=2, beam_size=30, max_length=4
    )
    assert (found.alignments[lengths == 0] == 0).all()


def test_a_window_never_opens_padding_in_front() -> None:
    mask = torch.tensor([[False, True, True, True]])
    scores, hidden = torch.zeros(1, 2, 4), torch.zeros(1, 2, H)
    steps = torch.arange(2).unsqueeze(0)
    for window in (LocalM(half_width=1), LocalP(half_width=1, query_size=H)):
        assert (window(scores, hidden, steps, mask)[..., 0] == 0).all()


def test_padding_of_nan_reaches_no_projection() -> None:
    layers = [nn.Linear(E_SOURCE, E_SOURCE) for _ in range(2)]
    model = Attention(key_projection=layers[0], value_projection=layers[1])
    rows = torch.randn(2, 5, E_SOURCE)
    rows[:, 3:] = torch.nan
    mask = torch.arange(5) < 3
    output, _ = model(torch.randn(2, 4, E_SOURCE), rows, attn_mask=mask)
    output.sum().backward()
    for layer in layers:
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_float32_query_may_look_at_a_half_precision_memory(name: str, half: torch.dtype) -> None:
    score = make_score(name, query_size=5, key_size=5, hidden_size=7, max_length=20)
    model = Attention(score=score)
    rows, mask = torch.randn(2, 7, 5), torch.arange(7) < torch.tensor([[4], [7]])
    query, stored = torch.randn(2, 3, 5), rows.to(half)
    output, weights = model.attend(query, model.prepare(stored, mask))
    assert (output.dtype, weights.dtype) == (torch.float32, torch.float32)
    want = model(query, stored.float(), attn_mask=mask.unsqueeze(1))
    assert_close((output, weights), want)
    # one dtype for all: what goes in comes out, whatever the score prepared
    output, weights = model.attend(query.to(half), model.prepare(stored, mask))
    assert (output.dtype, weights.dtype) == (half, half)


@pytest.mark.parametrize("kind", KINDS)
def test_decoders_run_in_half_precision(kind: str) -> None:
    model = build(**KINDS[kind]).bfloat16()
    source, lengths, target_in = batch()
    logits = model(source, lengths, target_in)
    assert logits.dtype == torch.bfloat16
    assert_close(logits.double(), model.double()(source, lengths, target_in), rtol=0.1, atol=0.1)


@pytest.mark.usefixtures("unchecked")
def test_windows_and_attention_refuse_what_does_not_fit() -> None:
    refused("half_width: expected at least 0, got -1", LocalM, half_width=-1)
    refused("half_width: expected more than 0, got 0", LocalP, half_width=0, query_size=3)
    sizes = {"vocab_size": 3, "embed_dim": 2, "context_size": 4, "summary_size": 2}
    for window in (3, "local-m"):
        message = f"window: expected a module .*, got '?{window}'?"
        refused(message, LuongDecoder, **sizes, hidden_size=5, window=window)
    refused("score: expected a module such as DotScore", Attention, score="general")
    refused("normalize: expected a function of scores and mask", Attention, normalize="softmax")
    refused("key_projection: expected a module or None, got 3", Attention, key_projection=3)
