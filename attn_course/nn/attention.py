"""Attention as a module: a score, a normalisation and up to three projections, all passed in."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attn_course._checks import check_axes, check_device, without_padding
from attn_course.functional.attention import attention
from attn_course.functional.softmax import masked_softmax
from attn_course.nn.parameters import check_callable, check_weight_dtype
from attn_course.nn.scores import ScaledDotScore


class AttentionMemory(NamedTuple):
    """Keys and values of a sentence, made once: batch on axis 0 throughout.

    Attributes:
        keys: Keys, after the score's ``prepare``.
        values: The values.
        mask: True = a real position.
    """

    keys: Float[Tensor, "B S Ep"]
    values: Float[Tensor, "B S Ev"]
    mask: Bool[Tensor, "B S"]


class Attention(nn.Module):
    r"""Mix values by how well their keys fit a query: :func:`attn_course.functional.attention`.

    .. math:: w = \mathrm{normalize}(\mathrm{score}(W_Q q, W_K k)), \qquad o = \sum_s w_s W_V v_s

    A projection that is not given is left out: without all three, and with the keys as values,
    this is the attention of Bahdanau et al. (2015) and Luong et al. (2015).

    Args:
        score: Module that maps query and key to scores; scaled dot product if none is given.
        query_projection: :math:`W_Q`, for example ``torch.nn.Linear``.
        key_projection: :math:`W_K`.
        value_projection: :math:`W_V`.
        normalize: Maps scores and mask to weights; None takes the scores themselves.

    Example:
        >>> from attn_course.nn.scores import GeneralScore
        >>> attention = Attention(score=GeneralScore(query_size=3, key_size=4))
        >>> output, weights = attention(torch.randn(1, 2, 3), torch.randn(1, 5, 4))
        >>> output.shape, weights.shape
        (torch.Size([1, 2, 4]), torch.Size([1, 2, 5]))
    """

    def __init__(
        self,
        *,
        score: nn.Module | None = None,
        query_projection: nn.Module | None = None,
        key_projection: nn.Module | None = None,
        value_projection: nn.Module | None = None,
        normalize: Callable[..., Tensor] | None = masked_softmax,
    ) -> None:
        super().__init__()
        if score is not None:
            check_callable("a module such as DotScore(), or None", score=score)
        projections = (query_projection, key_projection, value_projection)
        for name, layer in zip(("query", "key", "value"), projections, strict=True):
            if layer is not None:
                check_callable("a module or None", **{f"{name}_projection": layer})
        if normalize is not None:
            check_callable("a function of scores and mask, or None", normalize=normalize)
        self.score: Any = ScaledDotScore() if score is None else score  # a Score: duck-typed
        self.query_projection = query_projection
        self.key_projection = key_projection
        self.value_projection = value_projection
        self.normalize = normalize

    def forward(
        self,
        query: Float[Tensor, "*#B L Dq"],
        key: Float[Tensor, "*#B S Dk"],
        value: Float[Tensor, "*#B S Dv"] | None = None,
        attn_mask: Bool[Tensor, "..."] | None = None,
    ) -> tuple[Float[Tensor, "*#B L Ev"], Float[Tensor, "*#B L S"]]:
        """Output and weights; arguments as of :func:`attn_course.functional.attention`.

        The values are the keys, before their projection, if not given.
        """
        value = key if value is None else value
        if attn_mask is not None:  # before the projections, whose gradients would get the padding
            key, value = (without_padding(rows, attn_mask) for rows in (key, value))
        check_weight_dtype("query", query, self.query_projection)
        check_weight_dtype("key", key, self.key_projection)
        check_weight_dtype("value", value, self.value_projection)
        query = query if self.query_projection is None else self.query_projection(query)
        key = key if self.key_projection is None else self.key_projection(key)
        value = value if self.value_projection is None else self.value_projection(value)
        return attention(
            query, key, value, score=self.score, attn_mask=attn_mask, normalize=self.normalize
        )

    def prepare(
        self, annotations: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
    ) -> AttentionMemory:
        """Keys and values of a sentence, both made from its annotations, ready for :meth:`attend`.

        The score must have the methods of :class:`attn_course.nn.scores.Score`.

        Args:
            annotations: One vector per position.
            mask: True = a real position; the vectors at the others do not matter.
        """
        check_axes("annotations", annotations, "B S D")
        check_device("mask", mask, annotations)
        if mask.dtype != torch.bool or mask.shape != annotations.shape[:2]:
            raise ValueError(
                f"mask: expected a boolean mask of shape {tuple(annotations.shape[:2])}, "
                f"got {mask.dtype} of shape {tuple(mask.shape)}"
            )
        annotations = torch.where(mask.unsqueeze(-1), annotations, 0.0)
        key = annotations if self.key_projection is None else self.key_projection(annotations)
        value = annotations if self.value_projection is None else self.value_projection(annotations)
        return AttentionMemory(self.score.prepare(key), value, mask)

    def attend(
        self,
        query: Float[Tensor, "B L Dq"],
        memory: AttentionMemory,
        *,
        weigh: Callable[..., Tensor] | None = None,
    ) -> tuple[Float[Tensor, "B L Ev"], Float[Tensor, "B L S"]]:
        """Output and weights as of :meth:`forward`, from keys that were prepared before.

        Args:
            query: One or several queries per row.
            memory: From :meth:`prepare`.
            weigh: Maps scores and mask (B, 1, S) to weights in place of ``normalize``: a window.

        Returns:
            Output and weights, in the dtype of query and values.
        """
        if self.query_projection is not None:
            query = self.query_projection(query)
        mask = memory.mask.unsqueeze(1)  # (B, 1, S)
        weigh = self.normalize if weigh is None else weigh
        # the padding of the memory is 0 already: given as attn_mask it would be copied every step
        output, weights = attention(
            query,
            memory.keys,
            memory.values,
            score=self.score.compare,
            normalize=lambda scores, _: (
                scores.masked_fill(~mask, 0.0) if weigh is None else weigh(scores, mask)
            ),
        )
        dtype = torch.promote_types(query.dtype, memory.values.dtype)  # prepared keys are wider
        return output.to(dtype), weights.to(dtype)
