"""The plan of a launch: a frozen value, made from options and environment alone, that prints
itself.

Making it (`_make_plan`) contacts nothing and changes nothing. It does not contain what only the
server knows.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from podwright.ground.plural import counted
from podwright.hosts import fold
from podwright.launcher.options._core_placement import InstancePlace
from podwright.launcher.options._instance_environment import (
    SERVER_TIMEOUT_SECONDS,
    local_index_environment,
)
from podwright.launcher.options._move_notice import signal_name
from podwright.launcher.plan._prepare_hosts import Preparation
from podwright.launcher.plan._topology_table import topology_table
from podwright.launcher.plan._wanted_partition import WantedPartition

if TYPE_CHECKING:
    from podwright.client import ServerOptions

DECIDED_BY_SERVER_TEXT = "decided by the server"
#: Seconds between asking instances to end and killing them.
DEFAULT_GRACE_S = 30.0


class Instance(NamedTuple):
    """One process to start. environment: its variables beyond those that all get."""

    rank: int
    host: str
    local_index: int
    replicas: int
    environment: tuple[tuple[str, str], ...]
    mpi_arguments: tuple[str, ...] = ()
    place: InstancePlace | None = None


class Plan(NamedTuple):
    """A launch, decided. wanted: the partition to request from the server.

    server_host, server_port: the server's address, or empty. environment: the variables of all
    instances, without those that depend on the partition. cache: the folder for executables: a
    path, TEMPORARY_CACHE, or none. offline: no server, no devices. timeout, grace: seconds for the
    whole launch, and from asking an instance to end to killing it. notes: messages for the user
    about the given options. launcher: mpirun, local or srun. by_slurm: srun reaches the other hosts
    instead of ssh. by_workers: all hosts are workers of a Kubernetes job. placement: how each of
    several hosts places its instances; on one host the instances have places. gpus: the number of
    GPUs of each instance and which of them it sees, if Slurm granted them; then no server is asked,
    and each host places its own instances. given: the job's operator holds the partition, so no
    server is asked either. subnet: the one between the hosts, as the user named it; empty if it
    must be found. spares: hosts that are used after the loss of others. move: the signal that tells
    instances to end so that the launch can move, and the seconds that this loses; None: the launch
    cannot move. waits: whether it waits in the server's queue for devices. trace: the file for the
    launch's timeline, or empty.
    """

    program: tuple[str, ...]
    replicas: int
    ipus_per_replica: int
    instances: tuple[Instance, ...]
    wanted: WantedPartition
    environment: tuple[tuple[str, str], ...]
    server_host: str = ""
    server_certs: str = ""
    server_port: str = ""
    server_timeout: float = SERVER_TIMEOUT_SECONDS
    attempts: int = 1
    mpi_arguments: tuple[str, ...] = ()
    run_as_root: bool | None = None
    only_output_from: int | None = None
    print_topology: bool = False
    verbosity: int = 0
    cache: str = ""
    offline: bool = False
    log_folder: str = ""
    timestamps: bool = False
    timeout: float | None = None
    grace: float = DEFAULT_GRACE_S
    max_restarts: int = 0
    pid_namespace: bool = True
    ipc: str = ""
    notes: tuple[str, ...] = ()
    launcher: str = "mpirun"
    by_slurm: bool = False
    by_workers: bool = False
    subnet: str = ""
    placement: str = "disabled"
    gpus: tuple[Any, ...] = ()
    preparation: Preparation = Preparation()
    waits: bool = False
    spares: tuple[str, ...] = ()
    trace: str = ""
    move: tuple[int, float] | None = None
    given: bool = False

    @property
    def asks(self) -> bool:
        """Whether a server is asked for a partition."""
        return not (self.offline or self.gpus or self.given)

    @property
    def server_options(self) -> ServerOptions:
        """The options that name the server."""
        from podwright.client import ServerOptions

        return ServerOptions(host=self.server_host, port=self.server_port, certs=self.server_certs)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts, in order."""
        return tuple(dict.fromkeys(instance.host for instance in self.instances))

    def over(self, hosts: Sequence[str]) -> Plan:
        """Return the plan over the first of these hosts, as many as divide the instances evenly."""
        instance_count = len(self.instances)
        host_count = max(
            candidate_count
            for candidate_count in range(1, len(hosts) + 1)
            if instance_count % candidate_count == 0
        )
        instances_per_host = instance_count // host_count
        moved_instances = []
        for instance in self.instances:
            own_variables = {
                **dict(instance.environment),
                **local_index_environment(instance.rank % instances_per_host),
            }
            moved_instances.append(
                instance._replace(
                    host=hosts[instance.rank // instances_per_host],
                    local_index=instance.rank % instances_per_host,
                    environment=tuple(own_variables.items()),
                )
            )
        common_variables = {**dict(self.environment), "LOCAL_WORLD_SIZE": str(instances_per_host)}
        return self._replace(
            instances=tuple(moved_instances), environment=tuple(common_variables.items())
        )

    def topology(self, ilds: int = 0) -> str:
        """Return the table of hosts, link domains, instances and replicas, with places below it.

        ilds: 0 if not yet known.
        """
        hosts = [instance.host for instance in self.instances]
        count = ilds or self.wanted.ilds
        lines = "".join(
            f"\ninstance {placed_instance.rank}: {placed_instance.place}"
            for placed_instance in self.instances
            if placed_instance.place
        )
        return topology_table(hosts, self.replicas, count or DECIDED_BY_SERVER_TEXT) + lines

    @property
    def _reason_without_server(self) -> str:
        """Why no server is asked; empty if one is."""
        if self.given:
            return "none: the job's operator holds its partition"
        return "none: offline" if self.offline else "none: Slurm gave the GPUs" if self.gpus else ""

    def _ways(self) -> list[tuple[str, str]]:
        """Return the lines about hosts and launchers that differ from the usual."""
        plan_lines = []
        if len(self.hosts) > 1:
            remote_starter = "srun" if self.by_slurm else "job" if self.by_workers else "ssh"
            plan_lines.append(
                ("hosts", f"{len(self.hosts)}, by {remote_starter}: {fold(self.hosts)}")
            )
            plan_lines.append(("  subnet", self.subnet or "found when hosts are met"))
            plan_lines.append(("  placement", f"{self.placement}, from the cores of each host"))
        plan_lines += self.preparation.lines()
        if self.gpus:
            gpus_per_instance, gpu_visibility = self.gpus
            plan_lines.append(
                ("GPUs", f"{gpus_per_instance} of each instance, nearest first, of Slurm's grant")
            )
            plan_lines.append(
                ("  seen", "its own" if gpu_visibility == "task" else "all of its host")
            )
        if self.launcher != "mpirun":
            plan_lines.append(("launcher", self.launcher))
        return plan_lines

    def __str__(self) -> str:
        wanted_partition = self.wanted
        server_address = self.server_host and f"{self.server_host}:{self.server_port or 8090}"
        ending_text = "kept" if wanted_partition.keep else "removed at the end"
        move_signal = signal_name(self.move[0]) if self.move else ""
        reset_text = {None: "unless it is reconfigurable", True: "yes", False: "no"}[
            wanted_partition.reset
        ]
        partition_lines = [
            ("partition", wanted_partition.name or DECIDED_BY_SERVER_TEXT),
            *(
                [("  within", f"lease {wanted_partition.parent}")]
                if wanted_partition.parent
                else ()
            ),
            ("  allocation", wanted_partition.allocation or DECIDED_BY_SERVER_TEXT),
            ("  devices", str(wanted_partition.devices)),
            ("  GCDs", str(wanted_partition.instances)),
            ("  replicas", str(wanted_partition.instances)),
            ("  ILDs", str(wanted_partition.ilds or DECIDED_BY_SERVER_TEXT)),
            (
                "  if missing",
                f"created, and {ending_text}" if wanted_partition.create else "refused",
            ),
            (
                "  if unfit",
                f"replaced, and {ending_text}" if wanted_partition.update else "refused",
            ),
            ("  reset", reset_text),
            *([("  if not free", "waited for")] if self.waits else ()),
            *([("  moves", f"once all instances listen to {move_signal}")] if move_signal else ()),
        ]
        plan_lines = [
            ("program", shlex.join(self.program)),
            ("replicas", f"{self.replicas} of {counted(self.ipus_per_replica, 'device')}"),
            ("instances", f"{len(self.instances)} of {self.instances[0].replicas} replicas"),
            *self._ways(),
            ("server", self._reason_without_server or server_address or "found when it is needed"),
            *([] if self._reason_without_server else partition_lines),
            ("cache", f"{self.cache or 'none'}"),
        ]
        plan_text = "".join(f"{name + ':':<16} {value}\n" for name, value in plan_lines)
        plan_text += "environment of all instances:\n"
        plan_text += "".join(f"  {name}={shlex.quote(value)}\n" for name, value in self.environment)
        for instance in self.instances:
            own_variables = " ".join(
                f"{name}={shlex.quote(value)}" for name, value in instance.environment
            )
            plan_text += f"instance {instance.rank} on {instance.host}: {own_variables}\n"
            if instance.mpi_arguments:
                plan_text += f"  for mpirun: {shlex.join(instance.mpi_arguments)}\n"
        return plan_text + self.topology()
