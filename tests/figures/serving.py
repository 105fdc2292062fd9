import numpy as np

WAYS = ["pair by pair", "query by query", "diagonal by diagonal", "copied chunks", "masked SDPA"]
CASES = {
    "band_times": {
        "lengths": [256, 512, 1024],
        "milliseconds": {way: [1.0 + k, 2.0, 5.0 + k] for k, way in enumerate(WAYS)},
    },
    "window_tiles": {
        "kinds": {title: np.tri(8) for title in ("W = 9", "W = 9,\ntiles of 32", "W = 65")},
        "length": 128,
    },
    "memory_in_use": {"shares": {f"pages of {n}": [0.5, 0.6, 0.7] for n in (16, 256)}},
}
