"""Small complete runs by name: ``attn-course train NAME``."""

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from attn_course.data import (
    BOS,
    EOS,
    Batch,
    BatchStream,
    Vocabulary,
    date_normalisation,
    reversal,
    translation,
)
from attn_course.data.dates import DATE_SOURCE_VOCABULARY, DATE_TARGET_VOCABULARY
from attn_course.data.tasks import symbol_vocabulary
from attn_course.data.toy_translation import (
    TRANSLATION_SOURCE_VOCABULARY,
    TRANSLATION_TARGET_VOCABULARY,
)
from attn_course.nn import Decoder, Encoder, EncoderDecoder
from attn_course.train.checkpoint import require_writable, write_atomic
from attn_course.train.decoding import greedy_decode
from attn_course.train.history import History
from attn_course.train.loop import fit
from attn_course.train.losses import teacher_forcing_loss
from attn_course.train.metrics import sequence_accuracy, token_accuracy
from attn_course.train.schedules import warmup_cosine

_LETTERS = symbol_vocabulary(8)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A task and the sizes that suit it; the model is ``EncoderDecoder`` with GRU cells.

    Attributes:
        summary: One line.
        sample: The task.
        source: Vocabulary of the source.
        target: Vocabulary of the target.
        separator: Stands between tokens when a sequence is shown.
        hidden_size: Size of the context vector and of the decoder's state.
        steps: Default length of a run.
    """

    summary: str
    sample: Callable[[int, torch.Generator], Batch]
    source: Vocabulary
    target: Vocabulary
    separator: str
    hidden_size: int = 96
    embed_dim: int = 32
    batch_size: int = 64
    learning_rate: float = 5e-3
    clip_norm: float = 1.0
    steps: int = 1000

    def build(self, seed: int) -> EncoderDecoder:
        """The untrained model of a seed."""
        torch.manual_seed(seed)
        return EncoderDecoder(
            encoder=Encoder(
                vocab_size=len(self.source),
                embed_dim=self.embed_dim,
                hidden_size=self.hidden_size,
            ),
            decoder=Decoder(
                vocab_size=len(self.target),
                embed_dim=self.embed_dim,
                context_size=self.hidden_size,
                hidden_size=self.hidden_size,
            ),
        )

    def held_out(self, number: int = 500) -> Batch:
        """Drawn from a generator that no training run uses (their seeds are not negative)."""
        return self.sample(number, torch.Generator().manual_seed(-1))


RECIPES = {
    "reversal": Recipe(
        summary="say 1 to 10 letters backwards",
        sample=functools.partial(reversal, num_symbols=8, max_length=10),
        source=_LETTERS,
        target=_LETTERS,
        separator=" ",
    ),
    "dates": Recipe(
        summary="'3rd of may 1987' to '1987-05-03', character by character",
        sample=date_normalisation,
        source=DATE_SOURCE_VOCABULARY,
        target=DATE_TARGET_VOCABULARY,
        separator="",
    ),
    "translation": Recipe(
        summary="'the old dog sees a house' to 'le chien vieux une maison voit'",
        sample=translation,
        source=TRANSLATION_SOURCE_VOCABULARY,
        target=TRANSLATION_TARGET_VOCABULARY,
        separator=" ",
    ),
}


@torch.no_grad()
def decode(model: EncoderDecoder, batch: Batch) -> torch.Tensor:
    """Greedy output ids for a batch, one step longer than its longest target."""
    state = model.init_state(batch.source, batch.source_lengths)
    length = batch.target_out.shape[1] + 1
    return greedy_decode(model.step, state, bos=BOS, eos=EOS, max_length=length).tokens


def evaluate(model: EncoderDecoder, batch: Batch) -> dict[str, float]:
    """Share of right symbols and of wholly right sequences of greedy decoding."""
    tokens = decode(model, batch)
    return {
        "symbols": token_accuracy(tokens, batch.target_out),
        "sequences": sequence_accuracy(tokens, batch.target_out),
    }


def by_length(model: EncoderDecoder, batch: Batch) -> dict[int, float]:
    """Share of wholly right sequences for each source length."""
    right = {}
    tokens = decode(model, batch)
    for length in sorted(set(batch.source_lengths.tolist())):
        rows = batch.source_lengths == length
        right[length] = sequence_accuracy(tokens[rows], batch.target_out[rows])
    return right


def run_recipe(
    name: str,
    *,
    folder: str | os.PathLike[str],
    steps: int | None = None,
    seed: int = 0,
    resume: bool = False,
    progress: bool | None = None,
) -> tuple[EncoderDecoder, History]:
    """Train, save ``checkpoint.pt`` and ``history.json`` in ``folder``.

    The same name, steps and seed give the same parameters, interrupted and resumed or not.

    Args:
        name: Which of ``RECIPES``.
        folder: Made if it is missing.
        steps: Updates of the whole run; also the length of the learning-rate schedule.
        seed: Of parameters and data, not negative.
        resume: Go on from the checkpoint in ``folder``.
        progress: As in ``fit``.

    Raises:
        ValueError: If there is no such recipe, ``steps < 1``, ``seed < 0``, there is a run in
            ``folder`` that would be overwritten, nothing to resume, or ``folder`` cannot be
            written.
    """
    if name not in RECIPES:
        raise ValueError(f"name: expected one of {', '.join(RECIPES)}, got {name}")
    recipe, folder = RECIPES[name], Path(folder)
    steps = recipe.steps if steps is None else steps
    if steps < 1 or seed < 0:
        raise ValueError(f"steps, seed: expected at least 1 and 0, got {steps} and {seed}")
    checkpoint, settings = folder / "checkpoint.pt", folder / "settings.json"
    wanted = {"recipe": name, "steps": steps, "seed": seed}
    if resume:
        if not checkpoint.exists():
            raise ValueError(f"resume: expected a checkpoint in {folder}, found none")
        found = json.loads(settings.read_text())
        if found != wanted:
            raise ValueError(f"resume: expected the settings of {folder}, {found}, got {wanted}")
    elif checkpoint.exists():
        raise ValueError(f"folder: {folder} holds a run: resume it or choose another folder")
    require_writable("folder", settings)
    write_atomic(json.dumps(wanted).encode(), settings)

    model, held_out = recipe.build(seed), recipe.held_out()
    history = fit(
        model,
        BatchStream(recipe.sample, batch_size=recipe.batch_size, seed=seed),
        teacher_forcing_loss,
        optimizer=torch.optim.Adam(model.parameters(), lr=recipe.learning_rate),
        steps=steps,
        clip_norm=recipe.clip_norm,
        schedule=warmup_cosine(
            peak=recipe.learning_rate, warmup=min(50, steps - 1), steps=steps, floor=1e-4
        ),
        seed=seed,
        checkpoint_path=checkpoint,
        checkpoint_every=100,
        resume=resume,
        progress=progress,
        evaluate=lambda trained: evaluate(trained, held_out),  # type: ignore[arg-type]
        eval_every=max(1, steps // 5),
    )
    write_atomic(json.dumps(history.state_dict()).encode(), folder / "history.json")
    return model, history


def report(name: str, model: EncoderDecoder, history: History) -> list[str]:
    """Lines on how a run ended: accuracy, accuracy by length, three examples."""
    recipe = RECIPES[name]
    held_out = recipe.held_out()
    final = history.evaluations[-1]
    lines = [
        f"{len(history)} steps, {sum(history.seconds):.0f} s, loss {history.loss[-1]:.3f}",
        f"held out: {final['symbols']:.1%} of symbols, {final['sequences']:.1%} of sequences right",
        "by source length: "
        + "  ".join(f"{n}: {share:.0%}" for n, share in by_length(model, held_out).items()),
    ]
    tokens = decode(model, held_out)
    for row in range(3):
        said = recipe.separator.join(recipe.target.decode(tokens[row]))
        asked = recipe.separator.join(recipe.source.decode(held_out.source[row]))
        lines.append(f"  {asked}  ->  {said}")
    return lines
