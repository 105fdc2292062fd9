"""The encoder-decoder: padding decides nothing, no position looks ahead, one context for all."""

from functools import partial
from typing import Any

import pytest
import torch
from mutation import mutant
from oracles import same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course.nn import Decoder, Encoder, EncoderDecoder, GRUCell, LSTMCell, RNNCell
from attn_course.nn.recurrent import hidden_of

MODULE = "attn_course.nn.seq2seq"
SOURCE_VOCAB, VOCAB, E_SOURCE, E_TARGET, C, H = 13, 11, 3, 5, 7, 6
LENGTHS = [4, 9, 1, 6]
CELLS = [GRUCell, LSTMCell, RNNCell]


def build(cell: Any = GRUCell, reverse: bool = False, module: Any = None) -> EncoderDecoder:
    encoder, decoder, model = module or (Encoder, Decoder, EncoderDecoder)
    return model(
        encoder=encoder(
            vocab_size=SOURCE_VOCAB, embed_dim=E_SOURCE, hidden_size=C, cell=cell, reverse=reverse
        ),
        decoder=decoder(
            vocab_size=VOCAB, embed_dim=E_TARGET, context_size=C, hidden_size=H, cell=cell
        ),
    ).double()


def batch() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.randint(0, SOURCE_VOCAB, (len(LENGTHS), max(LENGTHS)))
    return source, torch.tensor(LENGTHS), torch.randint(0, VOCAB, (len(LENGTHS), 5))


def check_padding(model: EncoderDecoder) -> None:
    """Another padding, and no padding at all, give the same logits, state and gradients."""
    source, lengths, target_in = batch()
    logits = model(source, lengths, target_in)
    other = source.clone()
    for row, length in enumerate(LENGTHS):
        other[row, length:] = (other[row, length:] + 1) % SOURCE_VOCAB
    other = F.pad(other, (0, 3), value=2)
    rows = list(enumerate(LENGTHS))
    alone = [model(source[[row], :length], None, target_in[[row]]) for row, length in rows]
    for again in (model(other, lengths, target_in), torch.cat(alone)):
        assert_close(again, logits, **FLOAT64)
        same_gradients(again, logits, [*model.parameters()], **FLOAT64)
    hiddens, context = model.encoder(source, lengths)
    for row, length in enumerate(LENGTHS):
        end = 0 if model.encoder.recurrent.reverse else length - 1
        assert_close(context[row], hiddens[row, end], **FLOAT64)
        assert (hiddens[row, length:] == 0).all()


def by_formula(model: EncoderDecoder, context: Tensor, target_in: Tensor) -> Tensor:
    """The decoder's formula, word by word."""
    decoder = model.decoder
    hidden = torch.tanh(context @ decoder.initial.weight.T + decoder.initial.bias)
    cell = decoder.recurrent.cell
    state = (hidden, torch.zeros_like(hidden)) if isinstance(cell, LSTMCell) else hidden
    logits = []
    for token in target_in.T:
        word = decoder.embedding.weight[token]
        state = cell(torch.cat([word, context], dim=-1), state)
        joined = torch.cat([hidden_of(state), word, context], dim=-1)
        logits.append(joined @ decoder.output.weight.T + decoder.output.bias)
    return torch.stack(logits, dim=1)


def check_decoding(model: EncoderDecoder) -> None:
    """Teacher forcing equals the formula and equals step by step, and never looks ahead."""
    source, lengths, target_in = batch()
    logits = model(source, lengths, target_in)
    _, context = model.encoder(source, lengths)
    want = by_formula(model, context, target_in)
    assert_close(logits, want, **FLOAT64)
    same_gradients(logits, want, [*model.parameters()], **FLOAT64)
    state = model.init_state(source, lengths)
    for t in range(target_in.shape[1]):
        step, state = model.step(target_in[:, t], state)
        assert_close(step, logits[:, t], **FLOAT64)
    for t in range(target_in.shape[1]):
        changed = target_in.clone()
        changed[:, t] = (changed[:, t] + 1) % VOCAB
        after = model(source, lengths, changed)
        assert_close(after[:, :t], logits[:, :t], rtol=0, atol=0)
        assert (after[:, t:] != logits[:, t:]).any(dim=-1).all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_padding_of_the_source_changes_nothing(cell: Any, reverse: bool) -> None:
    check_padding(build(cell, reverse))


@pytest.mark.parametrize("cell", CELLS)
def test_teacher_forcing_is_the_formula_and_is_decoding_step_by_step(cell: Any) -> None:
    check_decoding(build(cell))


@pytest.mark.parametrize(
    ("check", "old", "new"),
    [
        (check_padding, "lengths=source_lengths)", "lengths=None)"),
        (check_padding, "return outputs, hidden_of(state)", "return outputs, outputs[:, -1]"),
        (check_padding, "return outputs, hidden_of(state)", "return outputs, outputs.mean(dim=1)"),
        (check_padding, "return outputs, hidden_of(state)", "return outputs, hidden_of(state[1])"),
        (check_decoding, "torch.tanh(self.initial(context))", "self.initial(context)"),
        (
            check_decoding,
            "torch.tanh(self.initial(context))",
            "torch.zeros_like(self.initial(context))",
        ),
        (
            check_decoding,
            "torch.cat([words, contexts], dim=-1)",
            "torch.cat([words, 0 * contexts], dim=-1)",
        ),
        (
            check_decoding,
            "torch.cat([hiddens, words, contexts",
            "torch.cat([hiddens, words.roll(-1, 1), contexts",
        ),
        (
            check_decoding,
            "words = self.embedding(target_in)",
            "words = self.embedding(target_in.roll(1, 1))",
        ),
        (check_decoding, "return logits, (context, after)", "return logits, (context, before)"),
        (check_decoding, "state_from(self.recurrent.cell, hidden)", "(hidden, hidden)"),
    ],
)
def test_oracles_reject_a_changed_line(check: Any, old: str, new: str) -> None:
    names = ("Encoder", "Decoder", "EncoderDecoder")
    model = build(LSTMCell, module=[mutant(MODULE, name, old, new) for name in names])
    with pytest.raises(AssertionError):
        check(model)


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_refused() -> None:
    encoder = partial(Encoder, vocab_size=5, embed_dim=2, hidden_size=3)
    decoder = partial(Decoder, vocab_size=7, embed_dim=2, context_size=3, hidden_size=3)
    model, ids = EncoderDecoder(encoder=encoder(), decoder=decoder()), torch.ones(2, 3).long()
    state, start = model.init_state(ids), model.decoder.init_state
    refused("source: expected ids from 0 to 4, got 5 to 5", model, 5 * ids, None, ids)
    refused("target_in: expected ids from 0 to 6, got -1 to -1", model, ids, None, -ids)
    refused(r"source: expected integers, got torch\.float32", model.encoder, ids.float())
    refused(r"source: expected axes \(B S\), got shape \(3,\)", model.encoder, ids[0])
    refused(r"target_in: expected size 2 on axis 0, got shape \(1", model.decoder, ids[:1], state)
    refused(r"token: expected axes \(B\), got shape \(2, 3\)", model.step, ids, state)
    refused(r"context: expected size 3 on axis -1, got shape \(2, 4", start, torch.zeros(2, 4))
    refused("vocab_size: expected at least 1, got 0", encoder, vocab_size=0)
    refused("context_size: expected at least 1, got 0", decoder, context_size=0)
