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

from podwright.slurm.twin._values import TaskOutcome

LIBRARY = "affinity.so"
AFFINITY = "PODWRIGHT_TWIN_AFFINITY"
PROBE = (
    'echo "@$SLURM_PROCID $SLURM_LOCALID $SLURMD_NODENAME '
    '[${CUDA_VISIBLE_DEVICES-unset}] <$SLURM_CPU_BIND_LIST>@"'
)
_TASK = re.compile(r"@(\d+) (\d+) (\S+) \[(.*?)\] <(.*?)>@")
_HANGS = re.compile(r"step creation temporarily disabled|retrying|Job step's --?\S+ .* waiting")


def batch_script(output: str) -> str:
    """Return a script that writes down what the job has, runs the probe as every task of a plain
    srun, and writes the exit code last.
    """
    return (
        f"#!/bin/sh\nscontrol --oneliner --details show job $SLURM_JOB_ID > {output}.job\n"
        f"srun sh -c '{PROBE}' > {output}.tasks 2>&1\n"
        f"echo $? > {output}.new\nmv {output}.new {output}.code\n"
    )


def read_tasks(text: str) -> tuple[TaskOutcome, ...]:
    """Return the tasks from what the probes printed, in the order of their ranks."""
    tasks = []
    for rank, local, node, variable, masks in _TASK.findall(text):
        seen = None if variable == "unset" else variable
        tasks.append(TaskOutcome(int(rank), node, seen, _cpus(masks, int(local))))
    return tuple(sorted(tasks, key=lambda task: task.rank))


def step_waits(text: str) -> bool:
    """Return whether srun waits for a step that the job cannot hold."""
    return bool(_HANGS.search(text))


def _cpus(masks: str, local: int) -> tuple[int, ...]:
    """Return the CPUs of a task. masks: the masks of a node's tasks in turn, separated by
    commas.
    """
    if not masks:
        return ()
    each = masks.split(",")
    mask = int(each[local % len(each)], 16)
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def topology(fields: Mapping[str, str]) -> str:
    """Return a node as a synthetic topology of hwloc."""
    keys = {key.lower(): value for key, value in fields.items()}
    return (
        f"pack:{keys.get('sockets', '1')} core:{keys.get('corespersocket', '1')} "
        f"pu:{keys.get('threadspercore', '1')}"
    )


def build_library() -> bytes | None:
    """Compile the preloaded library, and return it, or None where there is no C compiler."""
    import subprocess
    import tempfile
    from pathlib import Path

    with (
        tempfile.TemporaryDirectory() as folder,
        as_file(files(__package__).joinpath("affinity.c")) as source,
    ):
        library = Path(folder, LIBRARY)
        argv = ["cc", "-O2", "-fPIC", "-shared", "-o", str(library), str(source)]
        try:
            done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return library.read_bytes() if done.returncode == 0 else None
