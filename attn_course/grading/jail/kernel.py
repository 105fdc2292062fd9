"""First process of a jailed Jupyter kernel: limits, a bridge to the client, then ipykernel.

The client's connections arrive as descriptors on one control socket. A process of this jail joins
each to the kernel's own socket, so no folder and no network is shared with the outside.
"""

import contextlib
import json
import os
import resource
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import confine

CHANNELS = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
START_SECONDS = 60.0


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until either end closes."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def join(outside: socket.socket, path: str) -> None:
    """Connect a client to one of the kernel's sockets, waiting for the kernel to bind it."""
    until = time.monotonic() + START_SECONDS
    inside = socket.socket(socket.AF_UNIX)
    while True:
        try:
            inside.connect(path)
            break
        except OSError:
            if time.monotonic() > until:
                outside.close()
                return
            time.sleep(0.02)
    threading.Thread(target=pump, args=(outside, inside), daemon=True).start()
    pump(inside, outside)


def bridge(control: socket.socket, prefix: str) -> None:
    """Join every client that the control socket hands over until it closes."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 16, 1)
        if not message:
            os._exit(0)
        outside = socket.socket(fileno=descriptors[0])
        path = f"{prefix}-{int(message)}"
        threading.Thread(target=join, args=(outside, path), daemon=True).start()


def main() -> None:
    """Read the order from the control socket, fork the bridge, become the kernel."""
    control = socket.socket(fileno=int(sys.argv[1]))
    order = json.loads(control.recv(1 << 16))
    prefix, limits = order["prefix"], order["limits"]
    with contextlib.suppress(OSError):
        os.setsid()
    if os.fork() == 0:
        os.setsid()  # an interrupt of the kernel's group is not for the bridge
        bridge(control, prefix)
    control.close()
    resource.setrlimit(resource.RLIMIT_AS, (limits["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits["file_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (limits["cpu_seconds"],) * 2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, (limits["processes"],) * 2)
    confine.filter_system_calls(kernel=True)
    connection = {
        **{name: number for number, name in enumerate(CHANNELS, start=1)},
        **{"transport": "ipc", "ip": prefix},
        **{key: order[key] for key in ("key", "signature_scheme")},
    }
    path = f"{prefix}.json"
    with open(path, "w") as file:
        json.dump(connection, file)
    sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=["-f", path, "--HistoryManager.enabled=False"])


if __name__ == "__main__":
    main()
