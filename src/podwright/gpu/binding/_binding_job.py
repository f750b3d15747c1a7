"""Runs a Slurm job in which every task reports the GPUs and cores that it was given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from podwright.errors import Unavailable
from podwright.gpu.binding._verdict import ProbedTask, read_tasks
from podwright.gpu.requests import find_option, known, parse_options

_PROBE = (sys.executable, "-P", "-m", "podwright.gpu.binding._task_probe")


def job_options(sbatch_arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split sbatch options into those that salloc takes and those that it lacks.

    Returns (accepted, left out), each as words of a command line. salloc lacks, for example,
    options that name files. Raises InvalidRequest for an option that sbatch does not know.
    """
    sbatch_options, _ = parse_options(list(sbatch_arguments), "sbatch")
    salloc_names = known("salloc")
    accepted, left_out = [], []
    for option in sbatch_options:
        if option.name not in salloc_names:
            left_out.append(f"--{option.name}")
        elif find_option(option.name, "salloc").argument == "n" or not option.value:
            accepted.append(f"--{option.name}")
        else:
            accepted.append(f"--{option.name}={option.value}")
    return accepted, left_out


def probe(salloc_options: Sequence[str], command_prefix: Sequence[str] = ()) -> list[ProbedTask]:
    """Run a job with these salloc options and return its tasks. Raises Unavailable.

    The call blocks until the job has ended, as salloc does. Slurm's own messages go to standard
    error. The job writes no files, so the nodes need to share no folder except the one in which
    Podwright is installed.
    """
    argv = [*command_prefix, "salloc", *salloc_options, "srun", *_PROBE]
    try:
        completed_process = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise Unavailable(
            f"{argv[0]}: {error.strerror}",
            operation="run a job",
            would_work="install Slurm's client",
        ) from None
    tasks = read_tasks(completed_process.stdout)
    if not tasks:
        raise Unavailable(
            "no task of the job answered; Slurm's messages are printed above",
            operation="run a job with these options",
            would_work="podwright slurm explain-request says what they mean",
        )
    return tasks
