"""The small Llama of the package against an LSTM of equal compute, and on byte pairs.

``python -m experiments.language_contest`` (about an hour of one core; stop it when you like, the
same command goes on where it was) measures what a step of each model costs, gives all the same
processor time, looks for the rate of each side on the validation text until the best lies inside
the rates tried, and trains three seeds at the best. The test text is read once, by the trained
models. The first seed of the Transformer is kept at some steps, for the explorer ``growing_up``.
The draft for speculative decoding is trained and written here, too.
"""

import argparse
import gzip
import json
import math
import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attn_course.analysis import previous_token_score
from attn_course.data import BytePairs, Characters, load_language_model, load_shakespeare
from attn_course.data.language_model import DRAFT as DRAFT_FILE
from attn_course.data.language_model import save_language_model
from attn_course.nn import (
    GatedFeedForward,
    LanguageModel,
    MultiHeadAttention,
    RMSNorm,
    RotaryPositions,
    TokenEmbedding,
    capture,
    decoder_only,
    llama_like,
)
from attn_course.nn.language_model import init_residual
from attn_course.train import fit, stream, warmup_cosine
from attn_course.train.checkpoint import write_atomic
from experiments import keeping
from experiments.keeping import Clock, say
from experiments.language_model.corpus import Windows
from experiments.language_model.counting import NGrams
from experiments.language_model.measure import next_character_loss, spread
from experiments.language_model.models import LSTMLanguageModel, count
from experiments.shakespeare_model import (
    BATCH_SIZE,
    DROPOUT,
    LENGTH,
    TEMPERATURE,
    WEIGHT_DECAY,
    bits,
    build,
    corpus,
)

RESULT = Path(__file__).with_name("results") / "language_contest.json"
STEPS, SEEDS, VOCAB_SIZE = 200, (0, 1, 2), 1024  # steps of the largest Transformer
PROMPT, LINE = "ROMEO:\n", "Good morrow, neighbour."
SNAPSHOTS = (0, 30, 100, 300)  # and the last
DRAFT: dict[str, Any] = {  # arguments of llama_like
    "embed_dim": 64,
    "num_heads": 2,
    "num_kv_heads": 1,
    "num_layers": 2,
    "hidden_dim": 172,
    "eps": 1e-6,
}
DRAFT_RATE, DRAFT_STEPS = 5e-3, 9060


def small_transformer(vocab_size: int) -> LanguageModel:
    """The shipped architecture with three blocks of width 96."""
    model = decoder_only(
        embedding=TokenEmbedding(vocab_size=vocab_size, embed_dim=96, dropout=DROPOUT),
        num_layers=3,
        attention=partial(
            MultiHeadAttention,
            embed_dim=96,
            num_heads=3,
            num_kv_heads=1,
            bias=False,
            position=RotaryPositions(),
        ),
        feed_forward=partial(GatedFeedForward, embed_dim=96, hidden_dim=256),
        norm=partial(RMSNorm, embed_dim=96),
        tied=False,
        dropout=DROPOUT,
    )
    init_residual(model, num_layers=3)
    return model


def lstm(width: int) -> Callable[[int], LSTMLanguageModel]:
    """Two layers with a state of this size."""
    return lambda vocab_size: LSTMLanguageModel(
        vocab_size=vocab_size, hidden_size=width, num_layers=2, dropout=DROPOUT
    )


MODELS: dict[str, Callable[[int], Any]] = {
    "transformer 6 x 192": build,
    "transformer 3 x 96": small_transformer,
    "lstm 2 x 256": lstm(256),
    "lstm 2 x 384": lstm(384),
    "pairs 3 x 96": small_transformer,
    "draft": lambda vocab_size: llama_like(
        vocab_size=vocab_size, **DRAFT, position=RotaryPositions(interleaved=False)
    ),
}
# shapes of each side, and the rates that each is tried at first
SIDES = {
    "transformer": {
        "transformer 3 x 96": (5e-3, 1e-2, 2e-2),
        "transformer 6 x 192": (2.5e-3,),
    },
    "lstm": {
        "lstm 2 x 256": (2e-3, 4e-3, 8e-3, 1.6e-2),
        "lstm 2 x 384": (8e-3, 1.6e-2),
    },
}


def loss(model: nn.Module, windows: Tensor) -> Tensor:
    """Mean nats of a token, with products in bfloat16."""
    with torch.autocast("cpu", torch.bfloat16):
        return next_character_loss(model, windows)


def optimizer_of(model: nn.Module, rate: float) -> torch.optim.AdamW:
    """That of the shipped model, for every side."""
    return torch.optim.AdamW(
        model.parameters(), lr=rate, weight_decay=WEIGHT_DECAY, betas=(0.9, 0.95)
    )


def texts(name: str) -> tuple[BytePairs | Characters, Tensor, Tensor, Tensor]:
    """Tokenizer, of the training text alone; ids of training, validation and test text."""
    alphabet, train, validation, test = corpus()
    characters = Characters(alphabet)
    if not name.startswith("pairs"):
        return characters, train, validation, test
    pairs = BytePairs.train(load_shakespeare("train"), vocab_size=VOCAB_SIZE)
    parts = [pairs.encode(characters.decode(ids)) for ids in (train, validation, test)]
    return pairs, parts[0], parts[1], parts[2]


def costs(work: Path) -> dict[str, float]:
    """CPU-seconds of a step of each model: the least of 30, measured in turns."""
    path = work / "costs.json"
    if not path.exists():
        sizes = {name: VOCAB_SIZE if name.startswith("pairs") else 65 for name in MODELS}
        models = {name: make(sizes[name]) for name, make in MODELS.items()}
        optimizers = {name: optimizer_of(model, 1e-3) for name, model in models.items()}
        found = dict.fromkeys(MODELS, math.inf)
        for _ in range(30):
            for name, model in models.items():
                windows = torch.randint(sizes[name], (BATCH_SIZE, LENGTH + 1))
                started = time.process_time()
                optimizers[name].zero_grad()
                loss(model, windows).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizers[name].step()
                found[name] = min(found[name], time.process_time() - started)
        write_atomic(json.dumps(found).encode(), path)
    seconds: dict[str, float] = json.loads(path.read_text())
    return seconds


def steps_of(name: str, work: Path) -> int:
    """As many as cost the same as those of the largest Transformer; the draft is in no contest."""
    seconds = costs(work)
    if name == "draft":
        return DRAFT_STEPS
    return round(STEPS * seconds["transformer 6 x 192"] / seconds[name] / 5) * 5


def folder_of(name: str, work: Path, rate: float, seed: int, steps: int) -> Path:
    """Where one training is kept."""
    return work / f"{name.replace(' ', '')}-rate{rate:g}-seed{seed}-steps{steps}"


def train(name: str, work: Path, *, rate: float, seed: int) -> dict[str, Any]:
    """Train one model, from its checkpoint if there is one."""
    steps = steps_of(name, work)
    folder = folder_of(name, work, rate, seed, steps)
    result = folder / "result.json"
    if not result.exists():
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer, text, validation, _ = texts(name)
        torch.manual_seed(seed)
        model = MODELS[name](len(tokenizer))

        def keep(step: int, history: Any) -> None:
            if step in (*SNAPSHOTS, steps) and name.startswith("transformer"):
                torch.save(model.state_dict(), folder / f"step{step}.pt")
            if step % 50 == 0:
                clock.save()
                recent = history.loss[-50:]
                say(f"{folder.name} {step} {sum(recent) / len(recent) / math.log(2):.4f}")

        if not (folder / "step0.pt").exists():
            torch.save(model.state_dict(), folder / "step0.pt")
        with Clock(folder / "seconds.json") as clock:
            history = fit(
                model,
                Windows(text, length=LENGTH, batch_size=BATCH_SIZE, seed=seed),
                loss,
                optimizer=optimizer_of(model, rate),
                steps=steps,
                clip_norm=1.0,
                schedule=warmup_cosine(peak=rate, warmup=steps // 10, steps=steps),
                seed=seed,
                checkpoint_path=folder / "checkpoint.pt",
                checkpoint_every=50,
                resume=True,
                progress=False,
                callbacks=[keep],
            )
            spent = clock.read()
        model.eval()
        entry = {
            "rate": rate,
            "seed": seed,
            "steps": steps,
            "parameters": count(model),
            "train_bits": [  # per token, a mean over each tenth of the steps
                round(tenth.mean().item() / math.log(2), 4)
                for tenth in torch.tensor(history.loss).tensor_split(10)
            ],
            "validation": round(bits(model, validation), 4),
            "cpu_seconds": round(spent["cpu"], 1),
        }
        torch.save(model.state_dict(), folder / "model.pt")
        write_atomic(json.dumps(entry).encode(), result)
        say(f"{folder.name} {entry}")
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def search(side: str, work: Path) -> dict[str, dict[float, float]]:
    """Validation bits by shape and rate, with more rates until the best of all lies inside."""
    tried = {
        name: {rate: train(name, work, rate=rate, seed=0)["validation"] for rate in rates}
        for name, rates in SIDES[side].items()
    }
    while True:
        name = min(tried, key=lambda each: min(tried[each].values()))
        best, rates = min(tried[name], key=tried[name].__getitem__), sorted(tried[name])
        if rates[0] < best < rates[-1]:
            return tried
        new = best / 2 if best == rates[0] else best * 2
        tried[name][new] = train(name, work, rate=new, seed=0)["validation"]


def chosen(side: str, work: Path) -> tuple[str, float]:
    """The shape and the rate with the fewest validation bits; byte pairs take the characters'."""
    if side == "pairs":
        return "pairs 3 x 96", chosen("transformer", work)[1]
    tried = search(side, work)
    name = min(tried, key=lambda each: min(tried[each].values()))
    return name, min(tried[name], key=tried[name].__getitem__)


def contend(side: str, work: Path) -> None:
    """The best rate of the side's best shape with every seed; byte pairs with one seed."""
    name, rate = chosen(side, work)
    for seed in SEEDS[:1] if side == "pairs" else SEEDS:
        train(name, work, rate=rate, seed=seed)


def trained(name: str, folder: Path, vocab_size: int, weights: str = "model.pt") -> Any:
    """A model with kept weights."""
    model = MODELS[name](vocab_size)
    model.load_state_dict(torch.load(folder / weights))
    return model.eval()


def ship_draft(work: Path) -> dict[str, Any]:
    """Write the draft that the package brings; its card."""
    entry = train("draft", work, rate=DRAFT_RATE, seed=0)
    alphabet, _, validation, test = corpus()
    folder = folder_of("draft", work, DRAFT_RATE, 0, DRAFT_STEPS)
    model = trained("draft", folder, len(alphabet))
    card = {
        "about": "a draft for speculative decoding of the model beside it: the same characters and "
        "text, two small blocks",
        "config": {"vocab_size": len(alphabet), **DRAFT},
        "alphabet": alphabet,
        "parameters": entry["parameters"],
        "data": "tiny Shakespeare, public domain: the first nine tenths",
        "recipe": f"AdamW, peak rate {DRAFT_RATE}, cosine, weight decay {WEIGHT_DECAY}, "
        f"{DRAFT_STEPS} steps of {BATCH_SIZE} windows of {LENGTH} characters, bfloat16, seed 0",
        "cpu_seconds": round(entry["cpu_seconds"]),
        "float32_bits": {"validation": bits(model, validation), "test": bits(model, test)},
        "licence": "text in the public domain, weights under the licence of the code",
    }
    save_language_model(model, DRAFT_FILE, card=card)
    model, _ = load_language_model("draft")
    card["int8_bits"] = {"validation": bits(model, validation), "test": bits(model, test)}
    save_language_model(model, DRAFT_FILE, card=card)
    return card


def measured(side: str, work: Path) -> dict[str, Any] | None:
    """All finished runs of a side with their bits per character, the test part included."""
    tokenizer, _, validation, test = texts(side)
    name, rate = chosen(side, work)
    found = []
    for seed in SEEDS:
        folder = folder_of(name, work, rate, seed, steps_of(name, work))
        if not (folder / "result.json").exists():
            continue
        entry = json.loads((folder / "result.json").read_text())
        if not (folder / "test.json").exists():
            model = trained(name, folder, len(tokenizer))
            write_atomic(json.dumps(bits(model, test)).encode(), folder / "test.json")
        entry["test"] = json.loads((folder / "test.json").read_text())
        for part, ids in (("validation", validation), ("test", test)):
            characters = len(tokenizer.decode(ids))
            entry[part] = round(entry[part] * len(ids) / characters, 4)
        found.append(entry)
    if not found:
        return None
    return {"model": name, "rate": rate, "parameters": found[0]["parameters"], "runs": found}


def samples(side: str, work: Path) -> list[dict[str, Any]]:
    """Ten texts of 400 characters, a seed each, and the share of words that the plays have."""
    tokenizer, *_ = texts(side)
    name, rate = chosen(side, work)
    folder = folder_of(name, work, rate, 0, steps_of(name, work))
    model, found = trained(name, folder, len(tokenizer)), []
    known = set(re.findall("[a-z]+", load_shakespeare("train").lower()))
    for seed in range(10):
        drawn = stream(
            model, tokenizer.encode("\n"), context=LENGTH, temperature=TEMPERATURE, seed=seed
        )
        text = ""
        ids: list[int] = []
        while len(text) < 400:
            ids += islice(drawn, 50)
            text = tokenizer.decode(torch.tensor(ids))
        text = text[:400]
        words = re.findall("[A-Za-z]+", text)[:-1]  # the last one may be cut off
        share = sum(word.lower() in known for word in words) / len(words)
        found.append({"seed": seed, "text": text, "known_words": round(share, 3)})
    return found


@torch.no_grad()
def growing_up(work: Path) -> dict[str, Any]:
    """Bits, a text and one head's map at some steps of the Transformer with the first seed.

    The head is the one that attends most to the character just before, after the last step.
    """
    tokenizer, _, validation, _ = texts("transformer")
    name, rate = chosen("transformer", work)
    steps = steps_of(name, work)
    folder = folder_of(name, work, rate, 0, steps)
    windows = spread(validation, length=LENGTH, number=16)[:, :-1]

    def maps(model: Any, ids: Tensor) -> Tensor:
        with capture(model, "blocks.*.attention.weights") as seen:
            model(ids)
        return torch.cat([each for _, each in sorted(seen.items())], 1)  # (B, blocks * H, L, L)

    model = trained(name, folder, len(tokenizer))
    scores = previous_token_score(maps(model, windows)).mean(0)
    head, heads = int(scores.argmax()), len(scores) // len(model.blocks)
    stages = []
    for step in (*SNAPSHOTS, steps):
        model = trained(name, folder, len(tokenizer), f"step{step}.pt")
        drawn = stream(model, tokenizer.encode(PROMPT), temperature=TEMPERATURE, seed=0)
        weights = maps(model, tokenizer.encode(LINE)[None])[0, head]
        stages.append(
            {
                "step": step,
                "bits": round(bits(model, validation), 4),
                "previous": round(
                    float(previous_token_score(maps(model, windows))[:, head].mean()), 4
                ),
                "text": tokenizer.decode(torch.tensor(list(islice(drawn, 120)))),
                "weights": [
                    (100 * row[: i + 1]).round().int().tolist() for i, row in enumerate(weights)
                ],
            }
        )
    return {
        "line": LINE,
        "prompt": PROMPT,
        "temperature": TEMPERATURE,
        "model": name,
        "layer": head // heads + 1,
        "head": head % heads + 1,
        "stages": stages,
    }


def verdict(sides: dict[str, Any], part: str) -> dict[str, Any]:
    """Which side has fewer bits: with every seed, or not."""
    found = {side: [run[part] for run in sides[side]["runs"]] for side in ("transformer", "lstm")}
    medians = {side: statistics.median(each) for side, each in found.items()}
    ahead, behind = sorted(medians, key=medians.__getitem__)
    return {
        "ahead": ahead,
        "by": round(medians[behind] - medians[ahead], 4),
        "with every seed": max(found[ahead]) < min(found[behind]),
    }


def references() -> dict[str, float]:
    """Bits per character of the test part by gzip, by counting, and by the shipped model."""
    alphabet, train, _, test = corpus()
    characters = Characters(alphabet)
    known, text = characters.decode(train), characters.decode(test)
    counted = NGrams(known, order=5, alphabet=alphabet).bits(text)[-1]
    shipped, _ = load_language_model()
    return {
        "gzip": round(8 * len(gzip.compress(text.encode(), 9)) / len(text), 4),
        "counting runs of 5": round(counted, 4),
        "shipped model": bits(shipped, test),
    }


def finish(work: Path) -> dict[str, Any]:
    """The record, of what has been trained."""
    sides = {
        side: found for side in (*SIDES, "pairs") if (found := measured(side, work)) is not None
    }
    grids = {side: search(side, work) for side in SIDES}

    def listed(tried: dict[float, float]) -> list[dict[str, float]]:
        return [{"learning_rate": rate, "val_bits": tried[rate]} for rate in sorted(tried)]

    return {
        "experiment": "language_contest",
        "about": "tiny Shakespeare, equal processor time: bits per character",
        "seeds": list(SEEDS),
        "missing": [
            f"{side}, seed {seed}"
            for side in ("transformer", "lstm")
            for seed in SEEDS
            if seed not in [run["seed"] for run in sides[side]["runs"]]
        ],
        "seconds_a_step": {name: round(seconds, 4) for name, seconds in costs(work).items()},
        "rates": {side: listed(grids[side][sides[side]["model"]]) for side in grids},
        "other shapes": {
            name: listed(tried)
            for side in grids
            for name, tried in grids[side].items()
            if name != sides[side]["model"]
        },
        "models": sides,
        "references": references(),
        "verdict": {part: verdict(sides, part) for part in ("validation", "test")},
        "samples": {side: samples(side, work) for side in sides if side != "lstm"},
        "growing up": growing_up(work),
        "draft": ship_draft(work),
        "date": keeping.today(),
        "commit": keeping.commit(("attn_course", "experiments")),
        "code": keeping.code_hash(Path(__file__)),
        **keeping.where(torch.device("cpu"), ("torch",)),
    }


def main() -> None:
    """Train everything that is not trained yet, write the draft, keep the record."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/language_contest"))
    work = parser.parse_args().work
    for side in (*SIDES, "pairs"):
        contend(side, work)
    write_atomic(keeping.laid_out(finish(work)).encode(), RESULT)


if __name__ == "__main__":
    main()
