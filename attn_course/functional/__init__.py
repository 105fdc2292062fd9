"""Stateless functions on torch tensors, with the names of :mod:`attn_course.reference`.

- attention as torch's: ``scaled_dot_product_attention``; its weights: ``attention_weights``; in
  parts that are joined: ``attention_with_lse``, ``merge_attention``, ``tiled_attention``
- any score and normalisation, with weights: ``attention``, with ``additive_score`` and others
- a window: ``sliding_window_attention``; a ``Pattern`` of pairs: ``sparse_attention``
- in linear time: ``linear_attention``, ``gated_linear_attention``, ``delta_rule``; for a module:
  ``linear_attention_fn``; by hashing or low rank: ``lsh_attention``, ``linformer_attention``
- positions: ``apply_rope``, ``alibi_bias``, ``relative_position_bucket``, ``sinusoidal_positions``
- parts of a block: ``layer_norm``, ``rms_norm``, ``feed_forward``, ``swiglu``, ``gelu``
- softmax: ``masked_softmax`` (0 where nothing is left), ``softmax``, ``logsumexp``
- drawn attention: ``sample_attention``, ``reinforce_loss``, ``straight_through``
- cells: ``rnn_cell``, ``lstm_cell``, ``gru_cell``; pictures: ``patchify``

Masks are made by :mod:`attn_course.masks`. What does not fit (type, shape, range) is refused by a
``ValueError``: name, expected, got.
"""

from typing import TYPE_CHECKING

from attn_course._names import unknown
from attn_course.functional.attention import attention
from attn_course.functional.banded_attention import sliding_window_attention
from attn_course.functional.convolution import causal_convolution
from attn_course.functional.feature_maps import (
    elu_feature_map,
    performer_directions,
    performer_features,
)
from attn_course.functional.feed_forward import feed_forward, gelu, swiglu
from attn_course.functional.flex import flex_attention_fn
from attn_course.functional.gated_linear_attention import gated_linear_attention
from attn_course.functional.gradient_clipping import clip_by_global_norm
from attn_course.functional.hard_attention import (
    attention_log_prob,
    best_baseline,
    expected_attention,
    reinforce_loss,
    sample_attention,
    score_function_gradient,
    score_function_moments,
    straight_through,
)
from attn_course.functional.hashing import (
    chunk_attention,
    lsh_attention,
    lsh_buckets,
    lsh_mask,
    random_rotations,
    unit_keys,
)
from attn_course.functional.linear_attention import (
    delta_rule,
    delta_rule_recurrent,
    delta_rule_step,
    linear_attention,
    linear_attention_fn,
    linear_attention_parallel,
    linear_attention_recurrent,
    linear_attention_step,
)
from attn_course.functional.local_window import (
    local_m_mask,
    local_p_position,
    local_p_weights,
    local_window_attention,
)
from attn_course.functional.low_rank import linformer_attention
from attn_course.functional.memory import (
    memory_hop,
    position_encoding,
    sentence_ages,
    sentence_vectors,
)
from attn_course.functional.norms import batch_norm, layer_norm, rms_norm
from attn_course.functional.patterns import (
    Pattern,
    blockwise_pattern,
    causal_pattern,
    fixed_pattern,
    global_pattern,
    random_pattern,
    strided_pattern,
    window_pattern,
)
from attn_course.functional.positions import (
    alibi_bias,
    alibi_slopes,
    apply_rope,
    linear_scaling,
    llama3_scaling,
    relative_position_bucket,
    rope_frequencies,
    scaled_base,
    sinusoidal_positions,
    yarn_scaling,
)
from attn_course.functional.recurrent import (
    gru_cell,
    jacobian_product,
    lstm_cell,
    rnn_cell,
    rnn_jacobian,
)
from attn_course.functional.scaled_dot_product import (
    AttentionFn,
    attention_weights,
    attention_with_lse,
    merge_attention,
    scaled_dot_product_attention,
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
from attn_course.functional.sparse_attention import sparse_attention
from attn_course.functional.tiled_attention import tiled_attention
from attn_course.functional.vision import (
    convolution_as_attention,
    interpolate_positions,
    kernel_shifts,
    patchify,
    shift_bias,
    sinusoidal_positions_2d,
    unpatchify,
)

__all__ = [
    "AttentionFn", "Pattern", "additive_score", "alibi_bias", "alibi_slopes", "apply_rope",
    "attention", "attention_log_prob", "attention_weights", "attention_with_lse", "batch_norm",
    "best_baseline", "blockwise_pattern", "causal_convolution", "causal_pattern", "chunk_attention",
    "clip_by_global_norm", "concat_score", "convolution_as_attention", "cosine_score",
    "cosine_similarity", "delta_rule", "delta_rule_recurrent", "delta_rule_step", "dot_score",
    "elu_feature_map", "expected_attention", "feed_forward", "fixed_pattern", "flex_attention_fn",
    "gated_linear_attention", "gelu", "general_score", "global_pattern", "gru_cell",
    "interpolate_positions", "jacobian_product", "kernel_shifts", "layer_norm", "linear_attention",
    "linear_attention_fn", "linear_attention_parallel", "linear_attention_recurrent",
    "linear_attention_step", "linear_scaling", "linformer_attention", "llama3_scaling",
    "local_m_mask", "local_p_position", "local_p_weights", "local_window_attention",
    "location_score", "log_softmax", "logsumexp", "lsh_attention", "lsh_buckets", "lsh_mask",
    "lstm_cell", "masked_softmax", "memory_hop", "merge_attention", "patchify",
    "performer_directions", "performer_features", "position_encoding", "random_pattern",
    "random_rotations", "reinforce_loss", "relative_position_bucket", "rms_norm", "rnn_cell",
    "rnn_jacobian", "rope_frequencies", "sample_attention", "scaled_base",
    "scaled_dot_product_attention", "scaled_dot_score", "score_function_gradient",
    "score_function_moments", "sentence_ages", "sentence_vectors", "shift_bias",
    "sinusoidal_positions", "sinusoidal_positions_2d", "sliding_window_attention", "softmax",
    "sparse_attention", "straight_through", "strided_pattern", "swiglu", "tanh_score",
    "tiled_attention", "unit_keys", "unpatchify", "weighted_mean", "window_pattern", "yarn_scaling",
]  # fmt: skip


if not TYPE_CHECKING:  # which finds a wrong name itself

    def __getattr__(name: str) -> object:
        raise unknown(__name__, name, __all__)
