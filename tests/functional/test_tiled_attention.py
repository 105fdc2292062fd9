"""Tiled attention: equal to plain attention for every tile, and without an L × S table."""

import pytest
import torch
from mutation import rejects_changes
from oracles import same_hessians
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course.functional import attention_with_lse, tiled_attention
from attn_course.probes import student

double = torch.float64


def draw(
    B: int, H: int, G: int, L: int, S: int, E: int, Ev: int, dtype: torch.dtype = double
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = (B, H, L, E), (B, G, S, E), (B, G, S, Ev)
    query, key, value = (torch.randn(*size).to(dtype) for size in sizes)
    return query, key, value


def check(attention: object, inputs: tuple[Tensor, ...], **options: object) -> None:
    """Output, log-sum-exp and the gradients of both against attention that holds its scores."""
    tiles = {name: options.pop(name) for name in ("query_tile", "key_tile") if name in options}
    asked = [x.clone().requires_grad_() for x in inputs]
    found = attention(*asked, **options, **tiles)  # type: ignore[operator]
    exact = [x.clone().requires_grad_() for x in inputs]
    expected = attention_with_lse(*exact, **options)  # type: ignore[arg-type]
    push, grad = [torch.randn_like(x) for x in expected], torch.autograd.grad
    assert_close(found, expected, **FLOAT64)
    assert_close(grad(found, asked, push), grad(expected, exact, push), **FLOAT64)


@pytest.mark.parametrize("tiles", [(1, 1), (3, 2), (5, 64), (64, 5), (64, 64)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_result_does_not_depend_on_the_tiles(tiles: tuple[int, int], is_causal: bool) -> None:
    for sizes in ((1, 1, 1, 1, 1, 1, 1), (2, 3, 3, 13, 11, 5, 7), (1, 4, 2, 7, 17, 3, 2)):
        inputs = draw(*sizes)
        check(
            tiled_attention, inputs,
            is_causal=is_causal, enable_gqa=True, query_tile=tiles[0], key_tile=tiles[1],
        )  # fmt: skip


def test_large_scores_do_not_overflow() -> None:
    query, key, value = draw(1, 1, 1, 5, 9, 4, 3, torch.float32)
    heads = 100 * query, 100 * key, value
    assert_close(tiled_attention(*heads, key_tile=2), attention_with_lse(*heads))


def test_no_query_is_a_sequence_too() -> None:
    rows = torch.zeros(2, 3, 0, 5, requires_grad=True)
    output, lse = tiled_attention(rows, torch.zeros(2, 3, 4, 5), torch.zeros(2, 3, 4, 7))
    assert (output.shape, lse.shape) == ((2, 3, 0, 7), (2, 3, 0))
    (output.sum() + lse.sum()).backward()
    assert tiled_attention(rows, rows, rows)[0].shape == (2, 3, 0, 5)


def test_no_key_gives_zero() -> None:
    query, key, value = draw(1, 1, 1, 3, 0, 4, 2)
    output, lse = tiled_attention(query, key, value)
    assert torch.equal(output, torch.zeros(1, 1, 3, 2, dtype=double))
    assert (lse == -torch.inf).all()


def test_second_derivatives_are_those_of_the_equation() -> None:
    def tiled(x: Tensor) -> Tensor:
        return tiled_attention(x, x.tanh(), x, query_tile=2, key_tile=3)[0].square().sum()

    def plain(x: Tensor) -> Tensor:
        return attention_with_lse(x, x.tanh(), x)[0].square().sum()

    same_hessians(tiled, plain, torch.randn(1, 2, 5, 3, dtype=torch.float64))


def test_no_table_of_scores_is_held() -> None:
    inputs = draw(1, 1, 1, 512, 512, 8, 8, torch.float32)
    tiled = student.peak_memory(tiled_attention, *inputs)
    whole = student.peak_memory(attention_with_lse, *inputs)
    assert whole > 512 * 512 * 4
    assert tiled < 512 * 512 * 4 / 4


def check_two(attention: object) -> None:
    query, key, value = draw(1, 2, 2, 7, 9, 4, 3)
    steep = torch.cat([key[:, :, :4] + 900 * query[:, :, :1], key[:, :, 4:]], dim=2)
    check(attention, (query, key, value), is_causal=True, query_tile=2, key_tile=3)
    check(attention, (query, steep, value), query_tile=2, key_tile=3)


test_the_oracle_rejects_planted_mistakes = rejects_changes(
    check_two,
    "attn_course.functional.tiled_attention.tiled_attention",
    ("output = output * rescale[..., None] +", "output = output +"),
    ("total = total * rescale +", "total = total +"),
    ("new = torch.maximum(top, scores.amax(-1))", "new = scores.amax(-1) + 0 * total"),
    ("columns.start < rows.stop", "columns.start < rows.start"),
    ("- delta[..., rows, None]) * scale", ") * scale"),
    ("- lse_grad", ""),
    ("column > row[:, None]", "column >= row[:, None]"),
)


test_bad_tiles_heads_and_sizes_are_refused = refuses(
    (lambda q, k, v: tiled_attention(q, k[:, :2], v[:, :2]), "key: expected 4 heads .* got 2"),
    (lambda q, k, v: tiled_attention(q, k, v, key_tile=0), "key_tile: expected at least 1, got 0"),
    (lambda q, k, v: tiled_attention(q, k[..., 1:], v), "key: expected size 4 on axis 3"),
    (lambda q, k, v: tiled_attention(q, k, v[:, :, 1:]), "value: expected size 5 on axis 2"),
    (lambda q, k, v: tiled_attention(q, k, v[:, :1]), "value: expected size 4 on axis 1"),
    (lambda q, k, v: tiled_attention(q, k[:1], v[:1]), "key: expected size 2 on axis 0"),
    given=lambda: draw(2, 4, 4, 3, 5, 4, 6),
)
