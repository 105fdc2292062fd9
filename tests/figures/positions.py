import numpy as np

BITS = np.linspace(3, 4, 6).reshape(2, 3)
NAMES = ["ALiBi", "T5 bias", "none", "RoPE", "sinusoidal"]
CASES = {
    "bits_by_length": {
        "lengths": [64, 128, 256],
        "bits": {name: BITS + 0.01 * number for number, name in enumerate(NAMES)},
    },
    "bits_beyond_training": {
        "positions": [128, 384, 896],
        "bits": {name: BITS + number for number, name in enumerate(NAMES[:4])},
        "to": 256,
    },
    "rope_by_distance": {"products": [8.0, 5.0, 6.0, 2.0, 4.0]},
}
