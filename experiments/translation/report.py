"""The result on a terminal; pages take theirs from ``attn_course.viz.translation``."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_table(record: Mapping[str, Any]) -> None:
    """Parameters, BLEU and loss of every model."""
    table = Table(title=record["experiment"])
    table.add_column("model")
    for name in ("hidden", "parameters", "BLEU", "greedy", "validation loss", "CPU s"):
        table.add_column(name, justify="right")
    for name, entry in record["models"].items():
        table.add_row(
            name,
            str(entry["hidden_size"]),
            f"{entry['parameters']:,}",
            f"{entry['bleu']:.1f} ± {entry['interval']:.1f}",
            f"{entry['greedy_bleu']:.1f}",
            f"{entry['val_loss'][-1]['loss']:.2f}",
            f"{entry['seconds']['cpu']:.0f}",
        )
    Console().print(table)
