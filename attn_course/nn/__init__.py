"""Modules: parameters around the functions of :mod:`attn_course.functional`."""

from attn_course.nn.attention import Attention, AttentionMemory
from attn_course.nn.attention_seq2seq import (
    AttentionEncoderDecoder,
    BahdanauDecoder,
    BahdanauState,
    BidirectionalEncoder,
)
from attn_course.nn.big_bird import BigBirdSelfAttention
from attn_course.nn.block import DecoderBlock, EncoderBlock
from attn_course.nn.cache import CrossCache, DecoderCache, KVCache, ModelCache, SlidingCache
from attn_course.nn.capture import (
    Captured,
    at_positions,
    capture,
    patched,
    without_heads,
)
from attn_course.nn.delta_rule import (
    DeltaRuleAttention,
)
from attn_course.nn.embeddings import TokenEmbedding
from attn_course.nn.encoder_model import EncoderModel, MaskedWordHead, Pooler, bert_like
from attn_course.nn.feed_forward import FeedForward, GatedFeedForward
from attn_course.nn.language_model import (
    LanguageModel,
    decoder_only,
    gpt2_like,
    init_residual,
    llama_like,
)
from attn_course.nn.latent import MultiHeadLatentAttention
from attn_course.nn.linformer import (
    LengthProjection,
    LinformerAttention,
)
from attn_course.nn.local_window import LocalM, LocalP
from attn_course.nn.longformer import LongformerSelfAttention
from attn_course.nn.low_rank import LowRankLinear
from attn_course.nn.luong_decoder import LuongDecoder, LuongState
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
from attn_course.nn.recurrent import Cell, GRUCell, LSTMCell, Recurrent, RNNCell, hidden_of
from attn_course.nn.reformer import (
    AxialPositions,
    ChunkSelfAttention,
    LSHSelfAttention,
    ReformerEncoder,
    ReversibleBlock,
    ReversibleSequence,
)
from attn_course.nn.residual_network import (
    PreActivationBlock,
    ResidualNetwork,
    StandardizedConv2d,
)
from attn_course.nn.scores import (
    SCORES,
    AdditiveScore,
    ConcatScore,
    CosineScore,
    DotScore,
    GeneralScore,
    LocationScore,
    ScaledDotScore,
    Score,
    TwoStepScore,
    make_score,
)
from attn_course.nn.seq2seq import Decoder, Encoder, EncoderDecoder
from attn_course.nn.transformer import (
    Transformer,
    TransformerDecoder,
    TransformerEncoder,
    vaswani_like,
)
from attn_course.nn.vision import (
    VIT_SIZES,
    LearnedGridPositions,
    PatchEmbedding,
    ShiftPositions,
    SinusoidalGridPositions,
    VisionTransformer,
    attention_from_convolution,
    vit_like,
)

__all__ = [
    "SCORES",
    "VIT_SIZES",
    "AdditiveScore",
    "AlibiPositions",
    "Attention",
    "AttentionEncoderDecoder",
    "AttentionMemory",
    "AxialPositions",
    "BahdanauDecoder",
    "BahdanauState",
    "BidirectionalEncoder",
    "BigBirdSelfAttention",
    "Captured",
    "Cell",
    "ChunkSelfAttention",
    "ConcatScore",
    "CosineScore",
    "CrossCache",
    "Decoder",
    "DecoderBlock",
    "DecoderCache",
    "DeltaRuleAttention",
    "DotScore",
    "Encoder",
    "EncoderBlock",
    "EncoderDecoder",
    "EncoderModel",
    "FeedForward",
    "GRUCell",
    "GatedFeedForward",
    "GeneralScore",
    "KVCache",
    "LSHSelfAttention",
    "LSTMCell",
    "LanguageModel",
    "LayerNorm",
    "LearnedGridPositions",
    "LearnedPositions",
    "LengthProjection",
    "LinformerAttention",
    "LocalM",
    "LocalP",
    "LocationScore",
    "LongformerSelfAttention",
    "LowRankLinear",
    "LuongDecoder",
    "LuongState",
    "MaskedWordHead",
    "MemoryNetwork",
    "ModelCache",
    "MultiHeadAttention",
    "MultiHeadLatentAttention",
    "PatchEmbedding",
    "Pooler",
    "PreActivationBlock",
    "RMSNorm",
    "RNNCell",
    "Recurrent",
    "ReformerEncoder",
    "RelativePositions",
    "ResidualNetwork",
    "ReversibleBlock",
    "ReversibleSequence",
    "RotaryPositions",
    "ScaledDotScore",
    "Score",
    "ShiftPositions",
    "SinusoidalGridPositions",
    "SinusoidalPositions",
    "SlidingCache",
    "StandardizedConv2d",
    "TokenEmbedding",
    "Transformer",
    "TransformerDecoder",
    "TransformerEncoder",
    "TwoStepScore",
    "VisionTransformer",
    "at_positions",
    "attention_from_convolution",
    "bert_like",
    "capture",
    "decoder_only",
    "gpt2_like",
    "hidden_of",
    "init_residual",
    "llama_like",
    "make_score",
    "patched",
    "vaswani_like",
    "vit_like",
    "without_heads",
]
