import numpy as np

CHIPS = {
    "A100": {"matrix": 312e12, "bandwidth": 1.5e12},
    "H100": {"matrix": 989e12, "bandwidth": 3.3e12},
}
CASES = {
    "rooflines": {"chips": CHIPS, "steps": {"softmax": 1.25, "attention, fused": 2048.0}},
    "touched_by_one_program": {
        "touched": {name: np.tri(64) for name in ("A", "B", "C")},
        "tile": 16,
    },
}
