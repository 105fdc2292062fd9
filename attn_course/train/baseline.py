"""A baseline for the score-function estimator: what the reward has been of late."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class RunningBaseline(nn.Module):
    r"""Moving average of past rewards.

    .. math:: m_k = \beta\, m_{k-1} + (1 - \beta)\, \bar r_k, \qquad
       b_k = \frac{m_k}{1 - \beta^k}

    Xu and others 2015, section 4.1, with :math:`\beta = 0.9` and their reward
    :math:`\log p(y \mid s, a)`. Differs from the paper: the division, as in Adam, so that the first
    averages are not drawn towards 0.

    Read ``value`` *before* ``update`` with the rewards of the same batch: a baseline must not
    depend on the sample that it is subtracted for. A module, so that checkpoints keep it.

    Args:
        decay: :math:`\beta`, from 0 (the last reward) to below 1.

    Raises:
        ValueError: If the decay lies outside [0, 1).

    Example:
        >>> baseline = RunningBaseline(decay=0.9)
        >>> baseline.update(torch.tensor([2.0, 4.0]))
        >>> round(baseline.value, 4)
        3.0
    """

    mean: Tensor
    weight: Tensor

    def __init__(self, *, decay: float = 0.9) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"decay: expected a number in [0, 1), got {decay}")
        self.decay = decay
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("weight", torch.zeros((), dtype=torch.float64))

    @property
    def value(self) -> float:
        """The baseline now; 0 before the first update."""
        return float(self.mean / self.weight) if float(self.weight) > 0 else 0.0

    @torch.no_grad()
    def update(self, reward: Float[Tensor, "..."]) -> None:
        """Take in the rewards of a batch.

        Args:
            reward: Any number of them; their mean counts.

        Raises:
            ValueError: If there is none, or one is not finite.
        """
        if reward.numel() == 0 or not bool(reward.isfinite().all()):
            raise ValueError(
                f"reward: expected at least one number, all finite, got shape {tuple(reward.shape)}"
            )
        self.mean.mul_(self.decay).add_((1 - self.decay) * reward.double().mean())
        self.weight.mul_(self.decay).add_(1 - self.decay)
