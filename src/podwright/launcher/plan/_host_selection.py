"""Selects the hosts of a launch: those of an option, of a file, of the Slurm job, or this host.

In the launcher of a Kubernetes job, its workers are the hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.hosts import BadHostList, expand, job_hosts, job_workers, read_hosts
from podwright.launcher.options._option_table import Options


class HostChoice(NamedTuple):
    """hosts: in order. by_slurm: srun reaches them instead of ssh. by_workers: Kubernetes workers
    are the hosts.

    spares: hosts beyond the number of instances, for a restart after the loss of others.
    """

    hosts: tuple[str, ...]
    by_slurm: bool = False
    spares: tuple[str, ...] = ()
    by_workers: bool = False


def choose_hosts(options: Options, environ: Mapping[str, str], this_host: str) -> HostChoice:
    """Return the hosts of a launch. this_host: the name of this host. Raises InvalidRequest.

    Inside a Slurm job, the job's nodes are used if no host is named. srun also reaches nodes of the
    job that are named. If there are more hosts than instances, the first ones are used, as in a
    line of the PopRun guide (2.9).
    """
    try:
        named_hosts = _hosts_named_by_user(options)
        granted_hosts = job_hosts(environ)
    except BadHostList as error:
        raise InvalidRequest(str(error)) from None
    workers = tuple(job_workers(environ))
    all_hosts = named_hosts or granted_hosts or workers or (this_host,)
    by_slurm = bool(granted_hosts) and set(all_hosts) <= {*granted_hosts, "localhost"}
    hosts, spares = all_hosts[: options.num_instances], all_hosts[options.num_instances :]
    if options.launcher == "srun" and not by_slurm:
        raise InvalidRequest(
            "--launcher=srun works only on nodes of a Slurm job that poprun runs in",
            would_work="Start poprun inside the job (sbatch, salloc), or leave --launcher out",
        )
    by_workers = bool(workers) and set(all_hosts) <= set(workers)
    _check_even_division(hosts, options.num_instances)
    return HostChoice(hosts, by_slurm, spares, by_workers)


def _hosts_named_by_user(options: Options) -> tuple[str, ...]:
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
            hosts_text = file.read(1 << 22)
    except OSError as error:
        raise InvalidRequest(
            f"the hosts file {options.hostfile} cannot be read: {error.strerror}"
        ) from None
    return read_hosts(hosts_text, options.hostfile)


def _check_even_division(hosts: tuple[str, ...], instance_count: int) -> None:
    host_count = len(hosts)
    if instance_count % host_count == 0:
        return
    dividing_counts = [
        smaller_count
        for smaller_count in range(host_count, 0, -1)
        if instance_count % smaller_count == 0
    ]
    instances = -(-instance_count // host_count) * host_count
    raise InvalidRequest(
        f"{instance_count} instances do not divide evenly over {host_count} hosts",
        would_work=f"On {host_count} hosts there can be {instances} instances; "
        f"{instance_count} instances can run on {dividing_counts[0]} "
        f"host{'s' if dividing_counts[0] > 1 else ''}",
    )
