"""Latent attention: the paper's formulas, written out, and the absorbed form with a cache."""

import pytest
import torch
from layers import drawn, leaf
from mutation import rejects_changes
from oracles import same_gradients
from refusals import refused
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course.functional import apply_rope, rms_norm
from attn_course.nn import KVCache, MultiHeadLatentAttention, SlidingCache

B, L, D, H, E, R, C, Q, EV = 2, 11, 19, 3, 5, 4, 7, 13, 2


def make(query_rank: int | None = Q, cls: type = MultiHeadLatentAttention) -> nn.Module:
    sizes = {"embed_dim": D, "num_heads": H, "head_dim": E, "rope_dim": R, "kv_rank": C}
    return drawn(cls(**sizes, query_rank=query_rank, value_head_dim=EV), std=0.5)


def by_the_paper(module: nn.Module, x: Tensor) -> Tensor:
    """Token by token and head by head, every key and value built."""
    p = dict(module.named_parameters())
    low = x
    if "query_down.0.weight" in p:
        low = rms_norm(x @ p["query_down.0.weight"].T, p["query_down.1.weight"])
    q = (low @ p["query_projection.weight"].T).unflatten(-1, (H, E + R))
    c = rms_norm(x @ p["latent_projection.weight"].T, p["latent_norm.weight"])
    k = (c @ p["key_up.weight"].T).unflatten(-1, (H, E))
    v = (c @ p["value_up.weight"].T).unflatten(-1, (H, EV))
    turned = apply_rope(x @ p["rope_key_projection.weight"].T, torch.arange(L))
    rows = []
    for i in range(L):
        heads = []
        for h in range(H):
            qr = apply_rope(q[:, i : i + 1, h, E:], torch.tensor([i]))[:, 0]
            scores = torch.einsum("be,bse->bs", q[:, i, h, :E], k[:, : i + 1, h])
            scores = scores + torch.einsum("br,bsr->bs", qr, turned[:, : i + 1])
            weights = torch.softmax(scores / (E + R) ** 0.5, dim=-1)
            heads.append(torch.einsum("bs,bsv->bv", weights, v[:, : i + 1, h]))
        rows.append(torch.cat(heads, dim=-1))
    return torch.stack(rows, dim=1) @ p["output_projection.weight"].T


@pytest.mark.parametrize("query_rank", [Q, None])
def test_output_and_gradients_are_those_of_the_paper(query_rank: int | None) -> None:
    module, x = make(query_rank), leaf(B, L, D)
    got, want = module(x, is_causal=True), by_the_paper(module, x)
    assert_close(got, want, **FLOAT64)
    same_gradients(got, want, [x, *module.parameters()], **FLOAT64)


def check_cached(module: nn.Module) -> None:
    """Outputs and gradients of every way to read the text step by step are those of the whole."""
    x = leaf(B, L, D)
    want = module(x, is_causal=True)
    for steps in ([1] * L, [4, 1, 1, 5], [L]):
        cache = KVCache()
        got = [module(part, is_causal=True, cache=cache) for part in x.split(steps, dim=1)]
        assert_close(torch.cat(got, dim=1), want, **FLOAT64)
        same_gradients(torch.cat(got, dim=1), want, [x, *module.parameters()], **FLOAT64)
        # the latent vector and the part that turns, and nothing per head
        assert cache.nbytes == B * L * (C + R) * 8


@pytest.mark.parametrize("query_rank", [Q, None])
def test_every_cached_step_is_the_whole_text(query_rank: int | None) -> None:
    check_cached(make(query_rank))


test_the_comparison_rejects_mutants = rejects_changes(
    lambda wrong: check_cached(make(cls=wrong)),
    "attn_course.nn.latent.MultiHeadLatentAttention",
    ("1 / math.sqrt(self.head_dim + self.rope_dim)", "q.shape[-1] ** -0.5"),
    ("[latent.unsqueeze(1), turning]", "[latent.unsqueeze(1), 0 * turning]"),
    ("q[..., : self.head_dim] @ up", "q[..., : self.head_dim] @ up.flip(0)"),
    ("token_positions(q, k, positions, past=past)", "token_positions(q, k, positions)"),
)


def test_a_window_and_padding_work_as_with_every_attention() -> None:
    module, x = make(), leaf(B, L, D)
    i, j = torch.arange(L)[:, None], torch.arange(L)
    mask = (j <= i) & ((i - j < 3) | (j < 2))
    cache = SlidingCache(window_size=3, sinks=2)
    got = [module(part, is_causal=True, cache=cache) for part in x.split([4, 1, 6], dim=1)]
    assert_close(torch.cat(got, dim=1), module(x, attn_mask=mask), **FLOAT64)
    positions = torch.arange(-3, L - 3).clamp(min=-1).expand(B, L)
    got = module(x, is_causal=True, positions=positions)
    assert_close(got[:, 3:], module(x[:, 3:], is_causal=True), **FLOAT64)


def test_sizes_that_do_not_fit_are_refused() -> None:
    refused("query: expected size 19", make(), torch.randn(B, L, D + 1, dtype=torch.float64))
