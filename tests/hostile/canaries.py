"""Canary files, where several runs of this suite may want the same one at the same time."""

import contextlib
import fcntl
import os


@contextlib.contextmanager
def shared_file(path, text):
    """A file with ``text`` that other runs may have as well; the last of them removes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("a") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if not _is(file.fileno(), path):
                continue  # removed between opening and locking
            if path.read_text() != text:
                path.write_text(text)
            yield
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            return


def _is(descriptor, path):
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
