import numpy as np

FACTORS = np.linspace(0.9, 1.1, 4)[:, None]
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
        "speed": {
            "temperature 0.7": FACTORS * [1.3, 1.4, 1.1],
            "greedy": FACTORS * [1.2, 1.1, 0.9],
        },
    },
}
