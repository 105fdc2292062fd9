"""Hard attention: one place is drawn, and its gradient has to be estimated."""

import torch
from jaxtyping import Float, Shaped
from torch import Generator, Tensor

from attn_course._checks import (
    check_axes,
    check_broadcast,
    check_device,
    check_dim,
    check_expands,
    check_floating,
    check_size,
    compiling,
    widest,
)


def _pair(
    name: str, value: Shaped[Tensor, "..."], weights: Shaped[Tensor, "..."], axis: int
) -> tuple[Tensor, Tensor]:
    """Both arguments, checked against each other, in float32 at least."""
    check_floating("weights", weights)
    check_floating(name, value)
    check_dim(weights, -1)
    check_size(name, value, axis, weights.shape[-1])
    lead = value.shape[:-1] if axis == -1 else value.shape[:-2]
    check_broadcast(name, lead, weights.shape[:-1])
    check_device(name, value, weights)
    wide = widest(weights, value)
    return weights.to(wide), value.to(wide)


def _distribution(
    weights: Shaped[Tensor, "..."], rewards: Shaped[Tensor, "..."]
) -> tuple[Tensor, Tensor]:
    """One distribution over places, and the reward of each."""
    check_axes("weights", weights, "S")
    check_axes("rewards", rewards, "S")
    return _pair("rewards", rewards, weights, -1)


def expected_attention(
    weights: Float[Tensor, "*#B S"], value: Float[Tensor, "*#B S E"]
) -> Float[Tensor, "*#B E"]:
    r"""The mean of what a random lookup returns: soft attention.

    .. math:: \mathbb{E}_{s \sim \alpha}[v_s] = \sum_s \alpha_s v_s

    With a one-hot row from :func:`sample_attention` it is the lookup itself (Xu and others 2015,
    section 4.1); with the weights it is soft attention (section 4.2). Their :math:`a_i` are our
    ``value``.

    Args:
        weights: Probabilities, or a one-hot row.
        value: The values, one per position. NaN and infinity count even at weight 0.

    Returns:
        One vector per row; 0 where all weights are 0.

    Example:
        >>> expected_attention(torch.tensor([0.5, 0.3, 0.2]), torch.tensor([[2.0], [10.0], [0.0]]))
        tensor([4.])
    """
    w, v = _pair("value", value, weights, -2)
    dtype = torch.promote_types(weights.dtype, value.dtype)
    return (w.unsqueeze(-2) @ v).squeeze(-2).to(dtype)


def sample_attention(
    weights: Float[Tensor, "*B S"],
    generator: Generator | None = None,
    *,
    uniform: Float[Tensor, "*B"] | None = None,
) -> Float[Tensor, "*B S"]:
    r"""Draw one place per row with its weight as probability, as a one-hot vector.

    .. math:: s = \min \Big\{ k : \textstyle\sum_{j \le k} \alpha_j > u \sum_j \alpha_j \Big\},
       \qquad u \sim \mathcal U[0, 1)

    Xu and others 2015, section 4.1. A place of weight 0 is never drawn.

    Args:
        weights: Finite and not negative; rows need not sum to one.
        generator: Source of the randomness; torch's own when None.
        uniform: The numbers :math:`u` themselves, one per row, in place of a generator.

    Returns:
        A single 1 in every row, in the dtype of ``weights``, without gradient; zeros where all
        weights are 0, as for a fully masked row of soft attention.

    Example:
        >>> sample_attention(torch.tensor([0.5, 0.25, 0.25]), uniform=torch.tensor(0.6))
        tensor([0., 1., 0.])
    """
    w, u = _drawing(weights, uniform, generator)
    if w.shape[-1] == 0:
        return torch.zeros_like(weights)
    reached = w.cumsum(-1)  # (*B, S)
    target = u.unsqueeze(-1) * reached[..., -1:]
    # the number of places passed by: one of weight 0 is passed together with the one before it
    place = (reached <= target).sum(-1, keepdim=True)
    sample = torch.zeros_like(weights).scatter(-1, place.clamp(max=w.shape[-1] - 1), 1.0)
    return sample.masked_fill(reached[..., -1:] == 0, 0.0)


def _drawing(
    weights: Tensor, uniform: Tensor | None, generator: Generator | None
) -> tuple[Tensor, Tensor]:
    """Weights and random numbers in float64, checked."""
    check_floating("weights", weights)
    check_dim(weights, -1)
    w = weights.detach().double()
    if not compiling() and not bool((w.isfinite() & (w >= 0)).all()):
        raise ValueError("weights: expected finite numbers of at least 0")
    if uniform is None:
        return w, torch.rand(
            w.shape[:-1], generator=generator, dtype=torch.float64, device=w.device
        )
    if uniform.shape != w.shape[:-1] or not (
        compiling() or bool(((uniform >= 0) & (uniform < 1)).all())
    ):
        raise ValueError(
            f"uniform: expected numbers in [0, 1) of shape {tuple(w.shape[:-1])}, "
            f"got shape {tuple(uniform.shape)}"
        )
    return w, uniform.double()


def attention_log_prob(
    weights: Float[Tensor, "*#B S"], sample: Float[Tensor, "*#B S"]
) -> Float[Tensor, "*#B"]:
    r"""Log-probability of the drawn places, :math:`\log \alpha_s`, with its gradient.

    Args:
        weights: Probabilities.
        sample: One-hot rows, from :func:`sample_attention`.

    Returns:
        One number per row; 0 (gradient 0) for a row that drew nothing.

    Example:
        >>> attention_log_prob(torch.tensor([0.5, 0.25, 0.25]), torch.tensor([0.0, 1.0, 0.0]))
        tensor(-1.3863)
    """
    w, one_hot = _pair("sample", sample.detach(), weights, -1)
    # only the drawn weight enters: log 0 elsewhere would be 0 * -inf = NaN in the backward pass
    drawn = torch.where(one_hot > 0, w, torch.ones_like(w))
    return drawn.log().sum(-1).to(torch.promote_types(weights.dtype, sample.dtype))


def score_function_gradient(
    weights: Float[Tensor, "*#B S"],
    sample: Float[Tensor, "*#B S"],
    reward: Float[Tensor, "*#B"],
    baseline: Float[Tensor, "*#B"] | float = 0.0,
) -> Float[Tensor, "*#B S"]:
    r"""One draw's estimate of the gradient of the expected reward, by the scores.

    .. math:: \hat g = (r - b)\, \nabla_e \log \alpha_s = (r - b)\,(\mathbf 1_s - \alpha),
       \qquad \alpha = \operatorname{softmax}(e), \qquad
       \mathbb{E}[\hat g] = \nabla_e \sum_s \alpha_s r_s

    Williams 1992, theorem 1 (REINFORCE): reward :math:`r`, reinforcement baseline :math:`b`,
    characteristic eligibility :math:`\mathbf 1_s - \alpha`. The second term of equation 11 of Xu
    and others 2015, whose reward is :math:`\log p(y \mid s, a)`.

    Args:
        weights: Probabilities :math:`\alpha`.
        sample: One-hot rows drawn from them.
        reward: One per row.
        baseline: A number, or one per row; it must not depend on the sample.

    Returns:
        One estimate per row, without gradient.

    Example:
        >>> weights, sample = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.0, 1.0, 0.0])
        >>> score_function_gradient(weights, sample, torch.tensor(10.0), baseline=4.0)
        tensor([-3.0000,  4.2000, -1.2000])
    """
    w, one_hot = _pair("sample", sample.detach(), weights.detach(), -1)
    # as_tensor alone would round a plain number to float32
    wide = torch.promote_types(w.dtype, reward.dtype)
    rows = torch.broadcast_shapes(w.shape[:-1], one_hot.shape[:-1])
    check_expands("reward", reward.shape, rows)
    subtracted = torch.as_tensor(baseline, dtype=wide, device=w.device).detach()
    check_expands("baseline", subtracted.shape, rows)
    advantage = reward.detach() - subtracted
    dtype = torch.promote_types(torch.promote_types(weights.dtype, sample.dtype), reward.dtype)
    return (advantage.unsqueeze(-1) * (one_hot - w)).to(dtype)


def score_function_moments(
    weights: Float[Tensor, " S"], rewards: Float[Tensor, " S"], baseline: float = 0.0
) -> tuple[Float[Tensor, " S"], float]:
    r"""Exact mean and total variance of the estimate, by enumeration of the places.

    .. math:: \mathbb{E}[\hat g] = \sum_s \alpha_s \hat g_s, \qquad
       \mathbb{V} = \sum_s \alpha_s \lVert \hat g_s \rVert^2 - \lVert \mathbb{E}[\hat g] \rVert^2

    Args:
        weights: Probabilities.
        rewards: The reward of each place.
        baseline: A constant.

    Returns:
        The mean, and the variances of its entries added up.

    Example:
        >>> score_function_moments(torch.tensor([0.5, 0.5]), torch.tensor([2.0, 4.0]), baseline=3.0)
        (tensor([-0.5000,  0.5000]), 0.0)
    """
    w, r = _distribution(weights, rewards)
    one_hot = torch.eye(len(w), dtype=w.dtype, device=w.device)
    each = score_function_gradient(w.expand_as(one_hot), one_hot, r, baseline)  # (S, S)
    mean = w @ each
    return mean, float(w @ each.square().sum(-1) - mean @ mean)


def best_baseline(weights: Float[Tensor, " S"], rewards: Float[Tensor, " S"]) -> float:
    r"""The constant baseline with the smallest total variance.

    .. math:: b^\star = \frac{\sum_s \alpha_s \lVert \mathbf 1_s - \alpha \rVert^2\, r_s}
       {\sum_s \alpha_s \lVert \mathbf 1_s - \alpha \rVert^2}

    It is not the mean reward :math:`\sum_s \alpha_s r_s`: rare places count for more, because their
    gradient is longer. Arguments and errors as of :func:`score_function_moments`.

    Returns:
        The baseline; the reward of the only place where there is no choice.

    Example:
        >>> best_baseline(torch.tensor([0.5, 0.5]), torch.tensor([2.0, 4.0]))
        3.0
    """
    w, r = _distribution(weights, rewards)
    one_hot = torch.eye(len(w), dtype=w.dtype, device=w.device)
    size = w * (one_hot - w).square().sum(-1)
    return float(size @ r / size.sum()) if bool(size.sum() > 0) else float(w @ r)


def reinforce_loss(
    log_prob: Float[Tensor, "*B"],
    reward: Float[Tensor, "*B"],
    baseline: Float[Tensor, "*#B"] | float = 0.0,
) -> Float[Tensor, ""]:
    r"""A loss whose gradient is minus the score-function estimate, averaged over the rows.

    .. math:: -\frac1B \sum_b (r_b - b_b)\, \log p(s_b)

    Its *value* means nothing: it does not fall as the policy gets better. No gradient goes into
    ``reward`` or ``baseline``; where the reward itself has parameters (Xu and others 2015, first
    term of equation 11), add its own loss.

    Args:
        log_prob: Log-probability of what was drawn; several draws of one example are added up.
        reward: One per row; another shape, which would broadcast, is refused.
        baseline: A number, or one per row; it must not depend on the sample.

    Returns:
        A scalar to call ``backward`` on.

    Example:
        >>> log_prob, reward = torch.tensor([-1.0, -2.0]), torch.tensor([3.0, 1.0])
        >>> reinforce_loss(log_prob, reward, baseline=2.0)
        tensor(-0.5000)
    """
    check_floating("log_prob", log_prob)
    check_floating("reward", reward)
    if reward.numel() == 0:
        raise ValueError(f"reward: expected at least one, got shape {tuple(reward.shape)}")
    if reward.shape != log_prob.shape:
        raise ValueError(
            f"reward: expected shape {tuple(log_prob.shape)}, got {tuple(reward.shape)}"
        )
    baseline = torch.as_tensor(baseline, dtype=reward.dtype, device=reward.device)
    check_expands("baseline", baseline.shape, reward.shape)
    return -((reward - baseline).detach() * log_prob).mean()


def straight_through(
    weights: Float[Tensor, "*B S"],
    generator: Generator | None = None,
    *,
    uniform: Float[Tensor, "*B"] | None = None,
) -> Float[Tensor, "*B S"]:
    r"""Forward a drawn place, backward as if the weights themselves had been passed on.

    .. math:: y = \mathbf 1_s, \qquad \frac{\partial y}{\partial \alpha} := I

    Bengio, Léonard and Courville 2013. Cheap and of low variance, but biased wherever what follows
    is not linear in :math:`y`. Arguments and errors as of :func:`sample_attention`.

    Returns:
        One-hot rows, exactly, with the gradient of the weights.

    Example:
        >>> straight_through(torch.tensor([0.5, 0.25, 0.25]), uniform=torch.tensor(0.6))
        tensor([0., 1., 0.])
    """
    sample = sample_attention(weights, generator, uniform=uniform)
    # the bracket is exactly 0, so the forward value is exactly 0 or 1
    return sample + (weights - weights.detach())
