"""The recorded results as a table and as figures; reads the JSON files only."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
Record = Mapping[str, Any]

NAMES = {
    "plain": "none (one context vector)",
    "bahdanau": "additive (Bahdanau)",
    "bahdanau_forward": "additive (Bahdanau, encoder forwards only)",
    "dot": "dot (Luong)",
    "general": "general (Luong)",
    "concat": "concat (Luong)",
    "location": "location (Luong)",
    "scaled_dot": "scaled dot (Luong decoder)",
    "cosine": "cosine (Luong decoder)",
}


def load(setting: str = "reduced") -> Record | None:
    """The recorded run of a setting, or None where there is none."""
    path = RESULTS / f"translation_{setting}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def rows(result: Record) -> list[list[str]]:
    """Names and numbers of every model, the header first."""
    buckets = next(iter(result["models"].values()))["by_length"]
    header = ["attention", "hidden", "parameters", "BLEU", "greedy", "loss"]
    header += [_words(bucket) for bucket in buckets]
    table = [header]
    for name, entry in result["models"].items():
        table.append(
            [
                NAMES.get(name, name),
                str(entry["hidden_size"]),
                f"{entry['parameters']:,}",
                f"{entry['bleu']:.1f} ± {entry['interval']:.1f}",
                f"{entry['greedy_bleu']:.1f}",
                f"{entry['val_loss'][-1]['loss']:.2f}",
                *(f"{bucket['bleu']:.1f}" for bucket in entry["by_length"]),
            ]
        )
    return table


def _words(bucket: Record) -> str:
    first, last = bucket["words"]
    return f"{first}–{last}"


def caption(result: Record) -> str:
    """What was run, where and when."""
    setting, corpus, machine = result["setting"], result["corpus"], result["machine"]
    device = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    return (
        f"{result['experiment']}, setting *{setting['name']}*: {corpus['train_pairs']:,} pairs, "
        f"{setting['vocab_size']:,} pieces per language, {setting['steps']:,} steps of "
        f"{setting['batch_size']} pairs ({corpus['epochs']:g} epochs) for every model, beam of "
        f"{setting['beam_size']}, seed {result['seed']}. "
        f"{result['cpu_seconds'] / 60:.0f} CPU minutes in all on {device}, "
        f"{machine['threads']} thread{'s' if machine['threads'] > 1 else ''}, "
        f"torch {result['versions']['torch']}, {result['date'].split()[0]}, "
        f"commit {result['commit']}. BLEU: `{result['signature']}`; ± is half the bootstrap 95 % "
        "interval over test sentences, not over seeds. The last columns are BLEU by source length "
        "in words and punctuation marks."
    )


def markdown() -> str:
    """Both settings as Markdown; a setting that was not run says so."""
    parts = []
    for setting in ("reduced", "full"):
        result = load(setting)
        if result is None:
            parts.append(
                f"Setting *{setting}*: not run, no GPU was at hand. "
                f"`python -m experiments.translation --setting {setting}` runs it."
            )
            continue
        header, *body = rows(result)
        lines = [header, ["---", *["---:"] * (len(header) - 1)], *body]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
        missing = [NAMES.get(name, name) for name in result["missing"]]
        parts.append(caption(result) + (f" Not run: {', '.join(missing)}." if missing else ""))
    return "\n\n".join(parts) + "\n"


def write_table() -> Path:
    """Renew ``experiments/results/translation.md``."""
    path = RESULTS / "translation.md"
    path.write_text(markdown(), encoding="utf-8")
    return path


def print_table(result: Record) -> None:
    """The table on a terminal."""
    from rich.console import Console
    from rich.table import Table

    header, *body = rows(result)
    table = Table(title=result["experiment"])
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    for line in body:
        table.add_row(*line)
    Console().print(table)


def draw_by_length(ax: Any, result: Record, models: Sequence[str] | None = None) -> str:
    """BLEU against source length, one line per model.

    Args:
        ax: Where to draw.
        result: From :func:`load`.
        models: Which; all, if None.

    Returns:
        The description of the figure for those who do not see it.
    """
    from attn_course import viz

    chosen = list(result["models"] if models is None else models)
    buckets = {name: result["models"][name]["by_length"] for name in chosen}
    places: list[float] = [_middle(bucket) for bucket in buckets[chosen[0]]]
    viz.line(
        ax,
        places,
        {NAMES.get(name, name): [each["bleu"] for each in buckets[name]] for name in chosen},
        xlabel="source length (words)",
        ylabel="BLEU",
        marker="o",
    )
    ax.set_xticks(places, [_words(bucket) for bucket in buckets[chosen[0]]])
    ax.set_ylim(bottom=0)
    ends = "; ".join(
        f"{NAMES.get(name, name)} from {buckets[name][0]['bleu']:.0f} to "
        f"{buckets[name][-1]['bleu']:.0f}"
        for name in chosen
    )
    return f"BLEU from the shortest to the longest source sentences: {ends}."


def _middle(bucket: Record) -> float:
    first, last = bucket["words"]
    return float(max(first, 5) + min(last, 22)) / 2


def draw_alignment(ax: Any, result: Record, model: str, example: int = 0) -> str:
    """The weights of one kept test sentence: output pieces as rows, source pieces as columns.

    Args:
        ax: Where to draw.
        result: From :func:`load`.
        model: One with attention.
        example: Which of the kept sentences.

    Returns:
        The description of the figure for those who do not see it.

    Raises:
        ValueError: If the model has no weights.
    """
    from attn_course import viz

    kept = result["models"][model]["examples"][example]
    if kept["weights"] is None:
        raise ValueError(f"model: expected one with attention, got {model}")
    viz.heatmap(
        ax,
        kept["weights"],
        rows=kept["output"],
        columns=kept["source"],
        xlabel="source",
        ylabel="output",
        title=NAMES.get(model, model),
        vmax=1.0,
        numbers=None,
    )
    strongest = [
        f"{piece.strip('▁')} ← {kept['source'][line.index(max(line))].strip('▁')}"
        for piece, line in zip(kept["output"], kept["weights"], strict=True)
    ]
    return (
        f"{NAMES.get(model, model)}, source piece with the largest weight: {', '.join(strongest)}"
    )
