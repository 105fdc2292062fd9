import numpy as np

POINTS = [{"pairs": n / 10, "hash": n / 5, "oracle": n / 4} for n in (1, 2, 4)]
CASES = {
    "mass_by_pairs": {"kept": {"groups": POINTS, "independent": POINTS}},
    "spectra": {
        "points": [1, 16, 128, 512],
        "shares": {name: np.linspace(0, 1, 8).reshape(2, 4) for name in ("trained", "shuffled")},
        "length": 512,
    },
}
