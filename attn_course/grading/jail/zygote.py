"""First process of the jail: imports the heavy libraries once, then forks for each submission.

It runs inside bubblewrap (no network, read-only system, cleared environment) and never runs code
of a student. Each submission is a *worker*: a fork that is process 1 of fresh namespaces, closes
the doors behind itself and runs what it was sent. It is killed when the grader says so or goes
away, and its end is reported, so nothing of a submission survives it.

For each list of forbidden calls the zygote forks a *template process*, once, which takes them out
of itself and then forks in the same way, as that takes 5 to 25 ms. It runs no code of a student
either, and every submission still has a fresh process of its own.
"""

import contextlib
import gc
import json
import os
import resource
import signal
import socket
import sys
import traceback
from typing import Any

# ruff: noqa: E402
gc.disable()  # until everything is imported: what that leaves stays, and is looked at in vain
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import confine
import shortcuts
import worker
from children import Children

HOME = "/jail"


def mapped_bytes() -> int:
    """Address space of this process now, in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def be_submission(order: dict[str, Any], connection: socket.socket, hidden: list[str]) -> None:
    """The life of a fork: close the doors, then serve."""
    os.setsid()  # kill(0, ...) must not reach the zygote
    limits = order["limits"] | {"mapped_bytes": mapped_bytes()}
    confined = bool(order["confined"])
    if confined:
        confine.enter_namespaces()
        confine.private_files(HOME, int(limits["home_megabytes"]), hidden)
        confine.drop_privileges()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    _close_but(connection.fileno())
    confine.limit_resources(limits)
    if confined:
        confine.filter_system_calls()
    worker.serve(connection)


def _close_but(kept: int) -> None:
    """Close all descriptors from 3 on but this one."""
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 << 20)  # one system call: a zygote of many lives has high numbers


def new_template(refused: tuple[str, ...]) -> socket.socket:
    """Fork the template process that lacks ``refused``; what it is sent are its orders."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        try:
            _close_but(theirs.fileno())
            os.setsid()
            serve_orders(theirs, refused)
        finally:
            os._exit(0)
    theirs.close()
    return ours


def _last_line(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]


def serve_orders(control: socket.socket, refused: tuple[str, ...] = ()) -> None:
    """Fork a submission for each order on the control socket until it closes and none is left.

    Args:
        control: the socket.
        refused: what this process lacks; orders for another list go to that list's template.
    """
    hidden = shortcuts.hidden_folders(refused)
    problem = ""
    if refused:
        try:
            shortcuts.remove(refused)
            gc.collect()
            gc.freeze()
        except Exception as error:  # each submission is told, as if it had been tried there
            problem = _last_line(error)
    templates: dict[tuple[str, ...], socket.socket] = {}
    children = Children(control)
    while children.wait():
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 2)
        if not message:
            children.forget_control()
            continue
        order = json.loads(message)
        wanted = tuple(str(name) for name in order["forbidden"])
        if wanted != refused:
            if wanted not in templates:
                templates[wanted] = new_template(wanted)
            try:
                socket.send_fds(templates[wanted], [message], descriptors)
            except OSError:  # it has died, and the submission is told so by its closed socket
                templates.pop(wanted).close()
            for number in descriptors:
                os.close(number)
            continue
        connection, life = (socket.socket(fileno=number) for number in descriptors)
        pid = None
        try:
            if problem:
                raise RuntimeError(problem)
            pid = confine.fork_apart() if order["confined"] else os.fork()
            if pid == 0:
                children.abandon()
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                be_submission(order, connection, hidden)
            children.add(pid, life, int(order["limits"]["processes"]))
        except BaseException as error:
            with contextlib.suppress(OSError):
                worker.wire.send(connection, {"failed": _last_line(error)[:1000]})
            if pid == 0:
                os._exit(1)
            life.close()
        connection.close()


def main() -> None:
    """Answer orders on the control socket until it closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.argv[2] == "confined":
        confine.own_processes()
    worker.warm_up(sys.argv[3:])
    gc.enable()
    shortcuts.prepare()
    confine.system_call_filter()
    control.send(b"ready")
    serve_orders(control)


if __name__ == "__main__":
    main()
