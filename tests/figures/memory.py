import numpy as np

SPREADS = [0.05, 0.1, 0.2, 0.3, 0.5, 1.0]
STARTS = {"linear start": np.full((2, 6), 0.9), "softmax from the start": np.full((2, 6), 0.4)}
CASES = {
    "position_encoding": {
        "weights": np.full((6, 8), 0.5),
        "words": ["Mary", "gave", "the", "milk", "to", "John"],
    },
    "accuracy_by_start": {"spreads": SPREADS, "accuracy": STARTS},
    "accuracy_by_hops": {"accuracy": np.linspace(0.1, 1, 18).reshape(2, 3, 3)},
    "first_weights": {"weights": np.full((4, 8), 0.125)},
    "wrong_answers": {"errors": {"2 hops": [0.8, 1.2], "place named last": [60, 70]}},
    "weights_of_hops": {
        "weights": np.full((3, 2), 0.3),
        "sentences": ["Mary took the milk *", "John slept", "Mary went home *"],
        "question": "Where is the milk?",
    },
}
