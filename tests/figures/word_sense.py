import numpy as np

WORDS = ["bank", "river", "cash", "the"]
SENTENCES = ["the bank lent me money", "a bat hit the ball"]
CASES = {
    "features": {
        "vectors": np.eye(4) * 2,
        "words": WORDS,
        "axes": ["water", "money", "animal", "sport"],
        "of": 46,
    },
    "turned": {
        "alone": {"river": [2, 0], "cash": [0, 2], "bank, no context": [1, 1]},
        "in_context": {"bank … river": [1.4, 0.5], "bank … cash": [0.5, 1.4]},
    },
    "attention_maps": {
        "weights": np.full((2, 4, 4), 0.25),
        "sentences": [WORDS, ["the", "bank", "(pad)", "(pad)"]],
    },
    "lean_by_context": {
        "sentences": SENTENCES,
        "right": [0.6, 0.62],
        "other": [-0.6, -0.61],
        "random": [[0.1, -0.1, 0.3], [0.0, 0.2, -0.4]],
    },
    "lean_by_length": {
        "added": [0, 2, 4],
        "curves": {"weighted by softmax": [0.6, 0.5, 0.4], "plain mean": [0.6, 0.3, 0.2]},
    },
}
