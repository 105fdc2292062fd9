"""NumPy in float64, loops welcome: the oracle that everything else is compared with."""

from attn_course.reference.attention import attention
from attn_course.reference.gradient_clipping import clip_by_global_norm
from attn_course.reference.local_window import local_m_mask, local_p_position, local_p_weights
from attn_course.reference.recurrent import (
    RNNGradients,
    gru_cell,
    jacobian_product,
    lstm_cell,
    rnn_bptt,
    rnn_cell,
    rnn_forward,
    rnn_jacobian,
)
from attn_course.reference.scores import (
    additive_score,
    concat_score,
    cosine_score,
    dot_score,
    general_score,
    location_score,
    scaled_dot_score,
)
from attn_course.reference.similarity import cosine_similarity, weighted_mean
from attn_course.reference.softmax import log_softmax, logsumexp, masked_softmax, softmax

__all__ = [
    "RNNGradients",
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
    "rnn_bptt",
    "rnn_cell",
    "rnn_forward",
    "rnn_jacobian",
    "scaled_dot_score",
    "softmax",
    "weighted_mean",
]
