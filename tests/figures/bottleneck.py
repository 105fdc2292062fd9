import numpy as np


def runs(*names: str, count: int = 20) -> dict[str, np.ndarray]:
    return {name: np.full((2, count), 0.9 - 0.2 * k) for k, name in enumerate(names)}


LENGTHS = np.arange(1, 21)
CASES = {
    "training_loss": {"losses": np.linspace(2.6, 1.1, 480), "window": 20, "symbols": 10},
    "right_by_length": {
        "lengths": LENGTHS,
        "right": runs("teacher-forced", "free-running"),
        "trained": 10,
    },
    "controls": {"lengths": LENGTHS, "right": runs("64 units", "128 units", "first symbol only")},
    "probe_by_position": {
        "right": runs("trained encoder", "untrained encoder"),
        "counts_only": 0.25,
    },
    "right_by_training": {"right": runs("100 steps", "250 steps", "500 steps", count=10)},
    "one_wrong_symbol": {"right": runs("right prefix", "one wrong symbol", "its own prefix")},
    "one_wrong_symbol: none": {"right": runs("right prefix", "its own prefix")},
    "reversed_source": {"right": runs("source reversed", "natural order", count=10)},
    "beams": {
        "widths": [1, 5, 20],
        "symbols": runs("alpha = 0", "alpha = 0.6", count=3),
        "right": runs("alpha = 0", "alpha = 0.6", count=3),
    },
}
