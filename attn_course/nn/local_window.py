"""Windows for Luong's decoder: weights of a few positions from scores of all."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course._checks import check_at_least, check_positive
from attn_course.functional.local_window import (
    local_m_mask,
    local_p_position,
    local_p_weights,
    local_window_attention,
)
from attn_course.functional.softmax import masked_softmax
from attn_course.nn.attention import AttentionMemory
from attn_course.nn.parameters import uniform_parameter


class LocalM(nn.Module):
    """Monotonic local attention: step ``t`` attends around position ``t``. No parameters.

    See :func:`attn_course.functional.local_m_mask`. A step whose window is beyond the end of the
    source has weights and a context of 0.

    Args:
        half_width: :math:`D`, not negative.

    Example:
        >>> steps, mask = torch.tensor([[0, 3]]), torch.ones(1, 5, dtype=torch.bool)
        >>> LocalM(half_width=0)(torch.zeros(1, 2, 5), torch.zeros(1, 2, 4), steps, mask)
        tensor([[[1., 0., 0., 0., 0.],
                 [0., 0., 0., 1., 0.]]])
    """

    def __init__(self, *, half_width: float) -> None:
        super().__init__()
        check_at_least(0, half_width=half_width)
        self.half_width = half_width

    def attend(
        self,
        score: Callable[[Tensor, Tensor], Tensor],
        hidden: Float[Tensor, "B L H"],
        steps: Int[Tensor, "B L"],
        memory: AttentionMemory,
    ) -> tuple[Float[Tensor, "B L Ev"], Float[Tensor, "B L S"]]:
        """Context and weights, from scores of the window only.

        Args:
            score: Maps queries and prepared keys to scores.
            hidden: States of the decoder, which are the queries.
            steps: Numbers of the target steps, from 0.
            memory: The source; its real positions come first.
        """
        return _attend(score, hidden, steps, self.half_width, memory, gaussian=False)

    def forward(
        self,
        scores: Float[Tensor, "B L S"],
        hidden: Float[Tensor, "B L H"],
        steps: Int[Tensor, "B L"],
        mask: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B L S"]:
        """Weights from scores of all positions; arguments as of :meth:`attend`."""
        window = local_m_mask(steps, mask.sum(-1), self.half_width, mask.shape[-1])
        return masked_softmax(scores, window & mask.unsqueeze(1))


class LocalP(nn.Module):
    """Predictive local attention: the state of the decoder predicts the centre of the window.

    See :func:`attn_course.functional.local_p_position` and
    :func:`attn_course.functional.local_p_weights`.

    Args:
        half_width: :math:`D`, above 0.
        query_size: Size :math:`H` of the decoder's state.
        hidden_size: Size :math:`A` of the predictor's hidden layer; ``query_size``, if ``None``.

    Example:
        >>> window, mask = LocalP(half_width=2.0, query_size=4), torch.ones(1, 9, dtype=torch.bool)
        >>> window(torch.zeros(1, 2, 9), torch.randn(1, 2, 4), torch.zeros(1, 2).long(), mask).shape
        torch.Size([1, 2, 9])
    """

    def __init__(
        self, *, half_width: float, query_size: int, hidden_size: int | None = None
    ) -> None:
        super().__init__()
        check_positive(half_width=half_width)
        hidden_size = query_size if hidden_size is None else hidden_size
        check_at_least(1, query_size=query_size, hidden_size=hidden_size)
        self.half_width = half_width
        self.weight = uniform_parameter(hidden_size, query_size, fan_in=query_size)
        self.v = uniform_parameter(hidden_size, fan_in=hidden_size)

    def position(
        self, hidden: Float[Tensor, "B L H"], mask: Bool[Tensor, "B S"]
    ) -> Float[Tensor, "B L"]:
        """The predicted centres."""
        return local_p_position(hidden, self.weight, self.v, mask.sum(-1))

    def attend(
        self,
        score: Callable[[Tensor, Tensor], Tensor],
        hidden: Float[Tensor, "B L H"],
        steps: Int[Tensor, "B L"],
        memory: AttentionMemory,
    ) -> tuple[Float[Tensor, "B L Ev"], Float[Tensor, "B L S"]]:
        """Context and weights, as :meth:`LocalM.attend`; ``steps`` are not used."""
        centre = self.position(hidden, memory.mask)
        return _attend(score, hidden, centre, self.half_width, memory, gaussian=True)

    def forward(
        self,
        scores: Float[Tensor, "B L S"],
        hidden: Float[Tensor, "B L H"],
        steps: Int[Tensor, "B L"],
        mask: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B L S"]:
        """Weights from scores, as :meth:`LocalM.forward`; ``steps`` are not used."""
        centre = self.position(hidden, mask)
        return local_p_weights(scores, centre, self.half_width, mask.unsqueeze(1))


def _attend(
    score: Callable[[Tensor, Tensor], Tensor],
    query: Float[Tensor, "B L H"],
    centre: Tensor,
    half_width: float,
    memory: AttentionMemory,
    *,
    gaussian: bool,
) -> tuple[Float[Tensor, "B L Ev"], Float[Tensor, "B L S"]]:
    """Attention to the window, and its weights at their positions among all."""
    output, weights, places = local_window_attention(
        query,
        memory.keys,
        memory.values,
        centre,
        half_width,
        memory.mask.sum(-1),
        score=score,
        gaussian=gaussian,
    )
    everywhere = weights.new_zeros(*weights.shape[:2], memory.mask.shape[-1])
    dtype = torch.promote_types(query.dtype, memory.values.dtype)
    return output.to(dtype), everywhere.scatter(-1, places, weights).to(dtype)
