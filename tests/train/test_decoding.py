"""Greedy and beam search against hand values, brute-force enumeration, and each row alone."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mutation import REJECTED, rejects_changes
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course.nn import Decoder, Encoder, EncoderDecoder, LSTMCell
from attn_course.train.decoding import Decoded, beam_search, greedy_decode, length_normaliser

PAD, BOS, EOS = 0, 1, 2
Search = Callable[..., Decoded]


class Model:
    """Logits that depend on the row and on everything said so far, through a nested state."""

    def __init__(self, rows: int, vocab: int = 5, sharpness: float = 2.0) -> None:
        self.vocab, self.size = vocab, 7
        self.start = torch.randn(rows, self.size, dtype=torch.float64)
        self.embedding = torch.randn(vocab, self.size, dtype=torch.float64)
        self.mix = torch.randn(self.size, self.size, dtype=torch.float64)
        self.output = sharpness * torch.randn(self.size, vocab, dtype=torch.float64)

    def init(self) -> Any:
        steps = torch.zeros(len(self.start), dtype=torch.long)
        return (self.start, (steps, self.start.clone()))

    def step(self, token: Tensor, state: Any) -> tuple[Tensor, Any]:
        hidden, (steps, source) = state
        hidden = torch.tanh(hidden @ self.mix + self.embedding[token] + 0.3 * source)
        hidden = hidden * (1 + 0.1 * steps[:, None])
        return hidden @ self.output, (hidden, (steps + 1, source))

    def log_probability(self, row: int, tokens: tuple[int, ...]) -> float:
        state = (self.start[row : row + 1], (torch.zeros(1).long(), self.start[row : row + 1]))
        total, last = 0.0, BOS
        for token in tokens:
            logits, state = self.step(torch.tensor([last]), state)
            total += float(logits[0].log_softmax(-1)[token])
            last = token
        return total


def enumerate_all(
    model: Model, row: int, max_length: int, alpha: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Every hypothesis there is, best first: ended by EOS, or cut off at ``max_length``."""
    others = [token for token in range(model.vocab) if token != EOS]
    found = []
    for length in range(1, max_length + 1):
        for start in itertools.product(others, repeat=length - 1):
            last = range(model.vocab) if length == max_length else (EOS,)
            for token in last:
                tokens = (*start, token)
                score = model.log_probability(row, tokens) / ((5 + length) / 6) ** alpha
                found.append((score, tokens))
    return sorted(found, reverse=True)


def hypotheses(decoded: Decoded, row: int) -> list[tuple[int, ...]]:
    rows = zip(decoded.tokens[row].tolist(), decoded.lengths[row].tolist(), strict=True)
    return [tuple(tokens[:length]) for tokens, length in rows]


def check_beam(search: Search) -> None:
    torch.manual_seed(5)
    for alpha in (0.0, 1.0):
        model = Model(rows=2, vocab=4)
        everything = 1 + 3 + 9 * 4  # 3 tokens other than EOS, at most 3 of them
        decoded = search(
            model.step, model.init(), bos=BOS, eos=EOS, beam_size=everything, max_length=3,
            length_penalty=alpha,
        )  # fmt: skip
        for row in range(2):
            best = enumerate_all(model, row, 3, alpha)
            assert len(best) == everything
            assert hypotheses(decoded, row) == [tokens for _, tokens in best]
            expected = torch.tensor([score for score, _ in best], dtype=torch.float64)
            assert_close(decoded.scores[row], expected, **FLOAT64)
    for k in (1, 2, 3, 5):
        model = Model(rows=5)
        decoded = search(
            model.step, model.init(), bos=BOS, eos=EOS, beam_size=k, max_length=7,
            length_penalty=0.6,
        )  # fmt: skip
        assert decoded.tokens.shape[:2] == (5, k)
        assert (decoded.scores.diff(dim=1) <= 0).all()
        for row in range(5):
            said = hypotheses(decoded, row)
            assert len(set(said)) == k
            ends = [tokens[-1] == EOS for tokens in said]
            assert ends == decoded.finished[row].tolist()
            for place, tokens in enumerate(said):
                assert EOS not in tokens[:-1]
                assert len(tokens) <= 7
                assert ends[place] or len(tokens) == 7
                assert (decoded.tokens[row, place, len(tokens) :] == PAD).all()
                score = model.log_probability(row, tokens) / ((5 + len(tokens)) / 6) ** 0.6
                assert math.isclose(float(decoded.scores[row, place]), score, rel_tol=1e-9)
            assert said == by_the_book(model, row, k, max_length=7, alpha=0.6)
        if k == 1:
            greedy = greedy_decode(model.step, model.init(), bos=BOS, eos=EOS, max_length=7)
            assert torch.equal(decoded.tokens[:, 0], greedy.tokens)


def by_the_book(
    model: Model, row: int, k: int, *, max_length: int, alpha: float
) -> list[tuple[int, ...]]:
    """Beam search on lists, one row, scoring every beginning anew: no tensors, no state."""
    live: list[tuple[int, ...]] = [()]
    finished: list[tuple[int, ...]] = []

    def score(tokens: tuple[int, ...]) -> float:
        return model.log_probability(row, tokens)

    def normalised(tokens: tuple[int, ...]) -> float:
        return score(tokens) / ((5 + len(tokens)) / 6) ** alpha

    for _ in range(max_length):
        grown = [(*tokens, token) for tokens in live for token in range(model.vocab)]
        grown.sort(key=score, reverse=True)
        finished += [tokens for tokens in grown[:k] if tokens[-1] == EOS]
        finished = sorted(finished, key=normalised, reverse=True)[:k]
        live = [tokens for tokens in grown if tokens[-1] != EOS][:k]
        if len(finished) == k:
            return finished
    return sorted(finished + live, key=normalised, reverse=True)[:k]


def test_beam_search_agrees_with_every_oracle() -> None:
    check_beam(beam_search)


test_beam_oracles_reject_a_changed_line = rejects_changes(
    check_beam, "attn_course.train.decoding.beam_search",
    ("state = _select(state, flat)", "pass"),
    ("(rows * k + parents[rows, chosen])", "(parents[rows, chosen])"),
    ("live_scores[:, 0] = 0.0", "live_scores[:] = 0.0"),
    ("live_scores.unsqueeze(-1) +", "0.0 *"),
    ("scores.masked_fill(ended, -torch.inf), k", "scores, k"),
    ("enters = ended & open_rows & ", "enters = ended & "),
    ("(torch.arange(width, device=device) < k)", "True"),
    ("width = min(2 * k, k * vocab)", "width = k"),
    ("parents, token = places // vocab", "parents, token = places * 0"),
    ("tokens = live_tokens[rows, parents]", "tokens = live_tokens[rows, parents * 0]"),
    ("(5.0 + length.double()) / 6.0", "length.double()"),
    ("found.scores / length_normaliser(found.lengths, length_penalty)", "found.scores"),
    ("torch.cat([done.scores, normalised], dim=1), done", "normalised, done"),
    ("enters = open_rows.expand(batch, k)", "enters = open_rows.expand(batch, k) & False"),
    ("if bool(done.finished.all()):", "if bool(done.finished.any()):"),
    ("live_tokens, last = tokens[", "live_tokens, _ = tokens["),
    ("possible & found.finished", "possible & True"),
    error=(*REJECTED, ValueError),
)  # fmt: skip


# step -> log-probabilities of PAD BOS EOS a b: the greedy start "a" leads into a poor ending
GARDEN_PATH = {
    (): [0.0, 0.0, 0.0, 0.6, 0.4],
    (3,): [0.0, 0.0, 0.4, 0.3, 0.3],
    (4,): [0.0, 0.0, 0.9, 0.05, 0.05],
}


def table_step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """State: the ids said so far, newest last, -1 for none."""
    said = torch.where(token[:, None] == BOS, state, torch.cat([state[:, 1:], token[:, None]], 1))
    rows = []
    for row in said.tolist():
        key = tuple(token for token in row if token >= 0)
        rows.append(GARDEN_PATH.get(key, [0.0, 0.0, 1.0, 0.0, 0.0]))
    return torch.tensor(rows, dtype=torch.float64).log(), said


def test_by_hand_greedy_takes_the_garden_path_and_a_beam_of_two_does_not() -> None:
    start = torch.full((1, 5), -1)
    greedy = greedy_decode(table_step, start, bos=BOS, eos=EOS, max_length=5)
    assert greedy.tokens.tolist() == [[3, EOS]]
    assert math.isclose(float(greedy.scores[0]), math.log(0.6 * 0.4))
    beam = beam_search(table_step, start, bos=BOS, eos=EOS, beam_size=2, max_length=5)
    assert beam.tokens[0, 0].tolist()[:2] == [4, EOS]
    assert math.isclose(float(beam.scores[0, 0]), math.log(0.4 * 0.9))
    assert beam.tokens[0, 1].tolist()[:2] == [3, EOS]


def test_by_hand_the_length_penalty_lets_a_longer_one_win() -> None:
    start = torch.full((1, 5), -1)
    names = {0.0: [3, EOS], 3.0: [3, 3, EOS]}
    table = {(): [0, 0, 0, 1.0, 0], (3,): [0, 0, 0.55, 0.45, 0], (3, 3): [0, 0, 1.0, 0, 0]}

    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        _, said = table_step(token, state)
        keys = [tuple(t for t in row if t >= 0) for row in said.tolist()]
        return torch.tensor([table.get(k, [0, 0, 1.0, 0, 0]) for k in keys]).double().log(), said

    options = {"bos": BOS, "eos": EOS, "beam_size": 2, "max_length": 3}
    for alpha, tokens in names.items():
        beam = beam_search(step, start, **options, length_penalty=alpha)
        assert hypotheses(beam, 0)[0] == tuple(tokens)
    assert_close(length_normaliser(torch.tensor([1, 7]), 2.0), torch.tensor([1.0, 4.0]).double())


@given(number=st.integers(0, 10_000), max_length=st.integers(1, 9), vocab=st.integers(3, 7))
@settings(max_examples=25, deadline=None)
def test_a_beam_of_one_is_greedy(number: int, max_length: int, vocab: int) -> None:
    torch.manual_seed(number)
    model = Model(rows=3, vocab=vocab, sharpness=0.7)
    rules = {"bos": BOS, "eos": EOS, "max_length": max_length}
    greedy = greedy_decode(model.step, model.init(), **rules)
    for alpha in (0.0, 1.3):
        beam = beam_search(model.step, model.init(), **rules, beam_size=1, length_penalty=alpha)
        assert torch.equal(beam.tokens[:, 0], greedy.tokens)
        assert torch.equal(beam.lengths[:, 0], greedy.lengths)
        assert torch.equal(beam.finished[:, 0], greedy.finished)
        norm = length_normaliser(greedy.lengths, alpha)
        assert_close(beam.scores[:, 0] * norm, greedy.scores, **FLOAT64)


@given(number=st.integers(0, 10_000), k=st.integers(1, 6))
@settings(max_examples=15, deadline=None)
def test_a_row_of_a_batch_is_decoded_as_if_alone(number: int, k: int) -> None:
    torch.manual_seed(number)
    model = Model(rows=4)
    rules = {"bos": BOS, "eos": EOS, "beam_size": k, "max_length": 6, "length_penalty": 0.9}
    together = beam_search(model.step, model.init(), **rules)
    rows = model.start
    for row in range(4):
        model.start = rows[row : row + 1]
        alone = beam_search(model.step, model.init(), **rules)
        assert hypotheses(alone, 0) == hypotheses(together, row)
        assert_close(alone.scores[0], together.scores[row], **FLOAT64)


def test_greedy_takes_the_most_probable_token_and_stops_at_eos() -> None:
    torch.manual_seed(2)
    model = Model(rows=11)
    decoded = greedy_decode(model.step, model.init(), bos=BOS, eos=EOS, max_length=8)
    assert 0 < int(decoded.finished.sum()) < 11
    for row in range(11):
        tokens = tuple(decoded.tokens[row, : decoded.lengths[row]].tolist())
        for t in range(len(tokens)):
            scores = [model.log_probability(row, (*tokens[:t], v)) for v in range(model.vocab)]
            assert tokens[t] == max(range(model.vocab), key=scores.__getitem__)
        assert EOS not in tokens[:-1]
        assert (tokens[-1] == EOS) == bool(decoded.finished[row])
        assert (decoded.tokens[row, len(tokens) :] == PAD).all()
        assert math.isclose(float(decoded.scores[row]), model.log_probability(row, tokens))


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_ties_go_to_the_lowest_token_as_in_argmax(k: int) -> None:
    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(token), 11), state

    rules = {"bos": BOS, "eos": EOS, "max_length": 3}
    greedy = greedy_decode(step, torch.zeros(2, 1), **rules)
    assert greedy.tokens.tolist() == [[0, 0, 0]] * 2
    beam = beam_search(step, torch.zeros(2, 1), beam_size=k, **rules)
    assert torch.equal(beam.tokens[0], beam.tokens[1])
    if k == 1:
        assert torch.equal(beam.tokens[:, 0], greedy.tokens)


def test_fewer_hypotheses_than_beams_are_marked_impossible() -> None:
    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tensor([[0.0, 0.0, 1.0, 1.0]]).log().expand(len(token), -1), state

    beam = beam_search(step, torch.zeros(1, 1), bos=BOS, eos=EOS, beam_size=5, max_length=2)
    assert hypotheses(beam, 0) == [(EOS,), (3, EOS), (3, 3), (), ()]
    assert_close(beam.scores[0].exp(), torch.tensor([0.5, 0.25, 0.25, 0, 0]).double())
    assert beam.finished[0].tolist() == [True, True, False, False, False]


def test_a_real_model_decodes_and_scores_what_teacher_forcing_scores() -> None:
    model = EncoderDecoder(
        encoder=Encoder(vocab_size=9, embed_dim=3, hidden_size=5, cell=LSTMCell),
        decoder=Decoder(vocab_size=7, embed_dim=3, context_size=5, hidden_size=6, cell=LSTMCell),
    ).double()
    source, lengths = torch.randint(3, 9, (4, 6)), torch.tensor([6, 1, 3, 5])
    options = {"bos": BOS, "eos": EOS, "beam_size": 3, "max_length": 5}
    beam = beam_search(model.step, model.init_state(source, lengths), **options)
    assert not beam.scores.requires_grad
    best = beam.tokens[:, 0]
    target_in = torch.cat([torch.full((4, 1), BOS), best[:, :-1]], dim=1)
    logs = model(source, lengths, target_in).log_softmax(-1).gather(2, best[..., None])[..., 0]
    counts = torch.arange(best.shape[1]) < beam.lengths[:, :1]
    assert_close(beam.scores[:, 0], (logs * counts).sum(1).detach(), **FLOAT64)


def test_bad_arguments_are_refused() -> None:
    model = Model(rows=2)
    for message, search, state, options in (
        ("max_length: expected at least 1, got 0", greedy_decode, model.init(), {"max_length": 0}),
        ("beam_size: expected at least 1, got 0", beam_search, model.init(), {"beam_size": 0}),
        ("state: expected a tensor or a nested tuple", greedy_decode, {"hidden": 1}, {}),
    ):
        refused(message, search, model.step, state, bos=BOS, eos=EOS, **{"max_length": 3} | options)


@pytest.mark.parametrize("search", [greedy_decode, beam_search])
@pytest.mark.parametrize(("logits", "eos", "message"), [
    (torch.zeros(1, 5), 5, "eos: expected an id from 0 to 4, got 5"),
    (torch.zeros(1, 5), -1, "eos: expected an id from 0 to 4, got -1"),
    (torch.zeros(1, 1, 5), 2, r"step: expected logits of shape \(\d, V\), got \(\d, 1, 5\)"),
    (torch.tensor([[0.0, math.nan, 0.0]]), 2, "step: expected logits that give probabilities"),
    (torch.full((1, 3), -math.inf), 2, "step: expected logits that give probabilities"),
])  # fmt: skip
def test_logits_that_cannot_be_searched_are_refused(search, logits, eos, message):
    options = {"beam_size": 3} if search is beam_search else {}

    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return logits.expand(len(token), *logits.shape[1:]), state

    refused(message, search, step, torch.zeros(2, 1), bos=1, eos=eos, max_length=4, **options)


def test_greedy_ignores_what_the_model_says_of_a_row_that_has_ended() -> None:
    # row 0 ends at once, and from then on its logits are NaN; row 1 goes on
    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.tensor([[0.0, 0.0, 50.0], [50.0, 0.0, 0.0]])[state[:, 0]]
        ended = (state[:, 0] == 0) & (state[:, 1] > 0)
        return logits.masked_fill(ended[:, None], math.nan), state + torch.tensor([0, 1])

    decoded = greedy_decode(step, torch.tensor([[0, 0], [1, 0]]), bos=1, eos=2, max_length=3)
    assert decoded.lengths.tolist() == [1, 3]
    assert decoded.scores.isfinite().all()


def test_other_states_and_penalties_are_refused() -> None:
    options = {"bos": BOS, "eos": EOS, "beam_size": 2, "max_length": 3}
    two, search = torch.zeros(2, 1), partial(beam_search, table_step, **options)
    refused(r"one batch size on axis 0, got \[2, 3\]", search, (two, torch.zeros(3, 1)))
    refused("state: expected the batch on axis 0", search, torch.tensor(0.0))
    message = "length_penalty: expected a finite number, got nan"
    refused(message, search, two, length_penalty=math.nan)


def test_an_empty_batch_decodes_to_nothing() -> None:
    def step(token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(token), 5), state

    decoded = beam_search(step, torch.zeros(0, 1), bos=1, eos=2, beam_size=3, max_length=4)
    assert decoded.tokens.shape[:2] == decoded.scores.shape == (0, 3)
