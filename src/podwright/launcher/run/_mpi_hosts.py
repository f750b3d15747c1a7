"""mpirun over several hosts, without ssh of its own: poprun's relays start its daemons.

mpirun starts one daemon on each host by running an agent, by default ssh: `agent HOST command`.
poprun's agent writes the command into the run's folder and reports it in the status stream. poprun
passes it to that host's relay, whose guardian then owns the daemon and everything below it. So one
connection to each host is enough, of whichever kind. A process on the host itself knows what must
be ended there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from podwright.launcher.hosts._remote_hosts import Remotes
from podwright.launcher.instances._run_folder import RunFolder
from podwright.launcher.plan._plan import Plan
from podwright.launcher.run._connect_hosts import common_subnet_of_plan

_LAUNCH_AGENT_SCRIPT = """\
folder=${0%/*}
umask 077
host=$1
shift
{ echo "$host"; printf '%s ' "$@"; } >"$folder/daemon.$$.part" || exit 1
mv "$folder/daemon.$$.part" "$folder/daemon.$$"
echo "0 daemon $$" >"$status"
"""


def multi_host_arguments(
    plan: Plan, folder: RunFolder, remotes: Remotes, environ: Mapping[str, str]
) -> list[str]:
    """Return mpirun's arguments for several hosts. The user's choice of interfaces overrides
    poprun's.
    """
    agent_path = folder.file("agent")
    descriptor = os.open(
        folder.local_path(agent_path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700
    )
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(
            f"#!/bin/sh\nstatus={shlex.quote(folder.stream('status'))}\n{_LAUNCH_AGENT_SCRIPT}"
        )
    argv = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", agent_path]
    argv += ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
    if "SLURM_JOB_ID" in environ:
        argv += ["--prtemca", "ras", "^slurm"]
    subnet = common_subnet_of_plan(plan.subnet, remotes)
    if subnet and ":" not in subnet:  # Open MPI does not accept an IPv6 subnet for an interface
        for option, parameter in (("--prtemca", "prte_if"), ("--mca", "btl_tcp_if")):
            if not _interfaces_chosen(plan.mpi_arguments, f"{parameter}_", environ):
                argv += [option, f"{parameter}_include", subnet]
    return argv


def _interfaces_chosen(
    arguments: Sequence[str], parameter_prefix: str, environ: Mapping[str, str]
) -> bool:
    """Return whether the user chose interfaces, by an argument or a variable."""
    prefixes = (
        parameter_prefix,
        f"oob_tcp_if_{parameter_prefix.removeprefix('prte_if_')}",
    )
    return any(argument.startswith(prefixes) for argument in arguments) or any(
        variable.startswith((f"PRTE_MCA_{parameter_prefix}", f"OMPI_MCA_{parameter_prefix}"))
        for variable in environ
    )
