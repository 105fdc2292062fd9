"""One plain training loop, schedules, checkpoints; decoding and metrics of sequence models."""

from attn_course.train.baseline import RunningBaseline
from attn_course.train.bleu import Bleu, bleu
from attn_course.train.checkpoint import load_checkpoint, save_atomic
from attn_course.train.decoding import Decoded, beam_search, greedy_decode, sample_decode
from attn_course.train.history import History
from attn_course.train.loop import fit
from attn_course.train.losses import label_smoothing_loss, teacher_forcing_loss, token_loss
from attn_course.train.metrics import (
    alignment_error_rate,
    alignment_mass,
    sequence_accuracy,
    token_accuracy,
)
from attn_course.train.parallel import Parallel, count_targets, start_parallel
from attn_course.train.sampling import (
    min_p,
    probabilities_of,
    sample,
    temperature,
    top_k,
    top_p,
)
from attn_course.train.schedules import constant, warmup_cosine, warmup_inverse_sqrt
from attn_course.train.speculative import (
    Speculated,
    acceptance_rate,
    cached_scorer,
    speculative_decode,
)
from attn_course.train.steps import (
    Start,
    generate,
    start_from_prompt,
    start_from_source,
)

__all__ = [
    "Bleu",
    "Decoded",
    "History",
    "Parallel",
    "RunningBaseline",
    "Speculated",
    "Start",
    "acceptance_rate",
    "alignment_error_rate",
    "alignment_mass",
    "beam_search",
    "bleu",
    "cached_scorer",
    "constant",
    "count_targets",
    "fit",
    "generate",
    "greedy_decode",
    "label_smoothing_loss",
    "load_checkpoint",
    "min_p",
    "probabilities_of",
    "sample",
    "sample_decode",
    "save_atomic",
    "sequence_accuracy",
    "speculative_decode",
    "start_from_prompt",
    "start_from_source",
    "start_parallel",
    "teacher_forcing_loss",
    "temperature",
    "token_accuracy",
    "token_loss",
    "top_k",
    "top_p",
    "warmup_cosine",
    "warmup_inverse_sqrt",
]
