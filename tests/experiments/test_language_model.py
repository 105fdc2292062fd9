"""The language-model experiment on a generated text: whole, stopped, in two processes, recorded."""

import dataclasses
import json
import math
import random
from functools import partial
from pathlib import Path

import pytest
import torch
from processes import python
from refusals import refused
from stopped_runs import Killed, ctrl_c, kill, stopping, untimed

from attn_course.data import load_results
from attn_course.train import generate
from experiments.language_model import measure, run
from experiments.language_model.corpus import Corpus, Windows, make_corpus
from experiments.language_model.counting import NGrams
from experiments.language_model.models import MODELS, build, count
from experiments.language_model.settings import SETTINGS, Setting

TINY = Setting(
    name="tiny", embed_dim=12, num_heads=2, num_layers=2, lstm_layers=1, hidden_dim=23, length=13,
    batch_size=6, steps=11, warmup=2, rates=(3e-3, 1e-2), rate_steps=5, eval_every=4,
    eval_windows=7, checkpoint_every=3, seeds=(0, 2), sample_length=5, device="a test",
)  # fmt: skip


def text(number: int, seed: int) -> str:
    """Words of a few letters that alternate between vowels and others."""
    draw = random.Random(seed)
    return "".join(
        draw.choice("bdkTK ") + draw.choice("aeiou") + draw.choice(["", "", ", ", "\n"])
        for _ in range(number)
    )


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return make_corpus(text(400, 1), text(83, 2))


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("whole")
    return folder, run.run(TINY, corpus, work=folder / "work", out=folder / "out.json")


@pytest.mark.parametrize("setting", SETTINGS)
def test_the_lstm_has_as_many_parameters_within_one_percent(setting):
    with torch.device("meta"):
        sizes = [count(build(name, SETTINGS[setting], 65)) for name in MODELS]
    assert abs(sizes[0] / sizes[1] - 1) <= 0.01


@pytest.mark.parametrize("name", MODELS)
def test_no_model_sees_the_character_that_it_predicts(name, corpus):
    model = build(name, TINY, len(corpus.alphabet)).eval()
    ids = corpus.val[:17].unsqueeze(0)
    changed = ids.clone()
    changed[0, 11] = (changed[0, 11] + 1) % len(corpus.alphabet)
    with torch.no_grad():
        one, other = model(ids), model(changed)
    torch.testing.assert_close(one[:, :11], other[:, :11])
    assert (one[:, 11:] - other[:, 11:]).abs().amax() > 1e-6


def test_the_lstm_writes_from_its_state_what_it_writes_from_the_whole_text(corpus):
    model = build("lstm", TINY, len(corpus.alphabet)).eval()
    prompt = corpus.val[:7].unsqueeze(0).expand(3, -1)
    with torch.no_grad():
        cache = model.new_cache()
        parts = torch.cat([model(prompt[:, :3], cache=cache), model(prompt[:, 3:], cache=cache)], 1)
        torch.testing.assert_close(parts, model(prompt))
    rows = torch.tensor([2, 0])
    assert [part.shape[1] for part in cache.select(rows).state] == [2, 2]
    options = {"max_length": 9, "generator": torch.Generator().manual_seed(3)}
    assert generate(model, prompt, **options).tokens.shape == (3, 9)
    refused("padding_mask", model, prompt, torch.ones(3, 7, dtype=torch.bool))


def test_windows_repeat_from_their_state_and_differ_by_seed(corpus):
    def stream(seed: int) -> Windows:
        return Windows(corpus.train, length=5, batch_size=3, seed=seed)

    one, two, other = stream(1), stream(1), stream(2)
    first = next(one)
    assert first.shape == (3, 6)
    torch.testing.assert_close(first, next(two))
    assert not torch.equal(first, next(other))
    state = one.state_dict()
    second = next(one)
    one.load_state_dict(state)
    torch.testing.assert_close(next(one), second)
    whole = corpus.decode(corpus.train)
    assert all(corpus.decode(row) in whole for row in first)
    short = partial(Windows, corpus.train[:5], length=5, batch_size=1, seed=0)
    refused("ids: expected more than length=5 characters, got 5", short)


def test_counting_gives_probabilities_and_what_is_counted_by_hand():
    grams = NGrams("abab", order=3, alphabet="abc")
    # empty history: 2 a's of 4, 2 kinds; below it all three alike
    assert grams.probabilities("", "a")[0] == pytest.approx((2 + 2 / 3) / 6)
    # after b came one a of 1, 1 kind
    assert grams.probabilities("b", "a")[1] == pytest.approx((1 + (2 + 2 / 3) / 6) / 2)
    for history in ("", "a", "ab", "ca", "cc"):
        for order in range(3):
            total = sum(grams.probabilities(history, each)[order] for each in "abc")
            assert total == pytest.approx(1)
    expected = -sum(math.log2(grams.probabilities("", each)[0]) for each in "abc") / 3
    assert grams.bits("abc")[0] == pytest.approx(expected)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("number", [83, 84, 14, 9])
def test_every_character_but_the_first_is_predicted_once(name, number, corpus):
    """Against one window after the other, by hand."""
    model = build(name, TINY, len(corpus.alphabet)).eval()
    ids, length = corpus.val[:number], 14
    options = {"length": length, "device": torch.device("cpu"), "batch_size": 5}
    found = measure.bits_per_character(model, ids, **options)
    assert found["characters"] == number - 1
    nats = []
    with torch.no_grad():
        for place in range(1, number):  # windows begin at multiples of 7
            start = max(0, -(-(place - length) // 7) * 7)
            logits = model(ids[start:place].unsqueeze(0))[0, -1].double()
            nats.append(-logits.log_softmax(-1)[ids[place]].item())
            assert place - start >= min(place, 8)
    assert found["bits"] == pytest.approx(sum(nats) / len(nats) / math.log(2), abs=6e-5)
    assert [each["characters"] for each in found["by_context"]][:3] == [[1, 1], [2, 3], [4, 7]]


def test_a_run_records_what_it_needs(finished, corpus):
    folder, result = finished
    assert json.loads((folder / "out.json").read_text()) == result
    assert (result["experiment"], result["missing"]) == ("language_model", [])
    assert list(result["models"]) == list(MODELS)
    assert [each["order"] for each in result["ngrams"]] == [1, 2, 3, 4, 5, 6, 7]
    for name in MODELS:
        trials = result["rates"][name]
        assert [each["learning_rate"] for each in trials] == [3e-3, 1e-2]
        best = min(trials, key=lambda each: each["val_bits"])
        entry = result["models"][name]
        assert entry["learning_rate"] == best["learning_rate"]
        assert [each["seed"] for each in entry["runs"]] == [0, 2]
        assert entry["bits"] == [each["bits"] for each in entry["runs"]]
        for each in entry["runs"]:
            assert [point["step"] for point in each["curve"]] == [4, 8, 11]
            assert (each["steps"], each["characters"]) == (11, len(corpus.val) - 1)
            assert 0 < each["training_seconds"]["cpu"] <= each["seconds"]["cpu"]


@pytest.mark.parametrize(("stop", "error"), [(ctrl_c, KeyboardInterrupt), (kill, Killed)])
def test_a_stopped_run_ends_like_a_whole_one(finished, corpus, tmp_path, monkeypatch, stop, error):
    """Stopped in the second of the final trainings, between two checkpoints."""
    call = 4 * TINY.rate_steps + TINY.steps + 5
    loss = stopping(measure.next_character_loss, call, stop)

    def start() -> dict:
        return run.run(TINY, corpus, work=tmp_path / "work", out=tmp_path / "out.json")

    with monkeypatch.context() as patch:
        patch.setattr(measure, "next_character_loss", loss)
        with pytest.raises(error):
            start()
    missing = json.loads((tmp_path / "out.json").read_text())["missing"]
    assert missing == ["transformer, seed 2", "lstm, seed 0", "lstm, seed 2"]
    assert untimed(start()) == untimed(finished[1])


def test_a_finished_run_trains_nothing_again(finished, corpus, monkeypatch):
    folder, whole = finished
    monkeypatch.setattr(run, "fit", lambda *a, **k: pytest.fail("trained again"))
    assert run.run(TINY, corpus, work=folder / "work", out=folder / "out.json") == whole


def test_what_cannot_be_run_is_refused(finished, corpus):
    folder, _ = finished
    call = {"work": folder / "work", "out": folder / "refused.json"}
    message = r"models: expected some of transformer, lstm, got gru"
    refused(message, run.run, TINY, corpus, models=["gru"], **call)
    refused(r"seeds: expected some of 0, 2, got 1", run.run, TINY, corpus, seeds=[1], **call)
    other = dataclasses.replace(TINY, batch_size=4)
    refused(r"work: .*other settings.*--work", run.run, other, corpus, **call)


WORKER = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path[:0] = [{root!r}, {root!r} + "/tests", {tests!r}]
import test_language_model as tests, test_translation as pairs
from attn_course.train.parallel import start_parallel
from experiments.language_model import run
from experiments.translation import run as translation
folder = Path(sys.argv[1])
corpus = tests.make_corpus(tests.text(400, 1), tests.text(83, 2))
with start_parallel("fsdp", device="cpu") as parallel:
    run.run(
        tests.TINY, corpus, work=folder / "w", out=folder / "lm.json", parallel=parallel, seeds=[0]
    )
    try:
        run.run(
            tests.dataclasses.replace(tests.TINY, batch_size=7), corpus, work=folder / "x",
            out=folder / "x.json", parallel=parallel,
        )
    except ValueError as error:
        (folder / f"refused-{{parallel.rank}}").write_text(str(error))
    copies = tests.dataclasses.replace(parallel, sharded=False)  # one group per process
    setting = tests.dataclasses.replace(pairs.TINY, batch_size=6, models=("plain", "transformer"))
    corpus = pairs.make_corpus(
        pairs.sentences(60, 1), pairs.sentences(11, 2), pairs.sentences(13, 3), vocab_size=70
    )
    translation.run(setting, corpus, work=folder / "t", out=folder / "t.json", parallel=copies)
"""


def test_two_processes_record_what_one_records(finished, tmp_path):
    """The language models in parts, two translation models as copies, through torchrun."""
    here = Path(__file__)
    script = tmp_path / "worker.py"
    script.write_text(WORKER.format(root=str(here.parents[2]), tests=str(here.parent)))
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    python(*torchrun, script, tmp_path, timeout=150)
    found, whole = json.loads((tmp_path / "lm.json").read_text()), finished[1]
    assert found["missing"] == ["transformer, seed 2", "lstm, seed 2"]
    for name, entry in whole["models"].items():
        one, (two,) = entry["runs"][0], found["models"][name]["runs"]
        # float32, eleven steps: sums in another order
        assert two["bits"] == pytest.approx(one["bits"], abs=2e-3)
        assert (one["parameters"], one["steps"]) == (two["parameters"], two["steps"])
        assert (one["processes"], two["processes"]) == (1, 2)
        for left, right in zip(one["curve"], two["curve"], strict=True):
            assert right == pytest.approx(left, abs=2e-3)
    for rank in (0, 1):
        message = (tmp_path / f"refused-{rank}").read_text()
        assert message == "batch_size: expected a multiple of the 2 processes, got 7"
    pairs = json.loads((tmp_path / "t.json").read_text())
    assert list(pairs["models"]) == ["plain", "transformer"]
    assert all(entry["steps"] == 12 for entry in pairs["models"].values())


@pytest.mark.parametrize("name", ["reduced", "passes"])
def test_a_recorded_run_is_fair(name):
    result = load_results("language_model" if name == "reduced" else f"language_model_{name}")
    if result is None:
        pytest.skip(f"language_model, setting {name}: not run yet")
    setting = SETTINGS[name]
    assert (result["setting"], result["missing"]) == (setting.as_json(), [])
    assert "+changes" not in result["commit"]
    assert {"processor", "cores", "threads", "device"} <= result["machine"].keys()
    assert len(result["seeds"]) >= 3
    for name in MODELS:
        # The rate that was taken is neither the first nor the last that was tried; a model that is
        # ahead at the end of its rates would be further ahead with more of them.
        rates = [each["learning_rate"] for each in result["rates"][name]]
        inside = rates.index(result["models"][name]["learning_rate"]) not in (0, len(rates) - 1)
        best = min(entry["median_bits"] for entry in result["models"].values())
        assert inside or result["models"][name]["median_bits"] == best
        for each in result["models"][name]["runs"]:
            assert each["steps"] == setting.steps
            assert each["seconds"]["cpu"] < 360
            assert {one["temperature"] for one in each["samples"]} == set(measure.TEMPERATURES)
            assert {one["prompt"] for one in each["samples"]} == set(measure.PROMPTS)
    sizes = [result["models"][name]["parameters"] for name in MODELS]
    assert abs(sizes[0] / sizes[1] - 1) <= 0.01


def test_the_recorded_runs_find_what_the_page_says():
    one, four = load_results("language_model"), load_results("language_model_passes")
    if one is None or four is None:
        pytest.skip("language_model, one pass and four: not run yet")

    def bits(result, name):
        return [run["bits"] for run in result["models"][name]["runs"]]

    for result in (one, four):
        assert max(bits(result, "lstm")) < min(bits(result, "transformer"))
    counting = min(each["bits"] for each in four["ngrams"])
    assert counting < min(bits(one, "lstm"))
    assert max(bits(four, "transformer")) < counting
    for result, gap in ((one, 0.18), (four, 0.03)):
        lstm, transformer = (result["models"][n]["median_bits"] for n in ("lstm", "transformer"))
        assert transformer - lstm == pytest.approx(gap, abs=0.006)
    runs = {name: four["models"][name]["runs"] for name in MODELS}
    seconds = {name: sum(run["seconds"]["cpu"] for run in runs[name]) for name in MODELS}
    assert 1.8 < seconds["transformer"] / seconds["lstm"] < 2.6
