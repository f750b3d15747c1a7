"""Running commands on the hosts of a Slurm job through srun instead of ssh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.hosts._hostlist import expand
from podwright.hosts._local import find_program

_NODES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


def job_hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts of the job in which this process runs; empty outside one.

    Raises BadHostList.
    """
    if "SLURM_JOB_ID" not in environ:
        return ()
    text = next((environ[name] for name in _NODES if environ.get(name)), "")
    return expand(text) if text else ()


def srun_command(
    host: str, words: Sequence[str], environ: Mapping[str, str], *, gpus: int = 0
) -> list[str] | None:
    """Return the command that runs `words` on a host of the job, as a step beside all others.

    gpus: how many GPUs the step must have. If none is given, Slurm gives a step all of its job's,
    unless the job counted them by tasks. None: there is no srun. The step is one task that may use
    all that the job has on the host, and takes nothing away from other steps (--overlap). srun's
    own variables do not reach into it.
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
