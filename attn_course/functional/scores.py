"""How well a query fits a key: the seven score functions, batched over leading axes.

All are called as ``score(query, key, *, parameters)`` and give one number per query and key, before
any mask or softmax, in float32 at least: a product of half-precision vectors may be more than
65504, and a rounded score is an error in every weight. :func:`attn_course.functional.attention`
rounds once, after the mixing. Sources, with the names of this module in brackets:

- Graves, Wayne and Danihelka (2014), Neural Turing machines, equations 5 and 6:
  :math:`k_t` (query), :math:`M_t(i)` (key), :math:`\\beta_t` (sharpness).
- Bahdanau, Cho and Bengio (2015), appendix A.1.2: :math:`s_{i-1}` (query), :math:`h_j` (key),
  :math:`W_a, U_a, v_a` (weight_query, weight_key, v), :math:`e_{ij}` (score).
- Luong, Pham and Manning (2015), section 3.1, below equation 7, and equation 8 (location):
  :math:`h_t` (query), :math:`\\bar h_s` (key), :math:`W_a` (weight), :math:`v_a` (v).
- Vaswani et al. (2017), equation 1: :math:`Q, K` (query, key), :math:`1/\\sqrt{d_k}` (scale).
"""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from attn_course._checks import check_broadcast, check_device, check_floating, check_size, widest
from attn_course.functional.similarity import _unit


def _checked(query: Shaped[Tensor, "..."], key: Shaped[Tensor, "..."]) -> tuple[Tensor, Tensor]:
    """Query and key in their common dtype, float32 at least, after a check of their shapes."""
    for name, vectors in (("query", query), ("key", key)):
        check_floating(name, vectors)
        if vectors.ndim < 2:
            raise ValueError(f"{name}: expected vectors in rows, got shape {tuple(vectors.shape)}")
    check_broadcast("key", key.shape[:-2], query.shape[:-2])
    check_device("key", key, query)
    wide = widest(query, key)
    return query.to(wide), key.to(wide)


def _fitting(name: str, value: Tensor, like: Tensor, *expected: int) -> Tensor:
    """A parameter in the dtype of the vectors, after a check of its shape."""
    if value.shape != expected:
        raise ValueError(f"{name}: expected shape {expected}, got {tuple(value.shape)}")
    check_floating(name, value)
    check_device(name, value, like)
    return value.to(like.dtype)


def dot_score(
    query: Float[Tensor, "*#B L E"], key: Float[Tensor, "*#B S E"]
) -> Float[Tensor, "*#B L S"]:
    r"""The dot product: no parameters, one matrix product.

    .. math:: s_{ij} = q_i \cdot k_j

    Luong et al. (2015), section 3.1, *dot*.

    Args:
        query: Queries.
        key: What it is compared with, of the same size.

    Example:
        >>> dot_score(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [5.0, 6.0]]))
        tensor([[11., 17.]])
    """
    query, key = _checked(query, key)
    check_size("key", key, -1, query.shape[-1])
    return query @ key.mT


def scaled_dot_score(
    query: Float[Tensor, "*#B L E"], key: Float[Tensor, "*#B S E"], *, scale: float | None = None
) -> Float[Tensor, "*#B L S"]:
    r"""The dot product, scaled so that its variance does not grow with the size of the vectors.

    .. math:: s_{ij} = \frac{q_i \cdot k_j}{\sqrt{E}}

    Vaswani et al. (2017), equation 1; :math:`E` is their :math:`d_k`. The rest as of
    :func:`dot_score`; vectors of size 0 need a scale.

    Args:
        scale: Factor in place of :math:`1/\sqrt{E}`.

    Example:
        >>> scaled_dot_score(torch.tensor([[1.0, 1.0, 1.0, 1.0]]), torch.ones(2, 4))
        tensor([[2., 2.]])
    """
    query, key = _checked(query, key)
    check_size("key", key, -1, query.shape[-1])
    if scale is None:
        if query.shape[-1] == 0:
            raise ValueError(f"query: expected vectors of size >= 1, got {tuple(query.shape)}")
        scale = query.shape[-1] ** -0.5
    # before the product: L E multiplications, not L S
    return (query * scale) @ key.mT


def general_score(
    query: Float[Tensor, "*#B L Eq"],
    key: Float[Tensor, "*#B S Ek"],
    *,
    weight: Float[Tensor, "Eq Ek"],
) -> Float[Tensor, "*#B L S"]:
    r"""A dot product through a learned matrix, so that query and key may differ in kind and size.

    .. math:: s_{ij} = q_i^\top W k_j

    Luong et al. (2015), section 3.1, *general*. The rest as of :func:`dot_score`.

    Args:
        weight: :math:`W`; the identity makes this :func:`dot_score`.

    Example:
        >>> query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 4)
        >>> general_score(query, key, weight=torch.randn(5, 4)).shape
        torch.Size([2, 3, 7])
    """
    query, key = _checked(query, key)
    weight = _fitting("weight", weight, query, query.shape[-1], key.shape[-1])
    return (query @ weight) @ key.mT


def tanh_score(
    projected_query: Float[Tensor, "*#B L A"],
    projected_key: Float[Tensor, "*#B S A"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "*#B L S"]:
    r"""What is left of the additive score once queries and keys are projected.

    .. math:: s_{ij} = v^\top \tanh(\tilde q_i + \tilde k_j)

    A decoder projects its keys once per sentence (as Bahdanau et al., 2015, advise in appendix
    A.1.2) and comes here at every step. This is where the additive score is slower than a product:
    it holds :math:`L S A` numbers at once and takes as many hyperbolic tangents. The rest as of
    :func:`dot_score`.

    Args:
        projected_query: :math:`W q_i`.
        projected_key: :math:`U k_j + b`.
        v: One weight per hidden unit.

    Example:
        >>> tanh_score(torch.randn(2, 3, 6), torch.randn(2, 7, 6), torch.randn(6)).shape
        torch.Size([2, 3, 7])
    """
    q, k = _checked(projected_query, projected_key)
    check_size("projected_key", k, -1, q.shape[-1])
    v = _fitting("v", v, q, q.shape[-1])
    hidden = q.unsqueeze(-2) + k.unsqueeze(-3)  # (..., L, S, A)
    # in place: the sum is used nowhere else, and it is the largest tensor there is
    return hidden.tanh_() @ v


def additive_score(
    query: Float[Tensor, "*#B L Eq"],
    key: Float[Tensor, "*#B S Ek"],
    *,
    weight_query: Float[Tensor, "A Eq"],
    weight_key: Float[Tensor, "A Ek"],
    v: Float[Tensor, " A"],
    bias: Float[Tensor, " A"] | None = None,
) -> Float[Tensor, "*#B L S"]:
    r"""A small network with one hidden layer over query and key.

    .. math:: s_{ij} = v^\top \tanh(W q_i + U k_j + b)

    Bahdanau et al. (2015), appendix A.1.2. Differs from the paper: its formula of the score has no
    bias; here :math:`b` is an option. The rest as of :func:`dot_score`.

    Args:
        weight_query: :math:`W`, their :math:`W_a`.
        weight_key: :math:`U`, their :math:`U_a`.
        v: Their :math:`v_a`.
        bias: :math:`b`; 0 if none is given.

    Example:
        >>> query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 4)
        >>> weights = {"weight_query": torch.randn(6, 5), "weight_key": torch.randn(6, 4)}
        >>> additive_score(query, key, **weights, v=torch.randn(6)).shape
        torch.Size([2, 3, 7])
    """
    query, key = _checked(query, key)
    size = v.shape[-1] if v.ndim else 0
    v = _fitting("v", v, query, size)
    weight_query = _fitting("weight_query", weight_query, query, size, query.shape[-1])
    weight_key = _fitting("weight_key", weight_key, key, size, key.shape[-1])
    projected = key @ weight_key.mT  # (..., S, A)
    if bias is not None:
        projected = projected + _fitting("bias", bias, key, size)
    return tanh_score(query @ weight_query.mT, projected, v)


def concat_score(
    query: Float[Tensor, "*#B L Eq"],
    key: Float[Tensor, "*#B S Ek"],
    *,
    weight: Float[Tensor, "A EqEk"],
    v: Float[Tensor, " A"],
) -> Float[Tensor, "*#B L S"]:
    r"""The network of :func:`additive_score`, written over the concatenation of query and key.

    .. math:: s_{ij} = v^\top \tanh(W [q_i; k_j])
       = v^\top \tanh(W_q q_i + W_k k_j), \qquad W = [W_q\; W_k]

    Luong et al. (2015), section 3.1, *concat*. The right-hand form is the one computed: no pair is
    ever concatenated, and the projections are made once for each query and key, not for each pair.
    The rest as of :func:`dot_score`.

    Args:
        weight: :math:`W`; the columns of the query come first.
        v: Their :math:`v_a`.

    Example:
        >>> query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 4)
        >>> concat_score(query, key, weight=torch.randn(6, 9), v=torch.randn(6)).shape
        torch.Size([2, 3, 7])
    """
    query, key = _checked(query, key)
    size = v.shape[-1] if v.ndim else 0
    v = _fitting("v", v, query, size)
    weight = _fitting("weight", weight, query, size, query.shape[-1] + key.shape[-1])
    weight_query, weight_key = weight.split([query.shape[-1], key.shape[-1]], dim=-1)
    return additive_score(query, key, weight_query=weight_query, weight_key=weight_key, v=v)


def location_score(
    query: Float[Tensor, "*#B L Eq"],
    key: Float[Tensor, "*#B S Ek"],
    *,
    weight: Float[Tensor, "Smax Eq"],
) -> Float[Tensor, "*#B L S"]:
    r"""A score of places: the query alone decides, whatever the keys hold.

    .. math:: s_{ij} = (W q_i)_j

    Luong et al. (2015), equation 8, *location*. Their remark on lengths: for short sentences only
    the top part of the scores is used, for long ones the words beyond the end of :math:`W` are
    ignored; here more keys than rows are refused.

    Args:
        query: What decides.
        key: Only its number of rows counts.
        weight: :math:`W`, one row per place, or more; the first ``S`` rows are used.

    Example:
        >>> query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 4)
        >>> location_score(query, key, weight=torch.randn(20, 5)).shape
        torch.Size([2, 3, 7])
    """
    query, key = _checked(query, key)
    check_size("weight", weight, -1, query.shape[-1])
    places = key.shape[-2]
    if weight.ndim != 2 or weight.shape[0] < places:
        raise ValueError(
            f"weight: expected at least {places} rows, one per key, got shape {tuple(weight.shape)}"
        )
    weight = _fitting("weight", weight[:places], query, places, query.shape[-1])
    scores = query @ weight.mT  # (..., L, S)
    return scores.expand(*torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]), -1, -1)


def cosine_score(
    query: Float[Tensor, "*#B L E"],
    key: Float[Tensor, "*#B S E"],
    *,
    sharpness: float | Float[Tensor, "*#B L"] | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "*#B L S"]:
    r"""The cosine of the angle, times a sharpness: content-based addressing.

    .. math:: s_{ij} = \beta\, \frac{q_i \cdot k_j}{\lVert q_i \rVert \lVert k_j \rVert}

    Graves et al. (2014), equations 5 and 6. A cosine is at most 1, so without :math:`\beta` a
    softmax over many keys stays flat whatever the vectors are. A vector of zeros scores 0. The rest
    as of :func:`dot_score`.

    Args:
        sharpness: :math:`\beta`, a number or one for each query; Graves's controller emits it.

    Example:
        >>> cosine_score(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0], [0.0, 2.0]]))
        tensor([[1., 0.]])
    """
    query, key = _checked(query, key)
    check_size("key", key, -1, query.shape[-1])
    if isinstance(sharpness, Tensor) and sharpness.ndim:
        check_size("sharpness", sharpness, -1, query.shape[-2])
        check_broadcast("sharpness", sharpness.shape[:-1], query.shape[:-2])
        sharpness = sharpness.unsqueeze(-1)  # (..., L, 1)
    cosine = _unit("query", query) @ _unit("key", key).mT
    return (sharpness * cosine).to(query.dtype)
