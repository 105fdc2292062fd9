"""The recorded translation runs as a table."""

from collections.abc import Mapping
from typing import Any

from attn_course.data import load_results

TRANSLATION_MODELS = {
    "plain": "no attention",
    "bahdanau": "Bahdanau (additive)",
    "bahdanau_forward": "Bahdanau, encoder forwards only",
    "dot": "Luong, dot",
    "general": "Luong, general",
    "concat": "Luong, concat",
    "location": "Luong, location",
    "scaled_dot": "Luong decoder, scaled dot",
    "cosine": "Luong decoder, cosine",
    "transformer": "Transformer",
}


class MarkdownTable(str):
    """Markdown that a notebook and the book show as such."""

    def _repr_markdown_(self) -> str:
        return str(self)


def translation_table(*records: Mapping[str, Any] | None) -> MarkdownTable:
    """A row per model of every record, and how it was run; a setting without a record says so.

    Args:
        records: Results of ``experiments.translation``. None given: the recorded ones of the two
            settings, *reduced* and *full*.
    """
    found = records or tuple(load_results(f"translation_{name}") for name in ("reduced", "full"))
    parts = []
    for record in found:
        if record is None:
            parts.append(
                "Setting *full*: not run, no GPU was at hand. "
                "`python -m experiments.translation --setting full` runs it."
            )
            continue
        first = next(iter(record["models"].values()))
        lines = [
            ["attention", "hidden", "parameters", "BLEU", "greedy", "loss"]
            + ["–".join(map(str, bucket["words"])) for bucket in first["by_length"]]
        ]
        lines.append([":---"] + ["---:"] * (len(lines[0]) - 1))
        lines += [
            [
                TRANSLATION_MODELS.get(name, name),
                str(entry["hidden_size"]),
                f"{entry['parameters']:,}",
                f"{entry['bleu']:.1f}\u00a0±\u00a0{entry['interval']:.1f}",
                f"{entry['greedy_bleu']:.1f}",
                f"{entry['val_loss'][-1]['loss']:.2f}",
                *(f"{bucket['bleu']:.1f}" for bucket in entry["by_length"]),
            ]
            for name, entry in record["models"].items()
        ]
        parts += ["\n".join(f"| {' | '.join(cells)} |" for cells in lines), _caption(record)]
    return MarkdownTable("\n\n".join(parts) + "\n")


def _caption(record: Mapping[str, Any]) -> str:
    setting, corpus, machine = record["setting"], record["corpus"], record["machine"]
    device = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    threads = machine["threads"]
    missing = [TRANSLATION_MODELS.get(name, name) for name in record["missing"]]
    return (
        f"{record['experiment']}, setting *{setting['name']}*: {corpus['train_pairs']:,} pairs, "
        f"{setting['vocab_size']:,} sub-word pieces per language, {setting['steps']:,} steps of "
        f"{setting['batch_size']} pairs ({corpus['epochs']:g} epochs) for every model. "
        f"BLEU is that of a beam of {setting['beam_size']}, ± half the bootstrap 95 % interval "
        "over test sentences (one seed: the spread over seeds is not in it); the last columns are "
        "BLEU by source length in words and punctuation marks; the loss is that of a validation "
        f"piece, in nats. `{record['signature'].replace('|', ' | ')}`. "
        f"{record['cpu_seconds'] / 60:.0f} CPU minutes in all on {device}, "
        f"{threads} thread{'s' if threads > 1 else ''}, torch {record['versions']['torch']}, "
        f"seed {record['seed']}, {record['date'].split()[0]}, commit {record['commit']}."
        + (f" Not run: {'; '.join(missing)}." if missing else "")
    )
