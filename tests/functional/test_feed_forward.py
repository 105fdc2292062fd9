"""Feed-forward parts: values by hand, the reference, torch forward and backward, mistakes."""

from collections.abc import Callable

import torch
from mutation import mutant, passes, rejects_changes
from oracles import agree, by_numpy
from refusals import refuses
from tolerances import BFLOAT16_ROUNDING
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import functional, reference

MODULE = "attn_course.functional.feed_forward"
Function = Callable[..., Tensor]
B, L, D, HIDDEN, OUT = 2, 3, 5, 7, 11


def numbers(*sizes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(size, dtype=torch.float64) for size in sizes]


def check_gelu(function: Function) -> None:
    # Phi(1) = 0.8413447, and x Phi(x) = 0 at 0
    assert_close(function(torch.tensor([0.0, 1.0])), torch.tensor([0.0, 0.8413447]))
    (x,) = numbers((B, L, D))
    for kind in ("none", "tanh"):
        agree(
            lambda x, kind=kind: function(2 * x, kind),
            lambda x, kind=kind: F.gelu(2 * x, approximate=kind),
            lambda x, kind=kind: by_numpy.gelu(2 * x, kind),
            x,
        )
    assert not torch.equal(function(x, "tanh"), function(x))
    half = x.bfloat16()
    oracle = by_numpy.gelu(half.double())
    assert function(half).dtype == torch.bfloat16
    assert_close(function(half).double(), oracle, **BFLOAT16_ROUNDING)


def check_swiglu(function: Function) -> None:
    one = torch.ones(1, 1)
    assert_close(function(one, one, 3 * one), torch.tensor([[3 * 0.7310586]]))
    x, *given = numbers((B, L, D), (HIDDEN, D), (HIDDEN, D), (HIDDEN,), (HIDDEN,))
    agree(
        function,
        lambda x, g, u, bg, bu: F.silu(x @ g.T + bg) * (x @ u.T + bu),
        by_numpy.swiglu,
        x, *given,
    )  # fmt: skip
    agree(function, lambda x, g, u: F.silu(x @ g.T) * (x @ u.T), by_numpy.swiglu, x, *given[:2])


def check_feed_forward(function: Function) -> None:
    x = torch.tensor([[1.0, 2.0]])
    weight_in, weight_out = torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([[2.0, 5.0]])
    bias_in, bias_out = torch.tensor([-1.0, -1.0]), torch.tensor([0.5])
    # hidden (1 + 2 - 1, 1 - 2 - 1) = (2, -2): only the first passes
    assert_close(function(x, weight_in, weight_out, bias_in, bias_out), torch.tensor([[4.5]]))
    given = numbers((B, L, D), (HIDDEN, D), (OUT, HIDDEN), (HIDDEN,), (OUT,))
    agree(
        function,
        lambda x, wi, wo, bi, bo: F.linear(F.relu(F.linear(x, wi, bi)), wo, bo),
        by_numpy.feed_forward,
        *given,
    )
    agree(
        lambda *p: function(*p, activation=functional.gelu),
        lambda x, wi, wo: F.gelu(x @ wi.T) @ wo.T,
        lambda *p: by_numpy.feed_forward(*p, activation=reference.gelu),
        *given[:3],
    )


CHECKS = {"gelu": check_gelu, "swiglu": check_swiglu, "feed_forward": check_feed_forward}


test_agrees_with_every_oracle = passes(CHECKS, functional)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS, MODULE,
    ("gelu", "torch.erf(wide / math.sqrt(2))", "torch.erf(wide)"),
    ("gelu", "torch.erf(wide / math.sqrt(2))", "torch.tanh(wide)"),
    ("gelu", "0.044715 * wide**3", "0.044715 * wide**2"),
    ("gelu", "math.sqrt(2 / math.pi)", "(2 / math.pi)"),
    ("gelu", 'approximate == "none"', "True"),
    ("gelu", "widen(\"x\", x)", "x"),
    ("swiglu", "silu(linear(x, weight_gate", "torch.sigmoid(linear(x, weight_gate"),
    ("swiglu", "* linear(x, weight_up", "* linear(x, weight_gate"),
    ("swiglu", "x, weight_up, bias_up", "x, weight_up"),
    ("feed_forward", "activation(linear(x", "torch.Tensor.clone(linear(x"),
    ("feed_forward", "weight_out, bias_out)", "weight_out)"),
    ("feed_forward", "activation(linear(x", "torch.relu(linear(x"),
)  # fmt: skip


def test_the_two_forms_of_gelu_differ_by_less_than_five_ten_thousandths() -> None:
    x = torch.linspace(-8, 8, 100_001, dtype=torch.float64)
    apart = (functional.gelu(x, "tanh") - functional.gelu(x)).abs().max()
    assert 4e-4 < float(apart) < 5e-4


# without the checks of shapes
GELU, SWIGLU, BOTH = (mutant(MODULE, name, "def ", "def ") for name in CHECKS)
test_bad_arguments_are_refused = refuses(
    (lambda x, w, bad: GELU(x, "erf"), 'approximate: expected "none" or "tanh", got \'erf\''),
    (lambda x, w, bad: BOTH(x, bad, bad), "weight_in: expected size 5 on axis -1"),
    (lambda x, w, bad: BOTH(x, w, bad), "weight_out: expected size 7 on axis -1"),
    (lambda x, w, bad: SWIGLU(x, w, w[:3]), "weight_up: expected size 7 on axis -2"),
    given=lambda: (torch.zeros(2, 5), torch.zeros(7, 5), torch.zeros(7, 3)),
)
