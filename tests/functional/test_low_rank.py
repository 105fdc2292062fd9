"""Linformer: by hand, NumPy, an identity as projection, gradients and memory."""

from collections.abc import Callable
from functools import partial

import torch
from mutation import REJECTED, rejects_changes
from oracles import by_numpy, same_gradients, trained
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course.functional import attention_with_lse, linformer_attention
from attn_course.functional.low_rank import _project_length
from attn_course.probes import student

MODULE = "attn_course.functional.low_rank"
B, H, L, S, E, EV, K, N = 2, 3, 5, 7, 11, 13, 4, 9


def rows() -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((B, H, L, E), (B, H, S, E), (B, H, S, EV))
    query, key, value = (
        torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes
    )
    return query, key, value


def check(attention: Callable[..., Tensor]) -> None:
    """All oracles."""
    # by hand: one mixture of two keys; its weight is one whatever the query
    one, two = torch.tensor([[[[1.0]]]]), torch.tensor([[[[3.0], [5.0]]]])
    mix = torch.tensor([[0.25, 2.0]])
    assert attention(one, two, two, mix, mix).item() == 0.75 + 10.0
    real = torch.ones(B, S, dtype=torch.bool)
    real[0, 4:] = False
    for lead in ((), (H,)):
        mixes = [torch.randn(*lead, K, n, dtype=torch.float64, requires_grad=True) for n in (S, N)]
        for padding in (None, real, torch.zeros_like(real)):
            inputs = (*rows(), *mixes)
            got = attention(*inputs, padding_mask=padding, scale=0.7)
            want = by_numpy.linformer_attention(*inputs, padding_mask=padding, scale=0.7)
            assert_close(got.detach(), want, **FLOAT64)
            # the same with the mixtures written out, and full attention to them
            keep = 1.0 if padding is None else padding[:, None, :, None].double()
            short = [mix[..., :S] @ (keep * x) for mix, x in zip(mixes, inputs[1:3], strict=True)]
            full, _ = attention_with_lse(inputs[0], *short, scale=0.7)
            same_gradients(got, full, inputs, **FLOAT64)


def test_attention_agrees_with_every_oracle() -> None:
    check(linformer_attention)


test_oracles_reject_a_changed_line = rejects_changes(
    check,
    f"{MODULE}.linformer_attention",
    ("projection[..., :length].to", "projection[..., -length:].to"),
    ("torch.where(padding_mask[:, None, :, None], x, 0.0)", "x"),
    ("_project_length(value, value_projection", "_project_length(value, key_projection"),
    ("        scale=scale,\n", ""),
    error=(*REJECTED, ValueError),
)


def test_padding_may_hold_nan() -> None:
    query, key, value = (x.detach() for x in rows())
    mix = torch.randn(K, S, dtype=torch.float64)
    real = torch.ones(B, S, dtype=torch.bool)
    real[:, 4:] = False
    plain = linformer_attention(query, key, value, mix, mix, padding_mask=real)
    key[:, :, 4:], value[:, :, 4:] = torch.nan, torch.inf
    got = linformer_attention(query, key, value, mix, mix, padding_mask=real)
    assert_close(got, plain)
    nothing = linformer_attention(query, key, value, mix, mix, padding_mask=~real & False)
    assert (nothing == 0).all()


def test_memory_grows_with_the_length_only() -> None:
    def attend(x: Tensor, mix: Tensor) -> Tensor:
        return linformer_attention(x, x, x, mix, mix)

    small, large = (
        student.peak_memory(partial(trained, attend), torch.randn(1, 1, n, 8), torch.randn(16, n))
        for n in (1024, 4096)
    )
    assert large < 4.2 * small
    assert large < 4096 * 4096


PADDING = "padding_mask: expected a boolean mask of shape"
test_what_does_not_fit_is_refused = refuses(
    (lambda x, mix: _project_length(x, mix[:, : S - 1]), "x: expected at most 6 positions"),
    (lambda x, mix: _project_length(x, mix.expand(H + 1, K, N)), "projection: expected size 3"),
    (lambda x, mix: _project_length(x, mix[0]), "projection: expected axes"),
    (lambda x, mix: _project_length(x, mix, torch.ones(B, S)), PADDING),
    (lambda x, mix: _project_length(x, mix, torch.ones(B, S - 1) > 0), PADDING),
    (lambda x, mix: _project_length(x, mix, torch.ones(1, S) > 0), PADDING),
    (lambda x, mix: _project_length(x, mix.tolist()), "projection: expected a torch tensor"),
    (lambda x, mix: linformer_attention(x, x, x[:, :, 1:], mix, mix), "value: expected size 7"),
    given=lambda: (torch.randn(B, H, S, E), torch.randn(K, N)),
)
