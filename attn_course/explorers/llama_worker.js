// The package's small language model, in plain JavaScript and in a worker of its own. It keeps keys
// and values, so that one more character costs one column. A test compares its logits with those of
// attn_course.data.load_language_model.
const dot = (weight, row, x) => {
  let sum = 0;
  for (let i = 0, at = row * x.length; i < x.length; i++, at++) sum += weight[at] * x[i];
  return sum;
};
const linear = (weight, x) => Float32Array.from({ length: weight.length / x.length }, (_, row) => dot(weight, row, x));
const norm = (weight, x, eps) => {
  let square = 0;
  for (const value of x) square += value * value;
  const scale = 1 / Math.sqrt(square / x.length + eps);
  return x.map((value, i) => value * scale * weight[i]);
};

export class Llama {
  constructor(buffer) {
    const size = Number(new DataView(buffer).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, size)));
    const read = (name) => {
      const { dtype, data_offsets: [from, to] } = header[name];
      const bytes = buffer.slice(8 + size + from, 8 + size + to);
      return dtype === "I8" ? new Int8Array(bytes) : new Float32Array(bytes);
    };
    this.weights = {};
    for (const name of Object.keys(header)) {
      if (name === "__metadata__" || name.endsWith(".scale")) continue;
      const values = read(name), scales = header[`${name}.scale`] && read(`${name}.scale`);
      const width = header[name].shape[1];
      this.weights[name] = scales ? Float32Array.from(values, (value, i) => value * scales[Math.floor(i / width)]) : values;
    }
    const card = JSON.parse(header.__metadata__.card);
    Object.assign(this, card.config, { alphabet: card.alphabet, headDim: card.config.embed_dim / card.config.num_heads });
    this.off = new Set();
    this.keep(0);
  }

  // Forget what comes after the first `length` characters.
  keep(length) {
    const cut = (list) => list?.slice(0, length) ?? [];
    this.ids = cut(this.ids);
    this.logits = cut(this.logits);
    this.attention = cut(this.attention);
    this.cache = Array.from({ length: this.num_layers }, (_, n) => ({ keys: cut(this.cache?.[n].keys), values: cut(this.cache?.[n].values) }));
  }

  rotate(x, position) {
    const half = this.headDim / 2;
    for (let start = 0; start < x.length; start += this.headDim) {
      for (let i = start; i < start + half; i++) {
        const angle = position * 10000 ** (-(i - start) / half), cosine = Math.cos(angle), sine = Math.sin(angle);
        const a = x[i], b = x[i + half];
        x[i] = a * cosine - b * sine;
        x[i + half] = a * sine + b * cosine;
      }
    }
    return x;
  }

  // One more character: logits of the next one, and the weights of every head, layer by layer.
  feed(id) {
    const position = this.ids.length, E = this.headDim, group = this.num_heads / this.num_kv_heads, W = this.weights;
    let x = W["embedding.tokens.weight"].slice(id * this.embed_dim, (id + 1) * this.embed_dim);
    const heads = [];
    this.stream = [x];
    for (let n = 0; n < this.num_layers; n++) {
      const at = (name) => W[`blocks.${n}.${name}.weight`];
      const input = norm(at("attention_norm"), x, this.eps);
      const query = this.rotate(linear(at("attention.query_projection"), input), position);
      const { keys, values } = this.cache[n];
      keys.push(this.rotate(linear(at("attention.key_projection"), input), position));
      values.push(linear(at("attention.value_projection"), input));
      const mixed = new Float32Array(this.num_heads * E);
      for (let head = 0; head < this.num_heads; head++) {
        const from = Math.floor(head / group) * E;
        const scores = keys.map((key) => {
          let score = 0;
          for (let i = 0; i < E; i++) score += query[head * E + i] * key[from + i];
          return score / Math.sqrt(E);
        });
        const top = Math.max(...scores), powers = scores.map((score) => Math.exp(score - top));
        const total = powers.reduce((sum, power) => sum + power, 0), weights = powers.map((power) => power / total);
        if (!this.off.has(n * this.num_heads + head)) weights.forEach((weight, j) => { for (let i = 0; i < E; i++) mixed[head * E + i] += weight * values[j][from + i]; });
        heads.push(Float32Array.from(weights));
      }
      const added = linear(at("attention.output_projection"), mixed);
      x = x.map((value, i) => value + added[i]);
      const inner = norm(at("feed_forward_norm"), x, this.eps);
      const gate = linear(at("feed_forward.gate_projection"), inner), up = linear(at("feed_forward.up_projection"), inner);
      const down = linear(at("feed_forward.down_projection"), gate.map((value, i) => (value / (1 + Math.exp(-value))) * up[i]));
      x = x.map((value, i) => value + down[i]);
      this.stream.push(x);
    }
    this.ids.push(id);
    this.attention.push(heads);
    this.logits.push(this.predict(x));
  }

  predict(x) { return linear(this.weights["output_projection.weight"], norm(this.weights["norm.weight"], x, this.eps)); }

  // Logits after the embedding and after each block, at the last character, with some heads off.
  without(text, off) {
    this.keep(0);
    this.off = new Set(off);
    const attention = this.read(text).attention.at(-1), logits = this.stream.map((x) => Array.from(this.predict(x)));
    this.keep(0);
    this.off = new Set();
    return { logits, attention: attention.map((head) => Array.from(head)) };
  }

  // Read a text; only what differs from the last one is computed.
  read(text) {
    const ids = [...text].map((character) => this.alphabet.indexOf(character));
    let same = 0;
    while (same < ids.length && ids[same] === this.ids[same]) same++;
    this.keep(same);
    for (const id of ids.slice(same)) this.feed(id);
    return { logits: this.logits, attention: this.attention, computed: ids.length - same };
  }
}

async function load(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error(`${answer.status} for ${address}`);
  return new Llama(await answer.arrayBuffer());
}

let loaded = null;
if (typeof self !== "undefined" && typeof window === "undefined") {
  self.onmessage = async ({ data: { id, address, text, at, off } }) => {
    try {
      const model = await (loaded ??= load(address));
      if (off) {
        const { logits: before, attention } = model.without(text, []);
        self.postMessage({ id, before, attention, after: off.length ? model.without(text, off).logits : before });
        return;
      }
      const started = performance.now(), { logits, attention, computed } = model.read(text);
      const milliseconds = (performance.now() - started) / Math.max(1, computed);
      self.postMessage({ id, logits: logits[at], attention: attention[at], milliseconds, computed });
    } catch (error) {
      loaded = null;
      self.postMessage({ id, problem: String(error.message ?? error) });
    }
  };
}
