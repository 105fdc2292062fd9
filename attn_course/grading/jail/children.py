"""The submissions of one zygote that live: asked for their memory, ended, reported on.

Each has a *life*, a socket to the grader. ``b"m"`` asks for resident and peak memory, and for a
descriptor of the process; ``b"r"`` for the same after the peak, and what was touched, were reset.
``b"k"``, and a grader that is gone, kill it. The report is the last word on a life.
"""

import contextlib
import dataclasses
import json
import os
import select
import signal
import socket

LOOK_MILLISECONDS = 50  # between two counts of threads, which no limit of root's processes bounds


@dataclasses.dataclass
class _Child:
    pid: int
    exited: int  # readable when it has
    life: socket.socket
    most_threads: int
    number: int  # where /proc was mounted, which may be outside of our namespace
    flooded: bool = False  # it had more threads than it may


class Children:
    """Children of this process, and one more descriptor to wait for."""

    def __init__(self, control: socket.socket) -> None:
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._control: int | None = control.fileno()
        self._lives: dict[int, _Child] = {}
        self._exits: dict[int, _Child] = {}

    def add(self, pid: int, life: socket.socket, most_threads: int) -> None:
        """Look after a process that was forked just now."""
        exited = os.pidfd_open(pid)
        child = _Child(pid, exited, life, most_threads, number_in_proc(exited))
        self._lives[life.fileno()] = self._exits[child.exited] = child
        self._poll.register(life, select.POLLIN)
        self._poll.register(child.exited, select.POLLIN)

    def forget_control(self) -> None:
        """It has been closed at the other end: wait for the children alone."""
        if self._control is not None:
            self._poll.unregister(self._control)
        self._control = None

    def abandon(self) -> None:
        """In a fork: these are another process's, and no destructor may close their numbers."""
        for child in self._exits.values():
            child.life.detach()
        self._lives, self._exits = {}, {}

    def wait(self) -> bool:
        """Serve the lives until the control socket can be read (True) or all have ended (False)."""
        while self._control is not None or self._exits:
            patience = LOOK_MILLISECONDS if self._exits else None
            ready = [number for number, _ in self._poll.poll(patience)]
            for number in ready:  # an end first: whoever asks something else reads the report
                if number in self._exits:
                    self._report(self._exits.pop(number))
            for number in ready:
                if number in self._lives:
                    self._answer(self._lives[number])
            for child in self._exits.values():
                if _threads(child) > child.most_threads:
                    child.flooded = True
                    os.kill(child.pid, signal.SIGKILL)
            if self._control in ready:
                return True
        return False

    def _answer(self, child: _Child) -> None:
        try:
            request = child.life.recv(1)
        except OSError:
            request = b""
        with contextlib.suppress(OSError):
            if request in (b"m", b"r"):
                if request == b"r":
                    _reset_peak(child.number)
                socket.send_fds(
                    child.life, [json.dumps(_memory(child.number)).encode()], [child.exited]
                )
                return
        self._poll.unregister(self._lives.pop(child.life.fileno()).life)
        os.kill(child.pid, signal.SIGKILL)

    def _report(self, child: _Child) -> None:
        self._poll.unregister(child.exited)
        if self._lives.pop(child.life.fileno(), None) is not None:
            self._poll.unregister(child.life)
        _, status, usage = os.wait4(child.pid, 0)
        report = {
            "exit": os.waitstatus_to_exitcode(status),
            "flooded": child.flooded,
            "cpu": usage.ru_utime + usage.ru_stime,
            "peak_kib": usage.ru_maxrss,
        }
        os.close(child.exited)
        with child.life, contextlib.suppress(OSError):
            child.life.send(json.dumps(report).encode())


def number_in_proc(descriptor: int) -> int:
    """The process's number where /proc was mounted, which may be outside of our namespace."""
    with open(f"/proc/self/fdinfo/{descriptor}") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pid:"))


def _threads(child: _Child) -> int:
    """How many threads a process has."""
    try:
        with open(f"/proc/{child.number}/stat", "rb", buffering=0) as file:
            return int(file.read().rpartition(b")")[2].split()[17])
    except (OSError, ValueError, IndexError):  # it has ended
        return 0


def _reset_peak(number: int) -> None:
    for what in "15":  # the marks of touched pages, and the peak
        with contextlib.suppress(OSError), open(f"/proc/{number}/clear_refs", "w") as file:
            file.write(what)


def _memory(number: int) -> dict[str, int]:
    """Resident memory of a process, its peak, and the part that files have, in KiB."""
    found = {}
    with contextlib.suppress(OSError), open(f"/proc/{number}/status") as file:
        for line in file:
            if line.startswith(("VmHWM:", "VmRSS:", "RssFile:")):
                found[line.partition(":")[0]] = int(line.split()[1])
    return found
