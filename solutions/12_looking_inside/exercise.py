# %% [markdown]
# # Exercises: looking inside
#
# You write the instruments of the chapter: three scores that describe attention, two interventions on the output of a head, and two measures of the effect of an intervention or a part.
#
# Shapes: `B` texts, `H` heads, `L` positions, `E` the width of a head's output, `D` of the residual stream, `V` tokens in the vocabulary.
# `weights[h, i, j]` is the weight of position `j` for position `i` in head `h`; each row sums to one.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import torch

from attn_course import analysis, reference
from attn_course.probes import from_numpy, load_oracles

oracles, probes = load_oracles("12_looking_inside")


def causal_weights(scores):
    """Weights of a causal head from scores."""
    length = scores.shape[-1]
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


# By hand: one head and three positions.
THREE = torch.tensor([[[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.25, 0.5, 0.25]]])

# %% [markdown]
# ## 1. Induction score
#
# An induction head attends to the position *after* an earlier copy of the current token.
# `induction_score(weights, tokens)` is the mean weight on that position (Olsson and others 2022 call it prefix matching):
#
# $$\frac{1}{|I|}\sum_{i \in I}\;\sum_{j \le i\,:\; t_{j-1} = t_i} A_{ij}, \qquad I = \{ i : t_i \text{ occurred before}\} .$$
#
# - `weights` is `(H, L, L)`, `tokens` is `(L,)`, integers; the result is `(H,)`.
# - If a token occurred several times before, the weights after *all* earlier copies count.
# - The mean runs only over the positions in $I$. If no token occurs twice, the score is 0.
# - `weights` need not be causal; positions after $i$ never count.
#
# By hand: tokens `[5, 7, 5]` with the weights `[[1, 0, 0], [0.75, 0.25, 0], [0.25, 0.5, 0.25]]`. Only the token at position 2 occurred before, at 0. The position after that copy is 1, which gets 0.5. The score is 0.5.
#
# <details><summary>Hint</summary>
#
# `tokens[:, None] == tokens[None, :]` marks equal pairs. Keep the pairs whose copy is earlier, then shift every mark one column to the right.
#
# </details>


# %% nbgrader={"grade_id": "induction_score", "solution": true} attn_course={"forbidden": ["import attn_course.analysis"]}
def induction_score(weights, tokens):
    ### BEGIN SOLUTION
    earlier = (tokens[:, None] == tokens[None, :]).tril(-1)  # (L, L): the same token, before
    after = torch.zeros_like(earlier)
    after[:, 1:] = earlier[:, :-1]
    count = earlier.any(-1).sum().clamp(min=1)
    return (weights * after).sum((-2, -1)) / count
    ### END SOLUTION


# %% nbgrader={"grade_id": "induction_score-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(induction_score=induction_score)
probe.gives(torch.tensor([0.5]), THREE, torch.tensor([5, 7, 5]))

# %% nbgrader={"grade_id": "induction_score-texts", "grade": true, "points": 3}
# Several heads, tokens that occur twice or more.
probe = probes(induction_score=induction_score)
told_again = torch.tensor([4, 1, 3, 4, 1, 3])
probe.equals(causal_weights(torch.arange(72.0).view(2, 6, 6).sin()), told_again)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "induction_score-no_repeat", "grade": true, "points": 1}
# No token occurs twice.
probe = probes(induction_score=induction_score)
probe.gives(torch.tensor([0.0]), THREE, torch.tensor([5, 7, 6]))

# %% nbgrader={"grade_id": "induction_score-gradient", "grade": true, "points": 1}
# Gradients reach the weights.
probe = probes(induction_score=induction_score)
probe.gradient(THREE, torch.tensor([5, 7, 5]))
### BEGIN HIDDEN TESTS
again = torch.tensor([2, 0, 2, 2, 0])
probe.gradient(causal_weights(probe.normal(2, 5, 5)), again)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. Rollout
#
# `attention_rollout(weights, residual=0.5)` multiplies the weights of the layers, each mixed with the identity (Abnar and Zuidema 2020):
#
# $$R = \tilde A_N \cdots \tilde A_2\, \tilde A_1, \qquad \tilde A_n = (1 - r)\,\frac1H\sum_h A_{nh} + r\,I .$$
#
# - `weights` is `(N, H, L, L)`, first layer first; the result is `(L, L)`, outputs by inputs.
# - $r$ is `residual`, the share of the residual connection.
#
# By hand: one layer, one head, weights `[[1, 0], [0.5, 0.5]]` and $r = 0.5$ give `[[1, 0], [0.25, 0.75]]`; the same layer twice gives `[[1, 0], [0.4375, 0.5625]]`.


# %% nbgrader={"grade_id": "attention_rollout", "solution": true} attn_course={"forbidden": ["import attn_course.analysis"]}
def attention_rollout(weights, residual=0.5):
    ### BEGIN SOLUTION
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype)
    rollout = identity
    for layer in weights.mean(1):
        rollout = ((1 - residual) * layer + residual * identity) @ rollout
    return rollout
    ### END SOLUTION


# %% nbgrader={"grade_id": "attention_rollout-by_hand", "grade": true, "points": 1}
# One layer, and the same layer twice.
probe = probes(attention_rollout=attention_rollout)
ONE = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]]]])
probe.gives(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ONE)
probe.gives(torch.tensor([[1.0, 0.0], [0.4375, 0.5625]]), ONE.repeat(2, 1, 1, 1))

# %% nbgrader={"grade_id": "attention_rollout-layers", "grade": true, "points": 2}
# Layers and heads that differ.
probe = probes(attention_rollout=attention_rollout)
probe.equals(torch.arange(36.0).view(2, 2, 3, 3).cos().softmax(-1))
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "attention_rollout-residual", "grade": true, "points": 1}
# Other shares of the residual stream.
probe = probes(attention_rollout=attention_rollout)
probe.equals(torch.arange(36.0).view(2, 2, 3, 3).cos().softmax(-1), 0.25)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5, 5).softmax(-1), residual=0.0)
probe.equals(probe.normal(3, 2, 4, 4).softmax(-1), residual=0.9)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Ablate heads
#
# `ablate_heads(found, heads, how)` returns the outputs of the heads with some of them replaced.
#
# - `found` is `(B, H, L, E)`, the outputs before the heads are joined. `heads` is a list of head indices, possibly empty.
# - `how = "zero"` sets these heads to zero. `how = "mean"` sets them, at every position of every text, to their own mean over all texts and positions, a vector of `E` numbers.
# - All other heads keep their outputs. `found` is not changed.
# - A head that is set to zero passes no gradient back; one that is set to its mean does.
#
# By hand, one text, one head, two positions, $E = 1$: `found = [2, 4]` becomes `[0, 0]` or `[3, 3]`.


# %% nbgrader={"grade_id": "ablate_heads", "solution": true}
def ablate_heads(found, heads, how):
    ### BEGIN SOLUTION
    changed = found.clone()
    for head in heads:
        changed[:, head] = 0.0 if how == "zero" else found[:, head].mean((0, 1))
    return changed
    ### END SOLUTION


# %% nbgrader={"grade_id": "ablate_heads-by_hand", "grade": true, "points": 1}
# Two positions, E = 1.
probe = probes(ablate_heads=ablate_heads)
probe.gives(torch.tensor([[[[0.0], [0.0]]]]), torch.tensor([[[[2.0], [4.0]]]]), [0], "zero")
probe.gives(torch.tensor([[[[3.0], [3.0]]]]), torch.tensor([[[[2.0], [4.0]]]]), [0], "mean")

# %% nbgrader={"grade_id": "ablate_heads-zero", "grade": true, "points": 1}
# Two of three heads set to zero.
probe = probes(ablate_heads=ablate_heads)
probe.equals(torch.arange(24.0).view(2, 3, 2, 2), [0, 2], "zero")
probe.equals(torch.arange(24.0).view(2, 3, 2, 2), [], "zero")
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 3, 3, 3), [1], "zero")
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "ablate_heads-mean", "grade": true, "points": 2}
# Two of three heads set to their mean.
probe = probes(ablate_heads=ablate_heads)
probe.equals(torch.arange(24.0).view(2, 3, 2, 2), [0, 2], "mean")
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 3, 3, 3), [1], "mean")
probe.equals(probe.normal(5, 4, 3, 2, dtype=torch.float64), [3, 0], "mean")
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "ablate_heads-gradient", "grade": true, "points": 1}
# Which heads pass a gradient back.
probe = probes(ablate_heads=ablate_heads)
probe.gradient(torch.arange(24.0).view(2, 3, 2, 2), [1], "zero")
probe.gradient(torch.arange(24.0).view(2, 3, 2, 2), [1], "mean")

# %% [markdown]
# ## Look
#
# Two heads made by hand: one attends to the previous token, one to the token after an earlier copy. Your score distinguishes them. Below: the rollout of the two layers.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

tokens = torch.tensor([3, 1, 4, 3, 1, 4])
before = torch.eye(6).roll(-1, dims=1).tril()
before[0, 0] = 1.0
copies = torch.eye(6)
copies[3:] = torch.eye(6)[[1, 2, 3]]
weights = torch.stack([before, copies])
scores = induction_score(weights, tokens).tolist()
figure, axes = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
shown = [*weights, attention_rollout(weights[:, None, None])[0]]
titles = [f"head {i}, induction score {score:.2f}" for i, score in enumerate(scores)]
for ax, one, title in zip(axes, shown, [*titles, "rollout"], strict=True):
    ax.imshow(one, vmin=0, vmax=1)
    ax.set(title=title, xlabel="key", ylabel="query")
    ax.set_xticks(range(6), tokens.tolist())
    ax.set_yticks(range(6), tokens.tolist())
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. Relative entropy
#
# The entropy of chapter 05 measures how evenly a row of weights is spread. Position $i$ of a causal head has $i + 1$ keys, so later rows can have a larger entropy.
# `relative_entropy(weights)` divides by the largest possible entropy:
#
# $$\frac{1}{L-1}\sum_{i=1}^{L-1} \frac{-\sum_j A_{ij}\ln A_{ij}}{\ln(i+1)} .$$
#
# - `weights` is `(..., L, L)`, causal, $L \ge 2$; the result is `(...)`. Position 0, which has one key, is left out.
# - 1 means that every row is even, 0 that every row attends to one key. A weight of exactly 0 adds 0, not NaN.
#
# By hand: `[[1, 0], [0.5, 0.5]]` gives $\ln 2/\ln 2 = 1$.


# %% nbgrader={"grade_id": "relative_entropy", "solution": true}
def relative_entropy(weights):
    ### BEGIN SOLUTION
    entropy = -torch.xlogy(weights, weights).sum(-1)[..., 1:]
    keys = torch.arange(2, weights.shape[-1] + 1, dtype=weights.dtype)
    return (entropy / keys.log()).mean(-1)
    ### END SOLUTION


# %% nbgrader={"grade_id": "relative_entropy-by_hand", "grade": true, "points": 1}
# The example, and a head that always attends to one key.
probe = probes(relative_entropy=relative_entropy)
probe.gives(torch.tensor([1.0]), torch.tensor([[[1.0, 0.0], [0.5, 0.5]]]))
probe.gives(torch.tensor([0.0]), torch.eye(3)[None])

# %% nbgrader={"grade_id": "relative_entropy-heads", "grade": true, "points": 2}
# An even head and a sharper one.
probe = probes(relative_entropy=relative_entropy)
probe.equals(causal_weights(torch.stack([torch.zeros(4, 4), 3 * torch.eye(4)])))
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 5. Patch a head
#
# `patch_head(corrupted, clean, head, positions)` is the core of activation patching: it returns the corrupted run with the output of one head, at some positions, taken from the clean run.
#
# - `corrupted` and `clean` are `(B, H, L, E)`, `head` is an index, `positions` a list of indices, possibly empty.
# - Everything else comes from the corrupted run. Neither argument is changed.
#
# By hand, one text, one head, two positions, $E = 1$: `corrupted = [1, 2]`, `clean = [5, 6]`, position 1 gives `[1, 6]`.


# %% nbgrader={"grade_id": "patch_head", "solution": true}
def patch_head(corrupted, clean, head, positions):
    ### BEGIN SOLUTION
    changed = corrupted.clone()
    changed[:, head, positions] = clean[:, head, positions]
    return changed
    ### END SOLUTION


# %% nbgrader={"grade_id": "patch_head-by_hand", "grade": true, "points": 1}
# Two positions, E = 1.
probe = probes(patch_head=patch_head)
probe.gives(
    torch.tensor([[[[1.0], [6.0]]]]),
    torch.tensor([[[[1.0], [2.0]]]]),
    torch.tensor([[[[5.0], [6.0]]]]),
    0,
    [1],
)

# %% nbgrader={"grade_id": "patch_head-one_head", "grade": true, "points": 2}
# One of several heads, at one position or more.
probe = probes(patch_head=patch_head)
probe.equals(torch.zeros(2, 3, 4, 2), torch.arange(48.0).view(2, 3, 4, 2), 1, [0, 2])
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ### How much is recovered?
#
# A patch is measured by its effect on the answer.
# Each text has a right token and a `wrong` one, which the corrupted run prefers. The **lead** is the logit of the right token minus that of the wrong one, averaged over the texts.
# `recovered(clean, corrupted, patched, right, wrong)` is the share of the lead that the patch recovers:
#
# $$\frac{\text{lead}_{\text{patched}} - \text{lead}_{\text{corrupted}}}{\text{lead}_{\text{clean}} - \text{lead}_{\text{corrupted}}} .$$
#
# - The first three are logits `(B, V)`, the last two are token ids `(B,)`. The result is a scalar tensor.
# - 0 means that the patch has no effect, 1 that it restores the clean lead. The share may be negative or above 1.
#
# By hand, one text, right token 0, wrong token 1: `clean = [3, 1]`, `corrupted = [0, 2]`, `patched = [2, 1]` have leads of 2, −2 and 1, so $\frac{1 + 2}{2 + 2} = 0.75$ is recovered.


# %% nbgrader={"grade_id": "recovered", "solution": true}
def recovered(clean, corrupted, patched, right, wrong):
    ### BEGIN SOLUTION
    def lead(logits):
        found = logits.gather(1, right[:, None]) - logits.gather(1, wrong[:, None])
        return found.mean()

    return (lead(patched) - lead(corrupted)) / (lead(clean) - lead(corrupted))
    ### END SOLUTION


# %% nbgrader={"grade_id": "recovered-by_hand", "grade": true, "points": 1}
# One text, two tokens.
probe = probes(recovered=recovered)
probe.gives(
    torch.tensor(0.75),
    torch.tensor([[3.0, 1.0]]),
    torch.tensor([[0.0, 2.0]]),
    torch.tensor([[2.0, 1.0]]),
    torch.tensor([0]),
    torch.tensor([1]),
)

# %% nbgrader={"grade_id": "recovered-texts", "grade": true, "points": 2}
# Several texts, each with its own pair of tokens.
probe = probes(recovered=recovered)
LOGITS = torch.tensor([[[3.0, 1.0, 0.0], [0.0, 1.0, 5.0]], [[0.0, 2.0, 4.0], [2.0, 1.0, 0.0]]])
probe.equals(*LOGITS, LOGITS.mean(0), torch.tensor([0, 2]), torch.tensor([1, 0]))
### BEGIN HIDDEN TESTS
probe.equals(*LOGITS.flip(0), LOGITS.mean(0), torch.tensor([0, 2]), torch.tensor([1, 0]))
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 6. Logit attribution
#
# The last vector of the residual stream is a sum of parts: the embedding and what each head and each feed-forward part added. A final layer norm without bias and the output matrix turn it into logits. Both are linear once the norm's divisor is fixed, so each part contributes a share of each logit.
#
# `logit_attribution(parts, scale, unembedding, word)`, with $x = \sum_p x_p$:
#
# $$a_p = \frac{x_p - \bar x_p}{\sqrt{\operatorname{Var}[x] + 10^{-5}}} \odot w \cdot \Big(U_{t} - \frac1V \sum_v U_v\Big) .$$
#
# - `parts` is `(P, D)`, $w$ = `scale` is `(D,)`, $U$ = `unembedding` is `(V, D)`, $t$ = `word` is a token id. The result is `(P,)`.
# - $\bar x_p$ is the mean of the elements of part $p$. The variance is that of the *sum* $x$ (divisor $D$), the same for all parts.
# - The mean row of $U$ is subtracted because a softmax ignores a constant added to all logits.
# - The shares add up to the logit of the token minus the mean of all logits.
#
# <details><summary>Hint</summary>
#
# `x.var(correction=0)` divides by $D$.
#
# </details>


# %% nbgrader={"grade_id": "logit_attribution", "solution": true}
def logit_attribution(parts, scale, unembedding, word):
    ### BEGIN SOLUTION
    divisor = (parts.sum(0).var(correction=0) + 1e-5).sqrt()
    centred = parts - parts.mean(-1, keepdim=True)
    return (centred / divisor * scale) @ (unembedding[word] - unembedding.mean(0))
    ### END SOLUTION


# %% nbgrader={"grade_id": "logit_attribution-one_part", "grade": true, "points": 1}
# A single part: its share is the whole logit minus the mean of all logits.
probe = probes(logit_attribution=logit_attribution)
probe.equals(
    torch.tensor([[2.0, 0.0, 1.0]]),
    torch.ones(3),
    torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]),
    0,
)

# %% nbgrader={"grade_id": "logit_attribution-parts", "grade": true, "points": 3}
# Several parts share one divisor.
probe = probes(logit_attribution=logit_attribution)
probe.equals(
    torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0]]),
    torch.tensor([1.0, 2.0, 0.5]),
    torch.tensor([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0]]),
    1,
)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% [markdown]
# ## 7. Repair: ablating a head
#
# `broken_projection` should set the output of one head to zero, join the heads and project them: `found` is `(B, H, L, E)`, `weight` is `(D, H * E)` with the elements of head 0 first, `bias` is `(D,)`, the result is `(B, L, D)`.
# It runs, and its shape is right, but it has two faults. Find them and write `fixed_projection`.


# %% nbgrader={"grade_id": "broken_projection", "locked": true}
def broken_projection(found, weight, bias, head):
    found[:, head] = 0.0
    batch, heads, length, size = found.shape
    joined = found.reshape(batch, length, heads * size)
    return joined @ weight.T + bias


# %% nbgrader={"grade_id": "fixed_projection", "solution": true}
def fixed_projection(found, weight, bias, head):
    ### BEGIN SOLUTION
    kept = found.clone()
    kept[:, head] = 0.0
    return kept.transpose(1, 2).flatten(2) @ weight.T + bias
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_projection-one_position", "grade": true, "points": 1}
# A text of one position, which hides one of the two faults.
probe = probes(fixed_projection=fixed_projection)
probe.equals(
    torch.tensor([[[[1.0, 2.0]], [[3.0, 4.0]]]]),
    torch.eye(4),
    torch.tensor([0.5, 0.0, 0.0, 0.0]),
    1,
)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(3, 2, 1, 3), probe.normal(5, 6), probe.normal(5), 0)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_projection-positions", "grade": true, "points": 2}
# Several positions.
probe = probes(fixed_projection=fixed_projection)
probe.equals(torch.arange(8.0).view(1, 2, 2, 2), torch.eye(4), torch.zeros(4), 1)
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 3, 5, 2), probe.normal(7, 6), probe.normal(7), 2)
probe.equals(probe.normal(2, 2, 2, 2), probe.normal(4, 4), probe.normal(4), 0)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Write the test
#
# `check_induction(candidate)` takes another learner's `induction_score(weights, tokens)` and returns `True` if it keeps the contract of exercise 1, `False` if not.
#
# Your test must accept right answers; each wrong answer that it rejects earns a share of the points.
# Many wrong answers agree with the right one on a sequence that is repeated exactly once. Choose texts on which they differ: a token three times, a token twice in succession, no repeated token, weights that are not causal.
# Allow for rounding. A candidate that raises an error is wrong.


# %% nbgrader={"grade_id": "check_induction", "solution": true}
def check_induction(candidate):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    texts = [[5, 7, 5, 7], [1, 2, 1, 3, 1], [4, 4, 2, 4], [0, 1, 2, 3], [3, 1, 2, 9, 8, 1]]
    for text in texts:
        length = len(text)
        weights = torch.randn(3, length, length, generator=draw, dtype=torch.float64).softmax(-1)
        total, repeats = torch.zeros(3, dtype=torch.float64), 0
        for i in range(length):
            repeats += text[i] in text[:i]
            for j in range(1, i + 1):
                if text[j - 1] == text[i]:
                    total = total + weights[:, i, j]
        try:
            got = candidate(weights, torch.tensor(text))
        except Exception:
            return False
        expected = total / max(1, repeats)
        if got.shape != expected.shape or not torch.allclose(got.double(), expected, atol=1e-6):
            return False
    return True
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_induction-plain", "grade": true, "points": 1}
# A right answer, and two that are clearly wrong.
probe = probes(check_induction=check_induction)
probe.judges(
    right=[analysis.induction_score],
    wrong={
        "always 0": lambda weights, tokens: weights.new_zeros(len(weights)),
        "the weight of the token before": lambda weights, tokens: weights.diagonal(
            offset=-1, dim1=-2, dim2=-1
        ).mean(-1),
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_induction-mutants", "grade": true, "points": 6}
# Wrong answers that are harder to detect. (Which ones is hidden.)
probe = probes(check_induction=check_induction)
probe.judges(
    right=[analysis.induction_score],
    wrong={"always 0": lambda weights, tokens: weights.new_zeros(len(weights))},
    points=6,
)


### BEGIN HIDDEN TESTS
def marked(tokens):
    return (tokens[:, None] == tokens[None, :]).tril(-1)


def shifted(marks):
    return torch.nn.functional.pad(marks[:, :-1], (1, 0))


def scored(weights, marks, count):
    return (weights * marks).sum((-2, -1)) / count


def repeats(tokens):
    return marked(tokens).any(-1).sum()


def latest_only(weights, tokens):
    marks = shifted(marked(tokens))
    last = marks & (marks.flip(-1).cumsum(-1).flip(-1) == 1)
    return scored(weights, last, repeats(tokens).clamp(min=1))


def future_too(weights, tokens):
    same = tokens[:, None] == tokens[None, :]
    marks = shifted(same & ~torch.eye(len(tokens), dtype=torch.bool))
    return scored(weights, marks, repeats(tokens).clamp(min=1))


def rounded(weights, tokens):
    return analysis.induction_score(3 * weights, tokens) / 3


probe.judges(
    right=[analysis.induction_score, from_numpy(reference.induction_score), rounded],
    wrong={
        "the earlier copy itself": lambda w, t: scored(w, marked(t), repeats(t).clamp(min=1)),
        "divided by all positions": lambda w, t: scored(w, shifted(marked(t)), len(t)),
        "NaN where no token repeats": lambda w, t: scored(w, shifted(marked(t)), repeats(t)),
        "divided by the number of pairs": lambda w, t: scored(
            w, shifted(marked(t)), marked(t).sum().clamp(min=1)
        ),
        "the latest copy only": latest_only,
        "later copies count": future_too,
        "the first head's score for all": lambda w, t: analysis.induction_score(
            w[:1].expand_as(w), t
        ),
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 9. Report
#
# Train the two-layer model of the chapter with your own seed, or use the explorer. Write about 200 words; each part earns two points.
#
# 1. Identify the previous-token head and the induction heads, each by a score. Then state what the score does *not* show.
# 2. Ablate each of them, by zeros and by its mean. Do both agree? Where they do not, which do you trust, and why?
# 3. A colleague shows you a head with a sharp attention map and claims that it explains the answer. Which experiment do you ask for, and which result would convince you?

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. A head of layer 1 has the largest previous-token score, two heads of layer 2 the largest induction scores. The scores show where heads attend on texts of this kind.
# They do not show what a head reads there or whether later layers use it. On other texts the same head may attend elsewhere.
# 2. Without the previous-token head the accuracy falls to about chance by either method; the other induction head partly replaces a single ablated one.
# Zeros also remove the head's constant part, on which the model relies; the mean keeps it and removes only what depends on the text. Where they differ I trust the mean, and note that the model never saw either state.
# 3. Patching: run the model on a corrupted text, insert the head's output from the clean run at the positions in question, and measure how much of the lead is recovered, with other heads as a control.
# I agree if this head recovers most of it, heads with equally sharp maps do not, and ablating this head destroys the answer.
#
# **Points**, one for each:
#
# - (1a) The heads, each by a score.
# - (1b) What the score does not show.
# - (2a) Both ablations, with numbers.
# - (2b) Which to trust, and why.
# - (3a) Patching or ablation, with other heads as a control.
# - (3b) A convincing result, named in advance.
