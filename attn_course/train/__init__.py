"""One plain training loop, learning-rate schedules, checkpoints."""

from attn_course.train.checkpoint import load_checkpoint, save_atomic
from attn_course.train.history import History
from attn_course.train.loop import fit
from attn_course.train.schedules import constant, warmup_cosine, warmup_inverse_sqrt

__all__ = [
    "History",
    "constant",
    "fit",
    "load_checkpoint",
    "save_atomic",
    "warmup_cosine",
    "warmup_inverse_sqrt",
]
