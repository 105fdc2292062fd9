"""Hold a process's memory in large pages: a fork copies a table of 4 KiB pages entry by entry."""

import ctypes

MADV_COLLAPSE = 25  # <linux/mman.h>, since Linux 6.1; an older kernel refuses, and nothing is lost
LARGE = 2 << 20


def collapse() -> int:
    """Gather the private memory of this process in large pages; how many there are now."""
    libc = ctypes.CDLL(None)
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    done = 0
    try:
        with open("/proc/self/maps") as file:
            lines = file.read().splitlines()
    except OSError:
        return 0
    for line in lines:
        place, rights, _, _, _, *name = line.split(maxsplit=5)
        if rights != "rw-p" or (name and name[0] != "[heap]"):
            continue
        first, last = (int(end, 16) for end in place.split("-"))
        for start in range(-(-first // LARGE) * LARGE, last // LARGE * LARGE, LARGE):
            done += libc.madvise(start, LARGE, MADV_COLLAPSE) == 0
    return done
