"""The slurm.conf of a lab: quick to react, harmless to the machine, open to a test's changes."""

from collections.abc import Mapping, Sequence
from pathlib import Path


def base(
    folder: Path, controller: str, port: int, *, user: str, nodes_alone: bool
) -> dict[str, str]:
    """What every lab starts from; a test's own pieces replace or add to it."""
    return {
        "ClusterName": "lab",
        "SlurmctldHost": controller,
        "SlurmctldPort": str(port),
        "SlurmUser": user,
        "SlurmdUser": "root",
        "AuthType": "auth/munge",
        # A step whose launch comes later to its node than that is refused by it. It also decides
        # how long a requeued job waits (121 s by default).
        "AuthInfo": f"socket={folder}/munge.socket,cred_expire=20",
        # A daemon on a busy machine takes its time; who asks gives up after 10 s by default.
        "MessageTimeout": "60",
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/log/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd.%n.log",
        "SlurmctldDebug": "info",
        "SlurmdDebug": "info",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "SchedulerType": "sched/backfill",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0,sched_interval=5,"
        "bf_interval=1,nohold_on_prolog_fail",
        "ReturnToService": "2",
        "SlurmdTimeout": "30",
        "SlurmctldTimeout": "10",
        "MinJobAge": "600",
        "KillWait": "2",
        "InactiveLimit": "0",
        "MpiDefault": "none",
        "MailProg": "/bin/true",
        "SlurmdParameters": "config_overrides",
        "PropagateResourceLimitsExcept": "MEMLOCK",
        # Debian's default searches /usr/bin for the mailer and /etc for the stack of plugins.
        "PlugStackConfig": f"{folder}/plugstack.conf",
        **({} if nodes_alone else {"TreeWidth": "65533"}),
    }


def text(
    settings: Mapping[str, str],
    nodes: Mapping[str, int],
    *,
    cpus: int,
    node_extra: str,
    address: str | None,
    lines: Sequence[str],
) -> str:
    """The whole file. `nodes` maps names to ports; `address` is None where names resolve."""
    rows = [f"{key}={value}" for key, value in settings.items()]
    at = f" NodeHostname=localhost NodeAddr={address}" if address else ""
    rows += [
        f"NodeName={name}{at} Port={port} CPUs={cpus} RealMemory=100000 {node_extra} State=UNKNOWN"
        for name, port in nodes.items()
    ]
    if not any(line.startswith("PartitionName=") for line in lines):
        rows.append(
            "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO"
        )
    return "\n".join([*rows, *lines]) + "\n"
