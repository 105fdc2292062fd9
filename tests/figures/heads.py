import numpy as np

HEADS = [1, 2, 4, 8, 16]
SEEDS = np.linspace(0, 0.1, 3)[:, None] + np.linspace(0.3, 0.8, 5)
GAPS = {"before": [0.2, 0.3], "after": [0.5, 0.6]}
CASES = {
    "right_by_heads": {"heads": HEADS, "right": {1: SEEDS + 0.1, 2: SEEDS, 4: SEEDS[:, ::-1]}},
    "right_by_narrow_heads": {"heads": HEADS, "right": np.stack([SEEDS, SEEDS + 0.02], 1)},
    "time_by_heads": {"spent": {h: {"scores": 9.0 + h, "softmax": 5.0 * h} for h in HEADS}},
    "distance_in_training": {"gaps": {f"{n} names, random start": GAPS for n in ("no", "two")}},
    "difference_by_depth": {"shares": 10.0 ** -np.array([[0, 1, 3], [0, 2, 4]])},
}
