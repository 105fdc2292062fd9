"""The part of a block that acts on each position by itself."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu, silu

from attn_course.nn.parameters import check_input


class FeedForward(nn.Module):
    r"""Two linear maps with a non-linear function between, the same at every position.

    .. math:: \mathrm{FFN}(x) = W_2\, \phi(W_1 x + b_1) + b_2

    Vaswani et al. (2017), equation 2, with :math:`\phi = \mathrm{ReLU}`. Our names:
    ``up_projection`` is :math:`W_1, b_1`, ``down_projection`` is :math:`W_2, b_2`.
    Initialisation: weights Xavier uniform (Glorot and Bengio, 2010), biases 0.

    Args:
        embed_dim: Size of input and output.
        hidden_dim: Size between the two maps; the paper's is four times ``embed_dim``.
        activation: :math:`\phi`, any function of one tensor.
        bias: Whether there are :math:`b_1` and :math:`b_2`.
        dropout: Chance that a hidden unit is dropped, after :math:`\phi`, in training mode.

    Example:
        >>> FeedForward(embed_dim=8, hidden_dim=32)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        hidden_dim: int,
        activation: Callable[[Tensor], Tensor] = relu,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.up_projection = nn.Linear(embed_dim, hidden_dim, bias=bias)
        self.down_projection = nn.Linear(hidden_dim, embed_dim, bias=bias)
        self.dropout = nn.Dropout(dropout)
        xavier_(self)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The output at each position."""
        check_input("x", x, "... D", self.up_projection.in_features, self.up_projection)
        return self.down_projection(self.dropout(self.activation(self.up_projection(x))))


class GatedFeedForward(nn.Module):
    r"""A feed-forward part whose hidden units are gated by a second map of the input.

    .. math:: \mathrm{GLU}(x) = W_2\, (\phi(W_g x) \odot W_1 x)

    Shazeer (2020): with :math:`\phi = \mathrm{SiLU}` this is SwiGLU, with GELU GEGLU. Our names:
    ``gate_projection`` is :math:`W_g` (the paper's :math:`W`), ``up_projection`` is :math:`W_1`
    (its :math:`V`), ``down_projection`` is :math:`W_2`. Three matrices instead of two: take
    ``hidden_dim`` two thirds as large for the same number of parameters. Initialisation: Xavier
    uniform, biases 0.

    Arguments as of :class:`FeedForward`; the paper's maps have no biases.

    Example:
        >>> GatedFeedForward(embed_dim=8, hidden_dim=21)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        *,
        embed_dim: int,
        hidden_dim: int,
        activation: Callable[[Tensor], Tensor] = silu,
        bias: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.gate_projection = nn.Linear(embed_dim, hidden_dim, bias=bias)
        self.up_projection = nn.Linear(embed_dim, hidden_dim, bias=bias)
        self.down_projection = nn.Linear(hidden_dim, embed_dim, bias=bias)
        self.dropout = nn.Dropout(dropout)
        xavier_(self)

    def forward(self, x: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """The output at each position."""
        check_input("x", x, "... D", self.up_projection.in_features, self.up_projection)
        hidden = self.activation(self.gate_projection(x)) * self.up_projection(x)
        return self.down_projection(self.dropout(hidden))


def xavier_(module: nn.Module) -> None:
    """Xavier uniform weights and biases of 0 in every linear map of a module."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.xavier_uniform_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
