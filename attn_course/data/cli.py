"""What ``attn-course data`` does."""

from attn_course.data._fetch import RemoteFile, cache_folder, data_folder, fetch, state
from attn_course.data.multi30k import FILES
from attn_course.data.shakespeare import FILE

DATASETS: dict[str, tuple[RemoteFile, ...]] = {
    "multi30k": tuple(FILES.values()),
    "tinyshakespeare": (FILE,),
}


def listing() -> list[str]:
    """One line per file: state, size, name.

    Raises:
        DataError: If ``ATTN_COURSE_DATA`` names no folder.
    """
    lines = []
    for files in DATASETS.values():
        for file in files:
            lines.append(f"{state(file):8}{file.size:>10,} bytes  {file.path}")
    return lines


def fetch_dataset(name: str) -> list[str]:
    """Fetch and check every file of a data set; the paths.

    Raises:
        ValueError: If there is no such data set.
        DataError: If a file can be neither found nor downloaded.
    """
    if name not in DATASETS:
        raise ValueError(f"name: expected one of {', '.join(DATASETS)}, got {name}")
    return [str(fetch(file)) for file in DATASETS[name]]


def where() -> list[str]:
    """The folders that are looked through, in order."""
    folder = data_folder()
    return [
        f"ATTN_COURSE_DATA  {folder if folder is not None else '(not set)'}",
        f"cache             {cache_folder()}",
    ]
