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
    rows = part["measured"]
    ways = {
        "one worker": ("stock_wall_ms", "one_worker_wall_ms"),
        "two workers": ("stock_wall_ms", "two_workers_wall_ms"),
        "processor time": ("stock_cpu_ms", "ours_cpu_ms"),
    }
    yield ""
    yield (
        "| one submission | stock nbgrader | ours, one worker | two workers "
        "| processor time: stock nbgrader | ours |"
    )
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    for row in rows:
        times = {
            way: f"{row[our]} ms ({row[stock] / row[our]:.0f})"
            for way, (stock, our) in ways.items()
        }
        yield (
            f"| `{row['set']}` | {row['stock_wall_ms']} ms | {times['one worker']} "
            f"| {times['two workers']} | {row['stock_cpu_ms']} ms | {times['processor time']} |"
        )
    yield ""
    yield (
        "In brackets: how many times faster than stock nbgrader, which has one process. Processor "
        "time is that of all processes that take part, the jail's among them. Ours: mean of the "
        "further submissions of a class; stock nbgrader: mean of six. Rows are of commits "
        f"{', '.join(sorted({row['commit'] for row in rows}))}. {_when(part)}"
    )
    for way, (stock, our) in ways.items():
        slow = [row["set"][:2] for row in rows if row[stock] < 20 * row[our]]
        if slow:
            yield f"Less than 20 times, {way}: {', '.join(slow)}."


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
