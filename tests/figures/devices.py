import numpy as np

CONTIGUOUS = np.repeat(np.arange(4), 8)
CASES = {
    "ring_steps": {
        "owners": {
            "contiguous": CONTIGUOUS,
            "zigzag": np.repeat([0, 1, 2, 3, 3, 2, 1, 0], 4),
            "striped": np.tile(np.arange(4), 8),
        }
    }
}
