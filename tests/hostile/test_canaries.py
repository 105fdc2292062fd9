"""Several runs of this suite at a time do not take the canaries from each other."""

import subprocess
import sys
from pathlib import Path

HOLD = """import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from canaries import shared_file
path = Path(sys.argv[2])
with shared_file(path, "secret"):
    print("held", flush=True)
    for line in sys.stdin:
        print(path.read_text(), flush=True)
"""


def test_the_last_run_removes_the_canary_and_no_earlier_one(tmp_path):
    path = tmp_path / "below" / "canary.txt"
    command = [sys.executable, "-c", HOLD, str(Path(__file__).parent), str(path)]
    runs = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    pipes = [(run, run.stdin, run.stdout) for run in runs]
    for _, _, told in pipes:
        assert told.readline() == "held\n"
    for run, asked, _ in pipes:
        for _, other, told in pipes[runs.index(run) :]:
            print("look", file=other, flush=True)
            assert told.readline() == "secret\n"
        asked.close()
        assert run.wait(30) == 0
    assert not path.exists()
