import numpy as np

FACTORS = np.linspace(0.9, 1.1, 4)[:, None]
CACHES = ("all keys", "last 32", "first 4 + last 28", "first 4 moved + last 28")
CASES = {
    "bits_of_runs": {
        "rows": {
            "counting runs of 3": [2.9],
            "Transformer, 4 passes": [2.3, 2.31, 2.32],
            "LSTM, 4 passes": [2.28, 2.28, 2.29],
        },
        "about": "A text.",
    },
    "speculative_speed": {
        "drafts": [2, 4, 8],
        "runs": {"temperature 0.7": FACTORS * [2.3, 3.2, 4.1], "greedy": FACTORS * [2.1, 2.8, 3.3]},
        "speed": {"temperature 0.7": FACTORS * [1.3, 1.4, 1.1], "greedy": FACTORS * [1.2, 1, 0.9]},
    },
    "training_and_counting": {
        "losses": np.linspace(6, 2.4, 40),
        "counted": {"single": 4.5, "pairs": 3.4, "triples": 2.7},
    },
    "kept_by_top_p": {
        "shares": [[0.9, *[0.1 / 23] * 23], np.linspace(0.09, 0.001, 24)],
        "kept": [1, 15],
        "symbols": "etaoinshrdlcumwfgypbvk \n",
    },
    "time_for_one_more": {
        "lengths": [16, 64, 256, 512],
        "clock": {"recomputed": [1.0, 1.5, 4.0, 9.0], "with a cache": [0.8, 0.8, 0.9, 1.0]},
    },
    "bits_with_caches": {
        "bits": {
            where: {
                cache: {"any first character": 2 + FACTORS, "a start symbol": 1.9 + FACTORS}
                for cache in CACHES
            }
            for where in ("within the trained length", "four times as long")
        }
    },
}
