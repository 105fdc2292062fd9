"""Download one file so that a broken connection costs only what had not arrived."""

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import BinaryIO

_CHUNK = 1 << 16
_TIMEOUT = 30.0
_TRIES = 3
_PAUSE = 0.5


class DownloadError(OSError):
    """The file could not be had from its origin; the message says why."""


def download(url: str, target: Path, *, partial: Path, size: int, sha256: str) -> None:
    """Fetch ``url`` into ``target``, going on with an earlier, broken download.

    Bytes arrive in ``partial``. A connection that breaks is taken up again with an
    HTTP ``Range`` request, in this call (three tries in a row without a single new byte give up)
    or in the next one. Only a file of the right size and checksum is renamed to ``target``.

    Args:
        url: Where from.
        target: Where the whole file goes, in the same file system.
        partial: Where bytes are kept until the file is whole.
        size: Length in bytes.
        sha256: Checksum, hexadecimal.

    Raises:
        DownloadError: If the server cannot be reached, answers with an error, breaks off again and
            again, or has another file than the one expected.
    """
    resumed = partial.exists() and partial.stat().st_size > 0
    _complete(url, partial, size)
    found = file_sha256(partial)
    if found != sha256 and resumed:
        # the old part may belong to something else: once more from the start
        partial.unlink()
        _complete(url, partial, size)
        found = file_sha256(partial)
    if found != sha256:
        partial.unlink()
        raise DownloadError(f"wrong bytes: expected sha256 {sha256}, got {found}")
    os.replace(partial, target)


def file_sha256(path: Path) -> str:
    """Checksum of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _complete(url: str, partial: Path, size: int) -> None:
    partial.parent.mkdir(parents=True, exist_ok=True)
    if partial.exists() and partial.stat().st_size > size:
        partial.unlink()
    failures, reason = 0, ""
    with partial.open("ab") as file:
        most = file.seek(0, os.SEEK_END)
        while file.seek(0, os.SEEK_END) < size:
            try:
                _append(url, file, size)
            except urllib.error.HTTPError as error:
                if error.code < 500 and error.code not in (408, 416, 429):
                    raise DownloadError(f"HTTP {error.code} {error.reason}") from error
                reason = f"HTTP {error.code} {error.reason}"
                if error.code == 416:
                    file.truncate(0)
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, DownloadError):
                    raise
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            else:
                reason = "the connection broke off"
            # more than ever before: a server that begins again each time must not go on for ever
            arrived = file.seek(0, os.SEEK_END)
            failures = 0 if arrived > most else failures + 1
            most = max(most, arrived)
            if failures == _TRIES:
                raise DownloadError(f"{reason} ({arrived} of {size} bytes have arrived)")
            time.sleep(failures * _PAUSE)
        file.flush()
        os.fsync(file.fileno())


def _append(url: str, file: BinaryIO, size: int) -> None:
    """One request for what is missing."""
    start = file.tell()
    # a compressed transfer would count other bytes than those of the file
    headers = {"Accept-Encoding": "identity", "User-Agent": "attn-course"}
    if start:
        headers["Range"] = f"bytes={start}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
        ranged = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        # otherwise the server sends the whole file: begin again
        kept = start if response.status == 206 and ranged else 0
        length = response.headers.get("Content-Length")
        if length is not None and kept + int(length) != size:
            raise DownloadError(f"expected {size} bytes, the server has {kept + int(length)}")
        file.truncate(kept)
        while chunk := response.read(_CHUNK):
            if file.seek(0, os.SEEK_END) + len(chunk) > size:
                file.truncate(0)
                raise DownloadError(f"expected {size} bytes, the server sends more")
            file.write(chunk)
            file.flush()
