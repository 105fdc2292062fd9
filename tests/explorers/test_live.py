"""In Jupyter the same explorers are widgets whose numbers come from the package."""

import gzip
import json
import re
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from refusals import refused

from attn_course import explorers
from attn_course.data import BOS, EOS, UNK, date_normalisation, reversal, translation
from attn_course.explorers import (
    alignment_map,
    bottleneck,
    memory_hops,
    patch_attention,
)
from attn_course.explorers.gradient_reach import GradientReach
from attn_course.explorers.hard_attention import HardAttention
from attn_course.explorers.mask_composer import MaskComposer
from attn_course.explorers.softmax_temperature import SoftmaxTemperature
from attn_course.masks import causal_mask, prefix_mask
from attn_course.nn import AttentionEncoderDecoder
from attn_course.train import greedy_decode, sequence_accuracy
from attn_course.train.recipes import by_length


@pytest.mark.parametrize("name", explorers.NAMES)
def test_the_widget_starts_with_the_state_of_the_page(name: str) -> None:
    state = import_module(f"attn_course.explorers.{name}").default_state()
    assert json.loads(json.dumps(state, allow_nan=False)) == state
    assert state["kernel"] is False
    widget = explorers.show(name)
    assert widget.kernel is True
    assert {key: getattr(widget, key) for key in state if key != "kernel"} == {
        key: value for key, value in state.items() if key != "kernel"
    }
    assert widget.problem == ""
    assert widget.result
    synced = set(widget.traits(sync=True))
    assert set(state) | {"result"} <= synced


def test_moving_a_slider_calls_the_package() -> None:
    widget = SoftmaxTemperature(scores=[0.0, 0.0, 0.0])
    assert widget.result["weights"] == pytest.approx([1 / 3] * 3)
    # what a browser sends: numbers without a point are integers
    widget.set_state({"scores": [0, 1, 0], "temperature": 1, "vectors": [[0, 0], [2, 0], [1, 1]]})
    e = 2.718281828
    assert widget.result["weights"] == pytest.approx([1 / (e + 2), e / (e + 2), 1 / (e + 2)])
    assert widget.result["mean"] == pytest.approx([(2 * e + 1) / (e + 2), 1 / (e + 2)])


def test_a_state_that_does_not_fit_keeps_the_last_result() -> None:
    widget = SoftmaxTemperature()
    before = widget.result
    widget.temperature = 0.0
    assert widget.result == before
    assert "temperature" in widget.problem
    widget.temperature = 1.0
    assert widget.problem == ""


def test_the_reach_of_a_rotation_is_lost_to_tanh_alone() -> None:
    without_inputs = GradientReach(scale=1.0, input_scale=0.0, length=40).result["RNN"]
    assert without_inputs[-1] == pytest.approx(without_inputs[0], rel=1e-3)
    with_inputs = GradientReach(scale=1.0, input_scale=1.0, length=40).result["RNN"]
    assert with_inputs[-1] < 0.01 * with_inputs[0]


def test_an_open_forget_gate_carries_the_gradient() -> None:
    shut = GradientReach(bias=-4.0, length=30).result["LSTM"]
    open_ = GradientReach(bias=8.0, length=30).result["LSTM"]
    assert open_[-1] > 1e6 * shut[-1]


def test_the_accuracy_in_the_file_is_that_of_the_weights() -> None:
    saved = json.loads(bottleneck.WEIGHTS.read_text(encoding="utf-8"))
    model = bottleneck.build()
    bottleneck.load(model, saved["weights"])
    sample = partial(reversal, num_symbols=len(bottleneck.LETTERS))
    # other sequences than those measured; 200 of them, five standard errors of their share
    generator = torch.Generator().manual_seed(77)
    for length in (5, 12, 14, 17):
        share = by_length(model, sample(200, generator, min_length=length, max_length=length))
        expected = saved["accuracy"][str(length)]
        error = 5 * max(expected * (1 - expected), 0.01) ** 0.5 / 200**0.5
        assert share[length] == pytest.approx(expected, abs=error)


@pytest.fixture(scope="module")
def aligners() -> dict[str, tuple[dict[str, Any], AttentionEncoderDecoder]]:
    """What the file says of each alignment model, and the model."""
    models = {}
    for task, content in json.loads(alignment_map.WEIGHTS.read_text("utf-8"))["models"].items():
        model = alignment_map.build(task)
        alignment_map.load(model, content["weights"])
        models[task] = content, model.eval()
    return models


@pytest.mark.parametrize("task", alignment_map.TASKS)
@torch.no_grad()
def test_the_alignment_models_are_as_good_as_the_file_says(aligners: Any, task: str) -> None:
    saved, model = aligners[task]
    sample = {"translation": translation, "dates": date_normalisation}[task]
    batch = sample(400, torch.Generator().manual_seed(77))
    said = saved["accuracy"]["known"]
    assert said > 0.97
    state = model.init_state(batch.source, batch.source_lengths)
    decoded = greedy_decode(model.step, state, bos=BOS, eos=EOS, max_length=alignment_map.STEPS)
    right = sequence_accuracy(decoded.tokens, batch.target_out)
    assert right == pytest.approx(said, abs=5 * max(said * (1 - said), 0.002) ** 0.5 / 400**0.5)
    weights = model.align(batch.source, batch.source_lengths, batch.target_in)
    assert batch.alignment is not None
    known = batch.alignment >= 0
    found = (weights.argmax(-1) == batch.alignment)[known].float().mean().item()
    assert found == pytest.approx(saved["accuracy"]["place_found"], abs=0.02)


@torch.no_grad()
def test_the_map_is_that_of_a_padded_batch_through_greedy_decoding(aligners: Any) -> None:
    texts = ["the dog sees a cat", "a happy girl paints the small white flower", "the zebra"]
    source_vocabulary, target_vocabulary, _ = alignment_map.TASKS["translation"]
    rows = [source_vocabulary.encode(text.split()) for text in texts]
    lengths = torch.tensor([len(row) for row in rows])
    source = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True)
    model = aligners["translation"][1]
    state = model.init_state(source, lengths)
    decoded = greedy_decode(model.step, state, bos=BOS, eos=EOS, max_length=alignment_map.STEPS)
    for row, text in enumerate(texts):
        result = alignment_map.compute(task="translation", text=text)
        tokens = decoded.tokens[row, : decoded.lengths[row]].tolist()
        words = [target_vocabulary.tokens[token] for token in tokens]
        assert result["copied"] == [token == UNK for token in tokens]
        for word, output, copied in zip(words, result["output"], result["copied"], strict=True):
            assert word == ("<unk>" if copied else output)
        target_in = torch.tensor([[BOS, *tokens[:-1]]])
        weights = model.align(source[row : row + 1], lengths[row : row + 1], target_in)
        ours = torch.tensor(result["weights"], dtype=torch.float32)
        torch.testing.assert_close(weights[0, :, : lengths[row]], ours, atol=1e-4, rtol=0)
        logits = model(source[row : row + 1], lengths[row : row + 1], target_in)[0]
        ours = torch.tensor(result["logits"], dtype=torch.float32)
        torch.testing.assert_close(logits, ours, atol=1e-4, rtol=1e-5)


def test_an_unknown_word_is_copied_from_where_the_model_looks() -> None:
    result = alignment_map.compute(task="translation", text="the old zebra sees a small house")
    assert result["known"] == [True, True, False, True, True, True, True]
    assert result["copied"].count(True) == 1
    row = result["copied"].index(True)
    assert result["output"][row] == "zebra"
    assert result["weights"][row][2] == max(result["weights"][row])
    assert result["expected"] is None


def test_a_baseline_lowers_the_variance_of_the_draws_and_leaves_their_mean() -> None:
    without, with_it = HardAttention(), HardAttention(baseline=16.0)
    assert with_it.result["variance"] < without.result["variance"] / 5
    assert with_it.result["variance_without"] == without.result["variance"]
    assert with_it.result["exact"] == without.result["exact"]
    for widget in (without, with_it):
        cloud = torch.tensor(widget.result["estimates"][-1])
        error = cloud.std() / len(cloud) ** 0.5
        assert cloud.mean().item() == pytest.approx(widget.result["exact"], abs=4 * error.item())
        # 256 draws instead of 1: a sixteenth, within what 60 runs can tell
        assert widget.result["spread"][-1] < widget.result["spread"][0] / 10
    with_it.place = 4
    assert "place: expected 0 to 3, got 4" in with_it.problem
    with_it.place = 1
    with_it.rewards = [1.0]
    assert "rewards: expected 4" in with_it.problem


def test_composed_masks_are_those_of_the_package() -> None:
    off = dict.fromkeys(("causal", "window", "prefix", "padding"), "off")
    widget = MaskComposer(joins=off | {"causal": "and", "prefix": "or"}, prefix=3)
    assert widget.result["allowed"] == prefix_mask(7, prefix_length=3).tolist()
    widget.joins = off | {"causal": "and", "window": "or"}  # the window adds nothing
    assert widget.result["allowed"] == causal_mask(7).tolist()
    widget.joins = off | {"window": "and", "padding": "and"}
    widget.set_state({"window": 2, "length": 5})
    assert widget.result["allowed"][6] == [False] * 7
    assert widget.result["sums"][6] == 0
    widget.place = "zero"
    assert widget.result["leaked"][6] == pytest.approx(1.0)
    before = widget.result
    widget.joins = off | {"causal": "xor"}
    assert widget.result == before
    assert "joins: expected one of off, and, or, got 'xor'" in widget.problem


ABOUT = {"seed", "commit", "date", "machine"}


@pytest.mark.parametrize(("module", "pack", "most", "named"), [
    (alignment_map, bytes, 120 * 1024, ABOUT | {"share_unknown", "models"}),
    (bottleneck, gzip.compress, 60_000, ABOUT | {"steps", "task"}),
    (memory_hops, gzip.compress, 40_000, ABOUT | {"steps", "task", "loss"}),
    (patch_attention, bytes, 150_000, {"right"}),
])  # fmt: skip
def test_weights_are_small_and_say_where_they_come_from(module, pack, most, named):
    content = module.WEIGHTS.read_bytes()
    assert len(pack(content)) < most
    saved = json.loads(content)
    assert named <= set(saved)
    assert all({"steps", "parameters"} <= set(one) for one in saved.get("models", {}).values())


TOLD = {"sentences": memory_hops.STORIES["the milk and John"][1], "told": [True] * 4}
# a state that each of them computes
STATES: dict[Any, dict[str, Any]] = {
    alignment_map: {"task": "translation", "text": "the dog"}, bottleneck: {"text": "a"},
    memory_hops: TOLD | {"thing": memory_hops.STORIES["the milk and John"][0], "hops": 2},
    patch_attention: {"pixels": [0] * 256, "asking": 0, "entry": 0},
}  # fmt: skip


@pytest.mark.parametrize(("module", "change", "message"), [
    *((alignment_map, {"text": text}, "text: expected 1 to 14 words")
      for text in ("", " . ", "dog " * 15)),
    (alignment_map, {"task": "german"}, "task: expected"),
    *((bottleneck, {"text": text}, "text: expected") for text in ("", "xyz", "A", "a" * 19)),
    (memory_hops, {"sentences": [], "told": []}, "sentences: expected 1 to 8"),
    (memory_hops, {"told": [True]},
     "sentences: expected 1 to 8, with as many marks, got 4 and 1"),
    (memory_hops, {"thing": "sofa"}, "thing: expected one of football, apple, milk, got 'sofa'"),
    (memory_hops, {"hops": 4}, "hops: expected 1, 2 or 3, got 4"),
    (memory_hops, {"sentences": ["John sat down"] * 4}, "expected words of the stories, got 'sat'"),
    (patch_attention, {"pixels": [0, 0, 0]}, "pixels: expected 256, got 3"),
    (patch_attention, {"asking": 16}, "asking: expected 0 to 15, got 16"),
    (patch_attention, {"entry": 9}, "entry: expected 0 to 8, got 9"),
])  # fmt: skip
def test_bad_states_are_refused(module: Any, change: dict[str, Any], message: str) -> None:
    refused(message, module.compute, **STATES[module] | change)


@pytest.mark.parametrize(("module", "sizes"), [
    (bottleneck, ()), (memory_hops, (1,)), (patch_attention, ()),
])  # fmt: skip
def test_weights_of_another_size_are_refused(module: Any, sizes: tuple[int, ...]) -> None:
    message = "encoded: expected" if module is patch_attention else r"expected \d+ numbers, got 3"
    refused(message, module.load, module.build(*sizes), "AAAAAAAA")


def test_unknown_explorers_are_refused() -> None:
    for call in (explorers.show, explorers._source.esm):
        refused("softmax_temperature", call, "softmax")


@pytest.mark.parametrize("name", explorers.NAMES)
def test_every_class_of_a_drawing_has_a_rule(name: str) -> None:
    used = set(re.findall(r"attn-x-[a-z][\w-]*\w(?![\w-])", explorers._source.esm(name)))
    ruled = set(re.findall(r"\.(attn-x-[\w-]+)", explorers._source.stylesheet()))
    assert used - ruled == set()
