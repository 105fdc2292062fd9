"""RoPE as configurations describe it: frequencies, their scaling, YaRN's factor of the scores."""

import math
from functools import partial
from typing import Any

from attn_course import nn
from attn_course.functional.positions import linear_scaling, llama3_scaling, yarn_scaling
from attn_course.interop._config import bound

# kinds, each with its function, our arguments of it and their names in a configuration
KINDS: dict[str, tuple[Any, dict[str, str]]] = {
    "linear": (linear_scaling, {"factor": "factor"}),
    "llama3": (
        llama3_scaling,
        {
            "factor": "factor",
            "low_freq_factor": "low_freq_factor",
            "high_freq_factor": "high_freq_factor",
            "original_length": "original_max_position_embeddings",
        },
    ),
    "yarn": (
        yarn_scaling,
        {
            "factor": "factor",
            "beta_fast": "beta_fast",
            "beta_slow": "beta_slow",
            "truncate": "truncate",
            "original_length": "original_max_position_embeddings",
        },
    ),
}


def rotary(rope: dict[str, Any], head_dim: int) -> tuple[nn.RotaryPositions, float | None]:
    """Positions, and the factor of the scores; None is one over the root of the head's size."""
    kind = rope.get("rope_type", "default")
    if kind != "default" and kind not in KINDS:
        raise ValueError(
            "config.rope_parameters['rope_type']: "
            f"expected 'default', 'linear', 'llama3' or 'yarn', got {kind!r}"
        )
    part = rope.get("partial_rotary_factor")
    if part not in (None, 1, 1.0):
        raise ValueError(
            f"config.rope_parameters['partial_rotary_factor']: expected 1.0, got {part!r}"
        )
    least = 4 if kind == "yarn" else 2
    if head_dim % 2 or head_dim < least:
        raise ValueError(
            f"config.head_dim: expected an even number of at least {least}, got {head_dim}"
        )
    scaling = None
    if kind != "default":
        function, arguments = KINDS[kind]
        given = {ours: rope.get(name) for ours, name in arguments.items()}
        if given["factor"] is None:
            raise ValueError("config.rope_parameters['factor']: expected a number, got None")
        scaling = partial(function, **{k: v for k, v in given.items() if v is not None})
    made = nn.RotaryPositions(base=float(rope["rope_theta"]), interleaved=False, scaling=scaling)
    return made, _scale(_magnitude(rope), head_dim) if kind == "yarn" else None


def _scale(magnitude: float, head_dim: int) -> float | None:
    """Queries and keys are longer by YaRN's factor there, so that the scores have its square."""
    return None if magnitude == 1 else magnitude**2 * head_dim**-0.5


def _magnitude(rope: dict[str, Any]) -> float:
    """YaRN's factor of cosine and sine."""
    if rope.get("attention_factor") is not None:
        return float(rope["attention_factor"])

    def grown(weight: float) -> float:
        return 1.0 if rope["factor"] <= 1 else 0.1 * weight * math.log(rope["factor"]) + 1.0

    one, other = rope.get("mscale"), rope.get("mscale_all_dim")
    return grown(one) / grown(other) if one and other else grown(1.0)


def rope_parameters(attention: Any, position: nn.RotaryPositions) -> dict[str, Any]:
    """The configuration of the RoPE of one of our attentions."""
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": position.base}
    if position.scaling is None:
        return rope
    function: Any = None
    settled: dict[str, Any] = {}
    if isinstance(position.scaling, partial):
        function, settled = bound(position.scaling)
    for kind, (known, arguments) in KINDS.items():
        if function is known:
            rope |= {"rope_type": kind} | {name: settled[our] for our, name in arguments.items()}
            if kind == "yarn":
                scale, root = attention.scale, math.sqrt(attention.head_dim)
                rope["attention_factor"] = 1.0 if scale is None else math.sqrt(scale * root)
            return rope
    raise ValueError(
        "model.blocks.0.attention.position.scaling: expected None or functools.partial of "
        f"linear_scaling, llama3_scaling or yarn_scaling, got {position.scaling!r}"
    )
