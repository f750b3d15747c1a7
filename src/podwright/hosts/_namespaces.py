"""A child in a PID namespace of its own: when it ends, the kernel ends all processes below it.

That includes stopped processes, and those that left their session or forked twice. Root makes the
namespace directly. Other users first make a user namespace, in which they keep their uid and gid.
In it, setuid programs have no effect, and files of other users appear to belong to nobody
(user_namespaces(7)). The namespace has a /proc of its own, so that a program finds its own pids
there. Its pids begin after that of the child outside, so that files in /tmp or /dev/shm that
programs name by their pids stay different in different namespaces.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable
from typing import Any, NamedTuple

from podwright.hosts._run_cgroup import enter_group, make_group, remove_group

# linux/sched.h, linux/mount.h, linux/prctl.h
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
)
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_SLAVE = 2, 4, 8, 16384, 1 << 19
_PR_SET_NAME = 15
#: Folders that exist on most hosts and that hardly any program reads. POSIX message queues are not
#: opened by path (mq_overview(7)), and what a crash left in pstore is read at the next start of a
#: host.
_MOUNT_POINTS = ("/dev/mqueue", "/sys/fs/pstore")

#: How processes are held together: in a PID namespace; in one within a user namespace; where
#: neither is possible, in a cgroup of their own (_run_cgroup); or not at all.
HELD, HELD_BY_USER, HELD_BY_CGROUP, NOT_HELD = "pid", "user", "cgroup", ""


class HeldChild(NamedTuple):
    """A forked child. how: HELD, HELD_BY_USER, HELD_BY_CGROUP or NOT_HELD.

    why: the reason why there is no namespace. group: the path of its cgroup.
    """

    pid: int
    how: str
    why: str = ""
    group: str = ""


def fork_held(
    run_child: Callable[[], int], *, namespace_wanted: bool = True, cgroup_name: str = ""
) -> HeldChild:
    """Fork a child that calls `run_child` and exits with the code it returns, in a namespace if
    possible.

    Only a subreaper may call it (`become_subreaper`): a process in between forks the child and
    ends, and the kernel then hands the child to the subreaper. namespace_wanted: False makes no
    namespace. cgroup_name: the name of a cgroup that takes its place; "": none.
    """
    reason = "it is not wanted"
    if namespace_wanted:
        pid, hold_method, reason = _fork_in_namespace(run_child)
        if pid:
            return HeldChild(pid, hold_method)
    cgroup_path = make_group(cgroup_name, os.environ) if cgroup_name else ""
    pid, in_cgroup = _fork_into_cgroup(cgroup_path, run_child)
    if in_cgroup:
        return HeldChild(pid, HELD_BY_CGROUP, reason, cgroup_path)
    if cgroup_path:
        remove_group(cgroup_path)
    return HeldChild(pid, NOT_HELD, reason)


def can_hold() -> tuple[str, str, bool]:
    """Return how this host would hold a child, found by trying it, and why not better.

    The last value is whether the child could have a private folder in memory (`mount_private`).
    """
    import subprocess
    import sys

    # A process of its own tries it: a child of a process with threads may not unshare
    # (unshare(2)).
    code = "from podwright.hosts import _namespaces; _namespaces.try_to_hold()"
    command = [sys.executable, "-P", "-c", code]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout
    method, reason, text = f"{output}\n\n".split("\n")[:3]
    return method, reason, bool(text)


def try_to_hold() -> None:
    """Try and print what `can_hold` returns, in a process without threads."""
    from podwright.hosts._processes import become_subreaper

    become_subreaper()
    name = f"podwright-try-{os.getpid()}"
    child = fork_held(lambda: 0 if mount_private("podwright-try") else 1, cgroup_name=name)
    _, status = os.waitpid(child.pid, 0)
    if child.group:
        remove_group(child.group)
    print(f"{child.how}\n{child.why}\n{'' if status else 'private'}")


def in_words(hold_method: str, reason: str = "", has_private_folder: bool = True) -> str:
    """Return in words how processes are held.

    has_private_folder: they have a folder in memory of their own.
    """
    if hold_method == NOT_HELD:
        return f"no PID namespace ({reason}): one watcher has to be left to end them"
    if hold_method == HELD_BY_CGROUP:
        return (
            f"a cgroup, and no PID namespace ({reason}): one watcher has to be left, "
            "and ends all that is in it at once"
        )
    namespace_text = " in a user namespace" if hold_method == HELD_BY_USER else ""
    files_text = "leave no file" if has_private_folder else "may leave files in /tmp and /dev/shm"
    return f"a PID namespace{namespace_text}: whatever is killed, they end, and {files_text}"


def mount_private(folder_name: str) -> str:
    """Make a folder in memory for this namespace alone.

    Return its path, or empty if it is not possible.

    Only the first process of a namespace that `fork_held` made may call it. The folder goes with
    the last process in the namespace.
    """
    if os.getpid() != 1:
        return ""
    libc = _libc()
    for mount_point in filter(os.path.isdir, _MOUNT_POINTS):
        if not libc.mount(
            b"podwright", mount_point.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0700"
        ):
            folder_path = os.path.join(mount_point, folder_name)
            os.mkdir(folder_path, 0o700)
            return folder_path
    return ""


def hide_shared_memory() -> None:
    """Give this namespace a /dev/shm and System V and POSIX IPC of its own from now on.

    They are empty at first and go with the last process of the namespace. Only its first process
    may call this, as with `mount_private`. Raises OSError where it is not possible.
    """
    if os.getpid() != 1:
        raise OSError(errno.ENOTSUP, "there is no PID namespace")
    libc = _libc()
    if libc.unshare(_CLONE_NEWIPC):
        raise _errno_error(libc, "unshare")
    if libc.mount(b"podwright", b"/dev/shm", b"tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=1777"):
        raise _errno_error(libc, "mount /dev/shm")


def outside(root_pid: int, inner_pid: int) -> int:
    """Return the pid, seen from here, of the process below `root_pid` whose own pid is `inner_pid`.

    If no such process is found, `inner_pid` is returned.
    """
    from podwright.hosts._processes import descendants

    for process in descendants(root_pid):
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{process.pid}/status", encoding="ascii", errors="replace") as file:
                status_line = next(line for line in file if line.startswith("NSpid:"))
            if int(status_line.split()[-1]) == inner_pid:
                return process.pid
    return inner_pid


def name_process(process_name: str) -> None:
    """Set the name under which `ps -o comm` and `pkill` know this process; at most 15 bytes."""
    _libc().prctl(_PR_SET_NAME, process_name.encode()[:15], 0, 0, 0)


def _fork_into_cgroup(cgroup_path: str, run_child: Callable[[], int]) -> tuple[int, bool]:
    """Fork a plain child. Return its pid, and whether it is in this cgroup."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read_end)
        if cgroup_path:
            with contextlib.suppress(OSError):
                enter_group(cgroup_path)
                os.write(write_end, b"in")
        os.close(write_end)
        _run_child_and_exit(run_child)
    os.close(write_end)
    return pid, bool(_read_all(read_end))


def _fork_in_namespace(run_child: Callable[[], int]) -> tuple[int, str, str]:
    """Fork a child in a namespace. Return its pid, how it is held, and why it is not.

    If it is not held, there is no child and the pid is 0.
    """
    read_end, write_end = os.pipe()
    middle_pid = os.fork()
    if not middle_pid:
        os.close(read_end)
        _run_namespace_maker(run_child, write_end)
    os.close(write_end)
    report = _read_all(read_end)
    os.waitpid(middle_pid, 0)
    pid, hold_method, reason = 0, NOT_HELD, "the process that makes it was ended"
    for line in report.decode(errors="replace").splitlines():
        keyword, _, argument = line.partition(" ")
        if keyword == "child":
            pid = int(argument)
        elif keyword == "held":
            hold_method = argument
        elif keyword == "no":
            reason = argument
    if hold_method:
        return pid, hold_method, ""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return 0, NOT_HELD, reason


def _run_namespace_maker(run_child: Callable[[], int], write_end: int) -> None:
    """Make the namespaces and fork the one child. A new PID namespace applies to children only."""
    try:
        method = _unshare_namespaces()
        pid = os.fork()
        if not pid:
            _prepare_namespace()
            os.write(write_end, f"held {method}\n".encode())
            os.close(write_end)
            _run_child_and_exit(run_child)
        os.write(write_end, f"child {pid}\n".encode())
    except OSError as error:
        os.write(write_end, f"no {error.strerror or error}\n".encode())
    finally:
        os._exit(0)


def _run_child_and_exit(run_child: Callable[[], int]) -> None:
    code = 1
    try:
        code = run_child()
    finally:
        os._exit(code)


def _unshare_namespaces() -> str:
    uid, gid = os.geteuid(), os.getegid()
    libc = _libc()
    if not libc.unshare(_CLONE_NEWPID | _CLONE_NEWNS):
        return HELD
    if libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | _CLONE_NEWNS):
        raise _errno_error(libc, "unshare")
    for map_file, text in (
        ("uid_map", f"{uid} {uid} 1"),
        ("setgroups", "deny"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        _write_proc_file(f"/proc/self/{map_file}", text)
    return HELD_BY_USER


def _prepare_namespace() -> None:
    """Prepare the namespace. Its first process calls this before anything else."""
    pid = os.readlink("/proc/self")
    libc = _libc()
    if libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None):
        raise _errno_error(libc, "mount")
    if libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, None):
        raise _errno_error(libc, "mount")
    if os.readlink("/proc/self") != "1":
        raise OSError(errno.ENOTSUP, "its /proc is another one's")
    with contextlib.suppress(OSError):  # a kernel without checkpointing begins at 2
        _write_proc_file("/proc/sys/kernel/ns_last_pid", pid)


def _write_proc_file(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _read_all(descriptor: int) -> bytes:
    content = b""
    while chunk := os.read(descriptor, 4096):
        content += chunk
    os.close(descriptor)
    return content


def _libc() -> Any:
    import ctypes  # 5 ms, which only commands that fork pay

    return ctypes.CDLL(None, use_errno=True)


def _errno_error(libc: object, action: str) -> OSError:
    import ctypes

    number = ctypes.get_errno()
    return OSError(number, f"{action}: {os.strerror(number)}")
