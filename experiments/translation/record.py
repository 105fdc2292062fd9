"""Where and with what a result was made."""

import datetime
import os
import subprocess
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import machine, versions

ROOT = Path(__file__).resolve().parents[2]
MADE_WITH = (
    "attn_course/nn",
    "attn_course/functional",
    "attn_course/train",
    "attn_course/data",
    "experiments/translation",
)
PACKAGES = ("torch", "sentencepiece", "sacrebleu", "numpy")


def commit() -> str:
    """The commit of the checkout, with ``+changes`` where what the run depends on differs."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--", *MADE_WITH)
    return (git("rev-parse", "--short", "HEAD") or "none") + ("+changes" if changed else "")


def today() -> str:
    """Date and time to the minute, UTC."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def where(device: torch.device) -> dict[str, Any]:
    """Machine, versions and threads."""
    found = {
        **machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "load": [round(value, 2) for value in os.getloadavg()],
    }
    return {"machine": found, "versions": versions(PACKAGES)}
