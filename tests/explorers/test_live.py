"""In Jupyter the same explorers are widgets whose numbers come from the package."""

import gzip
import json
from functools import partial
from importlib import import_module

import pytest
import torch

from attn_course import explorers
from attn_course.data import reversal
from attn_course.explorers import bottleneck
from attn_course.explorers.gradient_reach import GradientReach
from attn_course.explorers.softmax_temperature import SoftmaxTemperature
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


def test_the_weights_are_small_and_say_where_they_come_from() -> None:
    content = bottleneck.WEIGHTS.read_bytes()
    assert len(gzip.compress(content)) < 60_000
    saved = json.loads(content)
    assert {"seed", "steps", "commit", "date", "machine", "task"} <= set(saved)


def test_weights_of_another_size_are_refused() -> None:
    with pytest.raises(ValueError, match=r"expected \d+ numbers, got 3"):
        bottleneck.load(bottleneck.build(), "AAAAAAAA")


@pytest.mark.parametrize("text", ["", "xyz", "A", "a" * 19])
def test_text_outside_the_alphabet_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="text: expected"):
        bottleneck.compute(text=text)


def test_unknown_explorers_are_refused() -> None:
    with pytest.raises(ValueError, match="softmax_temperature"):
        explorers.show("softmax")
    with pytest.raises(ValueError, match="softmax_temperature"):
        explorers.esm("softmax")
