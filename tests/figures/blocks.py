import numpy as np

RUNS = np.array([[0.9, 0.95], [0.8, 0.8]])  # (seeds, instruction sets)
PARTS = ["retrieve: nothing", "nothing", "a second look", "linear", "ReLU"]
ORDERS = ["pre-norm", "post-norm", "post-norm, small start", "no norm", "no residual"]
SETTINGS = [(0, 0.001), (0, 0.01), (80, 0.001), (80, 0.01)]
CASES = {
    "reach_by_layer": {
        "reached": {"attention": np.ones((1, 9)), "window of three": np.triu(np.ones((3, 9)))},
    },
    "answers_by_part": {
        "best": dict.fromkeys(PARTS, RUNS),
        "worst": dict.fromkeys(PARTS, RUNS - 0.3),
    },
    "untrained_stacks": {
        "depths": [2, 6, 12],
        "gradients": {order: [0.1, 1.0, 10.0] for order in ORDERS},
        "cosines": {order: [0.1, 0.5, 0.9] for order in ORDERS},
    },
    "right_by_depth": {"right": {f"pre, {n}": RUNS for n in (2, 6, 12)}, "settings": 6, "steps": 9},
    "right_by_setting": {
        "right": {name: [0.3, 0.5, 1.0, 0.0] for name in ("pre, 12", "post, small start, 12")},
        "settings": SETTINGS,
        "steps": 240,
    },
}
