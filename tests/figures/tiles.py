import numpy as np

ROW = {"name": "flash_forward causal d64", "arch": 90, "spilled": 0, "shared": 65536}
PARTS = ("package float16", "flexattention float16", "tutorial float16")
CASES = {
    "peak_memory": {
        "lengths": [128, 256, 512],
        "peaks": {"plain": [2**17, 2**19, 2**21], "tiles of 64": [2**17, 2**18, 2**19]},
    },
    "causal_tiles": {
        "kinds": {(8, 8): np.tri(8, dtype=int), (16, 4): np.tri(4, 16, dtype=int)},
        "length": 64,
    },
    "compiled_kernels": {
        "record": {
            "parts": {part: {"measured": [ROW], "date": "2026-11-01 10:00 UTC"} for part in PARTS},
            "versions": {"triton": "3.2"},
        },
        "warps": {f"{part}/{ROW['name']}": 8 for part in PARTS},
        "shared": 232448,
    },
}
