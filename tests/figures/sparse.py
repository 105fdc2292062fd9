import numpy as np

WAYS = ("dense mask", "loop", "chunks", "blocks", "package")
SETS = ("all pairs", "window 4", "window 17", "strided", "fixed", "global")
PEAKS = {"ours": 2.0, "masked": 66.0, "Hugging Face": 30.0}
ROWS = [
    {
        "dtype": dtype,
        "set": "AVX512",
        "ratio": {"masked": 6.0, "Hugging Face": 5.0, "FlexAttention": 1.2},
        "peak_mib": PEAKS,
    }
    for dtype in ("float32", "bfloat16")
]
CASES = {
    "ways_to_compute_a_band": {
        "lengths": [256, 512, 1024],
        "seconds": {way: [0.001 * (k + 1), 0.002, 0.005] for k, way in enumerate(WAYS)},
        "peaks": {way: [2**20, 2**21, 2**23] for way in WAYS if way != "loop"},
    },
    "band_against_peers": {
        "record": {"parts": {name: {"measured": ROWS} for name in ("forward", "training", "long")}}
    },
    "patterns": {"masks": {f"pattern {k}": np.tri(24, dtype=bool) for k in range(8)}},
    "six_sets_of_pairs": {
        "pairs": {name: 400 * (k + 1) for k, name in enumerate(SETS)},
        "bits": {name: [3.0 - 0.1 * k, 2.9] for k, name in enumerate(SETS)},
        "longer": {"all pairs": [2.6, 2.5]},
        "marks": {name: np.full((2, 84), 0.9 - 0.1 * k) for k, name in enumerate(SETS)},
    },
}
