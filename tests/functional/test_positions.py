"""Positions: values by hand, the reference, what the papers prove, and planted mistakes."""

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mutation import mutant, passes, rejects_changes
from oracles import by_numpy, gradient
from refusals import refuses
from tolerances import BFLOAT16_ROUNDING, FLOAT64
from torch import Tensor
from torch.testing import assert_close

from attn_course import functional, reference

MODULE = "attn_course.functional.positions"
Function = Callable[..., Tensor]
DOUBLE = {"dtype": torch.float64}


def check_sinusoids(function: Function) -> None:
    by_hand = torch.tensor(
        [
            [0.0, 1.0, 0.0, 1.0],
            [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)],
            [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)],
        ],
        **DOUBLE,
    )
    assert_close(function(3, 4, **DOUBLE), by_hand, **FLOAT64)
    for size in (1, 2, 7, 12):
        for options in ({}, {"base": 31.0, "offset": 5}, {"interleaved": False}):
            oracle = by_numpy.sinusoidal_positions(11, size, **options)
            assert_close(function(11, size, **DOUBLE, **options), oracle, **FLOAT64)
    # angles of a hundred thousand need more than float32
    oracle = by_numpy.sinusoidal_positions(3, 8, offset=100_003)
    assert_close(function(3, 8, offset=100_003), oracle.float())


def test_a_shift_of_the_sinusoids_is_one_rotation_for_all_positions() -> None:
    # Vaswani et al. (2017), section 3.5: PE(p + k) is a linear function of PE(p)
    table = functional.sinusoidal_positions(23, 10, **DOUBLE)
    frequencies = functional.rope_frequencies(10)
    shift = torch.full((18,), -5)  # a (sine, cosine) pair turns clockwise as the position grows
    turned = functional.apply_rope(table[:18], shift, frequencies=frequencies)
    assert_close(turned, table[5:], **FLOAT64)


def check_frequencies(function: Function) -> None:
    assert_close(function(4), torch.tensor([1.0, 0.01], **DOUBLE), **FLOAT64)
    halved = functools.partial(functional.linear_scaling, factor=2.0)
    assert_close(function(2, scaling=halved), torch.tensor([0.5], **DOUBLE), **FLOAT64)
    for options in ({}, {"base": 500_000.0}, {"scaling": lambda f: f**2}):
        assert_close(function(14, **options), by_numpy.rope_frequencies(14, **options), **FLOAT64)


def check_rope(function: Function) -> None:
    quarter = torch.tensor([0.0, math.pi / 2], **DOUBLE)  # turns by 90 degrees at frequency 1
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0]], **DOUBLE)
    assert_close(function(x, quarter), torch.tensor([[1.0, 2.0], [-2.0, 1.0]], **DOUBLE), **FLOAT64)
    third = torch.tensor([[1.0, 2.0, 3.0, 4.0]], **DOUBLE)
    place = torch.tensor([50 * math.pi], **DOUBLE)  # 25 full turns, and a quarter of one
    interleaved = function(third, place)
    assert_close(interleaved, torch.tensor([[1.0, 2.0, -4.0, 3.0]], **DOUBLE), **FLOAT64)
    halves = function(third, place, interleaved=False)
    assert_close(halves, torch.tensor([[1.0, -4.0, 3.0, 2.0]], **DOUBLE), **FLOAT64)

    x = torch.randn(2, 3, 5, 14, **DOUBLE)
    rows = torch.randint(0, 97, (2, 1, 5))
    few = torch.tensor([0.7, 0.2, 0.01], **DOUBLE)
    for positions in (torch.arange(11, 16), rows, rows.expand(2, 3, 5), 0.25 * rows):
        for options in ({}, {"base": 53.0}, {"frequencies": few}):
            for interleaved_pairs in (True, False):
                given = {**options, "interleaved": interleaved_pairs}
                ours = function(x, positions, **given)
                assert_close(ours, by_numpy.apply_rope(x, positions, **given), **FLOAT64)
                # a rotation: its gradient is the rotation back
                upstream = torch.linspace(-1, 2, x.numel(), **DOUBLE).view_as(x)
                back = by_numpy.apply_rope(upstream, -positions, **given)
                assert_close(gradient(function, x, positions, **given), back, **FLOAT64)
    assert torch.equal(function(x, rows, frequencies=few)[..., 6:], x[..., 6:])
    far = torch.arange(100_003, 100_008)
    assert_close(function(x.float(), far), by_numpy.apply_rope(x.float(), far).float())
    half = x.bfloat16()
    oracle = by_numpy.apply_rope(half.double(), far)
    assert function(half, far).dtype == torch.bfloat16
    assert_close(function(half, far).double(), oracle, **BFLOAT16_ROUNDING)


@pytest.mark.parametrize("interleaved", [True, False])
def test_rope_sees_distances_only_and_keeps_lengths(interleaved: bool) -> None:
    query, key = torch.randn(2, 7, 10, **DOUBLE)
    turn = functools.partial(functional.apply_rope, interleaved=interleaved)
    scores = [turn(query, torch.arange(7) + m) @ turn(key, torch.arange(7) + m).mT for m in (0, 91)]
    assert_close(scores[0], scores[1], rtol=1e-9, atol=1e-11)
    assert_close(turn(query, torch.arange(7)).norm(dim=-1), query.norm(dim=-1), **FLOAT64)
    assert not torch.allclose(scores[0], query @ key.mT)


def same_scaling(frequencies: Tensor, name: str, **options: Any) -> Tensor:
    ours = getattr(functional, name)(frequencies, **options)
    assert_close(ours, getattr(by_numpy, name)(frequencies, **options), **FLOAT64)
    return ours


def test_scalings_by_hand_and_against_the_reference() -> None:
    # E = 4: the slowest pair is the second, base ** -0.5; at base' it turns 3 times slower
    assert functional.scaled_base(100.0, 3.0, 4) == pytest.approx(900.0)
    slow = functional.rope_frequencies(10, base=functional.scaled_base(70.0, 5.0, 10))
    plain = functional.rope_frequencies(10, base=70.0)
    assert_close(slow[-1], plain[-1] / 5, **FLOAT64)
    assert slow[0] == plain[0] == 1
    given = 70.0, 5.0, 10
    assert functional.scaled_base(*given) == pytest.approx(reference.scaled_base(*given))
    frequencies = functional.rope_frequencies(26, base=500_000.0)
    same_scaling(frequencies, "linear_scaling", factor=3.0)
    ratio = same_scaling(frequencies, "llama3_scaling", original_length=1021) / frequencies
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(1 / 8)
    assert ((ratio > 1 / 8 + 1e-9) & (ratio < 1 - 1e-9)).any()  # some are mixed
    for truncate in (True, False):
        options = {"factor": 5.0, "original_length": 1021, "truncate": truncate}
        ours = same_scaling(frequencies, "yarn_scaling", **options)
        assert ours[0] == frequencies[0]
        assert ours[-1] / frequencies[-1] == pytest.approx(1 / 5)
    # two full turns in 8192 positions: a third of the way from slow (1) to fast (4)
    two = torch.tensor([2 * 2 * math.pi / 8192], **DOUBLE)
    expected = two * (2 / 3 / 8 + 1 / 3)
    assert_close(functional.llama3_scaling(two), expected, **FLOAT64)


def check_slopes(function: Function) -> None:
    assert function(1).tolist() == [2**-8]
    assert function(4).tolist() == [2**-2, 2**-4, 2**-6, 2**-8]
    assert function(8).tolist() == [2.0**-h for h in range(1, 9)]
    # the paper's code: those for 4, then the first and the third of those for 8
    assert function(6).tolist() == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    for heads in (2, 3, 5, 7, 12, 16, 17, 31, 40, 71):
        assert_close(function(heads, **DOUBLE), by_numpy.alibi_slopes(heads), **FLOAT64)


def check_alibi(function: Function) -> None:
    by_hand = torch.tensor([[[0.0, -1, -2], [-1, 0, -1], [-2, -1, 0]]]) * torch.tensor(
        [2.0**-4, 2.0**-8]
    ).view(2, 1, 1)
    assert_close(function(2, 3), by_hand)
    for options in ({}, {"key_length": 11}, {"offset": 3}, {"key_length": 5, "offset": 13}):
        ours = function(3, 7, **DOUBLE, **options)
        assert_close(ours, by_numpy.alibi_bias(3, 7, **options), **FLOAT64)
    half = function(17, 1, offset=4099, dtype=torch.bfloat16)
    assert_close(half.double(), by_numpy.alibi_bias(17, 1, offset=4099), **BFLOAT16_ROUNDING)


# by hand: beyond 8 the edges are 8 * 2 ** (k / 2) = 8, 11.3, 16, 22.6, 32, 45.3, 64, 90.5
BOTH_SIDES = {
    0: 0, 1: 1, 2: 2, 7: 7, 8: 8, 11: 8, 12: 9, 15: 9, 16: 10, 22: 10, 23: 11, 31: 11, 32: 12,
    45: 12, 46: 13, 63: 13, 64: 14, 90: 14, 91: 15, 127: 15, 128: 15, 5000: 15,
}  # fmt: skip
# and beyond 16 they are 16 * 8 ** (k / 16) = 16, 18.2, 20.7, 23.6, 26.9, 30.6, 34.9, 39.7, 45.3,
# 51.5, 58.7, 66.8, 76.1, 86.7, 98.7, 112.4
ONE_SIDE = {
    0: 0, 1: 1, 15: 15, 16: 16, 18: 16, 19: 17, 20: 17, 21: 18, 24: 19, 27: 20, 31: 21, 35: 22,
    40: 23, 45: 23, 46: 24, 51: 24, 52: 25, 59: 26, 67: 27, 76: 27, 77: 28, 87: 29, 99: 30,
    112: 30, 113: 31, 128: 31, 999: 31,
}  # fmt: skip


def check_buckets(function: Function) -> None:
    for distance, bucket in BOTH_SIDES.items():
        behind, ahead = function(torch.tensor([-distance, distance])).tolist()
        assert (behind, ahead) == (bucket, bucket + 16 if distance else 0), distance
    for distance, bucket in ONE_SIDE.items():
        ours = function(torch.tensor([-distance, distance]), bidirectional=False).tolist()
        assert ours == [bucket, 0 if distance else bucket], distance
    relative = torch.arange(-211, 212).view(3, 141)
    for buckets, longest in ((32, 128), (6, 17), (4, 3), (22, 149), (64, 37), (7, 19)):
        for bidirectional in (True, False)[buckets % 2 :]:  # both sides take an even number
            options = {"num_buckets": buckets, "max_distance": longest}
            options["bidirectional"] = bidirectional
            oracle = by_numpy.relative_position_bucket(relative, **options)
            assert torch.equal(function(relative, **options), oracle), options


ORACLES = {
    "sinusoidal_positions": check_sinusoids,
    "relative_position_bucket": check_buckets,
    "rope_frequencies": check_frequencies,
    "apply_rope": check_rope,
    "alibi_slopes": check_slopes,
    "alibi_bias": check_alibi,
}


test_function_agrees_with_every_oracle = passes(ORACLES, functional)


test_oracles_reject_a_changed_line = rejects_changes(
    ORACLES,
    MODULE,
    sinusoidal_positions=[
        ("torch.stack([sine, angles.cos()]", "torch.stack([angles.cos(), sine]"),
        ("base ** (-pair / embed_dim)", "base ** (-pair / 2 / embed_dim)"),
        ("base ** (-pair / embed_dim)", "base ** (-pair / (embed_dim + embed_dim % 2))"),
        ("torch.arange(offset, offset + length", "torch.arange(0, length"),
        ("dtype=torch.float64", "dtype=torch.float32"),
        ("torch.cat([sine, cosine]", "torch.cat([cosine, sine]"),
        ("if interleaved:", "if True:"),
    ],
    apply_rope=[
        ("first * cosine - second * sine", "first * cosine + second * sine"),
        ("first * sine + second * cosine", "second * cosine - first * sine"),
        ("positions.unsqueeze(-1) * frequencies", "positions.unsqueeze(-1) / frequencies"),
        ("if interleaved else torch.cat(turned", "if False else torch.cat(turned"),
        ("if interleaved:\n        first", "if True:\n        first"),
        ("part[..., 0::2], part[..., 1::2]", "part[..., 1::2], part[..., 0::2]"),
        ("wide[..., :turning], wide[..., turning:]", "wide[..., -turning:], wide[..., :-turning]"),
        ("widest(x)", "x.dtype"),
        ("unsqueeze(-1) * frequencies.double()", "unsqueeze(-1).float() * frequencies.float()"),
        ("-pair / head_dim", "-pair / 2 / head_dim"),
        ("base=base, device=x.device", "device=x.device"),
        ("[part, rest], dim=-1).to(x.dtype)", "[part, rest], dim=-1).detach()"),
    ],
    alibi_slopes=[
        ("num_heads.bit_length() - 1", "num_heads.bit_length()"),
        ("-4 * h / below", "-8 * h / below"),
        ("range(1, 2 * (num_heads - below), 2)", "range(1, 1 + num_heads - below)"),
        ("range(1, 2 * (num_heads - below), 2)", "range(2, 2 * (num_heads - below) + 1, 2)"),
        ("-8 * h / below", "-8 * (h - 1) / below"),
    ],
    alibi_bias=[
        ("(-slopes * distance)", "(slopes * distance)"),
        (".abs()  # (L, S)", "  # (L, S)"),
        (".abs()  # (L, S)", ".clamp(min=0)  # (L, S)"),
        ("torch.arange(offset, offset + query_length", "torch.arange(query_length"),
        ("offset + query_length if key_length is None", "query_length if key_length is None"),
        ("torch.promote_types(dtype, torch.float32)", "dtype"),
    ],
    relative_position_bucket=[
        ("count * (relative_position > 0)", "count * (relative_position < 0)"),
        ("count * (relative_position > 0)", "count * (relative_position >= 0)"),
        ("(-relative_position).clamp(min=0)", "relative_position.clamp(min=0)"),
        ("num_buckets // 2 if bidirectional else num_buckets\n", "num_buckets\n"),
        ("exact = count // 2", "exact = count // 2 + 1"),
        ("math.log(max_distance / exact)", "math.log(max_distance)"),
        ("(count - exact)).long()", "(count - exact)).round().long()"),
        (".clamp(max=count - 1)", ".clamp(max=count)"),
        ("distance < exact, distance", "distance <= exact + 1, distance"),
    ],
)


def plain(name: str) -> Any:
    return mutant(MODULE, name, "def ", "def ")  # without the checks of shapes


X, THREE = torch.zeros(2, 3, 5, 4), torch.arange(3)
ROPE, BUCKET = plain("apply_rope"), plain("relative_position_bucket")
LLAMA = functools.partial(plain("llama3_scaling"), X[0, 0, 0])

test_bad_arguments_are_refused = refuses(
    (lambda: plain("sinusoidal_positions")(-1, 4), "length: expected at least 0"),
    (lambda: plain("sinusoidal_positions")(3, 0), "embed_dim: expected at least 1"),
    (lambda: plain("sinusoidal_positions")(3, 4, base=0.0), "base: expected more than 0"),
    (lambda: plain("rope_frequencies")(7), "head_dim: expected a positive even number, got 7"),
    (lambda: plain("scaled_base")(1e4, 2.0, 2), "head_dim: expected at least 4, got 2"),
    (lambda: plain("linear_scaling")(X[0, 0, 0], factor=0.0), "factor: expected more than 0"),
    (lambda: LLAMA(low_freq_factor=4.0), "high_freq_factor: .* low_freq_factor = 4.0, got 4.0"),
    (lambda: ROPE(X.long(), torch.arange(5)), "x: expected a floating point tensor"),
    (lambda: ROPE(X[0, 0, 0], torch.arange(4)), r"x: expected axes \(..., L, E\)"),
    (lambda: ROPE(X, torch.zeros(3, 5)), r"positions: expected shape \(5,\) or"),
    (lambda: ROPE(X, THREE), "positions: expected a shape that"),
    (lambda: ROPE(X[..., :3], torch.arange(5)), "head_dim: expected a positive even"),
    (lambda: ROPE(X, torch.arange(5), frequencies=THREE), "frequencies: expected 1 to 2, got 3"),
    (lambda: plain("alibi_slopes")(0), "num_heads: expected at least 1"),
    (lambda: plain("alibi_bias")(2, 3, offset=-1), "offset: expected at least 0"),
    (lambda: BUCKET(X), "relative_position: expected integers"),
    (lambda: BUCKET(THREE, num_buckets=2), "num_buckets: expected at least 4"),
    (lambda: BUCKET(THREE, num_buckets=7), "num_buckets: expected a positive even"),
    (lambda: BUCKET(THREE, max_distance=8), "max_distance: expected at least 9"),
)
