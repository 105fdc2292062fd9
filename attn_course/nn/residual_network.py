"""The baseline of the Vision Transformer: a residual network of convolutions as in BiT."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, relu

from attn_course.functional.vision import _pair_of, _standardize_weight


class StandardizedConv2d(nn.Module):
    r"""A convolution whose kernels have mean 0 and variance 1 before they are used.

    .. math:: y = \hat W * x + b, \qquad \hat W =
       \operatorname{standardize}(W) \text{ for each output channel}

    Qiao et al. (2019); BiT (Kolesnikov et al., 2020) uses it with group norm instead of batch norm.
    Initialisation: normal, variance 2 over the number of inputs (He et al., 2015); bias 0.

    Args:
        in_channels: Of the input.
        out_channels: Of the output.
        kernel_size: One number for both sides, odd.
        stride: Step between outputs.
        dilation: Distance of the kernel's elements.
        bias: Whether there is :math:`b`.

    Example:
        >>> layer = StandardizedConv2d(in_channels=3, out_channels=4, kernel_size=3, stride=2)
        >>> layer(torch.randn(1, 3, 8, 8)).shape
        torch.Size([1, 4, 4, 4])
    """

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        dilation: int = 1,
        bias: bool = False,
    ) -> None:
        super().__init__()
        _pair_of("kernel_size", kernel_size)
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size: expected an odd number, got {kernel_size}")
        self.stride, self.dilation = stride, dilation
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels, kernel_size, kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")

    def forward(self, x: Float[Tensor, "B C height width"]) -> Float[Tensor, "B F rows columns"]:
        """The feature maps, with zeros beyond the edge."""
        return conv2d(
            x,
            _standardize_weight(self.weight),
            self.bias,
            stride=self.stride,
            padding=self.weight.shape[-1] // 2 * self.dilation,
            dilation=self.dilation,
        )


class PreActivationBlock(nn.Module):
    r"""Two convolutions, added to the input or to a projection of it.

    .. math:: y = s(x) + W_2 * \phi(\mathrm{GN}(W_1 * \phi(\mathrm{GN}(x)))), \qquad
       \phi = \mathrm{ReLU}

    He et al. (2016), with group norm and standardised weights as in BiT. The shortcut :math:`s` is
    the input itself; where sizes change, a 1×1 convolution of :math:`\phi(\mathrm{GN}(x))`.

    Differs from BiT: two 3×3 convolutions rather than a bottleneck of three, for small networks.
    Arguments as of :class:`StandardizedConv2d`; ``stride`` is that of the first convolution.

    Example:
        >>> block = PreActivationBlock(in_channels=8, out_channels=16, stride=2)
        >>> block(torch.randn(1, 8, 8, 8)).shape
        torch.Size([1, 16, 4, 4])
    """

    def __init__(
        self,
        *,
        in_channels: int,
        out_channels: int,
        stride: int = 1,
        dilation: int = 1,
        num_groups: int = 8,
    ) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(num_groups, in_channels)
        self.conv1 = StandardizedConv2d(
            in_channels=in_channels,
            out_channels=out_channels,
            kernel_size=3,
            stride=stride,
            dilation=dilation,
        )
        self.norm2 = nn.GroupNorm(num_groups, out_channels)
        self.conv2 = StandardizedConv2d(
            in_channels=out_channels, out_channels=out_channels, kernel_size=3, dilation=dilation
        )
        changes = stride != 1 or in_channels != out_channels
        self.shortcut = (
            StandardizedConv2d(
                in_channels=in_channels, out_channels=out_channels, kernel_size=1, stride=stride
            )
            if changes
            else None
        )

    def forward(self, x: Float[Tensor, "B C height width"]) -> Float[Tensor, "B F rows columns"]:
        """The feature maps after this block."""
        bent = relu(self.norm1(x))
        beside = x if self.shortcut is None else self.shortcut(bent)
        return beside + self.conv2(relu(self.norm2(self.conv1(bent))))


class ResidualNetwork(nn.Module):
    r"""A small ResNet in the style of BiT: stem, blocks, norm, global mean, head.

    Kolesnikov et al. (2020), the baseline of Dosovitskiy et al. (2021). By the global mean
    every part of the image enters the result, whatever the receptive field.

    Args:
        num_channels: Of the image.
        widths: Channels of each stage; from the second on a stage halves the sides, unless it is
            dilated.
        blocks_per_stage: Blocks of a stage.
        dilations: One number per stage: a dilated stage has a larger field and keeps the sides. 1
            everywhere if not given.
        num_classes: Logits.
        num_groups: Of the norms; divides all widths.
        head: From the means of the feature maps to logits; a linear map with weights 0 if not
            given.

    Example:
        >>> model = ResidualNetwork(widths=(8, 16), num_classes=5)
        >>> model(torch.randn(2, 3, 8, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        *,
        num_channels: int = 3,
        widths: Sequence[int] = (32, 64, 128),
        blocks_per_stage: int = 1,
        dilations: Sequence[int] | None = None,
        num_classes: int = 10,
        num_groups: int = 8,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        dilations = [1] * len(widths) if dilations is None else list(dilations)
        if not widths or len(dilations) != len(widths):
            raise ValueError(
                f"dilations: expected one for each of at least one width, got {len(widths)} widths "
                f"and {len(dilations)} dilations"
            )
        self.stem = StandardizedConv2d(
            in_channels=num_channels, out_channels=widths[0], kernel_size=3
        )
        blocks, channels = [], widths[0]
        for stage, (width, dilation) in enumerate(zip(widths, dilations, strict=True)):
            for number in range(blocks_per_stage):
                halves = stage > 0 and number == 0 and dilation == 1
                blocks.append(
                    PreActivationBlock(
                        in_channels=channels,
                        out_channels=width,
                        stride=2 if halves else 1,
                        dilation=dilation,
                        num_groups=num_groups,
                    )
                )
                channels = width
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.GroupNorm(num_groups, channels)
        if head is None:
            head = nn.Linear(channels, num_classes)
            nn.init.zeros_(head.weight)
            nn.init.zeros_(head.bias)
        self.head = head

    def feature_maps(
        self, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B F rows columns"]:
        """The maps before the global mean, such as for Grad-CAM."""
        return relu(self.norm(self.blocks(self.stem(images))))

    def forward(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "B K"]:
        """Logits of each image."""
        return self.head(self.feature_maps(images).mean((2, 3)))
