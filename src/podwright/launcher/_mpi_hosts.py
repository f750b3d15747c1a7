"""mpirun over several hosts, without ssh of its own: our relays start its daemons.

mpirun starts one daemon a host by running an agent, which is ssh by default: `agent HOST command`.
Ours writes the command into the run's folder and says so in the status stream; poprun passes it to
that host's relay, whose guardian then owns the daemon and all below it. So one way to each host is
enough, whichever it is, and what must be ended there is known to somebody who is there.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence

from podwright.launcher._folder import RunFolder
from podwright.launcher._hosts import Remotes
from podwright.launcher._meeting import subnet_of
from podwright.launcher._plan import Plan

_AGENT = """\
folder=${0%/*}
umask 077
host=$1
shift
{ echo "$host"; printf '%s ' "$@"; } >"$folder/daemon.$$.part" || exit 1
mv "$folder/daemon.$$.part" "$folder/daemon.$$"
echo "0 daemon $$" >"$status"
"""


def over_hosts(
    plan: Plan, folder: RunFolder, remotes: Remotes, environ: Mapping[str, str]
) -> list[str]:
    """mpirun's arguments for several hosts. What the user says of interfaces, counts more."""
    agent = folder.file("agent")
    handle = os.open(folder.here(agent), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o700)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nstatus={shlex.quote(folder.stream('status'))}\n{_AGENT}")
    argv = ["--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", agent]
    argv += ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
    if "SLURM_JOB_ID" in environ:
        argv += ["--prtemca", "ras", "^slurm"]
    subnet = subnet_of(plan.subnet, remotes)
    if subnet and ":" not in subnet:  # Open MPI knows no interface by an IPv6 subnet
        for flag, kind in (("--prtemca", "prte_if"), ("--mca", "btl_tcp_if")):
            if not _says(plan.mpi_arguments, f"{kind}_", environ):
                argv += [flag, f"{kind}_include", subnet]
    return argv


def _says(words: Sequence[str], begins: str, environ: Mapping[str, str]) -> bool:
    """Whether the user chose interfaces, by an argument or a variable."""
    names = (begins, f"oob_tcp_if_{begins.removeprefix('prte_if_')}")
    return any(word.startswith(names) for word in words) or any(
        name.startswith((f"PRTE_MCA_{begins}", f"OMPI_MCA_{begins}")) for name in environ
    )
