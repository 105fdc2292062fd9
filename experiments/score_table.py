"""Seven scores, two windows and three other changes on one task, stopped before all have solved it.

Everything but the score, the window or the order is the same for all: encoder, sizes, batches,
steps. Recorded for each model: sentences right, alignment error rate and alignment mass, also on
longer sentences, and the CPU-seconds of the training. After 200 steps nearly all sentences are
right whatever the score is; 100 steps leave room for differences.
``python -m experiments.score_table`` repeats the recorded runs.
"""

import time
from typing import Any

import torch
from torch import Tensor, nn

from attn_course.data import BOS, EOS, translation
from attn_course.data.batch import Batch
from attn_course.data.toy_translation import (
    TRANSLATION_SOURCE_VOCABULARY,
    TRANSLATION_TARGET_VOCABULARY,
)
from attn_course.functional import tanh_score
from attn_course.nn import (
    AttentionEncoderDecoder,
    BahdanauDecoder,
    BidirectionalEncoder,
    LocalM,
    LocalP,
    LuongDecoder,
    make_score,
)
from attn_course.train import (
    alignment_error_rate,
    fit,
    greedy_decode,
    sequence_accuracy,
    teacher_forcing_loss,
    warmup_cosine,
)
from attn_course.train.metrics import alignment_mass
from experiments.repeat import repeat

SIZE, STEPS, BATCH = 48, 100, 64
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "dot": {"score": "dot"},
    "scaled dot": {"score": "scaled_dot"},
    "general": {"score": "general"},
    "additive": {"score": "additive"},
    "concat": {"score": "concat"},
    "location": {"score": "location"},
    "cosine": {"score": "cosine"},
    "general, local-m, D = 2": {"window": "local-m", "reach": 2},
    "general, local-m, D = 4": {"window": "local-m", "reach": 4},
    "general, local-p, D = 2": {"window": "local-p", "reach": 2},
    "general, not fed": {"input_feeding": False},
    "additive, Bahdanau": {"score": "additive", "decoder": BahdanauDecoder},
    "concat, key as it is": {"score": "identity concat"},
}


class FusedGRU(nn.GRUCell):
    """torch's own cell: the same numbers as the course's in less than half of the time."""

    def __init__(self, *, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size)

    def initial_state(self, inputs: Tensor) -> Tensor:
        return inputs.new_zeros(inputs.shape[0], self.hidden_size)


class IdentityConcat(nn.Module):
    """What Luong's experiments called concat: the key's half of the matrix is the identity."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(SIZE, SIZE).uniform_(-1, 1) / SIZE**0.5)
        self.v = nn.Parameter(torch.empty(SIZE).uniform_(-1, 1) / SIZE**0.5)

    def prepare(self, key: Tensor) -> Tensor:
        return key

    def compare(self, query: Tensor, prepared: Tensor) -> Tensor:
        return tanh_score(query @ self.weight.T, prepared, self.v)


def build(
    seed: int,
    *,
    score: str = "general",
    window: str | None = None,
    reach: int = 0,
    decoder: type[nn.Module] = LuongDecoder,
    **options: Any,
) -> AttentionEncoderDecoder:
    torch.manual_seed(seed)
    if score == "identity concat":
        made: nn.Module = IdentityConcat()
    else:
        sizes = {"query_size": SIZE, "key_size": SIZE, "hidden_size": SIZE}
        made = make_score(score, **sizes, max_length=16)
    if window == "local-m":
        options["window"] = LocalM(half_width=reach)
    elif window == "local-p":
        options["window"] = LocalP(half_width=reach, query_size=SIZE)
    return AttentionEncoderDecoder(
        encoder=BidirectionalEncoder(
            vocab_size=len(TRANSLATION_SOURCE_VOCABULARY),
            embed_dim=24,
            hidden_size=SIZE // 2,
            cell=FusedGRU,
        ),
        decoder=decoder(
            vocab_size=len(TRANSLATION_TARGET_VOCABULARY),
            embed_dim=24,
            context_size=SIZE,
            summary_size=SIZE // 2,
            hidden_size=SIZE,
            score=made,
            cell=FusedGRU,
            **options,
        ),
    )


@torch.no_grad()
def measure(model: AttentionEncoderDecoder, batch: Batch) -> dict[str, float]:
    """Share of sentences right when the model decodes freely; error rate and mass of its links."""
    weights = model.align(batch.source, batch.source_lengths, batch.target_in)
    start = model.init_state(batch.source, batch.source_lengths)
    longest = batch.target_out.shape[1] + 1
    said = greedy_decode(model.step, start, bos=BOS, eos=EOS, max_length=longest)
    found = {
        "right": sequence_accuracy(said.tokens, batch.target_out),
        "aer": alignment_error_rate(weights, batch.alignment),
        "mass": alignment_mass(weights, batch.alignment),
    }
    return {name: round(value, 4) for name, value in found.items()}


def train(model: AttentionEncoderDecoder, batches: list[Batch]) -> float:
    """Train on these batches; returns CPU-seconds."""
    start = time.process_time()
    fit(
        model,
        batches,
        teacher_forcing_loss,
        optimizer=torch.optim.Adam(model.parameters()),
        steps=len(batches),
        schedule=warmup_cosine(peak=1e-2, warmup=20, steps=STEPS, floor=1e-4),
        clip_norm=1.0,
        progress=False,
    )
    return time.process_time() - start


def run(seed: int) -> dict[str, Any]:
    """Train every configuration from one seed, on the same batches in the same order."""
    generator = torch.Generator().manual_seed(seed)
    training = [translation(BATCH, generator) for _ in range(STEPS)]
    held_out = translation(500, torch.Generator().manual_seed(10_001))
    longer = translation(300, torch.Generator().manual_seed(10_002), max_adjectives=4)
    train(build(seed), training[:3])  # the first steps of a process are slow
    results: dict[str, Any] = {}
    for name, options in CONFIGURATIONS.items():
        model = build(seed, **options)
        seconds = round(train(model, training), 2)
        on_longer = {f"{what}, longer": value for what, value in measure(model, longer).items()}
        results[name] = {**measure(model, held_out), **on_longer, "seconds": seconds}
    return results


if __name__ == "__main__":
    repeat(run, __file__)
