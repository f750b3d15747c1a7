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
SAMPLES_FOLDER_VARIABLE = "PODWRIGHT_SAMPLES"
_MAX_FILE_BYTES = 512 << 20  # bytes of a file: a year of eight GPUs


def folder_of(environ: Mapping[str, str]) -> Path:
    """The folder for samples of the job in which this process runs."""
    folder = environ.get(SAMPLES_FOLDER_VARIABLE)
    job_id = environ.get("SLURM_JOB_ID", "0")
    return Path(folder) if folder else Path(os.getcwd()) / f"slurm-{job_id}.gpus"


def gpus_of_job(node_gpus: Sequence[Gpu], environ: Mapping[str, str]) -> tuple[Gpu, ...]:
    """The GPUs of the job on this node: those that Slurm's variables number, else those that are
    visible."""
    index_list = environ.get("SLURM_JOB_GPUS") or environ.get("SLURM_STEP_GPUS") or ""
    indices = {int(text) for text in index_list.split(",") if text.isdigit()}
    visible_gpus = visible({}, node_gpus)
    job_gpus = tuple(gpu for gpu in visible_gpus if gpu.index in indices)
    if indices and len(job_gpus) == len(indices):
        return job_gpus
    return visible(environ, node_gpus)


def run(
    environ: Mapping[str, str], interval: float, step_pid: int, until_pid: int | None = None
) -> int:
    """Sample until the step ends, every `interval` seconds.

    step_pid: a process of the step. It is needed because a process that was detached from its
    parents is no longer found below slurmstepd. until_pid: a process whose end stops the sampler in
    place of the step's end.

    Returns an exit code that nobody reads. A failure here never affects the job.
    """
    node = environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
    step = environ.get("SLURM_STEP_ID", "batch")
    watched_pidfd = _open_pidfd(until_pid or _step_process(step_pid))
    hardware = take_gpus(environ)
    gpus = gpus_of_job(hardware.gpus, environ)
    samples_fd = (
        _open_samples_file(folder_of(environ), f"{node}-{step}-{os.getpid()}.jsonl")
        if gpus
        else None
    )
    if samples_fd is None or watched_pidfd is None:
        return 0
    # A step lists its ranks even where the sampler of another step samples its GPUs.
    gpu_rows = [[gpu.index, gpu.uuid, gpu.name, gpu.memory >> 20] for gpu in gpus]
    _write_json_line(
        samples_fd, {"node": node, "gpus": gpu_rows, "ranks": _step_ranks(environ, step)}
    )
    lock_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock_socket.bind(f"\0podwright-samples-{os.getuid()}-{environ.get('SLURM_JOB_ID')}-{node}")
    except OSError:
        lock_socket.close()
        return 0
    sample_gpus = _gpu_sampler(gpus, hardware.libraries)
    next_sample = time.monotonic()
    while True:
        _write_json_line(
            samples_fd, {"t": round(time.time(), 2), "every": interval, "gpus": sample_gpus()}
        )
        next_sample += interval
        ended_pidfds, _, _ = select.select(
            [watched_pidfd], [], [], max(next_sample - time.monotonic(), 0)
        )
        if ended_pidfds or os.fstat(samples_fd).st_size > _MAX_FILE_BYTES:
            return 0


def _open_samples_file(samples_folder: Path, file_name: str) -> int | None:
    """Open a file for appending; None if that is impossible."""
    try:
        samples_folder.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        return os.open(samples_folder / file_name, flags, 0o644)
    except OSError:
        return None


def _gpu_sampler(gpus: Sequence[Gpu], libraries: Sequence[Library]) -> Callable[[], list[Any]]:
    """Return a function that asks all GPUs: [index, load, MiB, [[step, rank], …]] of each."""
    gpu_sources: list[tuple[Gpu, Library, int]] = []
    library_by_vendor = {library.vendor: library for library in libraries}
    library_gpus = {
        vendor: list(library_by_vendor[vendor].gpus()) for vendor in {gpu.vendor for gpu in gpus}
    }
    for gpu in gpus:
        bus_ids = [library_gpu.bus for library_gpu in library_gpus[gpu.vendor]]
        gpu_sources.append((gpu, library_by_vendor[gpu.vendor], bus_ids.index(gpu.bus)))
    rank_by_pid: dict[int, list[Any]] = {}

    def ask() -> list[Any]:
        gpu_samples = []
        live_pids: set[int] = set()
        for gpu, library, library_index in gpu_sources:
            try:
                sample = library.sample(library_index)
                pids = [process.pid for process in library.holders(library_index)]
            except LibraryError:
                continue
            live_pids |= set(pids)
            for pid in pids:
                if pid not in rank_by_pid:
                    rank_by_pid[pid] = _process_rank(pid)
            holder_ranks = [rank_by_pid[pid] for pid in pids if rank_by_pid[pid]]
            used_mib = None if sample.memory is None else sample.memory >> 20
            gpu_samples.append([gpu.index, sample.load, used_mib, holder_ranks])
        for pid in set(rank_by_pid) - live_pids:
            del rank_by_pid[pid]
        return gpu_samples

    return ask


def _process_rank(pid: int) -> list[Any]:
    """Return [step, rank] of a process; empty if it is not the job's, or belongs to no step."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = dict(
                assignment.split(b"=", 1)
                for assignment in file.read(1 << 17).split(b"\0")
                if b"=" in assignment
            )
    except OSError:
        return []
    rank = variables.get(b"SLURM_PROCID", b"")
    step = variables.get(b"SLURM_STEP_ID", b"batch").decode(errors="replace")
    return [step, int(rank)] if rank.isdigit() else []


def _step_ranks(environ: Mapping[str, str], step: str) -> list[Any]:
    """Return [step, first rank, count] of this step on this node."""
    step_id = environ.get("SLURM_STEP_ID")
    first_rank = environ.get("SLURM_PROCID", "")
    tasks_per_node = environ.get("SLURM_STEP_TASKS_PER_NODE", "")
    node_text = environ.get("SLURM_NODEID", "0")
    if not step_id or not first_rank.isdigit() or not node_text.isdigit():
        return ["", 0, 0]
    task_counts: list[int] = []
    for count_text in tasks_per_node.split(","):  # 4(x2),3
        task_count, _, repeats = count_text.rstrip(")").partition("(x")
        task_counts += [int(task_count or 0)] * int(repeats or 1)
    index = int(node_text)
    return [step, int(first_rank), task_counts[index] if index < len(task_counts) else 0]


def _step_process(start_pid: int) -> int | None:
    """Return the slurmstepd above a process, the highest one; None outside a step."""
    pid, slurmstepd_pid = start_pid, None
    while pid > 1:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                name, _, fields = file.read().partition("(")[2].rpartition(")")
        except OSError:
            break
        if name.startswith("slurmstepd"):
            slurmstepd_pid = pid
        pid = int(fields.split()[1])
    return slurmstepd_pid


def _open_pidfd(pid: int | None) -> int | None:
    try:
        return None if pid is None else os.pidfd_open(pid)
    except OSError:
        return None


def _write_json_line(descriptor: int, json_object: Mapping[str, Any]) -> None:
    """Write one whole line in one call."""
    os.write(descriptor, json.dumps(json_object, separators=(",", ":")).encode() + b"\n")


def run_beside(environ: Mapping[str, str], interval: float, command: list[str]) -> NoReturn:
    """Become a command, and sample in a child of it. Only the first task of a node samples.

    Raises InvalidRequest for a command that cannot be run.
    """
    own_pid = os.getpid()
    if environ.get("SLURM_LOCALID", "0") == "0" and os.fork() == 0:
        null_fd = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null_fd, descriptor)
        os._exit(run(environ, interval, own_pid, own_pid))
    try:
        os.execvp(command[0], command)
    except OSError as error:
        from podwright.errors import InvalidRequest

        raise InvalidRequest(str(error.strerror), operation=f"run {command[0]}") from None
