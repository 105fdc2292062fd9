"""First process of the jail: imports the heavy libraries once, then forks for each submission.

It runs inside bubblewrap (no network, read-only system, cleared environment) and never runs code
of a student. For each submission it forks a *keeper*, which makes fresh namespaces and forks the
*worker* as process 1 of them. The keeper only waits: it kills the worker when told or when the
grader goes away, and reports how it ended, so nothing of a submission survives it.

For each list of forbidden shortcuts it forks a *lesser zygote*, once, which takes them out of
itself and then forks in the same way: taking them out costs more than most submissions. It runs no
code of a student either, and every submission still has a fresh process of its own.
"""

import contextlib
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import confine
import pages
import shortcuts
import worker

HOME = "/jail"
MOST_LESSER = 8  # lists of forbidden shortcuts that have a zygote at once
EXIT_SECONDS = 1.0  # from hanging up to having exited


def keep(worker_pid: int, life: socket.socket) -> None:
    """Wait for the worker; answer ``b"m"`` (peak memory) and ``b"r"`` (reset it); then report.

    ``b"e"`` says that the worker has hung up, as it does when it exits: it may finish, so that the
    report tells its own exit status. ``b"k"``, and a grader that is gone, kill it at once.
    """
    exited, told = os.pidfd_open(worker_pid), False
    while True:
        ready, _, _ = select.select([life.fileno(), exited], [], [])
        if exited in ready:
            break
        request = life.recv(1)
        if request == b"m":
            life.send(json.dumps(_memory(worker_pid)).encode())
        elif request == b"r":
            with contextlib.suppress(OSError), open(f"/proc/{worker_pid}/clear_refs", "w") as file:
                file.write("5")
            life.send(b"{}")
        else:
            if request == b"e" and select.select([exited], [], [], EXIT_SECONDS)[0]:
                break
            told = True
            os.kill(worker_pid, signal.SIGKILL)
            break
    _, status, usage = os.wait4(worker_pid, 0)
    code = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    report = {"exit": code, "told": told, "cpu": cpu, "peak_kib": usage.ru_maxrss}
    with contextlib.suppress(OSError):
        life.send(json.dumps(report).encode())
    os._exit(0)


def _memory(pid: int) -> dict[str, int]:
    """Resident and peak resident memory of a process, in KiB."""
    found = {}
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
        for line in file:
            if line.startswith(("VmHWM:", "VmRSS:")):
                found[line[2:5].lower()] = int(line.split()[1])
    return found


def mapped_bytes() -> int:
    """Address space of this process now, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def fork_submission(
    order: dict[str, object],
    connection: socket.socket,
    life: socket.socket,
    note: int,
    *,
    hidden: list[str],
    refused: tuple[str, ...],
) -> None:
    """The keeper's life: confine, fork the worker, wait for it."""
    os.setsid()  # kill(0, ...) must not reach the zygote
    if order.get("cores"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, order["cores"])  # type: ignore[arg-type]
    limits = dict(order["limits"]) | {"mapped_bytes": mapped_bytes()}  # type: ignore[call-overload]
    confined = bool(order["confined"])
    if confined:
        confine.enter_namespaces()
    pid = os.fork()
    if pid:
        connection.close()
        os.close(note)
        keep(pid, life)
    life.close()
    os.setsid()
    if confined:
        confine.private_files(HOME, int(limits["home_megabytes"]), hidden)
        confine.drop_privileges()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.dup2(note, shortcuts.NOTE)
    _close_but(connection.fileno(), shortcuts.NOTE)
    confine.limit_resources(limits)
    if confined:
        confine.filter_system_calls()
    shortcuts.watch(refused, hidden)
    worker.serve(
        connection, output_limit=int(limits["output_characters"]), restricted=bool(refused)
    )


def _close_but(*kept: int) -> None:
    """Close all descriptors from 3 on but these."""
    first = 3
    for number in sorted(kept):
        os.closerange(first, number)
        first = number + 1
    os.closerange(first, 256)


class Lesser:
    """The lesser zygotes of this one, by their lists; those used longest ago end first."""

    def __init__(self) -> None:
        self._controls: dict[tuple[str, ...], socket.socket] = {}

    def pass_on(self, refused: tuple[str, ...], message: bytes, descriptors: list[int]) -> None:
        """Give an order to the zygote that lacks ``refused``; made when there is none."""
        control = self._controls.pop(refused, None) or self._new(refused)
        try:
            socket.send_fds(control, [message], descriptors)
        except OSError:  # it has died
            control.close()
            control = self._new(refused)
            socket.send_fds(control, [message], descriptors)
        self._controls[refused] = control
        while len(self._controls) > MOST_LESSER:
            self._controls.pop(next(iter(self._controls))).close()

    def _new(self, refused: tuple[str, ...]) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            try:
                _close_but(theirs.fileno())
                os.setsid()
                be_lesser(theirs, refused)
            finally:
                os._exit(0)
        theirs.close()
        return ours


def be_lesser(control: socket.socket, refused: tuple[str, ...]) -> None:
    """Take ``refused`` out of this process, then fork submissions until the control closes."""
    problem = ""
    hidden: list[str] = []
    try:
        hidden = shortcuts.hidden_folders(refused)
        shortcuts.remove(refused)
        gc.collect()
        gc.freeze()
    except Exception as error:  # each submission is told, as if it had been tried there
        problem = _last_line(error)
    serve_orders(control, hidden=hidden, problem=problem)


def _last_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]


def serve_orders(
    control: socket.socket,
    *,
    hidden: list[str],
    problem: str = "",
    lesser: Lesser | None = None,
) -> None:
    """Fork a submission for each order on the control socket until it closes."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 3)
        if not message:
            return
        order = json.loads(message)
        refused = tuple(str(name) for name in order.get("forbidden", ()))
        if lesser is not None and refused:
            lesser.pass_on(refused, message, descriptors)
            for number in descriptors:
                os.close(number)
            continue
        connection, life = (socket.socket(fileno=number) for number in descriptors[:2])
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            try:
                if problem:
                    raise RuntimeError(problem)
                fork_submission(
                    order, connection, life, descriptors[2], hidden=hidden, refused=refused
                )
            except BaseException as error:
                with contextlib.suppress(OSError):
                    connection.sendall(b"FAIL" + _last_line(error).encode()[:1000])
            os._exit(1)
        connection.close()
        life.close()
        os.close(descriptors[2])


def main() -> None:
    """Answer orders on the control socket until it closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    worker.warm_up()
    shortcuts.prepare()
    confine.system_call_filter()
    pages.collapse()
    control.send(b"ready")
    serve_orders(control, hidden=[], lesser=Lesser())


if __name__ == "__main__":
    main()
