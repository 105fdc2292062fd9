"""The Vision Transformer: an encoder whose tokens are the patches of an image."""

from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course._calls import explained
from attn_course._checks import check_axes, check_dtype, check_floating, check_size
from attn_course.functional.feed_forward import gelu
from attn_course.functional.scaled_dot_product import AttentionFn, scaled_dot_product_attention
from attn_course.functional.vision import (
    Size,
    _grid_of,
    _pair_of,
    interpolate_positions,
    kernel_shifts,
    patchify,
    shift_bias,
    sinusoidal_positions_2d,
)
from attn_course.nn.block import EncoderBlock
from attn_course.nn.feed_forward import FeedForward
from attn_course.nn.multihead import MultiHeadAttention
from attn_course.nn.norms import LayerNorm
from attn_course.nn.transformer import TransformerEncoder

# Dosovitskiy et al. (2021), table 1, with the size of the patches that names the model
_SIZES = ("patch_size", "num_layers", "embed_dim", "hidden_dim", "num_heads")
VIT_SIZES: dict[str, dict[str, Any]] = {
    "B/16": dict(zip(_SIZES, (16, 12, 768, 3072, 12), strict=True)),
    "L/16": dict(zip(_SIZES, (16, 24, 1024, 4096, 16), strict=True)),
    "H/14": dict(zip(_SIZES, (14, 32, 1280, 5120, 16), strict=True)),
}


class LearnedGridPositions(nn.Module):
    r"""A learned vector for each cell of a grid, and for each token before them.

    Images with another number of patches get the table interpolated, see
    :func:`attn_course.functional.interpolate_positions`. Initialisation: normal, standard deviation
    0.02.

    Args:
        grid_size: Height and width of the grid, in patches.
        embed_dim: Size of a vector.
        num_prefix: Tokens before the patches, such as the class token.

    Example:
        >>> positions = LearnedGridPositions(grid_size=2, embed_dim=8, num_prefix=1)
        >>> positions(2, 2).shape, positions(3, 3).shape
        (torch.Size([5, 8]), torch.Size([10, 8]))
    """

    def __init__(self, *, grid_size: Size, embed_dim: int, num_prefix: int = 0) -> None:
        super().__init__()
        self.grid_size, self.num_prefix = _pair_of("grid_size", grid_size), num_prefix
        height, width = self.grid_size
        self.weight = nn.Parameter(torch.empty(num_prefix + height * width, embed_dim))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, height: int, width: int) -> Float[Tensor, "N D"]:
        """One vector for each token of an image of ``height`` times ``width`` patches."""
        return interpolate_positions(
            self.weight, self.grid_size, (height, width), num_prefix=self.num_prefix
        )


class SinusoidalGridPositions(nn.Module):
    r"""Fixed sinusoids of row and column: :func:`attn_course.functional.sinusoidal_positions_2d`.

    No parameters, any size. Tokens before the patches get 0. Arguments as of
    :class:`LearnedGridPositions`; ``embed_dim`` is a multiple of 4.

    Example:
        >>> SinusoidalGridPositions(embed_dim=8, num_prefix=1)(2, 3).shape
        torch.Size([7, 8])
    """

    def __init__(self, *, embed_dim: int, num_prefix: int = 0, base: float = 10000.0) -> None:
        super().__init__()
        self.embed_dim, self.num_prefix, self.base = embed_dim, num_prefix, base
        # knows the device and the dtype of the model; part of no state dict
        self.register_buffer("nowhere", torch.zeros(num_prefix, embed_dim), persistent=False)

    def forward(self, height: int, width: int) -> Float[Tensor, "N D"]:
        """One vector for each token of an image of ``height`` times ``width`` patches."""
        nowhere = self.get_buffer("nowhere")
        options: Any = {"base": self.base, "dtype": nowhere.dtype, "device": nowhere.device}
        return torch.cat(
            [nowhere, sinusoidal_positions_2d(height, width, self.embed_dim, **options)]
        )


class PatchEmbedding(nn.Module):
    r"""From an image to the inputs of the first block.

    .. math:: z_0 = [x_{\mathrm{class}};\, x_p^1 E;\, \ldots;\, x_p^N E] + E_{pos}

    Dosovitskiy et al. (2021), equation 1, with a bias in :math:`E` as in their code.
    Initialisation as in their code: projection normal with variance 1 over the number of inputs,
    bias and class token 0.

    Differs from other code: the projection is a linear map of
    :func:`~attn_course.functional.patchify`, not a convolution with stride P; these are the same
    sums.

    Args:
        patch_size: Height and width of a patch.
        num_channels: Of the image.
        embed_dim: Size :math:`D` of a vector.
        class_token: Whether there is a learned vector before the patches.
        position: Maps the number of rows and columns of patches to one vector per token:
            :class:`LearnedGridPositions` or ``SinusoidalGridPositions``.
        dropout: Chance that an element is dropped, in training mode.

    Example:
        >>> embedding = PatchEmbedding(patch_size=4, num_channels=3, embed_dim=8)
        >>> embedding(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        *,
        patch_size: Size,
        num_channels: int,
        embed_dim: int,
        class_token: bool = True,
        position: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.patch_size, self.num_channels = _pair_of("patch_size", patch_size), num_channels
        rows, columns = self.patch_size
        self.projection = nn.Linear(num_channels * rows * columns, embed_dim)
        self.class_token = nn.Parameter(torch.zeros(1, embed_dim)) if class_token else None
        self.position = position
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.projection.weight, std=self.projection.in_features**-0.5)
        nn.init.zeros_(self.projection.bias)

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B L D"]:
        """One vector per token: the class token, if there is one, then the patches."""
        check_axes("images", images, "B C height width")
        check_size("images", images, 1, self.num_channels)
        check_floating("images", images)
        check_dtype("images", images, self.projection.weight)
        x: Tensor = self.projection(patchify(images, self.patch_size))  # (B, N, D)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), 1, -1), x], dim=1)
        if self.position is not None:
            down, across = (s // p for s, p in zip(images.shape[2:], self.patch_size, strict=True))
            x = x + self.position(down, across)
        return self.dropout(x)


class VisionTransformer(nn.Module):
    r"""A Transformer encoder over the patches of an image.

    .. math:: z_n = \mathrm{block}_n(z_{n-1}), \qquad y = \mathrm{LN}(z_N^0) \text{ or }
       \frac1P \sum_{p \ge 1} \mathrm{LN}(z_N)^p

    Dosovitskiy et al. (2021), equations 1 to 4 (class token) and appendix D.3 (mean).
    :func:`vit_like` builds the paper's models.

    Args:
        embedding: From images to vectors.
        encoder: Stack of pre-norm blocks with a last norm.
        head: From the one vector of an image to logits; without one the model returns all vectors.
        pool: ``"class"`` takes the class token's vector, ``"mean"`` the mean of the patches'.
        pooler: From all vectors to one per image, such as :class:`~attn_course.nn.Pooler`; it is
            kept for weights that come with one, and :meth:`forward` does not use it.

    Example:
        >>> sizes = {"embed_dim": 8, "num_heads": 2, "num_layers": 2, "hidden_dim": 16}
        >>> model = vit_like(image_size=8, patch_size=4, num_classes=5, **sizes)
        >>> model(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        *,
        embedding: PatchEmbedding,
        encoder: TransformerEncoder,
        head: nn.Module | None = None,
        pool: Literal["class", "mean"] = "class",
        pooler: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if pool not in ("class", "mean"):
            raise ValueError(f"pool: expected 'class' or 'mean', got {pool!r}")
        if pool == "class" and embedding.class_token is None:
            raise ValueError("pool: expected 'mean' where there is no class token, got 'class'")
        self.embedding, self.encoder = embedding, encoder
        self.head, self.pool, self.pooler = head, pool, pooler

    def hidden(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B L D"]:
        """One vector per token, after the last norm."""
        return self.encoder(self.embedding(images))

    def pooled(self, hidden: Float[Tensor, "B L D"]) -> Float[Tensor, "B D"]:
        """One vector per image, from one vector per token."""
        if self.pool == "class":
            return hidden[:, 0]
        return hidden[:, 0 if self.embedding.class_token is None else 1 :].mean(1)

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B ..."]:
        """Logits of the head; one vector per token if there is none."""
        hidden = self.hidden(images)
        return hidden if self.head is None else self.head(self.pooled(hidden))


@explained
def vit_like(
    *,
    image_size: Size = 224,
    patch_size: Size = 16,
    num_channels: int = 3,
    embed_dim: int = 768,
    num_heads: int = 12,
    num_layers: int = 12,
    hidden_dim: int = 3072,
    num_classes: int | None = 1000,
    pool: Literal["class", "mean"] = "class",
    position: Literal["learned", "sinusoidal"] = "learned",
    attn_fn: AttentionFn = scaled_dot_product_attention,
    dropout: float = 0.0,
    eps: float = 1e-6,
) -> VisionTransformer:
    r"""ViT (Dosovitskiy et al., 2021), by default the base model B/16: 86,567,656 parameters.

    Pre-norm, GELU, biases everywhere; ``vit_like(**VIT_SIZES["L/16"])`` is another of the paper's
    sizes. With ``pool="mean"`` there is no class token. Initialisation as in the paper's code: the
    blocks Xavier uniform, biases 0, the head 0; see :class:`PatchEmbedding` for the rest.

    .. math:: \underbrace{C P P' D + D}_{\text{patches}} + \underbrace{D}_{\text{class}}
       + (N + 1) D + L \left[ 4 (D^2 + D) + (2 D F + F + D) + 4 D \right] + 2 D
       + \underbrace{D K + K}_{\text{head}}

    Args:
        image_size: Height and width of the images for which there are learned positions; others
            get interpolated ones. Multiples of those of a patch.
        patch_size: :math:`P, P'`; ``num_channels`` is :math:`C`, ``embed_dim`` :math:`D`,
            ``num_layers`` :math:`L`, ``hidden_dim`` :math:`F`.
        num_classes: :math:`K`; None leaves the head out.
        pool: What represents the image: the class token or the mean of the patches.
        position: Learned table, or sinusoids in two directions without parameters.
        attn_fn: The attention itself.
        dropout: Of the embedding, the weights and what each sub-layer adds.

    Example:
        >>> sizes = {"embed_dim": 8, "num_heads": 2, "num_layers": 1, "hidden_dim": 16}
        >>> model = vit_like(image_size=8, patch_size=4, num_classes=5, **sizes)
        >>> model(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 5])
    """
    patch_size, image_size = _pair_of("patch_size", patch_size), _pair_of("image_size", image_size)
    grid = _grid_of("image_size", image_size, patch_size)
    prefix = int(pool == "class")
    places: nn.Module
    if position == "learned":
        places = LearnedGridPositions(grid_size=grid, embed_dim=embed_dim, num_prefix=prefix)
    elif position == "sinusoidal":
        places = SinusoidalGridPositions(embed_dim=embed_dim, num_prefix=prefix)
    else:
        raise ValueError(f"position: expected 'learned' or 'sinusoidal', got {position!r}")
    norm = partial(LayerNorm, embed_dim=embed_dim, eps=eps)
    blocks = [
        EncoderBlock(
            attention=MultiHeadAttention(
                embed_dim=embed_dim, num_heads=num_heads, attn_fn=attn_fn, dropout=dropout
            ),
            attention_norm=norm(),
            feed_forward=FeedForward(embed_dim=embed_dim, hidden_dim=hidden_dim, activation=gelu),
            feed_forward_norm=norm(),
            norm_first=True,
            dropout=dropout,
        )
        for _ in range(num_layers)
    ]
    model = VisionTransformer(
        embedding=PatchEmbedding(
            patch_size=patch_size,
            num_channels=num_channels,
            embed_dim=embed_dim,
            class_token=bool(prefix),
            position=places,
            dropout=dropout,
        ),
        encoder=TransformerEncoder(blocks=blocks, norm=norm()),
        head=None if num_classes is None else nn.Linear(embed_dim, num_classes),
        pool=pool,
    )
    if isinstance(model.head, nn.Linear):
        nn.init.zeros_(model.head.weight)
        nn.init.zeros_(model.head.bias)
    return model


class ShiftPositions(nn.Module):
    r"""Scores by which each head attends to the pixel at one shift from the query.

    .. math:: b_{hij} = -\alpha\, \lVert (x_j - x_i) - \Delta_h \rVert^2

    Cordonnier et al. (2020). No parameters; see :func:`attn_course.functional.shift_bias`. For
    self-attention over all pixels of an image of one size.

    Args:
        image_size: Height and width of the image, in pixels.
        kernel_size: The shifts are those of such a kernel, in reading order.
        sharpness: :math:`\alpha`.

    Example:
        >>> positions = ShiftPositions(image_size=4, kernel_size=3)
        >>> positions.bias(torch.arange(16), torch.arange(16)).shape
        torch.Size([9, 16, 16])
    """

    def __init__(self, *, image_size: Size, kernel_size: Size, sharpness: float = 100.0) -> None:
        super().__init__()
        self.image_size = _pair_of("image_size", image_size)
        self.sharpness = sharpness
        self.register_buffer("shifts", kernel_shifts(kernel_size), persistent=False)

    def bias(
        self, query_positions: Int[Tensor, "..."], key_positions: Int[Tensor, "..."]
    ) -> Float[Tensor, "H N N"]:
        """What is added to the score of each pair of pixels."""
        pixels = self.image_size[0] * self.image_size[1]
        check_size("query_positions", query_positions, -1, pixels)
        check_size("key_positions", key_positions, -1, pixels)
        shifts = self.get_buffer("shifts")
        return shift_bias(*self.image_size, shifts, sharpness=self.sharpness)


def attention_from_convolution(
    convolution: nn.Conv2d, *, image_size: Size, sharpness: float = 100.0
) -> MultiHeadAttention:
    r"""Multi-head attention over the pixels that computes what a convolution computes.

    One head for each element of the kernel; queries and keys are 0, the values are the pixels, and
    the output projection is the kernel. Cordonnier et al. (2020), theorem 1.

    Args:
        convolution: With odd sides, stride 1, one group, as many channels out as in, and padding
            that keeps the size and repeats the edge (``padding_mode="replicate"``).
        image_size: Height and width of the images.
        sharpness: How much more the shifted pixel scores than its neighbours.

    Returns:
        An attention that takes the pixels in reading order, ``(B, height * width, C)``.

    Example:
        >>> convolution = nn.Conv2d(4, 4, 3, padding=1, padding_mode="replicate")
        >>> attention_from_convolution(convolution, image_size=6)(torch.randn(1, 36, 4)).shape
        torch.Size([1, 36, 4])
    """
    kernel = _pair_of("kernel_size", (convolution.kernel_size[0], convolution.kernel_size[1]))
    wanted = {
        "out_channels": convolution.in_channels,
        "stride": (1, 1),
        "dilation": (1, 1),
        "groups": 1,
        "padding_mode": "replicate",
        "padding": (kernel[0] // 2, kernel[1] // 2),
    }
    for name, value in wanted.items():
        if getattr(convolution, name) != value:
            raise ValueError(
                f"convolution.{name}: expected {value!r}, got {getattr(convolution, name)!r}"
            )
    channels, heads = convolution.in_channels, kernel[0] * kernel[1]
    made = MultiHeadAttention(
        embed_dim=channels,
        num_heads=heads,
        head_dim=1,
        value_head_dim=channels,
        position=ShiftPositions(image_size=image_size, kernel_size=kernel, sharpness=sharpness),
    ).to(convolution.weight)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        values = made.value_projection
        assert isinstance(values, nn.Linear)
        values.weight.copy_(torch.eye(channels).repeat(heads, 1))
        made.output_projection.weight.copy_(
            convolution.weight.flatten(2).transpose(1, 2).flatten(1)  # (C, heads * C)
        )
        if convolution.bias is not None:
            made.output_projection.bias.copy_(convolution.bias)
    return made.train(convolution.training)
