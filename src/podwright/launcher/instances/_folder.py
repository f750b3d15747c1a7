"""The private folders of a run, and the removal of those that abandoned runs left.

A run keeps its scripts and mpirun's files in one folder in the place for temporary files. Its
streams and the programs' shared memory are in one folder under /dev/shm. poprun and its guardian
both lock the folders as long as they live. A folder without a lock belongs to nobody, whatever
process numbers in another container suggest, and the next poprun of the same user removes it.

If the guardian has a mount namespace of its own, everything is in one folder in memory that is
mounted only there. That folder is gone with the last process of the run, whoever was killed. poprun
and the relay, which are outside of the namespace, reach it through a descriptor.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from podwright.hosts import group_is_empty, kill_all, kill_group, marked, remove_group

#: In the environment of every process of a run: the run to which it belongs.
RUN_VARIABLE = "PODWRIGHT_RUN"
SHARED_MEMORY = "/dev/shm"
#: The file that names the cgroup of a run.
_GROUP = "group"
#: Seconds after which an unlocked folder is certainly not one that is just being made.
_YOUNG = 5.0
#: Seconds that killed processes may take to end.
_DYING = 2.0
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


#: The variable for the folder of mpirun and its daemons.
SESSION = "PRTE_MCA_prte_tmpdir_base"


class RunFolder(NamedTuple):
    """The folders of one run. name: also the value of RUN_VARIABLE. locks: open files.

    reach: the path by which this process reaches the instances' `path`, if it is another one.
    group: the cgroup of the run's processes, if there is one (podwright.hosts.make_group).
    """

    name: str
    path: str
    shared_memory: str
    locks: tuple[int, ...]
    reach: str = ""
    group: str = ""

    def file(self, name: str) -> str:
        """Return the path of a file of this run, for its instances."""
        return os.path.join(self.path, name)

    def stream(self, name: str) -> str:
        """Return the path of a pipe of this run. It is in memory: a disk would take a millisecond
        for each.
        """
        return os.path.join(self.shared_memory, name)

    def local_path(self, path: str) -> str:
        """Return the path of a file or pipe of this run, for this process."""
        return self.reach + path.removeprefix(self.path) if self.reach else path

    def private(self, inside: str, guardian: int) -> RunFolder:
        """Return the run's folder in the mount namespace of its guardian, and remove the present
        ones.

        inside: its path there. Raises OSError if it cannot be reached.
        """
        handle = os.open(f"/proc/{guardian}/root{inside}", _FLAGS)
        self.remove()
        return self._replace(
            path=inside,
            shared_memory=inside,
            locks=(*self.locks, handle),
            reach=f"/proc/self/fd/{handle}",
        )

    def note_group(self, group: str) -> None:
        """Write down the cgroup of the processes, for a later sweep. Raises OSError."""
        with open(os.path.join(self.path, _GROUP), "w", encoding="utf-8") as file:
            file.write(group)

    def remove(self) -> None:
        """Remove both folders with their content. It may be repeated. The locks stay open.

        The cgroup is removed too, if nothing is left in it.
        """
        if self.group:
            remove_group(self.group)
        for folder in {self.path, self.shared_memory}:
            remove_tree(self.local_path(folder))


def make_folder(environ: Mapping[str, str], name: str = "") -> RunFolder:
    """Make a new private pair of folders. Raises OSError when that is impossible.

    name: the end of the name, behind the prefix of this user's runs; by default a random one.
    """
    name = f"{_prefix()}{name or os.urandom(6).hex()}"
    path = os.path.join(temporary(environ), name)
    memory = os.path.join(SHARED_MEMORY, name)
    locks = [_make(path)]
    try:
        locks.append(_make(memory))
    except OSError:
        memory = path  # without /dev/shm the programs' segments are in ordinary files
    return RunFolder(name, path, memory, tuple(locks))


def memory_settings(folder: RunFolder) -> dict[str, str]:
    """Return variables that make MPI programs keep their shared memory in the run's folder."""
    return {
        "OMPI_MCA_btl_sm_backing_directory": folder.shared_memory,
        "OMPI_MCA_osc_sm_backing_directory": folder.shared_memory,
        "OMPI_MCA_osc_rdma_backing_directory": folder.shared_memory,
    }


def temporary(environ: Mapping[str, str]) -> str:
    """Return the folder for temporary files: $TMPDIR if it is writable, else /tmp."""
    wanted = environ.get("TMPDIR", "")
    return wanted if os.path.isabs(wanted) and os.access(wanted, os.W_OK | os.X_OK) else "/tmp"


def places(name: str, environ: Mapping[str, str]) -> list[str]:
    """Return the folders that a run has, or had, on this host."""
    return [os.path.join(base, name) for base in (temporary(environ), SHARED_MEMORY)]


def group_in(folder: str) -> str:
    """Return the cgroup that is noted in a run's folder; empty if there is none."""
    try:
        with open(os.path.join(folder, _GROUP), encoding="utf-8") as file:
            group = file.read()
    except OSError:
        return ""
    return group if os.path.basename(group) == os.path.basename(folder) else ""


def run_name(own: str) -> str:
    """Return the name of a run of this user, for the name that `make_folder` was given."""
    return f"{_prefix()}{own}"


def sweep(environ: Mapping[str, str]) -> list[str]:
    """End what is left of this user's abandoned runs, and remove their folders. Returns their
    names.
    """
    names = []
    for path in _unlocked(environ, time.time()):
        name = os.path.basename(path)
        if group := group_in(path):
            kill_group(group)
        kill_all(marked(RUN_VARIABLE, name), signal.SIGKILL)
        if group:
            until = time.monotonic() + _DYING
            while not group_is_empty(group) and time.monotonic() < until:
                time.sleep(0.01)
            remove_group(group)
        remove_tree(path)
        names.append(name)
    return sorted(set(names))


def _prefix() -> str:
    return f"podwright-run-{os.getuid()}-"


def _make(path: str) -> int:
    os.mkdir(path, 0o700)
    handle = os.open(path, _FLAGS)
    fcntl.flock(handle, fcntl.LOCK_SH)
    return handle


def _unlocked(environ: Mapping[str, str], now: float) -> Iterator[str]:
    for base in {temporary(environ), "/tmp", SHARED_MEMORY}:
        with contextlib.suppress(OSError):
            for name in os.listdir(base):
                path = os.path.join(base, name)
                if name.startswith(_prefix()) and _abandoned(path, now):
                    yield path


def _abandoned(path: str, now: float) -> bool:
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        if status.st_uid != os.getuid() or now - status.st_mtime < _YOUNG:
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def remove_tree(path: str) -> None:
    """Remove a folder and its content. Files that do not exist, or are not ours, are skipped."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            below = os.path.join(path, name)
            if os.path.isdir(below) and not os.path.islink(below):
                remove_tree(below)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(below)
        os.rmdir(path)
