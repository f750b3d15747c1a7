"""The sampler that each job step starts on each node. It appends a sample of the GPUs to a file
beside the job's output every few seconds, and ends with the step.

It imports little and keeps the vendor's library open, so that a sample costs a few calls of that
library. Several steps of a job may start a sampler on one node, and only the first one works. An
abstract socket is the lock: the kernel frees it when its holder ends, however it ended.
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from podwright.hosts.gpus import Gpu, Library, LibraryError, take_gpus, visible

#: The variable that names the folder for samples. The task prolog sets it for the whole job.
FOLDER = "PODWRIGHT_SAMPLES"
_LONGEST = 512 << 20  # bytes of a file: a year of eight GPUs


def folder_of(environ: Mapping[str, str]) -> Path:
    """The folder for samples of the job in which this process runs."""
    folder = environ.get(FOLDER)
    job = environ.get("SLURM_JOB_ID", "0")
    return Path(folder) if folder else Path(os.getcwd()) / f"slurm-{job}.gpus"


def gpus_of_job(gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs of the job on this node: those that Slurm's variables number, else those that are
    visible."""
    text = environ.get("SLURM_JOB_GPUS") or environ.get("SLURM_STEP_GPUS") or ""
    numbers = {int(word) for word in text.split(",") if word.isdigit()}
    seen = visible({}, gpus)
    named = tuple(gpu for gpu in seen if gpu.index in numbers)
    if numbers and len(named) == len(numbers):
        return named
    return visible(environ, gpus)


def run(environ: Mapping[str, str], interval: float, below: int, until: int | None = None) -> int:
    """Sample until the step ends, every `interval` seconds.

    below: a process of the step. It is needed because a process that was detached from its parents
    is no longer found below slurmstepd. until: a process whose end stops the sampler in place of
    the step's end.

    Returns an exit code that nobody reads. A failure here never affects the job.
    """
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    step = environ.get("SLURM_STEP_ID", "batch")
    watched = _pidfd(until or _step_process(below))
    hardware = take_gpus(environ)
    gpus = gpus_of_job(hardware.gpus, environ)
    number = _file(folder_of(environ), f"{node}-{step}-{os.getpid()}.jsonl") if gpus else None
    if number is None or watched is None:
        return 0
    # A step lists its ranks even where the sampler of another step samples its GPUs.
    head = [[gpu.index, gpu.uuid, gpu.name, gpu.memory >> 20] for gpu in gpus]
    _write(number, {"node": node, "gpus": head, "ranks": _ranks(environ, step)})
    own = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        own.bind(f"\0podwright-samples-{os.getuid()}-{environ.get('SLURM_JOB_ID')}-{node}")
    except OSError:
        own.close()
        return 0
    ask = _asker(gpus, hardware.libraries)
    due = time.monotonic()
    while True:
        _write(number, {"t": round(time.time(), 2), "every": interval, "gpus": ask()})
        due += interval
        ready, _, _ = select.select([watched], [], [], max(due - time.monotonic(), 0))
        if ready or os.fstat(number).st_size > _LONGEST:
            return 0


def _file(folder: Path, name: str) -> int | None:
    """Open a file for appending; None if that is impossible."""
    try:
        folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(folder / name, flags, 0o644)
    except OSError:
        return None


def _asker(gpus: Sequence[Gpu], libraries: Sequence[Library]) -> Callable[[], list[Any]]:
    """Return a function that asks all GPUs: [index, load, MiB, [[step, rank], …]] of each."""
    sources: list[tuple[Gpu, Library, int]] = []
    by_vendor = {library.vendor: library for library in libraries}
    library_gpus = {
        vendor: list(by_vendor[vendor].gpus()) for vendor in {gpu.vendor for gpu in gpus}
    }
    for gpu in gpus:
        order = [library_gpu.bus for library_gpu in library_gpus[gpu.vendor]]
        sources.append((gpu, by_vendor[gpu.vendor], order.index(gpu.bus)))
    ranks: dict[int, list[Any]] = {}

    def ask() -> list[Any]:
        out = []
        alive: set[int] = set()
        for gpu, library, index in sources:
            try:
                sample = library.sample(index)
                pids = [holder.pid for holder in library.holders(index)]
            except LibraryError:
                continue
            alive |= set(pids)
            for pid in pids:
                if pid not in ranks:
                    ranks[pid] = _rank(pid)
            holders = [ranks[pid] for pid in pids if ranks[pid]]
            out.append([gpu.index, sample.load or 0, (sample.memory or 0) >> 20, holders])
        for pid in set(ranks) - alive:
            del ranks[pid]
        return out

    return ask


def _rank(pid: int) -> list[Any]:
    """Return [step, rank] of a process; empty if it is not the job's, or belongs to no step."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = dict(
                pair.split(b"=", 1) for pair in file.read(1 << 17).split(b"\0") if b"=" in pair
            )
    except OSError:
        return []
    rank = pairs.get(b"SLURM_PROCID", b"")
    step = pairs.get(b"SLURM_STEP_ID", b"batch").decode(errors="replace")
    return [step, int(rank)] if rank.isdigit() else []


def _ranks(environ: Mapping[str, str], step: str) -> list[Any]:
    """Return [step, first rank, count] of this step on this node."""
    step_id = environ.get("SLURM_STEP_ID")
    first = environ.get("SLURM_PROCID", "")
    tasks = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    node = environ.get("SLURM_NODEID", "0")
    if not step_id or not first.isdigit() or not node.isdigit():
        return ["", 0, 0]
    counts: list[int] = []
    for word in tasks.split(","):  # 4(x2),3
        count, _, times = word.rstrip(")").partition("(x")
        counts += [int(count or 0)] * int(times or 1)
    node_index = int(node)
    return [step, int(first), counts[node_index] if node_index < len(counts) else 0]


def _step_process(below: int) -> int | None:
    """Return the slurmstepd above a process, the highest one; None outside a step."""
    pid, highest = below, None
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            break
        if name.startswith("slurmstepd"):
            highest = pid
        pid = int(rest.split()[1])
    return highest


def _pidfd(pid: int | None) -> int | None:
    try:
        return None if pid is None else os.pidfd_open(pid)
    except OSError:
        return None


def _write(number: int, value: Mapping[str, Any]) -> None:
    """Write one whole line in one call."""
    os.write(number, json.dumps(value, separators=(",", ":")).encode() + b"\n")


def run_beside(environ: Mapping[str, str], interval: float, command: list[str]) -> NoReturn:
    """Become a command, and sample in a child of it. Only the first task of a node samples.

    Raises InvalidRequest for a command that cannot be run.
    """
    own = os.getpid()
    if environ.get("SLURM_LOCALID", "0") == "0" and os.fork() == 0:
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os._exit(run(environ, interval, own, own))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        from podwright.errors import InvalidRequest

        raise InvalidRequest(str(error.strerror), operation=f"run {command[0]}") from None
