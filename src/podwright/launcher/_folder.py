"""The one private place of a run, and what is left of runs that nobody could clean up after.

A run keeps its scripts and mpirun's files in one folder in the place for temporary files, and its
streams and the programs' shared memory in one folder under /dev/shm. Both are locked by poprun and
by its guardian as long as either lives; a folder that is not locked belongs to nobody, whatever
the process numbers in another container say, and the next poprun of the same user sweeps it away.

Where the guardian has a mount namespace of its own, all of it is in one folder in memory that is
mounted there alone: it is gone with the last process of the run, whoever was killed. poprun and
the relay, which are outside, reach it through a descriptor.
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

#: In the environment of every process of a run: which run it belongs to.
RUN_VARIABLE = "PODWRIGHT_RUN"
SHARED_MEMORY = "/dev/shm"
#: The file that names the cgroup of a run.
_GROUP = "group"
#: Seconds after which an unlocked folder cannot be one that is just being made.
_YOUNG = 5.0
#: Seconds that what was killed may take.
_DYING = 2.0
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


#: Where mpirun and its daemons keep their files.
SESSION = "PRTE_MCA_prte_tmpdir_base"


class RunFolder(NamedTuple):
    """The folders of one run. name: also the value of RUN_VARIABLE. locks: open files.

    reach: where this process finds what the instances find at `path`, if that is elsewhere.
    group: the cgroup of its processes, where there is one (podwright.hosts.make_group).
    """

    name: str
    path: str
    shared_memory: str
    locks: tuple[int, ...]
    reach: str = ""
    group: str = ""

    def file(self, name: str) -> str:
        """The path of a file of this run, for its instances."""
        return os.path.join(self.path, name)

    def stream(self, name: str) -> str:
        """The path of a pipe of this run: in memory, where a disk would take a millisecond each."""
        return os.path.join(self.shared_memory, name)

    def here(self, path: str) -> str:
        """The path of a file or pipe of this run, for this process."""
        return self.reach + path.removeprefix(self.path) if self.reach else path

    def private(self, inside: str, guardian: int) -> RunFolder:
        """The same run's folder in the mount namespace of its guardian; these ones are removed.

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
        """Write down the cgroup of the processes, for whoever sweeps. Raises OSError."""
        with open(os.path.join(self.path, _GROUP), "w", encoding="utf-8") as file:
            file.write(group)

    def remove(self) -> None:
        """Remove both folders with all they hold; again is no error. The locks stay open.

        The cgroup goes too, if nothing is left in it.
        """
        if self.group:
            remove_group(self.group)
        for folder in {self.path, self.shared_memory}:
            remove_tree(self.here(folder))


def make_folder(environ: Mapping[str, str], name: str = "") -> RunFolder:
    """A new pair of folders, for this user alone. Raises OSError where there is no room.

    name: what follows the part that all runs of this user have; by default nobody else has it.
    """
    name = f"{_prefix()}{name or os.urandom(6).hex()}"
    path = os.path.join(temporary(environ), name)
    memory = os.path.join(SHARED_MEMORY, name)
    locks = [_make(path)]
    try:
        locks.append(_make(memory))
    except OSError:
        memory = path  # no /dev/shm here: the programs' segments then lie in ordinary files
    return RunFolder(name, path, memory, tuple(locks))


def memory_settings(folder: RunFolder) -> dict[str, str]:
    """Variables that make MPI programs keep their shared memory in the run's folder."""
    return {
        "OMPI_MCA_btl_sm_backing_directory": folder.shared_memory,
        "OMPI_MCA_osc_sm_backing_directory": folder.shared_memory,
        "OMPI_MCA_osc_rdma_backing_directory": folder.shared_memory,
    }


def temporary(environ: Mapping[str, str]) -> str:
    """Where temporary files go: $TMPDIR if it is a folder that one can write to, else /tmp."""
    wanted = environ.get("TMPDIR", "")
    return wanted if os.path.isabs(wanted) and os.access(wanted, os.W_OK | os.X_OK) else "/tmp"


def places(name: str, environ: Mapping[str, str]) -> list[str]:
    """The folders that a run has, or had, on this host."""
    return [os.path.join(base, name) for base in (temporary(environ), SHARED_MEMORY)]


def group_in(folder: str) -> str:
    """The cgroup that is noted in a run's folder; nothing where there is none."""
    try:
        with open(os.path.join(folder, _GROUP), encoding="utf-8") as file:
            group = file.read()
    except OSError:
        return ""
    return group if os.path.basename(group) == os.path.basename(folder) else ""


def run_name(own: str) -> str:
    """The name of a run of this user's, by the part that `make_folder` is given."""
    return f"{_prefix()}{own}"


def sweep(environ: Mapping[str, str]) -> list[str]:
    """End what is left of this user's abandoned runs and remove their folders; their names."""
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
        found = os.fstat(handle)
        if found.st_uid != os.getuid() or now - found.st_mtime < _YOUNG:
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def remove_tree(path: str) -> None:
    """Remove a folder and all in it; what is not there, or not ours, is passed over."""
    with contextlib.suppress(OSError):
        for name in os.listdir(path):
            below = os.path.join(path, name)
            if os.path.isdir(below) and not os.path.islink(below):
                remove_tree(below)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(below)
        os.rmdir(path)
