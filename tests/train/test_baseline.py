"""The running baseline against a plain recursion and a checkpoint."""

import pytest
import torch
from mutation import rejects_changes
from refusals import refused

from attn_course.train import RunningBaseline


def check_baseline(kind: type[RunningBaseline]) -> None:
    """Against the weighted mean of all batches, newest first: 1, decay, decay squared ..."""
    baseline = kind(decay=0.8)
    assert baseline.value == 0
    means: list[float] = []
    for k in range(6):
        reward = torch.randn(3, 5) + k
        baseline.update(reward)
        means.insert(0, float(reward.double().mean()))
        shares = [0.8**age for age in range(len(means))]
        due = sum(s * m for s, m in zip(shares, means, strict=True)) / sum(shares)
        assert baseline.value == pytest.approx(due, rel=1e-9)


def test_baseline_is_a_fading_mean() -> None:
    check_baseline(RunningBaseline)
    last = RunningBaseline(decay=0.0)
    for reward in (3.0, 5.0):
        last.update(torch.tensor([reward]))
    assert last.value == 5.0


test_baseline_oracle_rejects_a_changed_line = rejects_changes(
    check_baseline, "attn_course.train.baseline.RunningBaseline",
    ("float(self.mean / self.weight)", "float(self.mean)"),
    ("self.mean.mul_(self.decay)", "self.mean.mul_(1)"),
    ("(1 - self.decay) * reward", "self.decay * reward"),
    ("reward.double().mean()", "reward.double().sum()"),
    error=AssertionError,
)  # fmt: skip


def test_baseline_survives_a_checkpoint() -> None:
    first, second = RunningBaseline(), RunningBaseline()
    first.update(torch.tensor([4.0, 2.0]))
    second.load_state_dict(first.state_dict())
    for baseline in (first, second):
        baseline.update(torch.tensor(1.0))
    assert second.value == first.value


def test_rewards_with_a_gradient_are_only_read() -> None:
    baseline = RunningBaseline()
    reward = torch.ones(3, requires_grad=True)
    baseline.update(reward * 2)
    assert not baseline.mean.requires_grad
    assert baseline.value == 2


@pytest.mark.parametrize("decay", [-0.1, 1.0, 2.0])
def test_a_decay_outside_is_refused(decay: float) -> None:
    refused("decay: expected a number in", RunningBaseline, decay=decay)


@pytest.mark.parametrize("reward", [[], [1.0, torch.nan], [torch.inf]])
def test_rewards_that_are_no_numbers_are_refused(reward: list[float]) -> None:
    baseline = RunningBaseline()
    with pytest.raises(ValueError, match="reward: expected at least one number, all finite"):
        baseline.update(torch.tensor(reward))
    assert baseline.value == 0
