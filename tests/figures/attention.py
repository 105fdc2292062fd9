import numpy as np

SIZES = [4, 16, 64]
ANGLES = np.linspace(0, 6, 7)
WEIGHTS = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6], [0.1, 0.1, 0.8]])
BY_SIZE = {d: {"1": 0.9 / d, "root": 0.3, "d": 0.1} for d in SIZES}
RUNS = np.array([[0.5, 0.6], [0.7, 0.9]])
WAYS = ("whole", "no W_V", "no softmax", "neither", "equal weights")
COSTS = {
    f"{what}, {how}": [[1.0, 2.0, 5.0]]
    for what in ("time", "memory")
    for how in ("forward", "with gradient")
}
CASES = {
    "kernel_regression": {
        "keys": ANGLES[::2],
        "values": np.sin(ANGLES[::2]),
        "queries": ANGLES,
        "outputs": {f"h = {h}": h * np.sin(ANGLES) for h in (0.08, 0.4, 2.0)},
    },
    "fixed_and_computed": {"fixed": WEIGHTS, "computed": (WEIGHTS.T, WEIGHTS[::-1])},
    "softmax_by_size": {"sizes": SIZES, "largest": BY_SIZE, "slope": BY_SIZE, "typical": BY_SIZE},
    "weights_as_graph": {"words": ["the", "dog", "bites"], "weights": WEIGHTS},
    "parts_left_out": {
        "right": {task: dict.fromkeys(WAYS, RUNS) for task in ("look up, 4 of 8", "sum")}
    },
    "narrow_tokens": {
        "sizes": [4, 5],
        "right": {(task, way): RUNS for task in ("difference", "sum") for way in WAYS[:2]},
    },
    "cost_of_additive": {"sizes": SIZES, "ratios": {256: COSTS, 32: COSTS}, "machine": "a CPU"},
}
