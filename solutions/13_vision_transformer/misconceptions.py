"""Wrong answers on the way to a Vision Transformer: name, message, the tests they fail."""

import torch
from torch.nn import functional as F

from attn_course.probes import WrongAnswers, call, student, witnesses

# --- patchify ----------------------------------------------------------------------------------


def six_axes(images, p):
    b, c, h, w = images.shape
    return images.reshape(b, c, h // p, p, w // p, p)


def reading_order(grid):
    return grid.permute(0, 2, 4, 1, 3, 5)


def whole(images):
    return images


def cut(images, patch_size, *, given=whole, grid=six_axes, order=reading_order):
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
    """You reshape the image and leave the axes in their order. The numbers then stay in the order of
    the rows, and what should be a patch is a stripe.""",
    order=lambda grid: grid,
)
patches.fault(
    "column by column",
    """You go down the first column of patches before you turn to the second. Reading goes along the
    row. In a square image nobody notices by the shape.""",
    order=lambda grid: grid.permute(0, 4, 2, 1, 3, 5),
)
patches.fault(
    "colours last",
    """Inside a patch you put the channels of one pixel side by side. Here a whole channel comes
    before the next one, as in the kernel of a convolution.""",
    fails=("channels", "gradient"),
    order=lambda grid: grid.permute(0, 2, 4, 3, 5, 1),
)
patches.fault(
    "channel by channel",
    """The patches of the first channel come first, then those of the next one: the channels stand in
    front of the places. A patch holds all its channels.""",
    fails=("channels", "gradient"),
    order=lambda grid: grid.permute(0, 1, 2, 4, 3, 5),
)
patches.fault(
    "pixels in front of the patches",
    """The axes that count inside a patch stand in front of those that count the patches. First comes
    which patch, then the channel, then the place in it.""",
    order=lambda grid: grid.permute(0, 3, 5, 1, 2, 4),
)
patches.fault(
    "every patch turned over",
    """Inside a patch rows and columns are exchanged: you read each patch from top to bottom. Look at
    the last two axes.""",
    order=lambda grid: grid.permute(0, 2, 4, 1, 5, 3),
)
patches.fault(
    "every second pixel",
    """You split the sides the wrong way round: a patch gathers pixels that lie a patch apart. Of the
    two axes that a side is split into, the first one counts the patches.""",
    grid=lambda x, p: x.reshape(*x.shape[:2], p, x.shape[2] // p, p, x.shape[3] // p).permute(
        0, 1, 3, 2, 5, 4
    ),
)
patches.fault(
    "the first channel for all",
    """All channels get the numbers of the first one. Grey images cannot tell; look at where you
    select or expand the channels.""",
    fails=("channels", "gradient"),
    given=lambda x: x[:, :1].expand_as(x),
)
patches.fault(
    "images and channels exchanged",
    """You read the first axis as channels and the second as images. Images come first.""",
    fails=("channels", "gradient"),
    given=lambda x: x.transpose(0, 1).reshape(x.shape),
)
patches.fault(
    "the image turned over",
    """You exchange rows and columns of the image before you cut. Rows are the axis before the last
    one.""",
    given=lambda x: x.transpose(2, 3).reshape(x.shape),
)
patches.detached(fails=("channels", "gradient"))
patches.in_place(fails=("by_hand", "channels"))

# --- vit_forward -------------------------------------------------------------------------------


def in_front(x, token):
    return torch.cat([token.expand(len(x), 1, -1), x], dim=1)


def placed(x, positions):
    return x + positions


def first(x):
    return x[:, 0]


def encoded(x, encoder):
    return encoder(x)


def vit(
    patches, projection, class_token, positions, encoder, head,
    *, start=in_front, place=placed, encode=encoded, take=first,
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


vits.fault(
    "the class token stands at the end",
    """You put the class token behind the patches, and read the first vector: that is a patch. The
    row of positions that is meant for the token goes to a patch, too.""",
    start=lambda x, token: torch.cat([x, token.expand(len(x), 1, -1)], dim=1),
)
vits.fault(
    "the last vector is read",
    """You read the last vector after the encoder. It belongs to the last patch; the class token stands
    in front.""",
    take=lambda x: x[:, -1],
)
vits.fault(
    "the mean is read",
    """You average over all vectors. Some Vision Transformers do; this one reads the vector at the
    place of the class token.""",
    take=lambda x: x.mean(1),
)
vits.fault(
    "the mean of the patches is read",
    """You average over the vectors of the patches. Some Vision Transformers do; this one reads the vector
    at the place of the class token.""",
    take=lambda x: x[:, 1:].mean(1),
)
vits.fault(
    "the sum is read",
    """You add up all vectors after the encoder. The class token has gathered what is needed: read the
    vector at its place.""",
    take=lambda x: x.sum(1),
)
vits.fault(
    "the largest entries are read",
    """You take the largest of each entry over all vectors. Read the vector at the place of the class
    token.""",
    take=lambda x: x.amax(1),
)
vits.fault(
    "the median is read",
    """You take the median of each entry over all vectors. Read the vector at the place of the class
    token.""",
    fails=("values",),
    take=lambda x: x.median(1).values,
)
vits.fault(
    "the patches have the class token added",
    """You add the class token to the patches as well. It is a vector of its own in front of them.""",
    start=lambda x, token: in_front(x + token, token),
)
vits.fault(
    "the mean of the patches in place of the class token",
    """The vector in front is the mean of the patches. The class token is a parameter, the same for all
    images.""",
    start=lambda x, token: torch.cat([x.mean(1, keepdim=True), x], dim=1),
)
vits.fault(
    "the encoder runs twice",
    """You send the vectors through the encoder twice. Its layers are all inside of it: call it once.""",
    encode=lambda x, encoder: encoder(encoder(x)),
)
vits.fault(
    "a residual around the encoder",
    """You add the encoder's input to its output. Its residual connections are inside of it.""",
    encode=lambda x, encoder: x + encoder(x),
)


@vits("positions after the encoder")
def vit_late(patches, projection, class_token, positions, encoder, head):
    """You add the positions when the encoder has run. It mixes the patches without knowing where they
    lie: the positions belong in front of it.
    """
    x = in_front(patches @ projection.T, class_token)
    return (encoder(x) + positions)[:, 0] @ head.T


@vits("positions in front of the class token")
def vit_early(patches, projection, class_token, positions, encoder, head):
    """You add the positions before the class token is there: the patches get the first rows, which are
    those of their neighbours on the left, and the token gets none.
    """
    x = patches @ projection.T + positions[:-1]
    return encoder(in_front(x, class_token))[:, 0] @ head.T


vits.fault(
    "no positions",
    """You never add the positions. Without them the model cannot tell an image from one whose patches
    are shuffled.""",
    place=lambda x, positions: x,
)
vits.fault(
    "positions multiplied",
    """You multiply by the positions. They are added, so that a position of 0 changes nothing.""",
    place=lambda x, positions: x * positions,
)
vits.fault(
    "positions of the patches only",
    """The class token gets no position: you start with the second row of the table at the patches,
    which is right, and leave the token's own row out.""",
    place=lambda x, positions: torch.cat([x[:, :1], x[:, 1:] + positions[1:]], dim=1),
)
vits.fault(
    "positions off by one",
    """You give each token the row of its neighbour: row 0 belongs to the class token and row 1 to the
    first patch.""",
    place=lambda x, positions: x + positions.roll(1, 0),
)
vits.fault(
    "the encoder is left out",
    """You read the class token before the encoder has run. It has seen no patch yet, so that the
    logits are the same for all images.""",
    encode=lambda x, encoder: x,
)
vits.fault(
    "the class token does not take part",
    """You let the encoder see zeros in place of the class token. What it learned never enters.""",
    start=lambda x, token: in_front(x, 0 * token),
)

# --- shift_weights -----------------------------------------------------------------------------


def stepped(i, by):
    return i + by


def stops(place, size):
    return place.clamp(0, size - 1)


def one_hot(target, pixels):
    return torch.eye(pixels)[target]


def ordered(down, right):
    return down, right


def by_reading(row, column, height, width):
    return row * width + column


def shift(
    height, width, down, right, *, step=stepped, edge=stops, table=one_hot, swap=ordered,
    number=by_reading,
):  # fmt: skip
    """The right answer in three steps; a fault replaces one of them."""
    pixel = torch.arange(height * width)
    down, right = swap(down, right)
    row = edge(step(pixel // width, down), height)
    column = edge(step(pixel % width, right), width)
    return table(number(row, column, height, width), height * width)


shifts = WrongAnswers("shift_weights", tests=("by_hand", "two_ways"), right=shift)


@witnesses(of="shift_weights")
def shift_calls(draw):
    for sizes in (
        (1, 3, 0, 1),
        (3, 4, 1, -1),
        (4, 3, -2, 1),
        (2, 5, 0, 0),
        (3, 3, 1, 2),
        (6, 3, -4, 1),
        (5, 2, 3, -1),
    ):
        yield call(*sizes)
    yield call(3, 5, 5, -7)


shifts.fault(
    "the other way",
    """Your head looks up where it should look down, and to the left for the right. Check on one row:
    with `right = 1` pixel 0 looks at pixel 1.""",
    step=lambda i, by: i - by,
)
shifts.fault(
    "rows and columns exchanged",
    """You move along the row by `down` and along the column by `right`. With equal numbers nobody
    notices.""",
    swap=lambda down, right: (right, down),
)
shifts.fault(
    "pixels are numbered column by column",
    """You number the pixel that is looked at down the columns. Pixels are numbered along the rows: a row
    below is a width further.""",
    fails=("two_ways",),
    number=lambda row, column, height, width: column * height + row,
)
shifts.fault(
    "the pixel itself counts too",
    """Half of the weight stays at the pixel itself. All of it belongs to the pixel that is looked at.""",
    table=lambda target, pixels: (one_hot(target, pixels) + torch.eye(pixels)) / 2,
)
shifts.fault(
    "around the edge",
    """What leaves the image comes in again on the other side. Here a look stops at the edge: the
    nearest pixel takes the place.""",
    edge=lambda place, size: place % size,
)
shifts.fault(
    "mirrored at the edge",
    """What leaves the image is reflected back into it. Here a look stops at the edge.""",
    fails=("by_hand", "two_ways"),
    edge=lambda place, size: (
        size - 1 - ((place % max(2 * size - 2, 1)) - (size - 1)).abs() if size > 1 else 0 * place
    ),
)
shifts.axes_swapped(
    "looked at from the other side",
    """Your rows say by whom a pixel is looked at. Row i belongs to the pixel that looks, and sums to
    one.""",
)


@shifts("nothing beyond the edge")
def shift_zero(height, width, down, right):
    """A pixel whose neighbour lies outside looks at nothing: its row is 0. Attention weights sum to
    one, so that each row needs a pixel; here it is the nearest one.
    """
    pixel = torch.arange(height * width)
    row, column = pixel // width + down, pixel % width + right
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return shift(height, width, down, right) * inside[:, None]


@shifts("counted in one line", fails=("two_ways",))
def shift_flat(height, width, down, right):
    """You add `down * width + right` to the number of a pixel. At the end of a row it then goes on
    with the next row. Row and column have to stop at their own edge.
    """
    pixel = torch.arange(height * width)
    target = (pixel + down * width + right).clamp(0, height * width - 1)
    return torch.eye(height * width)[target]


@shifts("row and column by the height", fails=("by_hand", "two_ways"))
def shift_by_height(height, width, down, right):
    """You find row and column by dividing by the height. A row has as many pixels as the image is
    wide.
    """
    pixel = torch.arange(height * width)
    row, column = stops(pixel // height + down, height), stops(pixel % height + right, width)
    return torch.eye(height * width)[row * width + column]


# --- convolution_as_attention ------------------------------------------------------------------


def from_middle(a, size):
    return a - size // 2


def as_given(weight):
    return weight


def added(heads):
    return sum(heads)


def rows_of_pixels(images):
    return images.flatten(2).transpose(1, 2)


def folded(rows, height, width):
    return rows.transpose(1, 2).unflatten(-1, (height, width))


def convolve(
    images, weight, *, where=from_middle, edge=stops, kernel=as_given, join=added,
    spread=rows_of_pixels, fold=folded,
):  # fmt: skip
    """The right answer in steps; a fault replaces one of them."""
    height, width = images.shape[2:]
    pixels = spread(images)
    weight, size = kernel(weight), weight.shape[-1]
    heads = []
    for a in range(size):
        for b in range(size):
            looks = shift(height, width, where(a, size), where(b, size), edge=edge)
            heads.append(looks.to(images.dtype) @ pixels @ weight[:, :, a, b].T)
    return fold(join(heads), height, width)


convolutions = WrongAnswers(
    "convolution_as_attention", tests=("by_hand", "values", "gradient"), right=convolve
)


@witnesses(of="convolution_as_attention")
def convolution_calls(draw):
    for b, c, h, w, f, k in ((1, 1, 1, 3, 1, 3), (2, 2, 4, 5, 3, 3), (1, 2, 3, 3, 2, 5)):
        inputs = draw.normal(b, c, h, w), draw.normal(f, c, k, k)
        yield call(*inputs)
        for wrt in range(2):
            yield call(*inputs, via=student.grad(wrt))


convolutions.fault(
    "the kernel hangs below the pixel",
    """Your kernel starts at the pixel and reaches down and to the right. Its middle should lie on the
    pixel: half of the shifts are negative.""",
    where=lambda a, size: a,
)
convolutions.fault(
    "the kernel is turned round",
    """You turn the kernel by half a turn, as mathematicians do in a convolution. torch's `Conv2d` does
    not, and the formula here does not either.""",
    where=lambda a, size: size // 2 - a,
)
convolutions.fault(
    "rows and columns of the kernel exchanged",
    """You take the entry (b, a) of the kernel for the shift (a, b). For symmetric kernels nobody
    notices.""",
    kernel=lambda weight: weight.transpose(2, 3),
)
convolutions.fault(
    "the mean of the heads",
    """You average over the heads. The formula adds them up, as the output projection of multi-head
    attention does.""",
    join=lambda heads: sum(heads) / len(heads),
)
convolutions.fault(
    "the first channel only",
    """Only the first channel of the image takes part. The product with the kernel sums over all channels.""",
    fails=("values", "gradient"),
    kernel=lambda weight: weight * (torch.arange(weight.shape[1]) == 0)[:, None, None],
)
convolutions.fault(
    "the mean of the channels",
    """You average over the channels. The product with the kernel adds them up.""",
    fails=("values", "gradient"),
    kernel=lambda weight: weight / weight.shape[1],
)
convolutions.fault(
    "one kernel for all channels",
    """You average the kernel over its channels. Each channel of the image has a kernel of its own.""",
    fails=("values", "gradient"),
    kernel=lambda weight: weight.mean(1, keepdim=True).expand_as(weight),
)
convolutions.fault(
    "around the edge",
    """What leaves the image comes in again on the other side. Here the nearest pixel of the image
    stands beyond the edge.""",
    edge=lambda place, size: place % size,
)
convolutions.fault(
    "reshaped to pixels",
    """You reshape the image to rows of pixels, and the numbers stay in their order. The axis of the
    channels has to be moved behind that of the pixels.""",
    fails=("values", "gradient"),
    spread=lambda images: images.flatten(2).reshape(
        len(images), images[0, 0].numel(), images.shape[1]
    ),
)
convolutions.fault(
    "reshaped to an image",
    """You reshape the rows of pixels to the image, and the numbers stay in their order. The axis of the
    channels has to be moved in front of that of the pixels.""",
    fails=("values", "gradient"),
    fold=lambda rows, height, width: rows.reshape(len(rows), -1, height, width),
)
convolutions.fault(
    "the middle head only",
    """Only the head that looks at its own pixel takes part, so that no pixel learns of another one.
    Look at what your loops add up.""",
    join=lambda heads: heads[len(heads) // 2],
)
convolutions.fault(
    "the last head only",
    """You overwrite the result in every turn of the loop, so that only the last head is left. Add
    to it.""",
    join=lambda heads: heads[-1],
)


@convolutions("zeros beyond the edge")
def convolution_zero(images, weight):
    """You put zeros beyond the edge. A head whose look leaves the image has to look somewhere: here
    at the nearest pixel.
    """
    half, (h, w) = weight.shape[-1] // 2, images.shape[2:]
    padded = F.pad(images, (half,) * 4)
    inner = convolve(padded, weight)
    return inner[:, :, half : half + h, half : half + w]


convolutions.detached(fails=("values", "gradient"))

# --- the repair and the test -------------------------------------------------------------------


def right_start(x, token, positions):
    return in_front(x, token) + positions


def embed(
    images,
    patch_size,
    projection,
    class_token,
    positions,
    *,
    order=reading_order,
    start=right_start,
):
    """The right answer in two steps."""
    return start(cut(images, patch_size, order=order) @ projection.T, class_token, positions)


fixed = WrongAnswers("fixed_embed", tests=("one_channel", "colours"), right=embed)


@witnesses(of="fixed_embed")
def embed_calls(draw):
    for b, c, h, w, d in ((1, 1, 4, 4, 4), (2, 1, 4, 6, 3), (1, 2, 4, 4, 8), (2, 3, 4, 2, 5)):
        yield call(
            *(draw.normal(b, c, h, w), 2, draw.normal(d, c * 4), draw.normal(d)),
            draw.normal(h * w // 4 + 1, d),
        )


def colours_last(grid):
    return grid.permute(0, 2, 4, 3, 5, 1)


def last_row_first(x, token, positions):
    return in_front(x, token) + positions.roll(1, 0)


fixed.fault(
    "the colours still come last",
    """The positions are right now. Inside a patch you still put the channels of a pixel side by side;
    the projection expects channel by channel.""",
    fails=("colours",),
    order=colours_last,
)
fixed.fault(
    "the rows of the positions are still shifted",
    """The patches are right now. But the class token still gets the last row of the positions, and
    each patch the row of its neighbour.""",
    fails=("one_channel",),
    start=last_row_first,
)


@fixed("both faults are still there")
def embed_broken(images, patch_size, projection, class_token, positions):
    """This is the broken code as it stands. Follow one pixel of the second channel, and the last row
    of the positions, by hand.
    """
    x = cut(images, patch_size, order=colours_last) @ projection.T
    return last_row_first(x, class_token, positions)


fixed.fault(
    "positions multiplied",
    """You multiply by the positions. They are added, so that a position of 0 changes nothing.""",
    start=lambda x, token, positions: in_front(x, token) * positions,
)


@fixed("no positions", fails=("one_channel",))
def embed_without(images, patch_size, projection, class_token, positions):
    """You took the positions out in place of mending them. Every token needs its own row."""
    return in_front(cut(images, patch_size) @ projection.T, class_token)


@fixed("the class token has no position", fails=("one_channel",))
def embed_token(images, patch_size, projection, class_token, positions):
    """The patches are right now, and the class token has no position. Row 0 belongs to it."""
    x = cut(images, patch_size) @ projection.T + positions[1:]
    return in_front(x, class_token)


checks = WrongAnswers("check_patchify", tests=("plain", "mutants"))


@witnesses(of="check_patchify")
def check_calls(draw):
    for candidate in (
        cut,
        lambda images, patch_size: 0 * cut(images, patch_size),
        lambda images, patch_size: cut(images, patch_size, order=colours_last),
        lambda images, patch_size: images,
        lambda images, patch_size: 1 + cut(images, patch_size),
        lambda *inputs: 1 / 0,
    ):
        yield call(candidate)


@checks("accepts everything")
def check_nothing(candidate):
    """Your test says True whatever it is given, so that no wrong answer is caught. Call the candidate
    and compare what comes back with numbers of your own.
    """
    return True


@checks("rejects everything")
def check_refuse(candidate):
    """Your test says False even for a right answer. Look at the numbers you compare with, at their
    dtype, and at what you return in the end.
    """
    return False


@checks("only the shape is looked at")
def check_shape(candidate):
    """You compare the shape of the answer and no value in it. Nearly all wrong cuts have the right
    shape.
    """
    try:
        return tuple(candidate(torch.ones(2, 3, 4, 6), 2).shape) == (2, 6, 12)
    except Exception:
        return False


@checks("one grey image", fails=("mutants",))
def check_grey(candidate):
    """Your image has one channel. Wrong orders of the channels, and of images, need more of both to
    show.
    """
    images = torch.arange(24.0).reshape(1, 1, 4, 6)
    try:
        got = candidate(images, 2)
    except Exception:
        return False
    return tuple(got.shape) == (1, 6, 4) and bool(torch.equal(got, cut(images, 2)))


@checks("a constant image", fails=("plain", "mutants"))
def check_constant(candidate):
    """All pixels of your image are the same, so that no order of them can be wrong. Number the
    pixels.
    """
    images = torch.zeros(2, 3, 4, 6)
    try:
        got = candidate(images, 2)
    except Exception:
        return False
    return tuple(got.shape) == (2, 6, 12) and bool(torch.equal(got, cut(images, 2)))
