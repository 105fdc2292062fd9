"""Stateless functions on torch tensors, with the names of :mod:`attn_course.reference`."""

from attn_course.functional.agreement import (
    equivalent_weights,
    js_divergence,
    kendall_tau,
    permute_weights,
    spearman,
    total_variation,
)
from attn_course.functional.attention import attention
from attn_course.functional.convolution import (
    causal_convolution,
)
from attn_course.functional.feed_forward import (
    feed_forward,
    gelu,
    silu,
    swiglu,
)
from attn_course.functional.flex import flex_attention_fn
from attn_course.functional.gradient_clipping import clip_by_global_norm
from attn_course.functional.gradient_reach import (
    gradient_map,
    gradient_reach,
    path_length,
    recurrent_steps,
)
from attn_course.functional.hard_attention import (
    attention_log_prob,
    best_baseline,
    expected_attention,
    reinforce_loss,
    sample_attention,
    score_function_gradient,
    score_function_moments,
    straight_through,
    weight_entropy,
)
from attn_course.functional.local_window import local_m_mask, local_p_position, local_p_weights
from attn_course.functional.memory import (
    memory_hop,
    position_encoding,
    sentence_ages,
    sentence_vectors,
)
from attn_course.functional.norms import (
    batch_norm,
    layer_norm,
    rms_norm,
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
)
from attn_course.functional.recurrent import (
    gru_cell,
    jacobian_product,
    lstm_cell,
    rnn_cell,
    rnn_jacobian,
)
from attn_course.functional.saliency import (
    grad_cam,
    gradient_times_input,
    input_gradient,
    input_jacobian,
    integrated_gradients,
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

__all__ = [
    "AttentionFn",
    "additive_score",
    "alibi_bias",
    "alibi_slopes",
    "apply_rope",
    "attention",
    "attention_log_prob",
    "attention_weights",
    "attention_with_lse",
    "batch_norm",
    "best_baseline",
    "causal_convolution",
    "clip_by_global_norm",
    "concat_score",
    "cosine_score",
    "cosine_similarity",
    "dot_score",
    "equivalent_weights",
    "expected_attention",
    "feed_forward",
    "flex_attention_fn",
    "gelu",
    "general_score",
    "grad_cam",
    "gradient_map",
    "gradient_reach",
    "gradient_times_input",
    "gru_cell",
    "input_gradient",
    "input_jacobian",
    "integrated_gradients",
    "jacobian_product",
    "js_divergence",
    "kendall_tau",
    "layer_norm",
    "linear_scaling",
    "llama3_scaling",
    "local_m_mask",
    "local_p_position",
    "local_p_weights",
    "location_score",
    "log_softmax",
    "logsumexp",
    "lstm_cell",
    "masked_softmax",
    "memory_hop",
    "merge_attention",
    "path_length",
    "permute_weights",
    "position_encoding",
    "recurrent_steps",
    "reinforce_loss",
    "relative_position_bucket",
    "rms_norm",
    "rnn_cell",
    "rnn_jacobian",
    "rope_frequencies",
    "sample_attention",
    "scaled_base",
    "scaled_dot_product_attention",
    "scaled_dot_score",
    "score_function_gradient",
    "score_function_moments",
    "sentence_ages",
    "sentence_vectors",
    "silu",
    "sinusoidal_positions",
    "softmax",
    "spearman",
    "straight_through",
    "swiglu",
    "tanh_score",
    "total_variation",
    "weight_entropy",
    "weighted_mean",
]
