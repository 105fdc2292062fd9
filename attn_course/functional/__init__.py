"""Stateless functions on torch tensors, with the names of :mod:`attn_course.reference`."""

from attn_course.functional.attention import attention
from attn_course.functional.gradient_clipping import clip_by_global_norm
from attn_course.functional.local_window import local_m_mask, local_p_position, local_p_weights
from attn_course.functional.recurrent import (
    gru_cell,
    jacobian_product,
    lstm_cell,
    rnn_cell,
    rnn_jacobian,
)
from attn_course.functional.scores import (
    additive_score,
    concat_score,
    cosine_score,
    dot_score,
    general_score,
    location_score,
    scaled_dot_score,
    tanh_score,
)
from attn_course.functional.similarity import cosine_similarity, weighted_mean
from attn_course.functional.softmax import log_softmax, logsumexp, masked_softmax, softmax

__all__ = [
    "additive_score",
    "attention",
    "clip_by_global_norm",
    "concat_score",
    "cosine_score",
    "cosine_similarity",
    "dot_score",
    "general_score",
    "gru_cell",
    "jacobian_product",
    "local_m_mask",
    "local_p_position",
    "local_p_weights",
    "location_score",
    "log_softmax",
    "logsumexp",
    "lstm_cell",
    "masked_softmax",
    "rnn_cell",
    "rnn_jacobian",
    "scaled_dot_score",
    "softmax",
    "tanh_score",
    "weighted_mean",
]
