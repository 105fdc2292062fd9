"""Learning-rate schedules against values done by hand."""

import math

import pytest
from refusals import refused

from attn_course.train import warmup_cosine, warmup_inverse_sqrt


def test_inverse_sqrt_is_equation_3_of_vaswani():
    # d_model = 512, warmup 4000, their step counts from 1: largest rate 1 / sqrt(512 * 4000)
    rate = warmup_inverse_sqrt(embed_dim=512, warmup=4000)
    assert rate(0) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert rate(999) == pytest.approx(1000 * rate(0))
    assert rate(3999) == pytest.approx(6.987712429686843e-04)
    assert rate(15999) == pytest.approx(rate(3999) / 2)
    assert max(range(20000), key=rate) == 3999


def test_inverse_sqrt_factor_scales_the_whole_curve():
    plain = warmup_inverse_sqrt(embed_dim=7, warmup=5)
    scaled = warmup_inverse_sqrt(embed_dim=7, warmup=5, factor=3.0)
    for step in range(13):
        assert scaled(step) == pytest.approx(3 * plain(step))


def test_cosine_by_hand():
    rate = warmup_cosine(peak=2.0, warmup=4, steps=12, floor=1.0)
    # rise 0.5 1 1.5 2, then 1.5 + 0.5 cos(pi k / 8)
    assert [rate(step) for step in range(4)] == [0.5, 1.0, 1.5, 2.0]
    assert rate(5) == pytest.approx(1.5 + 0.5 * math.sqrt(0.5))
    assert (rate(7), rate(11)) == (pytest.approx(1.5), pytest.approx(1.0))
    assert rate(500) == pytest.approx(1.0)


def test_cosine_without_warmup_starts_near_the_peak_and_falls():
    rates = [warmup_cosine(peak=1.0, warmup=0, steps=11)(step) for step in range(11)]
    assert rates[0] == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 11))
    assert (rates, rates[-1]) == (sorted(rates, reverse=True), pytest.approx(0.0))


@pytest.mark.parametrize(("make", "name"), [
    (lambda: warmup_inverse_sqrt(embed_dim=0), "embed_dim"),
    (lambda: warmup_inverse_sqrt(embed_dim=2, warmup=0), "warmup"),
    (lambda: warmup_inverse_sqrt(embed_dim=2, factor=-1.0), "factor"),
    (lambda: warmup_cosine(peak=0.0, warmup=1, steps=3), "peak"),
    (lambda: warmup_cosine(peak=1.0, warmup=3, steps=3), "warmup"),
    (lambda: warmup_cosine(peak=1.0, warmup=-1, steps=3), "warmup"),
    (lambda: warmup_cosine(peak=1.0, warmup=1, steps=3, floor=1.1), "floor"),
])  # fmt: skip
def test_schedules_refuse_bad_arguments(make, name):
    refused(f"^{name}: expected", make)
