import numpy as np

NETWORKS = ("CNN", "ViT/4", "ViT/2", "MLP")
CASES = {
    "grid_similarity": {
        "similarity": np.eye(49).reshape(7, 7, 7, 7) + 0.1,
        "cells": [(0, 0), (3, 3), (2, 5)],
    },
    "right_by_images": {
        "images": [20, 80, 320, 1297],
        "right": {name: np.full((2, 4), 0.9 - 0.1 * k) for k, name in enumerate(NETWORKS)},
    },
    "same_or_different": {"images": [np.eye(16)] * 4, "same": [True, True, False, False]},
    "maps_of_one_image": {
        "panels": {
            "image": np.eye(16),
            **{name: np.eye(4) for name in ("head 1", "rollout", "Grad-CAM")},
        }
    },
}
