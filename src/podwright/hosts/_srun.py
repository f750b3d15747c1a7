"""Words on other hosts of a Slurm job, through srun and without ssh; and which hosts it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.hosts._hostlist import expand
from podwright.hosts._local import find_program

_NODES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


def job_hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts of the job that we are in; none outside one. Raises BadHostList."""
    if "SLURM_JOB_ID" not in environ:
        return ()
    text = next((environ[name] for name in _NODES if environ.get(name)), "")
    return expand(text) if text else ()


def srun_command(
    host: str, words: Sequence[str], environ: Mapping[str, str], *, gpus: int = 0
) -> list[str] | None:
    """The command that runs words on a host of our job, as a step beside all others.

    gpus: how many it must have; where none is said, Slurm gives a step all of its job's, unless
    the job counted them by tasks.
    None without an srun. The step is one task that may use all that the job has there, and takes
    nothing away from others (--overlap); variables of srun's own do not reach into it.
    """
    program = find_program("srun", environ)
    if program is None:
        return None
    options = [
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={host}",
        "--mem=0",
        "--cpu-bind=none",
        "--mpi=none",
        "--kill-on-bad-exit=0",
        "--export=ALL",
        "--quiet",
        "--input=0",
        *([f"--gres=gpu:{gpus}"] if gpus else []),
    ]
    return [program, *options, "--", *words]
