"""The table of ``benchmarks/results/grading.json``."""

from collections.abc import Iterator
from typing import Any


def markdown(results: dict[str, Any]) -> str:
    """Tables of time, agreement and worst case in Markdown, with what they were measured on.

    Args:
        results: the parsed JSON; parts that were not measured are left out.
    """
    parts = results["parts"]
    lines = [*_times(results)]
    if "each_set" in parts:
        lines += [*_each_set(parts["each_set"])]
    if "agreement" in parts:
        lines += [*_agreement(parts["agreement"])]
    if "edge_cases" in parts:
        lines += [*_edges(parts["edge_cases"])]
    if "worst_case" in parts:
        lines += [*_worst(parts["worst_case"])]
    machine = results["machine"]
    named = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    lines += [
        "",
        f"Machine: {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_gib']} GiB, {machine['system']}; {named}; seed {results['seed']}.",
    ]
    return "\n".join(lines).strip() + "\n"


def _when(part: dict[str, Any]) -> str:
    return f"Measured {part['date']} at commit {part['commit']}, load average {part['load'][0]}."


def _times(results: dict[str, Any]) -> Iterator[str]:
    found = [results["parts"][name] for name in ("stock", "ours") if name in results["parts"]]
    rows = [row for part in found for row in part["measured"]]
    if not rows:
        return
    yield (
        f"| grader | measured on | seconds | {results['submissions']} submissions "
        "| each further one | load average |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        about = "about " if row["extrapolated"] else ""
        spread = f" ({row['fastest']:.1f} to {row['slowest']:.1f})" if "fastest" in row else ""
        yield (
            f"| {row['grader']} | {row['measured_on']} | {row['measured_seconds']:.1f} s{spread} "
            f"| {about}{row['seconds_for_class']:.0f} s | {row['seconds_each']:.2f} s "
            f"| {row['load'][0]:.1f} |"
        )
    yield ""
    yield (
        f"Set `{results['assignment']}`; start of the program, gradebook and feedback included. "
        "*About* is a straight line through fewer submissions."
    )
    repeats = [row["repeats"] for row in rows if "fastest" in row]
    if repeats:
        yield f"Seconds of ours: median of {repeats[0]} interleaved runs, fastest and slowest."
    for part in found:
        yield _when(part)
    cores = results["machine"]["cores"]
    busy = max(row["load"][0] for row in rows)
    if busy > 1.5 * cores:
        yield (
            f"The machine was busy with other work (load average up to {busy:.1f} on {cores} "
            "cores), so every time is longer than on a quiet one, and rows are hard to compare."
        )


def _each_set(part: dict[str, Any]) -> Iterator[str]:
    rows = [row for row in part["measured"] if "wall_ratio" in row]
    yield ""
    yield "| one submission | stock nbgrader | ours | ratio | processor: stock | ours | ratio |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        cells = [
            cell
            for name in ("wall", "cpu")
            for cell in (
                f"{row[f'stock_{name}_ms']} ms",
                f"{row[f'ours_{name}_ms']} ms",
                f"{row[f'{name}_ratio']:.0f}",
            )
        ]
        yield f"| `{row['set']}` | {' | '.join(cells)} |"
    yield ""
    yield (
        "Wall clock, and processor time of all processes that take part, the jail's among them. "
        "Ours: one worker, mean of the further submissions of a class; stock nbgrader: mean of "
        f"six. Rows are of commits {', '.join(sorted({row['commit'] for row in rows}))}. "
        f"{_when(part)}"
    )
    for name, words in (("wall", "wall clock"), ("cpu", "processor time")):
        if slow := [row["set"] for row in rows if row[f"{name}_ratio"] < 20]:
            yield f"Below 20 by {words}: {', '.join(slow)}."


def _agreement(part: dict[str, Any]) -> Iterator[str]:
    agreed = part["measured"]
    yield ""
    yield (
        f"Cells scored by both graders on the same random inputs: {agreed['cells']}, of "
        f"{agreed['submissions']} submissions to {len(agreed['assignments'])} sets; "
        f"scored differently: {len(agreed['differences'])}. {_when(part)}"
    )
    for one in agreed["differences"]:
        yield (
            f"- `{one['cell']}` of {one['student']}: nbgrader {one['stock']}, ours "
            f"{one['ours']}: {one.get('why') or 'not explained'}"
        )


def _edges(part: dict[str, Any]) -> Iterator[str]:
    found = part["measured"]
    wrong = [row["case"] for row in found["rows"] if not row["stock_right"]]
    yield ""
    yield (
        f"Edge cases of partial credit and stderr with the right points: stock nbgrader "
        f"{found['stock_right']} of {found['cases']}, ours {found['ours_right']} of "
        f"{found['cases']}. Not right in stock nbgrader: {'; '.join(wrong)}. {_when(part)}"
    )


def _worst(part: dict[str, Any]) -> Iterator[str]:
    yield ""
    yield "| submission that never ends | budget | wall clock | status | processes left |"
    yield "| --- | ---: | ---: | --- | ---: |"
    for row in part["measured"]:
        yield (
            f"| {row['submission']} | {row['budget_seconds']:.0f} s | {row['wall_seconds']:.1f} s "
            f"| `{row['status']}` | {row['processes_left']} |"
        )
    yield ""
    yield _when(part)
