"""One plain training loop, learning-rate schedules, checkpoints, decoding, metrics."""

from attn_course.train.checkpoint import load_checkpoint, save_atomic
from attn_course.train.decoding import Decoded, beam_search, greedy_decode, length_normaliser
from attn_course.train.history import History
from attn_course.train.loop import fit
from attn_course.train.metrics import sequence_accuracy, token_accuracy
from attn_course.train.schedules import constant, warmup_cosine, warmup_inverse_sqrt

__all__ = [
    "Decoded",
    "History",
    "beam_search",
    "constant",
    "fit",
    "greedy_decode",
    "length_normaliser",
    "load_checkpoint",
    "save_atomic",
    "sequence_accuracy",
    "token_accuracy",
    "warmup_cosine",
    "warmup_inverse_sqrt",
]
