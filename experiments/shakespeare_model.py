"""The language model that the package brings: a small Llama on tiny Shakespeare.

``python -m experiments.shakespeare_model`` trains it (about an hour of one core); stop it when you
like, the same command goes on where it was.
"""

import json
import math
import re
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attn_course.data import Characters, load_language_model, load_shakespeare
from attn_course.data.language_model import WEIGHTS, save_language_model
from attn_course.nn import (
    GatedFeedForward,
    LanguageModel,
    MultiHeadAttention,
    RMSNorm,
    RotaryPositions,
    TokenEmbedding,
    decoder_only,
    llama_like,
)
from attn_course.nn.language_model import init_residual
from attn_course.train import fit, stream, warmup_cosine
from attn_course.train.checkpoint import write_atomic
from experiments import keeping
from experiments.keeping import Clock
from experiments.language_model.corpus import Windows
from experiments.language_model.measure import (
    bits_per_character,
    next_character_loss,
    quick_bits,
)

RESULT = Path(__file__).with_name("results") / "shakespeare_model.json"
HEAD_DIM, TEMPERATURE = 32, 0.7
EMBED_DIM, NUM_HEADS, NUM_KV_HEADS, NUM_LAYERS, HIDDEN_DIM = 192, 6, 2, 6, 512
LENGTH, BATCH_SIZE, STEPS, WARMUP = 256, 8, 6000, 100
RATE, WEIGHT_DECAY, DROPOUT, SEED = 2.5e-3, 0.1, 0.1, 0
SNAPSHOTS = (0, 100, 300, 1000, 3000)


def build(vocab_size: int) -> LanguageModel:
    """RoPE, RMSNorm before each part, SwiGLU, grouped queries, no bias."""
    model = decoder_only(
        embedding=TokenEmbedding(vocab_size=vocab_size, embed_dim=EMBED_DIM, dropout=DROPOUT),
        num_layers=NUM_LAYERS,
        attention=partial(
            MultiHeadAttention,
            embed_dim=EMBED_DIM,
            num_heads=NUM_HEADS,
            num_kv_heads=NUM_KV_HEADS,
            bias=False,
            position=RotaryPositions(),
        ),
        feed_forward=partial(GatedFeedForward, embed_dim=EMBED_DIM, hidden_dim=HIDDEN_DIM),
        norm=partial(RMSNorm, embed_dim=EMBED_DIM),
        tied=False,
        dropout=DROPOUT,
    )
    init_residual(model, num_layers=NUM_LAYERS)
    return model


def corpus() -> tuple[str, Tensor, Tensor, Tensor]:
    """The alphabet of the training text; ids of training, validation and test text."""
    train, rest = load_shakespeare("train"), load_shakespeare("val")
    alphabet = "".join(sorted(set(train)))
    parts = (train, rest[: len(rest) // 2], rest[len(rest) // 2 :])
    ids = [torch.tensor([alphabet.index(letter) for letter in part]) for part in parts]
    return alphabet, ids[0], ids[1], ids[2]


def train(work: Path) -> None:
    """Train, with a checkpoint every 100 steps and the weights at ``SNAPSHOTS``."""
    work.mkdir(parents=True, exist_ok=True)
    alphabet, text, validation, _ = corpus()
    torch.manual_seed(SEED)
    model = build(len(alphabet))

    def loss(model: nn.Module, windows: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return next_character_loss(model, windows)

    def point(model: nn.Module) -> dict[str, float]:
        return {
            f"{name}_bits": round(
                quick_bits(model, ids, length=LENGTH, number=48, device=torch.device("cpu")), 4
            )
            for name, ids in (("train", text), ("val", validation))
        }

    def keep(step: int, history: Any) -> None:
        if step in SNAPSHOTS:
            torch.save(model.state_dict(), work / f"step{step}.pt")
        if step % 100 == 0:
            clock.save()
            recent = history.loss[-100:]
            print(
                step, sum(recent) / len(recent) / math.log(2), history.evaluations[-1:], flush=True
            )

    if not (work / "step0.pt").exists():
        torch.save(model.state_dict(), work / "step0.pt")
    with Clock(work / "seconds.json") as clock:
        fit(
            model,
            Windows(text, length=LENGTH, batch_size=BATCH_SIZE, seed=SEED),
            loss,
            optimizer=torch.optim.AdamW(
                model.parameters(), lr=RATE, weight_decay=WEIGHT_DECAY, betas=(0.9, 0.95)
            ),
            steps=STEPS,
            clip_norm=1.0,
            schedule=warmup_cosine(peak=RATE, warmup=WARMUP, steps=STEPS),
            seed=SEED,
            checkpoint_path=work / "checkpoint.pt",
            checkpoint_every=100,
            resume=True,
            progress=False,
            evaluate=point,
            eval_every=500,
            callbacks=[keep],
        )
    torch.save(model.state_dict(), work / f"step{STEPS}.pt")


def in_halves(model: LanguageModel, alphabet: str) -> LanguageModel:
    """The same function with the rotated pairs as two halves of each head, as Llama keeps them."""
    other = llama_like(**config(alphabet), position=RotaryPositions(interleaved=False))
    state = model.state_dict()
    for name, weight in state.items():
        if "query_projection" in name or "key_projection" in name:
            pairs = weight.unflatten(0, (-1, HEAD_DIM // 2, 2))  # (H, E / 2, 2, D)
            state[name] = pairs.transpose(1, 2).reshape(weight.shape)
    other.load_state_dict(state)
    return other.eval()


def config(alphabet: str) -> dict[str, Any]:
    """Arguments of ``llama_like``."""
    return {
        "vocab_size": len(alphabet),
        "embed_dim": EMBED_DIM,
        "num_heads": NUM_HEADS,
        "num_kv_heads": NUM_KV_HEADS,
        "num_layers": NUM_LAYERS,
        "hidden_dim": HIDDEN_DIM,
        "eps": 1e-6,
    }


def bits(model: LanguageModel, ids: Tensor) -> float:
    """Bits per character, each with 128 to 255 characters before it, but the first of the text."""
    found = bits_per_character(model, ids, length=LENGTH, device=torch.device("cpu"))
    return float(found["bits"])


def texts(model: LanguageModel, characters: Characters, known: set[str]) -> list[dict[str, Any]]:
    """Ten texts of 400 characters, a seed each, and the share of words that the plays have."""
    found = []
    for seed in range(10):
        drawn = stream(
            model, characters.encode("\n"), context=LENGTH, temperature=TEMPERATURE, seed=seed
        )
        text = "".join(characters.alphabet[token] for token in islice(drawn, 400))
        words = re.findall("[A-Za-z]+", text)[:-1]  # the last one may be cut off
        share = sum(word.lower() in known for word in words) / len(words)
        found.append({"seed": seed, "text": text, "known_words": round(share, 3)})
    return found


def finish(work: Path) -> dict[str, Any]:
    """Write the weights that the package brings, and measure what they do."""
    alphabet, _, validation, test = corpus()
    trained = build(len(alphabet))
    growth, known = [], set(re.findall("[a-z]+", load_shakespeare("train").lower()))
    for step in (*SNAPSHOTS, STEPS):
        trained.load_state_dict(torch.load(work / f"step{step}.pt"))
        model = in_halves(trained.eval(), alphabet)
        drawn = stream(model, Characters(alphabet).encode("ROMEO:\n"), temperature=0.7, seed=0)
        growth.append(
            {
                "step": step,
                "val_bits": round(
                    quick_bits(
                        model, validation, length=LENGTH, number=48, device=torch.device("cpu")
                    ),
                    4,
                ),
                "text": "".join(alphabet[token] for token in islice(drawn, 160)),
            }
        )
    full = {"validation": bits(model, validation), "test": bits(model, test)}
    history = torch.load(work / "checkpoint.pt", weights_only=False)["history"]
    card = {
        "about": "a small Llama on tiny Shakespeare, character by character; it writes in the "
        "manner of the plays and understands nothing; trained with windows of 256 characters",
        "config": config(alphabet),
        "alphabet": alphabet,
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "data": "tiny Shakespeare, public domain: the first nine tenths for training, the rest in "
        "two halves for validation and test",
        "recipe": f"AdamW, peak rate {RATE}, cosine, weight decay {WEIGHT_DECAY}, dropout "
        f"{DROPOUT}, {STEPS} steps of {BATCH_SIZE} windows, bfloat16, seed {SEED}",
        "cpu_seconds": round(json.loads((work / "seconds.json").read_text())["cpu"]),
        "float32_bits": full,
        "licence": "text in the public domain, weights under the licence of the code",
    }
    save_language_model(model, WEIGHTS, card=card)
    model, characters = load_language_model()
    card["int8_bits"] = {"validation": bits(model, validation), "test": bits(model, test)}
    save_language_model(in_halves(trained, alphabet), WEIGHTS, card=card)
    return {
        "card": card,
        "curve": history["evaluations"] if isinstance(history, dict) else history.evaluations,
        "growth": growth,
        "texts": texts(model, characters, known),
    }


def main() -> None:
    """Train, write the weights, keep the record."""
    torch.set_num_threads(1)
    work = Path("runs/shakespeare_model")
    train(work)
    result = finish(work)
    record = {
        "experiment": "shakespeare_model",
        "seeds": [SEED],
        **result,
        "date": keeping.today(),
        "commit": keeping.commit(("attn_course", "experiments")),
        "code": keeping.code_hash(Path(__file__)),
        **keeping.where(torch.device("cpu"), ("torch",)),
    }
    write_atomic(keeping.laid_out(record).encode(), RESULT)


if __name__ == "__main__":
    main()
