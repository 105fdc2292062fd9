CURVE = [0.1, 0.4, 0.2]
CASES = {
    "slope_by_spread": {
        "spreads": [0.1, 3.0, 100.0],
        "curves": {"largest weight": [0.1, 0.6, 1.0], "size (norm) of the Jacobian": CURVE},
    },
    "divisors": {
        "counts": [[1, 3], [2, 4]],
        "sums": {"sum(-1): (2,)": [4, 6], "keepdim: (2, 1)": [[4], [6]]},
    },
    "exponential_ranges": {"limits": {"float16": (-17.3, 11.1), "float64": (-744.4, 709.8)}},
    "weight_on_padding": {
        "paddings": [0, 5, 40],
        "leak": {"set to 0": [0.0, 0.4, 0.8], "set to −∞ (control)": [0.0, 0.0, 0.0]},
    },
}
