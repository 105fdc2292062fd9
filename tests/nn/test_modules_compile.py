"""Cached steps compile as one graph, and tensors without values pass."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

from attn_course import nn as ours
from attn_course.functional import sliding_window_attention
from attn_course.train import token_loss

D, H, L, V = 12, 3, 7, 23


def attention(**options: Any) -> ours.MultiHeadAttention:
    return ours.MultiHeadAttention(embed_dim=D, num_heads=H, **options)


def latent() -> ours.MultiHeadLatentAttention:
    return ours.MultiHeadLatentAttention(
        embed_dim=D, num_heads=H, head_dim=5, rope_dim=4, kv_rank=7
    )


SIZES: dict[str, Any] = {"vocab_size": V, "embed_dim": D, "num_heads": H, "num_layers": 1}
CAUSAL = {"is_causal": True}


def x() -> Tensor:
    return torch.randn(2, L, D)


def ids() -> Tensor:
    return torch.randint(V, (2, L))


def real() -> Tensor:
    return torch.tensor([[True] * L, [False] * 2 + [True] * (L - 2)])


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("kind", ["attention", "latent"])
def test_a_cached_step_compiles_as_one_graph(kind: str) -> None:
    module: nn.Module = latent()
    make: Callable[[], Any] = partial(ours.SlidingCache, window_size=3, sinks=1)
    if kind == "attention":
        module, make = attention(position=ours.RotaryPositions()), ours.KVCache
    tokens, caches = x(), (make(), make())
    torch.compiler.reset()
    compiled = torch.compile(module.eval(), fullgraph=True, backend="eager")
    with torch.no_grad():
        for token in tokens.split([L - 1, 1], dim=1):
            got = compiled(token, is_causal=True, cache=caches[0])
            assert_close(got, module(token, is_causal=True, cache=caches[1]))
    assert caches[0].length == L


WITHOUT_VALUES: dict[str, Callable[[], Any]] = {
    "window, padding": lambda: sliding_window_attention(
        *3 * [torch.ones(2, H, L, 4)], real()[:, None, None], window_size=3
    ),
    "window, global": lambda: sliding_window_attention(
        *3 * [torch.ones(2, H, L, 4)], window_size=3, global_mask=real()
    ),
    "longformer": lambda: ours.LongformerSelfAttention(embed_dim=D, num_heads=H, window_size=3)(
        x(), real()[:, None, None], global_mask=real()
    ),
    "reversible": lambda: ours.ReversibleSequence(
        blocks=[
            ours.ReversibleBlock(
                attention=ours.ChunkSelfAttention(embed_dim=D, num_heads=H, chunk_size=4),
                attention_norm=ours.LayerNorm(embed_dim=D),
                feed_forward=nn.Tanh(),
                feed_forward_norm=ours.LayerNorm(embed_dim=D),
            )
        ]
    )(x(), x())[0],
    "memory network": lambda: ours.MemoryNetwork(vocab_size=V, embed_dim=D, max_sentences=3)(
        torch.ones(2, 3, 5, dtype=torch.long), ids()
    ),
    "loss": lambda: token_loss(torch.ones(2, L, V), ids()),
    "gpt2, cache": lambda: (m := ours.gpt2_like(max_length=L, **SIZES))(
        ids(), real(), cache=m.new_cache()
    ),
}


@pytest.mark.parametrize("where", [FakeTensorMode(), torch.device("meta")], ids=["fake", "meta"])
@pytest.mark.parametrize("name", WITHOUT_VALUES)
@pytest.mark.usefixtures("unchecked")
def test_tensors_without_values_pass(name: str, where: Any) -> None:
    want = WITHOUT_VALUES[name]()
    with where:
        assert WITHOUT_VALUES[name]().shape == want.shape
