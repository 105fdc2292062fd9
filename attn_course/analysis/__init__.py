"""What measures attention for a study: how heads agree, what they reach, what they cost.

- what a head does: ``induction_score``, ``previous_token_score``, ``weight_entropy``
- whether weights explain: ``input_gradient``, ``integrated_gradients``, ``permute_weights``,
  ``equivalent_weights``, compared by ``kendall_tau`` or ``total_variation``
- through layers: ``attention_rollout``, ``grad_cam``, ``gradient_reach``, ``receptive_field``
- what a model costs: ``Sizes``, ``attention_bytes``, ``matmul_bytes``, ``roofline_seconds``

Nothing here computes attention; :mod:`attn_course.functional` and :mod:`attn_course.nn` do.
"""

from attn_course.analysis.agreement import (
    equivalent_weights,
    kendall_tau,
    permute_weights,
    total_variation,
)
from attn_course.analysis.counts import Sizes
from attn_course.analysis.gradient_reach import (
    gradient_map,
    gradient_reach,
    path_length,
    recurrent_steps,
)
from attn_course.analysis.head_analysis import (
    attention_rollout,
    cumulative_spectrum,
    induction_score,
    previous_token_score,
    weight_entropy,
)
from attn_course.analysis.receptive_field import receptive_field, window_reach
from attn_course.analysis.roofline import attention_bytes, matmul_bytes, roofline_seconds
from attn_course.analysis.saliency import (
    grad_cam,
    gradient_times_input,
    input_gradient,
    integrated_gradients,
)

__all__ = [
    "Sizes",
    "attention_bytes",
    "attention_rollout",
    "cumulative_spectrum",
    "equivalent_weights",
    "grad_cam",
    "gradient_map",
    "gradient_reach",
    "gradient_times_input",
    "induction_score",
    "input_gradient",
    "integrated_gradients",
    "kendall_tau",
    "matmul_bytes",
    "path_length",
    "permute_weights",
    "previous_token_score",
    "receptive_field",
    "recurrent_steps",
    "roofline_seconds",
    "total_variation",
    "weight_entropy",
    "window_reach",
]
