"""Run parts of the test suite one after the other and say at the end how long each took.

    python tools/parts.py lint types unit ...

Each part is a target of the Makefile; the first that fails ends the run, and the table is printed
all the same.
"""

import os
import subprocess
import sys
import time


def main(parts: list[str]) -> int:
    """Run the parts; returns the status of the one that failed, else 0."""
    make = os.environ.get("MAKE", "make")
    times: list[tuple[str, float, int]] = []
    for number, part in enumerate(parts, 1):
        print(f"[{number}/{len(parts)}] make {part}", flush=True)
        start = time.monotonic()
        try:
            status = subprocess.run([make, "--no-print-directory", part], check=False).returncode
        except KeyboardInterrupt:
            print("\ninterrupted: run 'make test' again to start over", file=sys.stderr)
            return 130
        times.append((part, time.monotonic() - start, status))
        if status:
            break
    print()
    for part, seconds, status in times:
        print(f"  {part:16} {seconds:6.0f} s{'  FAILED' if status else ''}")
    print(f"  {'together':16} {sum(seconds for _, seconds, _ in times):6.0f} s")
    part, _, status = times[-1]
    if status:
        print(f"test: error: 'make {part}' failed; run it alone to try again", file=sys.stderr)
    else:
        print("all checks passed")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
