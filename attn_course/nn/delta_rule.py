"""A layer whose memory is one matrix per head, which each step corrects."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from attn_course.functional.linear_attention import delta_rule
from attn_course.nn.feed_forward import xavier_
from attn_course.nn.heads import head_size, join_heads, project_heads
from attn_course.nn.parameters import check_input


class DeltaRuleAttention(nn.Module):
    r"""Causal multi-head memory under the delta rule.

    .. math:: S_t = S_{t-1} (I - \beta_t k_t k_t^\top) + \beta_t v_t k_t^\top, \quad
       o_t = S_t q_t, \quad \beta_t = \sigma(w_\beta \cdot x_t + b_\beta)

    Schlag et al. (2021); Yang et al. (2024), DeltaNet, without their convolutions and gates.
    Queries and keys have length 1. Initialisation: Xavier uniform, biases 0, so that at first half
    of the value of a key is replaced.

    Args:
        embed_dim: Size of input and output.
        num_heads: Heads.
        head_dim: Size of queries, keys and values of a head; ``embed_dim / num_heads`` if not
            given.
        chunk_size: How many positions are computed together.

    Example:
        >>> layer = DeltaRuleAttention(embed_dim=8, num_heads=2)
        >>> output, state = layer(torch.randn(1, 5, 8))
        >>> output.shape, state.shape
        (torch.Size([1, 5, 8]), torch.Size([1, 2, 4, 4]))
    """

    def __init__(
        self, *, embed_dim: int, num_heads: int, head_dim: int | None = None, chunk_size: int = 64
    ) -> None:
        super().__init__()
        self.embed_dim, self.num_heads, self.chunk_size = embed_dim, num_heads, chunk_size
        width = num_heads * head_size(embed_dim, num_heads, head_dim)
        self.query_projection = nn.Linear(embed_dim, width, bias=False)
        self.key_projection = nn.Linear(embed_dim, width, bias=False)
        self.value_projection = nn.Linear(embed_dim, width, bias=False)
        self.beta_projection = nn.Linear(embed_dim, num_heads)
        self.output_projection = nn.Linear(width, embed_dim, bias=False)
        xavier_(self)

    def forward(
        self, x: Float[Tensor, "B L D"], state: Float[Tensor, "B H Ev E"] | None = None
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B H Ev E"]]:
        """The output at each position, and the memory after the last one.

        Args:
            x: One vector per position.
            state: The memory before the first one; empty if not given.
        """
        check_input("x", x, "B L D", self.embed_dim, self.query_projection)
        projections = (self.query_projection, self.key_projection, self.value_projection)
        query, key, value = project_heads(x, self.num_heads, *projections)
        heads, state = delta_rule(
            F.normalize(query, dim=-1),
            F.normalize(key, dim=-1),
            value,
            torch.sigmoid(self.beta_projection(x)).mT,  # (B, H, L)
            state=state,
            chunk_size=self.chunk_size,
        )
        output: Tensor = self.output_projection(join_heads(heads))
        return output, state
