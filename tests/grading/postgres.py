"""A PostgreSQL of its own for a test: Debian's programs, an unprivileged user, a free port."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

FIX = (
    "PostgreSQL is needed by this test: apt-get install postgresql "
    "(or: python3 tools/setup.py system)"
)


def programs():
    """The newest folder that holds ``initdb`` and ``postgres``."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: p.parts[4])
    if found:
        return found[-1].parent
    path = shutil.which("initdb")
    return Path(path).parent if path else None


@contextlib.contextmanager
def server():
    """Start a server that lives as long as the block; the address of an empty database."""
    folder = programs()
    assert folder is not None, FIX
    user = pwd.getpwuid(os.geteuid()).pw_name
    options = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        user = next((u for u in ("postgres", "nobody") if _exists(u)), "nobody")
        options = {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as scratch:
        data = Path(scratch) / "data"
        data.mkdir(mode=0o700)
        if options:
            os.chmod(scratch, 0o755)
            shutil.chown(data, user)
        flags = ["-A", "trust", "-U", "course", "-E", "UTF8", "--locale=C", "--no-sync"]
        command = [folder / "initdb", "-D", data, *flags]
        made = subprocess.run(command, capture_output=True, text=True, cwd="/", **options)
        assert made.returncode == 0, made.stderr
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        log = open(Path(scratch) / "log", "w")  # noqa: SIM115  closed with the server
        command = [folder / "postgres", "-D", data, "-p", str(port), "-h", "127.0.0.1"]
        settings = {"stdout": log, "stderr": log, "cwd": "/", **options}
        process = subprocess.Popen([*command, "-k", "", "-F"], **settings)
        try:
            url = f"postgresql://course@127.0.0.1:{port}/postgres"
            _wait(process, url, Path(log.name))
            yield url
        finally:
            process.send_signal(3)  # immediate shutdown
            process.wait(timeout=20)
            log.close()


def database(server):
    """The address of an empty database of a server."""
    import psycopg

    name = f"book_{os.urandom(4).hex()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return server.rsplit("/", 1)[0] + "/" + name


def _exists(user):
    with contextlib.suppress(KeyError):
        pwd.getpwnam(user)
        return True
    return False


def _wait(process, url, log):
    import time

    import psycopg

    until = time.monotonic() + 30
    while True:
        assert process.poll() is None, log.read_text()
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
            return
        assert time.monotonic() < until, log.read_text()
        time.sleep(0.05)
