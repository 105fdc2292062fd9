import numpy as np

CHIPS = {"A100": {"matrix": 3e14, "bandwidth": 1.5e12}, "H100": {"matrix": 1e15, "bandwidth": 3e12}}
STRIPS = [np.arange(16 * step, 16 * step + 16) for step in range(4)]
CASES = {
    "memory_pipes": {"bandwidth": {"registers, 27 MB": 1e14, "HBM, 40 GB": 2e12}, "chip": "A100"},
    "rooflines": {"chips": CHIPS, "steps": {"softmax": 1.25, "attention, fused": 2048.0}},
    "rooflines: one chip": {"chips": {"H100": CHIPS["H100"]}, "steps": {"decode": 1.0}},
    "steps_of_one_program": {"reads": {"A": STRIPS, "B": STRIPS, "C": STRIPS[:1]}, "size": 16},
    "lanes_on_lines": {"ways": {"rows": np.arange(32), "columns": 64 * np.arange(32)}},
}
