"""The twin's slurm.conf, from an allow-list of the site's keys.

Keys that are not in the lists do not reach the twin: no foreign host, no accounting daemon, and no
program of the site (Prolog, Epilog, mail, burst buffers, job completion). A key belongs in the
lists if it decides which nodes, cores, memory and GPUs a job gets, or whether it is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from podwright.slurm.site.releases import Version, release_of
from podwright.slurm.twin._cell import TwinPlace
from podwright.slurm.twin._gres_lines import gres_conf
from podwright.slurm.twin._site_conf import SiteConf, read_site_conf
from podwright.slurm.twin._values import SiteFiles

FIRST_NODE_PORT = 7000

SETTINGS = (
    *("SelectType", "SelectTypeParameters", "EnforcePartLimits", "GresTypes"),
    *("TopologyPlugin", "TopologyParam", "AllowSpecResourcesUsage", "DisableRootJobs"),
    *("DefMemPerNode", "DefMemPerCPU", "DefMemPerGPU", "DefCpuPerGPU"),
    *("MaxMemPerNode", "MaxMemPerCPU", "MaxArraySize", "MaxTasksPerNode", "MaxNodeCount"),
    *("TaskPlugin", "TaskPluginParam", "PreemptType", "PreemptMode", "OverTimeLimit"),
)
#: The words of SchedulerParameters that decide where a job goes. The twin has its own pace.
SCHEDULER_WORDS = (
    *("ignore_prefer_validation", "pack_serial_at_end", "spread_job", "Ignore_NUMA"),
    *("enable_user_top", "allow_zero_lic", "no_backup_scheduling", "default_gbytes"),
    *("reduce_completing_frag", "whole_hetjob", "whole_pack", "max_switch_wait"),
)
NODES = (
    *("CPUs", "Procs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket"),
    *("ThreadsPerCore", "RealMemory", "TmpDisk", "Weight", "Feature", "Features", "Gres"),
    *("CoreSpecCount", "CpuSpecList", "MemSpecLimit", "CpuBind", "RestrictedCoresPerGPU"),
)
PARTITIONS = (
    *("Nodes", "Default", "DefaultTime", "MaxNodes", "MaxTime", "MinNodes", "LLN"),
    *("MaxCPUsPerNode", "MaxCPUsPerSocket", "PriorityTier", "PriorityJobFactor", "State"),
    *("DefMemPerNode", "DefMemPerCPU", "DefMemPerGPU", "DefCpuPerGPU", "MaxMemPerNode"),
    *("MaxMemPerCPU", "SelectTypeParameters", "CpuBind", "Topology", "DisableRootJobs"),
    *("ExclusiveUser", "ExclusiveTopo", "OverSubscribe", "Shared", "Hidden", "RootOnly"),
    *("PreemptMode", "OverTimeLimit", "ReqResv"),
)
#: The keys that Slurm checks with the state of accounts, where that state is there.
ACCOUNT_PARTITIONS = ("AllowAccounts", "AllowQos", "DenyAccounts", "DenyQos", "QOS")


_NAMESPACES = TwinPlace()


@dataclass(frozen=True)
class TwinConf:
    """The configuration of a twin.

    files: texts by path below the twin's folder. links: symbolic links. nodes: the port of each
    node, by name. fields: the keys of each node. unused: nodes to drain. bound: whether tasks are
    bound to CPUs. accounts, groups: whether the limits of accounts, and AllowGroups, apply.
    """

    files: Mapping[str, str]
    links: Mapping[str, str]
    nodes: Mapping[str, int]
    fields: Mapping[str, Mapping[str, str]]
    unused: tuple[str, ...]
    bound: bool
    accounts: bool = False
    groups: bool = False

    def encoded(self) -> dict[str, str]:
        """Return the files in base64, as the guardian takes them."""
        return {n: base64.b64encode(t.encode()).decode() for n, t in self.files.items()}


def twin_conf(
    site: SiteFiles,
    version: Version,
    *,
    accounts: bool = False,
    place: TwinPlace = _NAMESPACES,
) -> TwinConf:
    """Return the twin's files. accounts: whether it starts from a state that has the limits of
    accounts.

    Raises InvalidRequest for site files that describe no node.
    """
    conf = read_site_conf(site)
    accounts = accounts and bool(site.names) and _has_accounts(conf)
    groups = _knows_groups(site, conf)
    ports = {
        name: place.node_port or FIRST_NODE_PORT + index for index, name in enumerate(conf.nodes)
    }
    gres, devices = gres_conf(site.gres_conf, conf.nodes, place.folder)
    release = release_of(version)
    files = {
        "etc/slurm.conf": "\n".join(
            (
                *_place_lines(place),
                *_lines(conf, ports, version, _partition_keys(accounts, groups)),
            )
        )
        + "\n",
        "etc/gres.conf": gres,
        "etc/plugstack.conf": "",
        "etc/cgroup.conf": "CgroupPlugin=disabled\n" if release.can_disable_cgroups else "",
        "etc/hosts": "127.0.0.1 localhost\n"
        + "".join(f"127.0.0.1 {name}\n" for name in conf.nodes),
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    if site.topology_yaml:
        files["etc/topology.yaml"] = site.topology_yaml
    if site.topology_conf:
        files["etc/topology.conf"] = site.topology_conf
    if site.job_submit_lua:
        files["etc/job_submit.lua"] = site.job_submit_lua
        files["etc/slurm.conf"] += "JobSubmitPlugins=lua\n"
    return TwinConf(
        files=files,
        links=dict.fromkeys(devices, "/dev/null"),
        nodes=ports,
        fields=conf.nodes,
        unused=tuple(conf.unused),
        bound="affinity" in conf.settings.get("taskplugin", ""),
        accounts=accounts,
        groups=groups,
    )


def same_files(
    before: SiteFiles, now: SiteFiles, version: Version, *, accounts: bool = False
) -> bool:
    """Return whether twins of both sites have the same files. Passing states that scontrol shows of
    nodes do not matter.

    Raises InvalidRequest as twin_conf does.
    """
    first, second = (twin_conf(site, version, accounts=accounts) for site in (before, now))
    return (first.files, first.links) == (second.files, second.links)


def allowed_groups(site: SiteFiles) -> set[str]:
    """Return the groups in AllowGroups of any partition. Raises InvalidRequest as twin_conf
    does.
    """
    return _allowed_groups(read_site_conf(site))


def _allowed_groups(conf: SiteConf) -> set[str]:
    return {
        name
        for fields in conf.partitions.values()
        for key, value in fields.items()
        if key.lower() == "allowgroups" and value.upper() != "ALL"
        for name in value.split(",")
    }


def _knows_groups(site: SiteFiles, conf: SiteConf) -> bool:
    """Return whether every group in AllowGroups is known with its members."""
    return _allowed_groups(conf) <= set(site.names.groups if site.names else ())


def _has_accounts(conf: SiteConf) -> bool:
    return "slurmdbd" in conf.settings.get("accountingstoragetype", "")


def _partition_keys(accounts: bool, groups: bool) -> tuple[str, ...]:
    known = ("AllowGroups",) if groups else ()
    return (*PARTITIONS, *known, *(ACCOUNT_PARTITIONS if accounts else ()))


def _place_lines(place: TwinPlace) -> Iterable[str]:
    yield from (
        "SlurmctldHost=localhost",
        f"SlurmctldPort={place.controller_port}",
        f"SlurmUser={place.user}",
        f"SlurmdUser={place.user}",
        f"StateSaveLocation={place.folder}/state",
        f"SlurmctldPidFile={place.folder}/slurmctld.pid",
        f"SlurmdSpoolDir={place.folder}/spool/%n",
        f"SlurmdPidFile={place.folder}/%n.pid",
        f"PlugStackConfig={place.folder}/etc/plugstack.conf",
    )
    if not place.munge:
        yield "AuthType=auth/none"
        yield "CredType=cred/none"
        return
    yield "AuthType=auth/munge"
    yield "CredType=cred/munge"
    yield f"AuthInfo=socket={place.munge}"
    yield "CommunicationParameters=NoCtldInAddrAny"


def _lines(
    conf: SiteConf, ports: Mapping[str, int], version: Version, partition_keys: Sequence[str]
) -> Iterable[str]:
    accounts = "AllowAccounts" in partition_keys
    yield from (
        f"ClusterName={conf.settings.get('clustername', 'twin') if accounts else 'twin'}",
        "ProctrackType=proctrack/linuxproc",
        "MpiDefault=none",
        "MailProg=/bin/true",
        "ReturnToService=2",
        "TreeWidth=65533",
        # After MessageTimeout, Slurm finds that a node does not answer, and gives it no more jobs.
        "MessageTimeout=100",
        "SlurmdTimeout=0",
        "SlurmctldTimeout=60",
        "MinJobAge=300",
        "MaxJobCount=100000",
        "PrivateData=cloud",
        "SlurmdParameters=config_overrides",
        "SchedulerType=sched/backfill",
        f"SchedulerParameters={_scheduler(conf)}",
    )
    yield from _setting_lines(conf, version)
    if accounts:
        yield "AccountingStorageType=accounting_storage/slurmdbd"
        yield "AccountingStorageHost=localhost"
        enforced = conf.settings.get("accountingstorageenforce", "none")
        if enforced.lower() != "none":
            yield f"AccountingStorageEnforce={enforced}"
    for name, fields in conf.nodes.items():
        port = ports[name]
        row = _allowed(fields, NODES)
        yield f"NodeName={name} NodeAddr=127.0.0.1 Port={port} {row} State=CLOUD"
    yield from conf.sets
    for name, fields in conf.partitions.items():
        yield f"PartitionName={name} {_allowed(fields, partition_keys)}"


def _setting_lines(conf: SiteConf, version: Version) -> Iterable[str]:
    for key in SETTINGS:
        value = conf.settings.get(key.lower(), "")
        if not value or (key == "PreemptMode" and "preempttype" not in conf.settings):
            continue
        if key == "TaskPlugin":
            plugins = [p for p in value.split(",") if "cgroup" not in p]
            value = ",".join(plugins) or "task/none"
        if key == "PreemptType" and value.endswith("qos"):
            continue
        yield f"{key}={value}"
    if "grestypes" not in conf.settings:
        kinds = {part.split(":")[0] for f in conf.nodes.values() for part in _gres_parts(f)}
        if kinds:
            yield f"GresTypes={','.join(sorted(kinds))}"
    if "taskplugin" not in conf.settings and release_of(version).needs_task_none:
        yield "TaskPlugin=task/none"


def _gres_parts(fields: Mapping[str, str]) -> list[str]:
    return [p for p in fields.get("Gres", "").split(",") if p and p[0].isalpha()]


def _scheduler(conf: SiteConf) -> str:
    words = ["batch_sched_delay=0", "sched_min_interval=0", "sched_interval=5", "bf_interval=1"]
    for word in conf.settings.get("schedulerparameters", "").split(","):
        if word.split("=")[0] in SCHEDULER_WORDS:
            words.append(word)
    return ",".join(words)


def _allowed(fields: Mapping[str, str], keys: Iterable[str]) -> str:
    """Return the fields whose keys are allowed, as words of a line of slurm.conf."""
    allowed = {key.lower(): key for key in keys}
    words = []
    for key, value in fields.items():
        name = allowed.get(key.lower())
        if name == "Gres":
            value = _without_places(value)
        if name and value and not set(value) & set(" \t\n\"'\\"):
            words.append(f"{name}={value}")
    return " ".join(words)


def _without_places(gres: str) -> str:
    """Return `gpu:h100:4(S:0-1)` in the form of slurm.conf, without the sockets that scontrol
    adds.
    """
    import re

    return re.sub(r"\((?:S:|null)[^)]*\)", "", gres)
