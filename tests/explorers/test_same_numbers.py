"""What an explorer computes in the page equals what the package computes, digit by digit."""

import random
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from attn_course import explorers

States = list[dict[str, Any]]


def flat(value: Any) -> list[Any]:
    """All numbers and words of nested dicts and lists, in order."""
    if isinstance(value, dict):
        return [item for key in sorted(value) for item in flat(value[key])]
    if isinstance(value, list):
        return [item for part in value for item in flat(part)]
    return [value]


def differences(page: dict[str, Any], package: dict[str, Any], *, rtol: float) -> list[str]:
    """A line for every entry that differs by more than ``rtol`` of its size, or in kind."""
    if sorted(page) != sorted(package):
        return [f"keys {sorted(page)} and {sorted(package)}"]
    a, b = flat(page), flat(package)
    if len(a) != len(b):
        return [f"{len(a)} entries and {len(b)}"]
    lines = []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if isinstance(x, str | bool | None) or isinstance(y, str | bool):
            same = x == y
        else:
            same = bool(np.isclose(x, y, rtol=rtol, atol=1e-38))
        if not same:
            lines.append(f"entry {i}: {x} and {y}")
    return lines


def writer_states() -> States:
    rng = random.Random(7)
    rows = [[rng.gauss(0, 3) for _ in range(65)] for _ in range(3)] + [[1.0, 1.0, 0.0]]
    return [
        {"logits": row, "temperature": value, "top_p": share}
        for row in rows
        for value in (0.1, 0.7, 2.0)
        for share in (0.1, 0.8, 0.95, 1.0)
    ]


def softmax_states() -> States:
    state = import_module("attn_course.explorers.softmax_temperature").default_state()
    rng = random.Random(3)
    states = []
    for shift in (0.0, 7.3, 88.5, 89.0, 150.0, -104.0, -110.0):
        for temperature in (0.1, 1.0, 3.7):
            example = rng.choice(state["examples"])
            scores = [round(rng.uniform(-10, 10), 1) for _ in example["words"]]
            own = {"scores": scores, "vectors": example["vectors"], "shift": shift}
            states.append(own | {"temperature": temperature})
    return states


def reach_states() -> States:
    state = opening("gradient_reach")
    knobs = [(0.58, 0.0, 51, 1.0), (1.0, 3.0, 23, 0.0), (1.7, -2.5, 31, 2.0)]
    knobs += [(0.0, 8.0, 2, 0.35), (2.0, 8.0, 40, 0.1)]
    names = ("scale", "bias", "length", "input_scale")
    return [state | dict(zip(names, values, strict=True)) for values in knobs]


def bottleneck_states() -> States:
    state = import_module("attn_course.explorers.bottleneck").default_state()
    rng = random.Random(5)
    texts = ["a", "badge", "h" * 18]
    texts += ["".join(rng.choices(state["letters"], k=n)) for n in (2, 7, 11, 13, 14, 16, 17, 18)]
    fixed = {key: state[key] for key in ("letters", "weights", "layout")}
    return [fixed | {"text": text} for text in texts]


def score_states() -> States:
    state = opening("score_playground")
    rng = random.Random(7)

    def vector(reach: float) -> list[float]:
        return [rng.uniform(-reach, reach) for _ in range(2)]

    def matrix(rows: int, columns: int) -> list[list[float]]:
        return [[rng.uniform(-2, 2) for _ in range(columns)] for _ in range(rows)]

    states = [state, state | {"joined": True}, state | {"query": [0, 0], "key": [[0, 0]] * 4}]
    for sharpness in (0, 1, 2.5, 10):
        keys = [vector(4) for _ in range(4)]
        parameters = {
            "general": {"weight": matrix(2, 2)},
            "additive": {name: matrix(3, 2) for name in ("weight_query", "weight_key")},
            "concat": {"weight": matrix(5, 4), "v": matrix(1, 5)[0]},
            "location": {"weight": matrix(7, 2)},
        }
        parameters["additive"]["v"] = matrix(1, 3)[0]
        own = {"query": vector(4), "key": keys, "sharpness": sharpness, "joined": sharpness == 10}
        states.append(state | own | {"parameters": parameters})
    return states


def window_states() -> States:
    rng = random.Random(11)
    # whole, half and odd centres, windows over both ends and wholly behind the source
    cases = [(20, 6.4, 4), (20, 0, 3), (20, 0.5, 1), (20, 19.5, 10), (13, 12.9, 2), (7, 2.5, 10)]
    cases += [(20, 24, 1), (5, 24, 10), (1, 0, 1), (12, 11, 4), (20, 23.9, 4)]
    return [
        {"scores": [round(rng.uniform(-4, 4), 1) for _ in range(20)]}
        | dict(zip(("length", "position", "half_width"), case, strict=True))
        for case in cases
    ]


def alignment_states() -> States:
    state = import_module("attn_course.explorers.alignment_map").default_state()
    sentences = [
        *state["examples"]["translation"],
        "the cat",  # no sentence of the language
        "dog",
        '  The OLD mouse, follows: a "garden".  ',
        "a zebra paints zebra zebra sees constructor the toString",
        "the red green white old small happy book wants a happy small house",
        "<unk> the <pad> girl ... likes",
    ]
    dates = [*state["examples"]["dates"], "7", "1.1.1999", "4 may 1800"]
    dates.append("the  22ND of Octöber 2031!")
    fixed = {key: state[key] for key in ("models", "lexicon")}
    return [fixed | {"task": "translation", "text": text} for text in sentences] + [
        fixed | {"task": "dates", "text": text} for text in dates
    ]


def memory_states() -> States:
    state = import_module("attn_course.explorers.memory_hops").default_state()
    rng = random.Random(13)
    states = []
    for _, thing, sentences in state["stories"]:
        for hops in (1, 2, 3):
            order = rng.sample(sentences, len(sentences))
            marks = [rng.random() < 0.7 for _ in order]
            marks[rng.randrange(len(marks))] = True
            other = rng.choice(state["things"])
            states.append({"sentences": sentences, "told": [True] * len(sentences), "thing": thing})
            states.append({"sentences": order, "told": marks, "thing": other})
            states[-2]["hops"] = states[-1]["hops"] = hops
    states.append({"sentences": sentences[:1], "told": [True], "thing": "milk", "hops": 3})
    fixed = {key: state[key] for key in ("places", "words", "embed", "most", "weights")}
    return [one | fixed for one in states]


def hard_states() -> States:
    rng = random.Random(7)
    states = [opening("hard_attention")]
    for place, baseline in ((0, 0.0), (1, 16.0), (2, 18.2), (3, -3.5), (1, 40.0)):
        scores = [round(rng.uniform(-3, 3), 1) for _ in range(4)]
        rewards = [float(rng.randint(-40, 40)) for _ in range(4)]
        changed = {"scores": scores, "rewards": rewards, "baseline": baseline, "place": place}
        states.append(changed | {"seed": rng.randint(1, 2**31 - 2)})
    return states


def sense_states() -> States:
    state = import_module("attn_course.explorers.word_sense").default_state()
    rng = random.Random(17)
    states = [{key: example[key] for key in ("vectors", "place")} for example in state["examples"]]
    for count in (1, 2, 11):
        vectors = [[rng.uniform(0, 2.5) for _ in range(2)] for _ in range(count)]
        states.append({"vectors": vectors, "place": rng.randrange(count)})
    states.append({"vectors": [[0, 0], [0, 1], [2, 0]], "place": 0})
    return states


def mask_states() -> States:
    module = import_module("attn_course.explorers.mask_composer")
    rng = random.Random(19)
    return [
        {
            "scores": [[round(rng.uniform(-4, 4), 1) for _ in range(7)] for _ in range(7)],
            "joins": {kind: rng.choice(module.JOINS) for kind in module.KINDS},
            "window": rng.randint(1, 7),
            "prefix": rng.randint(0, 7),
            "length": rng.randint(0, 7),
            "place": place,
        }
        for place in module.PLACES * 8
    ]


def painter_states() -> States:
    rng = random.Random(29)
    return [
        {
            "size": 20,
            "window": rng.choice([0, 1, 3, 7]),
            "dilation": rng.randint(1, 6),
            "stride": rng.choice([0, 0, 3, 5]),
            "block": rng.choice([0, 0, 4, 7]),
            "num_global": rng.choice([0, 0, 2]),
            "causal": rng.random() < 0.5,
            "painted": [[rng.randrange(20), rng.randrange(20)] for _ in range(rng.choice([0, 3]))],
        }
        for _ in range(30)
    ]


def cache_states() -> States:
    module = import_module("attn_course.explorers.kv_cache")
    sizes = {name: 2 + 3 * i for i, name in enumerate(sorted(module.MODEL))} | {"num_groups": 1}
    return [
        {"step": step, "model": module.MODEL if step % 2 else sizes} for step in (1, 2, 7, 10, 80)
    ]


def tree_states() -> States:
    state = opening("decoding_tree")
    rng = random.Random(23)
    states = [
        state | {"beam": beam, "alpha": alpha, "p": p, "draws": [rng.random() for _ in range(5)]}
        for beam, alpha, p in ((1, 0, 1), (2, 0, 0.5), (3, 0.0, 0.8), (3, 0.5, 0.1), (5, 2, 0.95))
    ]
    for size in (4, 6, 8):  # any model: some words are impossible, and sentences may be cut off
        for beam in (1, 2, 4):
            rows = [[max(0.0, rng.uniform(-0.4, 1)) for _ in range(size)] for _ in range(size)]
            for row in rows:
                row[0] = 0.0
                row[2] += 0.05
            rows[1] = [0.0] * size
            own = {"chances": rows, "longest": 6, "beam": beam, "alpha": rng.choice((0, 0.6, 1.3))}
            drawn = [rng.random() for _ in range(6)]
            states.append(own | {"p": rng.choice((0.3, 0.7, 1.0)), "draws": drawn})
    return states


def rope_states() -> States:
    start = opening("rope_distances")
    rng = random.Random(23)
    states = [start, start | {"query_place": 40, "key_place": 40}]
    for head_dim, base, heads in ((2, 10000, 1), (4, 17.0, 12), (8, 1e6, 8), (16, 500.0, 16)):
        own = {"head_dim": head_dim, "base": base, "heads": heads, "head": rng.randint(1, heads)}
        own |= {
            name: [round(rng.uniform(-2, 2), 2) for _ in range(16)] for name in ("query", "key")
        }
        # the key before the query, and after it
        for places in ((63, 0), (3.25, 41)):
            names = ("query_place", "key_place")
            states.append(own | dict(zip(names, places, strict=True)))
    return states


def flow_states() -> States:
    state = import_module("attn_course.explorers.transformer_flow").default_state()
    rng = random.Random(23)
    words = [word for word in state["words"] if word.isalpha()]
    texts = [*state["examples"], "", "  The DOG, sees a zebra . constructor!", "tom " * 20]
    texts += [" ".join(rng.choices(words, k=n)) for n in (1, 4, 9, 14)]
    fixed = {key: state[key] for key in ("words", "layout", "weights")}
    return [
        fixed | {"text": text, "off": off, "at": at}
        for text in texts
        for off, at in (([], -1), (sorted(rng.sample(range(8), 3)), rng.randint(0, 6)))
    ]


def trace_states() -> States:
    traces = import_module("attn_course.explorers.memory_trace").traces()
    return [
        {"trace": trace, "step": step}
        for trace in traces.values()
        for step in {1, 2, len(trace["steps"]) // 2, len(trace["steps"])}
    ]


def online_states() -> States:
    state = import_module("attn_course.explorers.online_softmax").default_state()
    rng = random.Random(5)
    return [
        {
            "scores": [round(rng.uniform(-4, 4), 2) for _ in state["scores"]],
            "values": state["values"],
            "order": order,
            "tile": tile,
            "corrected": corrected,
        }
        for order in ("as given", "rising", "falling")
        for tile in (1, 2, 3, 8)
        for corrected in (True, False)
    ]


def paged_states() -> States:
    module = import_module("attn_course.explorers.paged_cache")
    start = opening("paged_cache")
    rng = random.Random(37)
    states = [start | {"way": "pages", "page": page, "step": 44} for page in (1, 4, 16)]
    for way in module.WAYS:
        for page, step in ((1, 9), (2, 20), (5, 33), (8, 12), (16, 27)):
            requests = [
                [rng.randint(0, 12), rng.randint(1, 13), rng.randint(1, 13)] for _ in range(7)
            ]
            own = {"requests": requests, "slots": rng.choice((48, 61)), "longest": 26}
            states.append(own | {"way": way, "page": page, "step": step})
    return states


def ring_states() -> States:
    return [
        {"devices": devices, "step": step, "split": split, "causal": causal}
        for devices in (2, 3, 8)
        for step in sorted({0, 1, devices - 1})
        for split in ("contiguous", "zigzag", "striped")
        for causal in (False, True)
    ]


def hash_states() -> States:
    start = opening("hash_buckets")
    rng = random.Random(23)
    states = [start, start | {"n_buckets": 2}, start | {"n_buckets": 24, "sharpness": 0}]
    for n_buckets, n_hashes in ((2, 3), (4, 1), (6, 2), (16, 6)):
        points = [[rng.uniform(-2, 2), rng.uniform(-2, 2)] for _ in range(9)]
        own = {"points": points, "turn": rng.uniform(0, 180), "sharpness": rng.uniform(0, 10)}
        states.append(own | {"n_buckets": n_buckets, "n_hashes": n_hashes})
    return states


def stream_states() -> States:
    start, names = opening("block_stream"), ("norm", "residual", "depth", "token", "seed")
    orders = [(norm, joined) for norm in ("post", "pre", "none") for joined in (True, False)]
    drawn = [(12, 2, 20), (1, 0, 1), (5, 5, 2147483646)]
    return [start | dict(zip(names, (*a, *b), strict=True)) for a in orders for b in drawn]


def growing_states() -> States:
    start, rng = opening("growing_up"), random.Random(41)
    drawn = [[rng.randint(0, 100) for _ in range(i + 1)] for i in range(9)]
    states = [start | {"at": at} for at in range(len(start["maps"]))]
    return [*states, {"maps": [drawn, [[100], [50, 50]]], "at": 0}]


def patch_states() -> States:
    state = import_module("attn_course.explorers.patch_attention").default_state()
    rng = random.Random(31)
    fixed = {key: state[key] for key in ("layout", "encoded")}
    images = [state["pixels"], [0] * 256]
    images += [rng.choices([-1, 0, 1], k=256) for _ in range(3)]
    return [
        fixed | {"pixels": pixels, "asking": asking, "entry": entry}
        for pixels in images
        for asking, entry in ((0, 0), (15, 8), (rng.randrange(16), rng.randrange(9)))
    ]


# states, tolerance, and one fault of the kind that a picture would hide
CASES = {
    # float32 on both sides: exp and sums may round differently in the last digit
    "softmax_temperature": (softmax_states, 2e-6, "value - top", "value - 0 * top"),
    # float64; at a scale of 2 errors grow along the sequence
    "gradient_reach": (reach_states, 1e-9, "(before[k] - n[k])", "(n[k] - before[k])"),
    # derivatives through 24 parts
    "block_stream": (stream_states, 1e-6, "- unit[i] * along", "- unit[i] * 0.999 * along"),
    "bottleneck": (bottleneck_states, 1e-9, "(1 - update) *", "(1 - 0.999 * update) *"),
    "score_playground": (score_states, 1e-12, "/ Math.sqrt(query.length)", "/ query.length"),
    "local_window": (window_states, 1e-12, "sigma = half_width / 2", "sigma = half_width / 2.001"),
    "alignment_map": (
        alignment_states, 1e-8, 'linear(score("weight_query"), null, state)', 'score("bias")'
    ),
    "memory_hops": (memory_states, 1e-9, "story.length - 1 - i", "i"),
    "hard_attention": (hard_states, 1e-9, "edge <= u", "edge < 1.01 * u"),
    "word_sense": (sense_states, 1e-12, "dot(vectors[place], vector)", "dot(vectors[0], vector)"),
    "mask_composer": (mask_states, 1e-12, "i - j < width", "i - j <= width"),
    "pattern_painter": (painter_states, 1e-12, "away % dilation === 0", "away % dilation !== 1"),
    "kv_cache": (cache_states, 1e-12, "n * (n + 1)", "n * n"),
    "memory_trace": (
        trace_states, 1e-12, "ever[0].has(tensor) !== ever[1].has(tensor)", "ever[0].has(tensor)"
    ),
    "online_softmax": (online_states, 1e-9, "mixture = mixture * factor", "mixture = mixture"),
    "ring_schedule": (
        ring_states, 1e-12, "(rank - at + devices) % devices", "(rank + at) % devices"
    ),
    "decoding_tree": (tree_states, 1e-9, "rank < beam", "rank <= beam"),
    "paged_cache": (paged_states, 1e-12, "queue.unshift(youngest)", "queue.push(youngest)"),
    # sums of products of both signs
    "rope_distances": (rope_states, 1e-9, "a * sine + b * cosine", "a * sine - b * cosine"),
    "transformer_flow": (
        flow_states, 1e-7, "position * base", "(position + 0.01 * position) * base"
    ),
    "growing_up": (growing_states, 1e-12, "sum + row[i]", "sum + row[i + 1]"),
    "hash_buckets": (hash_states, 1e-9, "buckets.some(", "buckets.every("),
    "patch_attention": (patch_states, 1e-7, "(x / 2) * (1 + erf", "(x / 2) * (1 + 0.999 * erf"),
    "writer": (writer_states, 1e-9, "likelier >= top_p", "likelier > 0.99 * top_p"),
}  # fmt: skip


def opening(name: str) -> dict[str, Any]:
    """What the page of an explorer computes first."""
    module = import_module(f"attn_course.explorers.{name}")
    return {key: module.default_state()[key] for key in module.INPUTS}


def package(name: str, states: States) -> States:
    module = import_module(f"attn_course.explorers.{name}")
    return [module.compute(**{key: state[key] for key in module.INPUTS}) for state in states]


def test_every_explorer_is_compared() -> None:
    assert set(CASES) == set(explorers.NAMES)


@pytest.mark.parametrize("name", CASES)
def test_page_and_package_agree_and_a_fault_in_the_page_is_seen(name: str, javascript: Any) -> None:
    draw, rtol, right, wrong = CASES[name]
    states, source = draw(), explorers._source.esm(name)
    assert right in source
    ours = package(name, states)

    def found(source: str) -> list[str]:
        pairs = zip(javascript(source, states), ours, strict=True)
        return [line for pair in pairs for line in differences(*pair, rtol=rtol)]

    assert found(source) == []
    assert found(source.replace(right, wrong))


def test_softmax_states_meet_overflow_and_underflow() -> None:
    results = package("softmax_temperature", softmax_states())
    assert any("inf" in result["exps"] for result in results)
    assert any("nan" in result["naive"] and 0.0 in result["exps"] for result in results)
    assert all(abs(sum(result["weights"]) - 1) < 1e-6 for result in results)


def test_window_states_meet_empty_and_cut_windows() -> None:
    results = package("local_window", window_states())
    sums = [(sum(result["local_m"]), sum(result["local_p"])) for result in results]
    assert (0, 0) in sums
    assert any(0 < local_p < 0.5 for _, local_p in sums)
    assert all(local_m in (0, pytest.approx(1)) for local_m, _ in sums)


def test_mask_states_meet_empty_rows_and_leaks() -> None:
    states = mask_states()
    results = package("mask_composer", states)
    assert any(not any(row) for result in results for row in result["allowed"])
    for state, result in zip(states, results, strict=True):
        leaks = max(result["leaked"]) > 0
        assert not leaks or state["place"] == "zero"
        assert state["place"] != "before" or all(
            total == pytest.approx(1.0 if any(row) else 0.0)
            for total, row in zip(result["sums"], result["allowed"], strict=True)
        )


def test_tree_states_meet_unfinished_sentences_and_cut_nuclei() -> None:
    results = package("decoding_tree", tree_states())
    assert any(not found["ended"] for result in results for found in result["found"])
    assert any(len(result["found"]) > 1 for result in results)
    words = [result["found"][0]["words"] for result in results]
    assert any(
        best != result["greedy"]["words"] for best, result in zip(words, results, strict=True)
    )


def test_the_tree_does_not_answer_its_own_task() -> None:
    module = import_module("attn_course.explorers.decoding_tree")
    state = opening("decoding_tree")
    found = {beam: module.compute(**state | {"beam": beam})["found"][0] for beam in range(1, 6)}
    best = max(found[beam]["log_p"] for beam in found)
    narrowest = min(beam for beam in found if found[beam]["log_p"] > best - 1e-9)
    assert narrowest == 3 > state["beam"]
    longer = module.compute(**state | {"beam": 3, "alpha": 0.6})["found"][0]
    assert len(longer["words"]) > len(found[3]["words"])
