import numpy as np

METHODS = ["gradient", "gradient × input", "Grad-CAM"]
NETS = ["max", "mean", "max, untrained", "mean, untrained"]
WAYS = ["soft", "all places", "straight-through", "one place", "one, baseline", "any place"]
READERS = ["local, learned", "local, equal", "mixed, learned"]
RUNS = np.array([[0.8, 0.85], [0.9, 0.9]])  # (seeds, instruction sets)
NOWHERE = np.full((1, 1), np.nan)
CASES = {
    "variance_by_baseline": {
        "baselines": [-6.0, 16.0, 40.0],
        "variance": [300.0, 49.0, 300.0],
        "marked": {"none": (0, 277.0), "mean reward": (16, 49.0)},
        "running": {"no baseline": np.full(1500, 3.0), "baseline 16": np.full(1500, 5.0)},
        "exact": 3.6,
    },
    "scene": {"picture": np.eye(40)},
    "one_output": {"values": [[0.0], [1.0], [2.0]], "maps": [[0.2, 0.6, 0.2], [0.5, 0, 0.5]]},
    "scenes_and_weights": {
        "pictures": [np.eye(40)] * 2,
        "weights": [np.full(25, 0.04)] * 2,
        "places": [7, 24],
    },
    "found_by_step": {
        "found": {way: np.full((2, 3), k / 6) for k, way in enumerate(WAYS)},
        "named": "soft 0.95",
        "every": 250,
    },
    "explained_scene": {
        "picture": np.eye(24),
        "explained": {net: {"gradient": np.eye(24), "Grad-CAM": np.eye(6)} for net in NETS[:2]},
        "place": 5,
    },
    "pointing": {
        "shares": {net: {method: [0.1, 0.9] for method in METHODS} for net in NETS},
        "named": "max 0.9",
    },
    "method_agreement": {"methods": METHODS, "tau": np.eye(3) + 0.25},
    "readers": {
        "columns": {
            "largest weight on the digit": {
                name: NOWHERE if "equal" in name else RUNS for name in READERS
            },
            "erasing the digit hurts most": dict.fromkeys(READERS, RUNS),
            "accuracy, weight elsewhere": dict.fromkeys(READERS, RUNS - 0.5),
        }
    },
}
