"""Hard attention: one place is drawn, and its gradient is an expectation over the places."""

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def _array(name: str, value: ArrayLike, size: int | None = None) -> Float[np.ndarray, "..."]:
    array = np.asarray(value, dtype=np.float64)
    if array.ndim == 0 or (size is not None and array.shape[-1] != size):
        raise ValueError(f"{name}: expected size {size} on axis -1, got shape {array.shape}")
    return array


def expected_attention(weights: ArrayLike, value: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""The mean of what a random lookup returns: soft attention.

    .. math:: \mathbb{E}_{s \sim \alpha}[v_s] = \sum_s \alpha_s v_s

    Args:
        weights: ``(..., S)`` probabilities.
        value: ``(..., S, E)``.

    Returns:
        ``(..., E)``.

    Raises:
        ValueError: If the numbers of weights and of vectors differ.
    """
    w, v = _array("weights", weights), np.asarray(value, dtype=np.float64)
    if v.ndim < 2 or v.shape[-2] != w.shape[-1]:
        raise ValueError(f"value: expected size {w.shape[-1]} on axis -2, got shape {v.shape}")
    total: np.ndarray = np.zeros(1)
    for s in range(w.shape[-1]):
        total = total + w[..., s, None] * v[..., s, :]
    return total


def sample_attention(weights: ArrayLike, uniform: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Draw one place per row, as a one-hot vector, from uniform random numbers.

    .. math:: s = \min \Big\{ k : \textstyle\sum_{j \le k} \alpha_j > u \sum_j \alpha_j \Big\}

    Args:
        weights: ``(..., S)``, not negative.
        uniform: ``(...)`` numbers in :math:`[0, 1)`.

    Returns:
        ``(..., S)`` with a single 1 in every row; zeros where all weights are 0.

    Raises:
        ValueError: If a weight is negative or not finite, or there is not one number per row.
    """
    w, u = _array("weights", weights), np.asarray(uniform, dtype=np.float64)
    if not np.all(np.isfinite(w) & (w >= 0)):
        raise ValueError(f"weights: expected finite numbers of at least 0, got {w}")
    if u.shape != w.shape[:-1]:
        raise ValueError(f"uniform: expected shape {w.shape[:-1]}, got {u.shape}")
    sample = np.zeros_like(w)
    for row in np.ndindex(u.shape):
        target, reached = u[row] * w[row].sum(), 0.0
        for s, share in enumerate(w[row]):
            reached += share
            if reached > target:
                sample[(*row, s)] = 1.0
                break
    return sample


def attention_log_prob(weights: ArrayLike, sample: ArrayLike) -> Float[np.ndarray, "..."]:
    r"""Log-probability of the drawn places, :math:`\log \alpha_s`.

    Args:
        weights: ``(..., S)`` probabilities.
        sample: ``(..., S)``, one-hot rows.

    Returns:
        ``(...)``; 0 for a row that drew nothing.

    Raises:
        ValueError: If the sizes of the rows differ.
    """
    w = _array("weights", weights)
    chosen = _array("sample", sample, w.shape[-1]) * w
    total = chosen.sum(axis=-1)
    drew = np.asarray(sample, dtype=np.float64).sum(axis=-1) > 0
    with np.errstate(divide="ignore"):
        return np.where(drew, np.log(np.where(drew, total, 1.0)), 0.0)


def score_function_gradient(
    weights: ArrayLike, sample: ArrayLike, reward: ArrayLike, baseline: ArrayLike = 0.0
) -> Float[np.ndarray, "..."]:
    r"""One draw's estimate of the gradient of the expected reward, by the scores.

    .. math:: \hat g = (r - b)\, \nabla_e \log \alpha_s = (r - b)\,(\mathbf 1_s - \alpha),
       \qquad \alpha = \operatorname{softmax}(e)

    Args:
        weights: ``(..., S)`` probabilities :math:`\alpha`.
        sample: ``(..., S)``, one-hot rows.
        reward: ``(...)``.
        baseline: ``(...)`` or a number, which must not depend on the sample.

    Returns:
        ``(..., S)``.

    Raises:
        ValueError: If the sizes of the rows differ.
    """
    w = _array("weights", weights)
    advantage = np.asarray(np.asarray(reward, dtype=np.float64) - np.asarray(baseline))
    estimate: np.ndarray = advantage[..., None] * (_array("sample", sample, w.shape[-1]) - w)
    return estimate


def score_function_moments(
    weights: ArrayLike, rewards: ArrayLike, baseline: float | int = 0.0
) -> tuple[Float[np.ndarray, " S"], float]:
    r"""Mean and total variance of the estimate, by enumeration of the places.

    .. math:: \mathbb{E}[\hat g] = \sum_s \alpha_s \hat g_s, \qquad
       \mathbb{V} = \sum_s \alpha_s \lVert \hat g_s \rVert^2 - \lVert \mathbb{E}[\hat g] \rVert^2

    Args:
        weights: ``(S)`` probabilities.
        rewards: ``(S)``, the reward of each place.
        baseline: A constant.

    Returns:
        The mean, and the variances of its entries added up.

    Raises:
        ValueError: If weights and rewards differ in size.
    """
    w = _array("weights", weights)
    r = _array("rewards", rewards, w.shape[-1])
    estimates = [
        score_function_gradient(w, np.eye(len(w))[s], r[s], baseline) for s in range(len(w))
    ]
    mean = sum((w[s] * g for s, g in enumerate(estimates)), np.zeros(len(w)))
    second = sum(w[s] * float(g @ g) for s, g in enumerate(estimates))
    return mean, float(second - mean @ mean)


def best_baseline(weights: ArrayLike, rewards: ArrayLike) -> float:
    r"""The constant baseline with the smallest total variance.

    .. math:: b^\star = \frac{\sum_s \alpha_s \lVert \mathbf 1_s - \alpha \rVert^2\, r_s}
       {\sum_s \alpha_s \lVert \mathbf 1_s - \alpha \rVert^2}

    Args:
        weights: ``(S)`` probabilities.
        rewards: ``(S)``, the reward of each place.

    Returns:
        The baseline; the reward of the only place where there is no choice.

    Raises:
        ValueError: If weights and rewards differ in size.
    """
    w = _array("weights", weights)
    r = _array("rewards", rewards, w.shape[-1])
    size = np.array([w[s] * ((np.eye(len(w))[s] - w) ** 2).sum() for s in range(len(w))])
    return float(size @ r / size.sum()) if size.sum() > 0 else float(w @ r)


def weight_entropy(weights: ArrayLike, dim: int = -1) -> Float[np.ndarray, "..."]:
    r"""How spread out weights are, in nats: 0 for one place, :math:`\ln S` for all alike.

    .. math:: H(\alpha) = -\sum_s \alpha_s \ln \alpha_s, \qquad 0 \ln 0 = 0

    Args:
        weights: Probabilities along ``dim``.
        dim: Axis that sums to one.

    Returns:
        One number per row.

    Raises:
        ValueError: If there is no axis ``dim``.
    """
    w = np.asarray(weights, dtype=np.float64)
    if not -w.ndim <= dim < w.ndim:
        raise ValueError(f"dim: expected an axis of shape {w.shape}, got {dim}")
    positive = w > 0
    terms = np.where(positive, -w * np.log(np.where(positive, w, 1.0)), 0.0)
    return np.asarray(terms.sum(axis=dim))


def straight_through(
    weights: ArrayLike, uniform: ArrayLike, grad_output: ArrayLike
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    r"""Forward a drawn place, backward as if the weights themselves had been passed on.

    Args:
        weights: ``(..., S)`` probabilities.
        uniform: ``(...)`` numbers in :math:`[0, 1)`.
        grad_output: ``(..., S)``, the derivative of a loss by the result.

    Returns:
        The one-hot sample, and ``grad_output``, unchanged, as what reaches the weights.

    Raises:
        ValueError: If a weight is negative or the shapes differ.
    """
    w = _array("weights", weights)
    return sample_attention(w, uniform), _array("grad_output", grad_output, w.shape[-1]).copy()
