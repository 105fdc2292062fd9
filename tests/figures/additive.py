import numpy as np

CURVES = {kind: np.full((2, 3), share) for kind, share in (("fixed", 0.4), ("attention", 0.9))}
SENTENCE = {"source": ["the", "dog"], "target": ["le", "chien", "eos"], "alignment": [0, 1]}
CASES = {
    "right_by_length": {
        "lengths": [4, 12, 24],
        "right": CURVES,
        "trained": 12,
        "parameters": {"fixed": 9000, "attention": 9500},
    },
    "mean_weights": {"weights": np.eye(10)},
    "mean_weights_beyond": {"weights": np.eye(24), "trained": 12},
    "gradient_by_lag": {"logarithms": CURVES},
    "known_links": {
        "source": ["the", "red", "dog", "runs"],
        "target": ["le", "chien", "rouge", "court"],
        "alignment": [0, 2, 1, 3],
    },
    "linked_elsewhere": {
        "errors": {"trained": [0.2, 0.3], "untrained": [0.8, 0.9]},
        "kinds": {"article": [0.5, 0.9], "noun": [0.0, 0.1]},
    },
    "alignment_map": {"weights": np.full((3, 2), 0.5), **SENTENCE},
    "maps_before_and_after": {
        "weights": {name: np.full((3, 2), 0.5) for name in ("a", "b", "c", "d")},
        **SENTENCE,
    },
}
