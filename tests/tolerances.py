"""Every tolerance that is looser or tighter than ``torch.testing``'s default, with its reason."""

# float64 against float64: sums of at most a few hundred terms in another order
FLOAT64 = {"rtol": 1e-11, "atol": 1e-13}

# bfloat16 keeps 8 bits: one rounding at the end of a float32 computation
BFLOAT16_ROUNDING = {"rtol": 2**-8, "atol": 1e-6}

# float32 log-probabilities added up over a sequence, against float64
LOG_PROBABILITY = {"rtol": 1e-5, "atol": 1e-5}

# float32 against another implementation, whose sums come in another order, through three blocks
INTEROP = {"rtol": 1e-5, "atol": 1e-5}
