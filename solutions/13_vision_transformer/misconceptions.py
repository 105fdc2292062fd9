"""Wrong answers on the way to a Vision Transformer: name, message, the tests they fail."""

import torch
from torch.nn import functional as F

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- patchify ----------------------------------------------------------------------------------


def six_axes(images, p):
    b, c, h, w = images.shape
    return images.reshape(b, c, h // p, p, w // p, p)


def cut(
    images, patch_size, *, given=lambda x: x, grid=six_axes,
    order=lambda grid: grid.permute(0, 2, 4, 1, 3, 5),
):  # fmt: skip
    images, p = given(images), patch_size
    b, c, h, w = images.shape
    return order(grid(images, p)).reshape(b, (h // p) * (w // p), c * p * p)


patches = WrongAnswers("patchify", tests=("by_hand", "channels", "gradient"), right=cut)


@witnesses(of="patchify")
def patch_calls(draw):
    for b, c, h, w, p in ((1, 1, 4, 4, 2), (2, 3, 4, 6, 2), (2, 2, 6, 3, 3), (3, 2, 2, 2, 1)):
        images = draw.normal(b, c, h, w)
        yield call(images, p)
        yield call(images, p, via=student.grad(0))


patches.fault(
    "reshaped only",
    """You only reshape the image, so each patch is a stripe of it. Permute the axes before you
    merge them.""",
    order=lambda grid: grid,
)
patches.fault(
    "column by column",
    "You list the patches column by column. Reading order is row by row.",
    order=lambda grid: grid.permute(0, 4, 2, 1, 3, 5),
)
patches.fault(
    "channels last",
    "Inside a patch, you list the channels of each pixel together. List one channel after another.",
    fails=("channels", "gradient"),
    order=lambda grid: grid.permute(0, 2, 4, 3, 5, 1),
)
patches.fault(
    "channel by channel",
    "You list all patches of the first channel first. Each patch contains all channels.",
    fails=("channels", "gradient"),
    order=lambda grid: grid.permute(0, 1, 2, 4, 3, 5),
)
patches.fault(
    "pixels before the patches",
    """You put the axes inside a patch before the axes of the patches. The order is patch, channel,
    pixel.""",
    order=lambda grid: grid.permute(0, 3, 5, 1, 2, 4),
)
patches.fault(
    "every patch transposed",
    "You exchange rows and columns inside a patch. Check the order of the last two axes.",
    order=lambda grid: grid.permute(0, 2, 4, 1, 5, 3),
)
patches.fault(
    "every second pixel",
    """You split each side in the wrong order, so the pixels of a patch are not adjacent. The first
    of the two axes counts the patches.""",
    grid=lambda x, p: x.reshape(*x.shape[:2], p, x.shape[2] // p, p, x.shape[3] // p).permute(
        0, 1, 3, 2, 5, 4
    ),
)
patches.fault(
    "images and channels exchanged",
    "You treat the first axis as channels and the second as images. Images come first.",
    fails=("channels", "gradient"),
    given=lambda x: x.transpose(0, 1).reshape(x.shape),
)
patches.detached(fails=("channels", "gradient"))
patches.in_place(fails=("by_hand", "channels"))


@patches("overlapping patches")
def patches_overlap(images, patch_size):
    """Your patches overlap: each begins one pixel after the previous one. Step by a whole patch."""
    return F.unfold(images, patch_size).transpose(1, 2)


# --- vit_forward -------------------------------------------------------------------------------


def in_front(x, token):
    return torch.cat([token.expand(len(x), 1, -1), x], dim=1)


def vit(
    patches, projection, class_token, positions, encoder, head, *, start=in_front,
    place=lambda x, positions: x + positions, encode=lambda x, encoder: encoder(x),
    take=lambda x: x[:, 0],
):  # fmt: skip
    x = place(start(patches @ projection.T, class_token), positions)
    return take(encode(x, encoder)) @ head.T


vits = WrongAnswers("vit_forward", tests=("by_hand", "values"), right=vit)


@witnesses(of="vit_forward")
def vit_calls(draw):
    def encoder(x):
        return x + 0.5 * x.flip(1) + x.square().mean(1, keepdim=True)

    for b, n, p, d, k in ((1, 1, 1, 1, 1), (2, 3, 5, 4, 2), (3, 4, 2, 3, 3)):
        parts = draw.normal(b, n, p), draw.normal(d, p), draw.normal(d), draw.normal(n + 1, d)
        yield call(*parts, encoder, draw.normal(k, d))
        for wrt in (1, 2, 3, 5):
            yield call(*parts, encoder, draw.normal(k, d), via=student.grad(wrt))


for what, taken in (
    ("the last vector", lambda x: x[:, -1]),
    ("the vector of the first patch", lambda x: x[:, 1]),
    ("the mean of all vectors", lambda x: x.mean(1)),
    ("the mean of the patches", lambda x: x[:, 1:].mean(1)),
    ("the sum of all vectors", lambda x: x.sum(1)),
    ("the maximum over all vectors", lambda x: x.amax(1)),
):
    vits.fault(
        f"{what} is read",
        f"The head reads {what}. It should read the vector at the position of the class token.",
        take=taken,
    )
vits.fault(
    "the class token comes last",
    "You put the class token after the patches. It comes first.",
    start=lambda x, token: torch.cat([x, token.expand(len(x), 1, -1)], dim=1),
)
vits.fault(
    "the class token comes last and is read there",
    """You put the class token last and read the last vector. It comes first, so that row 0 of the
    positions belongs to it.""",
    start=lambda x, token: torch.cat([x, token.expand(len(x), 1, -1)], dim=1),
    take=lambda x: x[:, -1],
)
vits.fault(
    "the class token is added to the patches",
    "You also add the class token to the patches. It is only a separate vector before them.",
    start=lambda x, token: in_front(x + token, token),
)
vits.fault(
    "the mean of the patches instead of the class token",
    "You use the mean of the patches as the first vector. Use `class_token`.",
    start=lambda x, token: torch.cat([x.mean(1, keepdim=True), x], dim=1),
)
vits.fault(
    "the encoder runs twice",
    "You call the encoder twice. Call it once.",
    encode=lambda x, encoder: encoder(encoder(x)),
)
vits.fault(
    "a residual around the encoder",
    "You add the encoder's input to its output. Return the output alone.",
    encode=lambda x, encoder: x + encoder(x),
)
vits.fault(
    "the encoder is left out",
    "You never call the encoder, so the class token does not depend on the image.",
    encode=lambda x, encoder: x,
)


@vits("positions after the encoder")
def vit_late(patches, projection, class_token, positions, encoder, head):
    """You add the positions after the encoder. Add them before."""
    return (encoder(in_front(patches @ projection.T, class_token)) + positions)[:, 0] @ head.T


@vits("positions before the class token")
def vit_early(patches, projection, class_token, positions, encoder, head):
    """You add the positions before you prepend the class token, so each patch gets the wrong row
    and the class token none.
    """
    return encoder(in_front(patches @ projection.T + positions[:-1], class_token))[:, 0] @ head.T


vits.fault(
    "no positions",
    "You do not add the positions. Add one row to each vector.",
    place=lambda x, positions: x,
)
vits.fault(
    "positions multiplied",
    "You multiply by the positions. The formula adds them.",
    place=lambda x, positions: x * positions,
)
vits.fault(
    "positions of the patches only",
    "You add positions only to the patches. Row 0 belongs to the class token.",
    place=lambda x, positions: torch.cat([x[:, :1], x[:, 1:] + positions[1:]], dim=1),
)
vits.fault(
    "positions off by one",
    """Your positions are shifted by one row. Row 0 belongs to the class token, row 1 to the first
    patch.""",
    place=lambda x, positions: x + positions.roll(1, 0),
)

# --- shift_weights -----------------------------------------------------------------------------


def stops(place, size):
    return place.clamp(0, size - 1)


def shift(
    height, width, down, right, *, step=lambda i, by: i + by, edge=stops,
    table=lambda target, pixels: torch.eye(pixels)[target], swap=lambda down, right: (down, right),
    number=lambda row, column, height, width: row * width + column,
):  # fmt: skip
    pixel = torch.arange(height * width)
    down, right = swap(down, right)
    row = edge(step(pixel // width, down), height)
    column = edge(step(pixel % width, right), width)
    return table(number(row, column, height, width), height * width)


shifts = WrongAnswers("shift_weights", tests=("by_hand", "two_ways"), right=shift)


@witnesses(of="shift_weights")
def shift_calls(draw):
    for height, width, down, right in (
        *((1, 3, 0, 1), (3, 4, 1, -1), (4, 3, -2, 1), (2, 5, 0, 0), (3, 3, 1, 2), (6, 3, -4, 1)),
        *((5, 2, 3, -1), (3, 5, 5, -7)),
    ):
        yield call(height, width, down, right)


shifts.fault(
    "the opposite direction",
    "Your head shifts in the opposite direction. With `right = 1`, pixel 0 attends to pixel 1.",
    step=lambda i, by: i - by,
)
shifts.fault(
    "rows and columns exchanged",
    "You exchange `down` and `right`. `down` changes the row, `right` the column.",
    swap=lambda down, right: (right, down),
)
shifts.fault(
    "pixels are numbered column by column",
    "You number pixels column by column. The pixel one row below has a number `width` larger.",
    fails=("two_ways",),
    number=lambda row, column, height, width: column * height + row,
)
shifts.fault(
    "the pixel itself counts too",
    "You give half of the weight to the pixel itself. All of it belongs to the shifted pixel.",
    table=lambda target, pixels: (torch.eye(pixels)[target] + torch.eye(pixels)) / 2,
)
shifts.fault(
    "around the edge",
    "Your shift wraps around at the edge. Clamp it at the edge.",
    edge=lambda place, size: place % size,
)
shifts.fault(
    "mirrored at the edge",
    "Your shift is reflected at the edge. Clamp it at the edge.",
    edge=lambda place, size: (
        size - 1 - ((place % max(2 * size - 2, 1)) - (size - 1)).abs() if size > 1 else 0 * place
    ),
)
shifts.axes_swapped(
    "rows and columns of the table exchanged",
    "Your row i lists the pixels that attend to i. It should contain the weights of pixel i.",
)


@shifts("nothing beyond the edge")
def shift_zero(height, width, down, right):
    """Your row is 0 where the shifted pixel is outside the image. It should attend to the nearest
    pixel inside.
    """
    pixel = torch.arange(height * width)
    row, column = pixel // width + down, pixel % width + right
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return shift(height, width, down, right) * inside[:, None]


@shifts("itself beyond the edge", fails=("two_ways",))
def shift_stays(height, width, down, right):
    """Your pixel attends to itself where the shifted pixel is outside. Clamp row and column
    separately.
    """
    moved = shift_zero(height, width, down, right)
    return moved + torch.diag(1 - moved.sum(1))


@shifts("one flat index", fails=("two_ways",))
def shift_flat(height, width, down, right):
    """You add `down * width + right` to the pixel number, which continues into the next row. Clamp
    row and column separately.
    """
    pixel = torch.arange(height * width)
    return torch.eye(height * width)[(pixel + down * width + right).clamp(0, height * width - 1)]


@shifts("row and column by the height")
def shift_by_height(height, width, down, right):
    """You compute row and column with `height`. A row has `width` pixels."""
    pixel = torch.arange(height * width)
    row, column = stops(pixel // height + down, height), stops(pixel % height + right, width)
    return torch.eye(height * width)[row * width + column]


# --- convolution_as_attention ------------------------------------------------------------------


def convolve(
    images, weight, *, where=lambda a, size: a - size // 2, edge=stops,
    kernel=lambda weight: weight, join=lambda heads: sum(heads),
    spread=lambda images: images.flatten(2).transpose(1, 2),
    fold=lambda rows, height, width: rows.transpose(1, 2).unflatten(-1, (height, width)),
):  # fmt: skip
    height, width = images.shape[2:]
    pixels = spread(images)
    weight, size = kernel(weight), weight.shape[-1]
    heads = []
    for a in range(size):
        for b in range(size):
            moved = shift(height, width, where(a, size), where(b, size), edge=edge)
            heads.append(moved.to(images.dtype) @ pixels @ weight[:, :, a, b].T)
    return fold(join(heads), height, width)


convolutions = WrongAnswers(
    "convolution_as_attention", tests=("by_hand", "values", "gradient"), right=convolve
)
CHANNELS = {"fails": ("values", "gradient")}


@witnesses(of="convolution_as_attention")
def convolution_calls(draw):
    for b, c, h, w, f, k in ((1, 1, 1, 3, 1, 3), (2, 2, 4, 5, 3, 3), (1, 2, 3, 3, 2, 5)):
        inputs = draw.normal(b, c, h, w), draw.normal(f, c, k, k)
        yield call(*inputs)
        for wrt in range(2):
            yield call(*inputs, via=student.grad(wrt))


for shifted in (lambda a, size: a, lambda a, size: a - (size + 1) // 2):
    convolutions.fault(
        "the kernel is not centred",
        "Your kernel is not centred at the pixel. The shifts run from -⌊K/2⌋ to ⌊K/2⌋.",
        where=shifted,
    )
convolutions.fault(
    "the kernel is rotated",
    "You rotate the kernel by 180°. Neither the formula nor torch's `Conv2d` does.",
    where=lambda a, size: size // 2 - a,
)
convolutions.fault(
    "rows and columns of the kernel exchanged",
    "You use element (b, a) of the kernel for the shift (a, b). Exchange the two.",
    kernel=lambda weight: weight.transpose(2, 3),
)
convolutions.fault(
    "the mean of the heads",
    "You average over the heads. The formula adds them up.",
    join=lambda heads: sum(heads) / len(heads),
)
convolutions.fault(
    "only the first channel",
    "You use only the first channel of the image. The product sums over all channels.",
    kernel=lambda weight: weight * (torch.arange(weight.shape[1]) == 0)[:, None, None],
    **CHANNELS,
)
convolutions.fault(
    "the mean of the channels",
    "You average over the channels. Sum over them.",
    kernel=lambda weight: weight / weight.shape[1],
    **CHANNELS,
)
for one_kernel in (lambda w: w.mean(1, keepdim=True), lambda w: w.sum(1, keepdim=True)):
    convolutions.fault(
        "one kernel for all channels",
        "You use one kernel for all channels of the image. Each has its own.",
        kernel=lambda weight, one=one_kernel: one(weight).expand_as(weight),
        **CHANNELS,
    )
convolutions.fault(
    "around the edge",
    "Your shift wraps around at the edge. Use the nearest pixel instead.",
    edge=lambda place, size: place % size,
)
convolutions.fault(
    "reshaped to pixels",
    "You reshape the image to rows of pixels. Move the channel axis to the end instead.",
    spread=lambda x: x.flatten(2).reshape(len(x), x[0, 0].numel(), x.shape[1]),
    **CHANNELS,
)
convolutions.fault(
    "reshaped to an image",
    "You reshape the rows of pixels to an image. Move the channel axis forward first.",
    fold=lambda rows, height, width: rows.reshape(len(rows), -1, height, width),
    **CHANNELS,
)
convolutions.fault(
    "only the middle head",
    "You use only the head of the pixel itself. Add up all heads.",
    join=lambda heads: heads[len(heads) // 2],
)
convolutions.fault(
    "only the last head",
    "Each pass of your loop overwrites the result. Add up the heads.",
    join=lambda heads: heads[-1],
)


@convolutions("zeros beyond the edge")
def convolution_zero(images, weight):
    """You pad the image with zeros. Use the nearest pixel at the edge instead."""
    half, (h, w) = weight.shape[-1] // 2, images.shape[2:]
    padded = convolve(F.pad(images, (half,) * 4), weight)
    return padded[:, :, half : half + h, half : half + w]


convolutions.detached(**CHANNELS)

# --- the repair and the test -------------------------------------------------------------------


def embed(
    images, patch_size, projection, class_token, positions, *,
    order=lambda grid: grid.permute(0, 2, 4, 1, 3, 5),
    start=lambda x, token, positions: in_front(x, token) + positions,
):  # fmt: skip
    return start(cut(images, patch_size, order=order) @ projection.T, class_token, positions)


fixed = WrongAnswers("fixed_embed", tests=("one_channel", "colours"), right=embed)


@witnesses(of="fixed_embed")
def embed_calls(draw):
    for b, c, h, w, d in ((1, 1, 4, 4, 4), (2, 1, 4, 6, 3), (1, 2, 4, 4, 8), (2, 3, 4, 2, 5)):
        parts = draw.normal(b, c, h, w), 2, draw.normal(d, c * 4), draw.normal(d)
        yield call(*parts, draw.normal(h * w // 4 + 1, d))


BROKEN = {
    "order": lambda grid: grid.permute(0, 2, 4, 3, 5, 1),
    "start": lambda x, token, positions: in_front(x, token) + positions.roll(1, 0),
}
fixed.fault(
    "the channels still come last",
    """The positions are now right. Inside a patch you still list the channels of each pixel
    together.""",
    fails=("colours",),
    order=BROKEN["order"],
)
fixed.fault(
    "the rows of the positions are still shifted",
    "The patches are now right. The positions are still shifted by one row.",
    fails=("one_channel",),
    start=BROKEN["start"],
)
fixed.fault(
    "both faults are still there",
    """This is the broken code. Follow one pixel of the second channel, and the last row of the
    positions.""",
    **BROKEN,
)
fixed.fault(
    "positions multiplied",
    "You multiply by the positions. They should be added.",
    start=lambda x, token, positions: in_front(x, token) * positions,
)
fixed.fault(
    "no positions",
    "You removed the positions. Each vector needs its own row of them.",
    fails=("one_channel",),
    start=lambda x, token, positions: in_front(x, token),
)
fixed.fault(
    "the class token has no position",
    "The patches are now right, but the class token has no position. Row 0 belongs to it.",
    fails=("one_channel",),
    start=lambda x, token, positions: in_front(x + positions[1:], token),
)

checks = WrongAnswers("check_patchify", tests=("plain", "mutants"))


@witnesses(of="check_patchify")
def check_calls(draw):
    for candidate in (
        cut,
        lambda images, patch_size: 0 * cut(images, patch_size),
        lambda images, patch_size: cut(images, patch_size, order=BROKEN["order"]),
        lambda images, patch_size: images,
        lambda images, patch_size: 1 + cut(images, patch_size),
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


def agrees(candidate, images):
    try:
        got, right = candidate(images, 2), cut(images, 2)
        return got.shape == right.shape and bool(torch.equal(got, right))
    except Exception:
        return False


@checks("accepts everything")
def check_nothing(candidate):
    """Your test always returns True. Call the candidate, and compare its answer with your own
    numbers.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test rejects a right answer. Check your numbers, their dtype and your return value."""
    return False


@checks("only the shape is compared")
def check_shape(candidate):
    """You compare only the shape. Most wrong answers have the right shape."""
    try:
        return tuple(candidate(torch.ones(2, 3, 4, 6), 2).shape) == (2, 6, 12)
    except Exception:
        return False


@checks("one channel", fails=("mutants",))
def check_grey(candidate):
    """You test one image with one channel. Some faults show only with several channels and images."""
    return agrees(candidate, torch.arange(24.0).reshape(1, 1, 4, 6))


@checks("a constant image")
def check_constant(candidate):
    """All pixels of your image are equal, so their order does not show. Number the pixels."""
    return agrees(candidate, torch.zeros(2, 3, 4, 6))
