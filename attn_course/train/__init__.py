"""One plain training loop, schedules, checkpoints; decoding and metrics of sequence models."""

from attn_course.train.baseline import RunningBaseline
from attn_course.train.checkpoint import load_checkpoint, save_atomic
from attn_course.train.decoding import Decoded, beam_search, greedy_decode
from attn_course.train.history import History
from attn_course.train.loop import fit
from attn_course.train.losses import teacher_forcing_loss, token_loss
from attn_course.train.metrics import (
    alignment_error_rate,
    alignment_mass,
    sequence_accuracy,
    token_accuracy,
)
from attn_course.train.schedules import constant, warmup_cosine, warmup_inverse_sqrt

__all__ = [
    "Decoded",
    "History",
    "RunningBaseline",
    "alignment_error_rate",
    "alignment_mass",
    "beam_search",
    "constant",
    "fit",
    "greedy_decode",
    "load_checkpoint",
    "save_atomic",
    "sequence_accuracy",
    "teacher_forcing_loss",
    "token_accuracy",
    "token_loss",
    "warmup_cosine",
    "warmup_inverse_sqrt",
]
