"""First process of the jail: imports the heavy libraries once, then forks for each submission.

It runs inside bubblewrap (no network, read-only system, cleared environment) and never runs code
of a student. For each submission it forks a *keeper*, which makes fresh namespaces and forks the
*worker* as process 1 of them. The keeper only waits: it kills the worker when told or when the
grader goes away, and reports how it ended, so nothing of a submission survives it.
"""

import contextlib
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
import shortcuts
import worker

HOME = "/jail"
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
    order: dict[str, object], connection: socket.socket, life: socket.socket
) -> None:
    """The keeper's life: confine, fork the worker, wait for it."""
    os.setsid()  # kill(0, ...) must not reach the zygote
    if order.get("cores"):
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, order["cores"])  # type: ignore[arg-type]
    limits = dict(order["limits"]) | {"mapped_bytes": mapped_bytes()}  # type: ignore[call-overload]
    refused = [str(name) for name in order.get("forbidden", ())]  # type: ignore[attr-defined]
    hidden = shortcuts.hidden_folders(refused)
    confined = bool(order["confined"])
    if confined:
        confine.enter_namespaces()
    pid = os.fork()
    if pid:
        connection.close()
        keep(pid, life)
    life.close()
    os.setsid()
    if confined:
        confine.private_files(HOME, int(limits["home_megabytes"]), hidden)
        confine.drop_privileges()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    shortcuts.remove(refused)
    os.closerange(3, connection.fileno())
    os.closerange(connection.fileno() + 1, 256)
    confine.limit_resources(limits)
    if confined:
        confine.filter_system_calls()
    worker.serve(
        connection, output_limit=int(limits["output_characters"]), restricted=bool(refused)
    )


def main() -> None:
    """Answer orders on the control socket until it closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    worker.warm_up()
    shortcuts.prepare()
    control.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            return
        connection, life = (socket.socket(fileno=number) for number in descriptors)
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            try:
                fork_submission(json.loads(message), connection, life)
            except BaseException:
                with contextlib.suppress(OSError):
                    text = traceback.format_exc().strip().splitlines()[-1]
                    connection.sendall(b"FAIL" + text.encode()[:1000])
            os._exit(1)
        connection.close()
        life.close()


if __name__ == "__main__":
    main()
