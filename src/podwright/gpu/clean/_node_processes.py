"""Reads the processes of this node, and ends some of them, each by a pidfd.

A pid may be given to another process at any moment. So a process is ended only if its pidfd was
taken first, and its identity, read after that, is the one that was judged.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import stat
import time
from collections.abc import Iterable, Mapping

from podwright.gpu.clean._leftovers import GpuState, Here, NodeProcess

#: A job's cgroup: v1 "/slurm/uid_7/job_12/step_0", v2 "/system.slice/slurmstepd.scope/job_12".
#: Where several slurmd share a machine, the name has the node's: "slurm_n1", "n1_slurmstepd.scope".
_JOB_GROUP = re.compile(
    r"/(?:slurm(?:_(?P<v1>[^/]+))?/uid_\d+|(?:(?P<v2>[^/]+)_)?slurmstepd\.scope)/job_(?P<job>\d+)(?=/|$)"
)
#: Seconds between SIGTERM and SIGKILL, and until a killed process must be gone.
TERM_SECONDS, KILL_SECONDS = 5.0, 5.0


def read_processes(here: Here, gpus: Iterable[GpuState]) -> list[NodeProcess]:
    """The processes that hold a GPU or name a job."""
    gpus = list(gpus)
    index_by_file = {file: gpu.index for gpu in gpus for file in gpu.files}
    index_by_device = _device_numbers(index_by_file)
    library_gpus: dict[int, set[int]] = {}
    for gpu in gpus:
        for pid in gpu.pids:
            library_gpus.setdefault(pid, set()).add(gpu.index)
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        pid = int(entry)
        held = library_gpus.get(pid, set()) | _open_gpus(pid, index_by_file, index_by_device)
        process = read_process(pid, here, tuple(sorted(held)))
        if process is not None and (process.gpus or process.named_jobs):
            found.append(process)
    return found


def read_process(pid: int, here: Here, gpus: tuple[int, ...] = ()) -> NodeProcess | None:
    """A process with its identity; None if it is gone. gpus: those that it holds."""
    folder = f"/proc/{pid}"
    try:
        with open(f"{folder}/stat", "rb", buffering=0) as file:
            # The name is in brackets and may contain anything, also brackets and blanks.
            head, _, tail = file.read().rpartition(b")")
        fields = tail.split()
        if fields[0] in b"ZX":
            return None
        uid, start = os.stat(folder).st_uid, int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
    command = head.partition(b"(")[2].decode(errors="replace")
    try:
        groups = _read(f"{folder}/cgroup").decode(errors="replace")
        environ = dict(
            entry.split(b"=", 1)
            for entry in _read(f"{folder}/environ").split(b"\0")
            if b"=" in entry
        )
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return NodeProcess(pid, start, uid, _user_name(uid), command, gpus, readable=False)
    group_jobs, nodes = read_groups(groups)
    nodes.append(environ.get(b"SLURMD_NODENAME", b"").decode(errors="replace"))
    other_place = next((f"node {name}" for name in nodes if name not in ("", here.node)), "")
    cluster = environ.get(b"SLURM_CLUSTER_NAME", b"").decode(errors="replace")
    if cluster and here.cluster and cluster != here.cluster:
        other_place = f"cluster {cluster}"
    return NodeProcess(
        pid,
        start,
        uid,
        _user_name(uid),
        command,
        gpus,
        group_jobs,
        _number(environ.get(b"SLURM_JOB_ID")),
        _number(environ.get(b"SLURM_JOB_UID")),
        other_place,
    )


def read_groups(groups: str) -> tuple[tuple[int, ...], list[str]]:
    """The jobs, and the nodes, that the text of /proc/PID/cgroup names."""
    matches = [match for line in groups.splitlines() if (match := _JOB_GROUP.search(line))]
    jobs = tuple(dict.fromkeys(int(match["job"]) for match in matches))
    return jobs, [name for match in matches if (name := match["v1"] or match["v2"])]


def end(victims: Iterable[NodeProcess], here: Here) -> None:
    """End these processes: SIGTERM, then SIGKILL. What became another process is left alone."""
    pidfds: dict[int, int] = {}
    try:
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                pidfds[victim.pid] = os.pidfd_open(victim.pid)
                again = read_process(victim.pid, here, victim.gpus)
                if again != victim:
                    os.close(pidfds.pop(victim.pid))
        living = set(pidfds.values())
        # A stopped process handles no SIGTERM before it goes on.
        for sent, seconds in (
            ((signal.SIGTERM, signal.SIGCONT), TERM_SECONDS),
            ((signal.SIGKILL,), KILL_SECONDS),
        ):
            for pidfd in living:
                for number in sent:
                    with contextlib.suppress(ProcessLookupError):
                        signal.pidfd_send_signal(pidfd, number)
            living = _living_after(living, seconds)
    finally:
        for pidfd in pidfds.values():
            os.close(pidfd)


def _living_after(pidfds: set[int], seconds: float) -> set[int]:
    """Wait until all of these processes have ended; return those that live on after so long."""
    living, deadline = set(pidfds), time.monotonic() + seconds
    poller = select.poll()
    for pidfd in living:
        poller.register(pidfd, select.POLLIN)
    while living and (left := deadline - time.monotonic()) > 0:
        for pidfd, _ in poller.poll(left * 1000):
            poller.unregister(pidfd)
            living.discard(pidfd)
    return living


def _device_numbers(index_by_file: Mapping[str, int]) -> dict[int, int]:
    """The GPU of each device number: a container has files of its own for the same device."""
    found = {}
    for file, index in index_by_file.items():
        with contextlib.suppress(OSError):
            status = os.stat(file)
            if stat.S_ISCHR(status.st_mode):
                found[status.st_rdev] = index
    return found


def _open_gpus(
    pid: int, index_by_file: Mapping[str, int], index_by_device: Mapping[int, int]
) -> set[int]:
    found: set[int] = set()
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for descriptor in descriptors:
        place = f"/proc/{pid}/fd/{descriptor}"
        with contextlib.suppress(OSError):
            target = os.readlink(place)
            if target in index_by_file:
                found.add(index_by_file[target])
            elif target.startswith("/dev/"):  # a file elsewhere may be on a server that hangs
                index = index_by_device.get(os.stat(place).st_rdev)
                found |= set() if index is None else {index}
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()


def _number(text: bytes | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
