// How far back a recurrent network can feel. compute() runs the cells of attn_course.functional and
// their exact backward pass in float64; a test compares it with attn_course.probes.gradient_reach.
const sigmoid = (x) => 1 / (1 + Math.exp(-x));

// (rows, cols) blocks of numbers as plain arrays of rows.
const times = (matrix, factor) => matrix.map((row) => row.map((value) => value * factor));
const matvec = (matrix, vector) => matrix.map((row) => row.reduce((sum, value, j) => sum + value * vector[j], 0));
const add = (a, b) => a.map((value, i) => value + b[i]);
// row vector times matrix, added to `into`
function pull(into, row, matrix) {
  row.forEach((value, i) => {
    if (value !== 0) for (let j = 0; j < into.length; j += 1) into[j] += value * matrix[i][j];
  });
}
const identity = (size) => Array.from({ length: size }, (_, i) => Array.from({ length: size }, (_, j) => Number(i === j)));
const zeros = (rows, size) => Array.from({ length: rows }, () => new Array(size).fill(0));

// One backward step: `gates` gives, for each row of the Jacobian, what reaches each gate.
function backward(jacobian, gates, ih, size) {
  let squares = 0;
  const previous = zeros(jacobian.length, size);
  jacobian.forEach((row, r) => {
    const input = new Array(ih[0][0].length).fill(0);
    gates(row, r, previous[r]).forEach((gate, k) => pull(input, gate, ih[k]));
    squares += input.reduce((sum, value) => sum + value * value, 0);
  });
  return [Math.sqrt(squares), previous];
}

function plainNetwork(xs, ih, hh) {
  const states = [];
  let h = new Array(hh[0].length).fill(0);
  for (const x of xs) states.push((h = add(matvec(ih[0], x), matvec(hh[0], h)).map(Math.tanh)));
  let jacobian = identity(h.length), norm;
  return states.reverse().map((state) => {
    [norm, jacobian] = backward(jacobian, (row, _, previous) => {
      const gate = row.map((value, i) => value * (1 - state[i] ** 2));
      pull(previous, gate, hh[0]);
      return [gate];
    }, ih, h.length);
    return norm;
  });
}

function lstmNetwork(xs, ih, hh, bias) {
  const steps = [], size = hh[0].length;
  let h = new Array(size).fill(0), c = new Array(size).fill(0);
  for (const x of xs) {
    const [i, f, g, o] = ih.map((w, k) => add(matvec(w, x), matvec(hh[k], h)).map((z) => (k === 2 ? Math.tanh(z) : sigmoid(z + (k === 1 ? bias : 0)))));
    const before = c;
    c = before.map((value, n) => f[n] * value + i[n] * g[n]);
    const t = c.map(Math.tanh);
    h = t.map((value, n) => o[n] * value);
    steps.push({ i, f, g, o, t, before });
  }
  let jacobian = identity(size), cells = zeros(size, size), norm;
  return steps.reverse().map(({ i, f, g, o, t, before }) => {
    const older = [];
    [norm, jacobian] = backward(jacobian, (row, r, previous) => {
      const cell = cells[r].map((value, n) => value + row[n] * o[n] * (1 - t[n] ** 2));
      older.push(cell.map((value, n) => value * f[n]));
      const gates = [
        cell.map((value, n) => value * g[n] * i[n] * (1 - i[n])),
        cell.map((value, n) => value * before[n] * f[n] * (1 - f[n])),
        cell.map((value, n) => value * i[n] * (1 - g[n] ** 2)),
        row.map((value, n) => value * t[n] * o[n] * (1 - o[n])),
      ];
      gates.forEach((gate, k) => pull(previous, gate, hh[k]));
      return gates;
    }, ih, size);
    cells = older;
    return norm;
  });
}

function gruNetwork(xs, ih, hh, bias) {
  const steps = [], size = hh[0].length;
  let h = new Array(size).fill(0);
  for (const x of xs) {
    const r = add(matvec(ih[0], x), matvec(hh[0], h)).map(sigmoid);
    const z = add(matvec(ih[1], x), matvec(hh[1], h)).map((value) => sigmoid(value + bias));
    const back = matvec(hh[2], h), before = h;
    const n = matvec(ih[2], x).map((value, k) => Math.tanh(value + r[k] * back[k]));
    h = before.map((value, k) => (1 - z[k]) * n[k] + z[k] * value);
    steps.push({ r, z, n, back, before });
  }
  let jacobian = identity(size), norm;
  return steps.reverse().map(({ r, z, n, back, before }) => {
    [norm, jacobian] = backward(jacobian, (row, _, previous) => {
      const inner = row.map((value, k) => value * (1 - z[k]) * (1 - n[k] ** 2));
      const reset = inner.map((value, k) => value * back[k] * r[k] * (1 - r[k]));
      const update = row.map((value, k) => value * (before[k] - n[k]) * z[k] * (1 - z[k]));
      row.forEach((value, k) => { previous[k] += value * z[k]; });
      pull(previous, reset, hh[0]);
      pull(previous, update, hh[1]);
      pull(previous, inner.map((value, k) => value * r[k]), hh[2]);
      return [reset, update, inner];
    }, ih, size);
    return norm;
  });
}

export function compute({ scale, bias, length, input_scale, weight_ih, weight_hh, inputs }) {
  const hh = weight_hh.map((block) => times(block, scale));
  const xs = times(inputs.slice(0, length), input_scale);
  return {
    RNN: plainNetwork(xs, [weight_ih[0]], [hh[0]]),
    LSTM: lstmNetwork(xs, weight_ih, hh, bias),
    GRU: gruNetwork(xs, weight_ih, hh, bias),
  };
}

const LINES = [["RNN", "#0072b2", ""], ["LSTM", "#d55e00", "7 4"], ["GRU", "#009e73", "2 4"]];

function chart(width) {
  const [height, left, bottom, top] = [280, 46, 40, 12];
  const frame = s("g");
  const curves = LINES.map(([, colour, dashes]) => s("path", { fill: "none", stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dashes }));
  const clip = unique("clip");
  const node = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "attn-x-chart", "aria-label": "Gradient norm by lag, logarithmic, one curve for each kind of cell" },
    s("clipPath", { id: clip }, s("rect", { x: left, y: top, width: width - left - 8, height: height - top - bottom })),
    frame, s("g", { "clip-path": `url(#${clip})` }, ...curves));
  return {
    node,
    draw(result, length) {
      const logs = LINES.flatMap(([name]) => result[name]).filter((v) => v > 0 && Number.isFinite(v)).map(Math.log10);
      // Steps of four decades: the axis must not tremble with the slider.
      const low = Math.max(-40, 4 * Math.floor(Math.min(-8, ...logs) / 4)), high = Math.min(40, 4 * Math.ceil(Math.max(4, ...logs) / 4));
      const x = (lag) => left + ((width - left - 8) * lag) / Math.max(1, length - 1);
      const y = (value) => top + ((height - top - bottom) * (high - Math.max(low - 1, Math.min(high + 1, Math.log10(value))))) / (high - low);
      const every = (high - low) / 4 > 6 ? 8 : 4;
      const marks = [];
      for (let d = low; d <= high; d += every) {
        const at = y(10 ** d);
        const label = s("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, "10");
        label.append(s("tspan", { dy: -4, "font-size": "9" }, String(d).replace("-", "−")));
        marks.push(s("path", { class: d === 0 ? "attn-x-axis" : "attn-x-grid", d: `M${left} ${at}H${width - 8}` }), label);
      }
      const step = length > 60 ? 20 : length > 20 ? 10 : 5;
      for (let lag = 0; lag < length; lag += step) marks.push(s("text", { x: x(lag), y: height - bottom + 17, "text-anchor": "middle" }, String(lag)));
      marks.push(s("text", { x: (left + width) / 2, y: height - 4, "text-anchor": "middle" }, "lag, in steps"));
      frame.replaceChildren(...marks);
      LINES.forEach(([name], k) => {
        const points = result[name].map((value, lag) => [lag, value]).filter(([, value]) => value > 0 && Number.isFinite(value));
        curves[k].setAttribute("d", points.map(([lag, value], i) => `${i ? "L" : "M"}${x(lag).toFixed(1)} ${y(value).toFixed(1)}`).join(""));
      });
    },
  };
}

function render({ model, el }) {
  el.classList.add("attn-x");
  const numbers = results(model, compute, ["scale", "bias", "length", "input_scale", "weight_ih", "weight_hh", "inputs"]);
  const voice = announcer(), plot = chart(el.clientWidth && el.clientWidth < 480 ? 340 : 560);
  const cells = LINES.map(() => [h("td"), h("td")]);
  const draw = () => {
    const result = numbers.now();
    const lags = result.RNN.length;
    plot.draw(result, lags);
    LINES.forEach(([name], k) => {
      cells[k][0].textContent = digits(result[name][0], 2);
      cells[k][1].textContent = digits(result[name][lags - 1], 2);
    });
    voice.say(`Of a gradient at the last step, the RNN carries ${digits(result.RNN[lags - 1] / result.RNN[0])} back to lag ${lags - 1}, the LSTM ${digits(result.LSTM[lags - 1] / result.LSTM[0])}, the GRU ${digits(result.GRU[lags - 1] / result.GRU[0])}.`);
  };
  const change = (values) => numbers.change(values, draw);
  const control = (label, key, min, max, step) => [key, slider({ label, min, max, step, value: model.get(key), oninput: (value) => change({ [key]: value }) })];
  const controls = [
    control("Recurrent scale", "scale", 0, 2, 0.01),
    control("Gate bias", "bias", -4, 8, 0.1),
    control("Size of the inputs", "input_scale", 0, 2, 0.05),
    control("Sequence length", "length", 2, model.get("inputs").length, 1),
  ];
  const start = Object.fromEntries(controls.map(([key]) => [key, model.get(key)]));
  const reset = () => { controls.forEach(([key, { set }]) => set(start[key])); change({ ...start }); };
  const key = ([, colour, dashes]) => s("svg", { viewBox: "0 0 34 8", class: "attn-x-swatch", "aria-hidden": "true" }, s("path", { d: "M0 4H34", stroke: colour, "stroke-width": 3, "stroke-dasharray": dashes }));
  el.append(
    ...controls.map(([, { node }]) => node),
    h("div", { class: "attn-x-top" }, h("button", { type: "button", onclick: reset }, "Reset")),
    h("p", { class: "attn-x-note" }, "Size of the derivative of the last state by an earlier input, a network of 16 units"),
    plot.node,
    h("table", { class: "attn-x-table" },
      h("thead", {}, h("tr", {}, ...["cell", "at lag 0", "at the largest lag"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, ...LINES.map((line, k) => h("tr", {}, h("th", { scope: "row" }, key(line), ` ${line[0]}`), ...cells[k])))),
    voice.node);
  numbers.watch(draw);
  draw();
}
export default { render };
