"""A window around each query, as a bias of the scores that goes with any positions."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course.nn.positions import Biases, Rotates, check_position


class WindowPositions(nn.Module):
    r"""A query attends to keys at most ``before`` positions earlier and ``after`` positions later.

    .. math:: b_{ij} = \begin{cases} 0 & -\mathrm{after} \le i - j \le \mathrm{before} \\
       -\infty & \text{otherwise} \end{cases}

    Mistral (Jiang et al., 2023): ``before = window_size - 1`` in a causal model. ModernBERT (Warner
    et al., 2024): half a window on either side. It works with and without a cache; all scores are
    computed, so that it saves no time. No parameters of its own.

    Args:
        before: Earlier keys.
        after: Later keys.
        position: What else the positions do, such as :class:`~attn_course.nn.RotaryPositions`.

    Example:
        >>> window = WindowPositions(before=1)
        >>> window.bias(torch.arange(3), torch.arange(3))
        tensor([[[0., -inf, -inf],
                 [0., 0., -inf],
                 [-inf, 0., 0.]]])
    """

    def __init__(
        self, *, before: int, after: int = 0, position: Rotates | Biases | None = None
    ) -> None:
        super().__init__()
        if before < 0 or after < 0:
            raise ValueError(f"before, after: expected at least 0, got {before} and {after}")
        check_position(position)
        self.before, self.after, self.position = before, after, position

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"before={self.before}, after={self.after}"

    def rotate(
        self, x: Float[Tensor, "B H L E"], positions: Int[Tensor, "*B L"]
    ) -> Float[Tensor, "B H L E"]:
        """Queries or keys, as ``position`` rotates them."""
        return self.position.rotate(x, positions) if isinstance(self.position, Rotates) else x

    def bias(
        self, query_positions: Int[Tensor, "*#B L"], key_positions: Int[Tensor, "*#B S"]
    ) -> Float[Tensor, "*C H L S"]:
        """0 in the window and -inf outside, plus the bias of ``position``."""
        ahead = (query_positions.unsqueeze(-1) - key_positions.unsqueeze(-2)).unsqueeze(-3)
        inside = (ahead <= self.before) & (ahead >= -self.after)  # (..., 1, L, S)
        bias = torch.where(inside, 0.0, -torch.inf)
        if isinstance(self.position, Biases):
            bias = bias + self.position.bias(query_positions, key_positions)
        return bias
