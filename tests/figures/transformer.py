import numpy as np

BUCKETS = [{"words": [first, first + 4], "bleu": 20.0} for first in (1, 6)]
CASES = {
    "misleading_losses": {
        "losses": {name: [2.0, 0.5, 0.1] for name in ("whole", "no causal mask")},
        "every": 10,
    },
    "learning_rates": {
        "steps": [1, 4000, 20000],
        "rates": {f"D = {d}, warm-up 4000": [1e-6, 7e-4, 3e-4] for d in (512, 1024)},
    },
    "loss_by_rate": {
        "rates": (0.003, 0.006, 0.012),
        "losses": {
            "warm-up": np.array([[1.0, 0.8, 0.5], [1.1, 0.8, 0.6]]),
            "no warm-up": np.array([[1.2, 1.1, 2.0], [1.3, 1.1, 2.4]]),
        },
    },
    "reversed_words": {
        "curves": {
            name: ([4, 12, 24], np.full((2, 2, 3), 0.9 - 0.3 * k))
            for k, name in enumerate(("Transformer", "recurrent, attention"))
        },
        "trained": 12,
    },
    "cross_attention": {
        "weights": np.eye(3),
        "source": ["the", "red", "house"],
        "target": ["la", "maison", "rouge"],
        "alignment": [0, 2, -1],
    },
    "bleu_by_length": {
        "record": {"models": {name: {"by_length": BUCKETS} for name in ("plain", "dot")}},
        "models": ["plain", "dot"],
    },
}
