"""Stateless functions on torch tensors, with the names of :mod:`attn_course.reference`."""

from attn_course.functional.gradient_clipping import clip_by_global_norm
from attn_course.functional.recurrent import (
    gru_cell,
    jacobian_product,
    lstm_cell,
    rnn_cell,
    rnn_jacobian,
)
from attn_course.functional.similarity import cosine_similarity, weighted_mean
from attn_course.functional.softmax import log_softmax, logsumexp, masked_softmax, softmax

__all__ = [
    "clip_by_global_norm",
    "cosine_similarity",
    "gru_cell",
    "jacobian_product",
    "log_softmax",
    "logsumexp",
    "lstm_cell",
    "masked_softmax",
    "rnn_cell",
    "rnn_jacobian",
    "softmax",
    "weighted_mean",
]
