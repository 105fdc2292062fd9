"""What one CPU core does in minutes, the same for four and eight times as long, a GPU's size."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything that the numbers depend on, but the seed and the rate, which is looked for.

    Attributes:
        name: Goes into file names.
        embed_dim: Width of the Transformer.
        num_heads: Its heads.
        num_layers: Its blocks.
        lstm_layers: Layers of the LSTM.
        hidden_dim: Of its feed-forward parts. The LSTM's state is fitted to as many parameters.
        dropout: Of both, in training.
        length: Characters that a prediction may look back at.
        batch_size: Windows per step, over all processes.
        steps: Updates of every model.
        warmup: Steps of the linear rise before the cosine.
        rates: Peak rates that are tried for each model.
        rate_steps: Length of a trial; the rate with the lowest validation loss is taken.
        clip_norm: Largest norm of the gradient.
        weight_decay: Of AdamW.
        eval_every: Steps between points of the curve.
        eval_windows: Windows of either text that a point of the curve is measured on.
        checkpoint_every: Steps between checkpoints.
        seeds: Of parameters and data.
        sample_length: Characters of a sample.
        device: What the setting is meant for.
    """

    name: str
    embed_dim: int
    num_heads: int
    num_layers: int
    lstm_layers: int
    hidden_dim: int
    dropout: float = 0.0
    length: int
    batch_size: int
    steps: int
    warmup: int
    rates: tuple[float, ...]
    rate_steps: int
    clip_norm: float = 1.0
    weight_decay: float = 0.01
    eval_every: int
    eval_windows: int
    checkpoint_every: int
    seeds: tuple[int, ...] = (0, 1, 2)
    sample_length: int = 200
    device: str

    def as_json(self) -> dict[str, Any]:
        """Plain values only."""
        return {**asdict(self), "rates": list(self.rates), "seeds": list(self.seeds)}


SETTINGS = {
    "reduced": Setting(
        name="reduced",
        embed_dim=96,
        num_heads=4,
        num_layers=3,
        lstm_layers=1,
        hidden_dim=256,
        length=128,
        batch_size=8,
        steps=1000,
        warmup=50,
        rates=(2e-3, 4e-3, 8e-3, 1.6e-2),
        rate_steps=150,
        eval_every=100,
        eval_windows=48,
        checkpoint_every=100,
        device="one CPU core",
    ),
    "passes": Setting(  # reduced, but four times as long
        name="passes",
        embed_dim=96,
        num_heads=4,
        num_layers=3,
        lstm_layers=1,
        hidden_dim=256,
        length=128,
        batch_size=8,
        steps=4000,
        warmup=50,
        rates=(2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2),
        rate_steps=400,
        eval_every=500,
        eval_windows=48,
        checkpoint_every=500,
        device="one CPU core",
    ),
    "longer": Setting(  # passes, but twice as long
        name="longer",
        embed_dim=96,
        num_heads=4,
        num_layers=3,
        lstm_layers=1,
        hidden_dim=256,
        length=128,
        batch_size=8,
        steps=8000,
        warmup=50,
        rates=(2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2),
        rate_steps=400,
        eval_every=500,
        eval_windows=48,
        checkpoint_every=1000,
        device="one CPU core",
    ),
    "full": Setting(
        name="full",
        embed_dim=384,
        num_heads=6,
        num_layers=6,
        lstm_layers=2,
        hidden_dim=1024,
        dropout=0.2,
        length=256,
        batch_size=64,
        steps=5000,
        warmup=100,
        rates=(3e-4, 1e-3, 3e-3, 1e-2),
        rate_steps=500,
        weight_decay=0.1,
        eval_every=250,
        eval_windows=200,
        checkpoint_every=250,
        device="one GPU",
    ),
}
