"""The encoder-decoder: padding decides nothing, no position looks ahead, one context for all."""

from typing import Any

import pytest
import torch
from mutation import mutant
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


def gradients(model: EncoderDecoder, logits: Tensor) -> list[Tensor]:
    weight = torch.linspace(-1, 1, logits.numel(), dtype=torch.float64).view_as(logits)
    return list(
        torch.autograd.grad((logits * weight).sum(), [*model.parameters()], retain_graph=True)
    )


def check_padding(model: EncoderDecoder) -> None:
    """Another padding, and no padding at all, give the same logits, state and gradients."""
    source, lengths, target_in = batch()
    logits = model(source, lengths, target_in)
    grads = gradients(model, logits)
    other = source.clone()
    for row, length in enumerate(LENGTHS):
        other[row, length:] = (other[row, length:] + 1) % SOURCE_VOCAB
    other = F.pad(other, (0, 3), value=2)
    assert_close(model(other, lengths, target_in), logits, **FLOAT64)
    assert_close(gradients(model, model(other, lengths, target_in)), grads, **FLOAT64)
    rows = list(enumerate(LENGTHS))
    alone = [model(source[[row], :length], None, target_in[[row]]) for row, length in rows]
    alone = torch.cat(alone)
    assert_close(alone, logits, **FLOAT64)
    assert_close(gradients(model, alone), grads, **FLOAT64)
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
    assert_close(gradients(model, logits), gradients(model, want), **FLOAT64)
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


def build_mutant(old: str, new: str) -> EncoderDecoder:
    names = ("Encoder", "Decoder", "EncoderDecoder")
    return build(LSTMCell, module=[mutant(MODULE, name, old, new) for name in names])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lengths=source_lengths)", "lengths=None)"),
        ("return outputs, hidden_of(state)", "return outputs, outputs[:, -1]"),
        ("return outputs, hidden_of(state)", "return outputs, outputs.mean(dim=1)"),
        ("return outputs, hidden_of(state)", "return outputs, hidden_of(state[1])"),
    ],
)
def test_padding_oracle_rejects_a_changed_line(old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        check_padding(build_mutant(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.tanh(self.initial(context))", "self.initial(context)"),
        ("torch.tanh(self.initial(context))", "torch.zeros_like(self.initial(context))"),
        ("torch.cat([words, contexts], dim=-1)", "torch.cat([words, 0 * contexts], dim=-1)"),
        ("torch.cat([hiddens, words, contexts", "torch.cat([hiddens, words.roll(-1, 1), contexts"),
        ("words = self.embedding(target_in)", "words = self.embedding(target_in.roll(1, 1))"),
        ("return logits, (context, after)", "return logits, (context, before)"),
        ("state_from(self.recurrent.cell, hidden)", "(hidden, hidden)"),
    ],
)
def test_decoding_oracle_rejects_a_changed_line(old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        check_decoding(build_mutant(old, new))


def test_bad_arguments_are_refused() -> None:
    model = EncoderDecoder(
        encoder=Encoder(vocab_size=5, embed_dim=2, hidden_size=3),
        decoder=Decoder(vocab_size=7, embed_dim=2, context_size=3, hidden_size=3),
    )
    ids, step = torch.ones(2, 3, dtype=torch.long), EncoderDecoder.step.__wrapped__
    encode = Encoder.forward.__wrapped__.__wrapped__
    decode = Decoder.forward.__wrapped__.__wrapped__
    refused("source: expected ids from 0 to 4, got 5 to 5", model, 5 * ids, None, ids)
    refused("target_in: expected ids from 0 to 6, got -1 to -1", model, ids, None, -ids)
    refused(r"source: expected integers, got torch\.float32", encode, model.encoder, ids.float())
    refused(r"source: expected axes \(B S\), got shape \(3,\)", encode, model.encoder, ids[0])
    with pytest.raises(ValueError, match=r"target_in: expected size 2 on axis 0, got shape \(1, 3"):
        decode(model.decoder, ids[:1], model.init_state(ids))
    with pytest.raises(ValueError, match=r"token: expected axes \(B\), got shape \(2, 3\)"):
        step(model, ids, model.init_state(ids))
    with pytest.raises(ValueError, match=r"context: expected size 3 on axis -1, got shape \(2, 4"):
        model.decoder.init_state(torch.zeros(2, 4))
    with pytest.raises(ValueError, match="vocab_size: expected at least 1, got 0"):
        Encoder(vocab_size=0, embed_dim=2, hidden_size=3)
    with pytest.raises(ValueError, match="context_size: expected at least 1, got 0"):
        Decoder(vocab_size=5, embed_dim=2, context_size=0, hidden_size=3)
