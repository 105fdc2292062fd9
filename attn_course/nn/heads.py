"""Features of heads, and heads joined again."""

from jaxtyping import Float
from torch import Tensor, nn

from attn_course._checks import check_whole


def split_heads(x: Float[Tensor, "B L D"], num_heads: int) -> Float[Tensor, "B H L E"]:
    """The features of each position in heads: the first E in head 0, the next in head 1, ..."""
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # (B, H, L, E)


def project_heads(
    x: Float[Tensor, "B L D"], num_heads: int, *projections: nn.Module
) -> tuple[Float[Tensor, "B H L E"], ...]:
    """Queries, keys and values of the heads, each by its projection."""
    return tuple(split_heads(project(x), num_heads) for project in projections)


def join_heads(heads: Float[Tensor, "B H L E"]) -> Float[Tensor, "B L D"]:
    """The features of all heads in one vector per position: the inverse of ``split_heads``."""
    return heads.transpose(1, 2).flatten(2)  # (B, L, H * E)


def head_size(embed_dim: int, num_heads: int, head_dim: int | None = None) -> int:
    """The size of a head: ``head_dim``, or an equal share of ``embed_dim`` if it is None."""
    check_whole(embed_dim=embed_dim, num_heads=num_heads, head_dim=head_dim or 0)
    if num_heads < 1:
        raise ValueError(f"num_heads: expected at least 1, got {num_heads}")
    if head_dim is None and embed_dim % num_heads:
        raise ValueError(
            f"embed_dim: expected a multiple of num_heads ({num_heads}) "
            f"where head_dim is not given, got {embed_dim}"
        )
    return embed_dim // num_heads if head_dim is None else head_dim
