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
_CGROUP_NOTE_FILE = "group"
#: Seconds after which an unlocked folder is certainly not one that is just being made.
_YOUNG_FOLDER_SECONDS = 5.0
#: Seconds that killed processes may take to end.
_DYING_SECONDS = 2.0
_FOLDER_OPEN_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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

    def private(self, inner_path: str, guardian_pid: int) -> RunFolder:
        """Return the run's folder in the mount namespace of its guardian, and remove the present
        ones.

        inner_path: its path there. Raises OSError if it cannot be reached.
        """
        descriptor = os.open(f"/proc/{guardian_pid}/root{inner_path}", _FOLDER_OPEN_FLAGS)
        self.remove()
        return self._replace(
            path=inner_path,
            shared_memory=inner_path,
            locks=(*self.locks, descriptor),
            reach=f"/proc/self/fd/{descriptor}",
        )

    def note_group(self, cgroup: str) -> None:
        """Write down the cgroup of the processes, for a later sweep. Raises OSError."""
        with open(os.path.join(self.path, _CGROUP_NOTE_FILE), "w", encoding="utf-8") as file:
            file.write(cgroup)

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
    name = f"{_run_folder_prefix()}{name or os.urandom(6).hex()}"
    path = os.path.join(temporary(environ), name)
    memory_folder = os.path.join(SHARED_MEMORY, name)
    descriptors = [_make_locked_folder(path)]
    try:
        descriptors.append(_make_locked_folder(memory_folder))
    except OSError:
        memory_folder = path  # without /dev/shm the programs' segments are in ordinary files
    return RunFolder(name, path, memory_folder, tuple(descriptors))


def memory_settings(folder: RunFolder) -> dict[str, str]:
    """Return variables that make MPI programs keep their shared memory in the run's folder."""
    return {
        "OMPI_MCA_btl_sm_backing_directory": folder.shared_memory,
        "OMPI_MCA_osc_sm_backing_directory": folder.shared_memory,
        "OMPI_MCA_osc_rdma_backing_directory": folder.shared_memory,
    }


def temporary(environ: Mapping[str, str]) -> str:
    """Return the folder for temporary files: $TMPDIR if it is writable, else /tmp."""
    tmpdir = environ.get("TMPDIR", "")
    return tmpdir if os.path.isabs(tmpdir) and os.access(tmpdir, os.W_OK | os.X_OK) else "/tmp"


def places(folder_name: str, environ: Mapping[str, str]) -> list[str]:
    """Return the folders that a run has, or had, on this host."""
    return [os.path.join(folder, folder_name) for folder in (temporary(environ), SHARED_MEMORY)]


def noted_cgroup(folder: str) -> str:
    """Return the cgroup that is noted in a run's folder; empty if there is none."""
    try:
        with open(os.path.join(folder, _CGROUP_NOTE_FILE), encoding="utf-8") as file:
            cgroup = file.read()
    except OSError:
        return ""
    return cgroup if os.path.basename(cgroup) == os.path.basename(folder) else ""


def run_name(given_name: str) -> str:
    """Return the name of a run of this user, for the name that `make_folder` was given."""
    return f"{_run_folder_prefix()}{given_name}"


def sweep(environ: Mapping[str, str]) -> list[str]:
    """End what is left of this user's abandoned runs, and remove their folders. Returns their
    names.
    """
    run_names = []
    for folder_path in _abandoned_folders(environ, time.time()):
        swept_run = os.path.basename(folder_path)
        if cgroup := noted_cgroup(folder_path):
            kill_group(cgroup)
        kill_all(marked(RUN_VARIABLE, swept_run), signal.SIGKILL)
        if cgroup:
            deadline = time.monotonic() + _DYING_SECONDS
            while not group_is_empty(cgroup) and time.monotonic() < deadline:
                time.sleep(0.01)
            remove_group(cgroup)
        remove_tree(folder_path)
        run_names.append(swept_run)
    return sorted(set(run_names))


def _run_folder_prefix() -> str:
    return f"podwright-run-{os.getuid()}-"


def _make_locked_folder(path: str) -> int:
    os.mkdir(path, 0o700)
    descriptor = os.open(path, _FOLDER_OPEN_FLAGS)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _abandoned_folders(environ: Mapping[str, str], now: float) -> Iterator[str]:
    for folder in {temporary(environ), "/tmp", SHARED_MEMORY}:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                if name.startswith(_run_folder_prefix()) and _is_abandoned(path, now):
                    yield path


def _is_abandoned(path: str, now: float) -> bool:
    try:
        descriptor = os.open(path, _FOLDER_OPEN_FLAGS)
    except OSError:
        return False
    try:
        stat = os.fstat(descriptor)
        if stat.st_uid != os.getuid() or now - stat.st_mtime < _YOUNG_FOLDER_SECONDS:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove_tree(path: str) -> None:
    """Remove a folder and its content. Files that do not exist, or are not ours, are skipped."""
    with contextlib.suppress(OSError):
        for entry_name in os.listdir(path):
            entry_path = os.path.join(path, entry_name)
            if os.path.isdir(entry_path) and not os.path.islink(entry_path):
                remove_tree(entry_path)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry_path)
        os.rmdir(path)
