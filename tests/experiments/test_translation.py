"""The translation experiment on a tiny generated corpus: whole, stopped and resumed, refused."""

import dataclasses
import json
import math
import random
from pathlib import Path

import pytest
import torch
from oracles import same_state
from refusals import refused
from stopped_runs import Killed, ctrl_c, kill, stopping, untimed

from attn_course.data import BOS, EOS, PAD, UNK, collate, load_results
from experiments import keeping
from experiments.translation import measure, paired, rates, run, tuned
from experiments.translation.corpus import Corpus, Pieces, make_corpus
from experiments.translation.models import Sizes, build, count, fitted_hidden_size
from experiments.translation.settings import MODELS, SETTINGS, Setting

NOUNS = {"Hund": "dog", "Mann": "man", "Ball": "ball", "Baum": "tree", "Vogel": "bird"}
VERBS = {"sieht": "sees", "jagt": "chases", "malt": "paints"}
ADJECTIVES = {"rote": "red", "alte": "old", "kleine": "small", "große": "large"}

TINY = Setting(
    name="tiny", models=("plain", "bahdanau", "dot"), vocab_size=70, embed_dim=7, parameters=60_000,
    batch_size=5, steps=12, learning_rate=1e-2, warmup=3, eval_every=5, checkpoint_every=4,
    beam_size=3, max_length=11, device="a test",
)  # fmt: skip


def sentences(number: int, seed: int) -> list[tuple[str, str]]:
    """Der rote Hund sieht den alten ...: grammar of a test, one word for one word."""
    draw = random.Random(seed)
    made = []
    for _ in range(number):
        pairs = [("Der", "The")]
        pairs += draw.sample(sorted(ADJECTIVES.items()), draw.randint(0, 2))
        pairs += [draw.choice(sorted(NOUNS.items())), draw.choice(sorted(VERBS.items()))]
        pairs += [("einen", "a"), draw.choice(sorted(NOUNS.items()))]
        made.append(tuple(" ".join(side) + "." for side in zip(*pairs, strict=True)))
    return made


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    parts = sentences(60, 1), sentences(11, 2), sentences(13, 3)
    return make_corpus(*parts, vocab_size=TINY.vocab_size)


@pytest.fixture(scope="module")
def finished(corpus, tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("whole")
    result = run.run(TINY, corpus, work=folder / "work", out=folder / "out.json", seed=3)
    return folder, result


def checkpoint(folder: Path, name: str) -> dict:
    return torch.load(folder / "tiny-seed3" / name / "checkpoint.pt", weights_only=True)


def test_pieces_are_deterministic_reserve_four_ids_and_come_back():
    texts = [pair[0] for pair in sentences(60, 1)]
    one, two = Pieces(texts, vocab_size=60), Pieces(texts, vocab_size=60)
    assert one.digest == two.digest
    assert one.digest != Pieces(texts[:40], vocab_size=60).digest
    assert len(one) == 60
    assert one.names([PAD, BOS, EOS, UNK]) == ["<pad>", "<s>", "</s>", "<unk>"]
    for text in texts:
        ids = one.encode(text)
        assert min(ids) > UNK
        assert one.decode([*ids, EOS, 17, 23]) == text


def test_pieces_are_trained_on_the_training_text_alone():
    train = sentences(60, 1)
    with_more = make_corpus(train, sentences(5, 2), [("Zyx qqq.", "Jjj www.")] * 3, vocab_size=70)
    without = make_corpus(train, sentences(5, 2), sentences(5, 3), vocab_size=70)
    assert with_more.source_pieces.digest == without.source_pieces.digest
    assert with_more.target_pieces.digest == without.target_pieces.digest
    assert UNK in with_more.test.sources[0]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("setting", SETTINGS)
def test_every_model_meets_the_budget_within_one_percent(name, setting):
    chosen = SETTINGS[setting]
    sizes = Sizes(
        source_vocab=chosen.vocab_size, target_vocab=chosen.vocab_size, embed_dim=chosen.embed_dim,
        max_source=71,
    )  # fmt: skip
    hidden_size = fitted_hidden_size(name, sizes, parameters=chosen.parameters)
    with torch.device("meta"):
        parameters = count(build(name, sizes, hidden_size=hidden_size))
    assert abs(parameters / chosen.parameters - 1) <= 0.01


def test_a_budget_that_cannot_be_met_is_refused():
    sizes = Sizes(source_vocab=1009, target_vocab=997, embed_dim=13, max_source=31)
    message = r"parameters: .*plain.*within 1%.*nearest is \d+"
    refused(message, fitted_hidden_size, "plain", sizes, parameters=31_000)


@pytest.mark.parametrize("name", MODELS)
def test_padding_in_a_batch_changes_no_translation(corpus, name):
    sizes = run.sizes_of(TINY, corpus)
    torch.manual_seed(5)
    model = build(name, sizes, hidden_size=8).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # decided, so that outputs differ between sentences
        last = model.transformer.logits_bias if name == "transformer" else model.decoder.output.bias
        last[EOS] -= 3.0
    options = {"device": torch.device("cpu"), "length_penalty": 1.0, "max_length": 9}
    for beam_size in (1, 3):
        whole = measure.translate(model, corpus, beam_size=beam_size, batch_size=13, **options)
        alone = measure.translate(model, corpus, beam_size=beam_size, batch_size=1, **options)
        assert whole == alone
        assert len(set(whole)) > 1
    losses = [
        measure.loss_per_piece(model, corpus.test, device=torch.device("cpu"), batch_size=size)
        for size in (1, 13)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_the_transformer_says_step_by_step_what_it_says_at_once_and_where_it_looks(corpus):
    model = build("transformer", run.sizes_of(TINY, corpus), hidden_size=19).eval()
    batch = collate(corpus.test.sources[:7], corpus.test.targets[:7])
    with torch.no_grad():
        at_once = model(batch.source, batch.source_lengths, batch.target_in)
        state = model.init_state(batch.source, batch.source_lengths)
        for place in range(batch.target_in.shape[1]):
            logits, state = model.step(batch.target_in[:, place], state)
            torch.testing.assert_close(logits, at_once[:, place])
    weights = model.look_back(batch.source, batch.source_lengths, batch.target_in)
    assert weights.shape == (7, batch.target_in.shape[1], batch.source.shape[1])
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:2]))
    padding = ~batch.source_mask.unsqueeze(1).expand_as(weights)
    assert padding.any()
    assert (weights[padding] == 0).all()
    assert (weights[~padding] > 0).all()


def test_a_row_that_was_recorded_before_is_kept_if_the_protocol_is_the_same(
    finished, corpus, tmp_path
):
    """The folder of the first run is gone: its rows stay, and only what is trained is compared."""
    folder, whole = finished
    out = tmp_path / "out.json"
    out.write_text((folder / "out.json").read_text())
    work = tmp_path / "work"
    setting = dataclasses.replace(TINY, models=(*TINY.models, "transformer"))
    result = run.run(setting, corpus, work=work, out=out, seed=3, models=["transformer"])
    assert list(result["models"]) == [*TINY.models, "transformer"]
    for name, entry in whole["models"].items():
        assert result["models"][name] == entry
    assert "p_value_against" not in result["models"]["transformer"]
    assert result["setting"]["models"] == list(setting.models)

    result = run.run(setting, corpus, work=work, out=out, seed=3, models=["plain"])
    assert set(result["models"]["transformer"]["p_value_against"]) == {"plain"}
    assert untimed(result)["models"]["dot"] == untimed(whole)["models"]["dot"]
    other = dataclasses.replace(setting, beam_size=2)
    result = run.run(other, corpus, work=tmp_path / "w", out=out, seed=3, models=["transformer"])
    assert list(result["models"]) == ["transformer"]


def test_bleu_is_sacrebleus_and_buckets_hold_every_sentence_once(corpus):
    references = corpus.test.references
    perfect = measure.bleu(references, references)
    assert (perfect["bleu"], perfect["interval"]) == (100.0, 0.0)
    assert "tok:13a" in perfect["signature"]
    assert "version:" in perfect["signature"]
    wrong = [*references[:-1], "nothing of the kind"]
    assert 80 < measure.bleu(wrong, references)["bleu"] < 100
    buckets = measure.bleu_by_length(wrong, corpus.test)
    assert sum(bucket["sentences"] for bucket in buckets) == len(references)
    hurt = [bucket["words"] for bucket in buckets if bucket["bleu"] < 100]
    ((first, last),) = hurt
    assert first <= corpus.test.source_words[-1] <= last


def test_a_run_records_what_it_needs(finished):
    folder, result = finished
    assert json.loads((folder / "out.json").read_text()) == result
    assert list(result["models"]) == list(TINY.models)
    assert result["missing"] == []
    assert {"processor", "cores", "threads", "device"} <= result["machine"].keys()
    assert {"torch", "sentencepiece", "sacrebleu", "python"} <= result["versions"].keys()
    assert result["seed"] == 3
    assert result["commit"]
    assert result["corpus"]["epochs"] == 1.0
    for name, entry in result["models"].items():
        assert abs(entry["parameters"] / TINY.parameters - 1) <= 0.01
        assert entry["steps"] == TINY.steps
        assert [each["step"] for each in entry["val_loss"]] == [5, 10, 12]
        assert entry["val_loss"][-1]["loss"] < entry["val_loss"][0]["loss"]
        assert 0 < entry["training_seconds"]["cpu"] <= entry["seconds"]["cpu"]
        for example in entry["examples"]:
            weights = example["weights"]
            if name == "plain":
                assert weights is None
                continue
            assert len(weights) == len(example["output"])
            for line in weights:
                assert len(line) == len(example["source"])
                assert sum(line) == pytest.approx(1, abs=5e-4 * len(line))


@pytest.mark.parametrize(("stop", "error", "steps_kept"), [
    (ctrl_c, KeyboardInterrupt, 7), (kill, Killed, 4),
])  # fmt: skip
def test_a_stopped_run_ends_bit_for_bit_like_a_whole_one(
    finished, corpus, tmp_path, monkeypatch, stop, error, steps_kept
):
    """Stopped in step 7 of the second model, between two checkpoints; then the same call again."""
    folder, whole = finished
    loss = stopping(run.teacher_forcing_loss, TINY.steps + 7, stop)

    def start() -> dict:
        return run.run(TINY, corpus, work=tmp_path / "work", out=tmp_path / "out.json", seed=3)

    with monkeypatch.context() as patch:
        patch.setattr(run, "teacher_forcing_loss", loss)
        with pytest.raises(error):
            start()
    assert json.loads((tmp_path / "out.json").read_text())["missing"] == ["bahdanau", "dot"]
    assert checkpoint(tmp_path / "work", "bahdanau")["step"] == steps_kept

    torch.manual_seed(99)  # whatever the new process starts with
    assert untimed(start()) == untimed(whole)
    for name in TINY.models:
        one, other = checkpoint(tmp_path / "work", name), checkpoint(folder / "work", name)
        # sacrebleu draws random numbers between two models, training does not
        same_state(one, other, ("seconds", "numpy", "python"), rtol=0, atol=0)


def test_a_finished_run_trains_nothing_again(finished, corpus, monkeypatch):
    folder, whole = finished
    monkeypatch.setattr(run, "fit", lambda *a, **k: pytest.fail("trained again"))
    again = run.run(TINY, corpus, work=folder / "work", out=folder / "out.json", seed=3)
    assert again == whole


def test_models_can_be_run_one_by_one_into_one_file(finished, corpus, tmp_path):
    _, whole = finished
    call = {"work": tmp_path / "w", "out": tmp_path / "o.json", "seed": 3}
    for name in ("dot", "plain", "bahdanau"):
        result = run.run(TINY, corpus, **call, models=[name])
    assert untimed(result) == untimed(whole)


def test_what_cannot_be_run_is_refused(finished, corpus):
    folder, _ = finished
    call = {"work": folder / "work", "out": folder / "refused.json", "seed": 3}
    message = "models: expected some of plain.*got dots"
    refused(message, run.run, TINY, corpus, models=["dots"], **call)
    other = dataclasses.replace(TINY, learning_rate=2e-2)
    refused(r"work: .*other settings.*--work", run.run, other, corpus, **call)


def test_the_file_keeps_a_row_of_weights_in_a_line_and_loses_nothing():
    content = {
        "a": [[0.1, 0.25], [1.0, 0.0]],
        "said": ["[ one", "  two ] {", "three\n four"],
        "b": {"c": [], "d": [1]},
    }
    text = keeping.laid_out(content)
    assert json.loads(text) == content
    assert "[0.1, 0.25]" in text


def test_the_recorded_run_is_fair_and_finds_what_the_page_says():
    """The claims of chapter 04, on the file that its page shows."""
    result = load_results("translation_reduced")
    setting = SETTINGS["reduced"]
    assert result["setting"] == setting.as_json()
    required = {"plain", "bahdanau", "dot", "general", "concat", "location"}
    assert required <= set(result["models"])
    assert set(result["missing"]) == set(setting.models) - set(result["models"])
    assert result["corpus"]["train_pairs"] == 29_000
    assert "+changes" not in result["commit"]
    assert result["cpu_seconds"] < 3600
    plain = result["models"]["plain"]
    for entry in result["models"].values():
        assert entry["steps"] == setting.steps
        assert abs(entry["parameters"] / setting.parameters - 1) <= 0.01
        assert entry["machine"]["processor"] == plain["machine"]["processor"]
        assert all(example["output"] for example in entry["examples"])
        assert len(entry["examples"]) == 4
    for name in {"bahdanau", "concat", "transformer"} & set(result["models"]):
        entry = result["models"][name]
        assert entry["bleu"] - entry["interval"] > plain["bleu"] + plain["interval"]
        # a row that was added later has no paired test: the sentences of the others are gone
        assert entry.get("p_value_against", {"plain": 0.0})["plain"] < 0.01
        # without attention the longest sentences suffer most
        kept, lost = entry["by_length"][-1]["bleu"], plain["by_length"][-1]["bleu"]
        assert kept / entry["bleu"] > lost / plain["bleu"]


def test_the_rates_were_tried_alike_and_the_best_is_that_of_the_lowest_loss():
    result = load_results("translation_rates")
    assert "+changes" not in result["commit"]
    losses = {name: {} for name in ("plain", "bahdanau", "transformer")}
    for each in result["runs"]:
        losses[each["model"]][each["learning_rate"]] = each["val_loss"]
        assert each["steps"] == result["runs"][0]["steps"]
    for name, tried in losses.items():
        assert result["best"][name] == min(tried, key=tried.__getitem__)
        assert min(tried) < result["best"][name] < max(tried)


def test_the_search_for_a_rate_ends_between_two_worse_ones():
    asked = []

    def loss_at(rate: float) -> float:
        asked.append(rate)
        return abs(math.log2(rate / 0.02))

    found = rates.search(loss_at, start=4e-3)
    assert min(found, key=found.__getitem__) == 1.6e-2
    assert {8e-3, 3.2e-2} <= set(found)
    assert sorted(asked) == sorted(found)
    assert list(rates.search(loss_at, start=1.6e-2)) == [1.6e-2, 3.2e-2, 8e-3]


def run_twice(start, own: dict[str, float], corpus: Corpus, folder: Path) -> dict:
    """What is recorded, by the second call too, which trains nothing."""
    call = {"work": folder / "work", "out": folder / "out.json", "seeds": (0, 4)}
    result = start(TINY, own, corpus, **call)
    assert json.loads((folder / "out.json").read_text()) == result
    assert start(TINY, own, corpus, **call) == result
    return result


def test_the_tuned_runs_have_every_model_at_its_own_rate(corpus, tmp_path):
    own = {"plain": 1e-2, "transformer": 5e-3}
    result = run_twice(tuned.run, own, corpus, tmp_path)
    assert (result["missing"], result["seeds"]) == ([], [0, 4])
    assert "learning_rate" not in result["setting"]
    for name, rate in own.items():
        entry = result["models"][name]
        assert entry["learning_rate"] == rate
        assert entry["bleu"] == [each["bleu"] for each in entry["runs"]]
        assert [each["seed"] for each in entry["runs"]] == [0, 4]
        assert all(each["steps"] == TINY.steps for each in entry["runs"])
        assert all(len(bucket["bleu"]) == 2 for bucket in entry["by_length"])
        losses = [each["val_loss"][-1]["loss"] for each in entry["runs"]]
        assert losses[0] != losses[1]


def bleu_of(counts: dict, reference_words: list[int]) -> float:
    """Corpus BLEU from the counts of every sentence."""
    words = counts["words"]
    shares = [
        sum(matches) / sum(max(count - order, 0) for count in words)
        for order, matches in enumerate(counts["matches"])
    ]
    brevity = min(1.0, math.exp(1 - sum(reference_words) / sum(words)))
    return 100 * brevity * math.prod(shares) ** (1 / len(shares))


def test_the_counts_of_sentences_are_enough_for_bleu():
    references = [pair[1] for pair in sentences(11, 7)]
    said = [text.replace("a ", "the ") for text in references[:5]] + references[5:]
    counts = paired.counts(said, references)
    assert len(counts["words"]) == len(counts["reference_words"]) == 11
    found = bleu_of(counts, counts["reference_words"])
    assert found == pytest.approx(measure.bleu(said, references)["bleu"], abs=0.01)
    assert found < 95


def test_the_paired_run_keeps_the_counts_of_both_models(corpus, tmp_path):
    own = {"bahdanau": 1e-2, "transformer": 5e-3}
    result = run_twice(paired.run, own, corpus, tmp_path)
    assert result["seeds"] == [0, 4]
    assert len(result["reference_words"]) == len(corpus.test)
    for name, rate in own.items():
        assert result["models"][name]["learning_rate"] == rate
        for each in result["models"][name]["runs"]:
            assert [len(row) for row in each["matches"]] == 4 * [len(corpus.test)]
    assert all(0 < each["p_value"] <= 1 for each in result["paired"])


def test_the_recorded_counts_give_sacrebleus_number():
    record = load_results("translation_paired")
    for model in record["models"].values():
        for each in model["runs"]:
            found = bleu_of(each, record["reference_words"])
            assert found == pytest.approx(each["bleu"], abs=0.01)
