"""Reformer's modules: reversible layers against plain ones, memory by depth, hashes by seed."""

from typing import Any

import torch
from mutation import rejects_changes
from refusals import refused
from torch import Tensor, nn
from torch.testing import assert_close

from attn_course import functional
from attn_course import nn as ours
from attn_course.nn.heads import split_heads
from attn_course.nn.reformer import AxialPositions
from attn_course.probes import student

B, L, D = 2, 11, 6


def lsh(**options: Any) -> ours.LSHSelfAttention:
    sizes = {"embed_dim": D, "num_heads": 2, "chunk_size": 4, "n_buckets": 4, "n_hashes": 2}
    return ours.LSHSelfAttention(**(sizes | options))


def block(attention: nn.Module | None = None, dropout: float = 0.0) -> ours.ReversibleBlock:
    return ours.ReversibleBlock(
        attention=lsh(hash_seed=3) if attention is None else attention,
        attention_norm=ours.LayerNorm(embed_dim=D),
        feed_forward=ours.FeedForward(embed_dim=D, hidden_dim=13, dropout=dropout),
        feed_forward_norm=ours.LayerNorm(embed_dim=D),
        dropout=dropout,
    )


def plain(sequence: Any, x1: Tensor, x2: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
    """The blocks as they are, whose activations autograd keeps."""
    for one in sequence.blocks:
        x1, x2 = one(x1, x2, real)
    return x1, x2


def check(kind: Any) -> None:
    """Outputs and all gradients are those of the plain blocks."""
    shared = block()
    local = block(ours.ChunkSelfAttention(embed_dim=D, num_heads=2, chunk_size=4))
    parts = [shared, local, shared, block()]
    sequence = kind(blocks=parts).double()
    next(iter(sequence.parameters())).requires_grad_(False)
    x1, x2 = (torch.randn(B, L, D, dtype=torch.float64, requires_grad=True) for _ in range(2))
    real = torch.arange(L) < torch.tensor([L, 7])[:, None]
    wanted = [x1, x2, *(p for p in sequence.parameters() if p.requires_grad)]
    for mask in (None, real):
        found = []
        for run in (sequence, lambda a, b, m: plain(sequence, a, b, m)):
            y1, y2 = run(x1, x2, mask)
            loss = (y1 * y1.detach().cos() + y2.sin()).sum()
            found.append((y1, y2, *torch.autograd.grad(loss, wanted)))
        assert_close(found[0], found[1], rtol=1e-9, atol=1e-10)


def test_reversible_layers_have_the_gradients_of_plain_ones() -> None:
    check(ours.ReversibleSequence)


test_a_wrong_way_back_is_noticed = rejects_changes(
    check,
    "attn_course.nn.reformer.ReversibleSequence",
    ("y2, d1 = y2 - added, d1 + grad", "y2, d1 = y2 + added, d1 + grad"),
    ("y1, d2 = y1 - added, d2 + grad", "y1, d2 = y1 - added, grad"),
    ("gradient if seen is None else seen + gradient", "gradient"),
    ("block.attended(x, ctx.run.padding_mask), y2", "block.attended(x), y2"),
    ("reversed(range(len(ctx.run.blocks)))", "range(len(ctx.run.blocks))"),
)


def test_second_derivatives_are_those_of_plain_layers() -> None:
    local = ours.ChunkSelfAttention(embed_dim=D, num_heads=2, chunk_size=4)
    sequence = ours.ReversibleSequence(blocks=[block(local), block(local)]).double()
    x = torch.randn(1, 4, D, dtype=torch.float64)
    weight = sequence.blocks[0].feed_forward.up_projection.weight

    def found(run: Any) -> tuple[Tensor, ...]:
        leaf = x.clone().requires_grad_()
        y1, y2 = run(*run(leaf, leaf.sin(), None), None)  # the second one's input needs the weights
        first = torch.autograd.grad((y1 * y2).sum(), (leaf, weight), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (leaf, weight))

    assert_close(found(sequence), found(lambda a, b, m: plain(sequence, a, b, m)))

    def loss(x: Tensor) -> Tensor:
        return sum(part.square().sum() for part in sequence(x, x.sin()))

    want = torch.func.hessian(loss)(x)
    assert_close(torch.autograd.functional.hessian(loss, x), want)
    with torch.autograd.forward_ad.dual_level():
        dual = loss(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)))
        slope = torch.autograd.forward_ad.unpack_dual(dual).tangent
    assert_close(slope, torch.func.jvp(loss, (x,), (torch.ones_like(x),))[1])


def test_dropout_and_random_hashes_are_the_same_on_the_way_back() -> None:
    torch.manual_seed(1)
    parts = [block(lsh(dropout=0.3), dropout=0.4) for _ in range(2)]
    sequence = ours.ReversibleSequence(blocks=parts).double()
    x1, x2 = (torch.randn(B, L, D, dtype=torch.float64) for _ in range(2))
    push = torch.randn(B, L, D, dtype=torch.float64)

    def at(x1: Tensor, seed: int = 5) -> Tensor:
        torch.manual_seed(seed)
        y1, y2 = sequence(x1, x2)
        return (push * (y1 + y2)).sum()

    assert at(x1) == at(x1)
    assert at(x1) != at(x1, seed=6)
    leaf = x1.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(at(leaf), leaf)
    step = 1e-6 * torch.randn_like(x1)
    assert_close((at(x1 + step) - at(x1 - step)) / 2, (gradient * step).sum(), rtol=1e-6, atol=0)


def test_the_callers_random_numbers_move_by_one_draw_however_deep() -> None:
    after = []
    x = torch.randn(B, L, D)
    for depth in (1, 3):
        sequence = ours.ReversibleSequence(blocks=[block(dropout=0.3) for _ in range(depth)])
        torch.manual_seed(2)
        sum(sequence(x, x)).sum().backward()
        after.append(torch.rand(3))
    assert torch.equal(*after)


def test_memory_is_constant_in_depth_and_without_it_is_not() -> None:
    x = torch.randn(2, 96, D)
    found: dict[bool, list[int]] = {True: [], False: []}
    for depth in (1, 6):
        sequence = ours.ReversibleSequence(blocks=[block() for _ in range(depth)])

        def back(x: Tensor, run: Any) -> Tensor:
            x = x.requires_grad_()
            y1, y2 = run(x, x)
            return torch.autograd.grad((y1 * y2).sum(), x)[0]

        weights = sum(p.numel() * 4 for p in sequence.parameters())
        for reversible in (True, False):
            run = sequence if reversible else lambda a, b, s=sequence: plain(s, a, b, None)
            found[reversible].append(student.peak_memory(back, x, run) - weights)
    # the input, its copies and the record of autograd vary by a fifth between runs
    assert found[True][1] < 1.5 * found[True][0]
    assert found[False][1] > 3 * found[False][0]


def test_without_gradients_nothing_is_drawn_and_the_result_is_the_same() -> None:
    sequence = ours.ReversibleSequence(blocks=[block()])
    x = torch.randn(B, L, D)
    tracked = sequence(x, x)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    with torch.no_grad():
        found = sequence(x, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert_close(found, tuple(t.detach() for t in tracked))
    refused("blocks: expected at least one", ours.ReversibleSequence, blocks=[])


def test_lsh_module_is_the_function_between_its_projections() -> None:
    module = lsh(hash_seed=7, is_causal=True, head_dim=5).double()
    x = torch.randn(B, L, D, dtype=torch.float64)
    real = torch.arange(L) < torch.tensor([L, 7])[:, None]
    query_key = split_heads(module.query_key_projection(x), 2)
    generator = torch.Generator().manual_seed(7)
    rotations = functional.random_rotations(
        2, 5, n_buckets=4, n_hashes=2, generator=generator, dtype=torch.float64
    )
    heads = functional.lsh_attention(
        query_key,
        split_heads(module.value_projection(x), 2),
        functional.lsh_buckets(query_key, rotations),
        chunk_size=4,
        is_causal=True,
        padding_mask=real,
    )
    want = module.output_projection(heads.transpose(1, 2).flatten(2))
    assert_close(module(x, real), want)
    changed = x.clone()
    changed[:, 6:] += 1.0
    # only a position's own future moves: sorting and buckets of the past stay
    assert_close(module(changed)[:, 0], module(x)[:, 0])


def test_hashes_are_new_in_every_call_unless_there_is_a_seed() -> None:
    x = torch.randn(B, 40, D)
    free, fixed = lsh(n_hashes=1), lsh(n_hashes=1, hash_seed=1)
    assert not torch.equal(free(x), free(x))
    state = torch.get_rng_state()
    assert torch.equal(fixed(x), fixed(x))
    assert torch.equal(torch.get_rng_state(), state)
    refused("n_buckets", lsh, n_buckets=3)
    refused("embed_dim: expected a multiple", lsh, num_heads=4)


def test_real_tokens_do_not_see_the_padding() -> None:
    encoder = ours.ReformerEncoder(
        blocks=[block(lsh(attend_across_buckets=True, hash_seed=2)), block()],
        norm=ours.LayerNorm(embed_dim=2 * D),
    )
    x = torch.randn(B, L, D)
    real = torch.arange(L) < torch.tensor([L, 7])[:, None]
    positions = torch.where(real, torch.arange(L), -1)
    got = encoder(x, positions=positions)
    assert got.shape == (B, L, 2 * D)
    noise = torch.where(real.unsqueeze(-1), x, torch.randn_like(x))
    assert_close(encoder(noise, positions=positions)[real], got[real])


def test_axial_positions_are_rows_beside_columns() -> None:
    table = AxialPositions(shape=(3, 5), dims=(2, 4))
    found = table(torch.tensor([0, 4, 5, 14, -1]), 15)
    assert torch.equal(found[:, :2], table.rows[[0, 0, 1, 2, 0]])
    assert torch.equal(found[:, 2:], table.columns[[0, 4, 0, 4, 0]])
    refused("length: expected at most 15, got 16", table, torch.arange(16), 16)
