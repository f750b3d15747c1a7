"""Connects the hosts of a launch, and chooses where its instances meet each other."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from podwright.errors import NotFound
from podwright.hosts import (
    address_in,
    common_subnet,
    free_port,
    is_here,
    job_workers,
    srun_command,
    ssh_command,
    subnets,
    worker_command,
)
from podwright.launcher.hosts._host_sweep import SWEEP_COMMAND
from podwright.launcher.hosts._relay_connections import Remote, connect
from podwright.launcher.hosts._relay_protocol import HostsUnusable, HostTask
from podwright.launcher.hosts._remote_hosts import NOWHERE, Remotes
from podwright.launcher.instances._divide_gpus import as_too_few_gpus, environment_for_step
from podwright.launcher.instances._instance_input import has_no_input
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.instances._run_folder import RunFolder, run_name
from podwright.launcher.plan._plan import Instance, Plan
from podwright.launcher.run._mpi_arguments import own_variables


def start_relays(
    plan: Plan,
    folder: RunFolder,
    environ: Mapping[str, str],
    output: Output,
    ssh_key: str = "",
    *,
    returns: bool = False,
    traces: bool = False,
) -> Remotes:
    """Start relays on all hosts of a plan but this one. Raises HostsUnusable, NotFound.

    ssh_key: an ssh key that is tried before those of the user's configuration. returns: whether
    instances return results (_exchange). traces: whether they write records for the timeline.
    """
    hosts = dict.fromkeys(instance.host for instance in plan.instances)
    if tuple(hosts) == ("localhost",):
        return NOWHERE
    ranks_by_host = {h: [i.rank for i in plan.instances if i.host == h] for h in hosts}
    worker_addresses = job_workers(environ) if plan.by_workers else {}
    remote_hosts = [host for host in hosts if host in worker_addresses or not is_here(host)]
    relays = [
        Remote(number, host, ranks_by_host[host], worker_addresses.get(host, ""))
        for number, host in enumerate(remote_hosts, 1)
    ]
    host_by_rank = {i.rank: i.host for i in plan.instances}
    remotes = Remotes(relays, host_by_rank if len(hosts) > 1 or relays else {})
    attempt_name = folder.name.rpartition("-")[2]
    for remote in relays:
        # Each attempt has a name of its own: the last one's relay may still be removing its files.
        remote.run = f"{attempt_name}-{remote.number}-{os.urandom(3).hex()}"
    required_program = _program_to_check(plan)

    def task(remote: Remote) -> HostTask:
        return HostTask(
            name=remote.run,
            owns=[(i.rank, own_variables(i)) for i in plan.instances if i.host == remote.host],
            folder=_working_folder(environ),
            program=required_program,
            placement=plan.placement,
            gpus=plan.gpus,
            environ=dict(environ),
            session=folder.path,
            in_pid_namespace=plan.pid_namespace,
            returns=returns,
            traces=traces,
            without_input=has_no_input(),
        )

    def starter(host: str, remote_command: Sequence[str]) -> list[str]:
        if plan.by_workers:
            return worker_command(host, remote_command)
        if plan.by_slurm:
            gpu_count = len(ranks_by_host[host]) * plan.gpus[0] if plan.gpus else 0
            command = srun_command(host, remote_command, environ, gpu_count=gpu_count)
        else:
            command = ssh_command(host, remote_command, environ, identity_file=ssh_key)
        if command is None:
            raise NotFound(f"there is no {'srun' if plan.by_slurm else 'ssh'} on PATH")
        return command

    def report(line: str) -> None:
        output.write_line(f"POPRUN: {line}")
        output.flush()

    try:
        starter_environ = environment_for_step(environ) if plan.gpus else environ
        began_at = time.monotonic()
        connect(relays, task, starter, starter_environ, report=report)
        remotes.login_s = time.monotonic() - began_at
    except BaseException as error:
        remotes.close(0.5)
        if plan.gpus and isinstance(error, HostsUnusable):
            gpu_count = max(len(ranks) for ranks in ranks_by_host.values()) * plan.gpus[0]
            raise as_too_few_gpus(error, gpu_count) from None
        raise
    for remote in relays:
        remote.sweeper = starter(remote.host, [*SWEEP_COMMAND, run_name(remote.run)])
        output.log("I", f"host {remote.host} is ready for instances {list(remote.ranks)}")
    return remotes


def _working_folder(environ: Mapping[str, str]) -> str:
    """Return poprun's working folder under its user's name for it, since links may differ
    elsewhere.
    """
    shell_folder = environ.get("PWD", "")
    try:
        if os.path.isabs(shell_folder) and os.path.samefile(shell_folder, "."):
            return shell_folder
    except OSError:
        pass
    return os.getcwd()


def _program_to_check(plan: Plan) -> str:
    """Return the program that every host must have; empty if an instance's own PATH finds it."""
    for instance in plan.instances:
        if any(argument.startswith("PATH=") for argument in instance.mpi_arguments):
            return ""
    return plan.program[0]


def common_subnet_of_plan(named_subnet: str, remotes: Remotes) -> str:
    """Return the subnet that all hosts share, as named or as found; empty if there is none."""
    return named_subnet or common_subnet([subnets(), *(remote.subnets for remote in remotes)])


def meeting_point(first_instance: Instance, named_subnet: str, remotes: Remotes) -> dict[str, str]:
    """Return where programs that read MASTER_ADDR meet: a free port on the host of instance 0.

    named_subnet: the subnet that the user named, or empty.
    """
    if not remotes:
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    subnet = common_subnet_of_plan(named_subnet, remotes)
    for remote in remotes:
        if first_instance.rank in remote.ranks:
            address = "" if named_subnet else remote.address
            if subnet and not address:
                address = address_in(subnet, remote.subnets)
            return {"MASTER_ADDR": address or first_instance.host, "MASTER_PORT": str(remote.port)}
    address = address_in(subnet, subnets()) if subnet else ""
    if subnet and not address:
        raise HostsUnusable(
            f"this host has no address in {subnet}", would_work="Name another --host-subnet"
        )
    return {"MASTER_ADDR": address or first_instance.host, "MASTER_PORT": str(free_port(""))}
