# %% [markdown]
# # Exercises: a language model that writes
#
# You write the parts of a language model: the loss in bits, two ways to sample a token, attention with a cache, two ways to make the cache smaller, and the acceptance rule of speculative decoding. In the last exercise your own parts generate text.
#
# Shapes: `B` texts, `H` heads of queries, `G` heads of keys and values, `n` new tokens, `T` tokens in the cache, `S` keys, `E` elements of a key, `V` tokens in the vocabulary.
#
# A function that samples takes its random number, between 0 and 1, as an argument, so results can be compared.
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.

# %% nbgrader={"grade_id": "setup", "locked": true}
import math

import numpy as np
import torch

from attn_course.probes import from_numpy, load_oracles, properties

oracles, probes = load_oracles("11_language_model")


def rotate(x, positions, base=10000.0):
    """RoPE: rotate the rows of x (..., n, E) to their positions (n,)."""
    pairs = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    angles = (positions[:, None] * base ** (-pairs / x.shape[-1])).to(x.dtype)  # (n, E / 2)
    one, other = x[..., 0::2], x[..., 1::2]
    turned = one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()
    return torch.stack(turned, dim=-1).flatten(-2)


def normed(x):
    """RMSNorm without weights."""
    return x / (x.square().mean(dim=-1, keepdim=True) + 1e-6).sqrt()


# By hand: the query 2, 0, 0, 0 and two keys; values 4, 0 and 0, 8. (B, H, 1, E)
QUERY = torch.tensor([[[[2.0, 0.0, 0.0, 0.0]]]])
OLD_KEY = torch.tensor([[[[0.0, 0.0, 0.0, 0.0]]]])
NEW_KEY = torch.tensor([[[[1.0986123, 0.0, 0.0, 0.0]]]])
OLD_VALUE, NEW_VALUE = torch.tensor([[[[4.0, 0.0]]]]), torch.tensor([[[[0.0, 8.0]]]])

# %% [markdown]
# ## 1. Bits per character
#
# `bits_per_character(logits, targets)` measures how well a model predicts a text:
#
# $$-\frac{1}{N} \sum_i \log_2\, \operatorname{softmax}(\mathrm{logits}_i)_{t_i} .$$
#
# - `logits` is `(B, L, V)`; `targets` is `(B, L)`, the id at each position. They are already aligned: row `i` of the logits predicts target `i`.
# - A target of `-1` is padding. It counts neither in the sum nor in $N$.
# - The result is a scalar tensor. It handles every finite logit, however large.
#
# By hand: four characters get the probabilities $\frac12, \frac14, \frac18, \frac12$. That is $1 + 2 + 3 + 1 = 7$ bits, or $1.75$ per character.


# %% nbgrader={"grade_id": "bits_per_character", "solution": true}
def bits_per_character(logits, targets):
    ### BEGIN SOLUTION
    counts = targets >= 0
    log_p = logits.log_softmax(dim=-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    return -log_p[counts].mean() / math.log(2)
    ### END SOLUTION


# %% nbgrader={"grade_id": "bits_per_character-by_hand", "grade": true, "points": 1}
# The example of the text: one text of four characters, an alphabet of four.
probe = probes(bits_per_character=bits_per_character)
shares = torch.tensor([[[4.0, 2, 1, 1], [3.0, 2, 1, 2], [4.0, 2, 1, 1], [1.0, 1, 4, 2]]])
probe.gives(torch.tensor(1.75), shares.log(), torch.tensor([[0, 1, 2, 2]]))

# %% nbgrader={"grade_id": "bits_per_character-values", "grade": true, "points": 1}
# Several texts.
probe = probes(bits_per_character=bits_per_character)
probe.equals(probe.normal(2, 5, 7), probe.integers(0, 7, 2, 5))
### BEGIN HIDDEN TESTS
probe.equals(3 * probe.normal(3, 4, 4), probe.integers(0, 4, 3, 4))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "bits_per_character-padding", "grade": true, "points": 1}
# The second text is shorter.
probe = probes(bits_per_character=bits_per_character)
ragged = probe.integers(0, 7, 2, 5)
ragged[1, 3:] = -1
probe.equals(2 * probe.normal(2, 5, 7), ragged)

# %% nbgrader={"grade_id": "bits_per_character-large", "grade": true, "points": 1}
# A confident, wrong model.
probe = probes(bits_per_character=bits_per_character)
probe.equals(torch.tensor([[[200.0, 0.0, 1.0], [0.0, 2.0, 1.0]]]), torch.tensor([[1, 1]]))

# %% [markdown]
# ## 2. Draw the next token
#
# `sample_next(logits, uniform, temperature=1.0, k=None)` draws one token:
#
# 1. divide the logits by the temperature;
# 2. if `k` is given, keep only the `k` largest;
# 3. compute the probabilities of the rest;
# 4. add up probabilities *in the order of the ids*. Return the first id at which the sum exceeds `uniform`.
#
# - `logits` is `(V,)`, `uniform` a number from 0 up to, but not including, 1. The result is a plain `int`.
#
# By hand: probabilities $0.1, 0.6, 0.3$. Below 0.1 the token is 0, below 0.7 it is 1, above that it is 2.
#
# <details><summary>Hint</summary>
#
# `torch.cumsum` gives all sums at once. How many of them do not exceed `uniform`?
#
# </details>


# %% nbgrader={"grade_id": "sample_next", "solution": true}
def sample_next(logits, uniform, temperature=1.0, k=None):
    ### BEGIN SOLUTION
    logits = logits.double() / temperature
    if k is not None:
        keep = logits.topk(min(k, len(logits))).indices
        logits = torch.full_like(logits, -torch.inf).scatter(0, keep, logits[keep])
    sums = logits.softmax(dim=-1).cumsum(dim=-1)
    return min(int((sums <= uniform).sum()), int(logits.isfinite().nonzero()[-1]))
    ### END SOLUTION


# %% nbgrader={"grade_id": "sample_next-by_hand", "grade": true, "points": 1}
# The example of the text, three draws.
probe = probes(sample_next=sample_next)
shares = torch.tensor([0.1, 0.6, 0.3]).log()
probe.gives(0, shares, 0.05)
probe.gives(1, shares, 0.5)
probe.gives(2, shares, 0.95)
probe.holds(properties.returns_an_int, shares, 0.5)
### BEGIN HIDDEN TESTS
for place in range(10):
    probe.equals(torch.tensor([0.3, -1.0, 1.2, 0.1, 1.4]), place / 10 + 0.03)
for place in range(4):  # a random number equal to the limit
    probe.equals(torch.zeros(4), place / 4)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sample_next-temperature", "grade": true, "points": 1}
# Low and high temperature.
probe = probes(sample_next=sample_next)
probe.equals(torch.tensor([0.0, 1.0, 0.5]), 0.3, 0.25)
### BEGIN HIDDEN TESTS
for heat in (0.4, 3.0):
    for place in range(10):
        probe.equals(torch.tensor([0.3, -1.0, 1.2, 0.1, 1.4]), place / 10 + 0.03, heat)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "sample_next-top_k", "grade": true, "points": 1}
# Only two tokens remain.
probe = probes(sample_next=sample_next)
probe.equals(torch.tensor([0.0, 1.0, 0.5]), 0.02, k=2)
### BEGIN HIDDEN TESTS
for k in (1, 3, 9):
    for place in range(10):
        probe.equals(torch.tensor([0.3, -1.0, 1.2, 0.1, 1.4]), place / 10 + 0.03, 1.0, k)
probe.equals(torch.tensor([-3.0, 1.0, 0.5]), 0.0, 1.0, 2)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Attention with a cache
#
# `cached_attention(query, key, value, cache=None)` computes attention during generation. It returns the output and the new cache.
#
# - `query`, `key` and `value` belong to the `n` **new** tokens: `(B, H, n, E)`, `(B, H, n, E)` and `(B, H, n, E_v)`.
# - `cache` is `None` at the start, afterwards the pair `(keys, values)` of all earlier tokens, `(B, H, T, E)` and `(B, H, T, E_v)`.
# - A new token attends to all tokens in the cache, to the new tokens before it, and to itself. Scores are divided by $\sqrt E$.
# - The result is `(output, (keys, values))`, with the output of the new tokens, `(B, H, n, E_v)`, and all keys and values, oldest first. The old cache is not changed.
#
# By hand: one token in the cache, with the key $[0, 0, 0, 0]$ and the value $[4, 0]$; a new token with query $[2, 0, 0, 0]$, key $[\ln 3, 0, 0, 0]$, value $[0, 8]$. As in chapter 07 the weights are $\frac14$ and $\frac34$ and the output is $[1, 6]$.


# %% nbgrader={"grade_id": "cached_attention", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "aten::*scaled_dot_product*"]}
def cached_attention(query, key, value, cache=None):
    ### BEGIN SOLUTION
    if cache is not None:
        key = torch.cat([cache[0], key], dim=-2)
        value = torch.cat([cache[1], value], dim=-2)
    new, total = query.shape[-2], key.shape[-2]
    allowed = torch.ones(new, total, dtype=torch.bool).tril(total - new)
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    return weights @ value, (key, value)
    ### END SOLUTION


# %% nbgrader={"grade_id": "cached_attention-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(cached_attention=cached_attention)
both = torch.cat([OLD_KEY, NEW_KEY], -2), torch.cat([OLD_VALUE, NEW_VALUE], -2)
expected = torch.tensor([[[[1.0, 6.0]]]]), both
probe.gives(expected, QUERY, NEW_KEY, NEW_VALUE, (OLD_KEY, OLD_VALUE))

# %% nbgrader={"grade_id": "cached_attention-first", "grade": true, "points": 1}
# The prompt: several tokens, no cache yet.
probe = probes(cached_attention=cached_attention)
probe.equals(probe.normal(1, 2, 3, 4), probe.normal(1, 2, 3, 4), probe.normal(1, 2, 3, 5))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5, 5), probe.normal(2, 3, 5, 5), probe.normal(2, 3, 5, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cached_attention-one", "grade": true, "points": 1}
# One new token.
probe = probes(cached_attention=cached_attention)
held = probe.normal(2, 3, 7, 4), probe.normal(2, 3, 7, 5)
probe.equals(probe.normal(2, 3, 1, 4), probe.normal(2, 3, 1, 4), probe.normal(2, 3, 1, 5), held)

# %% nbgrader={"grade_id": "cached_attention-several", "grade": true, "points": 2}
# Several new tokens at once, as in speculative decoding.
probe = probes(cached_attention=cached_attention)
held = probe.normal(1, 2, 5, 4), probe.normal(1, 2, 5, 3)
probe.equals(probe.normal(1, 2, 3, 4), probe.normal(1, 2, 3, 4), probe.normal(1, 2, 3, 3), held)

# %% [markdown]
# ## Look
#
# Your sampler generates a text from counts of letter pairs. The bars show the effect of the temperature on one draw. Change the temperature or the text.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

text = "attention is a weighted mean of values, and the weights are a softmax of the scores. "
letters = sorted(set(text))
ids = torch.tensor([letters.index(letter) for letter in text])
counts = torch.full((len(letters), len(letters)), 0.01)
counts.index_put_((ids[:-1], ids[1:]), torch.tensor(1.0), accumulate=True)
logits = (counts / counts.sum(-1, keepdim=True)).log()
print("bits per character:", float(bits_per_character(logits[ids[:-1]], ids[1:])))
draw, token, written = torch.Generator().manual_seed(0), int(ids[0]), []
for _ in range(80):
    token = sample_next(logits[token], float(torch.rand((), generator=draw)), 0.8)
    written.append(letters[token])
print("".join(written))
heats = (0.5, 1.0, 2.0)
figure, ax = plt.subplots(layout="constrained")
for number, heat in enumerate(heats):
    drawn = [sample_next(logits[ids[0]], place / 200, heat) for place in range(200)]
    shares = torch.bincount(torch.tensor(drawn), minlength=len(letters)) / 200
    ax.bar(torch.arange(len(letters)) + 0.3 * number, shares, width=0.3, label=f"{heat}")
ax.set(title="what follows the letter a", xlabel="next letter", ylabel="share of 200 draws")
ax.set_xticks(range(len(letters)), letters)
ax.legend(title="temperature")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. Nucleus sampling
#
# `top_p(logits, p)` keeps the smallest set of most likely tokens whose probabilities sum to at least `p` (Holtzman and others 2020).
#
# - `logits` is `(..., V)`. The result has the same shape: kept tokens keep their logits, the others get $-\infty$.
# - The token at which the sum reaches `p` is kept, so at least one token is kept for every `p`.
# - Each row has its own set.
#
# By hand: probabilities $0.1, 0.5, 0.25, 0.15$ and $p = 0.7$. The most likely token has 0.5, too little; with the next the sum is 0.75. Tokens 1 and 2 are kept.


# %% nbgrader={"grade_id": "top_p", "solution": true}
def top_p(logits, p):
    ### BEGIN SOLUTION
    ordered, order = logits.softmax(dim=-1).sort(dim=-1, descending=True)
    before = ordered.cumsum(dim=-1) - ordered  # the sum of the larger probabilities
    keep = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, before < p)
    return logits.masked_fill(~keep, -torch.inf)
    ### END SOLUTION


# %% nbgrader={"grade_id": "top_p-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(top_p=top_p)
given = torch.tensor([0.1, 0.5, 0.25, 0.15]).log()
probe.gives(given.masked_fill(torch.tensor([True, False, False, True]), -torch.inf), given, 0.7)

# %% nbgrader={"grade_id": "top_p-values", "grade": true, "points": 2}
# Other logits, other p.
probe = probes(top_p=top_p)
given = torch.tensor([0.0, 2.0, 1.0, 3.0, 0.5])
probe.gives(torch.tensor([-torch.inf, 2.0, -torch.inf, 3.0, -torch.inf]), given, 0.8)
### BEGIN HIDDEN TESTS
for p in (0.3, 0.6, 0.9):
    probe.equals(1.5 * probe.normal(11), p)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "top_p-rows", "grade": true, "points": 1}
# A confident row and an uncertain one.
probe = probes(top_p=top_p)
given = torch.tensor([[9.0, 0.0, 1.0, 2.0], [1.0, 1.1, 1.2, 1.3]])
probe.gives(
    given.masked_fill(torch.tensor([[0, 1, 1, 1], [1, 0, 0, 0]]).bool(), -torch.inf), given, 0.75
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 7) * torch.tensor([8.0, 1.0, 0.1])[:, None], 0.7)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "top_p-one", "grade": true, "points": 1}
# A p below the largest probability.
probe = probes(top_p=top_p)
probe.gives(torch.tensor([-torch.inf, 3.0, -torch.inf]), torch.tensor([2.0, 3.0, 1.0]), 0.01)

# %% [markdown]
# ## 5. Fewer keys than queries
#
# In `grouped_query_attention(query, key, value)` adjacent query heads share one head of keys and values (Ainslie and others 2023).
#
# - `query` is `(B, H, L, E)`, `key` is `(B, G, S, E)`, `value` is `(B, G, S, E_v)`. `G` divides `H`, and the result is `(B, H, L, E_v)`.
# - The first `H / G` query heads use head 0 of keys and values, the next `H / G` use head 1, and so on. With `G = 1` all share one head (multi-query), with `G = H` none do.
# - No mask. Gradients reach all three.
#
# By hand, with `E = 1`: four query heads with $0, \ln 3, 0, \ln 3$; two key heads, $(0, 1)$ and $(1, 0)$, with the values $(4, 8)$ and $(0, 12)$. The outputs are $6, 7, 6, 3$.


# %% nbgrader={"grade_id": "grouped_query_attention", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "aten::*scaled_dot_product*"]}
def grouped_query_attention(query, key, value):
    ### BEGIN SOLUTION
    grouped = query.unflatten(1, (key.shape[1], -1))  # (B, G, H / G, L, E)
    scores = grouped @ key.transpose(-2, -1).unsqueeze(2) / query.shape[-1] ** 0.5
    return (scores.softmax(dim=-1) @ value.unsqueeze(2)).flatten(1, 2)
    ### END SOLUTION


# %% nbgrader={"grade_id": "grouped_query_attention-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(grouped_query_attention=grouped_query_attention)
asks = torch.tensor([0.0, 1.0986123, 0.0, 1.0986123]).view(1, 4, 1, 1)
offers = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).view(1, 2, 2, 1)
hands = torch.tensor([[4.0, 8.0], [0.0, 12.0]]).view(1, 2, 2, 1)
probe.gives(torch.tensor([6.0, 7.0, 6.0, 3.0]).view(1, 4, 1, 1), asks, offers, hands)

# %% nbgrader={"grade_id": "grouped_query_attention-values", "grade": true, "points": 2}
# Six heads in two or three groups.
probe = probes(grouped_query_attention=grouped_query_attention)
probe.equals(probe.normal(2, 6, 3, 4), probe.normal(2, 2, 5, 4), probe.normal(2, 2, 5, 7))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 6, 5, 5), probe.normal(2, 3, 5, 5), probe.normal(2, 3, 5, 5))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "grouped_query_attention-one", "grade": true, "points": 1}
# One shared head.
probe = probes(grouped_query_attention=grouped_query_attention)
probe.equals(probe.normal(1, 3, 2, 4), probe.normal(1, 1, 5, 4), probe.normal(1, 1, 5, 2))

# %% nbgrader={"grade_id": "grouped_query_attention-same", "grade": true, "points": 1}
# No shared heads.
probe = probes(grouped_query_attention=grouped_query_attention)
probe.equals(probe.normal(1, 3, 2, 4), probe.normal(1, 3, 5, 4), probe.normal(1, 3, 5, 2))

# %% nbgrader={"grade_id": "grouped_query_attention-gradient", "grade": true, "points": 1}
# Gradients.
probe = probes(grouped_query_attention=grouped_query_attention)
probe.gradient(
    probe.normal(1, 4, 2, 3), probe.normal(1, 2, 3, 3), probe.normal(1, 2, 3, 2), wrt=(0, 1, 2)
)

# %% [markdown]
# ## 6. A latent cache
#
# Multi-head latent attention keeps one short vector $c_j$ per token. Keys and values of head $h$ are made from it: $k_{jh} = U_h c_j$ and $v_{jh} = W_h c_j$.
# `latent_attention(query, latent, key_up, value_up)` is the attention of the new tokens (without the part for positions):
#
# $$o_{ih} = \sum_j \operatorname{softmax}_j\!\Big(\frac{q_{ih} \cdot U_h c_j}{\sqrt E}\Big)\, W_h c_j .$$
#
# - `query` is `(B, H, n, E)`, `latent` is `(B, S, r)`, `key_up` is `(H, E, r)`, `value_up` is `(H, E_v, r)`. The result is `(B, H, n, E_v)`.
# - Never build the keys and values of the heads. One query, 32,768 tokens, 8 heads with `E = 32` and `r = 4` must fit in 8 MiB; the keys alone take 32.
# - Gradients reach all four.
#
# By hand, one head, `E = 4`, `r = 1`: query $[2, 0, 0, 0]$, latent vectors $0$ and $1$, `key_up` $= [\ln 3, 0, 0, 0]$, `value_up` $= [0, 8]$. The weights are $\frac14$ and $\frac34$, the output is $[0, 6]$.
#
# <details><summary>Hint</summary>
#
# $q \cdot U c = (U^\top q) \cdot c$, and a weighted sum of $W c_j$ is $W$ times the weighted sum of $c_j$.
#
# </details>


# %% nbgrader={"grade_id": "latent_attention", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "aten::*scaled_dot_product*"]}
def latent_attention(query, latent, key_up, value_up):
    ### BEGIN SOLUTION
    short = query @ key_up  # (B, H, n, r)
    scores = short @ latent.unsqueeze(1).transpose(-2, -1) / query.shape[-1] ** 0.5
    mixed = scores.softmax(dim=-1) @ latent.unsqueeze(1)  # (B, H, n, r)
    return mixed @ value_up.transpose(-2, -1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "latent_attention-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(latent_attention=latent_attention)
probe.gives(
    torch.tensor([[[[0.0, 6.0]]]]),
    QUERY,
    torch.tensor([[[0.0], [1.0]]]),
    NEW_KEY[0, 0].T[None],
    NEW_VALUE[0, 0].T[None],
)

# %% nbgrader={"grade_id": "latent_attention-values", "grade": true, "points": 2}
# Several heads, texts and queries; values of the size of the keys, and of another.
probe = probes(latent_attention=latent_attention)
for size in (6, 5):
    probe.equals(
        *(probe.normal(2, 3, 2, 5), probe.normal(2, 7, 4)),
        *(probe.normal(3, 5, 4), probe.normal(3, size, 4)),
    )

# %% nbgrader={"grade_id": "latent_attention-memory", "grade": true, "points": 2}
# 32,768 tokens, 8 heads with E = 32, r = 4: all keys would take 32 MiB.
probe = probes(latent_attention=latent_attention)
probe.memory(
    probe.normal(1, 8, 1, 32),
    probe.normal(1, 2**15, 4),
    probe.normal(8, 32, 4),
    probe.normal(8, 32, 4),
    below=2**23,
)

# %% nbgrader={"grade_id": "latent_attention-gradient", "grade": true, "points": 1}
# Gradients.
probe = probes(latent_attention=latent_attention)
probe.gradient(
    *(probe.normal(1, 2, 2, 3), probe.normal(1, 3, 2)),
    *(probe.normal(2, 3, 2), probe.normal(2, 4, 2)),
    wrt=(0, 1, 2, 3),
)

# %% [markdown]
# ## 7. Accept or refuse
#
# A small model, the draft, has proposed `n` tokens. The large model, the target, has scored them all in one run. `speculative_accept(target, draft, words, uniforms)` decides which to keep (Leviathan and others 2023).
#
# - `target` is `(n + 1, V)`, `draft` is `(n, V)`: row `i` holds the probabilities of token `i`; the last row of `target` belongs to the token after all of them. `words` is `(n,)`, `uniforms` is `(n + 1,)`.
# - In order, accept token `i`, called $x$, if $u_i < \min(1, p_i(x) / q_i(x))$.
# - At the first refusal, draw a replacement from $\max(0, p_i - q_i)$, scaled to sum to one, and discard the rest.
# - If all are accepted, draw one more from the last row of `target`.
# - Both draws use the last uniform, as in exercise 2: the first id at which the sum exceeds it. The result is a tensor of ids.
#
# By hand: $p_0 = (\frac12, \frac14, \frac14)$, $q_0 = (\frac14, \frac12, \frac14)$, token 0: $p/q = 2$, accepted. $p_1 = (0.2, 0.2, 0.6)$, $q_1 = (0.6, 0.2, 0.2)$, token 0: $p/q = \frac13$, and $u_1 = 0.5$ refuses it. The rest is $(0, 0, 0.4)$: token 2. The result is $[0, 2]$.


# %% nbgrader={"grade_id": "speculative_accept", "solution": true}
def speculative_accept(target, draft, words, uniforms):
    ### BEGIN SOLUTION
    written, left = [], target[-1]
    for p, q, word, u in zip(target, draft, words.tolist(), uniforms.tolist(), strict=False):
        if u * q[word] >= p[word]:
            left = (p - q).clamp(min=0)
            break
        written.append(word)
    sums = (left / left.sum()).double().cumsum(0)
    last = min(int((sums <= uniforms[-1]).sum()), int(left.nonzero()[-1]))
    return torch.tensor([*written, last])
    ### END SOLUTION


# %% nbgrader={"grade_id": "speculative_accept-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(speculative_accept=speculative_accept)
P = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]])
Q = torch.tensor([[0.25, 0.5, 0.25], [0.6, 0.2, 0.2]])
probe.gives(torch.tensor([0, 2]), P, Q, torch.tensor([0, 0]), torch.tensor([0.9, 0.5, 0.1]))

# %% nbgrader={"grade_id": "speculative_accept-accepted", "grade": true, "points": 2}
# All are accepted: one because p exceeds q, one by its random number.
probe = probes(speculative_accept=speculative_accept)
probe.gives(torch.tensor([0, 0, 1]), P, Q, torch.tensor([0, 0]), torch.tensor([0.9, 0.3, 0.5]))
### BEGIN HIDDEN TESTS
probe.equals(P, Q, torch.tensor([1, 2]), torch.tensor([0.49, 0.99, 0.95]))
probe.equals(P, Q, torch.tensor([1, 2]), torch.tensor([0.49, 0.99, 0.4]))
probe.equals(P[:1], Q[:0], torch.tensor([], dtype=torch.long), torch.tensor([0.6]))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "speculative_accept-refused", "grade": true, "points": 2}
# The first of three is refused.
probe = probes(speculative_accept=speculative_accept)
P4 = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]])
Q4 = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.25, 0.25, 0.25, 0.25]])
probe.equals(P4, Q4, torch.tensor([1, 0]), torch.tensor([0.7, 0.2, 0.2]))
### BEGIN HIDDEN TESTS
for place in range(10):
    probe.equals(P4, Q4, torch.tensor([1, 0]), torch.tensor([0.7, 0.2, place / 10 + 0.03]))
    probe.equals(P4, Q4, torch.tensor([3, 3]), torch.tensor([0.99, 0.5, place / 10 + 0.03]))
# a random number equal to the limit
probe.equals(P, Q, torch.tensor([1, 0]), torch.tensor([0.5, 0.5, 0.1]))
probe.equals(P, Q, torch.tensor([0, 0]), torch.tensor([0.9, 0.5, 0.0]))
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Repair: a step with two faults
#
# `broken_step` should process `n` new tokens of one head with RoPE and a cache. Its result is right for a prompt and wrong afterwards. It has two faults. Find them and write `fixed_step`.
#
# - `x` is `(n, D)`; the three matrices are `(E, D)`; `cache_key` and `cache_value` are `(T, E)`, `T` may be 0. The cached keys are already rotated, to positions 0 to `T - 1`.
# - The result is `(output, keys, values)`, of the shapes `(n, E)`, `(T + n, E)` and `(T + n, E)`.


# %% nbgrader={"grade_id": "broken_step", "locked": true}
def broken_step(x, weight_query, weight_key, weight_value, cache_key, cache_value):
    positions = torch.arange(len(x))
    query = rotate(x @ weight_query.T, positions)
    keys = torch.cat([cache_key, rotate(x @ weight_key.T, positions)])
    values = torch.cat([cache_value, x @ weight_value.T])
    allowed = torch.ones(len(x), len(keys), dtype=torch.bool).tril()
    scores = query @ keys.T / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    return weights @ values, keys, values


# %% nbgrader={"grade_id": "fixed_step", "solution": true} attn_course={"forbidden": ["scaled_dot_product_attention", "aten::*scaled_dot_product*"]}
def fixed_step(x, weight_query, weight_key, weight_value, cache_key, cache_value):
    ### BEGIN SOLUTION
    past = len(cache_key)
    positions = past + torch.arange(len(x))
    query = rotate(x @ weight_query.T, positions)
    keys = torch.cat([cache_key, rotate(x @ weight_key.T, positions)])
    values = torch.cat([cache_value, x @ weight_value.T])
    allowed = torch.ones(len(x), len(keys), dtype=torch.bool).tril(past)
    scores = query @ keys.T / query.shape[-1] ** 0.5
    weights = scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1)
    return weights @ values, keys, values
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_step-prompt", "grade": true, "points": 1}
# The prompt, with an empty cache: the broken function passes this.
probe = probes(fixed_step=fixed_step)
three = probe.normal(4, 5), probe.normal(4, 5), probe.normal(4, 5)
probe.equals(probe.normal(3, 5), *three, torch.zeros(0, 4), torch.zeros(0, 4))

# %% nbgrader={"grade_id": "fixed_step-one", "grade": true, "points": 2}
# One new token.
probe = probes(fixed_step=fixed_step)
three = probe.normal(4, 5), probe.normal(4, 5), probe.normal(4, 5)
probe.equals(probe.normal(1, 5), *three, probe.normal(6, 4), probe.normal(6, 4))

# %% nbgrader={"grade_id": "fixed_step-several", "grade": true, "points": 1}
# Several new tokens.
probe = probes(fixed_step=fixed_step)
three = probe.normal(4, 5), probe.normal(4, 5), probe.normal(4, 5)
probe.equals(probe.normal(3, 5), *three, probe.normal(6, 4), probe.normal(6, 4))

# %% [markdown]
# ## 9. Write the test
#
# `check_cached_attention(candidate)` takes another learner's `cached_attention(query, key, value, cache=None)` and returns `True` if it keeps the contract of exercise 3, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# You can test a cache without a known result: token by token must give the same as all tokens at once. But both may share a fault, so compare with your own numbers as well.
# A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_cached_attention", "solution": true}
def check_cached_attention(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 7, 5, generator=draw) for _ in range(3))
    scores = query @ key.transpose(-2, -1) / 5**0.5
    past = torch.ones(7, 7, dtype=torch.bool).tril()
    expected = scores.masked_fill(~past, -torch.inf).softmax(-1) @ value
    for cuts in ((7,), (1, 1, 1, 1, 1, 1, 1), (3, 2, 2)):
        cache, outputs, start = None, [], 0
        for size in cuts:
            part = slice(start, start + size)
            try:
                output, cache = candidate(
                    query[:, :, part], key[:, :, part], value[:, :, part], cache
                )
            except Exception:
                return False
            outputs.append(output)
            start += size
        got = torch.cat(outputs, dim=-2)
        if got.shape != expected.shape or not torch.allclose(got, expected, atol=1e-5):
            return False
        if not torch.equal(cache[0], key) or not torch.equal(cache[1], value):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_cached_attention-plain", "grade": true, "points": 1}
# A right answer, and two that are clearly wrong.
def by_reference(query, key, value, cache=None):
    return from_numpy(oracles.right_cached)(query, key, value, cache)


def forgetful(query, key, value, cache=None):
    return by_reference(query, key, value, None)


probe = probes(check_cached_attention=check_cached_attention)
probe.judges(
    right=[by_reference],
    wrong={
        "always 0": lambda query, key, value, cache=None: (0 * value, (key, value)),
        "nothing is kept": forgetful,
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_cached_attention-mutants", "grade": true, "points": 5}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_cached_attention=check_cached_attention)
probe.judges(right=[by_reference], wrong={"nothing is kept": forgetful}, points=5)


### BEGIN HIDDEN TESTS
def made(*, mask, scale=lambda key: key.shape[-1] ** 0.5, first=False):
    def candidate(query, key, value, cache=None):
        old = (key[..., :0, :], value[..., :0, :]) if cache is None else cache
        pairs = [(key, old[0]), (value, old[1])] if first else [(old[0], key), (old[1], value)]
        keys, values = (torch.cat(pair, dim=-2) for pair in pairs)
        scores = query @ keys.transpose(-2, -1) / scale(keys)
        allowed = mask(query.shape[-2], keys.shape[-2])
        weights = scores.masked_fill(~allowed, -1e9).softmax(dim=-1)
        return weights @ values, (keys, values)

    return candidate


def ones(new, total):
    return torch.ones(new, total, dtype=torch.bool)


def late(new, total):
    return ones(new, total).tril(total - new)


probe.judges(
    right=[by_reference, made(mask=late)],
    wrong={
        "no mask among the new tokens": made(mask=ones),
        "the mask counts from the top left": made(mask=lambda n, s: ones(n, s).tril()),
        "a new token does not attend to itself": made(mask=lambda n, s: ones(n, s).tril(s - n - 1)),
        "the scale follows the number of keys": made(mask=late, scale=lambda k: k.shape[-2] ** 0.5),
        "new keys before the old ones": made(mask=late, first=True),
        "no scale": made(mask=late, scale=lambda k: 1.0),
    },
    points=5,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 10. Generate a text
#
# `generate(parameters, prompt, uniforms, attention, choose)` reads a prompt and generates one token per uniform. It returns the ids of the `T` new tokens, `(T,)`, and the logits from which each was drawn, `(T, V)`.
#
# **The arguments**
#
# - `prompt` is `(L,)`, ids of tokens. `uniforms` is `(T,)`, numbers from 0 to 1.
# - `parameters` is a dict. `parameters["embedding"]` and `parameters["output_table"]` are `(V, D)`, and `parameters["num_heads"]` is `H`. `parameters["blocks"]` is a list of dicts of matrices: `query`, `key` and `value` are `(H * E, D)`, `output` is `(D, H * E)`, `gate` and `up` are `(F, D)`, `down` is `(D, F)`.
# - `attention(query, key, value, cache)` is a function with the contract of exercise 3: it returns the output and the new cache. Keep one cache for each block; all are `None` at the start.
# - `choose(logits, uniform)` is a function with the contract of exercise 2: it takes logits `(V,)` and one uniform, and returns the id of the next token, an `int`.
#
# **One step** takes the new tokens: first the whole prompt, then the token that was just chosen. No token passes through the blocks twice.
#
# 1. $x$ = their rows of the embedding.
# 2. For each block, in order: $x \leftarrow x + \text{output} \cdot \operatorname{attention}(q, k, v)$, where $q$, $k$ and $v$ are the products of `normed(x)` with `query`, `key` and `value`. Head `h` has the elements `h * E` to `(h + 1) * E - 1`. Use `rotate` on $q$ and $k$ with the tokens' positions in the whole text before you call `attention`.
# 3. In the same block, with $y = \operatorname{normed}(x)$: $x \leftarrow x + \text{down} \cdot (\operatorname{silu}(\text{gate} \cdot y) \odot (\text{up} \cdot y))$, the SwiGLU of chapter 09.
# 4. The logits are `normed(x)` of the last token times the transposed `output_table`. `choose` draws the next token from them.
#
# The tests pass right functions for `attention` and `choose`. When they succeed, the last cell of this exercise passes your own, and the weights of the package's Shakespeare model.


# %% nbgrader={"grade_id": "generate", "solution": true}
def generate(parameters, prompt, uniforms, attention, choose):
    ### BEGIN SOLUTION
    heads = parameters["num_heads"]
    caches = [None] * len(parameters["blocks"])
    new, past, words, rows = prompt, 0, [], []
    for uniform in uniforms.tolist():
        x = parameters["embedding"][new]
        positions = past + torch.arange(len(new))
        for i, block in enumerate(parameters["blocks"]):
            y = normed(x)
            q, k, v = (
                (y @ block[name].T).unflatten(-1, (heads, -1)).transpose(0, 1)[None]
                for name in ("query", "key", "value")
            )  # (1, H, n, E)
            found, caches[i] = attention(rotate(q, positions), rotate(k, positions), v, caches[i])
            x = x + found[0].transpose(0, 1).flatten(1) @ block["output"].T
            y = normed(x)
            hidden = torch.nn.functional.silu(y @ block["gate"].T) * (y @ block["up"].T)
            x = x + hidden @ block["down"].T
        rows.append(normed(x[-1]) @ parameters["output_table"].T)
        words.append(choose(rows[-1], uniform))
        past, new = past + len(new), torch.tensor(words[-1:])
    return torch.tensor(words), torch.stack(rows)
    ### END SOLUTION


# %% nbgrader={"grade_id": "generate-one", "grade": true, "points": 2}
# One token after a prompt of four.
def tables(probe, words=7, width=6, heads=2, head=4, hidden=5, blocks=2):
    shapes = dict.fromkeys(("query", "key", "value"), (heads * head, width))
    shapes |= {"gate": (hidden, width), "up": (hidden, width)}
    shapes |= {"output": (width, heads * head), "down": (width, hidden)}
    return {
        "embedding": probe.normal(words, width),
        "output_table": probe.normal(words, width),
        "num_heads": heads,
        "blocks": [
            {name: 0.5 * probe.normal(*shape) for name, shape in shapes.items()}
            for _ in range(blocks)
        ],
    }


def lent_attention(query, key, value, cache=None):
    if query.shape[-2] > 4:
        raise ValueError("more new tokens at once than the prompt has: some are computed again")
    return from_numpy(oracles.right_cached)(query, key, value, cache)


def lent_choice(logits, uniform):
    return oracles.right_sample(np.asarray(logits), float(uniform))


probe = probes(generate=generate)
probe.equals(
    tables(probe), torch.tensor([3, 1, 4, 1]), torch.tensor([0.5]), lent_attention, lent_choice
)

# %% nbgrader={"grade_id": "generate-text", "grade": true, "points": 4}
# Six tokens. This attention refuses more new tokens at once than the prompt has.
probe = probes(generate=generate)
probe.equals(
    *(tables(probe), torch.tensor([2, 0, 5, 6]), 0.05 + 0.9 * probe.uniform(6)),
    *(lent_attention, lent_choice),
)

# %% [markdown]
# Now your own parts generate text with the weights of the package's Shakespeare model. The package's model gets the same uniforms: both texts must agree in every character.
# Its norms have weights: `parameters_of` multiplies them into the matrices that read the norm. Three query heads share one head of keys and values, so it repeats these. It also makes the elements of each rotated pair adjacent, as `rotate` expects.


# %% nbgrader={"grade_id": "parameters_of", "locked": true}
def parameters_of(model):
    """The weights of a Llama in the form of this exercise."""

    def weight(part, norm):
        return (part.weight * norm.weight).detach()

    def paired(matrix, size):
        return matrix.unflatten(0, (-1, 2, size // 2)).transpose(1, 2).flatten(0, 2)

    def shared(matrix, size, group):
        return matrix.unflatten(0, (-1, size)).repeat_interleave(group, 0).flatten(0, 1)

    blocks = []
    for block in model.blocks:
        look, feed, norm = block.attention, block.feed_forward, block.feed_forward_norm
        size, group = look.head_dim, look.num_heads // look.num_kv_heads
        query, key, value = (
            weight(part, block.attention_norm)
            for part in (look.query_projection, look.key_projection, look.value_projection)
        )
        blocks.append(
            {
                "query": paired(query, size),
                "key": shared(paired(key, size), size, group),
                "value": shared(value, size, group),
                "output": look.output_projection.weight.detach(),
                "gate": weight(feed.gate_projection, norm),
                "up": weight(feed.up_projection, norm),
                "down": feed.down_projection.weight.detach(),
            }
        )
    return {
        "embedding": model.embedding.tokens.weight.detach(),
        "output_table": weight(model.output_projection, model.norm),
        "num_heads": model.blocks[0].attention.num_heads,
        "blocks": blocks,
    }


# %% attn_course={"look": true}
from attn_course.data import load_language_model

shipped, characters = load_language_model()
prompt = characters.encode("ROMEO:\n")
uniforms = torch.rand(240, generator=torch.Generator().manual_seed(0))


def choose(logits, uniform):
    return sample_next(logits, uniform, temperature=0.7)


written, _ = generate(parameters_of(shipped), prompt, uniforms, cached_attention, choose)
print("ROMEO:\n" + characters.decode(written))

# the package's model with its own cache, and your draw with the same uniforms
new, cache, package = prompt, shipped.new_cache(), []
with torch.no_grad():
    for uniform in uniforms.tolist():
        package.append(choose(shipped(new[None], cache=cache)[0, -1], uniform))
        new = torch.tensor(package[-1:])
print("\nThe package writes the same text:", package == written.tolist())

# %% [markdown]
# ## 11. Report
#
# Use your functions and the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. A model with 32 blocks, 32 heads of queries and `E = 128` serves texts of 8,000 tokens in half precision. How many bytes does the cache of one text take with 32, 8 and 1 key heads? What else changes, and what does not, when heads are shared?
# 2. Show with `speculative_accept`, three tokens and a few thousand draws, that the first token has the distribution of the target, for a good draft and for a bad one. What does a bad draft cost?
# 3. From one text at temperature 0.2 a colleague concludes that a model is boring, and from one at 1.5 that it is confused. What do you measure instead?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. $2 \cdot 32 \cdot 8000 \cdot 128 \cdot 2$ bytes $= 131$ MB per key head: 4.2 GB with 32, 1.05 GB with 8, 0.13 GB with one.
# The number of query-key products is the same, so the operations of attention hardly change. The stored data that each new token reads shrinks, and so do the parameters of the two projections.
# 2. For both drafts the frequencies agree with the target within the sampling noise. With a bad draft more tokens are refused, so the target runs more often per token; the distribution does not change.
# 3. For the model, bits per character on held-out text, which involve no temperature. For the sampling, shares over many texts: existing words, repeated passages, distinct words. One text is one draw.
#
# **Points**, one for each:
#
# - (1a) Bytes for 32, 8 and 1 heads.
# - (1b) What does not change.
# - (2a) Frequencies of a good and a bad draft, compared with the target's.
# - (2b) A bad draft costs runs, not the distribution.
# - (3a) Bits on held-out text for the model.
# - (3b) Shares over many texts for the sampling.
