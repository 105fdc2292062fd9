r"""Every diagram of the course, once: what boxes it has, how they are wired, what its parts are.

A page shows one with ``{diagram}`` and lights the parts it talks about; see :mod:`attn_diagrams`.
To add one, write a function under ``@diagram`` that returns a :class:`~diagram_pen.Drawing`. What
several diagrams share (a row of states, scores and weights over columns) stands here once.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from diagram_pen import Drawing, Point

CATALOGUE: dict[str, Callable[[], Drawing]] = {}
COLUMNS = (54, 119, 184, 249)  # four source positions


def diagram(make: Callable[[], Drawing]) -> Callable[[], Drawing]:
    """Register a diagram under the name of its function, with hyphens."""
    CATALOGUE[make.__name__.replace("_", "-")] = make
    return make


def draw(name: str) -> Drawing:
    """A diagram by name.

    Raises:
        ValueError: If there is none of that name.
    """
    if name not in CATALOGUE:
        raise ValueError(f"no diagram {name!r} (there are: {', '.join(sorted(CATALOGUE))})")
    drawing = CATALOGUE[name]()
    used = {part for shape in drawing.order for part in shape.parts}
    drawing.parts = {part: words for part, words in drawing.parts.items() if part in used}
    return drawing


def row(
    d: Drawing,
    key: str,
    labels: Sequence[str],
    y: float,
    part: str,
    *,
    columns: Sequence[float] = COLUMNS,
    size: Point = (46, 30),
) -> list[str]:
    """Boxes beside each other, named ``key1``, ``key2``, ..."""
    names = [f"{key}{i + 1}" for i in range(len(labels))]
    for name, label, x in zip(names, labels, columns, strict=False):
        d.box(name, label, (x, y), part, size=size)
    return names


def chain(d: Drawing, names: Sequence[str], part: str, *, shift: float = 0) -> None:
    """Arrows from each to the next; ``shift`` lifts them off the middle line."""
    for first, second in pairwise(names):
        a, b = d.shapes[first], d.shapes[second]
        side = math.copysign(1, b.x - a.x)
        start = (a.x + side * (a.half_w + 2), a.y + shift)
        d.arrow(start, (b.x - side * (b.half_w + 2), b.y + shift), part)


def upwards(d: Drawing, lower: Sequence[str], upper: Sequence[str], part: str) -> None:
    """An arrow from each lower box to the one above it."""
    for first, second in zip(lower, upper, strict=True):
        d.arrow(first, second, part)


def indexed(template: str, count: int = 4) -> list[str]:
    """``indexed("h_#")`` is ``["h_1", "h_2", "h_3", "h_4"]``."""
    return [template.replace("#", str(i + 1)) for i in range(count)]


def beside(d: Drawing, name: str, y: float, part: str) -> None:
    """What a row is called, to the right of it."""
    d.say(name, (282, y), part, anchor="start")


@diagram
def unrolled_recurrence() -> Drawing:
    """Chapter 01: one cell, drawn once per step."""
    d = Drawing(
        "unrolled-recurrence",
        200,
        "Four boxes, all called cell, from left to right. Each word x 1 to x 4 enters its cell "
        "through the matrix W ih, each cell passes its state on to the next through the matrix "
        "W hh, and gives it out as h 1 to h 4.",
        {
            "inputs": "the words, which enter through W ih",
            "memory": "the state, which goes from cell to cell through W hh",
            "output": "the states h 1 to h 4",
        },
    )
    columns = (68, 148, 228, 308)
    states = row(d, "h", indexed("h_#"), 20, "output", columns=columns, size=(40, 28))
    for i, (x, word) in enumerate(zip(columns, ("dog", "bites", "man", "."), strict=True)):
        d.box(f"cell{i + 1}", "cell", (x, 92), "memory", size=(42, 30), words=True)
        d.box(f"x{i + 1}", word, (x, 168), "inputs", size=(46, 28), words=True)
        d.say("W_{ih}", (x + 8, 138), "inputs", anchor="start", words=False)
        d.say("W_{hh}", (x - 40, 68), "memory", words=False)
    cells = [f"cell{i}" for i in (1, 2, 3, 4)]
    upwards(d, [f"x{i}" for i in (1, 2, 3, 4)], cells, "inputs")
    upwards(d, cells, states, "output")
    chain(d, cells, "memory")
    d.say("h_0", (12, 97), "memory", words=False)
    d.arrow((24, 92), (45, 92), "memory")
    return d


@diagram
def encoder_decoder() -> Drawing:
    """Chapter 02: everything through one vector."""
    d = Drawing(
        "encoder-decoder",
        356,
        "An encoder reads x 1 to x 4 into states h 1 to h 4. The last state is the context vector "
        "c, the only input of the decoder from the source. The decoder's states s 1 to s 4 "
        "predict y 1 to y 4; each predicted word is the input of the next state.",
        {
            "encoder": "the encoder",
            "vector": "the one vector c between the two networks",
            "decoder": "the decoder",
            "output": "the predicted words",
            "feedback": "each predicted word is the next input",
            "lost": "the states h 1 to h 3, which are discarded",
            "gradient": "the path of the gradient from y 1 back to x 1: through s 1, c and every h",
        },
    )
    said = row(d, "y", indexed("y_#"), 22, "output")
    states = row(d, "s", indexed("s_#"), 92, "decoder")
    d.box("c", "c = h_4", (152, 180), "vector gradient", size=(84, 34))
    d.say("context vector", (202, 185), "vector", anchor="start")
    h = row(d, "h", indexed("h_#")[:3], 262, "encoder lost")
    d.box("h4", "h_4", (COLUMNS[3], 262), "encoder")
    h.append("h4")
    x = row(d, "x", indexed("x_#"), 334, "encoder")
    upwards(d, x[1:], h[1:], "encoder")
    d.arrow("x1", "h1", "encoder gradient")
    chain(d, h, "encoder gradient")
    d.arrow("h4", "c", "vector gradient", via=[(249, 222), (152, 222)])
    d.arrow("c", "s1", "vector gradient", via=[(152, 140), (54, 140)])
    d.say("s_0 = c", (104, 129), "vector", words=False)
    chain(d, states, "decoder")
    d.arrow("s1", "y1", "output gradient")
    upwards(d, states[1:], said[1:], "output")
    for before, after in zip(said, states[1:], strict=False):
        a, b = d.shapes[before], d.shapes[after]
        d.arrow((a.x + a.half_w - 4, a.y + 17), (b.x - 14, b.y - 17), "feedback", dashed=True)
    beside(d, "decoder", 96, "decoder")
    beside(d, "encoder", 266, "encoder")
    return d


def scored_columns(
    d: Drawing,
    *,
    top: float,
    scores: Sequence[str],
    weights: Sequence[str],
    memory: Sequence[str | tuple[str, str]],
    ask: str,
    words: Sequence[str] = (),
) -> None:
    """Scores, softmax, weights and the weighted sum over four columns; ``ask`` feeds the scores.

    The memory goes up twice: as key into its score, and past it as value into the product with
    its weight. A pair in ``memory`` is a key and a value of its own. ``words`` names the rows
    whose labels are words or numbers, not symbols.
    """
    heights = {"sum": 0, "times": 44, "weights": 90, "softmax": 134, "scores": 180, "memory": 252}
    y = {name: top + height for name, height in heights.items()}
    columns = COLUMNS[: len(memory)]
    middle = round((columns[0] + columns[-1]) / 2)
    d.sign("sum", "\\Sigma", (middle, y["sum"]), "sum direct", radius=13)
    for x in columns:  # the values pass behind the softmax
        d.curve([(x + 18, y["memory"] - 15), (x + 18, y["softmax"] + 11)], "values direct")
        d.arrow((x + 18, y["softmax"] - 11), (x + 18, y["times"] + 11), "values direct")
    width = columns[-1] - columns[0] + 51
    d.box("softmax", "softmax", (middle - 4, y["softmax"]), "weights", size=(width, 22), words=True)
    for i, x in enumerate(columns):
        d.sign(f"times{i}", "\\times", (x + 18, y["times"]), "sum direct", radius=9)
        d.box(
            f"w{i}",
            weights[i],
            (x - 8, y["weights"]),
            "weights",
            size=(42, 28),
            words="weights" in words,
        )
        d.box(
            f"e{i}",
            scores[i],
            (x - 8, y["scores"]),
            "scores",
            size=(42, 28),
            words="scores" in words,
        )
        held = memory[i]
        if isinstance(held, str):
            d.box(
                f"h{i}",
                held,
                (x, y["memory"]),
                "memory keys values",
                size=(50, 30),
                words="memory" in words,
            )
        else:
            d.box(f"k{i}", held[0], (x - 14, y["memory"]), "memory keys", size=(27, 30))
            d.box(f"v{i}", held[1], (x + 15, y["memory"]), "memory values", size=(27, 30))
    for i, x in enumerate(columns):
        d.arrow((x - 2, y["memory"] - 17), (x - 2, y["scores"] + 16), "scores keys")
        d.arrow(f"e{i}", (x - 8, y["softmax"] + 13), "weights")
        d.arrow((x - 8, y["softmax"] - 13), f"w{i}", "weights")
        d.arrow(f"w{i}", f"times{i}", "sum", via=[(x - 8, y["times"])])
        d.arrow(f"times{i}", "sum", "sum direct")
    # the query runs down the left side and into every score
    bus, side = (y["scores"] + y["memory"]) / 2 + 4, 12
    asker = d.shapes[ask]
    d.curve(
        [
            (asker.x - asker.half_w, asker.y),
            (side, asker.y),
            (side, bus),
            (columns[-1] - 20, bus),
        ],
        "query",
    )
    for x in columns:
        d.arrow((x - 20, bus), (x - 20, y["scores"] + 16), "query")
    for name in ("weights", "scores"):
        beside(d, name, y[name] + 4, name)


PARTS = {
    "encoder": "the encoder",
    "memory": "the states of the encoder, which are kept",
    "query": "the query, which enters every score",
    "keys": "the keys, which enter the scores",
    "scores": "the scores",
    "weights": "the softmax and the weights",
    "values": "the values, each on its own path to the sum",
    "sum": "the weighted sum",
    "decoder": "the decoder",
    "output": "the predicted word",
    "direct": "the direct path from the sum to every state of the encoder",
}


@diagram
def additive_attention() -> Drawing:
    """Chapter 03: attend first, then update."""
    d = Drawing(
        "additive-attention",
        500,
        "A bidirectional encoder computes an annotation h j of each word x j. The decoder's old "
        "state s i−1 is compared with each annotation, which gives the scores e ij; a softmax "
        "turns them into weights α ij; the weighted sum of the annotations is the context c i, "
        "which enters the new state s i. The new state predicts y i.",
        PARTS,
    )
    d.box("before", "y_{i-1}", (54, 18), "decoder", size=(50, 26))
    d.box("old", "s_{i-1}", (54, 66), "decoder query", size=(50, 30))
    d.box("new", "s_i", (152, 66), "decoder", size=(50, 30))
    d.box("y", "y_i", (152, 18), "output", size=(50, 26))
    scored_columns(
        d,
        top=120,
        scores=indexed("e_{i#}"),
        weights=indexed("\\alpha_{i#}"),
        memory=indexed("h_#"),
        ask="old",
    )
    d.say("c_i", (176, 116), "sum direct", anchor="start", words=False)
    d.arrow("sum", "new", "sum")
    d.arrow("old", "new", "decoder")
    d.arrow("before", "new", "decoder")
    d.arrow("new", "y", "output")
    beside(d, "decoder", 70, "decoder")
    beside(d, "memory", 376, "memory")
    for i, x in enumerate(COLUMNS):
        d.box(f"f{i}", "\\right h", (x - 11, 428), "encoder", size=(20, 28))
        d.box(f"b{i}", "\\left h", (x + 11, 428), "encoder", size=(20, 28))
        d.box(f"x{i}", f"x_{i + 1}", (x, 482), "encoder", size=(46, 28))
        d.arrow((x, 467), (x, 444), "encoder")
        d.arrow((x, 413), (x, 389), "encoder")
    for left, right in pairwise(COLUMNS):
        d.arrow((left + 22, 422), (right - 22, 422), "encoder")
        d.arrow((right - 22, 435), (left + 22, 435), "encoder")
    beside(d, "encoder", 432, "encoder")
    return d


@diagram
def luong_decoder() -> Drawing:
    """Chapter 04: update first, then attend; the attentional vector is fed back."""
    d = Drawing(
        "luong-decoder",
        424,
        "The decoder first updates its state: h t is computed from h t−1, y t−1 and, with input "
        "feeding, the last attentional vector h-tilde t−1. Then h t is compared with each "
        "annotation h-bar s; a softmax gives the weights a t(s); their sum c t and h t are "
        "combined into h-tilde t, which predicts y t and is an input of the next step.",
        PARTS
        | {
            "combine": "context and state combined to the attentional vector",
            "feeding": "input feeding: the attentional vector enters the next step",
        },
    )
    d.box("was", "h_{t-1}", (44, 20), "decoder", size=(50, 28))
    d.box("y0", "y_{t-1}", (102, 20), "decoder", size=(50, 28))
    d.box("t0", "\\tilde h_{t-1}", (162, 20), "feeding", size=(54, 28), dashed=True)
    d.box("now", "h_t", (84, 90), "decoder query combine", size=(50, 30))
    d.box("tilde", "\\tilde h_t", (212, 90), "combine feeding", size=(50, 30))
    d.box("y", "y_t", (232, 20), "output", size=(50, 28))
    scored_columns(
        d,
        top=146,
        scores=["score"] * 4,
        weights=indexed("a_t(#)"),
        memory=indexed("\\bar h_#"),
        ask="now",
        words=["scores"],
    )
    d.say("c_t", (128, 141), "sum direct combine", anchor="end", words=False)
    d.arrow("was", "now", "decoder")
    d.arrow("y0", "now", "decoder")
    d.arrow("t0", "now", "feeding", dashed=True)
    d.arrow("now", "tilde", "combine")
    d.arrow("sum", "tilde", "combine", via=[(212, 146)])
    d.arrow("tilde", "y", "output", via=[(232, 60)])
    d.arrow("tilde", (340, 90), "feeding", dashed=True)
    d.say("next step", (340, 80), "feeding", anchor="end")
    beside(d, "memory", 402, "memory")
    return d


@diagram
def two_senses() -> Drawing:
    """Chapter 00: one vector goes in twice, and its neighbours decide which sense comes out."""
    d = Drawing(
        "two-senses",
        216,
        "Two sentences. In each the word bank takes something from its neighbours: beside sat and "
        "river it becomes the bank of a river, beside walked and money a bank with money. The "
        "vector of the word itself is the same in both.",
        {"weights": "what the word takes from its neighbours", "same": "the vector of the word"},
    )
    sentences = (("sat", "bank", "river", "of a river"), ("walked", "bank", "money", "with money"))
    for middle, (*words, sense) in zip((87, 263), sentences, strict=True):
        d.box(f"out{middle}", f"bank|{sense}", (middle, 32), "", size=(96, 46), words=True)
        for shift, word in zip((-58, 0, 58), words, strict=True):
            own, key = not shift, f"{word}{middle}"
            part, role = ("same", "query") if own else ("", "")
            d.box(key, word, (middle + shift, 140), part, size=(54, 30), words=True, role=role)
            d.arrow(key, (middle + 0.5 * shift, 59), "weights", dashed=shift < 0)
    d.curve([(87, 157), (87, 190), (263, 190), (263, 157)], "same")
    d.say("the same numbers", (175, 209), "same")
    return d


@diagram
def word_attention() -> Drawing:
    """Chapter 00: bank attends to dog, river and itself, with the numbers of the page."""
    d = Drawing(
        "word-attention",
        356,
        "The word bank attends to the words dog, river and bank. The dot products with the keys "
        "give the scores 0, 2 and 2; a softmax turns them into the weights .063, .468 and .468; "
        "the weighted sum of the values is the output: water 1.405, money 0.468, animal 0.127.",
        PARTS | {"memory": "the words, which are keys and values"},
    )
    d.box("q", "bank", (54, 30), "query", size=(50, 30), words=True)
    scored_columns(
        d,
        top=80,
        scores=["0", "2", "2"],
        weights=[".063", ".468", ".468"],
        memory=["dog", "river", "bank"],
        ask="q",
        words=("scores", "weights", "memory"),
    )
    d.box("out", "(1.405, 0.468, 0.127)", (196, 30), "sum", size=(156, 30), words=True)
    d.arrow("sum", (119, 48), "sum", via=[(119, 56)])
    d.say("query", (24, 11), "query", anchor="start")
    d.say("output", (278, 11), "sum", anchor="end")
    d.say("keys and", (282, 328), "memory", anchor="start")
    d.say("values", (282, 344), "memory", anchor="start")
    return d


@diagram
def three_steps() -> Drawing:
    """Chapter 04 and later: score, normalise, mix."""
    d = Drawing(
        "three-steps",
        356,
        "Attention in three steps. A query q is compared with the keys k 1 to k 4, which gives the "
        "scores e; a softmax turns them into weights α; the weighted sum of the values v is the "
        "output.",
        PARTS | {"memory": "keys and values"},
    )
    d.box("q", "q", (54, 30), "query", size=(46, 30))
    scored_columns(
        d,
        top=80,
        scores=indexed("e_#"),
        weights=indexed("\\alpha_#"),
        memory=[(f"k_{i}", f"v_{i}") for i in (1, 2, 3, 4)],
        ask="q",
    )
    d.box("out", "o", (152, 30), "sum", size=(46, 30))
    d.arrow("sum", "out", "sum")
    d.say("output", (184, 34), "sum", anchor="start")
    d.say("query", (84, 34), "query", anchor="start")
    d.say("keys,", (282, 330), "keys", anchor="start")
    d.say("values", (282, 346), "values", anchor="start")
    return d


@diagram
def local_window() -> Drawing:
    """Chapter 04: a window around a position, and a Gaussian over it."""
    d = Drawing(
        "local-window",
        246,
        "Eleven source positions. From its state h t the decoder computes a centre p t; only the "
        "positions within D of it lie in the window and get weights, which a Gaussian around p t "
        "lowers towards the edges; the others get 0.",
        {
            "centre": "the centre p t, computed from the state",
            "window": "the window from p t − D to p t + D",
            "gauss": "the Gaussian over the window",
            "weights": "the weights inside the window",
            "outside": "the positions outside the window, with weight 0",
        },
    )
    x = [25 + 30 * i for i in range(11)]
    centre, reach = 182.0, 105.0
    d.box("h", "h_t", (40, 24), "centre", size=(46, 30))
    d.band((centre, 142), (2 * reach, 112), "window")
    d.arrow("h", (centre, 84), "centre", via=[(centre, 24)])
    d.say("p_t", (centre + 8, 60), "centre", anchor="start", words=False)
    d.curve([(centre, 86), (centre, 198)], "centre", dashed=True)
    bell = [
        (centre + reach * t / 20, 196 - 96 * math.exp(-2 * (t / 20) ** 2)) for t in range(-20, 21)
    ]
    d.curve(bell, "gauss")
    shares = [0, 0, 0.10, 0.16, 0.30, 0.80, 0.22, 0.12, 0.14, 0, 0]
    for i, share in enumerate(shares):
        place = abs(x[i] - centre) <= reach
        part = "weights" if place else "outside"
        if share:
            d.bar(f"w{i}", (x[i], 160), share, part, size=(14, 76))
        d.say(str(i), (x[i], 216), part)
    d.curve([(10, 198), (340, 198)], "")
    d.say("p_t - D", (centre - reach, 240), "window", words=False)
    d.say("p_t + D", (centre + reach, 240), "window", words=False)
    return d


def drawn_weights(d: Drawing, key: str, left: float, y: float, part: str) -> list[float]:
    """Four weights as columns, 40 units apart, with their letters below; where they stand."""
    places = [left + 40 * i for i in range(4)]
    for i, (x, share) in enumerate(zip(places, (0.4, 0.3, 0.2, 0.1), strict=True)):
        d.bar(f"{key}{i}", (x, y), share * 2, part, size=(16, 40))
        d.say(f"\\alpha_{i + 1}", (x, y + 36), part, words=False)
    return places


@diagram
def soft_hard() -> Drawing:
    """Chapter 05: a mean of all values, or one value that is drawn."""
    d = Drawing(
        "soft-hard",
        246,
        "The same four weights used in two ways. Soft attention takes the mean of all values, and "
        "the gradient passes back to every weight. Hard attention draws one position and takes "
        "only its value; no gradient passes back through the draw.",
        {
            "soft": "soft attention: the mean of all values",
            "hard": "hard attention: one value, drawn",
            "gradient": "the gradient, which passes the mean and stops at the draw",
        },
    )
    for left, part, name in ((28, "soft", "soft"), (204, "hard", "hard")):
        d.say(name, (left + 60, 16), part)
        places = drawn_weights(d, part, left, 198, part)
        d.sign(
            f"{part}sum", "\\Sigma" if part == "soft" else "s", (left + 60, 118), part, radius=14
        )
        for i, x in enumerate(places):
            if part == "soft" or i == 1:
                d.arrow((x, 176), f"{part}sum", part)
            else:
                d.curve([(x, 176), (x + (left + 60 - x) * 0.35, 158)], part, dashed=True)
        label = "\\Sigma \\alpha_s v_s" if part == "soft" else "v_s"
        d.box(f"{part}out", label, (left + 60, 52), part, size=(86, 32))
        d.arrow(f"{part}sum", f"{part}out", part)
        d.arrow(
            (left + 112, 52), (left + 112, 172 if part == "soft" else 112), "gradient", dashed=True
        )
    d.say("drawn", (238, 122), "hard", anchor="end")
    d.say("\\times", (316, 130), "gradient", words=False)
    d.say("gradient", (148, 88), "gradient", anchor="start")
    return d


@diagram
def six_ways() -> Drawing:
    """Chapter 05: six ways to train the same model."""
    ways = (
        ("soft", "soft", "mean", "gradient"),
        ("all", "all places", "all 25", "gradient"),
        ("through", "straight-through", "draw", "gradient of the mean"),
        ("baseline", "one place, baseline", "draw", "reward − baseline"),
        ("one", "one place", "draw", "reward"),
        ("any", "any place", "draw evenly", ""),
    )
    d = Drawing(
        "six-ways",
        372,
        "Six ways to train the same model: the reader's input from the weights α, and, dashed, "
        "the signal that comes back to them. Soft: the mean of the tiles, and its gradient. All "
        "places: every tile, and the gradient of the expected loss. Straight-through: one drawn "
        "tile, and the gradient of the mean. One place: one drawn tile, and its reward, with or "
        "without a baseline. Any place: a tile drawn evenly; nothing comes back.",
        {key: name for key, name, _, _ in ways},
    )
    for i, (key, name, feed, back) in enumerate(ways):
        left, y = 6 + 178 * (i % 2), 46 + 126 * (i // 2)
        d.say(name, (left + 80, y - 28), key)
        d.box(f"{key}-weights", "\\alpha", (left + 16, y), key, size=(32, 30))
        lines = feed.replace(" ", "|") if key == "any" else feed
        d.box(f"{key}-feed", lines, (left + 76, y), key, size=(50, 38), words=True)
        d.box(f"{key}-reader", "reader", (left + 137, y), key, size=(50, 30), words=True)
        if key == "any":  # the scorer is not asked
            d.curve([(left + 34, y), (left + 49, y)], key, dashed=True)
            d.say("×", (left + 41, y + 5), key)
        else:
            d.arrow(f"{key}-weights", f"{key}-feed", key)
        d.arrow(f"{key}-feed", f"{key}-reader", key)
        if back:
            low = [(left + 137, y + 34), (left + 16, y + 34)]
            d.arrow(f"{key}-reader", f"{key}-weights", key, via=low, dashed=True)
        d.say(back or "nothing comes back", (left + 80, y + 50), key)
    return d


@diagram
def local_mixed() -> Drawing:
    """Chapter 05: does a state depend on its own tile only, or on all of them?"""
    d = Drawing(
        "local-mixed",
        266,
        "Two models. Left, local: each state is computed from its own tile, so a weight shows "
        "which tile was read. Right, mixed: a recurrent network runs over the tiles in both "
        "directions, so every state can depend on every tile.",
        {"local": "local states, each from its own tile", "mixed": "mixed states, each from all"},
    )
    for left, part in ((34, "local"), (212, "mixed")):
        d.say(part, (left + 92, 27), part, anchor="start")
        d.box(f"{part}answer", "answer", (left + 30, 22), part, size=(64, 28), words=True)
        d.sign(f"{part}sum", "\\Sigma", (left + 52, 82), part, radius=13)
        d.arrow(f"{part}sum", (left + 52, 38), part)
        xs = [left, left + 52, left + 104]
        for i, x in enumerate(xs):
            d.box(f"{part}h{i}", f"h_{i + 1}", (x, 158), part, size=(36, 28))
            d.box(f"{part}x{i}", f"x_{i + 1}", (x, 240), part, size=(36, 28))
        for i, x in enumerate(xs):
            d.arrow(f"{part}x{i}", f"{part}h{i}", part)
            d.arrow(f"{part}h{i}", f"{part}sum", part)
            if part == "mixed" and i < 2:
                d.arrow((x + 20, 152), (xs[i + 1] - 20, 152), part)
                d.arrow((xs[i + 1] - 20, 165), (x + 20, 165), part)
        d.say("\\alpha_s", (left + 10, 120), part, words=False)
    return d


@diagram
def memory_hop() -> Drawing:
    """Chapter 06: one hop, and the loop that makes several of it."""
    d = Drawing(
        "memory-hop",
        396,
        "One hop of a memory network. The query u k is compared with the input memories m i, a "
        "softmax turns the scores into weights p i, and the weighted sum of the output memories "
        "c i is o k. The next query is u k plus o k, which enters the next hop.",
        PARTS
        | {
            "memory": "input and output memories, one of each for a sentence",
            "add": "the old query plus the output",
            "loop": "the new query, which enters the next hop",
        },
    )
    d.box("u", "u^k", (54, 62), "query add", size=(46, 30))
    scored_columns(
        d,
        top=120,
        scores=indexed("u^Tm_#"),
        weights=indexed("p_#"),
        memory=[(f"m_{i}", f"c_{i}") for i in (1, 2, 3, 4)],
        ask="u",
    )
    d.say("o^k", (176, 116), "sum direct add", anchor="start", words=False)
    d.sign("plus", "+", (152, 62), "add", radius=12)
    d.box("next", "u^{k+1}", (240, 62), "add loop", size=(60, 30), role="query")
    d.arrow("u", "plus", "add")
    d.arrow("sum", "plus", "add")
    d.arrow("plus", "next", "add")
    d.arrow("next", "u", "loop", via=[(240, 20), (54, 20)], dashed=True)
    d.say("next hop", (147, 14), "loop")
    d.say("memories", (282, 376), "memory", anchor="start")
    return d


@diagram
def memory_tying() -> Drawing:
    """Chapter 06: which tables of the hops are one."""
    d = Drawing(
        "memory-tying",
        268,
        "Two hops and their tables. Adjacent: the output table of hop 1 is the input table of hop "
        "2, the question uses the first table and the answer the last. Layer-wise: both hops use "
        "the same input table and the same output table, and the query passes through H.",
        {
            "adjacent": "adjacent tying: C 1 is A 2, B is A 1, and W is C 2",
            "layerwise": "layer-wise tying: A 1 is A 2 and C 1 is C 2",
        },
    )
    spots = {"W": 46, "C2": 90, "A2": 128, "C1": 172, "A1": 210, "B": 254}
    labels = {"W": "W^T", "C2": "C^2", "A2": "A^2", "C1": "C^1", "A1": "A^1", "B": "B"}
    for left, part, name in ((40, "adjacent", "adjacent"), (230, "layerwise", "layer-wise")):
        d.say(name, (left + 20, 16), part)
        for key, y in spots.items():
            d.box(part + key, labels[key], (left, y), part, size=(46, 26))
        d.say("answer", (left + 32, spots["W"] + 4), part, anchor="start")
        d.say("hop 2", (left + 32, 113), part, anchor="start")
        d.say("hop 1", (left + 32, 195), part, anchor="start")
        d.say("question", (left + 32, spots["B"] + 4), part, anchor="start")
    for upper, lower in (("W", "C2"), ("A2", "C1"), ("A1", "B")):
        d.say("=", (40, (spots[upper] + spots[lower]) / 2 + 5), "adjacent", words=False)
    for upper, lower, edge, out in (("C2", "C1", 205, 180), ("A2", "A1", 255, 304)):
        y0, y1 = spots[upper], spots[lower]
        d.curve([(edge, y0), (out, y0), (out, y1), (edge, y1)], "layerwise")
        side = 12 if out > edge else -12
        d.say("=", (out + side, (y0 + y1) / 2 + 5), "layerwise", words=False)
    return d


@diagram
def pointer_circle() -> Drawing:
    """Chapter 06: three steps forwards and three backwards meet."""
    d = Drawing(
        "pointer-circle",
        262,
        "Six symbols in a circle of pointers, a to f. From a, three steps forwards and three steps "
        "backwards lead to the same symbol, d, which is opposite.",
        {
            "forward": "three steps forwards from a: b, c, d",
            "backward": "three steps backwards from a: f, e, d",
            "goal": "the opposite symbol",
        },
    )
    for i, letter in enumerate("abcdef"):
        angle = math.pi * (i / 3 - 1)
        at = (175 + 118 * math.cos(angle), 131 + 104 * math.sin(angle))
        part = {0: "forward backward", 3: "goal forward backward"}.get(
            i, "forward" if i < 3 else "backward"
        )
        d.sign(letter, letter, at, part, radius=16)
    for first, second in zip("abcdef", "bcdefa", strict=True):
        d.arrow(first, second, "forward" if first in "abc" else "backward")
    return d


@diagram
def self_attention() -> Drawing:
    """Chapter 07: one position of a sentence attends to all; later ones may be masked."""
    d = Drawing(
        "self-attention",
        492,
        "Position 2 of a sentence attends. W K turns every vector x j into a key k j, and W V into "
        "a value v j; W Q also turns x 2 into the query q 2. The query is multiplied with every "
        "key and the products are divided by the root of d k, which gives the scores. A causal "
        "mask sets the scores of positions 3 and 4 to minus infinity, so the softmax gives them "
        "the weight 0. The weighted sum of the values is the output o 2.",
        PARTS
        | {
            "inputs": "the vectors of the sentence, one for each position",
            "projections": "the three matrices, which are the same at every position",
            "memory": "keys and values",
            "mask": "the mask: scores of minus infinity, weights of 0",
            "output": "the output of this position",
        },
    )
    d.box("x", "x_2", (54, 18), "inputs projections", size=(46, 26))
    d.box("q", "q_2", (54, 72), "query projections", size=(46, 30))
    d.arrow("x", "q", "query projections")
    d.say("W_Q", (74, 49), "query projections", words=False)
    d.box("o", "o_2", (152, 72), "output sum", size=(46, 30))
    top = 124
    d.band((208, top + 180), (124, 42), "mask")
    scored_columns(
        d,
        top=top,
        scores=["e_{21}", "e_{22}", "−∞", "−∞"],
        weights=["\\alpha_{21}", "\\alpha_{22}", "0", "0"],
        memory=[(f"k_{i}", f"v_{i}") for i in (1, 2, 3, 4)],
        ask="q",
    )
    d.arrow("sum", "o", "sum output")
    d.say("output", (184, 76), "output", anchor="start")
    beside(d, "mask", top + 198, "mask")
    for i, x in enumerate(COLUMNS):
        d.box(f"x{i}", f"x_{i + 1}", (x, 466), "inputs", size=(46, 30))
        d.arrow((x - 8, 451), (x - 14, top + 269), "keys projections")
        d.arrow((x + 8, 451), (x + 15, top + 269), "values projections")
    d.say("W_K", (22, 428), "keys projections", words=False)
    d.say("W_V", (90, 428), "values projections", words=False)
    d.say("keys,", (282, 374), "memory", anchor="start")
    d.say("values", (282, 390), "memory", anchor="start")
    beside(d, "inputs", 470, "inputs")
    return d


@diagram
def decoder_only() -> Drawing:
    """Chapter 11: a stack that only writes, with the cache of one block."""
    d = Drawing(
        "decoder-only",
        474,
        "A decoder-only model writes the fifth token. The first four stand in a row; only the "
        "fourth is new. Its vector goes through the blocks. In a block its query q 4 attends to "
        "the keys and values 1 to 3, dashed, which are read from the cache, and to its own; "
        "a feed-forward part follows. More blocks follow, each with a cache of its own. A norm "
        "and a softmax give the probabilities of the next token, one is drawn, and t 5 goes back "
        "to the end of the row.",
        {
            "inputs": "the text so far",
            "new": "the newest token, the only one that is computed",
            "cache": "the cache: keys and values of the earlier tokens, dashed",
            "block": "one block: attention and feed-forward part",
            "more": "further blocks, each with its own cache",
            "output": "the probabilities of the next token",
            "draw": "the draw, and the way back to the text",
        },
    )
    last = COLUMNS[3]
    d.box("t5", "t_5", (last, 24), "draw", size=(46, 28))
    d.box("soft", "norm, softmax", (last - 50, 84), "output", size=(150, 28), words=True)
    d.box("more", "more blocks", (last - 50, 142), "more", size=(150, 28), words=True, dashed=True)
    d.band((152, 262), (276, 186), "block")
    d.box("ff", "feed-forward", (last - 50, 196), "block", size=(150, 28), words=True)
    d.box("at", "attention", (last - 97, 256), "block", size=(244, 28), words=True)
    for i, x in enumerate(COLUMNS):
        old = i < 3
        part = "cache" if old else "new"
        d.box(f"k{i}", f"k_{i + 1}", (x - 14, 324), part, size=(27, 30), dashed=old)
        d.box(f"v{i}", f"v_{i + 1}", (x + 15, 324), part, size=(27, 30), dashed=old)
        d.arrow((x, 307), (x, 272), part)
        d.box(f"t{i}", f"t_{i + 1}", (x, 440), "new inputs" if i == 3 else "inputs", size=(46, 30))
    d.say("cache", (26, 374), "cache", anchor="start")
    d.box("x", "x_4", (last, 388), "new", size=(46, 28))
    d.arrow("t3", "x", "new")
    d.arrow((last, 372), (last, 341), "new")
    d.say("q_4", (last + 64, 330), "new", words=False)
    d.curve([(last + 23, 388), (last + 50, 388), (last + 50, 256)], "new")
    d.arrow((last + 50, 256), (last + 27, 256), "new")
    d.arrow((last, 241), (last, 212), "block new")
    d.arrow((last, 181), (last, 158), "block more new")
    d.arrow((last, 127), (last, 100), "more output")
    d.arrow((last, 69), (last, 40), "output draw")
    d.say("draw", (last - 8, 58), "draw", anchor="end")
    d.curve([(last + 25, 24), (334, 24), (334, 440)], "draw")
    d.arrow((334, 440), (last + 27, 440), "draw")
    return d


@diagram
def transformer() -> Drawing:
    """Chapter 10: two stacks that are joined by cross-attention."""
    d = Drawing(
        "transformer",
        648,
        "Two stacks. Left, the encoder: the source words and their positions pass N blocks, each "
        "of self-attention and a feed-forward part, and become the memory, one vector for each "
        "source word. Right, the decoder: the target words, shifted by one position, and their "
        "positions pass N blocks, each of causal self-attention, cross-attention, whose queries "
        "come from the decoder and whose keys and values come from the memory, and a feed-forward "
        "part. A residual path runs around each part to a sum and a norm. A linear layer and a "
        "softmax give the next word at every position.",
        {
            "source": "the source words",
            "encoder": "the encoder, N blocks of self-attention and a feed-forward part",
            "memory": "the memory, the source of keys and values in every block of the decoder",
            "shifted": "the target words, shifted by one position",
            "causal": "the causal self-attention of the decoder",
            "cross": "the cross-attention: queries from the decoder, keys and values from the "
            "memory",
            "decoder": "the decoder",
            "output": "the predicted words",
            "padding": "the two places where padding of the source is masked",
            "feedback": "in generation: each generated word is the next input",
        },
    )
    left, right, wide, tall = 76, 254, 116, 36
    d.band((left, 382), (142, 266), "encoder")
    d.band((right, 318), (142, 394), "decoder")
    d.say("N ×", (12, 242), "encoder", anchor="start")
    d.say("N ×", (340, 114), "decoder", anchor="end")
    d.say("generated word: next input", (346, 15), "feedback", anchor="end")
    d.box("x", "x_1  …  x_S", (left, 628), "source", size=(wide, 30))
    d.box("ex", "embedding|+ positions", (left, 560), "encoder", size=(wide, 44), words=True)
    d.box("self", "self-attention", (left, 467), "encoder padding", size=(wide, tall), words=True)
    d.box("ff", "feed-forward", (left, 341), "encoder", size=(wide, tall), words=True)
    d.box("memory", "memory", (left, 192), "memory", size=(wide, 30), words=True)
    d.box("y", "BOS  y_1  …  y_{n}", (right, 628), "shifted", size=(wide, 30))
    d.box("ey", "embedding|+ positions", (right, 560), "decoder", size=(wide, 44), words=True)
    d.box(
        "masked", "causal|self-attention", (right, 467), "decoder causal", size=(wide, 42),
        words=True,
    )  # fmt: skip
    d.box(
        "cross", "cross-attention", (right, 341), "decoder cross padding", size=(wide, tall),
        words=True,
    )  # fmt: skip
    d.box("ff2", "feed-forward", (right, 218), "decoder", size=(wide, tall), words=True)
    d.box("out", "linear, softmax", (right, 92), "output", size=(wide, 30), words=True)
    d.box("said", "y_1  …  y_n  EOS", (right, 42), "output", size=(wide, 30))
    for part, x, height, fork, way, stack in (
        ("self", left, 424, 504, 11, "encoder"),
        ("ff", left, 298, 374, 11, "encoder"),
        ("masked", right, 424, 504, 319, "decoder"),
        ("cross", right, 298, 374, 319, "decoder"),
        ("ff2", right, 175, 250, 319, "decoder"),
    ):
        d.sign(f"{part} sum", "+", (x, height), stack, radius=10)
        d.arrow(part, f"{part} sum", stack)
        d.arrow((x, fork), f"{part} sum", stack, via=[(way, fork), (way, height)])
        d.box(f"{part} norm", "norm", (x, height - 31), stack, size=(64, 22), words=True)
        d.arrow(f"{part} sum", f"{part} norm", stack)
    for lower, upper, part in (
        ("x", "ex", "source encoder"),
        ("ex", "self", "encoder"),
        ("self norm", "ff", "encoder"),
        ("ff norm", "memory", "encoder memory"),
        ("y", "ey", "shifted decoder"),
        ("ey", "masked", "decoder"),
        ("masked norm", "cross", "decoder cross"),
        ("cross norm", "ff2", "decoder"),
        ("ff2 norm", "out", "decoder output"),
        ("out", "said", "output"),
    ):
        d.arrow(lower, upper, part)
    d.arrow("memory", "cross", "memory cross", via=[(164, 192), (164, 341)])
    d.say("K,", (140, 182), "memory cross", anchor="start", words=False)
    d.say("V", (164, 182), "memory cross", anchor="start", words=False)
    d.say("Q", (right - 8, 372), "cross", anchor="end", words=False)
    d.arrow("said", "y", "feedback", via=[(344, 42), (344, 628)], dashed=True)
    return d


@diagram
def multi_head() -> Drawing:
    """Chapter 08: two heads attend to the same text at once, each with its own matrices."""
    d = Drawing(
        "multi-head",
        420,
        "Multi-head attention with two heads. In each head, the matrices of that head turn the "
        "vector x i into a query and the vectors X into keys and values. Each head divides the "
        "products of its query with its keys by the root of E, takes a softmax, and averages its "
        "values. The outputs of the heads "
        "are concatenated, and the matrix W O turns them into the output o i.",
        {
            "inputs": "the vectors of query, keys and values, the same for all heads",
            "projections": "the matrices of each head",
            "weights": "the weights, one set for each head",
            "heads": "the two heads",
            "values": "the values of each head",
            "join": "the concatenated outputs of the heads",
            "output": "the matrix W O and the output",
        },
    )
    d.box("out", "o_i", (175, 20), "output", size=(50, 28))
    d.box("joined", "[head_1; head_2]", (175, 92), "join output", size=(150, 30))
    d.arrow("joined", "out", "output")
    d.say("W_O", (198, 58), "output", words=False)
    for number, x, side in ((1, 92, 1), (2, 258, -1)):  # one is the mirror image of the other
        d.band((x, 236), (152, 196), "heads")
        d.box(f"head{number}", f"head_{number}", (x, 164), "heads values", size=(70, 30), role="")
        d.box(
            f"w{number}", "softmax of|q · k / √E", (x + 26 * side, 222), "heads weights",
            size=(94, 42), words=True,
        )  # fmt: skip
        for name, shift in (("q", 52), ("k", 0), ("v", -52)):
            at, role = x + shift * side, {"q": "query", "k": "key", "v": "value"}[name]
            parts = "heads projections" + " values" * (name == "v")
            d.box(f"{name}{number}", f"{name}_{number}", (at, 290), parts, size=(34, 28))
            parts = "projections" + " values" * (name == "v")
            d.arrow((at, 382), (at, 306), parts, role=role)
            d.say(f"W_{name.upper()}^{number}", (at + 5, 360), parts, anchor="start", words=False)
        d.arrow((x + 46 * side, 274), (x + 38 * side, 245), "heads weights", role="query")
        d.arrow((x + 4 * side, 274), (x + 12 * side, 245), "heads weights", role="key")
        d.arrow((x + 18 * side, 199), (x + 14 * side, 181), "heads weights")
        d.arrow((x - 50 * side, 274), (x - 27 * side, 181), "heads values")
        d.arrow(f"head{number}", (175 - 40 * side, 109), "join")
        d.box(f"X{number}", "X", (175 - 114 * side, 398), "inputs", size=(116, 28))
    d.box("asks", "x_i", (175, 398), "inputs", size=(96, 28))
    return d


@diagram
def residual_stream() -> Drawing:
    """Chapter 12: heads read from a sum and add to it, here and at an earlier position."""
    d = Drawing(
        "residual-stream",
        400,
        "The residual stream of two positions, j and a later i, drawn upwards from the embeddings. "
        "In layer 1 heads read the stream of each position and add what they have found; in layer "
        "2 a head of position i also reads the stream of position j. The last norm and the output "
        "table make logits of the stream of i.",
        {
            "stream": "the residual stream, a sum that only grows",
            "read": "a head reads the stream through a norm",
            "write": "what a head has found is added",
            "message": "a head of layer 2 reads what layer 1 wrote at an earlier position",
            "output": "the last norm and the output table",
        },
    )
    left, right = 54, 236
    for key, x, label in (("j", left, "x_j"), ("i", right, "x_i")):
        d.box(f"{key}in", label, (x, 380), "stream", size=(46, 28))
        d.sign(f"{key}one", "+", (x, 232), "stream write")
        d.arrow(f"{key}in", f"{key}one", "stream")
        d.box(
            f"{key}first", "heads|layer 1", (x + 66, 290), "read write", size=(66, 44), words=True
        )
        d.arrow((x, 338), f"{key}first", "read", via=[(x + 66, 338)])
        d.arrow(f"{key}first", f"{key}one", "write", via=[(x + 66, 232)])
    d.sign("itwo", "+", (right, 90), "stream write")
    d.arrow("ione", "itwo", "stream")
    between = right - 58  # where the keys and values of j arrive without crossing the stream of i
    d.box(
        "second",
        "heads|layer 2",
        (between, 150),
        "read write message",
        size=(66, 44),
        words=True,
    )
    d.arrow((right, 196), "second", "read", via=[(between, 196)])
    d.arrow("second", "itwo", "write", via=[(between, 90)])
    d.arrow("jone", "second", "message", via=[(left, 150)], dashed=True)
    d.say("keys, values", (99, 140), "message")
    d.box("out", "logits", (right, 20), "output", size=(66, 30), words=True)
    d.arrow("itwo", "out", "stream output")
    d.say("norm, table", (right - 12, 60), "output", anchor="end")
    return d


@diagram
def transformer_block() -> Drawing:
    """Chapter 09: the parts of a block, with the norm after each sum or before each part."""
    d = Drawing(
        "transformer-block",
        394,
        "Two blocks, read from below. In both, a vector x goes through attention and then through "
        "a feed-forward part, and around each part runs a residual path to a sum. Left, post-norm: "
        "the sum goes through a norm, so both norms are on the direct path from bottom to top. "
        "Right, pre-norm: each norm is before its part, on the branch, and the direct path "
        "passes only through the two sums.",
        {
            "attention": "the attention, the only part in which positions interact",
            "ffn": "the feed-forward part, which is applied to each position separately",
            "residual": "the residual paths and the sums",
            "norm": "the norms",
            "post": "the post-norm block",
            "pre": "the pre-norm block",
        },
    )
    size = (96, 30)
    for left, kind in ((18, "post"), (196, "pre")):
        x, way = left + 84, left + 12
        d.say(f"{kind}-norm", (x, 16), kind)
        d.box(f"{kind}x", "x", (x, 372), f"residual {kind}", size=(46, 28))
        below, y = f"{kind}x", 372.0
        for part, label in (("attention", "attention"), ("ffn", "feed-forward")):
            fork = (way, y - 26)
            if kind == "pre":
                d.box(f"{kind}n{part}", "norm", (x, y - 58), f"norm {kind}", size=size, words=True)
                d.arrow(below, f"{kind}n{part}", f"norm {part} {kind}")
                inward, top = f"{kind}n{part}", y - 108
            else:
                inward, top = below, y - 62
            d.box(f"{kind}{part}", label, (x, top), f"{part} {kind}", size=size, words=True)
            d.arrow(inward, f"{kind}{part}", f"{part} {kind}")
            plus = f"{kind}p{part}"
            d.sign(plus, "+", (x, top - 43), f"residual {kind}", radius=10)
            d.arrow(f"{kind}{part}", plus, f"{part} residual {kind}")
            d.arrow((x, fork[1]), plus, f"residual {kind}", via=[fork, (way, top - 43)])
            below, y = plus, top - 43
            if kind == "post":
                d.box(f"{kind}n{part}", "norm", (x, y - 42), f"norm {kind}", size=size, words=True)
                d.arrow(plus, f"{kind}n{part}", f"norm residual {kind}")
                below, y = f"{kind}n{part}", y - 48
        end = (x, 34)
        d.arrow(below, end, f"residual {kind}" if kind == "pre" else f"norm {kind}")
    return d


@diagram
def hashed_chunks() -> Drawing:
    """Chapter 15: hash, sort, cut, attend inside a chunk and to the one before, sort back."""
    d = Drawing(
        "hashed-chunks",
        372,
        "Eight positions of a text are hashed into three buckets, A, B and C. They are sorted by "
        "bucket, and inside a bucket by position, and cut into four chunks of two. The chunk of "
        "positions 6 and 2 attends to itself and to the chunk before it, where only positions of "
        "the same bucket count. Then the outputs are sorted back.",
        {
            "text": "the positions in the order of the text",
            "hash": "the hash, which gives each position a bucket",
            "sort": "the positions sorted by bucket",
            "chunks": "the chunks",
            "attention": "attention inside a chunk and to the one before it",
            "back": "the outputs, sorted back",
        },
    )
    buckets = "CABCABAC"
    order = sorted(range(8), key=lambda i: (buckets[i], i))
    places = [26 + 36 * i for i in range(8)]
    for i, x in enumerate(places):
        d.box(f"t{i}", str(i), (x, 26), "text", size=(28, 26))
        d.box(f"h{i}", buckets[i], (x, 84), "hash", size=(28, 26))
        d.arrow(f"t{i}", f"h{i}", "hash")
    for chunk in range(4):
        d.band((places[2 * chunk] + 18, 186), (68, 42), "chunks")
    for rank, i in enumerate(order):
        d.box(f"s{rank}", str(i), (places[rank], 186), "sort", size=(28, 26))
        d.arrow(f"h{i}", f"s{rank}", "sort")
    d.box("look", "attention", (places[3] - 18, 262), "attention", size=(104, 28), words=True)
    for rank in range(4):
        d.arrow(f"s{rank}", "look", "attention")
    for i, x in enumerate(places):
        d.box(f"o{i}", str(i), (x, 338), "back", size=(28, 26))
    for i in order[2:4]:
        d.arrow("look", f"o{i}", "back")
    for name, y, part in (
        ("text", 30, "text"),
        ("bucket", 88, "hash"),
        ("sorted", 190, "sort"),
        ("output", 342, "back"),
    ):
        d.say(name, (302, y), part, anchor="start")
    return d


@diagram
def window_layers() -> Drawing:
    """Chapter 14: what an output depends on through three windows, and a global way round them."""
    d = Drawing(
        "window-layers",
        316,
        "Nine positions in four rows: the inputs below, three layers above them. With a window of "
        "three keys the output in the middle depends on three positions one layer below, on five "
        "of the row below that, and on seven inputs. A dashed way leads from the last input in one "
        "step to the first position, which is global, and from there in one step to the middle.",
        {
            "window": "the window of one output, three keys",
            "reach": "all that it can depend on through three layers",
            "global": "the way over a global position, two steps from anywhere to anywhere",
        },
    )
    places = [20 + 36 * i for i in range(9)]
    rows = [290, 206, 122, 38]
    for row, y in enumerate(rows):
        for i, x in enumerate(places):
            far = abs(i - 4)
            part = "window reach" if far + row <= 3 and row >= 2 else "reach" * (far + row <= 3)
            if (row, i) in ((0, 8), (1, 0), (2, 4)):
                part = f"{part} global".strip()
            d.box(f"p{row}{i}", str(i + 1), (x, y), part, size=(26, 24), words=True)
    for row in (1, 2, 3):
        for i in range(9):
            if abs(i - 4) + row <= 3:
                part = "window reach" if row == 3 else "reach"
                for j in (i - 1, i, i + 1):
                    d.arrow(f"p{row - 1}{j}", f"p{row}{i}", part)
    d.arrow("p08", "p10", "global", via=[(places[8], 262), (places[0], 240)], dashed=True)
    d.arrow("p10", "p24", "global", dashed=True)
    return d


@diagram
def vision_transformer() -> Drawing:
    """Chapter 13: patches become words, a class token joins them, and the encoder does the rest."""
    d = Drawing(
        "vision-transformer",
        420,
        "An image is cut into four patches. One projection turns every patch into a vector, a "
        "learned class token is put in front of them, and each of the five gets a position. The "
        "blocks of a Transformer encoder follow, and the head reads the vector at the place of the "
        "class token.",
        PARTS
        | {
            "patches": "the image, cut into patches",
            "projection": "one matrix for all patches",
            "class": "the class token, which belongs to no patch",
            "positions": "a position for each token, added",
            "blocks": "blocks of a Transformer encoder",
            "head": "the head, which reads the class token",
        },
    )
    columns = (40, 96, 152, 208, 264)
    d.box("head", "y", (columns[0], 20), "head", size=(46, 28))
    d.box("blocks", "encoder|N blocks", (152, 96), "blocks", size=(272, 60), words=True)
    d.arrow((columns[0], 64), "head", "head")
    labels = ["x_c", *indexed("z_#")]
    for i, (x, label) in enumerate(zip(columns, labels, strict=True)):
        own = "class" if i == 0 else "projection"
        d.box(f"t{i}", label, (x, 190), own, size=(46, 30))
        d.arrow((x, 173), (x, 130), own)
        d.box(f"p{i}", f"p_{i}", (x, 250), "positions", size=(38, 24))
        d.arrow(f"p{i}", f"t{i}", "positions")
    for i, x in enumerate(columns[1:], 1):
        d.box(f"x{i}", f"x_{i}", (x, 386), "patches", size=(46, 30))
        d.arrow((x - 20, 370), (x - 20, 207), "projection")
    d.say("E", (columns[1] - 34, 324), "projection", words=False)
    d.say("patches", (4, 390), "patches", anchor="start")
    return d


@diagram
def key_ring() -> Drawing:
    """Chapter 19: four devices in a ring; queries stay, keys and values travel."""
    d = Drawing(
        "key-ring",
        330,
        "Four devices form a ring. Each keeps the queries of its own part of the sequence. It also "
        "has one block of keys and values, which it passes to the next device at every step, the "
        "last device to the first. From each block it computes an output and a log-sum-exp, and "
        "joins them with its earlier results.",
        {
            "queries": "the queries, which stay",
            "memory": "the current block of keys and values",
            "travel": "the path of the blocks around the ring",
            "partial": "the running output and log-sum-exp of each device",
        },
    )
    places = ((88, 84), (262, 84), (262, 238), (88, 238))
    for i, (x, y) in enumerate(places):
        d.band((x, y), (134, 116), "")
        d.say(f"device {i}", (x, y - 42), "")
        d.box(f"q{i}", f"Q_{i}", (x - 34, y - 12), "queries", size=(48, 28))
        d.box(f"k{i}", f"K_{i}, V_{i}", (x + 29, y - 12), "memory", size=(62, 28))
        d.box(f"o{i}", "o, lse", (x, y + 34), "partial", size=(70, 26), words=True)
        d.arrow(f"q{i}", f"o{i}", "partial")
        d.arrow(f"k{i}", f"o{i}", "partial")
    d.arrow((156, 64), (194, 64), "travel")
    d.arrow((282, 143), (282, 179), "travel")
    d.arrow((194, 258), (156, 258), "travel")
    d.arrow((68, 179), (68, 143), "travel")
    d.say("keys and values", (175, 156), "travel")
    d.say("travel around", (175, 173), "travel")
    return d


@diagram
def shared_keys() -> Drawing:
    """Chapter 11: four ways to store what four query heads attend to."""
    d = Drawing(
        "shared-keys",
        314,
        "Four layers with four query heads each, and what they store for a token. Multi-head: each "
        "query has a key and a value of its own. Grouped: two queries share a key and a value. "
        "Multi-query: all four share one. Latent: one short vector c is stored, and the keys and "
        "values of the four heads, dashed, are computed from it.",
        {
            "queries": "the queries, one for each head",
            "stored": "what is stored for each token",
            "computed": "keys and values that are computed from the stored vector",
        },
    )
    kinds = (("multi-head", 4), ("grouped", 2), ("multi-query", 1), ("latent", 4))
    for number, (name, count) in enumerate(kinds):
        left, top = 175 * (number % 2), 142 * (number // 2)
        latent = name == "latent"
        d.say(name, (left + 85, top + 16), "")
        for i in range(4):
            d.box(f"{name}q{i}", "q", (left + 25 + 40 * i, top + 44), "queries", size=(30, 28))
        part = "computed" if latent else "stored"
        for i in range(count):
            x = left + 25 + 40 * ((i + 0.5) * 4 / count - 0.5)
            at = (x, top + 106)
            d.box(f"{name}k{i}", "k, v", at, part, size=(36, 28), dashed=latent)
        for i in range(4):
            d.arrow(f"{name}k{i * count // 4}", f"{name}q{i}", part)
        if latent:
            d.box("c", "c", (left + 85, top + 156), "stored", size=(30, 26))
            for i in range(4):
                d.arrow("c", f"{name}k{i}", "computed", dashed=True)
    return d


@diagram
def activation_patching() -> Drawing:
    """Chapter 12: one activation of a clean run goes into a corrupted one."""
    d = Drawing(
        "activation-patching",
        262,
        "Two runs of the same model. The clean text is A B C A, and the model predicts B, which "
        "followed A before. In the corrupted text the first A is D. The output z of one head at "
        "one position is copied from the clean run into the corrupted one; does B return?",
        {
            "clean": "the clean run",
            "corrupted": "the corrupted run",
            "patch": "the copied activation",
            "answer": "the predictions",
        },
    )
    for run, texts, outputs, text, answer in (
        ("clean", 22, 88, "ABCA", "B"),
        ("corrupted", 244, 178, "DBCA", "B ?"),
    ):
        d.say(run, (4, texts + 4), run, anchor="start")
        for i, symbol in enumerate(text):
            x = 98 + 54 * i
            patched = run == "corrupted" and i == 1
            part = f"{run} patch" if i == 1 else run
            d.box(f"{run}t{i}", symbol, (x, texts), run, size=(32, 28), words=True)
            d.box(f"{run}z{i}", f"z_{i + 1}", (x, outputs), part, size=(34, 30), dashed=patched)
            d.arrow(f"{run}t{i}", f"{run}z{i}", run)
        d.box(f"{run}y", answer, (324, outputs), f"answer {run}", size=(44, 28), words=True)
        d.arrow(f"{run}z3", f"{run}y", f"answer {run}")
    d.arrow("cleanz1", "corruptedz1", "patch")
    d.say("copy one output", (162, 138), "patch", anchor="start")
    return d


@diagram
def fixed_and_free() -> Drawing:
    """Chapter 13: what a convolution fixes and attention computes."""
    d = Drawing(
        "fixed-and-free",
        226,
        "Two pictures of seven by seven pixels, with the weights of the pixel in the middle. Left, "
        "a convolution: only the three by three neighbours have weights, the same for every image. "
        "Right, attention: any pixel may have a weight, and another image gives other weights.",
        {
            "convolution": "the weights of a convolution",
            "attention": "the weights of attention",
        },
    )
    kernel = [[0.0] * 7 for _ in range(7)]
    free = [[0.04 * (1 + (3 * i + 5 * j) % 4) for j in range(7)] for i in range(7)]
    for i, shares in enumerate(((0.25, 0.5, 0.25), (0.5, 0.9, 0.5), (0.25, 0.5, 0.25))):
        kernel[2 + i][2:5] = shares
    for i, j, share in ((1, 5, 0.9), (0, 1, 0.5), (3, 3, 0.5), (5, 2, 0.9), (6, 5, 0.25)):
        free[i][j] = share
    kinds = (
        (8, "convolution", kernel, "fixed neighbourhood,", "the same for all images"),
        (188, "attention", free, "any pixel,", "set by the image"),
    )
    for left, part, shares, *lines in kinds:
        d.say(part, (left + 77, 14), part)
        d.grid((left, 24), 22, shares, part)
        for number, line in enumerate(lines):
            d.say(line, (left + 77, 198 + 18 * number), part)
    return d


@diagram
def linear_memory() -> Drawing:
    """Chapter 15: keys and values are added to a table of fixed size; queries read it."""
    d = Drawing(
        "linear-memory",
        236,
        "A row of tables S of the same size, one for each position. At each position the product "
        "of a key and a value is added to the table, and a query reads an output from it.",
        {
            "state": "the table, whose size never changes",
            "write": "keys and values, which are added",
            "read": "queries and outputs",
        },
    )
    columns = (76, 170, 264)
    d.say("S_0", (14, 123), "state", words=False)
    for i, x in enumerate(columns, 1):
        d.box(f"s{i}", f"S_{i}", (x, 118), "state", size=(48, 48))
        d.box(f"k{i}", f"k_{i}", (x - 17, 212), "write", size=(30, 30))
        d.box(f"v{i}", f"v_{i}", (x + 17, 212), "write", size=(30, 30))
        d.arrow((x, 195), f"s{i}", "write")
        d.box(f"q{i}", f"q_{i}", (x - 22, 24), "read", size=(32, 30))
        d.box(f"o{i}", f"o_{i}", (x + 22, 24), "read", size=(32, 30))
        d.arrow((x - 14, 41), (x - 14, 92), "read", role="query")
        d.arrow((x + 14, 92), (x + 14, 41), "read")
        d.say("+", (x + 12, 174), "write", words=False)
    d.arrow((26, 118), "s1", "state")
    chain(d, ["s1", "s2", "s3"], "state")
    d.arrow("s3", (330, 118), "state")
    return d


@diagram
def narrow_table() -> Drawing:
    """Chapter 15: Linformer mixes the keys, and the table of weights becomes narrow."""
    d = Drawing(
        "narrow-table",
        232,
        "Left, attention: N queries and N keys give a table of N by N weights. Right, Linformer: a "
        "matrix M first mixes the N keys into k keys, and the table is N by k.",
        {
            "full": "the table of N by N weights",
            "mix": "the N keys, mixed into k",
            "narrow": "the table of N by k weights",
        },
    )
    d.box("keys", "N keys", (108, 26), "mix full", size=(132, 28), words=True, role="key")
    d.box("few", "k keys", (290, 26), "mix narrow", size=(52, 28), words=True, role="key")
    d.arrow("keys", "few", "mix", role="key")
    d.say("M", (219, 18), "mix", words=False)
    d.box("queries", "Q", (18, 128), "full narrow", size=(28, 132))
    d.box("table", "N × N|weights", (108, 128), "full", size=(132, 132), words=True, role="weight")
    d.box("thin", "N × k", (290, 128), "narrow", size=(52, 132), words=True, role="weight")
    d.say("attention", (108, 220), "full")
    d.say("Linformer", (290, 220), "narrow")
    return d


@diagram
def program_grid() -> Drawing:
    """Chapter 16: the programs of a kernel, and the lanes of the last one beyond the end."""
    d = Drawing(
        "program-grid",
        164,
        "A row of memory cells. Cells 0 to 9 belong to a vector, and the two after them to another "
        "tensor. Three programs take four cells each; the last one also covers the two cells "
        "beyond the end.",
        {
            "programs": "the programs, four lanes each",
            "vector": "the ten numbers of the vector",
            "beyond": "the memory beyond the vector",
        },
    )
    for number in range(3):
        x = 15 + 29 * (4 * number + 1.5)
        size = (112, 30)
        d.box(f"p{number}", f"program {number}", (x, 22), "programs", size=size, words=True)
        for lane in range(4):
            i = 4 * number + lane
            part = "vector" if i < 10 else "beyond"
            at = (15 + 29 * i, 98)
            d.box(f"m{i}", str(i), at, part, size=(26, 30), words=True, dashed=i >= 10)
            d.arrow((15 + 29 * i, 39), f"m{i}", "programs")
    d.say("ours: ten numbers", (145, 134), "vector")
    d.say("another", (320, 134), "beyond")
    d.say("tensor", (320, 151), "beyond")
    return d


@diagram
def flash_tiles() -> Drawing:
    """Chapter 17: what one program of FlashAttention keeps on the chip, and what passes through."""
    d = Drawing(
        "flash-tiles",
        322,
        "One program of FlashAttention. Above, on the chip: one tile of queries and the running "
        "maximum, sum and mixture stay; one tile of keys and values at a time gives a tile of "
        "scores, which is never stored in memory. Below, in HBM: queries are read once, all tiles "
        "of keys and values one after the other, and the output is written once.",
        {
            "stay": "what stays on the chip for the whole loop",
            "pass": "keys and values, which pass through tile by tile",
            "scores": "the tile of scores, which never leaves the chip",
            "output": "the output, written once",
        },
    )
    d.band((175, 88), (342, 168), "", filled=False)
    d.say("on the chip", (14, 22), "", anchor="start")
    d.box("q", "Q_I", (44, 134), "stay", size=(56, 32))
    d.box("s", "scores", (120, 62), "scores", size=(70, 32), words=True)
    d.box("run", "m, \\ell , A", (268, 62), "stay", size=(104, 32))
    d.box("kv", "K_J, V_J", (164, 134), "pass", size=(84, 32))
    d.arrow("q", "s", "scores", role="query")
    d.arrow("kv", "s", "scores pass", role="key")
    d.arrow("s", "run", "scores stay")
    d.arrow("kv", "run", "pass", role="value")
    d.box("hq", "Q", (44, 236), "stay", size=(56, 32))
    for i, x in enumerate((112, 147, 182, 217), 1):
        d.box(f"h{i}", str(i), (x, 236), "pass", size=(30, 32), words=True)
        if i > 1:
            d.arrow((x, 218), (148 + 8 * (i - 1), 152), "pass", dashed=True)
    d.arrow("h1", (148, 152), "pass")
    d.arrow("hq", "q", "stay", role="query")
    d.box("o", "O", (300, 236), "output", size=(56, 32))
    d.arrow((300, 80), "o", "output")
    d.say("read once", (44, 270), "stay")
    d.say("tiles of keys and values,", (164, 270), "pass")
    d.say("one after the other", (164, 287), "pass")
    d.say("written once", (303, 270), "output")
    d.say("in HBM", (14, 312), "", anchor="start")
    return d


@diagram
def tiles_needed() -> Drawing:
    """Chapter 18: the tiles of a causal mask, of a window, and of one new query."""
    d = Drawing(
        "tiles-needed",
        236,
        "A table of scores in eight by eight tiles. Left, dark: the 36 tiles that the kernel of "
        "chapter 17 computes, all that touch the lower triangle. Middle: a window of two tiles "
        "needs 15 of them. Right: one new query needs one row of scores, less than a tile high.",
        {
            "causal": "the tiles of a causal mask",
            "window": "the tiles of a window",
            "query": "the row of one new query",
        },
    )
    cell = 18
    for left, part, reach in ((4, "causal", 8), (186, "window", 2)):
        shares = [[0.7 * (0 <= i - j < reach) for j in range(8)] for i in range(8)]
        d.grid((left, 24), cell, shares, part)
        d.say(part, (left + 4 * cell, 14), part)
    d.say("one query", (4, 200), "query", anchor="start")
    d.grid((186, 192), cell / 2, [[0.7] * 16], "query")
    return d


@diagram
def data_parallel() -> Drawing:
    """Chapter 19: two devices, the same model, other rows; their gradients are averaged."""
    d = Drawing(
        "data-parallel",
        282,
        "Two devices have the same model and different rows of the batch: three targets on one, "
        "one target on the other. Each computes a gradient of its own mean loss. The two gradients "
        "become one, which updates both models.",
        {
            "model": "the model, the same on every device",
            "rows": "the rows of the batch, different on each device",
            "gradient": "the gradients and their mean",
        },
    )
    d.sign("mean", "?", (175, 28), "gradient", radius=16)
    d.say("which mean?", (200, 18), "gradient", anchor="start")
    for number, (x, targets) in enumerate(((88, 3), (262, 1))):
        d.band((x, 178), (150, 196), "")
        d.say(f"device {number}, targets t", (x, 270), "")
        d.box(f"g{number}", "gradient", (x, 108), "gradient", size=(100, 30), words=True)
        d.box(f"m{number}", "model", (x, 168), "model", size=(100, 30), words=True)
        for i in range(targets):
            at = (x + 36 * (i - (targets - 1) / 2), 232)
            d.box(f"r{number}{i}", "t", at, "rows", size=(30, 28))
        d.arrow((x, 216), f"m{number}", "rows")
        d.arrow(f"m{number}", f"g{number}", "model")
        d.arrow(f"g{number}", "mean", "gradient")
    return d


@diagram
def protocol() -> Drawing:
    """Chapter 20: from a claim to a verdict; what is fixed before the first run."""
    d = Drawing(
        "protocol",
        420,
        "The way from a claim to a verdict. Before the first run: a claim with a number, what "
        "would refute it, the budget, the seeds and the rule. Then hero and control are run with "
        "the same settings and seeds, each is chosen on validation data, and their test results "
        "are paired by seed. The rule turns the differences into a verdict: true, partly, false or "
        "not settled.",
        {
            "plan": "what is written before the first run",
            "runs": "the runs of hero and control",
            "choice": "the setting of each side, chosen on validation",
            "differences": "the test results, paired by seed",
            "verdict": "the verdict",
        },
    )
    d.band((175, 66), (342, 124), "plan", filled=False)
    d.say("before the first run", (14, 22), "plan", anchor="start")
    d.box("claim", "claim with|a number", (64, 66), "plan", size=(100, 48), words=True)
    d.box("refute", "what would|refute it", (175, 66), "plan", size=(100, 48), words=True)
    d.box("rule", "measure,|margin, level", (286, 66), "plan", size=(106, 48), words=True)
    d.say("settings and seeds, the same for both sides", (175, 116), "plan")
    for name, x in (("hero", 92), ("control", 258)):
        size = (140, 48)
        d.box(name, f"{name}: settings|× seeds", (x, 178), "runs", size=size, words=True)
        d.arrow((x, 130), name, "plan runs")
        label = "best median on|validation"
        d.box(f"{name}best", label, (x, 256), "choice", size=size, words=True)
        d.arrow(name, f"{name}best", "choice")
    paired, verdicts = "test: hero − control, by seed", "true · partly · false · not settled"
    d.box("pairs", paired, (175, 326), "differences", size=(236, 30), words=True)
    d.box("verdict", verdicts, (175, 396), "verdict", size=(250, 32), words=True)
    for x in (92, 258):
        d.arrow((x, 282), (x, 309), "differences")
    d.arrow("pairs", "verdict", "verdict")
    d.say("rule", (183, 364), "verdict", anchor="start")
    return d
