"""Decoder-only language models: the next token from all tokens before it."""

import math
from collections.abc import Callable, Iterable
from functools import partial

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attn_course._calls import explained
from attn_course.functional.feed_forward import gelu
from attn_course.nn.block import EncoderBlock
from attn_course.nn.cache import KVCache, ModelCache, SlidingCache, takes_cache
from attn_course.nn.embeddings import TokenEmbedding
from attn_course.nn.feed_forward import FeedForward, GatedFeedForward
from attn_course.nn.multihead import MultiHeadAttention
from attn_course.nn.norms import LayerNorm, RMSNorm
from attn_course.nn.parameters import check_makers
from attn_course.nn.positions import Biases, LearnedPositions, RotaryPositions, Rotates
from attn_course.nn.transformer import cached_positions


class LanguageModel(nn.Module):
    r"""Causal blocks between an embedding and logits of the next token.

    .. math:: p(t_{i+1} \mid t_1, \ldots, t_i) =
       \mathrm{softmax}(W\, \mathrm{norm}(\mathrm{blocks}(E[t_1 \ldots t_i]))_i)

    Liu et al. (2018), who drop the encoder; Radford et al. (2018, 2019). :func:`decoder_only` puts
    one together from makers of its parts, :func:`gpt2_like` and :func:`llama_like` from sizes;
    ``train.generate(model, prompt, max_length=...)`` continues a prompt.

    Args:
        embedding: From ids to vectors.
        blocks: Such as :class:`~attn_course.nn.EncoderBlock`.
        norm: Applied after the last block; a pre-norm model needs one.
        output_projection: From vectors to logits; the table of the embedding if not given (tied).

    Example:
        >>> model = gpt2_like(vocab_size=11, embed_dim=8, num_heads=2, num_layers=2)
        >>> cache = model.new_cache()
        >>> prompt = model(torch.tensor([[1, 2, 3]]), cache=cache)
        >>> model(torch.tensor([[4]]), cache=cache).shape, cache.length
        (torch.Size([1, 1, 11]), 4)
    """

    def __init__(
        self,
        *,
        embedding: TokenEmbedding,
        blocks: Iterable[nn.Module],
        norm: nn.Module | None = None,
        output_projection: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding, self.blocks, self.norm = embedding, nn.ModuleList(blocks), norm
        self.output_projection = output_projection

    @takes_cache("layers", "model.new_cache()")
    def hidden(
        self,
        input_ids: Int[Tensor, "B L"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
        *,
        cache: ModelCache | None = None,
    ) -> Float[Tensor, "B L D"]:
        """The vectors after the last block and norm; arguments as in :meth:`forward`."""
        past = 0 if cache is None else cache.length
        positions = cached_positions(input_ids, padding_mask, cache)
        x: Tensor = self.embedding(input_ids, positions, past=past)
        for number, block in enumerate(self.blocks):
            layer = None if cache is None else cache.layers[number]
            x = block(x, is_causal=True, positions=positions, cache=layer)
        return x if self.norm is None else self.norm(x)

    def forward(
        self,
        input_ids: Int[Tensor, "B L"],
        padding_mask: Bool[Tensor, "B L"] | None = None,
        *,
        cache: ModelCache | None = None,
    ) -> Float[Tensor, "B L V"]:
        """Logits of the next token after each token.

        Args:
            input_ids: Token ids; with a cache, the new ones.
            padding_mask: True = a real token, of these; padding may be on either side. With a cache
                from the first call on, or never.
            cache: From :meth:`new_cache`; it takes the tokens.
        """
        hidden = self.hidden(input_ids, padding_mask, cache=cache)
        project = self.output_projection or self.embedding.logits
        return project(hidden)

    def new_cache(self, make: Callable[[], KVCache | SlidingCache] = KVCache) -> ModelCache:
        """An empty cache for one batch.

        Args:
            make: Makes the cache of one block, such as
                ``functools.partial(KVCache, max_length=100)`` or
                ``functools.partial(SlidingCache, window_size=64, sinks=4)``.
        """
        check_makers("functools.partial(KVCache, max_length=100)", make=make)
        return ModelCache([make() for _ in self.blocks])


@explained
def decoder_only(
    *,
    embedding: TokenEmbedding,
    num_layers: int,
    attention: Callable[[], nn.Module],
    norm: Callable[[], nn.Module],
    feed_forward: Callable[[], nn.Module] | None = None,
    norm_first: bool = True,
    tied: bool = True,
    dropout: float = 0.0,
) -> LanguageModel:
    """A language model of equal blocks, whose parts are made by functions.

    Args:
        embedding: From ids to vectors, added positions included.
        num_layers: Number of blocks.
        attention: Makes the attention of a block.
        norm: Makes a norm.
        feed_forward: Makes the feed-forward part of a block; None leaves it out.
        norm_first: Pre-norm, with a last norm after all blocks; otherwise post-norm.
        tied: The output uses the table of the embedding.
        dropout: Chance that an element of what a sub-layer adds is dropped.

    Example:
        >>> model = decoder_only(
        ...     embedding=TokenEmbedding(vocab_size=65, embed_dim=32),
        ...     num_layers=2,
        ...     attention=lambda: MultiHeadAttention(
        ...         embed_dim=32, num_heads=4, position=RotaryPositions()
        ...     ),
        ...     feed_forward=lambda: FeedForward(embed_dim=32, hidden_dim=128),
        ...     norm=lambda: LayerNorm(embed_dim=32),
        ... )
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 65])
    """
    made = {"attention": attention, "norm": norm, "feed_forward": feed_forward or norm}
    check_makers("lambda: MultiHeadAttention(...)", **made)
    blocks = [
        EncoderBlock(
            attention=attention(),
            attention_norm=norm(),
            feed_forward=None if feed_forward is None else feed_forward(),
            feed_forward_norm=None if feed_forward is None else norm(),
            norm_first=norm_first,
            dropout=dropout,
        )
        for _ in range(num_layers)
    ]
    words, size = embedding.tokens.weight.shape
    head = None
    if not tied:
        head = nn.Linear(size, words, bias=False)
        nn.init.normal_(head.weight, std=0.02)
    return LanguageModel(
        embedding=embedding,
        blocks=blocks,
        norm=norm() if norm_first else None,
        output_projection=head,
    )


@explained
def gpt2_like(
    *,
    vocab_size: int = 50257,
    max_length: int = 1024,
    embed_dim: int = 768,
    num_heads: int = 12,
    num_layers: int = 12,
    hidden_dim: int | None = None,
    dropout: float = 0.0,
    eps: float = 1e-5,
) -> LanguageModel:
    r"""GPT-2 (Radford et al., 2019), by default the small one: 124,439,808 parameters.

    Learned positions, pre-norm with a last norm, biases everywhere, GELU in its tanh form, tied
    output. Initialisation: ``init_residual``.

    .. math:: V D + T D + N \left[ 4 (D^2 + D) + (2 D F + F + D) + 4 D \right] + 2 D

    Here :math:`V` is ``vocab_size``, :math:`T` ``max_length``, :math:`D` ``embed_dim``, :math:`N`
    ``num_layers``, :math:`F` ``hidden_dim`` (4 D if not given). GPT-2's ``dropout`` is 0.1.

    Example:
        >>> model = gpt2_like(vocab_size=65, max_length=32, embed_dim=16, num_heads=2, num_layers=2)
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 65])
    """
    hidden_dim = 4 * embed_dim if hidden_dim is None else hidden_dim
    model = decoder_only(
        embedding=TokenEmbedding(
            vocab_size=vocab_size,
            embed_dim=embed_dim,
            position=LearnedPositions(max_length=max_length, embed_dim=embed_dim),
            dropout=dropout,
        ),
        num_layers=num_layers,
        attention=partial(
            MultiHeadAttention, embed_dim=embed_dim, num_heads=num_heads, dropout=dropout
        ),
        feed_forward=partial(
            FeedForward,
            embed_dim=embed_dim,
            hidden_dim=hidden_dim,
            activation=partial(gelu, approximate="tanh"),
        ),
        norm=partial(LayerNorm, embed_dim=embed_dim, eps=eps),
        dropout=dropout,
    )
    init_residual(model, num_layers=num_layers)
    return model


@explained
def llama_like(
    *,
    vocab_size: int = 32000,
    embed_dim: int = 4096,
    num_heads: int = 32,
    num_kv_heads: int | None = None,
    head_dim: int | None = None,
    num_layers: int = 32,
    hidden_dim: int = 11008,
    position: Rotates | Biases | None = None,
    tied: bool = False,
    eps: float = 1e-5,
) -> LanguageModel:
    r"""Llama (Touvron et al., 2023), by default Llama 2 with 7B: 6,738,415,616 parameters.

    RoPE, pre-norm with RMSNorm, SwiGLU, no bias anywhere, an output of its own. Initialisation:
    ``init_residual``.

    .. math:: 2 V D + N \left[ 2 D^2 + 2 D H_{kv} E + 3 D F + 2 D \right] + D
       \qquad (H E = D)

    Letters as for :func:`gpt2_like`; :math:`H` is ``num_heads``, :math:`E` ``head_dim``.

    Args:
        position: Shared by all blocks; RoPE on neighbouring pairs if not given. The weights of
            Hugging Face need ``RotaryPositions(interleaved=False)``.
        tied: The output uses the table of the embedding.

    Example:
        >>> sizes = {"embed_dim": 16, "num_heads": 4, "num_kv_heads": 2, "hidden_dim": 40}
        >>> model = llama_like(vocab_size=65, num_layers=2, **sizes)
        >>> model(torch.tensor([[1, 2, 3]])).shape
        torch.Size([1, 3, 65])
    """
    model = decoder_only(
        embedding=TokenEmbedding(vocab_size=vocab_size, embed_dim=embed_dim),
        num_layers=num_layers,
        attention=partial(
            MultiHeadAttention,
            embed_dim=embed_dim,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            bias=False,
            position=RotaryPositions() if position is None else position,
        ),
        feed_forward=partial(GatedFeedForward, embed_dim=embed_dim, hidden_dim=hidden_dim),
        norm=partial(RMSNorm, embed_dim=embed_dim, eps=eps),
        tied=tied,
    )
    init_residual(model, num_layers=num_layers)
    return model


def init_residual(model: nn.Module, *, num_layers: int, std: float = 0.02) -> None:
    r"""Small normal weights, smaller still where a block adds to the residual stream; biases 0.

    .. math:: W \sim N(0, \sigma^2), \qquad
       W_{\mathrm{out}} \sim N\big(0, \tfrac{\sigma^2}{2N}\big)

    Radford et al. (2019), section 2.3: :math:`2N` sub-layers add to the same vector, so that its
    variance after all of them does not depend on :math:`N`.

    Args:
        model: All linear maps in it are set. Those called ``output_projection`` or
            ``down_projection`` inside the blocks add to the residual stream.
        num_layers: :math:`N`.
        std: :math:`\sigma`.
    """
    for name, part in model.named_modules():
        if isinstance(part, nn.Linear):
            writes = "." in name and name.endswith(("output_projection", "down_projection"))
            nn.init.normal_(part.weight, std=std / math.sqrt(2 * num_layers) if writes else std)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
