"""A linear map of low rank."""

from jaxtyping import Float
from torch import Tensor, nn

from attn_course.nn.feed_forward import xavier_
from attn_course.nn.parameters import check_input


class LowRankLinear(nn.Module):
    r"""A linear map of low rank, as a product of two.

    .. math:: y = U D x + b, \qquad D: r \times n, \quad U: m \times r

    :math:`r (n + m)` parameters instead of :math:`n m`: fewer below :math:`r = nm / (n + m)`, half
    of :math:`n` for a square. Initialisation: both factors Xavier uniform, bias 0.

    Args:
        in_features: :math:`n`.
        out_features: :math:`m`.
        rank: :math:`r`.
        bias: Whether there is :math:`b`.

    Example:
        >>> LowRankLinear(in_features=8, out_features=6, rank=2)(torch.randn(5, 8)).shape
        torch.Size([5, 6])
    """

    def __init__(
        self, *, in_features: int, out_features: int, rank: int, bias: bool = True
    ) -> None:
        super().__init__()
        self.down = nn.Linear(in_features, rank, bias=False)
        self.up = nn.Linear(rank, out_features, bias=bias)
        xavier_(self)

    def forward(self, x: Float[Tensor, "*B N"]) -> Float[Tensor, "*B M"]:
        """The image of each vector."""
        check_input("x", x, "... N", self.down.in_features, self.down)
        return self.up(self.down(x))
