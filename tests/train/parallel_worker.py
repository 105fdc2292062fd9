"""Run under torchrun by test_parallel: ``parallel_worker.py KIND FOLDER``.

The first process leaves ``whole.pt`` (a run as it is) and ``resumed.pt`` (one that Ctrl-C stopped
in the second process alone); every process leaves what it saw in ``seen-RANK.json``.
"""

import json
import random
import signal
import sys
from itertools import count
from pathlib import Path

import torch
from torch import Tensor, nn

from attn_course.data import Batch
from attn_course.data.streams import PairStream
from attn_course.masks import padding_mask
from attn_course.nn import vaswani_like
from attn_course.train import fit, teacher_forcing_loss, warmup_cosine
from attn_course.train.history import History
from attn_course.train.parallel import Parallel, count_targets, start_parallel

WORDS, PAIRS, BATCH, STEPS, STOPPED = 23, 21, 4, 11, 6


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = vaswani_like(
            vocab_size=WORDS, embed_dim=12, num_heads=2, num_layers=2, hidden_dim=17, dropout=0.0
        )

    def forward(self, source: Tensor, lengths: Tensor, target_in: Tensor) -> Tensor:
        mask = padding_mask(lengths, source.shape[1])
        return self.transformer(source, mask, decoder_input_ids=target_in)


def build() -> Translator:
    """The same parameters in every process."""
    torch.manual_seed(5)
    return Translator().double()


def stream() -> PairStream:
    """Targets of very different lengths; the last batch of an epoch has one row."""
    draw = random.Random(7)

    def rows(longest: int) -> list[list[int]]:
        lengths = [draw.randint(1, longest) for _ in range(PAIRS)]
        return [[draw.randrange(4, WORDS) for _ in range(length)] for length in lengths]

    return PairStream(rows(5), rows(13), batch_size=BATCH, seed=2, pool=1)


def train(
    parallel: Parallel, path: Path | None, *, stop: bool = False
) -> tuple[nn.Module, History]:
    """A run of the small model; with ``stop`` the last process gets a Ctrl-C on its way."""
    model = build()
    wrapped = parallel.wrap(model)
    calls = count(1)

    def loss(trained: nn.Module, batch: Batch) -> Tensor:
        if stop and next(calls) == STOPPED and parallel.rank == parallel.world_size - 1:
            signal.raise_signal(signal.SIGINT)
        return teacher_forcing_loss(trained, batch)

    history = fit(
        model, stream(), parallel.mean_loss(loss, wrapped, count_targets),
        optimizer=torch.optim.Adam(model.parameters(), lr=0.1), steps=STEPS, clip_norm=0.5,
        schedule=warmup_cosine(peak=0.02, warmup=3, steps=STEPS), seed=1, checkpoint_path=path,
        resume=path is not None, parallel=parallel,
    )  # fmt: skip
    return model, history


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.set_num_threads(1)
    from attn_course.train import loop

    written: list[str] = []
    save = loop.save_atomic

    def counted(state: dict, path: Path) -> None:
        written.append(Path(path).name)
        save(state, path)

    loop.save_atomic = counted  # type: ignore[assignment]
    with start_parallel(kind, device="cpu") as parallel:  # type: ignore[arg-type]
        model, history = train(parallel, folder / "whole.pt")
        alone = parallel.unwrap(model, lambda: Translator().double())
        try:
            train(parallel, folder / "resumed.pt", stop=True)
            raise AssertionError("not stopped")
        except KeyboardInterrupt:
            stopped = torch.load(folder / "resumed.pt", weights_only=True)["step"]
        parallel.wait()
        train(parallel, folder / "resumed.pt")
        batch = next(stream())
        logits = alone.transformer(batch.source, decoder_input_ids=batch.target_in)
        seen = {
            "loss": history.loss, "grad_norm": history.grad_norm, "stopped": stopped,
            "written": written,
            "parts": [tuple(each.shape) for each in alone.state_dict().values()],
            "logits": float(logits.sum()),
            "held": sum(
                getattr(each, "_local_tensor", each).numel() for each in model.parameters()
            ),
        }  # fmt: skip
        (folder / f"seen-{parallel.rank}.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
