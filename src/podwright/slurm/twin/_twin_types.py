"""The inputs and outputs of a twin: a site's files, a request, and Slurm's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from podwright.slurm.site.releases import SlurmVersion


@dataclass(frozen=True)
class SiteNames:
    """The users and groups that a site's Slurm looks up by name.

    users: uid by name. groups: the names of all members by group, including those whose primary
    group it is.
    """

    users: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class SiteFiles:
    """A site as its files describe it.

    Either `slurm_conf` is given (the text of the site's slurm.conf, with what it includes), or
    `config`, `nodes` and `partitions` are (what scontrol prints).
    """

    slurm_conf: str = ""
    config: str = ""  # scontrol show config
    nodes: str = ""  # scontrol --oneliner show node
    partitions: str = ""  # scontrol --oneliner show partition
    gres_conf: str = ""
    topology_conf: str = ""
    topology_yaml: str = ""
    job_submit_lua: str = ""  # if given, it runs in the twin
    #: Without names, AllowGroups and the limits of accounts are ignored.
    names: SiteNames | None = None


@dataclass(frozen=True)
class InstalledSlurm:
    """A Slurm on this machine.

    root: the folder of the system that it is in. sbin, bin: the folders of its daemons and
    commands, as seen from that root.
    """

    version: SlurmVersion
    root: str = "/"
    sbin: str = "/usr/sbin"
    bin: str = "/usr/bin"
    release: str = ""  # 26.05.5


@dataclass(frozen=True)
class Submission:
    """A command of Slurm and its options, as a user types them.

    script: what sbatch gets. A twin that only answers where a job goes never runs it.
    """

    command: Literal["sbatch", "salloc", "srun"]
    options: tuple[str, ...]
    script: str = "#!/bin/sh\n"


@dataclass(frozen=True)
class GrantedNode:
    """What a job has on one node.

    cpus: by number, as scontrol counts them. memory: MiB. gpus: by number. shares: how many of each
    GPU's shards or MPS shares, by GPU.
    """

    name: str
    cpus: tuple[int, ...]
    memory: int
    gpus: tuple[int, ...] = ()
    shares: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Granted:
    """Slurm starts the job. record: the job as scontrol shows it. messages: what the command
    printed.
    """

    nodes: tuple[GrantedNode, ...]
    partition: str
    record: str
    messages: str = ""


@dataclass(frozen=True)
class Waits:
    """Slurm accepts the job and does not start it.

    reason: Slurm's word (Resources, Priority, PartitionTimeLimit ...).
    """

    reason: str
    record: str
    messages: str = ""


@dataclass(frozen=True)
class Refused:
    """Slurm refuses the job when it is submitted. message: Slurm's own line."""

    message: str
    messages: str = ""


@dataclass(frozen=True)
class FilledTwin:
    """What happened to jobs that were submitted together.

    There is a value for each job, or task of an array, that runs, and for each that waits.
    """

    granted: tuple[Granted, ...]
    waiting: tuple[Waits, ...]
    refused: tuple[Refused, ...]


@dataclass(frozen=True)
class Task:
    """One task of a job.

    variable: CUDA_VISIBLE_DEVICES; None where it is unset. cpus: the CPUs that it is bound to, by
    number; empty where tasks are not bound. gpus: those that it sees, by their number on the node;
    the variable has other numbers where devices are confined. A twin leaves them out.
    """

    rank: int
    node: str
    variable: str | None
    cpus: tuple[int, ...] = ()
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Present:
    """The state of a cluster that a twin starts from.

    state: files of StateSaveLocation by name. accounts: whether the limits of associations and QOS
    are in the state.
    """

    state: Mapping[str, bytes]
    accounts: bool = False
    source: str = ""
