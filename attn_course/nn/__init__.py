"""Modules: parameters around the functions of :mod:`attn_course.functional`, same refusals.

- attention: ``MultiHeadAttention``, also across sequences, causal, with grouped heads, a cache;
  a window, linear attention or a kernel is its ``attn_fn``
- its positions: ``RotaryPositions`` (RoPE), ``AlibiPositions``, ``RelativePositions`` (T5),
  ``WindowPositions`` (a window that goes with a cache)
- positions of an embedding: ``LearnedPositions``, ``SinusoidalPositions``, in a ``TokenEmbedding``
- a block: ``EncoderBlock`` (of decoder-only models too), ``DecoderBlock`` (with cross-attention),
  from ``FeedForward`` or ``GatedFeedForward`` (SwiGLU) and ``LayerNorm`` or ``RMSNorm``
- a model from sizes: ``gpt2_like``, ``llama_like``, ``bert_like``, ``vit_like``, ``vaswani_like``;
  from parts: ``decoder_only``, ``EncoderModel``, ``Transformer``
- a cache: ``model.new_cache()``, made of ``KVCache`` or ``SlidingCache``
- other attention: ``LongformerSelfAttention``, ``BigBirdSelfAttention``, ``LSHSelfAttention``,
  ``LinformerAttention``, ``DeltaRuleAttention``, ``MultiHeadLatentAttention``
- before Transformers: ``EncoderDecoder``, ``AttentionEncoderDecoder``, ``MemoryNetwork``
- to record, replace or remove what heads do: ``capture``, ``patched``, ``without_heads``

Constructors take keywords only. To train and to write text: :mod:`attn_course.train`.
"""

from typing import TYPE_CHECKING

from attn_course._calls import explained
from attn_course._names import unknown
from attn_course.nn.attention import Attention
from attn_course.nn.attention_seq2seq import (
    AttentionEncoderDecoder,
    BahdanauDecoder,
    BidirectionalEncoder,
)
from attn_course.nn.big_bird import BigBirdSelfAttention
from attn_course.nn.block import DecoderBlock, EncoderBlock
from attn_course.nn.cache import CrossCache, KVCache, SlidingCache
from attn_course.nn.capture import at_positions, capture, patched, without_heads
from attn_course.nn.delta_rule import DeltaRuleAttention
from attn_course.nn.embeddings import TokenEmbedding
from attn_course.nn.encoder_model import EncoderModel, MaskedWordHead, Pooler, bert_like
from attn_course.nn.feed_forward import FeedForward, GatedFeedForward
from attn_course.nn.language_model import LanguageModel, decoder_only, gpt2_like, llama_like
from attn_course.nn.latent import MultiHeadLatentAttention
from attn_course.nn.linformer import LinformerAttention
from attn_course.nn.local_window import LocalM, LocalP
from attn_course.nn.longformer import LongformerSelfAttention
from attn_course.nn.low_rank import LowRankLinear
from attn_course.nn.luong_decoder import LuongDecoder
from attn_course.nn.memory import MemoryNetwork
from attn_course.nn.multihead import MultiHeadAttention
from attn_course.nn.norms import LayerNorm, RMSNorm
from attn_course.nn.positions import (
    AlibiPositions,
    LearnedPositions,
    RelativePositions,
    RotaryPositions,
    SinusoidalPositions,
)
from attn_course.nn.recurrent import GRUCell, LSTMCell, Recurrent, RNNCell
from attn_course.nn.reformer import (
    AxialPositions,
    ChunkSelfAttention,
    LSHSelfAttention,
    ReformerEncoder,
    ReversibleBlock,
    ReversibleSequence,
)
from attn_course.nn.residual_network import ResidualNetwork
from attn_course.nn.scores import make_score
from attn_course.nn.seq2seq import Decoder, Encoder, EncoderDecoder
from attn_course.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
    vaswani_like,
)
from attn_course.nn.vision import (
    LearnedGridPositions,
    PatchEmbedding,
    VisionTransformer,
    attention_from_convolution,
    vit_like,
)
from attn_course.nn.window import WindowPositions

__all__ = [
    "AlibiPositions", "Attention", "AttentionEncoderDecoder", "AxialPositions", "BahdanauDecoder",
    "BidirectionalEncoder", "BigBirdSelfAttention", "ChunkSelfAttention", "CrossCache", "Decoder",
    "DecoderBlock", "DeltaRuleAttention", "Encoder", "EncoderBlock", "EncoderDecoder",
    "EncoderModel", "FeedForward", "GRUCell", "GatedFeedForward", "KVCache", "LSHSelfAttention",
    "LSTMCell", "LanguageModel", "LayerNorm", "LearnedGridPositions", "LearnedPositions",
    "LinformerAttention", "LocalM", "LocalP", "LongformerSelfAttention", "LowRankLinear",
    "LuongDecoder", "MaskedWordHead", "MemoryNetwork", "MultiHeadAttention",
    "MultiHeadLatentAttention", "PatchEmbedding", "Pooler", "RMSNorm", "RNNCell", "Recurrent",
    "ReformerEncoder", "RelativePositions", "ResidualNetwork", "ReversibleBlock",
    "ReversibleSequence", "RotaryPositions", "SinusoidalPositions", "SlidingCache",
    "TokenEmbedding", "Transformer", "TransformerDecoder", "TransformerEncoder",
    "VisionTransformer", "WindowPositions", "at_positions", "attention_from_convolution",
    "bert_like", "capture", "decoder_only", "gpt2_like", "llama_like", "make_score", "patched",
    "vaswani_like", "vit_like", "without_heads",
]  # fmt: skip

for _name in __all__:
    if isinstance(_class := globals()[_name], type) and not getattr(_class, "_is_protocol", False):
        explained(_class)


if not TYPE_CHECKING:  # which finds a wrong name itself

    def __getattr__(name: str) -> object:
        raise unknown(__name__, name, __all__)
