// How far back a recurrent network can feel. compute() runs the cells of attn_course.functional and
// their exact backward pass in float64; a test compares it with attn_course.probes.gradient_reach.
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// All matrices are flat arrays, row by row: a drag asks for 100 steps of 16 by 16 Jacobians.
// Plain loops: a callback for every number would be most of the work.
function flat(rows, factor = 1) {
  const width = rows[0].length, out = new Float64Array(rows.length * width);
  for (let i = 0; i < rows.length; i += 1) for (let j = 0; j < width; j += 1) out[i * width + j] = rows[i][j] * factor;
  return out;
}

function matvec(matrix, vector, count) {
  const width = vector.length, out = new Float64Array(count);
  for (let i = 0; i < count; i += 1) {
    let sum = 0;
    for (let j = 0; j < width; j += 1) sum += matrix[i * width + j] * vector[j];
    out[i] = sum;
  }
  return out;
}

// into += left times right, for `size` rows and columns of `left` and `width` columns of `right`.
function addProduct(into, left, right, size, width) {
  for (let r = 0; r < size; r += 1) {
    const from = r * size, to = r * width;
    for (let j = 0; j < width; j += 1) {
      let sum = into[to + j];
      for (let i = 0, at = j; i < size; i += 1, at += width) sum += left[from + i] * right[at];
      into[to + j] = sum;
    }
  }
}

// The derivative of one step: the sum of the gates' matrices, the rows of each times its factors.
function joined(matrices, factors, size) {
  const width = matrices[0].length / size, out = new Float64Array(size * width);
  for (let k = 0; k < matrices.length; k += 1) {
    for (let i = 0; i < size; i += 1) {
      const factor = factors[k][i];
      for (let j = 0; j < width; j += 1) out[i * width + j] += factor * matrices[k][i * width + j];
    }
  }
  return out;
}
function size2(matrix) {
  let sum = 0;
  for (let i = 0; i < matrix.length; i += 1) sum += matrix[i] * matrix[i];
  return Math.sqrt(sum);
}
function identity(size) {
  const out = new Float64Array(size * size);
  for (let i = 0; i < size; i += 1) out[i * size + i] = 1;
  return out;
}

// Backwards over the steps, with the derivative of the last state by the state of each step; noted is
// the Frobenius norm of its derivative by each input.
function backwards(steps, size, features, factors) {
  let jacobian = identity(size);
  return steps.reverse().map((step) => {
    const [byState, byInput] = factors(step), previous = new Float64Array(size * size), input = new Float64Array(size * features);
    addProduct(previous, jacobian, byState, size, size);
    addProduct(input, jacobian, byInput, size, features);
    jacobian = previous;
    return size2(input);
  });
}

function plainNetwork(xs, ih, hh, size) {
  const steps = [];
  let h = new Float64Array(size);
  for (const x of xs) {
    const a = matvec(ih[0], x, size), b = matvec(hh[0], h, size);
    steps.push((h = a.map((value, n) => Math.tanh(value + b[n]))));
  }
  return backwards(steps, size, xs[0].length, (state) => {
    const slope = [state.map((value) => 1 - value ** 2)];
    return [joined(hh, slope, size), joined(ih, slope, size)];
  });
}

function lstmNetwork(xs, ih, hh, size, bias) {
  const steps = [], features = xs[0].length;
  let h = new Float64Array(size), c = new Float64Array(size);
  for (const x of xs) {
    const [i, f, g, o] = ih.map((w, k) => {
      const a = matvec(w, x, size), b = matvec(hh[k], h, size);
      return a.map((value, n) => (k === 2 ? Math.tanh(value + b[n]) : sigmoid(value + b[n] + (k === 1 ? bias : 0))));
    });
    const before = c;
    c = before.map((value, n) => f[n] * value + i[n] * g[n]);
    const t = c.map(Math.tanh);
    h = t.map((value, n) => o[n] * value);
    steps.push({ i, f, g, o, t, before });
  }
  // two ways back, through the hidden state and through the cell
  let hidden = identity(size), cell = new Float64Array(size * size);
  return steps.reverse().map(({ i, f, g, o, t, before }) => {
    const open = o.map((value, n) => value * (1 - t[n] ** 2));
    const here = new Float64Array(size * size), older = new Float64Array(size * size);
    for (let r = 0, at = 0; r < size; r += 1) {
      for (let n = 0; n < size; n += 1, at += 1) {
        here[at] = cell[at] + hidden[at] * open[n];
        older[at] = here[at] * f[n];
      }
    }
    const inner = [
      g.map((value, n) => value * i[n] * (1 - i[n])),
      before.map((value, n) => value * f[n] * (1 - f[n])),
      i.map((value, n) => value * (1 - g[n] ** 2)),
    ];
    const outer = [t.map((value, n) => value * o[n] * (1 - o[n]))];
    const previous = new Float64Array(size * size), input = new Float64Array(size * features);
    addProduct(previous, here, joined(hh.slice(0, 3), inner, size), size, size);
    addProduct(previous, hidden, joined(hh.slice(3), outer, size), size, size);
    addProduct(input, here, joined(ih.slice(0, 3), inner, size), size, features);
    addProduct(input, hidden, joined(ih.slice(3), outer, size), size, features);
    hidden = previous;
    cell = older;
    return size2(input);
  });
}

function gruNetwork(xs, ih, hh, size, bias) {
  const steps = [];
  let h = new Float64Array(size);
  for (const x of xs) {
    const [r, z] = [0, 1].map((k) => {
      const fed = matvec(ih[k], x, size), held = matvec(hh[k], h, size);
      return fed.map((value, n) => sigmoid(value + held[n] + (k === 1 ? bias : 0)));
    });
    const back = matvec(hh[2], h, size), before = h;
    const n = matvec(ih[2], x, size).map((value, k) => Math.tanh(value + r[k] * back[k]));
    h = before.map((value, k) => (1 - z[k]) * n[k] + z[k] * value);
    steps.push({ r, z, n, back, before });
  }
  return backwards(steps, size, xs[0].length, ({ r, z, n, back, before }) => {
    const inner = z.map((value, k) => (1 - value) * (1 - n[k] ** 2));
    const reset = inner.map((value, k) => value * back[k] * r[k] * (1 - r[k]));
    const update = z.map((value, k) => (before[k] - n[k]) * value * (1 - value));
    const byState = joined(hh, [reset, update, inner.map((value, k) => value * r[k])], size);
    for (let k = 0; k < size; k += 1) byState[k * size + k] += z[k];
    return [byState, joined(ih, [reset, update, inner], size)];
  });
}

export function compute({ scale, bias, length, input_scale, weight_ih, weight_hh, inputs }) {
  const size = weight_hh[0].length, ih = weight_ih.map((block) => flat(block)), hh = weight_hh.map((block) => flat(block, scale));
  const xs = inputs.slice(0, length).map((row) => Float64Array.from(row, (value) => value * input_scale));
  return {
    RNN: plainNetwork(xs, [ih[0]], [hh[0]], size),
    LSTM: lstmNetwork(xs, ih, hh, size, bias),
    GRU: gruNetwork(xs, ih.slice(0, 3), hh.slice(0, 3), size, bias),
  };
}

const LITTLE = 1e-3; // of the gradient: where it no longer reaches
const LINES = [["RNN", "#0072b2", ""], ["LSTM", "#d55e00", "7 4"], ["GRU", "#009e73", "2 4"]];

function chart(width) {
  const [height, left, bottom, top] = [306, 50, 40, 54], right = width - 44;
  const frame = s("g"), answer = s("text", { x: 2, y: 14, class: "attn-x-panel" }), dots = LINES.map(([, colour]) => s("circle", { r: 4.5, fill: colour }));
  const curves = LINES.map(([, colour, dashes]) => s("path", { fill: "none", stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dashes }));
  const clip = unique("clip"), names = LINES.map(([name, colour]) => s("text", { x: right + 4, class: "attn-x-line-name", style: `--line: ${colour}` }, name));
  const node = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "attn-x-chart", "aria-label": "Share of the gradient that is left by lag, logarithmic, one curve for each kind of cell" },
    s("clipPath", { id: clip }, s("rect", { x: left, y: top, width: right - left, height: height - top - bottom })),
    answer, s("text", { x: 2, y: 34 }, "gradient left (0 steps back: 1)"), frame, s("g", { "clip-path": `url(#${clip})` }, ...curves), ...dots, ...names);
  return {
    node,
    draw(result, length, reach) {
      const logs = LINES.flatMap(([name]) => result[name]).filter((v) => v > 0 && Number.isFinite(v)).map(Math.log10);
      // Steps of four decades: the axis must not tremble with the slider.
      const low = Math.max(-40, 4 * Math.floor(Math.min(-8, ...logs) / 4)), high = Math.min(40, 4 * Math.ceil(Math.max(4, ...logs) / 4));
      const x = (lag) => left + ((right - left) * lag) / Math.max(1, length - 1);
      const y = (value) => top + ((height - top - bottom) * (high - Math.max(low - 1, Math.min(high + 1, Math.log10(value))))) / (high - low);
      const every = (high - low) / 4 > 6 ? 8 : 4;
      const marks = [];
      for (let d = low; d <= high; d += every) {
        const at = y(10 ** d);
        const label = s("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, "10");
        label.append(s("tspan", { dy: -4 }, String(d).replace("-", "−")));
        marks.push(s("path", { class: d === 0 ? "attn-x-axis" : "attn-x-grid", d: `M${left} ${at}H${right}` }), label);
      }
      const step = length > 60 ? 20 : length > 20 ? 10 : 5;
      for (let lag = 0; lag < length; lag += step) marks.push(s("text", { x: x(lag), y: height - bottom + 17, "text-anchor": "middle" }, String(lag)));
      const late = Object.values(reach).some((lag) => x(lag) > right - 100); // where no dot lies on the name
      marks.push(s("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "steps back"),
        s("path", { class: "attn-x-level", d: `M${left} ${y(LITTLE)}H${right}` }), s("text", { x: late ? left + 6 : right, y: y(LITTLE) + 5, "text-anchor": late ? "start" : "end", class: "attn-x-panel", style: "stroke-width: 8px" }, "limit: 1/1000"));
      answer.textContent = `Reach: ${LINES.map(([name]) => `${name} ${reach[name]}`).join(", ")} steps`;
      frame.replaceChildren(...marks);
      LINES.forEach(([name], k) => {
        const found = Number.isInteger(reach[name]);
        put(dots[k], { cx: found ? x(reach[name]).toFixed(1) : 0, cy: y(LITTLE).toFixed(1), display: found ? "inline" : "none" }, []);
        const points = result[name].map((value, lag) => [lag, value]).filter(([, value]) => value > 0 && Number.isFinite(value));
        curves[k].setAttribute("d", points.map(([lag, value], i) => `${i ? "L" : "M"}${x(lag).toFixed(1)} ${y(value).toFixed(1)}`).join(""));
      });
      // the names at the ends, from the highest curve down, never on each other
      let free = 0;
      LINES.map(([name], k) => [k, Math.min(height - bottom - 4, Math.max(top, y(Math.max(1e-300, result[name].at(-1)))))]).sort((a, b) => a[1] - b[1]).forEach(([k, end], i) => {
        free = Math.min(height - bottom - 4 - 16 * (2 - i), Math.max(end + (i === 2 ? 16 : -6), free + 16));
        names[k].setAttribute("y", free.toFixed(1));
      });
    },
  };
}

function render({ model, el }) {
  const numbers = results(model, compute, ["scale", "bias", "length", "input_scale", "weight_ih", "weight_hh", "inputs"]);
  const voice = announcer(false), plot = chart(380);
  const cells = LINES.map(() => [h("td"), h("td")]);
  const draw = () => {
    const result = numbers.now(), lags = result.RNN.length;
    const shares = Object.fromEntries(LINES.map(([name]) => [name, result[name].map((value) => value / result[name][0])]));
    const reach = Object.fromEntries(LINES.map(([name]) => {
      const lag = shares[name].findIndex((value) => value < LITTLE);
      return [name, lag < 0 ? `> ${lags - 1}` : lag];
    }));
    plot.draw(shares, lags, reach);
    LINES.forEach(([name], k) => {
      cells[k][0].textContent = digits(result[name][0], 2);
      cells[k][1].textContent = digits(result[name][lags - 1], 2);
    });
    voice.say(`Less than a thousandth of the gradient is left after ${LINES.map(([name]) => `${reach[name]} steps in the ${name}`).join(", ")}.`);
  };
  const change = (values) => numbers.change(values, draw);
  const control = (label, key, min, max, step) => [key, knob({ label, min, max, step, value: model.get(key), oninput: (value) => change({ [key]: value }) })];
  const controls = [
    control("Recurrent scale", "scale", 0, 2, 0.01),
    control("Gate bias (LSTM, GRU)", "bias", -4, 8, 0.1),
    control("Size of the inputs", "input_scale", 0, 2, 0.05),
    control("Sequence length", "length", 2, model.get("inputs").length, 1),
  ];
  const start = Object.fromEntries(controls.map(([key]) => [key, model.get(key)]));
  const reset = () => { controls.forEach(([key, { set }]) => set(start[key])); change({ ...start }); };
  frame(el, {
    question: "How many steps back does the gradient reach?",
    picture: [plot.node],
    controls: [...controls.slice(0, 2).map(([, { node }]) => node), button("Reset", reset), voice.node],
    more: [fold("More", ...controls.slice(2).map(([, { node }]) => node), h("table", { class: "attn-x-table" },
      h("caption", {}, "Size of the derivative of the last state by the input so many steps before it; a network of 16 units"),
      header("cell", "at lag 0", "at the largest lag"),
      h("tbody", {}, ...LINES.map((line, k) => h("tr", {}, h("th", { scope: "row" }, line[0]), ...cells[k])))))],
  });
  numbers.watch(draw);
  draw();
}
export default { render };
