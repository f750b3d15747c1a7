"""On which hosts a launch runs: as told, as a file says, as Slurm granted, or here.

In the launcher of a Kubernetes job its workers are the hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.hosts import BadHostList, expand, job_hosts, job_workers, read_hosts
from podwright.launcher._options import Options


class HostChoice(NamedTuple):
    """hosts: in order. by_slurm: srun leads there, and no ssh. by_workers: doors of workers do.

    spares: hosts beyond the number of instances, for a restart after the loss of others.
    """

    hosts: tuple[str, ...]
    by_slurm: bool = False
    spares: tuple[str, ...] = ()
    by_workers: bool = False


def choose_hosts(options: Options, environ: Mapping[str, str], here: str) -> HostChoice:
    """The hosts of a launch. here: what this host is called. Raises InvalidRequest.

    Inside a Slurm job the job's nodes are taken where none is named. Nodes of the job that are
    named are reached by srun as well. Of more hosts than instances the first are used, since the
    PopRun guide has such a line (2.9).
    """
    try:
        named = _named(options)
        granted = job_hosts(environ)
    except BadHostList as error:
        raise InvalidRequest(str(error)) from None
    workers = tuple(job_workers(environ))
    every = named or granted or workers or (here,)
    by_slurm = bool(granted) and set(every) <= {*granted, "localhost"}
    hosts, spares = every[: options.num_instances], every[options.num_instances :]
    if options.launcher == "srun" and not by_slurm:
        raise InvalidRequest(
            "--launcher=srun works only on nodes of a Slurm job that poprun runs in",
            would_work="Start poprun inside the job (sbatch, salloc), or leave --launcher out",
        )
    by_workers = bool(workers) and set(every) <= set(workers)
    _check(hosts, options.num_instances)
    return HostChoice(hosts, by_slurm, spares, by_workers)


def _named(options: Options) -> tuple[str, ...]:
    if options.host and options.hostfile:
        raise InvalidRequest(
            "--host and --hostfile cannot be used at the same time",
            would_work="Name the hosts in one of them",
        )
    if options.host:
        return expand(options.host)
    if not options.hostfile:
        return ()
    try:
        with open(options.hostfile, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 22)
    except OSError as error:
        raise InvalidRequest(
            f"the hosts file {options.hostfile} cannot be read: {error.strerror}"
        ) from None
    return read_hosts(text, options.hostfile)


def _check(hosts: tuple[str, ...], instances: int) -> None:
    count = len(hosts)
    if instances % count == 0:
        return
    fewer = [n for n in range(count, 0, -1) if instances % n == 0]
    more = -(-instances // count) * count
    raise InvalidRequest(
        f"{instances} instances do not divide evenly over {count} hosts",
        would_work=f"On {count} hosts there can be {more} instances; "
        f"{instances} instances can run on {fewer[0]} host{'s' if fewer[0] > 1 else ''}",
    )
