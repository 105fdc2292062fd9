"""Do gradients vanish in a post-norm decoder, before and during training?

Takase and others (2022) report that they do. Chapter 09 measures it on the toy translation of
chapter 03: encoder-decoders with 6 or 12 blocks on either side, pre-norm and post-norm. The measure
is the gradient of the last feed-forward matrix of the first block, divided by that of the last
block: 1 is level, far below 1 is vanishing. It is taken from new sentences, before training and
after it.
``python -m experiments.decoder_gradients`` repeats the recorded runs.
"""

from typing import Any

import torch

from attn_course.data import Batch, BatchStream
from attn_course.nn import vaswani_like
from attn_course.train import fit, token_loss, warmup_cosine
from experiments.repeat import repeat
from experiments.transformer_tasks import WORDS, sentences

DEPTHS, ORDERS = (6, 12), ("pre", "post")
RATE, STEPS, WARMUP, WIDTH = 0.003, 120, 40, 16


def loss_of(model: Any, batch: Batch) -> torch.Tensor:
    """Mean loss of a target token."""
    logits = model(batch.source, batch.source_mask, decoder_input_ids=batch.target_in)
    return token_loss(logits, batch.target_out)


def measure(model: Any, batch: Batch) -> dict[str, float]:
    """The loss; gradient of the first block by that of the last one, encoder and decoder."""
    model.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    found = {"loss": loss.item()}
    for side in ("encoder", "decoder"):
        blocks = getattr(model, side).blocks
        size = [b.feed_forward.down_projection.weight.grad.norm().item() for b in blocks]
        found[side] = size[0] / size[-1]
    return found


def run(seed: int) -> dict[str, Any]:
    """Ratios and losses on new sentences, at the start and after training."""
    test = sentences(100, torch.Generator().manual_seed(99))
    result: dict[str, Any] = {}
    for order in ORDERS:
        for depth in DEPTHS:
            torch.manual_seed(seed)
            model = vaswani_like(
                vocab_size=WORDS,
                embed_dim=WIDTH,
                num_heads=2,
                num_layers=depth,
                hidden_dim=2 * WIDTH,
                norm_first=order == "pre",
                dropout=0.0,
            )
            start = measure(model, test)
            fit(
                model,
                BatchStream(sentences, batch_size=16, seed=seed),
                loss_of,
                optimizer=torch.optim.Adam(model.parameters(), betas=(0.9, 0.98)),
                steps=STEPS,
                schedule=warmup_cosine(peak=RATE, warmup=WARMUP, steps=STEPS),
                clip_norm=1.0,
                progress=False,
            )
            result[f"{order} {depth}"] = {"start": start, "trained": measure(model, test)}
    return result


if __name__ == "__main__":
    repeat(run, __file__)
