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
    """The right answer in three steps; a fault replaces one of them."""
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
    """You reshape the image and leave its axes in their order: each patch is then a stripe of the
    image. Move the axes before you join them.""",
    order=lambda grid: grid,
)
patches.fault(
    "column by column",
    "You go down the first column of patches first. Reading order goes along the rows.",
    order=lambda grid: grid.permute(0, 4, 2, 1, 3, 5),
)
patches.fault(
    "colours last",
    """Inside a patch, you put the channels of one pixel side by side. One whole channel comes
    before the next, as in the kernel of a convolution.""",
    fails=("channels", "gradient"),
    order=lambda grid: grid.permute(0, 2, 4, 3, 5, 1),
)
patches.fault(
    "channel by channel",
    "All patches of the first channel come first. Each patch contains all its channels.",
    fails=("channels", "gradient"),
    order=lambda grid: grid.permute(0, 1, 2, 4, 3, 5),
)
patches.fault(
    "pixels in front of the patches",
    """The axes inside a patch come before those that count the patches. The order is: which patch,
    then the channel, then the pixel.""",
    order=lambda grid: grid.permute(0, 3, 5, 1, 2, 4),
)
patches.fault(
    "every patch turned over",
    "Inside a patch, rows and columns are exchanged. Check the order of the last two axes.",
    order=lambda grid: grid.permute(0, 2, 4, 1, 5, 3),
)
patches.fault(
    "every second pixel",
    """You split each side the wrong way round: a patch takes pixels that are a patch apart. The
    first of the two axes of a side counts the patches.""",
    grid=lambda x, p: x.reshape(*x.shape[:2], p, x.shape[2] // p, p, x.shape[3] // p).permute(
        0, 1, 3, 2, 5, 4
    ),
)
patches.fault(
    "images and channels exchanged",
    "You read the first axis as channels and the second as images. Images come first.",
    fails=("channels", "gradient"),
    given=lambda x: x.transpose(0, 1).reshape(x.shape),
)
patches.detached(fails=("channels", "gradient"))
patches.in_place(fails=("by_hand", "channels"))


@patches("overlapping patches")
def patches_overlap(images, patch_size):
    """Your patches overlap: each begins one pixel after the one before. Move on by a whole patch."""
    return F.unfold(images, patch_size).transpose(1, 2)


# --- vit_forward -------------------------------------------------------------------------------


def in_front(x, token):
    return torch.cat([token.expand(len(x), 1, -1), x], dim=1)


def vit(
    patches, projection, class_token, positions, encoder, head, *, start=in_front,
    place=lambda x, positions: x + positions, encode=lambda x, encoder: encoder(x),
    take=lambda x: x[:, 0],
):  # fmt: skip
    """The right answer in four steps; a fault replaces some of them."""
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
    """You put the class token behind the patches. It comes first, so that row 0 of the positions
    and the first vector after the encoder belong to it.""",
    start=lambda x, token: torch.cat([x, token.expand(len(x), 1, -1)], dim=1),
)
vits.fault(
    "the class token comes last and is read there",
    """You put the class token behind the patches and read the last vector. It comes first: each
    position of your sequence now gets the row of another one.""",
    start=lambda x, token: torch.cat([x, token.expand(len(x), 1, -1)], dim=1),
    take=lambda x: x[:, -1],
)
vits.fault(
    "the class token is added to the patches",
    "You also add the class token to the patches. It is a vector of its own in front of them.",
    start=lambda x, token: in_front(x + token, token),
)
vits.fault(
    "the mean of the patches instead of the class token",
    "The first vector is the mean of the patches. The class token is a parameter of the model.",
    start=lambda x, token: torch.cat([x.mean(1, keepdim=True), x], dim=1),
)
vits.fault(
    "the encoder runs twice",
    "You send the vectors through the encoder twice. It contains all its layers: call it once.",
    encode=lambda x, encoder: encoder(encoder(x)),
)
vits.fault(
    "a residual around the encoder",
    "You add the encoder's input to its output. The encoder has its own residual connections.",
    encode=lambda x, encoder: x + encoder(x),
)
vits.fault(
    "the encoder is left out",
    "You read the class token before the encoder runs. It knows nothing of the image there.",
    encode=lambda x, encoder: x,
)


@vits("positions after the encoder")
def vit_late(patches, projection, class_token, positions, encoder, head):
    """You add the positions after the encoder. It needs them to know where each patch was: add them
    before.
    """
    return (encoder(in_front(patches @ projection.T, class_token)) + positions)[:, 0] @ head.T


@vits("positions before the class token is there")
def vit_early(patches, projection, class_token, positions, encoder, head):
    """You add the positions before the class token is in front: each patch gets the row of the
    patch before it, and the class token gets none.
    """
    return encoder(in_front(patches @ projection.T + positions[:-1], class_token))[:, 0] @ head.T


vits.fault(
    "no positions",
    "You never add the positions. Without them, shuffled patches give the same result.",
    place=lambda x, positions: x,
)
vits.fault(
    "positions multiplied",
    "You multiply by the positions. The formula adds them.",
    place=lambda x, positions: x * positions,
)
vits.fault(
    "positions of the patches only",
    "The patches get their positions, and the class token gets none. Row 0 belongs to it.",
    place=lambda x, positions: torch.cat([x[:, :1], x[:, 1:] + positions[1:]], dim=1),
)
vits.fault(
    "positions off by one",
    "Each vector gets its neighbour's row. Row 0 is the class token's, row 1 the first patch's.",
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
    "the other way",
    "Your head moves up and to the left. With `right = 1`, pixel 0 attends to pixel 1.",
    step=lambda i, by: i - by,
)
shifts.fault(
    "rows and columns exchanged",
    "You move `down` along the row and `right` along the column. Try two different numbers.",
    swap=lambda down, right: (right, down),
)
shifts.fault(
    "pixels are numbered column by column",
    "You number the target down the columns. The pixel one row below is `width` further.",
    fails=("two_ways",),
    number=lambda row, column, height, width: column * height + row,
)
shifts.fault(
    "the pixel itself counts too",
    "Half of the weight stays at the pixel itself. All of it belongs to the shifted pixel.",
    table=lambda target, pixels: (torch.eye(pixels)[target] + torch.eye(pixels)) / 2,
)
shifts.fault(
    "around the edge",
    "A shift out of the image comes in on the other side. It should stop at the edge.",
    edge=lambda place, size: place % size,
)
shifts.fault(
    "mirrored at the edge",
    "A shift out of the image is reflected back into it. It should stop at the edge.",
    edge=lambda place, size: (
        size - 1 - ((place % max(2 * size - 2, 1)) - (size - 1)).abs() if size > 1 else 0 * place
    ),
)
shifts.axes_swapped(
    "rows and columns of the table exchanged",
    "Your row i says which pixels attend to i. It should hold the weights of pixel i.",
)


@shifts("nothing beyond the edge")
def shift_zero(height, width, down, right):
    """Where the shifted pixel is outside, your row is 0. Weights sum to one: the row attends to the
    nearest pixel of the image.
    """
    pixel = torch.arange(height * width)
    row, column = pixel // width + down, pixel % width + right
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return shift(height, width, down, right) * inside[:, None]


@shifts("itself beyond the edge", fails=("two_ways",))
def shift_stays(height, width, down, right):
    """Where the shifted pixel is outside, your pixel attends to itself. Row and column each stop at
    their own edge.
    """
    moved = shift_zero(height, width, down, right)
    return moved + torch.diag(1 - moved.sum(1))


@shifts("counted in one line", fails=("two_ways",))
def shift_flat(height, width, down, right):
    """You add `down * width + right` to the number of a pixel, which runs on into the next row. Row
    and column each stop at their own edge.
    """
    pixel = torch.arange(height * width)
    return torch.eye(height * width)[(pixel + down * width + right).clamp(0, height * width - 1)]


@shifts("row and column by the height")
def shift_by_height(height, width, down, right):
    """You divide by the height to find row and column. A row has `width` pixels."""
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
        "The middle of your kernel is not at the pixel. Half of the shifts are negative.",
        where=shifted,
    )
convolutions.fault(
    "the kernel is turned round",
    "You turn the kernel by half a turn. Neither the formula nor torch's `Conv2d` does.",
    where=lambda a, size: size // 2 - a,
)
convolutions.fault(
    "rows and columns of the kernel exchanged",
    """You take the element (b, a) of the kernel for the shift (a, b). Try a kernel that is not
    symmetric.""",
    kernel=lambda weight: weight.transpose(2, 3),
)
convolutions.fault(
    "the mean of the heads",
    "You average over the heads. The formula adds them up.",
    join=lambda heads: sum(heads) / len(heads),
)
convolutions.fault(
    "the first channel only",
    "Only the first channel of the image takes part. The product sums over all channels.",
    kernel=lambda weight: weight * (torch.arange(weight.shape[1]) == 0)[:, None, None],
    **CHANNELS,
)
convolutions.fault(
    "the mean of the channels",
    "You average over the channels. The product with the kernel sums over them.",
    kernel=lambda weight: weight / weight.shape[1],
    **CHANNELS,
)
for one_kernel in (lambda w: w.mean(1, keepdim=True), lambda w: w.sum(1, keepdim=True)):
    convolutions.fault(
        "one kernel for all channels",
        "All channels of the image have one kernel. Each has a kernel of its own.",
        kernel=lambda weight, one=one_kernel: one(weight).expand_as(weight),
        **CHANNELS,
    )
convolutions.fault(
    "around the edge",
    "A shift out of the image comes in on the other side. Take the nearest pixel instead.",
    edge=lambda place, size: place % size,
)
convolutions.fault(
    "reshaped to pixels",
    "You reshape the image to rows of pixels. Move the axis of the channels to the end instead.",
    spread=lambda x: x.flatten(2).reshape(len(x), x[0, 0].numel(), x.shape[1]),
    **CHANNELS,
)
convolutions.fault(
    "reshaped to an image",
    "You reshape the rows of pixels to the image. Move the axis of the channels forward first.",
    fold=lambda rows, height, width: rows.reshape(len(rows), -1, height, width),
    **CHANNELS,
)
convolutions.fault(
    "the middle head only",
    "Only the head of the pixel itself takes part. Look at what your loops add up.",
    join=lambda heads: heads[len(heads) // 2],
)
convolutions.fault(
    "the last head only",
    "Each turn of the loop overwrites the result. Add to it.",
    join=lambda heads: heads[-1],
)


@convolutions("zeros beyond the edge")
def convolution_zero(images, weight):
    """You put zeros beyond the edge. Weights sum to one: the head attends to the nearest pixel."""
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
    """The right answer in two steps."""
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
    "the colours still come last",
    """The positions are right now. Inside a patch, the channels of a pixel are still side by side:
    the projection expects one channel after another.""",
    fails=("colours",),
    order=BROKEN["order"],
)
fixed.fault(
    "the rows of the positions are still shifted",
    """The patches are right now. The class token still gets the last row of the positions, and each
    patch the row of its neighbour.""",
    fails=("one_channel",),
    start=BROKEN["start"],
)
fixed.fault(
    "both faults are still there",
    """This is the broken code as it stands. Follow one pixel of the second channel, and the last
    row of the positions, by hand.""",
    **BROKEN,
)
fixed.fault(
    "positions multiplied",
    "You multiply by the positions. They are added.",
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
    "The patches are right now, and the class token has no position. Row 0 belongs to it.",
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
    """Your test returns False even for a right answer. Check your numbers, their dtype, and your
    return.
    """
    return False


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare the shape and no value. Nearly all wrong answers have the right shape."""
    try:
        return tuple(candidate(torch.ones(2, 3, 4, 6), 2).shape) == (2, 6, 12)
    except Exception:
        return False


@checks("one grey image", fails=("mutants",))
def check_grey(candidate):
    """You try one image with one channel. Faults in the order of channels or images need more."""
    return agrees(candidate, torch.arange(24.0).reshape(1, 1, 4, 6))


@checks("a constant image")
def check_constant(candidate):
    """All pixels of your image are equal, so their order does not show. Number the pixels."""
    return agrees(candidate, torch.zeros(2, 3, 4, 6))
