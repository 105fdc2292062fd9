"""What a training run leaves behind."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(kw_only=True, repr=False)
class History:
    """One entry per step, in order.

    Attributes:
        loss: Training loss of the step's batch, before the update.
        grad_norm: Norm of the whole gradient, before clipping.
        lr: Learning rate of the update.
        seconds: Wall-clock time of the step.
        evaluations: What ``evaluate`` returned, each with the ``step`` it was called after.
    """

    loss: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    evaluations: list[dict[str, float | int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.loss)

    def __repr__(self) -> str:
        last = f", loss {self.loss[0]:.4g} to {self.loss[-1]:.4g}" if self.loss else ""
        return f"History({len(self)} steps{last}, {len(self.evaluations)} evaluations)"

    def record(self, *, loss: float, grad_norm: float, lr: float, seconds: float) -> None:
        """Append one step."""
        self.loss.append(loss)
        self.grad_norm.append(grad_norm)
        self.lr.append(lr)
        self.seconds.append(seconds)

    def state_dict(self) -> dict[str, Any]:
        """The five lists by name."""
        return asdict(self)
