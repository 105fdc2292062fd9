"""Right answers to the warm-up that are written differently from the solution."""

import math

import torch

from attn_course.probes import variant


@variant(of="stable_softmax")
def softmax_by_logsumexp(scores, dim=-1):
    return (scores - torch.logsumexp(scores, dim, keepdim=True)).exp()


@variant(of="stable_softmax")
def softmax_by_moving_the_axis(scores, dim=-1):
    rows = scores.movedim(dim, -1)
    shifted = rows - rows.detach().max(-1, keepdim=True).values
    weights = torch.exp(shifted)
    total = torch.einsum("...s->...", weights)
    return (weights / total[..., None]).movedim(-1, dim)


@variant(of="logsumexp")
def logsumexp_of_torch(scores, dim=-1):
    return scores.logsumexp(dim)


@variant(of="logsumexp")
def logsumexp_by_adding_up(scores, dim=-1):
    rows = scores.unbind(dim)
    total = rows[0]
    for row in rows[1:]:
        total = torch.logaddexp(total, row)
    return total


@variant(of="masked_softmax")
def masked_by_filling_twice(scores, attn_mask, dim=-1):
    weights = torch.softmax(scores.masked_fill(~attn_mask, -torch.inf), dim)
    return weights.masked_fill(~attn_mask, 0.0)


@variant(of="masked_softmax")
def masked_by_where(scores, attn_mask, dim=-1):
    lowest = torch.finfo(scores.dtype).min
    kept = torch.where(attn_mask, scores, lowest)
    weights = torch.where(attn_mask, torch.exp(kept - kept.amax(dim, keepdim=True)), 0.0)
    return weights / weights.sum(dim, keepdim=True).clamp(min=1e-30)


@variant(of="masked_softmax")
def masked_by_nan_to_num(scores, attn_mask, dim=-1):
    filled = torch.where(attn_mask, scores, torch.tensor(-torch.inf, dtype=scores.dtype))
    return torch.softmax(filled, dim).nan_to_num(0.0)


@variant(of="cosine_similarity")
def cosine_of_torch(a, b):
    return torch.nn.functional.cosine_similarity(a, b, dim=-1)


@variant(of="cosine_similarity")
def cosine_by_unit_vectors(a, b):
    a = torch.nn.functional.normalize(a, dim=-1)
    b = torch.nn.functional.normalize(b, dim=-1)
    return torch.einsum("...e,...e->...", a, b)


@variant(of="cosine_similarity")
def cosine_with_epsilon(a, b):
    lengths = (a * a).sum(-1).sqrt() * (b * b).sum(-1).sqrt()
    return (a * b).sum(-1) / (lengths + 1e-8)


@variant(of="weighted_mean")
def mean_by_matmul(weights, value):
    total = weights.sum(-1, keepdim=True)
    even = weights / torch.where(total == 0, torch.ones_like(total), total)
    return (even[..., None, :] @ value).squeeze(-2)


@variant(of="weighted_mean")
def mean_by_einsum(weights, value):
    summed = torch.einsum("...s,...se->...e", weights, value)
    return summed / weights.sum(-1)[..., None].clamp(min=1e-12)


@variant(of="fixed_word_in_context")
def words_one_by_one(words):
    rows = []
    for word in words:
        cosines = torch.nn.functional.cosine_similarity(word[None], words, dim=-1)
        rows.append((torch.softmax(cosines, 0)[:, None] * words).sum(0))
    return torch.stack(rows)


@variant(of="fixed_word_in_context")
def words_by_einsum(words):
    dots = torch.einsum("ie,je->ij", words, words)
    lengths = dots.diagonal().sqrt()
    scores = dots / (lengths[:, None] * lengths).clamp(min=1e-12)
    return torch.einsum("ij,je->ie", torch.softmax(scores, 1), words)


@variant(of="check_softmax")
def check_against_own(candidate):
    def right(scores, dim):
        shifted = scores - scores.max(dim, keepdim=True).values
        return shifted.exp() / shifted.exp().sum(dim, keepdim=True)

    examples = [
        (torch.tensor([0.0, math.log(3.0)]), 0),
        (torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, -1.0]]), 0),
        (torch.tensor([[1.0, 2.0, 3.0], [4.0, 0.0, -1.0]]), 1),
        (torch.tensor([500.0, 499.0]), 0),
    ]
    for scores, dim in examples:
        before = scores.tolist()
        found = candidate(scores, dim=dim)
        if scores.tolist() != before:
            return False
        if not (found - right(scores, dim)).abs().max() < 1e-4:
            return False
    return True


@variant(of="check_softmax")
def check_properties(candidate):
    torch.manual_seed(1)
    for dim in (0, 1):
        scores = torch.randn(3, 3) * 300
        kept = scores.clone()
        weights = candidate(scores, dim=dim)
        right = torch.softmax(kept.double(), dim).float()
        if not (torch.equal(scores, kept) and torch.allclose(weights, right, atol=1e-3)):
            return False
        small = torch.randn(3, 3)
        if not torch.allclose(candidate(small.clone(), dim=dim), small.softmax(dim), atol=1e-3):
            return False
    return True
