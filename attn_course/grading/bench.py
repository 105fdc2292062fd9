"""The table of ``benchmarks/results/grading.json``, for the command line and the book."""

from typing import Any


def markdown(results: dict[str, Any]) -> str:
    """Tables of time, agreement and worst case in Markdown, with what they were measured on.

    Args:
        results: the parsed JSON.
    """
    machine, versions = results["machine"], results["versions"]
    lines = [
        f"| grader | submissions measured | seconds | {results['submissions']} submissions "
        "| seconds for each more | load average |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in results["rows"]:
        about = "about " if row["extrapolated"] else ""
        lines.append(
            f"| {row['grader']} | {row['measured_on']} | {row['measured_seconds']:.1f} "
            f"| {about}{row['seconds_for_class']:.0f} s | {row['seconds_each']:.2f} "
            f"| {row['load'][0]:.1f} |"
        )
    agreed = results["agreement"]
    lines += [
        "",
        f"Gradebook and feedback included. *About* is a straight line through fewer submissions. "
        f"Cells scored by both on the same inputs: {agreed['cells']}, of "
        f"{agreed['submissions']} submissions to {len(agreed['assignments'])} sets; "
        f"different: {len(agreed['differences'])}.",
    ]
    for one in agreed["differences"]:
        why = one.get("why") or "not explained"
        lines.append(
            f"- `{one['cell']}` of {one['student']}: nbgrader {one['stock']}, ours "
            f"{one['ours']}: {why}"
        )
    lines += [
        "",
        "| submission that never ends | budget | wall clock | status | processes left |",
        "| --- | ---: | ---: | --- | ---: |",
    ]
    for row in results["worst_case"]:
        lines.append(
            f"| {row['submission']} | {row['budget_seconds']:.0f} s | {row['wall_seconds']:.1f} s "
            f"| {row['status']} | {row['processes_left']} |"
        )
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines += [
        "",
        f"Measured {results['date']} at commit {results['commit']} on {machine['cores']} cores of "
        f"{machine['processor']}, {machine['memory_gib']} GiB, {machine['system']}; {named}; "
        f"seed {results['seed']}; set `{results['assignment']}`.",
    ]
    busy = max(row["load"][0] for row in results["rows"])
    if busy > 1.5 * machine["cores"]:
        lines += [
            "",
            f"The machine was busy with other work (load average up to {busy:.1f} on "
            f"{machine['cores']} cores), so every time is longer than on a quiet one: compare "
            "rows, not seconds.",
        ]
    return "\n".join(lines) + "\n"
