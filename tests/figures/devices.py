import numpy as np

CONTIGUOUS = np.repeat(np.arange(4), 8)
CASES = {
    "keys_of_a_device": {
        "devices": [4, 16, 64],
        "stored": {"gathered": [4, 4, 4], "ring": [2, 0.5, 0.125], "own shard": [1, 0.25, 0.0625]},
        "received": {"gathered": [3.75] * 16, "ring": [step / 4 for step in range(16)]},
    },
    "ring_steps": {
        "owners": {
            "contiguous": CONTIGUOUS,
            "zigzag": np.repeat([0, 1, 2, 3, 3, 2, 1, 0], 4),
            "striped": np.tile(np.arange(4), 8),
        }
    },
}
