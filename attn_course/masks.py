"""Boolean masks. True always means: this position may be attended to, it counts."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attn_course._checks import check_lengths


def padding_mask(lengths: Int[Tensor, " B"], longest: int) -> Bool[Tensor, "B S"]:
    r"""Which positions of a padded batch hold a real token.

    .. math:: m_{bs} = [\, s < \mathrm{lengths}_b \,]

    Args:
        lengths: How many positions of each row count.
        longest: Width :math:`S` of the padded batch.

    Returns:
        True where a position counts.

    Raises:
        ValueError: If a length is negative or larger than ``longest``.
    """
    check_lengths(lengths, lengths.shape[0] if lengths.ndim else 0, longest)
    return torch.arange(longest, device=lengths.device) < lengths[:, None]  # (B, S)
