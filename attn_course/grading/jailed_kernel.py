"""Start a Jupyter kernel inside the jail; what the kernelspec of :mod:`kernelspec` runs.

The client (nbclient, nbgrader, Jupyter) sees a kernel at the ports of its connection file. This
process listens there and hands every connection into the jail, where ipykernel runs on sockets of
its own (``transport: ipc``): the jail itself has no network.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from attn_course.grading import mounts

PACKAGE = Path(__file__).resolve().parent.parent
JAIL_CODE = Path(__file__).resolve().parent / "jail"
INSIDE_CODE, HOME, SOCKETS = "/opt/attn/jail", "/jail", "/opt/attn/run/k"
CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
MAX_FILES = 200
TMP_BYTES = 256 << 20
MEMORY_FOLDERS = {HOME: 256 << 20, "/dev/shm": 64 << 20}
LIMITS = {
    "memory_bytes": 8 << 30,
    "file_bytes": 64 << 20,
    "cpu_seconds": 1200,
    "processes": 128,
}
COURSE_MARKS = ("nbgrader_config.py", "gradebook.db", "source", "submitted", ".git")


def shared_files(folder: Path) -> list[Path]:
    """What of the notebook's folder the kernel may read: the assignment's own data files.

    Nothing when it holds no notebook, or looks like a course or a home.
    """
    folder = folder.resolve()
    if folder in (Path.home(), Path("/")) or any((folder / m).exists() for m in COURSE_MARKS):
        return []
    found = [p for p in sorted(folder.iterdir()) if p.name[0] != "." and not p.is_symlink()]
    if not any(path.suffix == ".ipynb" for path in found):
        return []
    return [path for path in found if path.is_file() or path.is_dir()][:MAX_FILES]


def jail_command(folder: Path) -> list[str]:
    """Bubblewrap up to the program: system and package read-only, the rest in memory.

    The whole package is there, and the catalogue of misconceptions: stock test cells import them
    in this kernel. Solutions are not.
    """
    command = mounts.system_mounts(tmp_bytes=TMP_BYTES)
    command += ["--ro-bind", str(JAIL_CODE), INSIDE_CODE, "--tmpfs", str(Path(SOCKETS).parent)]
    if not any(PACKAGE.is_relative_to(root) for root in mounts.python_roots()):
        command += ["--ro-bind", str(PACKAGE), str(PACKAGE)]
        catalogue = sorted((PACKAGE.parent / "solutions").glob("*/misconceptions.py"))
        for path in catalogue:
            command += ["--ro-bind", str(path), str(path)]
    for folder_in_memory, size in MEMORY_FOLDERS.items():
        command += ["--size", str(size), "--tmpfs", folder_in_memory]
    for path in shared_files(folder):
        command += ["--ro-bind", str(path), f"{HOME}/{path.name}"]
    command += ["--remount-ro", "/", "--remount-ro", "/dev", "--chdir", HOME, "--clearenv"]
    environment = mounts.environment(HOME, str(PACKAGE.parent)) | {"JPY_PARENT_PID": "1"}
    del environment["MPLBACKEND"]  # figures are shown in the notebook
    passed = ("ATTN_COURSE_SEED", "NBGRADER_EXECUTION", "NBGRADER_VALIDATING")
    environment |= {name: os.environ[name] for name in passed if name in os.environ}
    for name, value in environment.items():
        command += ["--setenv", name, value]
    return command


def listen(connection: dict[str, Any]) -> list[socket.socket]:
    """The client's end of each channel, in the order of ``CHANNELS``."""
    listeners = []
    for channel in CHANNELS:
        if connection.get("transport", "tcp") == "ipc":
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(f"{connection['ip']}-{connection[channel]}")
        else:
            listener = socket.create_server((connection["ip"], connection[channel]))
        listener.listen()
        listeners.append(listener)
    return listeners


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until either end closes."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def serve(number: int, listener: socket.socket, control: socket.socket) -> None:
    """Hand every client of one channel into the jail, as one end of a fresh pair of sockets.

    Never the client's own socket: it belongs to this machine's network, and could be reconnected.
    """
    while True:
        client, _ = listener.accept()
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(control, [str(number).encode()], [theirs.fileno()])
        except OSError:
            return
        theirs.close()
        for ends in ((client, ours), (ours, client)):
            threading.Thread(target=pump, args=ends, daemon=True).start()


def main(argv: list[str]) -> int:
    """Run a kernel for one connection file until it ends.

    Args:
        argv: the path of the connection file.

    Returns:
        The exit status of the jail.
    """
    connection = json.loads(Path(argv[0]).read_text())
    listeners = listen(connection)
    control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    order = {key: connection[key] for key in ("key", "signature_scheme")}
    control.send(json.dumps({**order, "prefix": SOCKETS, "limits": LIMITS}).encode())
    number = str(theirs.fileno())
    jail = subprocess.Popen(
        [*jail_command(Path.cwd()), sys.executable, f"{INSIDE_CODE}/kernel.py", number],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", os.defpath)},  # the jail sees its first process's
    )
    theirs.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts go by message, into the jail
    signal.signal(signal.SIGTERM, lambda *_: jail.kill())
    for place, listener in enumerate(listeners, start=1):
        threading.Thread(target=serve, args=(place, listener, control), daemon=True).start()
    return jail.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
