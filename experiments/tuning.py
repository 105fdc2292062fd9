"""Which settings each side of a comparison was tried at, and whether the best lies inside.

A verdict of the form "A beats B" holds only as far as both were tuned. One entry per record whose
experiment compares sides at several settings; a test reads them all. Where the best setting of a
side is the first or the last of its grid, either the grid is too narrow, or ``edges`` has the
sentence of the page that says so.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Scores = Mapping[float, float]  # by setting, such as a learning rate; higher is better


@dataclass(frozen=True)
class Tuned:
    """How to read the settings of one record.

    Args:
        sides: From the values of one run to each side's score at each setting.
        edges: For a side whose best setting is at an edge, the sentence of the page that says so,
            word for word.
    """

    sides: Callable[[dict[str, Any]], Mapping[str, Scores]]
    edges: Mapping[str, str] = field(default_factory=dict)


def _best_by_rate(run: dict[str, Any], order: str, depth: str) -> Scores:
    """The better of both warm-ups at each rate."""
    best: dict[float, float] = {}
    scores = run[order][depth]["at settings"]
    for (_, rate), score in zip(run["settings"], scores, strict=True):
        best[rate] = max(score, best.get(rate, 0.0))
    return best


AT_THE_EDGE_OF_NORM_ORDER = (
    "Every stack that reaches 1.00 does so at the largest rate; twelve blocks without residual "
    "paths do best at the smallest, but stay below 0.3."
)

NO_INSIDE = "every best rate of this experiment is at an edge of its grid"
FAR_APART = {
    "ViT": (0.003, 0.01),
    "CNN, sees 7": (0.01, 0.02),
    "CNN, sees 27": (0.01, 0.02),
    "CNN, sees 4, sum, 2 maps": (0.005, 0.01),
}
RELAY = (
    "1 layer, w = 6",
    "1 layer, w = 7",
    "2 layers, w = 3",
    "2 layers, w = 4",
    "3 layers, w = 3",
    "2 layers, w = 3, dilation 1 and 2",
)
SPARSE = (
    "all pairs",
    "window 4",
    "window 4, dilation 1 and 4",
    "window 4, global positions",
    "window 4, one long head",
    "window 17",
)


def _of_language_models(record: dict[str, Any]) -> dict[str, Scores]:
    return {
        name: {one["learning_rate"]: -one["val_bits"] for one in trials}
        for name, trials in record["rates"].items()
    }


def _lower_is_better(losses: Mapping[str, float]) -> Scores:
    """Scores of a record that has a loss by rate, with the rate as a word."""
    return {float(rate): -loss for rate, loss in losses.items()}


LEARNED_NOTHING = "A layer that learns nothing is shown at the smallest rate, where its loss is 1."

TUNED: dict[str, Tuned] = {
    "recall_by_start": Tuned(
        lambda values: {
            **{
                f"{part}: {name}": _lower_is_better(losses)
                for part in ("gradient descent", "Adam, 25 steps")
                for name, losses in values[part].items()
            },
            "no clipping": _lower_is_better(values["RNN, 25 steps, no clipping"]),
        },
        edges=dict.fromkeys(
            (
                "gradient descent: RNN, 25 steps",
                "gradient descent: LSTM, 10 steps",
                "gradient descent: LSTM, 25 steps",
                "no clipping",
            ),
            LEARNED_NOTHING,
        ),
    ),
    "clipped_or_not": Tuned(
        lambda values: {
            name: _lower_is_better(values[name]["final loss"])
            for name in ("no clipping", "clipped")
        }
    ),
    "score_rates": Tuned(
        lambda values: {
            name: {float(rate): found["right"] for rate, found in tried.items()}
            for name, tried in values.items()
        }
    ),
    "feed_forward_kinds": Tuned(
        lambda values: {
            kind: dict(zip((0.003, 0.01, 0.03), found["at rates"], strict=True))
            for kind, found in values["table"].items()
        }
    ),
    "norm_order": Tuned(
        lambda values: {
            f"{order}, {depth}": _best_by_rate(values, order, depth)
            for order, depths in values.items()
            if order != "settings"
            for depth in depths
        },
        edges=dict.fromkeys(
            (
                "pre, 6",
                "pre, 12",
                "post, 6",
                "no norm, 2",
                "no residual, 2",
                "no residual, 12",
            ),
            AT_THE_EDGE_OF_NORM_ORDER,
        ),
    ),
    "transformer_tasks": Tuned(
        lambda values: {
            way: {
                rate: -one["loss"]
                for rate, one in zip((0.003, 0.006, 0.012), values[way], strict=True)
            }
            for way in ("warm-up", "no warm-up")
        },
        edges={
            "warm-up": "With warm-up the best rate is the highest that we tried, so a higher one "
            "may be better still; without warm-up the best rate lies inside the grid."
        },
    ),
    "grouped_heads": Tuned(
        lambda values: {
            name: {
                rate: -bits for rate, bits in zip(values["rates"], side["at rates"], strict=True)
            }
            for name, side in values.items()
            if name != "rates"
        },
        edges=dict.fromkeys(
            ("4 heads of keys", "2 heads of keys", "1 head of keys", "latent"),
            "Every kind did better at the larger of the two rates, so a still larger one might "
            "change the distances.",
        ),
    ),
    "induction_heads": Tuned(
        lambda values: {
            "one layer": dict(zip((0.005, 0.01, 0.02), values["one layer"], strict=True))
        }
    ),
    "vision_far_apart": Tuned(
        lambda values: {
            name: dict(zip(rates, values[name]["at rates"], strict=True))
            for name, rates in FAR_APART.items()
        },
        edges=dict.fromkeys(FAR_APART, NO_INSIDE),
    ),
    "window_relay": Tuned(
        lambda values: {
            name: dict(zip((0.003, 0.006), values[name]["accuracy"], strict=True)) for name in RELAY
        },
        edges=dict.fromkeys(
            RELAY,
            "We tried no rate above 0.006, where no model has anything left to gain.",
        ),
    ),
    "sparse_language_model": Tuned(
        lambda values: {
            f"{name}, {task}": {
                one[1]: -one[0] if task == "text" else one[0] for one in values[name][task]["rates"]
            }
            for name in SPARSE
            for task in ("text", "mark")
        },
        edges=dict.fromkeys(
            ("window 4, mark", "window 17, mark"),
            "(On the mark the two plain windows guess beyond their reach; their best rate is at an "
            "end of the three.)",
        ),
    ),
    "attention_ablations": Tuned(
        lambda values: {
            f"{task}: {way}": dict(zip((0.003, 0.01, 0.02), found["at rates"], strict=True))
            for task, ways in values.items()
            for way, found in ways.items()
        },
        edges={
            **dict.fromkeys(
                (
                    f"{task}: {way}"
                    for task in ("look up, 4 of 8", "sum", "difference")
                    for way in ("no softmax", "neither")
                ),
                "(On the easy look-up, the sum and the difference, the variants without the "
                "softmax do best at the largest of the three rates; we tried no larger one.",
            ),
            **dict.fromkeys(
                (
                    "look up, 4 of 8: equal weights",
                    "look up, 16 of 32, wide: equal weights",
                    "sum: equal weights",
                    "difference: equal weights",
                ),
                "A variant that does equally well at nearly all rates may have its best rate at "
                "either end.)",
            ),
        },
    ),
    "heads_at_once": Tuned(
        lambda values: {
            f"{asked} asked, {heads} heads": dict(
                zip((0.006, 0.012, 0.024), values[f"asked {asked}"]["at rates"][i], strict=True)
            )
            for asked in (1, 2, 4)
            for i, heads in enumerate(values["heads"])
        },
        edges={
            "2 asked, 1 heads": "With two names, one head does best at the smallest of its three "
            "rates; we tried no smaller one.",
            **dict.fromkeys(
                (
                    "2 asked, 16 heads",
                    "4 asked, 4 heads",
                ),
                "Where nearly all numbers are right, the best rate may lie at either end.",
            ),
        },
    ),
    # the record has the better of two rates only
    "length_extrapolation": Tuned(
        lambda values: {
            way: {rate: float(rate == found["rate"]) for rate in (0.006, 0.012)}
            for way, found in values.items()
            if way != "lengths"
        },
        edges=dict.fromkeys(
            ("ALiBi", "T5 bias", "none", "RoPE", "sinusoidal"),
            "We tried only two rates, and a better one may lie outside them, so the order at 64 "
            "may change with tuning.",
        ),
    ),
    "more_heads": Tuned(
        lambda values: {
            f"{heads} heads": dict(zip(values["rates"], scores, strict=True))
            for heads, scores in zip(values["heads"], values["at rates"], strict=True)
        },
        edges={
            "1 heads": "(One head does best at the smallest of its four rates; at the next two it "
            "is within 0.01 of that in the median.)",
        },
    ),
    "language_model": Tuned(
        _of_language_models,
        edges={
            "lstm": "After one pass the LSTM's best rate was the largest of its four, so its lead "
            "there may be too small"
        },
    ),
    "language_model_passes": Tuned(_of_language_models),
    "language_contest": Tuned(_of_language_models),
    "pairs_or_characters": Tuned(
        lambda values: {
            kind: {
                rate: -bits for rate, bits in zip((0.005, 0.01, 0.02), side["trials"], strict=True)
            }
            for kind, side in values.items()
        },
        edges={
            "byte pairs": "With two of the seeds the best rate for byte pairs is the smallest of "
            "the three, so a smaller one may be better still."
        },
    ),
    "translation_rates": Tuned(
        lambda record: {
            model: {
                run["learning_rate"]: -run["val_loss"]
                for run in record["runs"]
                if run["model"] == model
            }
            for model in record["best"]
        }
    ),
    "recall_by_memory": Tuned(
        lambda values: {
            f"{task}: {way}": dict(map(tuple, tried))
            for task, ways in values["validation"].items()
            for way, tried in ways.items()
        },
        edges=dict.fromkeys(
            ("recall 32: delta rule", "most 32: delta rule"),
            "(In *recall 32* and *most 32* the delta rule does best at the largest rate, and no "
            "larger one was tried; all other best rates lie inside the grid.)",
        ),
    ),
    "vision_data_size": Tuned(
        lambda values: {
            name: dict(map(tuple, values[f"{name} rates"]))
            for name in ("ViT/4", "ViT/2", "CNN", "MLP")
        }
    ),
    "value_matrix": Tuned(
        lambda values: {
            f"{task}, {way}, {size}": dict(zip(values["rates"], scores, strict=True))
            for task in ("difference", "sum")
            for way, found in values[task].items()
            for size, scores in zip(values["sizes"], found["at rates"], strict=True)
        }
    ),
}
