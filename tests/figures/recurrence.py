import numpy as np

CURVES = {name: 0.5 ** np.arange(51) for name in ("RNN", "LSTM", "LSTM, forget bias 1", "GRU")}
LAYERS = {"RNN": [0.1, 0.2], "LSTM": [1.0, 1.1], "LSTM, bias 3": [0.0, 0.1]}
RATES = {0.002: [[0.05, 0.06]] * 2, 0.2: [[1.0, 1.1]] * 2}
CASES = {
    "fading_word": {"states": {f"w = {w}": [w**k for k in range(12)] for w in (0.5, 0.9, 1.2)}},
    "two_rates": {
        "loss": lambda w: 2 * (w - 1.5) ** 2,
        "paths": {0.45: [0.0, 2.7, 0.5], 0.52: [1.0, 2.1, 0.9]},
    },
    "rotation_with_tanh": {"products": CURVES},
    "gradient_by_layer": {"norms": CURVES},
    "gradient_by_layer: the first page": {"norms": {"RNN": 0.5 ** np.arange(26)}},
    "lstm_step": {},
    "recall_losses": {"losses": {f"recall over {n} steps": LAYERS for n in (10, 25)}},
    "wall": {"loss": lambda w: (w**20 - 1) ** 2 / 2, "clipped": [1.08, 1.05, 1.0]},
    "clipping": {
        "final": {"no clipping": RATES, "clipped": RATES},
        "gradients": {name: [np.linspace(9, 1, 40)] * 2 for name in ("no clipping", "clipped")},
        "every": 10,
    },
}
