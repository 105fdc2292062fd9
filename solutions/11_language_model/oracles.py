"""What the tests of the set judge by."""

import numpy as np

from attn_course import reference
from attn_course.probes import Probes, from_numpy


def right_bits(logits, targets):
    counts = targets >= 0
    top = logits.max(-1, keepdims=True)
    log_p = logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))
    said = np.take_along_axis(log_p, np.where(counts, targets, 0)[..., None], -1)[..., 0]
    return -(said * counts).sum() / counts.sum() / np.log(2)


def right_top_p(logits, p):
    rows = logits.reshape(-1, logits.shape[-1]).astype(float)
    parts = np.exp(rows - rows.max(-1, keepdims=True))
    kept = np.full_like(rows, -np.inf)
    for row, weights in enumerate(parts / parts.sum(-1, keepdims=True)):
        total = 0.0
        for word in np.argsort(-weights):
            kept[row, word] = rows[row, word]
            total += weights[word]
            if total >= p:
                break
    return kept.reshape(logits.shape)


def drawn_by(probabilities, uniform):
    below = (np.cumsum(np.asarray(probabilities, dtype=float)) <= uniform).sum()
    return int(min(below, np.flatnonzero(probabilities)[-1]))


def right_sample(logits, uniform, temperature=1.0, k=None):
    scaled = np.asarray(logits, dtype=float) / temperature
    if k is not None:
        scaled = np.where(scaled >= np.sort(scaled)[-min(k, len(scaled))], scaled, -np.inf)
    parts = np.exp(scaled - scaled.max())
    return drawn_by(parts / parts.sum(), uniform)


def right_cached(query, key, value, cache=None):
    keys = key if cache is None else np.concatenate([cache[0], key], axis=-2)
    values = value if cache is None else np.concatenate([cache[1], value], axis=-2)
    new, past = query.shape[-2], keys.shape[-2] - query.shape[-2]
    allowed = np.tri(new, past + new, past, dtype=bool)
    return reference.scaled_dot_product_attention(query, keys, values, allowed), (keys, values)


def right_grouped(query, key, value):
    share = query.shape[1] // key.shape[1]
    return reference.scaled_dot_product_attention(
        query, np.repeat(key, share, axis=1), np.repeat(value, share, axis=1)
    )


def right_latent(query, latent, key_up, value_up):
    key = np.einsum("bsr,her->bhse", latent, key_up)
    value = np.einsum("bsr,hvr->bhsv", latent, value_up)
    return reference.scaled_dot_product_attention(query, key, value)


def right_accept(target, draft, words, uniforms):
    written = []
    for i, word in enumerate(words):
        if uniforms[i] * draft[i, word] < target[i, word]:
            written.append(int(word))
            continue
        left = np.maximum(target[i] - draft[i], 0)
        return np.array([*written, drawn_by(left / left.sum(), uniforms[-1])])
    return np.array([*written, drawn_by(target[-1], uniforms[-1])])


def right_step(x, weight_query, weight_key, weight_value, cache_key, cache_value):
    places = len(cache_key) + np.arange(len(x))
    query, key = (
        reference.apply_rope((x @ weight.T), places) for weight in (weight_query, weight_key)
    )
    held = cache_key[None, None], cache_value[None, None]
    new = query[None, None], key[None, None], (x @ weight_value.T)[None, None]
    output, (keys, values) = right_cached(*new, held)
    return output[0, 0], keys[0, 0], values[0, 0]


def right_generate(parameters, prompt, uniforms, attention, choose):
    # recompute everything for each token, without a cache
    table, heads = parameters["embedding"], parameters["num_heads"]
    text, rows = list(prompt), []
    for uniform in uniforms:
        x, places = table[text], np.arange(len(text))
        for block in parameters["blocks"]:
            y = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
            q, k, v = (
                (y @ block[name].T).reshape(len(text), heads, -1).swapaxes(0, 1)[None]
                for name in ("query", "key", "value")
            )
            turned = reference.apply_rope(q, places), reference.apply_rope(k, places)
            found, _ = right_cached(*turned, v)
            x = x + found[0].swapaxes(0, 1).reshape(len(text), -1) @ block["output"].T
            y = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
            gate = y @ block["gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (y @ block["up"].T)) @ block["down"].T
        last = x[-1] / np.sqrt((x[-1] ** 2).mean() + 1e-6)
        rows.append(parameters["output_table"] @ last)
        text.append(right_sample(rows[-1], uniform))
    return np.array(text[len(prompt) :]), np.array(rows)


probes = Probes(
    "11_language_model",
    bits_per_character=from_numpy(right_bits),
    top_p=from_numpy(right_top_p),
    sample_next=lambda logits, *rest, **more: right_sample(logits.numpy(), *rest, **more),
    cached_attention=from_numpy(right_cached),
    grouped_query_attention=from_numpy(right_grouped),
    latent_attention=from_numpy(right_latent),
    speculative_accept=from_numpy(right_accept),
    fixed_step=from_numpy(right_step),
    generate=from_numpy(right_generate),
)
