"""Where to find what torch, transformers and papers give another name."""

import difflib

# ours: what others call it
_TABLE = """
functional.alibi_bias: alibi
functional.apply_rope: apply_rotary_emb apply_rotary_pos_emb rope rotary
functional.scaled_dot_product_attention: flash_attention multi_head_attention sdpa
functional.sliding_window_attention: local_attention sliding_window window_attention
interop.from_transformers: from_pretrained
masks.causal_mask: causal_mask
masks.padding_mask: key_padding_mask padding_mask
masks.window_mask: sliding_window_mask window_mask
nn.AlibiPositions: ALiBi Alibi
nn.DecoderBlock: TransformerDecoderLayer
nn.EncoderBlock: Block TransformerBlock TransformerEncoderLayer
nn.FeedForward: FFN MLP
nn.GatedFeedForward: GEGLU GLU SwiGLU
nn.KVCache: Cache DynamicCache StaticCache
nn.LearnedPositions: PositionEmbedding PositionalEmbedding
nn.MultiHeadAttention: CausalSelfAttention CrossAttention GroupedQueryAttention SelfAttention
nn.RelativePositions: RelativePositionBias T5Bias
nn.RotaryPositions: RoPE RotaryEmbedding RotaryPositionalEmbedding RotaryPositionalEmbeddings
nn.SinusoidalPositions: PositionalEncoding SinusoidalPositionalEncoding
nn.TokenEmbedding: Embedding
nn.WindowPositions: LocalAttention SlidingWindow SlidingWindowAttention
nn.bert_like: BERT Bert
nn.gpt2_like: GPT GPT2
nn.llama_like: LLaMA Llama
nn.vit_like: ViT
train.fit: Trainer train
train.generate: generate
train.token_loss: cross_entropy
"""
_OURS = {
    theirs: ours
    for ours, _, names in (line.partition(": ") for line in _TABLE.strip().split("\n"))
    for theirs in names.split()
}


def unknown(module: str, name: str, offered: list[str]) -> AttributeError:
    """The error for a name that a part does not have: it says which one is meant.

    Args:
        module: The part, such as ``attn_course.nn``.
        name: What was asked for.
        offered: The names that it has.
    """
    part = module.rpartition(".")[2]
    near = difflib.get_close_matches(name, offered, n=1, cutoff=0.8)
    ours = _OURS.get(name) or (f"{part}.{near[0]}" if near else "")
    hint = f"did you mean attn_course.{ours}?" if ours else f"print({module}.__doc__) lists them"
    return AttributeError(f"module {module!r} has no attribute {name!r}: {hint}")
