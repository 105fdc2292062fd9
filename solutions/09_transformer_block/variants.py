"""Right answers to the exercises on the Transformer block, written differently."""

import torch
from torch.nn import functional as F

from attn_course.probes import variant


@variant(of="layer_norm")
def layer_norm_by_var(x, weight=None, bias=None, eps=1e-5):
    variance, mean = torch.var_mean(x, dim=-1, keepdim=True, correction=0)
    y = (x - mean) * torch.rsqrt(variance + eps)
    y = y * (1.0 if weight is None else weight)
    return y + (0.0 if bias is None else bias)


@variant(of="layer_norm")
def layer_norm_by_einsum(x, weight=None, bias=None, eps=1e-5):
    size = x.shape[-1]
    y = x - torch.einsum("...d->...", x).unsqueeze(-1) / size
    y = y / ((y * y).sum(-1, keepdim=True) / size + eps) ** 0.5
    if weight is not None:
        y = torch.einsum("...d,d->...d", y, weight)
    return y if bias is None else torch.add(y, bias)


@variant(of="rms_norm")
def rms_norm_by_norm(x, weight=None, eps=1e-6):
    mean_square = torch.linalg.vecdot(x, x)[..., None] / x.shape[-1]
    return x * torch.rsqrt(mean_square + eps) * (1.0 if weight is None else weight)


@variant(of="rms_norm")
def rms_norm_by_einsum(x, weight=None, eps=1e-6):
    mean_square = torch.einsum("...d,...d->...", x, x) / x.size(-1)
    y = x / torch.sqrt(mean_square + eps).unsqueeze(-1)
    return y if weight is None else weight * y


@variant(of="feed_forward")
def feed_forward_by_linear(x, weight_in, weight_out, bias_in=None, bias_out=None):
    return F.linear(F.linear(x, weight_in, bias_in).clamp(min=0), weight_out, bias_out)


@variant(of="feed_forward")
def feed_forward_unit_by_unit(x, weight_in, weight_out, bias_in=None, bias_out=None):
    # each hidden unit reads one direction and, where it is positive, writes another
    output = 0 if bias_out is None else bias_out
    for f in range(len(weight_in)):
        held = (x * weight_in[f]).sum(-1, keepdim=True)
        held = held if bias_in is None else held + bias_in[f]
        output = output + torch.where(held > 0, held, 0.0) * weight_out[:, f]
    return output


@variant(of="swiglu")
def swiglu_by_silu(x, weight_gate, weight_up):
    return F.silu(F.linear(x, weight_gate)) * F.linear(x, weight_up)


@variant(of="swiglu")
def swiglu_by_tanh(x, weight_gate, weight_up):
    gate = torch.einsum("...d,fd->...f", x, weight_gate)
    up = torch.einsum("...d,fd->...f", x, weight_up)
    return gate * up * (1 + torch.tanh(gate / 2)) / 2


@variant(of="transformer_block")
def block_step_by_step(x, attention, feed_forward, norm_1, norm_2, norm_first):
    if norm_first:
        middle = x + attention(norm_1(x))
        return middle + feed_forward(norm_2(middle))
    middle = norm_1(x + attention(x))
    return norm_2(middle + feed_forward(middle))


@variant(of="transformer_block")
def block_by_functions(x, attention, feed_forward, norm_1, norm_2, norm_first):
    def same(y):
        return y

    def joined(part, norm):
        before, after = (norm, same) if norm_first else (same, norm)
        return lambda y: after(torch.add(part(before(y)), y))

    return joined(feed_forward, norm_2)(joined(attention, norm_1)(x))


@variant(of="block_parameters")
def parameters_part_by_part(embed_dim, num_heads, hidden_dim, cross_attention=False):
    head = embed_dim // num_heads
    attention = sum(num_heads * head * embed_dim for _ in ("query", "key", "value", "output"))
    norm = embed_dim + embed_dim
    up, down = embed_dim * hidden_dim + hidden_dim, hidden_dim * embed_dim + embed_dim
    total = attention + norm + up + down + norm
    return total + (attention + norm if cross_attention else 0)


@variant(of="block_parameters")
def parameters_of_a_module(embed_dim, num_heads, hidden_dim, cross_attention=False):
    make = torch.nn.TransformerDecoderLayer if cross_attention else torch.nn.TransformerEncoderLayer
    layer = make(embed_dim, num_heads, hidden_dim, device="meta")
    entries = {name: p.numel() for name, p in layer.named_parameters()}
    return sum(n for name, n in entries.items() if "attn" not in name or "bias" not in name)


@variant(of="block_flops")
def flops_by_products(length, embed_dim, num_heads, hidden_dim):
    def product(a, b, c):
        return 2 * a * b * c

    head = embed_dim // num_heads
    total = 4 * product(length, embed_dim, embed_dim)
    total += num_heads * product(length, head, length)  # scores
    total += num_heads * product(length, length, head)  # weighted sums
    up, down = (length, embed_dim, hidden_dim), (length, hidden_dim, embed_dim)
    return total + product(*up) + product(*down)


@variant(of="block_flops")
def flops_per_position(length, embed_dim, num_heads, hidden_dim):
    each = 8 * embed_dim**2 + 4 * embed_dim * hidden_dim
    return length * (each + 4 * embed_dim * length)


@variant(of="fixed_stack")
def stack_of_functions(x, weights_in, weights_out):
    def norm(y):
        return F.layer_norm(y, y.shape[-1:])

    for i in range(weights_in.shape[0]):
        hidden = F.relu(torch.einsum("bld,fd->blf", norm(x), weights_in[i]))
        x = torch.einsum("blf,df->bld", hidden, weights_out[i]) + x
    return norm(x)
