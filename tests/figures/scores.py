import numpy as np

NAMES = ["dot", "concat", "general, not fed", "additive, Bahdanau"]
RATES = [0.003, 0.01, 0.03, 0.1]
RUNS = {name: np.linspace(0.2, 0.8, 8).reshape(2, 4) for name in NAMES}
CASES = {
    "cost_ratio": {"sizes": [4, 16, 64], "ratios": {"memory": [5, 17, 65], "time": [2, 3, 9]}},
    "models_by_errors": {
        "errors": {name: [0.1, 0.2] for name in NAMES},
        "right": {name: [0.8, 0.9] for name in NAMES},
        "record": {"machine": {"processor": "AMD EPYC"}, "date": "2026-11-01"},
    },
    "models_by_rate": {"rates": RATES, "right": RUNS, "mass": RUNS},
}
