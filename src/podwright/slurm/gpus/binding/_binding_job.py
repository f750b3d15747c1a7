"""Runs a job of Slurm's in which every task says what it was given."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from podwright.errors import Unavailable
from podwright.slurm.gpus.binding._verdict import Task, read_tasks
from podwright.slurm.gpus.requests import find_option, known, parse_options

_PROBE = (sys.executable, "-P", "-m", "podwright.slurm.gpus.binding._task_probe")


def job_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of sbatch as salloc takes them, and those that it has not: they name files, say.

    Raises InvalidRequest for what sbatch does not know.
    """
    given, _ = parse_options(list(words), "sbatch")
    theirs = known("salloc")
    kept, left = [], []
    for option in given:
        if option.name not in theirs:
            left.append(f"--{option.name}")
        elif find_option(option.name, "salloc").argument == "n" or not option.value:
            kept.append(f"--{option.name}")
        else:
            kept.append(f"--{option.name}={option.value}")
    return kept, left


def probe(options: Sequence[str], prefix: Sequence[str] = ()) -> list[Task]:
    """The tasks of a job with these options of salloc. Raises Unavailable.

    It waits for the job as salloc does. What Slurm says goes to standard error. Nothing is
    written into files, so no folder has to be on all nodes but Podwright's own.
    """
    argv = [*prefix, "salloc", *options, "srun", *_PROBE]
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    except OSError as error:
        raise Unavailable(
            f"{argv[0]}: {error.strerror}", asked="run a job", would_work="install Slurm's client"
        ) from None
    tasks = read_tasks(done.stdout)
    if not tasks:
        raise Unavailable(
            "the job's tasks said nothing; Slurm's words stand above",
            asked="run a job with these options",
            would_work="podwright slurm explain-request says what they mean",
        )
    return tasks
