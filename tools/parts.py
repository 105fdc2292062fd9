"""Run parts of the test suite one after the other and say at the end how long each took.

    python tools/parts.py lint types unit ...

Each part is a target of the Makefile. A part that fails does not keep the others from running.
"""

import os
import subprocess
import sys
import time


def main(parts: list[str]) -> int:
    """Run the parts; returns the status of the first that failed, else 0."""
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
    print()
    for part, seconds, status in times:
        print(f"  {part:16} {seconds:6.0f} s{'  FAILED' if status else ''}")
    print(f"  {'together':16} {sum(seconds for _, seconds, _ in times):6.0f} s")
    failed = [(part, status) for part, _, status in times if status]
    for part, _ in failed:
        print(f"test: error: 'make {part}' failed; run it alone to try again", file=sys.stderr)
    if failed:
        return failed[0][1]
    print("all checks passed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
