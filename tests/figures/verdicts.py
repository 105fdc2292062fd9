import numpy as np

RATES = [0.003, 0.01, 0.03]
RIGHT = {way: np.full((2, 3), share) for way, share in (("learned", 0.9), ("factor 1", 0.5))}
CASES = {
    "two_ways_by_start": {"spreads": [0.05, 0.2, 1.0], "right": RIGHT},
    "verdict_rows": {
        "differences": {"A": [0.1, 0.12], "B": [0.01, 0.03]},
        "verdicts": {"A": "true", "B": "not settled"},
        "margin": 0.05,
    },
    "tuned_and_compared": {
        "rates": RATES,
        "right": RIGHT,
        "tests": {way: [0.9, 0.8] for way in ("learned factor", "factor 1", "scaled dot")},
    },
}
