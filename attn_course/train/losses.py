"""Losses of models that say one id after another."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attn_course._checks import check_axes, check_floating, check_tensor, has_values
from attn_course.data.batch import Batch
from attn_course.data.vocabulary import PAD


def token_loss(
    logits: Float[Tensor, "B L V"], target_out: Int[Tensor, "B L"], *, pad: int = PAD
) -> Float[Tensor, ""]:
    r"""Mean negative log-probability of the ids that are not ``pad``: 0 unless you pass another.

    .. math:: -\frac{1}{N} \sum_{b,t\,:\,y_{bt} \ne \mathrm{pad}}
       \log \operatorname{softmax}(\mathrm{logits}_{bt})_{y_{bt}}

    Differs from ``torch.nn.functional.cross_entropy``: a batch of padding only costs 0, not NaN.

    Args:
        logits: One row per position.
        target_out: The right ids.
        pad: Id that does not count; :math:`N` is the number of the others. Where 0 is a token, as
            in most tokenizers, pass another, such as ``pad=-100``; otherwise 0 is never learned.

    Returns:
        A scalar, in nats per id.

    Raises:
        ValueError: If ``target_out`` does not have one id for each row of ``logits``.

    Example:
        >>> logits = torch.zeros(1, 3, 4)
        >>> token_loss(logits, torch.tensor([[1, 2, 0]]))
        tensor(1.3863)
    """
    _check_targets(logits, target_out)
    real = target_out != pad
    mean = has_values(real) and bool(real.any())  # a mean of nothing is NaN
    loss = nn.functional.cross_entropy(
        logits.flatten(0, 1),
        target_out.flatten(),
        ignore_index=pad,
        reduction="mean" if mean else "sum",
    )
    return loss if mean else loss / real.sum().clamp(min=1)


def label_smoothing_loss(
    logits: Float[Tensor, "B L V"],
    target_out: Int[Tensor, "B L"],
    *,
    smoothing: float = 0.1,
    pad: int = PAD,
) -> Float[Tensor, ""]:
    r"""Cross-entropy with targets that are not quite sure: a little goes to every id alike.

    .. math:: -\frac{1}{N} \sum_{b,t\,:\,y_{bt} \ne \mathrm{pad}} \left(
       (1 - \varepsilon) \log p_{bt}(y_{bt}) + \frac{\varepsilon}{V} \sum_v \log p_{bt}(v) \right)

    Szegedy et al. (2016), section 7; Vaswani et al. (2017), section 5.4, take
    :math:`\varepsilon = 0.1`. It equals torch's ``cross_entropy(label_smoothing=...)``: the right
    id gets :math:`1 - \varepsilon + \varepsilon / V`, and padding as an id gets its share too. The
    smallest possible loss is above 0; compare models by :func:`token_loss`.

    Args:
        logits: One row per position.
        target_out: The right ids.
        smoothing: :math:`\varepsilon`.
        pad: Id that does not count as a target, as for :func:`token_loss`; :math:`N` is the number
            of the others.

    Returns:
        A scalar, in nats per id; 0 for a batch of padding only.

    Raises:
        ValueError: If ``smoothing`` is not between 0 and 1, or ``target_out`` does not have one id
            for each row of ``logits``.

    Example:
        >>> label_smoothing_loss(torch.zeros(1, 2, 4), torch.tensor([[1, 2]]))
        tensor(1.3863)
    """
    _check_targets(logits, target_out)
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing: expected 0 to 1, got {smoothing}")
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logs = wide.log_softmax(dim=-1)  # (B, L, V)
    counts = target_out != pad
    ids = target_out.masked_fill(~counts, 0)  # padding need not be an id, such as torch's -100
    right = logs.gather(-1, ids.unsqueeze(-1)).squeeze(-1)  # (B, L)
    # 0 times the -inf of an id that is ruled out is NaN
    mixed = (1 - smoothing) * right + smoothing * logs.mean(dim=-1) if smoothing else right
    return -mixed.masked_fill(~counts, 0.0).sum() / counts.sum().clamp(min=1)


def teacher_forcing_loss(model: nn.Module, batch: Batch) -> Tensor:
    r"""The :func:`token_loss` of a model, each target id given the right ids before it.

    .. math:: -\frac{1}{N} \sum_{b,t\,:\,y_{bt} \ne \mathrm{PAD}} \log p(y_{bt} \mid y_{b,<t}, x_b)

    Args:
        model: Maps ``(source, source_lengths, target_in)`` to logits with one row per target
            position, as ``EncoderDecoder`` does.
        batch: Padding in ``target_out`` does not count; :math:`N` is the number of ids that do.

    Returns:
        A scalar, in nats per id.
    """
    logits = model(batch.source, batch.source_lengths, batch.target_in)  # (B, L, V)
    return token_loss(logits, batch.target_out)


def _check_targets(logits: Tensor, target_out: Tensor) -> None:
    check_floating("logits", logits)
    check_axes("logits", logits, "B L V")
    check_tensor("target_out", target_out)
    if target_out.is_floating_point() or target_out.dtype == torch.bool:
        raise ValueError(f"target_out: expected integers, got {target_out.dtype}")
    if target_out.shape != logits.shape[:2]:
        raise ValueError(
            f"target_out: expected shape {tuple(logits.shape[:2])}, one id per row of logits, "
            f"got {tuple(target_out.shape)}"
        )
