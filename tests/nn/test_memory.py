"""Memory network: the formula sentence by sentence, padding, tying, and a memory never written."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from layers import drawn
from mutation import REJECTED, rejects_changes
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import reference
from attn_course.nn import MemoryNetwork

MODULE = "attn_course.nn.memory"
V, D, AGES, B, N, J, JQ = 11, 3, 7, 2, 5, 4, 3
TYINGS = ["adjacent", "layer-wise", "untied"]


def build(kind: Any = MemoryNetwork, **options: Any) -> Any:
    options = {"hops": 2, "vocab_size": V, "embed_dim": D, "max_sentences": AGES} | options
    torch.manual_seed(5)
    return drawn(kind(**options), std=0.7)


def batch() -> tuple[Tensor, Tensor]:
    """Padding at the end of sentences, of questions and of a story, an empty sentence within."""
    story, question = torch.randint(1, V, (B, N, J)), torch.randint(1, V, (B, JQ))
    story[0, 1, 2:], story[0, 3, 1:], story[0, 4], question[0, 2] = 0, 0, 0, 0
    story[1, 2] = 0
    return story, question


def parameters_by_paper(model: Any) -> dict[str, list[np.ndarray]]:
    """A, C, T_A, T_C for each hop, B, W, H, from the tying rules of the paper."""
    words, ages = ([t.weight.detach().numpy() for t in ts] for ts in (model.words, model.ages))
    hops = range(model.hops)
    places = {
        "adjacent": (list(hops), [k + 1 for k in hops]),
        "layer-wise": ([0 for _ in hops], [1 for _ in hops]),
        "untied": ([2 * k for k in hops], [2 * k + 1 for k in hops]),
    }[model.tying]
    found = {"A": [words[i] for i in places[0]], "C": [words[i] for i in places[1]]}
    if ages:
        found |= {"TA": [ages[i] for i in places[0]], "TC": [ages[i] for i in places[1]]}
    if model.tying == "adjacent":
        found |= {"B": [found["A"][0]], "W": [found["C"][-1]]}
    else:
        own = {"B": model.question, "W": model.answer}
        found |= {name: [table.weight.detach().numpy()] for name, table in own.items()}
    if model.tying == "layer-wise":
        found["H"] = [model.update.weight.detach().numpy()]
    return found


def vector(table: np.ndarray, ids: list[int], positions: bool = True) -> np.ndarray:
    """A sentence's vector, of its words alone."""
    rows = table[[i for i in ids if i]]
    if not len(rows):
        return np.zeros(D)
    scale = reference.position_encoding(*rows.shape) if positions else np.ones(rows.shape)
    return (scale * rows).sum(axis=0)


def by_formula(
    p: dict[str, list[np.ndarray]],
    story: Tensor,
    question: Tensor,
    *,
    positions: bool,
    linear: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Equations 1 to 4 with the encodings of section 4.1, one story at a time."""
    logits, looked = [], []
    for sentences, asked in zip(story.tolist(), question.tolist(), strict=True):
        real = [ids for ids in sentences if any(ids)]
        ages = range(len(real) - 1, -1, -1)
        u, weights = vector(p["B"][0], asked, positions), []
        for k in range(len(p["A"])):
            m = np.array([vector(p["A"][k], ids, positions) for ids in real])
            c = np.array([vector(p["C"][k], ids, positions) for ids in real])
            if "TA" in p:
                m, c = m + p["TA"][k][list(ages)], c + p["TC"][k][list(ages)]
            scores = m @ u
            q = scores if linear else reference.softmax(scores)
            u = (p["H"][0] @ u if "H" in p else u) + q @ c
            row = np.zeros(len(sentences))
            row[[i for i, ids in enumerate(sentences) if any(ids)]] = q
            weights.append(row)
        logits.append(p["W"][0] @ u)
        looked.append(weights)
    return np.array(logits), np.array(looked)


def check_formula(kind: Any = MemoryNetwork) -> None:
    """Values and gradients of every parameter, for each tying, phase and encoding."""
    story, question = batch()
    settings_ = [
        {"tying": tying, "linear_start": linear} for tying in TYINGS for linear in (False, True)
    ]
    settings_ += [{"position_encoding": False}, {"temporal_encoding": False}, {"hops": 1}]
    for options in settings_:
        model = build(kind, **options)
        positions = options.get("position_encoding", True)
        flags = {"positions": positions, "linear": options.get("linear_start", False)}
        logits, weights = model.read(story, question)
        paper = parameters_by_paper(model)
        expected = by_formula(paper, story, question, **flags)
        assert_close(logits.detach(), torch.from_numpy(expected[0]), **FLOAT64)
        assert_close(weights.detach(), torch.from_numpy(expected[1]), **FLOAT64)
        assert_close(model(story, question), logits, rtol=0, atol=0)
        mix_l = torch.randn(logits.shape, dtype=torch.float64)
        mix_w = torch.randn(weights.shape, dtype=torch.float64)
        grads = torch.autograd.grad(
            (logits * mix_l).sum() + (weights * mix_w).sum(), list(model.parameters())
        )
        for parameter, grad in zip(model.parameters(), grads, strict=True):
            # along one random direction: a central difference of the formula
            direction = torch.randn_like(parameter)
            totals = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    parameter += step * direction
                    out = by_formula(parameters_by_paper(model), story, question, **flags)
                    parameter -= step * direction
                totals.append((out[0] * mix_l.numpy()).sum() + (out[1] * mix_w.numpy()).sum())
            slope = torch.tensor((totals[0] - totals[1]) / 2e-5)
            assert_close((grad * direction).sum(), slope, rtol=1e-6, atol=1e-7)


def test_network_is_the_formula_of_the_paper_forward_and_in_its_gradients() -> None:
    check_formula()


test_formula_rejects_a_changed_line = rejects_changes(
    check_formula,
    f"{MODULE}.MemoryNetwork",
    ("return hop, hop + 1", "return hop, hop"),
    ("return hop, hop + 1", "return 0, hop + 1"),
    ("(2 * hop, 2 * hop + 1)", "(2 * hop + 1, 2 * hop)"),
    ("return (0, 1) if", "return (0, 0) if"),
    ("self.words[0] if self.question is None", "self.words[1] if self.question is None"),
    ("= self.words[-1].weight", "= self.words[0].weight"),
    ("(query if self.update is None else self.update(query)) + output", "query + output"),
    ("else self.update(query)) + output", "else self.update(query + output))"),
    (
        "(query if self.update is None else self.update(query)) + output",
        "(output if self.update is None else self.update(query) + output)",
    ),
    ("linear=self.linear", "linear=False"),
    ("memory_out, mask, linear", "memory_out, None, linear"),
    ("self.ages[table](ages.clamp(min=0))", "self.ages[0](ages.clamp(min=0))"),
    ("sentence_ages(there)", "sentence_ages(there).flip(-1)"),
    ("question != 0, positions=self.positions", "question != 0, positions=False"),
    ("question != 0, positions", "question >= 0, positions"),
    ("word_mask = story != 0", "word_mask = story >= 0"),
    error=(*REJECTED, IndexError),
)


def roles(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Every matrix by its name in the paper; tied ones come more than once."""
    for hop in range(model.hops):
        into, out = model.tables_of(hop)
        yield f"A{hop}", model.words[into].weight
        yield f"C{hop}", model.words[out].weight
        yield f"TA{hop}", model.ages[into].weight
        yield f"TC{hop}", model.ages[out].weight
    yield "B", model.words[0].weight if model.question is None else model.question.weight
    yield "W", model.words[-1].weight if model.answer is None else model.answer.weight


@pytest.mark.parametrize("tying", ["adjacent", "layer-wise"])
def test_a_tied_matrix_is_one_parameter_whose_gradient_is_the_sum_over_its_roles(
    tying: str,
) -> None:
    tied, free = build(tying=tying, hops=3), build(tying="untied", hops=3)
    if tying == "layer-wise":
        torch.nn.init.eye_(tied.update.weight)  # the untied network has no H
    with torch.no_grad():
        for (name, ours), (same, theirs) in zip(roles(tied), roles(free), strict=True):
            assert name == same
            theirs.copy_(ours)
    story, question = batch()
    assert_close(tied(story, question), free(story, question), **FLOAT64)
    mix = torch.randn(B, V, dtype=torch.float64)
    (tied(story, question) * mix).sum().backward()
    (free(story, question) * mix).sum().backward()
    summed: dict[int, Tensor] = {}
    for (_, ours), (_, theirs) in zip(roles(tied), roles(free), strict=True):
        summed[id(ours)] = summed.get(id(ours), torch.zeros_like(ours)) + theirs.grad
    for _, ours in roles(tied):
        assert_close(ours.grad, summed[id(ours)], **FLOAT64)
    assert len(summed) == {"adjacent": 8, "layer-wise": 6}[tying]


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_parameter_counts(hops: int) -> None:
    def count(tying: str, **options: Any) -> int:
        return sum(p.numel() for p in build(tying=tying, hops=hops, **options).parameters())

    assert count("adjacent") == (hops + 1) * (V + AGES) * D
    assert count("layer-wise") == 2 * (V + AGES) * D + 2 * V * D + D * D
    assert count("untied") == 2 * hops * (V + AGES) * D + 2 * V * D
    assert count("adjacent", temporal_encoding=False) == (hops + 1) * V * D


def test_weights_start_small_as_in_the_paper() -> None:
    torch.manual_seed(0)
    model = MemoryNetwork(vocab_size=503, embed_dim=31, max_sentences=11, tying="layer-wise")
    for parameter in model.parameters():
        bound = 5 * 0.1 / parameter.numel() ** 0.5
        assert abs(parameter.mean()) < bound
        assert parameter.std().item() == pytest.approx(0.1, abs=bound)


def test_the_memory_is_read_and_never_written() -> None:
    model = build(hops=3)
    story, question = batch()
    written: list[Tensor] = []

    def spy(story: Tensor, table: int, sentence_mask: Tensor) -> Tensor:
        written.append(MemoryNetwork.memory(model, story, table, sentence_mask))
        return written[-1]

    model.memory = spy
    model.read(story, question)
    first = [m.detach().clone() for m in written]
    assert len(first) == model.hops + 1  # each table is applied once, before anything is asked
    written.clear()
    model.read(story, torch.randint(1, V, (B, JQ)))
    assert all(torch.equal(a, b) for a, b in zip(first, written, strict=True))


def test_linear_start_is_a_switch_that_a_checkpoint_remembers() -> None:
    story, question = batch()
    model, plain = build(linear_start=True), build()
    assert (model(story, question) - plain(story, question)).abs().max() > 1e-3
    assert model.read(story, question)[1].sum(-1).sub(1).abs().min() > 1e-6
    other = build()
    other.load_state_dict(model.state_dict())
    assert other.linear is True
    assert torch.equal(other(story, question), model(story, question))
    model.linear = False
    assert torch.equal(model(story, question), plain(story, question))
    other.load_state_dict(model.state_dict())
    assert other.linear is False


def noise_by_hand(model: Any, story: Tensor, chance: Tensor) -> list[list[list[int]]]:
    """The memories of each story: its sentences, and empty ones where a low chance allows them."""
    memories = []
    for sentences, chances in zip(story.tolist(), chance.tolist(), strict=True):
        real = [i for i, ids in enumerate(sentences) if any(ids)]
        room = model.max_sentences - len(real)
        lowest = sorted(real, key=lambda i: chances[i])[: max(room, 0)]
        row = []
        for i in real:
            row.append(sentences[i])
            if i in lowest and chances[i] < model.random_noise:
                row.append([])
        memories.append(row)
    return memories


def check_noise(kind: Any, tying: str, rate: float, max_sentences: int) -> None:
    """A training step with random noise is the formula over the memories that noise makes."""
    model = build(kind, tying=tying, random_noise=rate, max_sentences=max_sentences).train()
    story, question = batch()
    chance = torch.rand(B, N, generator=torch.Generator().manual_seed(3))
    logits, weights = model.read(story, question, torch.Generator().manual_seed(3))
    p = parameters_by_paper(model)

    for row, memories in enumerate(noise_by_hand(model, story, chance)):
        ages = list(range(len(memories) - 1, -1, -1))
        stacks = [
            [
                np.stack([vector(t, m) for m in memories]) + a[ages]
                for t, a in zip(*pair, strict=True)
            ]
            for pair in ((p["A"], p["TA"]), (p["C"], p["TC"]))
        ]
        update = p["H"][0] if "H" in p else None
        asked = vector(p["B"][0], question[row].tolist())
        u, looked = reference.memory_network(asked, *stacks, update=update)
        assert_close(logits[row].detach(), torch.from_numpy(p["W"][0] @ u), **FLOAT64)
        told = [i for i, m in enumerate(memories) if m]
        real = [i for i, ids in enumerate(story[row].tolist()) if any(ids)]
        assert_close(weights[row, :, real].detach(), torch.from_numpy(looked[:, told]), **FLOAT64)


@pytest.mark.parametrize("tying", TYINGS)
@pytest.mark.parametrize(("rate", "longest"), [(0.5, 2 * N), (1.0, 2 * N), (0.9, N), (0.9, N + 1)])
def test_random_noise_is_empty_memories_with_ages(tying: str, rate: float, longest: int) -> None:
    check_noise(MemoryNetwork, tying, rate, longest)


def check_noises(kind: Any) -> None:
    for rate, longest in ((0.5, 2 * N), (0.9, N)):
        check_noise(kind, "adjacent", rate, longest)


test_noise_oracle_rejects_a_changed_line = rejects_changes(
    check_noises,
    f"{MODULE}.MemoryNetwork",
    ("self.memory(story, table, mask)", "self.memory(story, table)"),
    ("chance < self.random_noise", "chance > self.random_noise"),
    ("torch.stack([mask, drawn], dim=2)", "torch.stack([drawn, mask], dim=2)"),
    ("weights[:, ::step]", "weights[:, : weights.shape[1] // step]"),
    ("chance.masked_fill(~mask, 1.0)", "chance"),
    (".argsort(-1).argsort(-1) < room", ".argsort(-1).argsort(-1) <= room"),
    error=(*REJECTED, IndexError),
)


def test_random_noise_is_off_by_default_and_outside_of_training() -> None:
    story, question = batch()
    plain, noisy = build(), build(random_noise=1.0)
    assert plain.random_noise == 0
    assert plain.train()(story, question).equal(plain.eval()(story, question))
    before = torch.get_rng_state()
    assert noisy.eval()(story, question).equal(plain(story, question))
    assert torch.get_rng_state().equal(before)
    assert not torch.allclose(noisy.train()(story, question), plain(story, question))


def test_random_noise_repeats_with_its_generator() -> None:
    model = build(random_noise=0.4, max_sentences=40).train()
    story, question = batch()
    generators = [torch.Generator().manual_seed(s) for s in (7, 7, 8)]
    first, second, _ = (model.read(story, question, g)[1] for g in generators)
    assert first.equal(second)
    torch.manual_seed(11)
    by_global = model(story, question)
    torch.manual_seed(11)
    assert by_global.equal(model(story, question))


def test_random_noise_is_a_probability() -> None:
    for rate in (-0.1, 1.5, float("nan")):
        refused("random_noise: expected a chance from 0 to 1, got", build, random_noise=rate)
    options = {"random_noise": 0.1, "temporal_encoding": False}
    refused("expected a chance 0 without temporal encoding", build, **options)


def test_an_empty_story_is_answered_from_the_question_alone() -> None:
    model = build()
    story, question = batch()
    story[0] = 0
    logits, weights = model.read(story, question)
    assert (weights[0] == 0).all()
    assert_close(logits[0], model.ask(question)[0] @ model.words[-1].weight.T, **FLOAT64)
    assert logits.isfinite().all()


@pytest.mark.usefixtures("unchecked")
def test_bad_arguments_are_refused() -> None:
    model = build(max_sentences=4)
    story, question = torch.ones(2, 4, 3, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)
    refused("tying: expected one of adjacent, layer-wise, untied", build, tying="rnn")
    for name in ("vocab_size", "embed_dim", "max_sentences", "hops"):
        refused(f"{name}: expected at least 1, got 0", build, **{name: 0})
    long = torch.ones(2, 5, 3, dtype=torch.long)
    refused("story: expected at most 4 sentences, got 5", model, long, question)
    refused("story: expected ids from 0 to 10, got 11 to 11", model, 11 * story, question)
    refused("question: expected ids from 0 to 10, got -1 to -1", model, story, -question)
    refused(r"story: expected axes \(B N J\), got shape \(2, 3\)", model.read, question, question)
    refused("question: expected size 2 on axis 0", model.read, story, question[:1])
    # more padding than the table of ages has rows is no fault
    padded = torch.nn.functional.pad(story, (0, 0, 3, 3))
    assert_close(model(padded, question), model(story, question), **FLOAT64)
