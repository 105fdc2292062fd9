"""How many layers a window needs: a symbol is to be said again, six places later.

Chapter 14 plots these runs. Small causal models, attention only, with rotary positions, differ in
window, dilation and number of layers, and so in how far their layers reach together: from five
places, one short, to what is needed and more. Each is trained at two learning rates, and the better
one on its own test sequences counts, so that a failure is not one of the rate.
``python -m experiments.window_relay`` repeats the recorded runs.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.analysis import window_reach
from attn_course.functional import sliding_window_attention
from attn_course.nn import EncoderBlock, LayerNorm, MultiHeadAttention, RotaryPositions
from experiments.repeat import repeat

SYMBOLS, LENGTH, LAG, SIZE = 8, 20, 6, 32
RATES = (0.003, 0.006)
STEPS, BATCH = 160, 16
# name: window, and the dilation of each layer
MODELS = {
    "1 layer, w = 6": (6, (1,)),
    "1 layer, w = 7": (7, (1,)),
    "2 layers, w = 3": (3, (1, 1)),
    "2 layers, w = 4": (4, (1, 1)),
    "3 layers, w = 3": (3, (1, 1, 1)),
    "2 layers, w = 3, dilation 1 and 2": (3, (1, 2)),
}


class Relay(nn.Module):
    """Attention layers with a window; a symbol comes in, one is said."""

    def __init__(self, window: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, SIZE)
        self.blocks = nn.ModuleList(
            EncoderBlock(
                attention=MultiHeadAttention(
                    embed_dim=SIZE,
                    num_heads=2,
                    position=RotaryPositions(base=100.0),
                    attn_fn=partial(
                        sliding_window_attention, window_size=window, dilation=dilation
                    ),
                ),
                attention_norm=LayerNorm(embed_dim=SIZE),
                norm_first=True,
            )
            for dilation in dilations
        )
        self.norm = LayerNorm(embed_dim=SIZE)
        self.output = nn.Linear(SIZE, SYMBOLS)

    def forward(self, tokens: Tensor) -> Tensor:
        """One row of logits per position."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, is_causal=True)
        logits: Tensor = self.output(self.norm(x))
        return logits


def train(window: int, dilations: tuple[int, ...], rate: float, seed: int) -> float:
    """The share of symbols that are said again after so many steps."""
    torch.manual_seed(seed)
    model = Relay(window, dilations)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1, (step + 1) / 20) * (1 - 0.9 * step / STEPS)
        tokens = torch.randint(SYMBOLS, (BATCH, LENGTH))
        logits = model(tokens)[:, LAG:]
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, :-LAG].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    tokens = torch.randint(SYMBOLS, (256, LENGTH))
    with torch.no_grad():
        said = model(tokens)[:, LAG:].argmax(-1)
    return float((said == tokens[:, :-LAG]).double().mean())


def run(seed: int) -> dict[str, Any]:
    """For each model: how far back it reaches, and its accuracy at each rate."""
    found: dict[str, Any] = {}
    for name, (window, dilations) in MODELS.items():
        reach = window_reach(window_size=window, num_layers=len(dilations), dilation=dilations) - 1
        rates = [train(window, dilations, rate, seed) for rate in RATES]
        found[name] = {"reach": reach, "accuracy": rates}
    return found


if __name__ == "__main__":
    repeat(run, __file__)
