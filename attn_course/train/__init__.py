"""One plain training loop, schedules, checkpoints; decoding and metrics of sequence models.

- train: ``fit``, which resumes from a checkpoint; its rate: ``warmup_cosine``,
  ``warmup_inverse_sqrt``
- a loss: ``token_loss`` (leaves out ``pad``, which is 0 unless you pass another),
  ``label_smoothing_loss``, ``teacher_forcing_loss``
- continue a prompt or translate: ``generate``; token by token: ``stream``
- by hand: ``start_from_prompt`` or ``start_from_source``, then ``greedy_decode``,
  ``sample_decode``, ``beam_search`` or ``speculative_decode``
- what is drawn: ``temperature``, ``top_k``, ``top_p``, ``min_p``
- measure: ``sequence_accuracy``, ``bleu``, ``alignment_error_rate``
"""

from typing import TYPE_CHECKING

from attn_course._names import unknown
from attn_course.train.baseline import RunningBaseline
from attn_course.train.bleu import bleu
from attn_course.train.checkpoint import load_checkpoint
from attn_course.train.decoding import beam_search, greedy_decode, sample_decode
from attn_course.train.loop import fit
from attn_course.train.losses import label_smoothing_loss, teacher_forcing_loss, token_loss
from attn_course.train.metrics import (
    alignment_error_rate,
    sequence_accuracy,
)
from attn_course.train.sampling import (
    min_p,
    sample,
    temperature,
    top_k,
    top_p,
)
from attn_course.train.schedules import warmup_cosine, warmup_inverse_sqrt
from attn_course.train.speculative import (
    acceptance_rate,
    cached_scorer,
    speculative_decode,
)
from attn_course.train.steps import (
    generate,
    start_from_prompt,
    start_from_source,
    stream,
)

__all__ = [
    "RunningBaseline",
    "acceptance_rate",
    "alignment_error_rate",
    "beam_search",
    "bleu",
    "cached_scorer",
    "fit",
    "generate",
    "greedy_decode",
    "label_smoothing_loss",
    "load_checkpoint",
    "min_p",
    "sample",
    "sample_decode",
    "sequence_accuracy",
    "speculative_decode",
    "start_from_prompt",
    "start_from_source",
    "stream",
    "teacher_forcing_loss",
    "temperature",
    "token_loss",
    "top_k",
    "top_p",
    "warmup_cosine",
    "warmup_inverse_sqrt",
]


if not TYPE_CHECKING:  # which finds a wrong name itself

    def __getattr__(name: str) -> object:
        raise unknown(__name__, name, __all__)
