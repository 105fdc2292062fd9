"""Where the files of a data set are: a folder you name, a cache, or their origin."""

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attn_course._extras import need
from attn_course.data._download import DownloadError, download, file_sha256

FOLDER_VARIABLE = "ATTN_COURSE_DATA"


class DataError(RuntimeError):
    """A file of a data set is missing or is not the file it should be; says what to do."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """One file of a data set.

    Attributes:
        path: Place below ``ATTN_COURSE_DATA`` and below the cache.
        url: Origin.
        size: Length in bytes.
        sha256: Checksum, hexadecimal.
    """

    path: str
    url: str
    size: int
    sha256: str


def data_folder() -> Path | None:
    """The folder that ``ATTN_COURSE_DATA`` names, if it is set.

    Raises:
        DataError: If it names no folder: who sets it does not want a download behind their back.
    """
    value = os.environ.get(FOLDER_VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(
            f"{FOLDER_VARIABLE}: expected a folder, got {folder}, which is none\n"
            f"Make it, correct the variable, or unset it to download into {cache_folder()}."
        )
    return folder


def cache_folder() -> Path:
    """Where downloads are kept: the user's cache folder, as the system defines it."""
    return Path(_pooch().os_cache("attn-course"))


def _pooch() -> Any:
    return need("pooch", "data", "a data set that is not in ATTN_COURSE_DATA")


def find(file: RemoteFile) -> Path | None:
    """The path of a file that is on this machine, else None. Looks at names only."""
    for where in (data_folder, cache_folder):
        folder = where()
        if folder is not None and (folder / file.path).is_file():
            return folder / file.path
    return None


def state(file: RemoteFile) -> str:
    """``here``, ``not yet``, or ``damaged`` for a file whose length or checksum is wrong."""
    path = find(file)
    if path is None:
        return "not yet"
    whole = path.stat().st_size == file.size and file_sha256(path) == file.sha256
    return "here" if whole else "damaged"


def fetch(file: RemoteFile) -> Path:
    """The path of a file whose checksum is right; downloaded at the first call.

    Looks in ``ATTN_COURSE_DATA`` first and never writes there, then in the cache.

    Args:
        file: Which.

    Raises:
        DataError: If a file in ``ATTN_COURSE_DATA`` is not the one expected, or the download fails.
    """
    folder = data_folder()
    if folder is not None and (folder / file.path).is_file():
        path = folder / file.path
        found = file_sha256(path)
        if found != file.sha256:
            raise DataError(
                f"{path}: this is not the file the course was written with\n"
                f"  expected sha256 {file.sha256} ({file.size} bytes)\n"
                f"  got             {found} ({path.stat().st_size} bytes)\n"
                f"Replace it with {file.url}, or unset {FOLDER_VARIABLE} to download it."
            )
        return path
    cache = cache_folder()
    store = _pooch().create(
        path=cache,
        base_url="",
        registry={file.path: f"sha256:{file.sha256}"},
        urls={file.path: file.url},
    )

    def downloader(url: str, output: str, caller: Any) -> None:
        # pooch's name for the output is thrown away on failure; ours outlives a broken download
        partial = cache / (file.path + ".partial")
        download(url, Path(output), partial=partial, size=file.size, sha256=file.sha256)

    try:
        with _locked(cache / (file.path + ".lock")), _quiet():
            return Path(store.fetch(file.path, downloader=downloader))
    except (OSError, ValueError) as error:
        raise DataError(_unavailable(file, error)) from error


def _unavailable(file: RemoteFile, error: Exception) -> str:
    kind = "cannot be downloaded" if isinstance(error, DownloadError) else "cannot be stored"
    return (
        f"{file.path} {kind}: {error}\n"
        f"  from {file.url}\n"
        f"  to   {cache_folder() / file.path}\n"
        f"Two ways out:\n"
        f"  1. On a network: run `attn-course data fetch {file.path.split('/')[0]}`; "
        f"it goes on where it stopped.\n"
        f"  2. Without one: copy the file ({file.size} bytes, sha256 {file.sha256[:12]}...) to\n"
        f"     FOLDER/{file.path} and set {FOLDER_VARIABLE}=FOLDER."
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process at a time downloads a file; the next one finds it there."""
    try:
        import fcntl
    except ImportError:
        # Windows: two downloads at once spoil each other's part, which the checksum notices
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without pooch's messages on standard error: a graded notebook must not write there."""
    logger = _pooch().get_logger()
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
