import numpy as np

CHIPS = {"A100": {"matrix": 3e14, "bandwidth": 1.5e12}, "H100": {"matrix": 1e15, "bandwidth": 3e12}}
CASES = {
    "rooflines": {"chips": CHIPS, "steps": {"softmax": 1.25, "attention, fused": 2048.0}},
    "touched_by_one_program": {"touched": {name: np.tri(64) for name in "ABC"}, "tile": 16},
}
