"""Windows with global positions: what each position can see, and by which projections."""

from functools import partial

import torch
from refusals import refused
from torch.testing import assert_close

from attn_course.functional import scaled_dot_product_attention, window_pattern
from attn_course.nn import LongformerSelfAttention
from attn_course.nn.heads import split_heads


def test_rows_are_those_of_full_attention_with_the_right_projections() -> None:
    layer = LongformerSelfAttention(embed_dim=12, num_heads=3, window_size=5).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = torch.randn(2, 17, 12, dtype=torch.float64)
    chosen = torch.rand(2, 17) < 0.2
    real = torch.arange(17) < torch.tensor([17, 11])[:, None]
    got = layer(x, real[:, None, None], global_mask=chosen)
    seen = chosen & real

    def rows(prefix: str, mask: torch.Tensor) -> torch.Tensor:
        three = (
            split_heads(getattr(layer, f"{prefix}{name}_projection")(x), 3)
            for name in ("query", "key", "value")
        )
        return scaled_dot_product_attention(*three, mask & real[:, None, None])

    near = window_pattern(window_size=5).mask(17) | seen[:, None, None]
    everywhere = torch.ones(2, 1, 17, 17, dtype=torch.bool)
    heads = torch.where(seen[:, None, :, None], rows("global_", everywhere), rows("", near))
    assert_close(got, layer.output_projection(heads.transpose(1, 2).flatten(2)))


def test_second_derivatives_are_those_of_the_equations() -> None:
    layer = LongformerSelfAttention(embed_dim=6, num_heads=2, window_size=3).double()
    chosen = torch.tensor([[False, True, False, False, False]])
    x = torch.randn(1, 5, 6, dtype=torch.float64)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return layer(x, global_mask=chosen).square().sum()

    want = torch.func.hessian(loss)(x)
    assert_close(torch.autograd.functional.hessian(loss, x), want)


def test_global_projections_start_as_the_local_ones() -> None:
    layer = LongformerSelfAttention(embed_dim=6, num_heads=2, window_size=3)
    assert torch.equal(layer.global_query_projection.weight, layer.query_projection.weight)
    assert layer.global_query_projection.weight is not layer.query_projection.weight


def test_bad_input_is_refused_by_name() -> None:
    make = partial(LongformerSelfAttention, embed_dim=6, num_heads=2, window_size=3)
    refused("window_size: expected an odd", make, window_size=4)
    refused("embed_dim: expected a multiple", make, embed_dim=7)
    refused("dilation: expected a positive number, or 2", make, dilation=[1, 2, 3])
    wrong = torch.randn(2, 5, 6), torch.ones(2, 1, 1, 5)
    message = r"attn_mask: expected a boolean padding mask .* got torch.float32"
    refused(message, make(), *wrong, positions=torch.arange(5).expand(2, 5))
