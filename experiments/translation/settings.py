"""The two sizes of the experiment: what one CPU core does in under an hour, and a GPU's."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that the numbers depend on, but the seed.

    Attributes:
        name: Goes into file names.
        models: Which models, in the order of the table; see ``experiments.translation.models``.
        train_pairs: The first so many pairs of the training text; all, if None.
        vocab_size: Sub-word pieces of each language, the four reserved ones included.
        embed_dim: Size of an embedding, source and target.
        parameters: Budget that the hidden size of every model is fitted to, within 1 %.
        batch_size: Pairs per step.
        steps: Updates of every model.
        learning_rate: Peak of warm-up and cosine.
        warmup: Steps of the linear rise.
        clip_norm: Largest norm of the gradient.
        eval_every: Steps between measurements of the validation loss.
        checkpoint_every: Steps between checkpoints.
        beam_size: Hypotheses of the beam search that the BLEU in the table comes from.
        length_penalty: Of that beam search.
        max_length: Longest output, in pieces.
        device: What the setting is meant for.
    """

    name: str
    models: tuple[str, ...]
    train_pairs: int | None = None
    vocab_size: int
    embed_dim: int
    parameters: int
    batch_size: int
    steps: int
    learning_rate: float
    warmup: int
    clip_norm: float = 1.0
    eval_every: int
    checkpoint_every: int
    beam_size: int = 5
    length_penalty: float = 1.0
    max_length: int = 60
    device: str

    def as_json(self) -> dict[str, Any]:
        """Plain values only."""
        return {**asdict(self), "models": list(self.models)}


MODELS = (
    "plain",
    "bahdanau",
    "dot",
    "general",
    "concat",
    "location",
    "bahdanau_forward",
    "scaled_dot",
    "cosine",
    "transformer",
)

SETTINGS = {
    "reduced": Setting(
        name="reduced",
        models=MODELS,
        vocab_size=1000,
        embed_dim=64,
        parameters=600_000,
        batch_size=32,
        steps=2000,
        learning_rate=6e-3,
        warmup=100,
        eval_every=500,
        checkpoint_every=100,
        device="one CPU core",
    ),
    "full": Setting(
        name="full",
        models=MODELS,
        vocab_size=8000,
        embed_dim=256,
        parameters=16_000_000,
        batch_size=128,
        # without dropout a model of this size learns the captions by heart after some ten epochs
        steps=2000,
        learning_rate=1e-3,
        warmup=200,
        eval_every=500,
        checkpoint_every=250,
        device="one GPU",
    ),
}
