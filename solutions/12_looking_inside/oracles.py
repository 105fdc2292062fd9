"""What the tests of the set judge by."""

import numpy as np

from attn_course import reference
from attn_course.probes import Probes, from_numpy


def right_entropy(weights):
    rows = reference.weight_entropy(weights)[..., 1:]
    return (rows / np.log(np.arange(2, weights.shape[-1] + 1))).mean(-1)


def right_rollout(weights, residual=0.5):
    return reference.attention_rollout(list(weights), residual=residual)


def right_ablation(found, heads, how):
    changed = found.copy()
    for head in heads:
        changed[:, head] = 0.0 if how == "zero" else found[:, head].mean(axis=(0, 1))
    return changed


def right_patch(corrupted, clean, head, positions):
    changed = corrupted.copy()
    for position in positions:
        changed[:, head, position] = clean[:, head, position]
    return changed


def right_recovery(clean, corrupted, patched, right, wrong):
    rows = np.arange(len(right))
    lead = [(x[rows, right] - x[rows, wrong]).mean() for x in (clean, corrupted, patched)]
    return (lead[2] - lead[1]) / (lead[0] - lead[1])


def right_attribution(parts, scale, unembedding, word):
    total = parts.sum(0)
    deviation = np.sqrt(((total - total.mean()) ** 2).mean() + 1e-5)
    push = scale * (unembedding[word] - unembedding.mean(0))
    return (parts - parts.mean(-1, keepdims=True)) / deviation @ push


def right_projection(found, weight, bias, head):
    kept = right_ablation(found, [head], "zero").transpose(0, 2, 1, 3)
    return kept.reshape(*kept.shape[:2], -1) @ weight.T + bias


probes = Probes(
    "12_looking_inside",
    induction_score=reference.induction_score,
    relative_entropy=from_numpy(right_entropy),
    attention_rollout=from_numpy(right_rollout),
    ablate_heads=from_numpy(right_ablation),
    patch_head=from_numpy(right_patch),
    recovered=from_numpy(right_recovery),
    logit_attribution=from_numpy(right_attribution),
    fixed_projection=from_numpy(right_projection),
)
