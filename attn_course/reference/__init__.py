"""NumPy in float64, loops welcome: the oracle that everything else is compared with."""

from attn_course.reference.attention import attention
from attn_course.reference.banded_attention import sliding_window_attention
from attn_course.reference.convolution import (
    causal_convolution,
)
from attn_course.reference.feed_forward import (
    feed_forward,
    gelu,
    swiglu,
)
from attn_course.reference.gradient_clipping import clip_by_global_norm
from attn_course.reference.hard_attention import (
    attention_log_prob,
    best_baseline,
    expected_attention,
    sample_attention,
    score_function_gradient,
    score_function_moments,
    straight_through,
    weight_entropy,
)
from attn_course.reference.hashing import (
    chunk_attention,
    lsh_attention,
    lsh_buckets,
    lsh_mask,
    unit_keys,
)
from attn_course.reference.head_analysis import (
    attention_rollout,
    induction_score,
    previous_token_score,
)
from attn_course.reference.linear_attention import (
    delta_rule,
    elu_feature_map,
    gated_linear_attention,
    linear_attention,
    performer_features,
)
from attn_course.reference.local_window import (
    local_m_mask,
    local_p_position,
    local_p_weights,
    local_window_attention,
)
from attn_course.reference.low_rank import (
    linformer_attention,
)
from attn_course.reference.memory import (
    memory_hop,
    memory_network,
    position_encoding,
    sentence_ages,
    sentence_vectors,
)
from attn_course.reference.norms import (
    batch_norm,
    layer_norm,
    rms_norm,
)
from attn_course.reference.patterns import (
    blockwise_pattern,
    fixed_pattern,
    strided_pattern,
    window_pattern,
)
from attn_course.reference.positions import (
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
from attn_course.reference.receptive_field import receptive_field
from attn_course.reference.recurrent import (
    gru_cell,
    jacobian_product,
    lstm_cell,
    rnn_bptt,
    rnn_cell,
    rnn_jacobian,
)
from attn_course.reference.saliency import (
    grad_cam,
    gradient_times_input,
    input_gradient,
    integrated_gradients,
)
from attn_course.reference.scaled_dot_product import (
    attention_weights,
    attention_with_lse,
    merge_attention,
    scaled_dot_product_attention,
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
from attn_course.reference.verdicts import (
    expected_best,
    median_and_range,
    paired_differences,
    sign_test,
    tuned,
    verdict,
)
from attn_course.reference.vision import (
    convolution_as_attention,
    interpolate_positions,
    patchify,
    shift_bias,
    sinusoidal_positions_2d,
    unpatchify,
)

__all__ = [
    "additive_score",
    "alibi_bias",
    "alibi_slopes",
    "apply_rope",
    "attention",
    "attention_log_prob",
    "attention_rollout",
    "attention_weights",
    "attention_with_lse",
    "batch_norm",
    "best_baseline",
    "blockwise_pattern",
    "causal_convolution",
    "chunk_attention",
    "clip_by_global_norm",
    "concat_score",
    "convolution_as_attention",
    "cosine_score",
    "cosine_similarity",
    "delta_rule",
    "dot_score",
    "elu_feature_map",
    "expected_attention",
    "expected_best",
    "feed_forward",
    "fixed_pattern",
    "gated_linear_attention",
    "gelu",
    "general_score",
    "grad_cam",
    "gradient_times_input",
    "gru_cell",
    "induction_score",
    "input_gradient",
    "integrated_gradients",
    "interpolate_positions",
    "jacobian_product",
    "layer_norm",
    "linear_attention",
    "linear_scaling",
    "linformer_attention",
    "llama3_scaling",
    "local_m_mask",
    "local_p_position",
    "local_p_weights",
    "local_window_attention",
    "location_score",
    "log_softmax",
    "logsumexp",
    "lsh_attention",
    "lsh_buckets",
    "lsh_mask",
    "lstm_cell",
    "masked_softmax",
    "median_and_range",
    "memory_hop",
    "memory_network",
    "merge_attention",
    "paired_differences",
    "patchify",
    "performer_features",
    "position_encoding",
    "previous_token_score",
    "receptive_field",
    "relative_position_bucket",
    "rms_norm",
    "rnn_bptt",
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
    "shift_bias",
    "sign_test",
    "sinusoidal_positions",
    "sinusoidal_positions_2d",
    "sliding_window_attention",
    "softmax",
    "straight_through",
    "strided_pattern",
    "swiglu",
    "tuned",
    "unit_keys",
    "unpatchify",
    "verdict",
    "weight_entropy",
    "weighted_mean",
    "window_pattern",
    "yarn_scaling",
]
