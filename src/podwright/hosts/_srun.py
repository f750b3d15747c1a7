"""Running commands on the hosts of a Slurm job through srun instead of ssh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.hosts._hostlist import expand
from podwright.hosts._local_host_facts import find_program

_NODE_LIST_VARIABLES = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")


def job_hosts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the hosts of the job in which this process runs; empty outside one.

    Raises BadHostList.
    """
    if "SLURM_JOB_ID" not in environ:
        return ()
    node_list = next(
        (environ[variable] for variable in _NODE_LIST_VARIABLES if environ.get(variable)), ""
    )
    return expand(node_list) if node_list else ()


def srun_command(
    host: str, arguments: Sequence[str], environ: Mapping[str, str], *, gpu_count: int = 0
) -> list[str] | None:
    """Return the command that runs `arguments` on a host of the job, as a step beside all others.

    gpu_count: how many GPUs the step must have. If none is given, Slurm gives a step all of its
    job's, unless the job counted them by tasks. None: there is no srun. The step is one task that
    may use all that the job has on the host, and takes nothing away from other steps (--overlap).
    srun's own variables do not reach into it.
    """
    srun_path = find_program("srun", environ)
    if srun_path is None:
        return None
    srun_options = [
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
        *([f"--gres=gpu:{gpu_count}"] if gpu_count else []),
    ]
    return [srun_path, *srun_options, "--", *arguments]
