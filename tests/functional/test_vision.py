"""Patches, positions and convolutions as attention: by hand, references, gradients, mutants."""

from collections.abc import Callable
from functools import partial

import torch
from mutation import REJECTED, mutant, passes, rejects_changes
from oracles import by_numpy, same_gradients
from refusals import refuses
from tolerances import FLOAT64
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn import functional as F
from torch.testing import assert_close

from attn_course import functional, reference

MODULE = "attn_course.functional.vision"
Function = Callable[..., Tensor]
randn = partial(torch.randn, dtype=torch.float64)


def same_as_reference(ours: Tensor, theirs: object) -> None:
    assert_close(ours, torch.as_tensor(theirs), **FLOAT64)


def check_patchify(function: Function) -> None:
    numbered = torch.arange(16.0).view(1, 1, 4, 4)
    want = [[0, 1, 4, 5], [2, 3, 6, 7], [8, 9, 12, 13], [10, 11, 14, 15]]
    assert function(numbered, 2)[0].tolist() == want
    for size in (2, (3, 5), 1):
        images = randn(2, 3, 6, 10)
        patches = function(images, size)
        sides = (size, size) if isinstance(size, int) else size
        same_as_reference(patches, reference.patchify(images, sides))
        # a convolution with the stride of its kernel is a linear map of the patches
        kernel = randn(7, 3, *sides)
        convolved = F.conv2d(images, kernel, stride=sides)
        assert_close(patches @ kernel.flatten(1).T, convolved.flatten(2).mT, **FLOAT64)
    assert gradcheck(lambda x: function(x, 2), randn(1, 2, 2, 4, requires_grad=True))


def check_unpatchify(function: Function) -> None:
    for size in (2, (3, 5), 1):
        images = randn(2, 3, 6, 10)
        patches = functional.patchify(images, size)
        assert torch.equal(function(patches, (6, 10), size), images)
    patches = randn(2, 6, 30)
    sizes = (6, 10), (2, 5)
    same_as_reference(function(patches, *sizes), reference.unpatchify(patches, *sizes))


def check_positions(function: Function) -> None:
    for height, width, size, base in ((3, 5, 8, 10000.0), (1, 2, 4, 7.0), (4, 1, 12, 100.0)):
        table = function(height, width, size, base=base, dtype=torch.float64)
        want = reference.sinusoidal_positions_2d(height, width, size, base=base)
        same_as_reference(table, want)
    grid = function(3, 5, 8).view(3, 5, 8)
    assert (grid[:, :, :4] == grid[:, :1, :4]).all()  # the first half knows the row only
    assert (grid[:, :, 4:] == grid[:1, :, 4:]).all()


def check_interpolation(function: Function) -> None:
    for old, new, prefix in (((3, 5), (7, 4), 1), ((2, 2), (5, 3), 0), ((4, 3), (2, 3), 2)):
        table = randn(prefix + old[0] * old[1], 7)
        want = reference.interpolate_positions(table, old, new, num_prefix=prefix)
        same_as_reference(function(table, old, new, num_prefix=prefix), want)
    table = randn(13, 2)
    assert function(table, (3, 4), (3, 4), num_prefix=1) is table
    flat = torch.full((12, 2), 3.0)
    assert_close(function(flat, (3, 4), (5, 7)), torch.full((35, 2), 3.0))
    table.requires_grad_()
    assert gradcheck(lambda x: function(x, (3, 4), (2, 5), num_prefix=1), table)


def check_shift_bias(function: Function) -> None:
    shifts = torch.tensor([[0, 0], [1, -2], [-1, 0]])
    for height, width in ((3, 5), (1, 4)):
        bias = function(height, width, shifts, sharpness=1.7, dtype=torch.float64)
        same_as_reference(bias, reference.shift_bias(height, width, shifts, sharpness=1.7))
    assert function(2, 3, shifts).shape == (3, 6, 6)


def check_convolution(function: Function) -> None:
    row, kernel = torch.tensor([[[[1.0, 2.0, 4.0]]]]), torch.zeros(1, 1, 3, 3)
    kernel[0, 0, 1] = torch.tensor([1.0, 0.0, 10.0])
    assert function(row, kernel).flatten().tolist() == [21, 41, 42]
    for sides in ((3, 3), (1, 5), (1, 1)):
        images, weight, bias = randn(2, 3, 5, 7), randn(4, 3, *sides), randn(4)
        # the theorem: the same numbers as a convolution that repeats the edge, and its gradients
        plain = nn.Conv2d(3, 4, sides, padding=(sides[0] // 2, sides[1] // 2),
                          padding_mode="replicate").double()  # fmt: skip
        leaves = [x.requires_grad_() for x in (images, weight, bias)]
        wanted = torch.func.functional_call(plain, {"weight": weight, "bias": bias}, (images,))
        found = function(*leaves)
        assert_close(found, wanted, **FLOAT64)
        same_gradients(found, wanted, leaves, **FLOAT64)
        assert_close(found, by_numpy.convolution_as_attention(*leaves), **FLOAT64)


def check_standardized(function: Function) -> None:
    weight = 3 + 5 * randn(4, 3, 2, 7)
    for eps in (1e-10, 0.5):
        want = reference.vision._standardize_weight(weight, eps=eps)
        same_as_reference(function(weight, eps=eps), want)
    assert gradcheck(function, randn(2, 3, 2, 1, requires_grad=True))


CHECKS = {
    "patchify": check_patchify,
    "unpatchify": check_unpatchify,
    "sinusoidal_positions_2d": check_positions,
    "interpolate_positions": check_interpolation,
    "shift_bias": check_shift_bias,
    "convolution_as_attention": check_convolution,
    "_standardize_weight": check_standardized,
}


test_agrees_with_every_oracle = passes(CHECKS, functional.vision)


test_oracles_reject_a_changed_line = rejects_changes(
    CHECKS,
    MODULE,
    ("patchify", "0, 2, 4, 1, 3, 5", "0, 4, 2, 1, 3, 5"),
    ("patchify", "0, 2, 4, 1, 3, 5", "0, 2, 4, 3, 5, 1"),
    ("patchify", "0, 2, 4, 1, 3, 5", "0, 2, 4, 1, 5, 3"),
    ("patchify", "down, rows, across, columns)", "rows, down, columns, across)"),
    ("unpatchify", "0, 3, 1, 4, 2, 5", "0, 3, 2, 4, 1, 5"),
    ("unpatchify", "0, 3, 1, 4, 2, 5", "0, 3, 1, 5, 2, 4"),
    ("sinusoidal_positions_2d", "rows.repeat_interleave(width, dim=0)", "rows.repeat(width, 1)"),
    ("sinusoidal_positions_2d", "for length in (height, width)", "for length in (width, height)"),
    ("sinusoidal_positions_2d", "embed_dim // 2, base=base", "embed_dim // 2"),
    ("interpolate_positions", "align_corners=False", "align_corners=True"),
    ("interpolate_positions", 'mode="bicubic", align_corners=False', 'mode="nearest"'),
    ("interpolate_positions", "size=new_size", "size=new_size[::-1]"),
    (
        "interpolate_positions",
        "grid = table[num_prefix:]",
        "grid = table[: len(table) - num_prefix]",
    ),
    ("shift_bias", "way - shifts", "way + shifts"),
    ("shift_bias", "place // width, place % width", "place // height, place % height"),
    ("shift_bias", "-sharpness *", "sharpness *"),
    ("shift_bias", ".square().sum(-1)", ".abs().sum(-1)"),
    ("convolution_as_attention", "permute(2, 1, 0)", "flip(2).permute(2, 1, 0)"),
    ("convolution_as_attention", "heads.sum(1) + bias", "heads.sum(1)"),
    ("convolution_as_attention", "heads.sum(1) if", "heads.mean(1) if"),
    ("convolution_as_attention", "sharpness=sharpness, dtype=wide", "sharpness=1.0, dtype=wide"),
    ("convolution_as_attention", "attn_mask=scores", "attn_mask=scores.mT"),
    ("_standardize_weight", "wide - wide.mean(axes, keepdim=True)", "wide"),
    ("_standardize_weight", "(variance + eps)", "variance"),
    ("_standardize_weight", ".square().mean(axes", ".square().sum(axes"),
    error=(*REJECTED, ValueError),
)


def unpatchify(patches: int, features: int, sides: tuple[int, int]) -> Tensor:
    return functional.unpatchify(torch.zeros(2, patches, features), sides, 2)


def test_heads_that_look_at_shifts_are_nearly_one_hot() -> None:
    shifts = functional.kernel_shifts((3, 5))
    assert shifts.tolist() == [[i, j] for i in (-1, 0, 1) for j in (-2, -1, 0, 1, 2)]
    weights = functional.shift_bias(4, 6, shifts, sharpness=100.0, dtype=torch.float64).softmax(-1)
    top, _ = weights.sort(dim=-1, descending=True)
    assert float(1 - top[..., 0].min()) < 1e-40 or bool((top[..., 0] == 1).all())
    assert float(top[..., 1].max()) < 1e-40


CONVOLUTION = mutant(MODULE, "convolution_as_attention", "def ", "def ")  # shapes unchecked
test_bad_sizes_are_refused_by_name = refuses(
    (lambda x: functional.patchify(x, 4), r"images: expected sides that are multiples .*\(4, 4\)"),
    (lambda x: functional.patchify(x, 0), "patch_size: expected one or two whole numbers"),
    (lambda x: unpatchify(15, 12, (6, 9)), "image_size: expected sides that are multiples"),
    (lambda x: unpatchify(14, 12, (6, 10)), "patches: expected size 15 on axis 1"),
    (lambda x: unpatchify(15, 13, (6, 10)), "patches: expected a multiple of 4 features, got 13"),
    (lambda x: functional.sinusoidal_positions_2d(3, 5, 6), "embed_dim: .* multiple of 4, got 6"),
    (lambda x: functional.interpolate_positions(torch.zeros(12, 5), (3, 4), (5, 5), num_prefix=1),
     "table: expected size 13 on axis 0"),
    (lambda x: functional.kernel_shifts((3, 2)), r"kernel_size: expected odd sides, got \(3, 2\)"),
    (lambda x: CONVOLUTION(x, torch.zeros(5, 2, 3, 3)), "weight: expected size 3 on axis 1"),
    given=lambda: [torch.zeros(2, 3, 6, 10)],
)  # fmt: skip
