"""Shows what each task of a job gets, from inside: the site's own slurmd runs a step in the twin.

The slurmd of each node of the job runs in the twin's namespaces, with the node's sockets, cores and
threads (HWLOC_SYNTHETIC), and with GPUs that are links to /dev/null. Inside the job a plain `srun`
starts a probe as every task. Slurm decides which tasks start where, CUDA_VISIBLE_DEVICES, and the
mask of CPUs to which it would bind each task. Only the node is simulated: a preloaded library
(affinity.c) answers the two calls about CPUs, because this machine has other CPUs. Without a C
compiler tasks are not bound.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import as_file, files

from podwright.slurm.twin._twin_types import Task

AFFINITY_LIBRARY = "affinity.so"
AFFINITY_VARIABLE = "PODWRIGHT_TWIN_AFFINITY"
TASK_PROBE_SCRIPT = (
    'echo "@$SLURM_PROCID $SLURM_LOCALID $SLURMD_NODENAME '
    '[${CUDA_VISIBLE_DEVICES-unset}] <$SLURM_CPU_BIND_LIST>@"'
)
_TASK = re.compile(r"@(\d+) (\d+) (\S+) \[(.*?)\] <(.*?)>@")
_WAITING_STEP_PATTERN = re.compile(
    r"step creation temporarily disabled|retrying|Job step's --?\S+ .* waiting"
)


def batch_script(output_prefix: str) -> str:
    """Return a script that writes down what the job has, runs the probe as every task of a plain
    srun, and writes the exit code last.
    """
    return (
        f"#!/bin/sh\nscontrol --oneliner --details show job $SLURM_JOB_ID > {output_prefix}.job\n"
        f"srun sh -c '{TASK_PROBE_SCRIPT}' > {output_prefix}.tasks 2>&1\n"
        f"echo $? > {output_prefix}.new\nmv {output_prefix}.new {output_prefix}.code\n"
    )


def read_tasks(probe_output: str) -> tuple[Task, ...]:
    """Return the tasks from what the probes printed, in the order of their ranks."""
    tasks = []
    for rank, local_rank, node, visible_devices, masks in _TASK.findall(probe_output):
        set_devices = None if visible_devices == "unset" else visible_devices
        tasks.append(Task(int(rank), node, set_devices, _task_cpus(masks, int(local_rank))))
    return tuple(sorted(tasks, key=lambda task: task.rank))


def is_step_waiting(srun_output: str) -> bool:
    """Return whether srun waits for a step that the job cannot hold."""
    return bool(_WAITING_STEP_PATTERN.search(srun_output))


def _task_cpus(cpu_masks: str, local_rank: int) -> tuple[int, ...]:
    """Return the CPUs of a task. cpu_masks: the masks of a node's tasks in turn, separated by
    commas.
    """
    if not cpu_masks:
        return ()
    task_masks = cpu_masks.split(",")
    cpu_mask = int(task_masks[local_rank % len(task_masks)], 16)
    return tuple(cpu for cpu in range(cpu_mask.bit_length()) if cpu_mask >> cpu & 1)


def topology(node_fields: Mapping[str, str]) -> str:
    """Return a node as a synthetic topology of hwloc."""
    values_by_key = {key.lower(): value for key, value in node_fields.items()}
    return (
        f"pack:{values_by_key.get('sockets', '1')} core:{values_by_key.get('corespersocket', '1')} "
        f"pu:{values_by_key.get('threadspercore', '1')}"
    )


def build_affinity_library() -> bytes | None:
    """Compile the preloaded library, and return it, or None where there is no C compiler."""
    import subprocess
    import tempfile
    from pathlib import Path

    with (
        tempfile.TemporaryDirectory() as build_folder,
        as_file(files(__package__).joinpath("affinity.c")) as source_path,
    ):
        library_path = Path(build_folder, AFFINITY_LIBRARY)
        argv = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library_path), str(source_path)]
        try:
            compile_result = subprocess.run(argv, capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return library_path.read_bytes() if compile_result.returncode == 0 else None
