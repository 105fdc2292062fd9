"""Every public name under ``torch.compile(fullgraph=True)``, ``torch.export`` and ``torch.vmap``.

One row for each name: a call with example tensors, whose results must be those of plain execution.
A name that cannot be traced by its nature says why. A new name needs a row.
"""

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jaxtyping
import pytest
import torch
from refusals import refused
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils import _pytree as pytree

from attn_course import analysis, masks
from attn_course import functional as fn
from attn_course import nn as ann
from attn_course.nn import residual_network

B, H, L, S, E, D, V = 2, 3, 5, 7, 4, 6, 11


@dataclass(frozen=True)
class Row:
    """How one name is called, or why it cannot be traced."""

    call: Any = None  # takes the module, if there is one, and the tensors
    tensors: tuple[Tensor, ...] = ()
    module: nn.Module | None = None
    random: bool = False  # the result is drawn anew: only shapes are compared
    why: str = ""
    no_vmap: str = ""  # why it cannot be mapped although it can be compiled


def of(call: Callable[..., Any], *tensors: Tensor, **options: Any) -> Row:
    return Row(call=call, tensors=tensors, **options)


def untraced(why: str, names: str) -> dict[str, Callable[[], Row]]:
    """Rows of names that cannot be traced for one reason."""
    return dict.fromkeys(names.split(), lambda: Row(why=why))


def made(module: nn.Module, *tensors: Tensor, call: Any = None, **options: Any) -> Row:
    return Row(call=call or (lambda m, *a: m(*a)), tensors=tensors, module=module, **options)


def r(*shape: int) -> Tensor:
    """Numbers of both signs."""
    return torch.linspace(-1.7, 2.3, int(torch.tensor(shape).prod())).sin().view(shape)


def p(*shape: int) -> Tensor:
    """Probabilities over the last axis."""
    return r(*shape).softmax(-1)


def ids(*shape: int) -> Tensor:
    """Word ids; 0 at the end of every row."""
    found = torch.arange(int(torch.tensor(shape).prod())).view(shape) % (V - 1) + 1
    found[..., -1] = 0
    return found


COUNTS = "plain numbers, or one: there is no tensor to trace"
PROTOCOL = "a protocol, or a table or maker of classes: their rows go through it"
TUPLE = "a named tuple of tensors: the rows of what returns it go through it"
lengths = torch.tensor([S, 3])
mask = masks.padding_mask(lengths, S)
q, k, v = r(B, L, E), r(B, S, E), r(B, S, D)
hq, hk, hv = r(B, H, L, E), r(B, H, S, E), r(B, H, S, E)
PATTERN = fn.strided_pattern(stride=2) | fn.random_pattern(block_size=2, num_blocks=4, per_block=1)


def row_sum(z: Tensor) -> Tensor:
    return z.square().sum((-2, -1))


FUNCTIONAL: dict[str, Callable[[], Row]] = {
    **untraced(COUNTS,
        "attention_bytes best_baseline kernel_shifts matmul_bytes path_length roofline_seconds "
        "scaled_base score_function_moments Sizes window_reach"),
    **untraced(PROTOCOL, "AttentionFn"),
    **untraced(TUPLE, "LinearState"),
    **untraced("walks back through a graph of autograd", "gradient_map gradient_reach"),
    **untraced("makes functions, or one of torch's kernel", "flex_attention_fn recurrent_steps"),
    "additive_score": lambda: of(lambda a, b, *w: fn.additive_score(a, b, weight_query=w[0],
        weight_key=w[1], v=w[2]), q, k, r(D, E), r(D, E), r(D)),
    "attention": lambda: of(lambda a, b, c, m: fn.attention(a, b, c, attn_mask=m), q, k, v,
        mask.unsqueeze(1)),
    "attention_log_prob": lambda: of(fn.attention_log_prob, p(B, S), torch.eye(S)[:B]),
    "clip_by_global_norm": lambda: of(lambda *g: fn.clip_by_global_norm(list(g), max_norm=1.0),
        r(3, E), r(D)),
    "concat_score": lambda: of(lambda a, b, w, u: fn.concat_score(a, b, weight=w, v=u), q, k,
        r(D, 2 * E), r(D)),
    "cosine_score": lambda: of(lambda a, b: fn.cosine_score(a, b, sharpness=3.0), q, k),
    "cosine_similarity": lambda: of(fn.cosine_similarity, r(B, E), r(E, B).mT),
    "dot_score": lambda: of(fn.dot_score, q, k),
    "equivalent_weights": lambda: Row(why="walks until a value says stop"),
    "expected_attention": lambda: of(fn.expected_attention, p(B, S), v),
    "general_score": lambda: of(lambda a, b, w: fn.general_score(a, b, weight=w), q, k, r(E, E)),
    "grad_cam": lambda: of(analysis.grad_cam, r(B, 3, 4, 5), r(B, 3, 5, 4).mT),
    "gradient_times_input": lambda: of(lambda x: analysis.gradient_times_input(row_sum, x),
        r(B, L, E)),
    "gru_cell": lambda: of(fn.gru_cell, r(B, D), r(B, E), r(3 * E, D), r(3 * E, E), r(3 * E),
        r(3 * E)),
    "input_gradient": lambda: of(lambda x: analysis.input_gradient(row_sum, x), r(B, L, E)),
    "integrated_gradients": lambda: of(lambda x: analysis.integrated_gradients(row_sum, x, steps=2),
        r(B, L, E)),
    "jacobian_product": lambda: of(lambda h, w: fn.jacobian_product(h, w, 1, 3), r(B, L, E),
        r(E, E)),
    "kendall_tau": lambda: of(analysis.kendall_tau, r(B, S), r(S, B).mT),
    "local_m_mask": lambda: of(lambda t, n: fn.local_m_mask(t, n, 1.0, S), torch.arange(L),
        lengths),
    "local_p_position": lambda: of(fn.local_p_position, r(B, L, E), r(D, E), r(D), lengths),
    "local_window_attention": lambda: of(lambda a, b, c, at: fn.local_window_attention(a, b, c, at,
        1.0, torch.tensor([S, 3]), gaussian=True), q, k, v, 2 + r(B, L)),
    "local_p_weights": lambda: of(lambda s, c: fn.local_p_weights(s, c, 2.0), r(B, L, S),
        3 + r(B, L)),
    "location_score": lambda: of(lambda a, b, w: fn.location_score(a, b, weight=w), q, k,
        r(2 * S, E)),
    "log_softmax": lambda: of(fn.log_softmax, r(B, S)),
    "logsumexp": lambda: of(fn.logsumexp, r(B, S)),
    "lstm_cell": lambda: of(lambda x, h, c, *w: fn.lstm_cell(x, (h, c), *w), r(B, D), r(B, E),
        r(E, B).mT, r(4 * E, D), r(4 * E, E), r(4 * E), r(4 * E)),
    "masked_softmax": lambda: of(fn.masked_softmax, r(B, S), mask),
    "memory_hop": lambda: of(fn.memory_hop, r(B, E), k, v, mask),
    "permute_weights": lambda: of(analysis.permute_weights, p(B, S), random=True),
    "position_encoding": lambda: of(lambda x: x * fn.position_encoding(L, E), q),
    "reinforce_loss": lambda: of(fn.reinforce_loss, r(B), r(B) + 1),
    "rnn_cell": lambda: of(fn.rnn_cell, r(B, D), r(B, E), r(E, D), r(E, E), r(E), r(E)),
    "rnn_jacobian": lambda: of(fn.rnn_jacobian, r(B, E), r(E, E)),
    "sample_attention": lambda: of(lambda w, u: fn.sample_attention(w, uniform=u), p(B, S),
        torch.tensor([0.1, 0.8])),
    "scaled_dot_score": lambda: of(fn.scaled_dot_score, q, k),
    "score_function_gradient": lambda: of(fn.score_function_gradient, p(B, S), torch.eye(S)[:B],
        r(B)),
    "sentence_ages": lambda: of(fn.sentence_ages, mask),
    "sentence_vectors": lambda: of(fn.sentence_vectors, k, mask),
    "softmax": lambda: of(fn.softmax, r(B, S)),
    "straight_through": lambda: of(fn.straight_through, p(B, S), random=True),
    "tanh_score": lambda: of(fn.tanh_score, q, k, r(E)),
    "total_variation": lambda: of(analysis.total_variation, p(B, S), p(S, B).mT),
    "weight_entropy": lambda: of(analysis.weight_entropy, p(B, S)),
    "weighted_mean": lambda: of(fn.weighted_mean, p(B, L, S), v.unsqueeze(1)),
    # scaled dot-product attention
    "attention_weights": lambda: of(lambda a, b: fn.attention_weights(a, b, is_causal=True),
        hq, hk),
    "tiled_attention": lambda: of(lambda a, b, c: fn.tiled_attention(a, b, c, is_causal=True,
        query_tile=2, key_tile=3), hq, hk, hv),
    "attention_with_lse": lambda: of(fn.attention_with_lse, hq, hk, hv, mask[:, None, None]),
    "sliding_window_attention": lambda: of(lambda a, b, c: fn.sliding_window_attention(a, b, c,
        window_size=3, dilation=[1, 1, 2], global_mask=~mask), hk, hk, hv),
    "sparse_attention": lambda: of(lambda a, b, c: fn.sparse_attention(a, b, c,
        mask[:, None, None].expand(len(a), -1, -1, -1), pattern=PATTERN), hk, hk,
        hv),
    **untraced(
        "a rule that is made before anything is traced; its mask_mod is traced",
        "Pattern PatternPart PatternTile blockwise_pattern causal_pattern fixed_pattern "
        "global_pattern random_pattern strided_pattern window_pattern",
    ),
    "receptive_field": lambda: of(lambda m: analysis.receptive_field(m > 0, 3), r(S, S)),
    "merge_attention": lambda: of(lambda a, b, c, d: fn.merge_attention([a, b], [c, d]), hq,
        hq.flip(-1), r(B, H, L), r(B, L, H).mT),
    "scaled_dot_product_attention": lambda: of(lambda a, b, c,
        m: (fn.scaled_dot_product_attention(a, b, c, m),
        fn.scaled_dot_product_attention(a, b[..., :1, :, :], c[..., :1, :, :].nan_to_num(),
        is_causal=True, enable_gqa=True)), hq, hk,
        hv.masked_fill(~mask[:, None, :, None], torch.nan), mask[:, None, None]),
    # positions, norms, feed-forward
    "alibi_bias": lambda: of(lambda x: x + fn.alibi_bias(H, L, S), r(B, H, L, S)),
    "alibi_slopes": lambda: of(lambda x: x * fn.alibi_slopes(H), r(B, H)),
    "apply_rope": lambda: of(fn.apply_rope, hq, torch.arange(L)),
    "batch_norm": lambda: of(lambda x, m: fn.batch_norm(x, mask=m), k, mask,
        no_vmap="mixes the examples of one batch on purpose, and picks the real ones by value"),
    "causal_convolution": lambda: of(fn.causal_convolution, q, r(D, E, 3)),
    "feed_forward": lambda: of(fn.feed_forward, q, r(D, E), r(E, D)),
    "gelu": lambda: of(fn.gelu, q),
    "layer_norm": lambda: of(fn.layer_norm, q, r(E), r(E)),
    "linear_scaling": lambda: of(lambda f: fn.linear_scaling(f, factor=2.0), r(E)),
    "yarn_scaling": lambda: of(lambda f: fn.yarn_scaling(f, factor=2.0, original_length=32),
        fn.rope_frequencies(8)),
    "llama3_scaling": lambda: of(lambda f: fn.llama3_scaling(f, factor=2.0), r(E).abs() + 0.1),
    "relative_position_bucket": lambda: of(fn.relative_position_bucket, torch.arange(-9, 9)),
    "rms_norm": lambda: of(fn.rms_norm, q, r(E)),
    "rope_frequencies": lambda: of(lambda x: x * fn.rope_frequencies(2 * E), q),
    "sinusoidal_positions": lambda: of(lambda x: x + fn.sinusoidal_positions(L, E), q),
    "swiglu": lambda: of(fn.swiglu, q, r(D, E), r(E, D).mT),
    # vision
    "convolution_as_attention": lambda: of(fn.convolution_as_attention, r(B, D, 3, E),
        r(H, D, 3, 3), r(H)),
    "interpolate_positions": lambda: of(lambda x: fn.interpolate_positions(x, (2, 3), (3, 4),
        num_prefix=1), r(7, D)),
    "patchify": lambda: of(lambda x: fn.patchify(x, 2), r(B, H, E, D)),
    "shift_bias": lambda: of(lambda x: fn.shift_bias(2, 3, x), r(H, 2)),
    "sinusoidal_positions_2d": lambda: of(lambda x: x + fn.sinusoidal_positions_2d(2, 3, E),
        r(6, E)),
    "unpatchify": lambda: of(lambda x: fn.unpatchify(x, (4, 6), 2), r(B, 6, 12)),
    # looking inside
    "attention_rollout": lambda: of(lambda a, b: analysis.attention_rollout([a, b]), p(B, H, L, L),
        p(B, H, L, L).flip(-1)),
    "induction_score": lambda: of(analysis.induction_score, p(B, H, L, L), ids(B, L)),
    "previous_token_score": lambda: of(analysis.previous_token_score, p(B, H, L, L)),
    # hashing, low rank, linear attention
    "chunk_attention": lambda: of(lambda a, b, c, m: fn.chunk_attention(a, b, c, chunk_size=3,
        padding_mask=m), hk, hv, hv.flip(-1), mask),
    "cumulative_spectrum": lambda: of(analysis.cumulative_spectrum, r(B, S, E)),
    "delta_rule": lambda: of(lambda a, b, c, d: fn.delta_rule(a, b, c, d, chunk_size=3), hk,
        hv / 3, hv.flip(-1), p(B, H, S)),
    "delta_rule_recurrent": lambda: of(fn.delta_rule_recurrent, hk, hv / 3,
        hv.flip(-1), p(B, H, S)),
    "delta_rule_step": lambda: of(fn.delta_rule_step, r(B, H, E), r(H, B, E).mT.reshape(B, H, E),
        r(B, H, D), p(B, H)),
    "elu_feature_map": lambda: of(fn.elu_feature_map, q),
    "gated_linear_attention": lambda: of(lambda a, b, c, d: fn.gated_linear_attention(a, b, c, -d,
        chunk_size=3), hk, hv / 3, hv.flip(-1), p(B, H, S, E)),
    "linear_attention": lambda: of(lambda a, b, c, m: (fn.linear_attention(a, b, c, is_causal=True,
        chunk_size=3), fn.linear_attention(a, b, c, padding_mask=m)), hk, hv,
        hv.flip(-1), mask),
    "linear_attention_fn": lambda: of(fn.linear_attention_fn(), hq, hk, hv, mask[:, None, None]),
    "linear_attention_parallel": lambda: of(lambda a, b, c: fn.linear_attention_parallel(a, b, c,
        is_causal=True), hk.exp(), hv.exp(), hv.flip(-1)),
    "linear_attention_recurrent": lambda: of(fn.linear_attention_recurrent, hk.exp(),
        hv.exp(), hv.flip(-1)),
    "linear_attention_step": lambda: of(fn.linear_attention_step, p(B, H, E), p(B, H, E).flip(-1),
        r(B, H, D)),
    "linformer_attention": lambda: of(lambda a, b, c, w, u, m: fn.linformer_attention(a, b, c, w, u,
        padding_mask=m), hq, hk, hv, r(3, S), r(S, 3).mT, mask),
    "lsh_attention": lambda: of(lambda a, b, m, t: fn.lsh_attention(a, b, fn.lsh_buckets(a, t),
        chunk_size=3, padding_mask=m), hk, hv, mask, r(H, E, 2, 2)),
    "lsh_buckets": lambda: of(fn.lsh_buckets, hk, r(H, E, 2, 2)),
    "lsh_mask": lambda: of(lambda a, t: fn.lsh_mask(fn.lsh_buckets(a, t), chunk_size=3), hk,
        r(H, E, 2, 2)),
    "performer_directions": lambda: of(lambda x: x @ fn.performer_directions(6, E).mT, q,
        random=True),
    "performer_features": lambda: of(fn.performer_features, q, r(6, E)),
    "random_rotations": lambda: of(lambda x: x + fn.random_rotations(H, E, n_buckets=4, n_hashes=2),
        r(H, E, 2, 2), random=True),
    "unit_keys": lambda: of(fn.unit_keys, q),
}  # fmt: skip


def score(name: str) -> Row:
    sizes = {"query_size": E, "key_size": E, "hidden_size": D, "max_length": S}
    return made(ann.make_score(name, **sizes), q, k)


def decoder(kind: Any, **options: Any) -> Row:
    sizes = {"vocab_size": V, "embed_dim": E, "context_size": D, "summary_size": E}

    def call(module: Any, notes: Tensor, summary: Tensor, real: Tensor, target: Tensor) -> Any:
        return module(target, module.init_state(notes, summary, real))[:2]

    module = kind(**sizes, hidden_size=D, **options)
    return made(module, v, r(B, E), mask, ids(B, 2), call=call)


def encoder_decoder(with_attention: bool) -> nn.Module:
    sizes = {"vocab_size": V, "embed_dim": E, "hidden_size": D}
    if not with_attention:
        plain = ann.Decoder(**sizes, context_size=D)
        return ann.EncoderDecoder(encoder=ann.Encoder(**sizes), decoder=plain)
    return ann.AttentionEncoderDecoder(
        encoder=ann.BidirectionalEncoder(**sizes),
        decoder=ann.BahdanauDecoder(**sizes, context_size=2 * D, summary_size=D),
    )


BUILDS = "builds a model: the rows of its classes go through it"
CACHE = "a container that grows from call to call: the models' own tests run it step by step"
HOOKS = "hooks into a model while it runs, from outside"


def mha(**options: Any) -> nn.Module:
    return ann.MultiHeadAttention(embed_dim=E, num_heads=2, **options)


def reversible() -> Any:
    return ann.ReversibleBlock(
        attention=ann.ChunkSelfAttention(embed_dim=E, num_heads=2, chunk_size=3),
        attention_norm=ann.LayerNorm(embed_dim=E),
        feed_forward=ann.FeedForward(embed_dim=E, hidden_dim=D),
        feed_forward_norm=ann.LayerNorm(embed_dim=E),
    )


def tiny(kind: str) -> Any:
    sizes = {"vocab_size": V, "embed_dim": 8, "num_heads": 2, "num_layers": 1, "hidden_dim": 12}
    return getattr(ann, f"{kind}_like")(**sizes)


NN: dict[str, Callable[[], Row]] = {
    **untraced(BUILDS, "bert_like decoder_only gpt2_like vaswani_like vit_like"),
    **untraced(HOOKS, "Captured at_positions capture patched without_heads"),
    **untraced(CACHE, "CrossCache DecoderCache KVCache ModelCache SlidingCache"),
    **untraced(TUPLE, "AttentionMemory BahdanauState LuongState"),
    **untraced(PROTOCOL, "Cell SCORES Score TwoStepScore make_score"),
    **untraced(COUNTS, "VIT_SIZES"),
    "AdditiveScore": lambda: score("additive"),
    "Attention": lambda: made(ann.Attention(query_projection=nn.Linear(E, E)), q, k, v,
        mask.unsqueeze(1)),
    "AttentionEncoderDecoder": lambda: made(encoder_decoder(True), ids(B, 3), torch.tensor([3, 2]),
        ids(B, 2)),
    "BahdanauDecoder": lambda: decoder(ann.BahdanauDecoder),
    "BidirectionalEncoder": lambda: made(ann.BidirectionalEncoder(vocab_size=V, embed_dim=E,
        hidden_size=D), ids(B, 3), torch.tensor([3, 2])),
    "ConcatScore": lambda: score("concat"),
    "CosineScore": lambda: score("cosine"),
    "Decoder": lambda: made(ann.Decoder(vocab_size=V, embed_dim=E, context_size=D, hidden_size=D),
        ids(B, 3), r(B, D), call=lambda m, target, context: m(target, m.init_state(context))),
    "DotScore": lambda: score("dot"),
    "Encoder": lambda: made(ann.Encoder(vocab_size=V, embed_dim=E, hidden_size=D,
        cell=ann.LSTMCell), ids(B, 3), torch.tensor([3, 2])),
    "EncoderDecoder": lambda: made(encoder_decoder(False), ids(B, 3), torch.tensor([3, 2]),
        ids(B, 2)),
    "GRUCell": lambda: made(ann.GRUCell(input_size=E, hidden_size=D), r(B, E), r(B, D)),
    "GeneralScore": lambda: score("general"),
    "LSTMCell": lambda: made(ann.LSTMCell(input_size=E, hidden_size=D), r(B, E)),
    "LocalM": lambda: made(ann.LocalM(half_width=1), r(B, L, S), r(B, L, D),
        torch.arange(L).expand(B, L), mask),
    "LocalP": lambda: made(ann.LocalP(half_width=1, query_size=D), r(B, L, S), r(B, L, D),
        torch.arange(L).expand(B, L), mask),
    "LocationScore": lambda: score("location"),
    "LuongDecoder": lambda: decoder(ann.LuongDecoder,
        window=ann.LocalP(half_width=2, query_size=D)),
    "MemoryNetwork": lambda: made(ann.MemoryNetwork(vocab_size=V, embed_dim=E, max_sentences=4,
        hops=2), ids(B, 3, 4), ids(B, 3)),
    "RNNCell": lambda: made(ann.RNNCell(input_size=E, hidden_size=D), r(B, E)),
    "Recurrent": lambda: made(ann.Recurrent(cell=ann.GRUCell(input_size=E, hidden_size=D),
        reverse=True), r(B, 3, E), torch.tensor([3, 1]), call=lambda m, x, n: m(x, lengths=n)),
    "ScaledDotScore": lambda: score("scaled_dot"),
    # the Transformer
    "AlibiPositions": lambda: made(mha(position=ann.AlibiPositions(num_heads=2)), q),
    "DecoderBlock": lambda: made(tiny("vaswani").decoder.blocks[0], r(B, L, 8), r(B, S, 8)),
    "EncoderBlock": lambda: made(tiny("vaswani").encoder.blocks[0], r(B, L, 8)),
    "EncoderModel": lambda: made(tiny("bert"), ids(B, L), mask[:, :L], ids(B, L) % 2,
        call=lambda m, a, real, kinds: m(a, real, token_types=kinds)),
    "FeedForward": lambda: made(ann.FeedForward(embed_dim=E, hidden_dim=D), q),
    "GatedFeedForward": lambda: made(ann.GatedFeedForward(embed_dim=E, hidden_dim=D), q),
    "LanguageModel": lambda: made(tiny("gpt2"), ids(B, L), mask[:, :L].flip(1)),
    "LayerNorm": lambda: made(ann.LayerNorm(embed_dim=E), q),
    "LearnedPositions": lambda: made(ann.LearnedPositions(max_length=9, embed_dim=E),
        torch.arange(L), call=lambda m, at: m(at, L)),
    "BigBirdSelfAttention": lambda: made(ann.BigBirdSelfAttention(embed_dim=D, num_heads=2,
        block_size=1, num_random_blocks=1), r(B, 9, D)),
    "LongformerSelfAttention": lambda: made(ann.LongformerSelfAttention(embed_dim=D, num_heads=2,
        window_size=3), r(B, S, D),
        call=lambda m, x: m(x, mask[:, None, None], global_mask=torch.arange(S).expand(B, S) == 1)),
    "LowRankLinear": lambda: made(ann.LowRankLinear(in_features=E, out_features=D, rank=2), q),
    "MaskedWordHead": lambda: made(ann.MaskedWordHead(embed_dim=E, tokens=nn.Embedding(V, E),
        norm=ann.LayerNorm(embed_dim=E)), q),
    "MultiHeadAttention": lambda: made(mha(num_kv_heads=1), q, k, v[..., :E],
        call=lambda m, a, b, c: (m(a, b, c), m.weights(a, b))),
    "MultiHeadLatentAttention": lambda: made(ann.MultiHeadLatentAttention(embed_dim=E, num_heads=2,
        head_dim=4, rope_dim=2, kv_rank=3), q, call=lambda m, a: m(a, is_causal=True)),
    "Pooler": lambda: made(ann.Pooler(embed_dim=E), q),
    "RMSNorm": lambda: made(ann.RMSNorm(embed_dim=E), q),
    "RelativePositions": lambda: made(mha(position=ann.RelativePositions(num_heads=2)), q),
    "RotaryPositions": lambda: made(mha(position=ann.RotaryPositions(), num_kv_heads=1), q,
        mask[:, :L].long().cumsum(1) - 1, call=lambda m, a, at: m(a, is_causal=True, positions=at)),
    "SinusoidalPositions": lambda: made(ann.SinusoidalPositions(embed_dim=E), torch.arange(L),
        call=lambda m, at: m(at, L)),
    "TokenEmbedding": lambda: made(ann.TokenEmbedding(vocab_size=V, embed_dim=E), ids(B, L)),
    "Transformer": lambda: made(tiny("vaswani"), ids(B, S), mask, ids(B, L),
        call=lambda m, a, real, b: m(a, real, decoder_input_ids=b)),
    "TransformerDecoder": lambda: made(tiny("vaswani").decoder, r(B, L, 8), r(B, S, 8)),
    "TransformerEncoder": lambda: made(tiny("vaswani").encoder, r(B, L, 8)),
    "init_residual": lambda: Row(why="draws the parameters of a model in place"),
    "llama_like": lambda: made(tiny("llama"), ids(B, L)),
    "AxialPositions": lambda: made(ann.AxialPositions(shape=(3, 4), dims=(2, 2)), torch.arange(L),
        call=lambda m, at: m(at, L)),
    "ChunkSelfAttention": lambda: made(ann.ChunkSelfAttention(embed_dim=E, num_heads=2,
        chunk_size=3), k, mask),
    "DeltaRuleAttention": lambda: made(ann.DeltaRuleAttention(embed_dim=E, num_heads=2), q),
    "LSHSelfAttention": lambda: made(ann.LSHSelfAttention(embed_dim=E, num_heads=2, chunk_size=3,
        n_buckets=4), k, mask, random=True),
    "LengthProjection": lambda: Row(why="a parameter: the row of LinformerAttention uses it"),
    "LinformerAttention": lambda: made(
        ann.LinformerAttention(
            key_projection=(one := ann.linformer.LengthProjection(max_length=9, rank=3)),
            value_projection=one),
        hq, hk, hv, mask[:, None, None]),
    "ReformerEncoder": lambda: made(ann.ReformerEncoder(blocks=[reversible()],
        norm=ann.LayerNorm(embed_dim=2 * E)), q),
    "ReversibleBlock": lambda: made(reversible(), q, q.flip(-1)),
    "ReversibleSequence": lambda: made(ann.ReversibleSequence(blocks=[reversible()]), q,
        q.flip(-1)),
    # vision
    "LearnedGridPositions": lambda: made(ann.LearnedGridPositions(grid_size=(2, 3), embed_dim=E,
        num_prefix=1), r(E), call=lambda m, x: m(3, 4) + x),
    "PatchEmbedding": lambda: made(ann.PatchEmbedding(patch_size=2, num_channels=H, embed_dim=E),
        r(B, H, 4, 6)),
    "PreActivationBlock": lambda: made(residual_network.PreActivationBlock(in_channels=4,
        out_channels=8, stride=2, num_groups=2), r(B, 4, 4, 6)),
    "ResidualNetwork": lambda: made(ann.ResidualNetwork(num_channels=H, widths=(4, 8),
        num_groups=2), r(B, H, 4, 6)),
    "WindowPositions": lambda: made(mha(position=ann.WindowPositions(before=1,
        position=ann.RotaryPositions())), q),
    "ShiftPositions": lambda: made(ann.vision.ShiftPositions(image_size=(2, 3), kernel_size=3),
        r(6), call=lambda m, x: m.bias(torch.arange(6), torch.arange(6)) + x),
    "SinusoidalGridPositions": lambda: made(ann.vision.SinusoidalGridPositions(embed_dim=E,
        num_prefix=1), r(E), call=lambda m, x: m(3, 4) + x),
    "StandardizedConv2d": lambda: made(residual_network.StandardizedConv2d(in_channels=H,
        out_channels=4, kernel_size=3), r(B, H, 4, 6)),
    "VisionTransformer": lambda: made(ann.vit_like(image_size=4, patch_size=2, num_channels=H,
        embed_dim=8, num_heads=2, num_layers=1, hidden_dim=D, num_classes=5), r(B, H, 4, 4)),
    "attention_from_convolution": lambda: made(ann.attention_from_convolution(nn.Conv2d(H, H, 3,
        padding=1, padding_mode="replicate"), image_size=(2, 3)), r(B, 6, H)),
}  # fmt: skip

PARTS = {"functional": fn, "analysis": analysis, "nn": ann}
ROWS = {
    ("analysis" if name in analysis.__all__ else "functional", name): row
    for name, row in FUNCTIONAL.items()
}
ROWS |= {("nn", name): row for name, row in NN.items()}
TRACED = [key for key, row in ROWS.items() if not row().why and hasattr(PARTS[key[0]], key[1])]


def all_masks(lengths: Tensor, ids: Tensor) -> Tensor:
    """Every mask and converter once."""
    size = ids.shape[-1]
    mask = masks.padding_mask(lengths, size)[:, None] & masks.causal_mask(size)
    mask = mask & masks.prefix_mask(size, prefix_length=lengths) | masks.document_mask(ids)
    mask = mask & masks.window_mask(size, window_size=3, causal=False)
    mask = mask | masks.strided_mask(size, stride=3) | masks.global_mask(ids == 0)
    mask = masks.from_multihead_mask(masks.to_multihead_mask(mask[:, None]), num_heads=1)
    return masks.from_additive_mask(masks.to_additive_mask(mask))


class Called(nn.Module):
    """A row as a module, so that its parameters are seen by ``torch.export``."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.module, self._call = row.module, row.call

    def forward(self, *tensors: Tensor) -> Any:
        return self._call(*([] if self.module is None else [self.module]), *tensors)


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """The package without the import hook of the tests, whose wrappers cannot be traced."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    torch._dynamo.reset()
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


def agree(got: Any, want: Any, *, random: bool) -> None:
    ours, theirs = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        if random:
            assert mine.shape == other.shape
        else:
            assert_close(mine, other)


@pytest.mark.parametrize(("part", "name"), [*TRACED, ("masks", "all")])
def test_compiled_exported_and_mapped_it_gives_what_it_gives(part: str, name: str) -> None:
    torch.manual_seed(0)
    row = of(all_masks, torch.tensor([2, 5]), ids(2, S)) if part == "masks" else ROWS[part, name]()
    plain = Called(row).eval()
    before = [tensor.clone() for tensor in row.tensors]
    want = plain(*row.tensors)
    assert_close(list(row.tensors), before, rtol=0, atol=0, equal_nan=True)
    compiled = torch.compile(plain, fullgraph=True, backend="eager")
    agree(compiled(*row.tensors), want, random=row.random)
    exported = torch.export.export(plain, row.tensors).module()
    agree(exported(*row.tensors), want, random=row.random)
    if row.no_vmap:
        return
    twice = [torch.stack([tensor, tensor]) for tensor in row.tensors]
    mapped = torch.vmap(plain, randomness="different")(*twice)
    for place in range(2):
        agree(pytree.tree_map(lambda part: part[place], mapped), want, random=row.random)  # noqa: B023


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_every_public_name_has_a_row(part: types.ModuleType) -> None:
    short = part.__name__.rpartition(".")[2]
    rows = {name for section, name in ROWS if section == short}
    assert set(part.__all__) <= rows, "add a row to tests/test_compile.py"
    assert all(row.why or row.call for row in (make() for make in ROWS.values()))


def test_a_look_at_a_value_is_noticed() -> None:
    def looks(x: Tensor) -> Tensor:
        return x if bool((x > 0).any()) else -x

    with pytest.raises((torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError)):
        torch.compile(looks, fullgraph=True, backend="eager")(r(3))
    with pytest.raises(RuntimeError):
        torch.vmap(looks)(r(2, 3))


def test_values_are_looked_at_again_outside() -> None:
    torch.vmap(analysis.weight_entropy)(-p(2, 3))
    refused("expected at least 0", analysis.weight_entropy, -p(3))
    refused("expected at least 0", analysis.total_variation, p(3), -p(3))
