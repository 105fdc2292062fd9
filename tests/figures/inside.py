import numpy as np

HEADS = ["1.1", "1.2", "2.1", "2.2"]
SHARES = [0.1, 0.4, 0.6, 0.9]
SEEDS = np.array([[0.1, 0.5, 0.9], [0.2, 0.6, 0.8]])
TABLE = np.linspace(-0.1, 1, 80).reshape(4, 20)
CASES = {
    "right_by_layers": {"one_layer": [0.2, 0.3], "two_layers": [0.98, 0.99]},
    "scores_in_training": {
        "steps": [0, 20, 40],
        "right": SEEDS,
        "previous": SEEDS / 2,
        "induction": SEEDS / 3,
    },
    "head_scores": {
        "heads": HEADS,
        "scores": dict.fromkeys(("previous", "induction", "itself", "spread"), SHARES),
    },
    "head_maps": {"heads": HEADS, "weights": np.tile(np.eye(20), (4, 1, 1)), "period": 9},
    "right_without": {"heads": HEADS, "left": {"zero": SHARES, "mean": SHARES}, "whole": 0.99},
    "recovered_by_patches": {"heads": HEADS, "tables": {"the answer": TABLE, "the sign": TABLE}},
    "direct_shares": {"shares": {"embedding": -0.1, "1.1": 0.3, "biases": 4.0}},
    "importance_of_positions": {"ways": {"rollout": TABLE[0], "size of the gradient": TABLE[3]}},
    "right_by_heads_removed": {"right": {"hard": SEEDS[:, ::-1], "easy": 1 - SEEDS / 3}},
    "heads_by_measures": {
        "measures": {
            name: np.tile(np.linspace(-0.1, 0.6, 36), (4, 1))
            for name in ("weight on the\ntoken before", "weight on the\nline break", "a", "b")
        },
        "heads": 6,
    },
    "bits_by_lens": {"bits": 5 - SEEDS},
    "line_break_heads": {
        "distances": [2, 7, 12],
        "weights": {"5.3": SEEDS, "6.3": 1 - SEEDS},
        "shuffled": {"5.3": SEEDS / 2, "6.3": 0.8 - SEEDS / 2},
        "shares": {"the text": SEEDS, "the model": SEEDS / 1.2, "without 5.3": SEEDS / 2},
    },
}
