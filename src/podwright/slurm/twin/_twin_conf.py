"""The twin's slurm.conf, from an allow-list of the site's keys.

Keys that are not in the lists do not reach the twin: no foreign host, no accounting daemon, and no
program of the site (Prolog, Epilog, mail, burst buffers, job completion). A key belongs in the
lists if it decides which nodes, cores, memory and GPUs a job gets, or whether it is refused.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from podwright.slurm.site.releases import SlurmVersion, release_of
from podwright.slurm.twin._site_conf import SiteConf, read_site_conf
from podwright.slurm.twin._twin_gres_conf import gres_conf
from podwright.slurm.twin._twin_process_client import TwinPlace
from podwright.slurm.twin._twin_types import SiteFiles

FIRST_NODE_PORT = 7000

SETTINGS = (
    *("SelectType", "SelectTypeParameters", "EnforcePartLimits", "GresTypes"),
    *("TopologyPlugin", "TopologyParam", "AllowSpecResourcesUsage", "DisableRootJobs"),
    *("DefMemPerNode", "DefMemPerCPU", "DefMemPerGPU", "DefCpuPerGPU"),
    *("MaxMemPerNode", "MaxMemPerCPU", "MaxArraySize", "MaxTasksPerNode", "MaxNodeCount"),
    *("TaskPlugin", "TaskPluginParam", "PreemptType", "PreemptMode", "OverTimeLimit"),
)
#: The words of SchedulerParameters that decide where a job goes. The twin has its own pace.
COPIED_SCHEDULER_WORDS = (
    *("ignore_prefer_validation", "pack_serial_at_end", "spread_job", "Ignore_NUMA"),
    *("enable_user_top", "allow_zero_lic", "no_backup_scheduling", "default_gbytes"),
    *("reduce_completing_frag", "whole_hetjob", "whole_pack", "max_switch_wait"),
)
NODE_KEYS = (
    *("CPUs", "Procs", "Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket"),
    *("ThreadsPerCore", "RealMemory", "TmpDisk", "Weight", "Feature", "Features", "Gres"),
    *("CoreSpecCount", "CpuSpecList", "MemSpecLimit", "CpuBind", "RestrictedCoresPerGPU"),
)
PARTITION_KEYS = (
    *("Nodes", "Default", "DefaultTime", "MaxNodes", "MaxTime", "MinNodes", "LLN"),
    *("MaxCPUsPerNode", "MaxCPUsPerSocket", "PriorityTier", "PriorityJobFactor", "State"),
    *("DefMemPerNode", "DefMemPerCPU", "DefMemPerGPU", "DefCpuPerGPU", "MaxMemPerNode"),
    *("MaxMemPerCPU", "SelectTypeParameters", "CpuBind", "Topology", "DisableRootJobs"),
    *("ExclusiveUser", "ExclusiveTopo", "OverSubscribe", "Shared", "Hidden", "RootOnly"),
    *("PreemptMode", "OverTimeLimit", "ReqResv"),
)
#: The keys that Slurm checks with the state of accounts, where that state is there.
ACCOUNT_PARTITION_KEYS = ("AllowAccounts", "AllowQos", "DenyAccounts", "DenyQos", "QOS")


#: What a twin takes over of slurm.conf: its settings, and the keys of lines about nodes and
#: partitions. The twin has its own name, hosts and pace.
TWIN_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "slurm.conf": SETTINGS,
    "nodename": (*NODE_KEYS, "State"),
    "partitionname": PARTITION_KEYS,
}

_NAMESPACE_PLACE = TwinPlace()


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
        return {path: base64.b64encode(text.encode()).decode() for path, text in self.files.items()}


def twin_conf(
    site: SiteFiles,
    version: SlurmVersion,
    *,
    accounts: bool = False,
    place: TwinPlace = _NAMESPACE_PLACE,
) -> TwinConf:
    """Return the twin's files. accounts: whether it starts from a state that has the limits of
    accounts.

    Raises InvalidRequest for site files that describe no node.
    """
    site_conf = read_site_conf(site)
    accounts = accounts and bool(site.names) and _has_accounts(site_conf)
    groups = _knows_groups(site, site_conf)
    port_by_node = {
        name: place.node_port or FIRST_NODE_PORT + index
        for index, name in enumerate(site_conf.nodes)
    }
    gres_text, device_paths = gres_conf(site.gres_conf, site_conf.nodes, place.folder)
    slurm_release = release_of(version)
    files = {
        "etc/slurm.conf": "\n".join(
            (
                *_place_lines(place),
                *_slurm_conf_lines(
                    site_conf, port_by_node, version, _partition_keys(accounts, groups)
                ),
            )
        )
        + "\n",
        "etc/gres.conf": gres_text,
        "etc/plugstack.conf": "",
        "etc/cgroup.conf": "CgroupPlugin=disabled\n" if slurm_release.can_disable_cgroups else "",
        "etc/hosts": "127.0.0.1 localhost\n"
        + "".join(f"127.0.0.1 {name}\n" for name in site_conf.nodes),
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
        links=dict.fromkeys(device_paths, "/dev/null"),
        nodes=port_by_node,
        fields=site_conf.nodes,
        unused=tuple(site_conf.unused),
        bound="affinity" in site_conf.settings.get("taskplugin", ""),
        accounts=accounts,
        groups=groups,
    )


def same_files(
    old_site: SiteFiles, new_site: SiteFiles, version: SlurmVersion, *, accounts: bool = False
) -> bool:
    """Return whether twins of both sites have the same files. Passing states that scontrol shows of
    nodes do not matter.

    Raises InvalidRequest as twin_conf does.
    """
    old_conf, new_conf = (
        twin_conf(site, version, accounts=accounts) for site in (old_site, new_site)
    )
    return (old_conf.files, old_conf.links) == (new_conf.files, new_conf.links)


def site_rows(site: SiteFiles, kind: str) -> Mapping[str, Mapping[str, str]]:
    """Return the keys of each node (`nodename`) or partition (`partitionname`) as written, by name.

    Raises InvalidRequest as twin_conf does.
    """
    site_conf = read_site_conf(site)
    return site_conf.nodes if kind == "nodename" else site_conf.partitions


def allowed_groups(site: SiteFiles) -> set[str]:
    """Return the groups in AllowGroups of any partition. Raises InvalidRequest as twin_conf
    does.
    """
    return _allowed_groups(read_site_conf(site))


def _allowed_groups(site_conf: SiteConf) -> set[str]:
    return {
        name
        for fields in site_conf.partitions.values()
        for key, value in fields.items()
        if key.lower() == "allowgroups" and value.upper() != "ALL"
        for name in value.split(",")
    }


def _knows_groups(site: SiteFiles, site_conf: SiteConf) -> bool:
    """Return whether every group in AllowGroups is known with its members."""
    return _allowed_groups(site_conf) <= set(site.names.groups if site.names else ())


def _has_accounts(site_conf: SiteConf) -> bool:
    return "slurmdbd" in site_conf.settings.get("accountingstoragetype", "")


def _partition_keys(accounts: bool, groups: bool) -> tuple[str, ...]:
    group_keys = ("AllowGroups",) if groups else ()
    return (*PARTITION_KEYS, *group_keys, *(ACCOUNT_PARTITION_KEYS if accounts else ()))


def _place_lines(twin_place: TwinPlace) -> Iterable[str]:
    yield from (
        "SlurmctldHost=localhost(127.0.0.1)",  # a system unpacked here may have no /etc/hosts
        f"SlurmctldPort={twin_place.controller_port}",
        f"SlurmUser={twin_place.user}",
        f"SlurmdUser={twin_place.user}",
        f"StateSaveLocation={twin_place.folder}/state",
        f"SlurmctldPidFile={twin_place.folder}/slurmctld.pid",
        f"SlurmdSpoolDir={twin_place.folder}/spool/%n",
        f"SlurmdPidFile={twin_place.folder}/%n.pid",
        f"PlugStackConfig={twin_place.folder}/etc/plugstack.conf",
    )
    if not twin_place.munge:
        yield "AuthType=auth/none"
        yield "CredType=cred/none"
        return
    yield "AuthType=auth/munge"
    yield "CredType=cred/munge"
    yield f"AuthInfo=socket={twin_place.munge}"
    yield "CommunicationParameters=NoCtldInAddrAny"


def _slurm_conf_lines(
    site_conf: SiteConf,
    port_by_node: Mapping[str, int],
    version: SlurmVersion,
    partition_keys: Sequence[str],
) -> Iterable[str]:
    accounts = "AllowAccounts" in partition_keys
    yield from (
        f"ClusterName={site_conf.settings.get('clustername', 'twin') if accounts else 'twin'}",
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
        f"SchedulerParameters={_scheduler(site_conf)}",
    )
    yield from _setting_lines(site_conf, version)
    if accounts:
        yield "AccountingStorageType=accounting_storage/slurmdbd"
        yield "AccountingStorageHost=localhost"
        enforced_limits = site_conf.settings.get("accountingstorageenforce", "none")
        if enforced_limits.lower() != "none":
            yield f"AccountingStorageEnforce={enforced_limits}"
    for name, fields in site_conf.nodes.items():
        port = port_by_node[name]
        node_row = _allowed_fields(fields, NODE_KEYS)
        yield f"NodeName={name} NodeAddr=127.0.0.1 Port={port} {node_row} State=CLOUD"
    yield from site_conf.sets
    for name, fields in site_conf.partitions.items():
        yield f"PartitionName={name} {_allowed_fields(fields, partition_keys)}"


def _setting_lines(site_conf: SiteConf, version: SlurmVersion) -> Iterable[str]:
    for setting_name in SETTINGS:
        setting_value = site_conf.settings.get(setting_name.lower(), "")
        if not setting_value or (
            setting_name == "PreemptMode" and "preempttype" not in site_conf.settings
        ):
            continue
        if setting_name == "TaskPlugin":
            plugins = [plugin for plugin in setting_value.split(",") if "cgroup" not in plugin]
            setting_value = ",".join(plugins) or "task/none"
        if setting_name == "PreemptType" and setting_value.endswith("qos"):
            continue
        yield f"{setting_name}={setting_value}"
    if "grestypes" not in site_conf.settings:
        gres_names = {
            part.split(":")[0]
            for fields in site_conf.nodes.values()
            for part in _gres_parts(fields)
        }
        if gres_names:
            yield f"GresTypes={','.join(sorted(gres_names))}"
    if "taskplugin" not in site_conf.settings and release_of(version).needs_task_none:
        yield "TaskPlugin=task/none"


def _gres_parts(node_fields: Mapping[str, str]) -> list[str]:
    return [part for part in node_fields.get("Gres", "").split(",") if part and part[0].isalpha()]


def _scheduler(site_conf: SiteConf) -> str:
    parameters = [
        "batch_sched_delay=0",
        "sched_min_interval=0",
        "sched_interval=5",
        "bf_interval=1",
    ]
    for parameter in site_conf.settings.get("schedulerparameters", "").split(","):
        if parameter.split("=")[0] in COPIED_SCHEDULER_WORDS:
            parameters.append(parameter)
    return ",".join(parameters)


def _allowed_fields(fields: Mapping[str, str], keys: Iterable[str]) -> str:
    """Return the fields whose keys are allowed, as words of a line of slurm.conf."""
    names_by_key = {key.lower(): key for key in keys}
    key_values = []
    for key, value in fields.items():
        name = names_by_key.get(key.lower())
        if name == "Gres":
            value = _without_sockets(value)
        if name and value and not set(value) & set(" \t\n\"'\\"):
            key_values.append(f"{name}={value}")
    return " ".join(key_values)


def _without_sockets(gres: str) -> str:
    """Return `gpu:h100:4(S:0-1)` in the form of slurm.conf, without the sockets that scontrol
    adds.
    """
    import re

    return re.sub(r"\((?:S:|null)[^)]*\)", "", gres)
