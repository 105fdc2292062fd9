"""Train the Vision Transformer of the explorer ``patch_attention``, and write its weights.

``python -m experiments.export_patch_attention`` leaves
``attn_course/explorers/patch_attention_weights.json``. The task is that of ``vision_far_apart``.
"""

import base64
import datetime
import json
import platform

import torch

from attn_course.explorers import patch_attention
from experiments.vision_far_apart import right, train, vision_transformer

SEED, RATE, STEPS = 2, 0.01, 400


def main() -> None:
    """Train on one thread, round to float16, measure, write."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    model = vision_transformer()
    train(model, RATE, STEPS, SEED)
    numbers = torch.nn.utils.parameters_to_vector(model.parameters()).detach().half()
    encoded = base64.b64encode(numbers.numpy().astype("<f2").tobytes()).decode()
    rounded = patch_attention.build()
    patch_attention.load(rounded, encoded)
    record = {
        "right": right(rounded.eval(), 12345),
        "seed": SEED,
        "steps": STEPS,
        "rate": RATE,
        "date": datetime.date.today().isoformat(),
        "torch": torch.__version__,
        "processor": platform.machine(),
        "weights": encoded,
    }
    text = json.dumps(record, indent=1) + "\n"
    patch_attention.WEIGHTS.write_text(text, encoding="utf-8")
    print(f"right: {record['right']:.3f}, {len(text)} bytes")


if __name__ == "__main__":
    main()
