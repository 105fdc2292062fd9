"""Right answers to the exercises on language models, written differently."""

import math

import torch

from attn_course.probes import variant


def apply_rope(x, positions, base=10000.0):
    """RoPE of adjacent pairs, as at the top of the exercises."""
    pairs = torch.arange(0, x.shape[-1], 2, dtype=torch.float64)
    angles = (positions[:, None] * base ** (-pairs / x.shape[-1])).to(x.dtype)
    one, other = x[..., 0::2], x[..., 1::2]
    turned = one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()
    return torch.stack(turned, dim=-1).flatten(-2)


@variant(of="bits_per_character")
def bits_by_logsumexp(logits, targets):
    kept = targets != -1
    rows, right = logits[kept], targets[kept]
    said = rows[torch.arange(len(right)), right] - rows.logsumexp(-1)
    return -said.sum() / (kept.sum() * math.log(2))


@variant(of="bits_per_character")
def bits_by_cross_entropy(logits, targets):
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=-1
    )
    return loss * math.log2(math.e)


@variant(of="top_p")
def nucleus_by_threshold(logits, p):
    parts = logits.softmax(-1)
    ordered = parts.sort(-1, descending=True).values
    count = (ordered.cumsum(-1) < p).sum(-1, keepdim=True).clamp(max=logits.shape[-1] - 1)
    least = ordered.gather(-1, count)
    return torch.where(parts >= least, logits, -torch.inf)


@variant(of="top_p")
def nucleus_word_by_word(logits, p):
    result = torch.full_like(logits, -torch.inf)
    for row, kept in zip(
        logits.reshape(-1, logits.shape[-1]), result.view(-1, logits.shape[-1]), strict=False
    ):
        total, parts = 0.0, row.softmax(-1)
        for word in parts.argsort(descending=True).tolist():
            kept[word] = row[word]
            total += parts[word].item()
            if total >= p:
                break
    return result


@variant(of="sample_next")
def sample_word_by_word(logits, uniform, temperature=1.0, k=None):
    values = [x / temperature for x in logits.tolist()]
    order = sorted(range(len(values)), key=lambda word: -values[word])
    kept = sorted(order if k is None else order[:k])
    parts = [math.exp(values[word] - max(values)) for word in kept]
    total = 0.0
    for word, part in zip(kept, parts, strict=False):
        total += part / sum(parts)
        if total > uniform:
            return word
    return kept[-1]


@variant(of="sample_next")
def sample_by_search(logits, uniform, temperature=1.0, k=None):
    logits = logits / temperature
    if k is not None and k < len(logits):
        logits = logits.masked_fill(logits < logits.sort().values[-k], -torch.inf)
    sums = logits.double().softmax(0).cumsum(0)
    found = torch.searchsorted(sums, torch.tensor(uniform, dtype=torch.float64), right=True)
    return int(found.clamp(max=len(logits) - 1))


@variant(of="cached_attention")
def cached_by_positions(query, key, value, cache=None):
    keys = [key] if cache is None else [cache[0], key]
    values = [value] if cache is None else [cache[1], value]
    keys, values = torch.cat(keys, 2), torch.cat(values, 2)
    place = torch.arange(keys.shape[2])
    allowed = place[None] <= place[-query.shape[2] :, None]
    scores = torch.einsum("bhne,bhse->bhns", query, keys) * query.shape[-1] ** -0.5
    scores = torch.where(allowed, scores, -torch.inf)
    return torch.einsum("bhns,bhsv->bhnv", torch.softmax(scores, -1), values), (keys, values)


@variant(of="cached_attention")
def cached_one_by_one(query, key, value, cache=None):
    if cache is None:
        cache = key[:, :, :0], value[:, :, :0]
    keys, values = cache
    outputs = []
    for i in range(query.shape[2]):
        keys = torch.cat([keys, key[:, :, i : i + 1]], dim=2)
        values = torch.cat([values, value[:, :, i : i + 1]], dim=2)
        scores = query[:, :, i : i + 1] @ keys.mT / math.sqrt(query.shape[-1])
        outputs.append(scores.softmax(-1) @ values)
    return torch.cat(outputs, dim=2), (keys, values)


@variant(of="grouped_query_attention")
def grouped_by_repeating(query, key, value):
    share = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(share, dim=1) for x in (key, value))
    return (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1) @ value


@variant(of="grouped_query_attention")
def grouped_head_by_head(query, key, value):
    share = query.shape[1] // key.shape[1]
    heads = []
    for h in range(query.shape[1]):
        scores = query[:, h] @ key[:, h // share].transpose(1, 2) / math.sqrt(query.shape[-1])
        heads.append(scores.softmax(-1) @ value[:, h // share])
    return torch.stack(heads, dim=1)


@variant(of="latent_attention")
def latent_by_einsum(query, latent, key_up, value_up):
    short = torch.einsum("bhne,her->bhnr", query / query.shape[-1] ** 0.5, key_up)
    weights = torch.einsum("bhnr,bsr->bhns", short, latent).softmax(-1)
    mixed = torch.einsum("bhns,bsr->bhnr", weights, latent)
    return torch.einsum("bhnr,hvr->bhnv", mixed, value_up)


@variant(of="latent_attention")
def latent_head_by_head(query, latent, key_up, value_up):
    heads = []
    for h in range(query.shape[1]):
        scores = (query[:, h] @ key_up[h]) @ latent.mT / math.sqrt(query.shape[-1])
        heads.append(scores.softmax(-1) @ latent @ value_up[h].T)
    return torch.stack(heads, 1)


@variant(of="speculative_accept")
def accept_by_ratio(target, draft, words, uniforms):
    taken = 0
    while taken < len(words):
        word = int(words[taken])
        if uniforms[taken] >= min(1.0, float(target[taken, word] / draft[taken, word])):
            break
        taken += 1
    left = target[taken].double()
    if taken < len(words):
        left = torch.relu(left - draft[taken].double())
    sums = left.cumsum(0)
    last = next(i for i, s in enumerate(sums) if s > uniforms[-1] * sums[-1])
    return torch.cat([words[:taken], torch.tensor([last])])


@variant(of="speculative_accept")
def accept_at_once(target, draft, words, uniforms):
    n = len(words)
    places = torch.arange(n)
    kept = uniforms[:n] * draft[places, words] < target[places, words]
    taken = int(kept.long().cumprod(0).sum())
    rest = torch.cat([draft, torch.zeros_like(target[:1])])[taken]
    left = (target[taken] - rest).clamp(min=0).double()
    last = torch.searchsorted((left / left.sum()).cumsum(0), uniforms[-1].double(), right=True)
    return torch.cat([words[:taken], last.clamp(max=target.shape[1] - 1)[None]])


@variant(of="fixed_step")
def step_in_words(x, weight_query, weight_key, weight_value, cache_key, cache_value):
    total = len(cache_key) + len(x)
    places = torch.arange(len(cache_key), total)
    query, key = (apply_rope(x @ w.T, places) for w in (weight_query, weight_key))
    keys, values = torch.cat([cache_key, key]), torch.cat([cache_value, x @ weight_value.T])
    rows = []
    for row, place in zip(query, places.tolist(), strict=False):
        weights = (keys[: place + 1] @ row / len(row) ** 0.5).softmax(0)
        rows.append(weights @ values[: place + 1])
    return torch.stack(rows), keys, values


@variant(of="generate")
def generate_block_by_block(parameters, prompt, uniforms, attention, choose):
    def norm(x):
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6)

    def heads_of(x):
        return x.view(len(x), parameters["num_heads"], -1).permute(1, 0, 2)[None]

    caches, seen = {}, 0
    text, rows = prompt.tolist(), []
    for uniform in uniforms:
        places = torch.arange(seen, len(text))
        x = parameters["embedding"][text[seen:]]
        for number, block in enumerate(parameters["blocks"]):
            y = norm(x)
            q = apply_rope(heads_of(torch.matmul(y, block["query"].T)), places)
            k = apply_rope(heads_of(torch.matmul(y, block["key"].T)), places)
            v = heads_of(torch.matmul(y, block["value"].T))
            out, caches[number] = attention(q, k, v, caches.get(number))
            x = x + torch.einsum(
                "hne,dhe->nd", out[0], block["output"].unflatten(1, (out.shape[1], -1))
            )
            y = norm(x)
            gate = y @ block["gate"].T
            x = x + (gate * gate.sigmoid() * (y @ block["up"].T)) @ block["down"].T
        seen = len(text)
        rows.append(parameters["output_table"] @ norm(x)[-1])
        text.append(choose(rows[-1], float(uniform)))
    return torch.tensor(text[len(prompt) :]), torch.stack(rows)


@variant(of="generate")
def generate_token_by_token(parameters, prompt, uniforms, attention, choose):
    heads = parameters["num_heads"]
    caches = dict.fromkeys(range(len(parameters["blocks"])))

    def read(token, place):
        x = parameters["embedding"][token]
        for i, block in enumerate(parameters["blocks"]):
            y = x * (x.pow(2).mean() + 1e-6).rsqrt()
            q, k, v = (
                (block[name] @ y).view(1, heads, 1, -1) for name in ("query", "key", "value")
            )
            q, k = (apply_rope(part, torch.tensor([place])) for part in (q, k))
            found, caches[i] = attention(q, k, v, caches[i])
            x = x + block["output"] @ found.flatten()
            y = x * (x.pow(2).mean() + 1e-6).rsqrt()
            hidden = torch.nn.functional.silu(block["gate"] @ y) * (block["up"] @ y)
            x = x + block["down"] @ hidden
        return parameters["output_table"] @ (x * (x.pow(2).mean() + 1e-6).rsqrt())

    words, rows = [], []
    for place, token in enumerate(prompt.tolist()):
        logits = read(token, place)
    for uniform in uniforms.tolist():
        rows.append(logits)
        words.append(choose(logits, uniform))
        if len(words) < len(uniforms):
            logits = read(words[-1], len(prompt) + len(words) - 1)
    return torch.tensor(words), torch.stack(rows)
