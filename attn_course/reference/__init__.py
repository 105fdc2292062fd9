"""NumPy in float64, loops welcome: the oracle that everything else is compared with."""

from attn_course.reference.gradient_clipping import clip_by_global_norm
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
from attn_course.reference.similarity import cosine_similarity, weighted_mean
from attn_course.reference.softmax import log_softmax, logsumexp, masked_softmax, softmax

__all__ = [
    "RNNGradients",
    "clip_by_global_norm",
    "cosine_similarity",
    "gru_cell",
    "jacobian_product",
    "log_softmax",
    "logsumexp",
    "lstm_cell",
    "masked_softmax",
    "rnn_bptt",
    "rnn_cell",
    "rnn_forward",
    "rnn_jacobian",
    "softmax",
    "weighted_mean",
]
