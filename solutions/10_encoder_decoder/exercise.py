# %% [markdown]
# # Exercises: the Transformer
#
# You write the parts around the two stacks: the decoder's input, its mask, its attention to the source, its loss, and the score of its translations. (Greedy decoding is in the set of chapter 02.)
#
# Shapes: `B` rows, `L` target positions, `S` source positions, `V` tokens in the vocabulary; target vectors have width `D`, source vectors `D_m`, queries and keys `E`, values `E_v`.
# In a mask `True` means: may attend.
#
# A failing test shows what it tried and what it saw, and names the mistake if it knows it.
# You need neither a network nor a GPU.

# %% nbgrader={"grade_id": "setup", "locked": true}
import numpy as np
import torch

from attn_course.probes import load_oracles

oracles, probes = load_oracles("10_encoder_decoder")

# %% [markdown]
# ## 1. The decoder's input
#
# In training the decoder reads the target, shifted by one position. `shift_right(target_out, bos, eos, pad=0)` computes this input from the target.
#
# - `target_out` is `(B, L)`, integers: the tokens of a row, then `eos`, then `pad`. A truncated row has `L` tokens and no `eos`.
# - The result has the same shape and dtype: `bos`, then the tokens, then `pad`. It contains no `eos`. A truncated row loses its last token.
# - The argument is not changed.
#
# By hand, with `bos = 1`, `eos = 2`, `pad = 0`: `[5, 7, 2, 0]` becomes `[1, 5, 7, 0]`.


# %% nbgrader={"grade_id": "shift_right", "solution": true} attn_course={"forbidden": ["cross_entropy", "scaled_dot_product_attention", "multi_head_attention_forward", "aten::cross_entropy*", "aten::*scaled_dot_product*", "aten::*multi_head_attention*", "import attn_course.data", "import attn_course.masks", "import attn_course.train", "import sacrebleu"]}
def shift_right(target_out, bos, eos, pad=0):
    ### BEGIN SOLUTION
    late = torch.full_like(target_out, bos)
    late[:, 1:] = target_out[:, :-1]
    return late.masked_fill(late == eos, pad)
    ### END SOLUTION


# %% nbgrader={"grade_id": "shift_right-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(shift_right=shift_right)
probe.gives(torch.tensor([[1, 5, 7, 0]]), torch.tensor([[5, 7, 2, 0]]), 1, 2)

# %% nbgrader={"grade_id": "shift_right-rows", "grade": true, "points": 1}
# Rows of several lengths, one of them truncated.
probe = probes(shift_right=shift_right)
probe.equals(torch.tensor([[5, 7, 2, 0], [4, 2, 0, 0], [6, 4, 5, 7]]), 1, 2)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "shift_right-other_ids", "grade": true, "points": 1}
# Other ids for the reserved symbols.
probe = probes(shift_right=shift_right)
probe.equals(torch.tensor([[0, 1, 8, 9, 9], [2, 8, 9, 9, 9]]), 7, 8, 9)
### BEGIN HIDDEN TESTS
words = probe.integers(0, 6, 3, 5)
words[0, 3], words[0, 4], words[1, 4] = 8, 9, 8
probe.equals(words, 7, 8, 9)
### END HIDDEN TESTS

# %% [markdown]
# ## 2. The mask of the decoder
#
# `decoder_mask(target_in, pad=0)` is the mask of the decoder's self-attention.
#
# - `target_in` is `(B, L)`, integers, as from `shift_right`; `pad` may occur anywhere.
# - The result is boolean, `(B, 1, L, L)`; the second axis is for the heads. Element `[b, 0, i, j]` is `True` where position `i` may attend to position `j`: `j` is not after `i`, and `j` is not padding.
#
# By hand: the row `[1, 5, 0]` gives `[[True, False, False], [True, True, False], [True, True, False]]`.


# %% nbgrader={"grade_id": "decoder_mask", "solution": true} attn_course={"forbidden": ["cross_entropy", "scaled_dot_product_attention", "multi_head_attention_forward", "aten::cross_entropy*", "aten::*scaled_dot_product*", "aten::*multi_head_attention*", "import attn_course.data", "import attn_course.masks", "import attn_course.train", "import sacrebleu"]}
def decoder_mask(target_in, pad=0):
    ### BEGIN SOLUTION
    length = target_in.shape[1]
    past = torch.ones(length, length, dtype=torch.bool).tril()
    return past & (target_in != pad)[:, None, None, :]  # (B, 1, L, L)
    ### END SOLUTION


# %% nbgrader={"grade_id": "decoder_mask-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(decoder_mask=decoder_mask)
probe.gives(
    torch.tensor([[[[True, False, False], [True, True, False], [True, True, False]]]]),
    torch.tensor([[1, 5, 0]]),
)

# %% nbgrader={"grade_id": "decoder_mask-no_padding", "grade": true, "points": 1}
# Without padding: a causal mask.
probe = probes(decoder_mask=decoder_mask)
probe.equals(torch.tensor([[1, 5, 7, 4], [1, 4, 4, 6]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.integers(1, 9, 3, 5))
probe.equals(probe.integers(1, 9, 5, 1))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "decoder_mask-padding", "grade": true, "points": 2}
# Rows with different padding.
probe = probes(decoder_mask=decoder_mask)
probe.equals(torch.tensor([[1, 5, 7, 0], [1, 4, 0, 0], [1, 6, 7, 8]]))
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "decoder_mask-other_pad", "grade": true, "points": 1}
# Another id for padding.
probe = probes(decoder_mask=decoder_mask)
probe.equals(torch.tensor([[1, 0, 7, 9], [1, 4, 9, 9]]), 9)
### BEGIN HIDDEN TESTS
probe.equals(probe.integers(0, 4, 3, 7), 3)
### END HIDDEN TESTS

# %% [markdown]
# ## 3. Attention to the source
#
# `cross_attention(x, memory, weight_query, weight_key, weight_value, memory_mask=None)` is one head of the decoder's attention to the encoder's output:
#
# $$\operatorname{softmax}\!\left(\frac{(X W_Q^\top)(M W_K^\top)^\top}{\sqrt{E}}\right) M W_V^\top .$$
#
# - `x` is `(B, L, D)`, the target; `memory` is `(B, S, D_m)`, the source. `weight_query` is `(E, D)`, `weight_key` `(E, D_m)`, `weight_value` `(E_v, D_m)`. The result is `(B, L, E_v)`.
# - `memory_mask` is boolean, `(B, S)`: `True` at real source positions. Every target position may attend to exactly these. Without a mask all are real.
# - A row without a real source position gets an output of 0, not NaN.
# - Gradients reach the first five arguments. No argument is changed.
#
# `torch.softmax` is allowed. torch's own `scaled_dot_product_attention` is not.
#
# By hand, with $D = E = 1$, $D_m = E_v = 2$: the target vector $[1]$, the source vectors $[0, 4]$ and $[\ln 3, 8]$, $W_Q = [1]$, $W_K = [1, 0]$ and $W_V$ the identity. The scores are $0$ and $\ln 3$, the weights $\frac14$ and $\frac34$, the output $[0.824, 7]$.


# %% nbgrader={"grade_id": "cross_attention", "solution": true} attn_course={"forbidden": ["cross_entropy", "scaled_dot_product_attention", "multi_head_attention_forward", "aten::cross_entropy*", "aten::*scaled_dot_product*", "aten::*multi_head_attention*", "import attn_course.data", "import attn_course.masks", "import attn_course.train", "import sacrebleu"]}
def cross_attention(x, memory, weight_query, weight_key, weight_value, memory_mask=None):
    ### BEGIN SOLUTION
    query, key, value = x @ weight_query.T, memory @ weight_key.T, memory @ weight_value.T
    scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5  # (B, L, S)
    if memory_mask is None:
        return scores.softmax(dim=-1) @ value
    allowed = memory_mask[:, None, :]
    none = ~allowed.any(dim=-1, keepdim=True)
    weights = scores.masked_fill(~allowed & ~none, -torch.inf).softmax(dim=-1)
    return weights.masked_fill(none, 0.0) @ value  # (B, L, E_v)
    ### END SOLUTION


# %% nbgrader={"grade_id": "cross_attention-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(cross_attention=cross_attention)
probe.gives(
    torch.tensor([[[0.8239592, 7.0]]]),
    torch.tensor([[[1.0]]]),
    torch.tensor([[[0.0, 4.0], [1.0986123, 8.0]]]),
    torch.tensor([[1.0]]),
    torch.tensor([[1.0, 0.0]]),
    torch.eye(2),
)

# %% nbgrader={"grade_id": "cross_attention-values", "grade": true, "points": 2}
# Target and source of different lengths and widths.
probe = probes(cross_attention=cross_attention)
sizes = [(2, 4, 5), (2, 3, 7), (2, 5), (2, 7), (3, 7)]
probe.equals(*(probe.normal(*size) for size in sizes))
### BEGIN HIDDEN TESTS
# all sizes equal: a swapped axis shows only in the values
same = [(3, 4, 4), (3, 4, 4), (4, 4), (4, 4), (4, 4)]
probe.equals(*(probe.normal(*size) for size in same))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cross_attention-mask", "grade": true, "points": 2}
# Sources of different lengths.
probe = probes(cross_attention=cross_attention)
sizes = [(2, 4, 5), (2, 3, 7), (2, 5), (2, 7), (3, 7)]
real = torch.tensor([[True, True, False], [True, False, False]])
probe.equals(*(probe.normal(*size) for size in sizes), real)
### BEGIN HIDDEN TESTS
same = [(3, 4, 4), (3, 4, 4), (4, 4), (4, 4), (4, 4)]
probe.equals(*(probe.normal(*size) for size in same), probe.mask(3, 4))
gaps = torch.tensor([[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 1, 1]]).bool()
probe.equals(*(probe.normal(*size) for size in same), gaps)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "cross_attention-no_source", "grade": true, "points": 1}
# The second row has no source.
probe = probes(cross_attention=cross_attention)
sizes = [(2, 4, 5), (2, 3, 7), (2, 5), (2, 7), (3, 7)]
real = torch.tensor([[True, True, False], [False, False, False]])
probe.equals(*(probe.normal(*size) for size in sizes), real)

# %% nbgrader={"grade_id": "cross_attention-gradient", "grade": true, "points": 1}
# Gradients reach both texts and all three matrices.
probe = probes(cross_attention=cross_attention)
sizes = [(1, 3, 2), (1, 4, 3), (2, 2), (2, 3), (3, 3)]
probe.gradient(*(probe.normal(*size) for size in sizes), wrt=(0, 1, 2, 3, 4))

# %% [markdown]
# ## Look
#
# Your decoder input and mask for two sentences of different length. A bright cell above the diagonal would be the future. On the right: your cross-attention from five target tokens to a source with the same tokens in reverse order.

# %% attn_course={"look": true}
import matplotlib.pyplot as plt

target_out = torch.tensor([[5, 6, 7, 2, 0], [8, 9, 5, 6, 2]])  # 2 ends a sentence, 0 is padding
target_in = shift_right(target_out, bos=1, eos=2)
print(target_in)
figure, axes = plt.subplots(1, 3)
for ax, mask in zip(axes, decoder_mask(target_in).reshape(2, 5, 5), strict=False):
    ax.imshow(mask)
eye, none = torch.eye(5), torch.zeros(5, 5)
memory = torch.cat([eye.flip(0), eye], dim=1)[None]  # what is compared, and where it stands
of_key, of_value = torch.cat([eye, none], dim=1), torch.cat([none, eye], dim=1)
axes[2].imshow(cross_attention(9 * eye[None], memory, eye, of_key, of_value)[0])
axes[0].set_ylabel("query")
for ax, title in zip(axes, ("first target", "second target", "source"), strict=True):
    ax.set_title(title)
    ax.set_xlabel("key")
plt.show()

# %% [markdown]
# # More

# %% [markdown]
# ## 4. A loss with smoothed labels
#
# `label_smoothed_loss(logits, target_out, smoothing, pad=0)` is the cross-entropy with smoothed targets. With $\varepsilon$ = `smoothing`,
#
# $$-\frac1N \sum_{b, t \,:\, y_{bt} \ne \text{pad}} \Big( (1 - \varepsilon) \log p_{bt}(y_{bt}) + \frac{\varepsilon}{V} \sum_v \log p_{bt}(v) \Big) .$$
#
# - `logits` is `(B, L, V)`, not normalised; $p$ is their softmax. `target_out` is `(B, L)`, integers.
# - Positions whose target is `pad` do not count; $N$ is the number of the others, over all rows. The inner sum runs over all $V$ tokens, including the right one and `pad`.
# - The result is a scalar tensor of the dtype of the logits. It handles every finite logit, and gradients reach the logits.
#
# `log_softmax` and `logsumexp` are allowed. torch's `cross_entropy` is not.
#
# By hand: two tokens with equal logits give the loss $\ln 2$ for every $\varepsilon$. With the logits $[\ln 3, 0]$ the probabilities are $\frac34$ and $\frac14$; with $\varepsilon = 0.2$ the loss for token 0 is $-(0.8 \ln\tfrac34 + 0.1 \ln\tfrac34 + 0.1 \ln\tfrac14) = 0.3975$.


# %% nbgrader={"grade_id": "label_smoothed_loss", "solution": true} attn_course={"forbidden": ["cross_entropy", "scaled_dot_product_attention", "multi_head_attention_forward", "aten::cross_entropy*", "aten::*scaled_dot_product*", "aten::*multi_head_attention*", "import attn_course.data", "import attn_course.masks", "import attn_course.train", "import sacrebleu"]}
def label_smoothed_loss(logits, target_out, smoothing, pad=0):
    ### BEGIN SOLUTION
    logs = logits.log_softmax(dim=-1)  # (B, L, V)
    right = logs.gather(-1, target_out[..., None])[..., 0]  # (B, L)
    mixed = (1 - smoothing) * right + smoothing * logs.mean(dim=-1)
    return -mixed[target_out != pad].mean()
    ### END SOLUTION


# %% nbgrader={"grade_id": "label_smoothed_loss-by_hand", "grade": true, "points": 1}
# The examples of the text; padding has the id 9, which never occurs.
probe = probes(label_smoothed_loss=label_smoothed_loss)
probe.gives(
    torch.tensor(0.3975431), torch.tensor([[[1.0986123, 0.0]]]), torch.tensor([[0]]), 0.2, 9
)
probe.gives(torch.tensor(0.6931472), torch.zeros(1, 1, 2), torch.tensor([[1]]), 0.6, 9)

# %% nbgrader={"grade_id": "label_smoothed_loss-values", "grade": true, "points": 1}
# Several rows without padding.
probe = probes(label_smoothed_loss=label_smoothed_loss)
probe.equals(probe.normal(2, 3, 5), torch.tensor([[1, 2, 3], [4, 1, 2]]), 0.1)
### BEGIN HIDDEN TESTS
for smoothing in (0.0, 0.3, 1.0):
    probe.equals(3 * probe.normal(3, 5, 7), probe.integers(1, 7, 3, 5), smoothing)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "label_smoothed_loss-padding", "grade": true, "points": 2}
# Rows of different lengths.
probe = probes(label_smoothed_loss=label_smoothed_loss)
probe.equals(probe.normal(2, 3, 5), torch.tensor([[1, 2, 3], [4, 0, 0]]), 0.1)
### BEGIN HIDDEN TESTS
target = probe.integers(1, 7, 3, 5)
target[0, 2:], target[2, 4:] = 0, 0
probe.equals(3 * probe.normal(3, 5, 7), target, 0.2)
probe.equals(3 * probe.normal(3, 5, 7), target.masked_fill(target == 0, 3), 0.2, 3)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "label_smoothed_loss-large_logits", "grade": true, "points": 1}
# Logits whose exponentials overflow in float32.
probe = probes(label_smoothed_loss=label_smoothed_loss)
probe.equals(
    torch.tensor([[[200.0, 0.0, -200.0], [150.0, 120.0, -40.0]]]), torch.tensor([[1, 1]]), 0.1
)

# %% nbgrader={"grade_id": "label_smoothed_loss-gradient", "grade": true, "points": 1}
# Gradients reach the logits.
probe = probes(label_smoothed_loss=label_smoothed_loss)
probe.gradient(probe.normal(2, 3, 5), torch.tensor([[1, 2, 3], [4, 2, 0]]), 0.1)

# %% [markdown]
# ## 5. Scoring a translation
#
# `bleu(candidates, references, max_order=4)` is corpus BLEU (Papineni and others 2002) as a number from 0 to 1:
#
# $$\mathrm{BP} \cdot \Big(\prod_{n=1}^{N} p_n\Big)^{1/N}, \qquad \mathrm{BP} = \min\!\big(1, e^{1 - r/c}\big) .$$
#
# - `candidates` and `references` are lists of sentences; a sentence is a list of words. Candidate `i` has one reference, reference `i`. $N$ is `max_order`.
# - $p_n$ is the share of the n-grams (runs of $n$ words) of the candidates that occur in their reference. An n-gram counts at most as often as it occurs in the reference of its sentence. Sum matches and n-grams over all sentences, then divide.
# - $c$ is the number of words of all candidates, $r$ that of all references.
# - If an order has no match, the result is 0.0. `candidates` is never empty, but a sentence may be.
#
# By hand: "the the cat" against "the cat sat" with $N = 2$. Single words: *the* counts once, *cat* once, $p_1 = \frac23$; pairs: *the cat*, $p_2 = \frac12$. The lengths are equal, so the score is $\sqrt{\frac23 \cdot \frac12} = 0.577$.


# %% nbgrader={"grade_id": "bleu", "solution": true} attn_course={"forbidden": ["cross_entropy", "scaled_dot_product_attention", "multi_head_attention_forward", "aten::cross_entropy*", "aten::*scaled_dot_product*", "aten::*multi_head_attention*", "import attn_course.data", "import attn_course.masks", "import attn_course.train", "import sacrebleu"]}
def bleu(candidates, references, max_order=4):
    ### BEGIN SOLUTION
    def counts(sentence, n):
        found = {}
        for i in range(len(sentence) - n + 1):
            run = tuple(sentence[i : i + n])
            found[run] = found.get(run, 0) + 1
        return found

    product = 1.0
    for n in range(1, max_order + 1):
        matches = runs = 0
        for candidate, right in zip(candidates, references, strict=True):
            said, wanted = counts(candidate, n), counts(right, n)
            matches += sum(min(times, wanted.get(run, 0)) for run, times in said.items())
            runs += sum(said.values())
        if matches == 0:
            return 0.0
        product *= matches / runs
    c, r = sum(map(len, candidates)), sum(map(len, references))
    return float(min(1.0, np.exp(1 - r / c)) * product ** (1 / max_order))
    ### END SOLUTION


# %% nbgrader={"grade_id": "bleu-by_hand", "grade": true, "points": 1}
# The example of the text.
probe = probes(bleu=bleu)
probe.gives(3**-0.5, [["the", "the", "cat"]], [["the", "cat", "sat"]], 2)

# %% nbgrader={"grade_id": "bleu-orders", "grade": true, "points": 1}
# One sentence, several orders.
probe = probes(bleu=bleu)
said, right = (
    ["a", "man", "in", "a", "red", "hat", "looks", "up"],
    ["a", "man", "in", "a", "red", "hat", "looks", "down"],
)
probe.equals([said], [right])
probe.equals([said], [right], 1)
### BEGIN HIDDEN TESTS
probe.equals([said], [right], 3)
probe.equals([right], [right], 4)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "bleu-clipped", "grade": true, "points": 1}
# A word that occurs too often.
probe = probes(bleu=bleu)
probe.equals([["the", "the", "the", "cat"]], [["the", "cat", "sat", "down"]], 1)
### BEGIN HIDDEN TESTS
probe.equals([["a", "b", "a", "b", "a", "b"]], [["a", "b", "c", "a", "d", "e"]], 2)
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "bleu-length", "grade": true, "points": 1}
# Too short, and too long.
probe = probes(bleu=bleu)
probe.equals([["the", "cat"]], [["the", "cat", "sat", "down"]], 2)
probe.equals([["the", "cat", "sat", "down", "there"]], [["the", "cat", "sat"]], 2)

# %% nbgrader={"grade_id": "bleu-corpus", "grade": true, "points": 2}
# Several sentences: a short and wrong one, and a long and right one.
probe = probes(bleu=bleu)
said = [["a", "cat"], ["the", "old", "dog", "sees", "a", "small", "house", "there"]]
right = [["the", "cat", "sat"], ["the", "old", "dog", "sees", "a", "red", "house"]]
probe.equals(said, right, 2)
### BEGIN HIDDEN TESTS
probe.everywhere()
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "bleu-no_match", "grade": true, "points": 1}
# An order without a match, and an empty sentence.
probe = probes(bleu=bleu)
probe.gives(0.0, [["cat", "the"]], [["the", "cat"]], 2)
probe.gives(0.0, [[]], [["the", "cat"]], 2)

# %% [markdown]
# ## 6. Repair: the two attentions of a decoder block
#
# In `broken_decoder_looks` every target position should attend to earlier positions and itself and add the result, then attend to the whole source and add that result.
# `x` is `(B, L, D)`, `memory` is `(B, S, D)`; there are no projections, no norm and no padding.
# It runs and it trains, but it has two faults. Find them and write `fixed_decoder_looks`.


# %% nbgrader={"grade_id": "broken_decoder_looks", "locked": true}
def broken_decoder_looks(x, memory):
    def look(query, key, allowed):
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ key

    own = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
    source = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool)
    x = x + look(x, x, own)
    return x + look(x, memory, source.tril())  # (B, L, D)


# %% nbgrader={"grade_id": "fixed_decoder_looks", "solution": true} attn_course={"forbidden": ["cross_entropy", "scaled_dot_product_attention", "multi_head_attention_forward", "aten::cross_entropy*", "aten::*scaled_dot_product*", "aten::*multi_head_attention*", "import attn_course.data", "import attn_course.masks", "import attn_course.train", "import sacrebleu"]}
def fixed_decoder_looks(x, memory):
    ### BEGIN SOLUTION
    def look(query, key, allowed):
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ key

    own = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
    source = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool)
    x = x + look(x, x, own.tril())
    return x + look(x, memory, source)  # (B, L, D)
    ### END SOLUTION


# %% nbgrader={"grade_id": "fixed_decoder_looks-one_source_word", "grade": true, "points": 1}
# A source of one token: only one of the two faults has an effect.
probe = probes(fixed_decoder_looks=fixed_decoder_looks)
probe.equals(torch.tensor([[[1.0, 0.0], [0.0, 2.0]]]), torch.tensor([[[3.0, 1.0]]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 5, 3), probe.normal(2, 1, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_decoder_looks-one_target_word", "grade": true, "points": 1}
# A target of one token: only the other fault has an effect.
probe = probes(fixed_decoder_looks=fixed_decoder_looks)
probe.equals(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 1.0], [0.0, 1.0]]]))
### BEGIN HIDDEN TESTS
probe.equals(probe.normal(2, 1, 3), probe.normal(2, 5, 3))
### END HIDDEN TESTS

# %% nbgrader={"grade_id": "fixed_decoder_looks-both", "grade": true, "points": 1}
# Several tokens on both sides.
probe = probes(fixed_decoder_looks=fixed_decoder_looks)
probe.equals(probe.normal(2, 4, 3), probe.normal(2, 5, 3))

# %% [markdown]
# ## 7. Write the test
#
# A decoder that attends to the tokens it has to predict reaches a perfect loss and generates nonsense. The loss does not warn you, so a test must.
# `check_decoder(decoder)` takes a decoder and returns `True` if it is sound, `False` if it is not.
#
# - `decoder(target_in)` takes integers from 0 to 9, `(B, L)`, and returns logits `(B, L, 10)` in double precision.
# - It is sound if the logits at position `i` of a row depend on the tokens `0` to `i` of that row and on nothing else.
#
# Your test must accept sound decoders; each unsound one that it rejects earns a share of the points.
# You cannot inspect its code: change inputs that must not matter, and check whether the logits change. A leak may be small, come from a distant position, or come from elsewhere than the future. Allow for rounding.


# %% nbgrader={"grade_id": "check_decoder", "solution": true}
def check_decoder(decoder):
    ### BEGIN SOLUTION
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(10, (3, 12), generator=draw)
    whole = decoder(ids)
    for length in range(1, 13):
        prefix = ids[:, :length]
        if not torch.allclose(decoder(prefix), whole[:, :length], rtol=1e-9, atol=1e-9):
            return False
        changed = ids.clone()
        changed[:, length:] = (changed[:, length:] + 1) % 10
        if not torch.allclose(
            decoder(changed)[:, :length], whole[:, :length], rtol=1e-9, atol=1e-9
        ):
            return False
    return all(
        torch.allclose(decoder(ids[row : row + 1])[0], whole[row], rtol=1e-9, atol=1e-9)
        for row in range(3)
    )
    ### END SOLUTION


# %% nbgrader={"grade_id": "check_decoder-plain", "grade": true, "points": 1}
# A sound decoder, and two that are clearly not.
TABLE = torch.linspace(-1, 1, 100, dtype=torch.float64).reshape(10, 10).sin()


def running_sum(target_in):
    return TABLE[target_in].cumsum(dim=1)


probe = probes(check_decoder=check_decoder)
probe.judges(
    right=[running_sum],
    wrong={
        "the mean of the whole row": lambda target_in: (
            TABLE[target_in].mean(dim=1, keepdim=True).expand(-1, target_in.shape[1], -1)
        ),
        "the next token is read": lambda target_in: TABLE[target_in.roll(-1, dims=1)],
    },
    points=1,
)

# %% nbgrader={"grade_id": "check_decoder-mutants", "grade": true, "points": 6}
# Unsound decoders that are harder to detect. (Which ones is hidden.)
probe = probes(check_decoder=check_decoder)
probe.judges(
    right=[running_sum],
    wrong={"the next token is read": lambda target_in: TABLE[target_in.roll(-1, dims=1)]},
    points=6,
)


### BEGIN HIDDEN TESTS
def last_token(target_in):
    return 5.0 * TABLE[target_in]


def causal_look(target_in):
    x = TABLE[target_in]
    past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return (x @ x.transpose(1, 2)).masked_fill(~past, -torch.inf).softmax(-1) @ x


def leaking(how_much, reach):
    def decoder(target_in):
        x = TABLE[target_in]
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.float64).triu(reach)
        return causal_look(target_in) + how_much * ahead @ x

    return decoder


def from_the_end(target_in):
    left = torch.arange(target_in.shape[1], 0, -1, dtype=torch.float64)
    return running_sum(target_in) + left[:, None]


def normalised_over_the_row(target_in):
    x = running_sum(target_in)
    return x - x.mean(dim=1, keepdim=True)


def mixed_rows(target_in):
    x = running_sum(target_in)
    return x + 0.1 * x.mean(dim=0, keepdim=True)


probe.judges(
    right=[running_sum, last_token, causal_look],
    wrong={
        "a small leak": leaking(1e-4, 1),
        "a leak from a distant position": leaking(1.0, 5),
        "positions counted from the end": from_the_end,
        "normalised over the row": normalised_over_the_row,
        "rows of the batch are mixed": mixed_rows,
        "the next token is read": leaking(0.5, 1),
    },
    points=6,
)
### END HIDDEN TESTS

# %% [markdown]
# ## 8. Report
#
# Use your functions or the numbers of the chapter. Write about 200 words; each part earns two points.
#
# 1. A model has a training loss of 0.001 after a few hundred steps and generates nonsense. Name two faults of this chapter with this symptom, and for each a test that needs no training.
# 2. Why can a Transformer be trained on all target positions in parallel, but not generate them in parallel? For a target of 20 tokens, count the sequential steps in training and in generation; compare with a recurrent decoder.
# 3. Take or invent ten sentences of two systems and compute BLEU. Show one pair in which the better translation has the lower score, and name the responsible part of the formula.

# %% [markdown] nbgrader={"grade_id": "report", "grade": true, "solution": true, "points": 6}
# 1. A decoder without its causal mask, and targets that are not shifted: in both the input contains the answer. For the first, change a later token and check whether earlier logits change. For the second, compare the first column of the input with `bos`, or check that input and target differ by one position.
# 2. In training all tokens that a position reads are known, so only the layers are sequential: the same number of steps for 1 or 20 tokens. In generation token 8 needs token 7, so there are 20 passes through all layers. A recurrent decoder takes 20 steps in both.
# 3. Against "a man is running", "a man runs" scores higher than "someone is jogging" only through shared n-grams: a synonym has no match at any order. With four orders, one wrong word in a short sentence removes up to four 4-grams, so the score drops to 0; or the brevity penalty lowers the score of a shorter sentence.
#
# **Points**, one for each:
#
# - (1a) Two faults that put the answer into the input.
# - (1b) A test without training for each.
# - (2a) Known tokens in training, one after another in generation.
# - (2b) The three counts.
# - (3a) A pair in which the better one scores lower.
# - (3b) The responsible part of the formula.
