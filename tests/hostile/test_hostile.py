"""No submission gains a point, reaches a secret, touches a neighbour, or stops the batch."""

import json
import os
import socketserver
import sys
import threading
import time
from pathlib import Path

import attacks
import broken_files
import psutil
import pytest
import target

from attn_course.exercises.cells import parse_cell

# Bubblewrap's own process 1, the zygote and who waits for it, the template processes, and one of
# these that has ended and waits for the next order to be forgotten.
MOST_IDLE = 3 + 8 + 1


class Told(socketserver.BaseRequestHandler):
    """Tells its secret to whoever connects."""

    def handle(self):
        self.request.sendall(target.CANARY.encode())


@pytest.fixture(scope="session")
def port():
    """A server outside the jail."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Told) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_address[1]
        server.shutdown()


def prepared(source, port):
    """An attack with the paths and ports of this run filled in."""
    root = Path(__file__).resolve().parents[2]
    paths = ["/tmp/canary.txt", "/etc/passwd", "/etc/shadow"]
    paths += [str(Path.home() / name) for name in ("canary.ipynb", ".bash_history")]
    ours = "build/canary.db solutions solutions/00_warm_up/exercise.py tests/hostile/target.py"
    paths += [str(root / x) for x in (*ours.split(), "attn_course/reference/softmax.py")]
    return source.replace("__PATHS__", repr(paths)).replace("__PORTS__", repr([port]))


def descendants(zygote):
    """Every process below the jail's own."""
    return {child.pid for child in psutil.Process(zygote._process.pid).children(recursive=True)}


def settled(zygote):
    """What is there before a submission: bubblewrap's process 1, the zygote, the templates."""
    wait_until = time.monotonic() + 3
    while len(found := descendants(zygote)) > MOST_IDLE and time.monotonic() < wait_until:
        time.sleep(0.02)
    assert len(found) <= MOST_IDLE, "a process of an earlier submission is left"
    return found


@pytest.mark.parametrize("name", attacks.ALL)
def test_an_attack_gains_nothing(name, grade, zygote, port, canary):
    sources = attacks.placed(prepared(attacks.ALL[name], port))
    idle = settled(zygote)
    begun = time.monotonic()
    result = grade(target.as_bytes(target.submission(**sources)))
    seconds = time.monotonic() - begun

    assert not result.score, f"{result.score} points: {result.tests}"
    assert result.status in ("graded", "timeout", "sandbox_error"), result.status
    told = json.dumps(result.as_json())
    for secret in (canary, target.SECRET, "BEGIN SOLUTION", "root:x:0", "logsumexp trick"):
        assert secret not in told
    assert seconds <= target.LIMITS.wall_seconds + 2
    wait_until = time.monotonic() + 3
    while descendants(zygote) - idle and time.monotonic() < wait_until:
        time.sleep(0.02)
    assert not descendants(zygote) - idle, "a process of the submission is left"

    neighbour = grade(target.as_bytes(target.honest()))
    assert (neighbour.status, neighbour.score) == ("graded", broken_files.FULL), neighbour.tests


def test_what_every_attack_begins_with_stops_none_of_them(grade):
    """An attack that ends in its imports would gain nothing either."""
    for begin in (attacks.BEGIN, attacks.BEGIN + attacks.FRAMES):
        double = begin + target.SOLUTIONS["double"]
        result = grade(target.as_bytes(target.submission(**target.SOLUTIONS | {"double": double})))
        assert result.score == broken_files.FULL, result.tests


def test_the_attacks_are_at_least_150_and_each_is_python():
    assert len(attacks.ALL) >= 150
    assert sum(len(attacks.placed(source)) > 1 for source in attacks.ALL.values()) >= 10
    for name, source in attacks.ALL.items():
        parse_cell(source.replace("__PATHS__", "[]").replace("__PORTS__", "[]"), name)
    assert attacks.ALL.keys() >= attacks.OWN_PROTOCOL


def test_what_attacks_leave_is_gone(grade, port):
    """After every neighbour attack, a later submission finds an empty and unchanged jail."""
    look = """
import os
found = []
for folder in ("/tmp", "/jail", "/dev/shm", "/proc"):
    found += [os.path.join(folder, name) for name in os.listdir(folder)]
def double(x):
    raise ValueError(repr(found))
"""
    before = grade(target.as_bytes(target.submission(double=look))).tests[0].message
    above = Path(sys.prefix).parts[:3]  # a checkout below /tmp is seen there, and the list of fonts
    assert "ValueError: []" in before or above[1] == "tmp", before
    for name in attacks.NEIGHBOUR:
        source = attacks.ALL[f"neighbour:{name}"]
        grade(target.as_bytes(target.submission(double=prepared(source, port))))
    result = grade(target.as_bytes(target.submission(double=look)))
    assert result.tests[0].message == before


@pytest.mark.parametrize("name", broken_files.MALFORMED)
def test_a_broken_file_is_a_status_with_a_reason_and_never_a_zero(name, grade):
    data, status = broken_files.MALFORMED[name]
    result = grade(data)
    assert (result.status, result.score) == (status, None)
    assert len(result.reason) > 10


@pytest.mark.parametrize("name", broken_files.ORDINARY)
def test_an_ordinary_mistake_costs_what_it_should(name, grade):
    data, status, score = broken_files.ORDINARY[name]
    result = grade(data)
    assert result.status == status, (result.reason, result.notes)
    if score is None:
        assert 7 < (result.score or 0) < 10
    else:
        assert result.score == score, [(t.grade_id, t.score, t.message) for t in result.tests]


def test_missing_is_not_zero(grade):
    result = grade(None)
    assert (result.status, result.score) == ("missing", None)


def test_the_canaries_would_be_seen(canary):
    """The spies' own code finds the secrets where no jail stops it."""
    for name in ("environment", "known_paths"):
        scope = {}
        exec(prepared(attacks.ALL[f"spy:{name}"], 1), scope)
        with pytest.raises(ValueError, match=canary):
            scope["double"](None)
    assert os.environ["ATTN_CANARY"] == canary
