"""Close the doors behind a submission: namespaces, rlimits, capabilities, system calls.

Linux only. Numbers are from ``<linux/sched.h>``, ``<sys/mount.h>`` and ``<linux/prctl.h>``.
"""

import contextlib
import ctypes
import errno
import functools
import os
import resource
import stat
import sys
from collections.abc import Sequence
from typing import Any

CLONE_NEWNS, CLONE_NEWIPC = 0x00020000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_THREAD = 0x00010000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 16384, 1 << 18
MS_REMOUNT, MS_BIND = 32, 4096
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
SIGKILL = 9

SCMP_ACT_ALLOW, SCMP_ACT_ERRNO = 0x7FFF0000, 0x00050000
SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ = 4, 7
# fcntl: locks of three kinds, leases, notes of changes and hints of how a file will be written. Two
# processes that share no memory and no network could talk by what a file that both may read keeps.
LOCKS = (5, 6, 7, 36, 37, 38, 1024, 1025, 1026, 1035, 1036, 1037, 1038)
FUTEX_PRIVATE = 128

# Not needed by numerical Python; each has opened a jail or slowed a machine somewhere.
REFUSED_CALLS = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "pidfd_open"),
    *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_by_handle_at"),
    *("name_to_handle_at", "mount_setattr", "fsopen", "fsmount", "fspick", "move_mount"),
    *("open_tree", "bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "kexec_load", "kexec_file_load"),
    *("init_module", "finit_module", "delete_module", "reboot", "swapon", "swapoff", "syslog"),
    *("acct", "quotactl", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex"),
    *("sethostname", "setdomainname", "iopl", "ioperm", "personality", "socket", "vfork"),
    *("execve", "execveat", "fanotify_init", "modify_ldt", "memfd_secret"),
    *("landlock_create_ruleset", "shmget", "shmat", "msgget", "semget", "mq_open", "flock"),
    *("inotify_init", "inotify_init1", "inotify_add_watch", "io_setup", "memfd_create"),
    # what of a file is in memory tells one process what another has read
    *("mincore", "cachestat", "preadv2", "fadvise64"),
    *("futex_waitv", "futex_wait", "futex_wake", "futex_requeue"),
)

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _unshare(flags: int) -> None:
    """New namespaces, a user namespace among them, in which our user has the number it has here."""
    uid, gid = os.getuid(), os.getgid()
    _check(_libc.unshare(CLONE_NEWUSER | flags), "unshare")
    with contextlib.suppress(OSError), open("/proc/self/setgroups", "w") as file:
        file.write("deny")
    with open("/proc/self/uid_map", "w") as file:
        file.write(f"{uid} {uid} 1")
    with open("/proc/self/gid_map", "w") as file:
        file.write(f"{gid} {gid} 1")


def own_processes() -> None:
    """Go on as process 1 of a namespace that this process may leave for each fork.

    The process that was started stays behind, waits and ends in the same way.
    """
    _unshare(CLONE_NEWPID)
    if pid := os.fork():
        os.closerange(3, 256)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(code if code >= 0 else 1)
    _libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)


def fork_apart() -> int:
    """Like ``os.fork``; the child is process 1 of a namespace of its own."""
    ours = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        _check(_libc.unshare(CLONE_NEWPID), "unshare")
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                _check(_libc.setns(ours, CLONE_NEWPID), "setns")
        return pid
    finally:
        os.close(ours)


def enter_namespaces() -> None:
    """New user, IPC and network namespaces: no abstract socket of another submission is there."""
    _unshare(CLONE_NEWIPC | CLONE_NEWNET)


def private_files(home: str, megabytes: int, hidden: Sequence[str] = ()) -> None:
    """A file tree of its own: a home in memory that can be written, ``hidden`` and /proc empty."""
    _check(_libc.unshare(CLONE_NEWNS), "unshare")
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount private")
    _freeze_devices()
    quiet = MS_NOSUID | MS_NODEV
    size = f"size={megabytes}m,nr_inodes=4096,mode=700".encode()
    _check(_libc.mount(b"tmpfs", home.encode(), b"tmpfs", quiet, size), f"mount {home}")
    for place in (*hidden, "/proc", "/dev/shm", "/dev/pts", "/tmp"):
        if any(root.startswith(f"{place}/") for root in (sys.prefix, sys.base_prefix)):
            # a checkout in /tmp: modules are still to be imported from there
            flags = quiet | MS_REMOUNT | MS_BIND | MS_RDONLY
            _check(_libc.mount(None, place.encode(), None, flags, None), "remount")
        elif os.path.isdir(place):
            flags = quiet | MS_NOEXEC | MS_RDONLY
            options = b"size=4k,mode=555"
            _check(_libc.mount(b"tmpfs", place.encode(), b"tmpfs", flags, options), "mount")
        elif os.path.exists(place):
            _check(_libc.mount(b"/dev/null", place.encode(), None, MS_BIND, None), "mount")
    os.chdir(home)


def _freeze_devices() -> None:
    """Devices are the machine's own: they can be used, and their times and modes stay."""
    for place in (entry.path for entry in os.scandir("/dev") if _is_device(entry)):
        flags = os.statvfs(place).f_flag & (MS_NOSUID | MS_NOEXEC)  # which the kernel keeps
        flags |= MS_REMOUNT | MS_BIND | MS_RDONLY
        _check(_libc.mount(None, place.encode(), None, flags, None), f"remount {place}")


def _is_device(entry: os.DirEntry[str]) -> bool:
    return stat.S_ISCHR(entry.stat(follow_symlinks=False).st_mode)


def limit_resources(limits: dict[str, Any]) -> None:
    """CPU seconds, address space beyond what is mapped now, file size, processes, descriptors."""
    cpu, memory = int(limits["cpu_seconds"]), int(limits["memory_bytes"])
    soft = int(limits["file_bytes"])
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
    mapped = int(limits["mapped_bytes"])
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, mapped + memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, soft))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, (int(limits["processes"]),) * 2)


def drop_privileges() -> None:
    """No new privileges, no capabilities, no core dump, death with the zygote."""
    _libc.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    for capability in range(64):
        _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    _check(_libc.capset(header, (ctypes.c_uint32 * 6)(*[0] * 6)), "capset")
    _libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)


class _ArgCmp(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


@functools.cache
def system_call_filter() -> Any:
    """libseccomp and its filter, for :func:`filter_system_calls`; made once, before the forks.

    It is None where the platform has no libseccomp.
    """
    try:
        lib = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return None
    lib.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint32(SCMP_ACT_ALLOW)))

    def refuse(name: str, code: int, *tests: _ArgCmp) -> None:
        number = lib.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:
            array = (_ArgCmp * max(1, len(tests)))(*tests)
            action = ctypes.c_uint32(SCMP_ACT_ERRNO | code)
            failed = lib.seccomp_rule_add_array(context, action, number, len(tests), array)
            if failed:
                raise OSError(-failed, f"seccomp rule for {name}")

    for name in REFUSED_CALLS:
        refuse(name, errno.EPERM)
    for command in LOCKS:
        refuse("fcntl", errno.EPERM, _ArgCmp(1, SCMP_CMP_EQ, command, 0))
    # A futex of several processes may lie in a page of a file that all of them read. Who waits for
    # a thread's end by one looks again.
    refuse("futex", errno.EAGAIN, _ArgCmp(1, SCMP_CMP_MASKED_EQ, FUTEX_PRIVATE, 0))
    refuse("clone3", errno.ENOSYS)  # glibc then uses clone, whose flags a filter can see
    refuse("fork", errno.EAGAIN)
    refuse("clone", errno.EAGAIN, _ArgCmp(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0))
    return lib, context


def filter_system_calls() -> None:
    """Refuse the calls of ``REFUSED_CALLS`` and every new process (threads stay allowed).

    Where the platform has no libseccomp, the namespaces and rlimits hold alone.
    """
    if found := system_call_filter():
        lib, context = found
        if failed := lib.seccomp_load(context):
            raise OSError(-failed, "seccomp_load")
