"""Reads a site's nodes, partitions and settings, from the output of scontrol and the site's files.

An answer needs every field that is read here. Fields that Slurm does not show are collected in
`SlurmCluster.not_known`, and no answer is given then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from podwright.gpu.requests._not_known import NotKnown
from podwright.gpu.requests._units import MIB, minutes, names
from podwright.gpu.requests._values import NodeHardware, SlurmCluster, SlurmPartition
from podwright.slurm.reader import (
    SlurmConfig,
    SlurmNode,
    SlurmPartitionRecord,
    read_gpus,
    read_nodes,
    read_partitions,
    release_note,
)

#: Settings that decide about a request. A twin gets them from the output of scontrol.
_SETTINGS = (
    *("SelectType", "SchedulerParameters"),
    *("TaskPluginParam", "TopologyParam", "AllowSpecResourcesUsage"),
)


@dataclass(frozen=True)
class Texts:
    """The texts that describe a site: output of scontrol, and files."""

    config: str  # scontrol show config
    nodes: str  # scontrol --oneliner show node
    partitions: str = ""  # scontrol --oneliner show partition
    gres_conf: str = ""
    topology_conf: str = ""
    cgroup_conf: str = ""
    topology_yaml: str = ""  # or scontrol show topoconf


def read_site(texts: Texts) -> SlurmCluster:
    """Return the site that these texts describe."""
    missing = NotKnown()
    get = missing.of
    config = SlurmConfig(texts.config)
    confined = _confined(config, texts.cgroup_conf)
    affinity = get(lambda: config.binds_tasks_to_cores, False)
    placed = _places_gpus(texts.gres_conf)
    select = get(lambda: config.value("SelectTypeParameters"), "")
    counts_memory = "MEMORY" in select.upper()
    hardware_indices: dict[NodeHardware, int] = {}
    nodes: list[tuple[str, int]] = []
    down_nodes: set[str] = set()
    unplaced: set[str] = set()
    for node in read_nodes(texts.nodes):
        hardware, spread = _hardware(node, missing)
        hardware = replace(hardware, nodes=0, confined=confined, affinity=affinity)
        if not counts_memory:
            hardware = replace(hardware, memory=0)
        nodes.append((node.name, hardware_indices.setdefault(hardware, len(hardware_indices))))
        if spread and not placed:
            unplaced.add(node.name)
        if not _takes_jobs(node, missing):
            down_nodes.add(node.name)
    partitions, default = _partitions(texts.partitions, {name for name, _ in nodes}, missing)
    counted = Counter(index for _, index in nodes)
    enforces = get(lambda: config.text("EnforcePartLimits"), "NO").upper() != "NO"
    for name in _SETTINGS:
        _need_setting(config, name, missing)
    get(lambda: (config.memory, config.most_memory, config.job_defaults), None)
    get(lambda: (config.names("GresTypes"), config.topology, config.version), None)
    return SlurmCluster(
        shapes=tuple(
            replace(hardware, nodes=counted[index]) for hardware, index in hardware_indices.items()
        ),
        nodes=tuple(nodes),
        partitions=partitions,
        default=default,
        down=frozenset(down_nodes),
        enforces_limits=enforces,
        cautions=get(lambda: _cautions(config), ()),
        unplaced=frozenset(unplaced),
        not_known=missing.fields,
    )


def read_shape(
    nodes: Sequence[SlurmNode], config: SlurmConfig, partition: str = ""
) -> NodeHardware | None:
    """Return the most frequent hardware of nodes with GPUs (of one partition); None if there are
    none.

    Raises FieldNotKnown.
    """
    counted: Counter[tuple[int, int, str]] = Counter()
    for node in nodes:
        if node.gpus and (not partition or partition in node.partitions):
            counted[(node.sockets, node.cores_per_socket, node.gres)] += 1
    if not counted:
        return None
    (sockets, cores, gres), nodes_alike = counted.most_common(1)[0]
    gpus, types = _counted_gpus(gres)
    return NodeHardware(
        nodes=nodes_alike,
        sockets=sockets,
        cores_per_socket=cores,
        gpus=gpus,
        types=types,
        confined=_confined(config, ""),
        affinity=config.binds_tasks_to_cores,
    )


def _hardware(node: SlurmNode, missing: NotKnown) -> tuple[NodeHardware, bool]:
    """Return a node's hardware, and whether GPUs of one type are near several sockets."""
    get = missing.of
    gres = get(lambda: node.gres, "")
    gpus, types = _counted_gpus(gres)
    memory = get(lambda: node.memory_mib, 0) - get(lambda: node.reserved_memory_mib, 0)
    cpus, listed = get(lambda: node.cpus, 0), get(lambda: node.reserved_cpus, "")
    get(lambda: (node.disk_mib, node.weight, node.features, node.cpu_bind), None)
    hardware = NodeHardware(
        sockets=get(lambda: node.sockets, 1),
        cores_per_socket=get(lambda: node.cores_per_socket, 1),
        threads=get(lambda: node.threads_per_core, 1),
        gpus=gpus,
        types=types,
        memory=memory * MIB,
    )
    several = any(re.search(r"[,-]", part.sockets) for part in read_gpus(gres))
    return replace(hardware, reserved=_reserved(listed, cpus, hardware)), several


def _reserved(listed: str, cpus: int, hardware: NodeHardware) -> int:
    """Return how many CPUs no job gets, from a list such as `6-7`.

    The list numbers threads if CPUs= counts threads, and on 22.05 also if CPUs= counts cores.
    """
    numbers = [int(name[1:]) for name in names(f"c[{listed}]")] if listed else []
    by_core = cpus == hardware.cores and all(number < cpus for number in numbers)
    return len(numbers) * (hardware.threads if by_core else 1)


def _takes_jobs(node: SlurmNode, missing: NotKnown) -> bool:
    return missing.of(lambda: node.state.takes_jobs, True)


def _need_setting(config: SlurmConfig, name: str, missing: NotKnown) -> None:
    missing.of(lambda: config.value(name), "")


def _counted_gpus(gres: str) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return all GPUs of a node, and their number by type."""
    counted: Counter[str] = Counter()
    for part in read_gpus(gres):
        counted[part.type] += part.amount
    return sum(counted.values()), tuple((kind, n) for kind, n in counted.items() if kind)


def _places_gpus(gres_conf: str) -> bool:
    """Return whether gres.conf names the files of GPUs, so that their numbers are the site's."""
    lines = (line.split("#")[0] for line in gres_conf.splitlines())
    gpus = [line for line in lines if re.search(r"\bname\s*=\s*gpu\b", line, re.I)]
    return any(re.search(r"\b(multiple)?files?\s*=", line, re.I) for line in gpus)


def _confined(config: SlurmConfig, cgroup_conf: str) -> bool:
    """Return ConstrainDevices, which Slurm shows only together with a cgroup.conf that it has
    read.
    """
    if config.optional("ConstrainDevices").lower() == "yes":
        return True
    return bool(re.search(r"^\s*ConstrainDevices\s*=\s*yes", cgroup_conf, re.M | re.I))


def _cautions(config: SlurmConfig) -> tuple[str, ...]:
    """Return what may change a request or delay it, and is not examined."""
    cautions = []
    enforced = config.value("AccountingStorageEnforce").lower()
    if "limits" in enforced or "qos" in enforced or "safe" in enforced:
        cautions.append("limits of accounts and QOS hold here, and are not looked at")
    for key in ("JobSubmitPlugins", "CliFilterPlugins"):
        if value := config.value(key):
            cautions.append(f"{key}={value} of this site may change the options")
    if note := release_note(config.version):
        cautions.append(note)
    return tuple(cautions)


def _partitions(
    text: str, nodes: set[str], missing: NotKnown
) -> tuple[tuple[SlurmPartition, ...], str]:
    """Return all partitions, and the name of the default one. nodes: the names of all nodes."""
    partitions, default = [], ""
    for record in read_partitions(text):
        if _is_default(record, missing):
            default = record.name
        partitions.append(_partition(record, nodes, missing))
    return tuple(partitions) or (SlurmPartition(nodes=frozenset(nodes)),), default


def _is_default(record: SlurmPartitionRecord, missing: NotKnown) -> bool:
    return missing.of(lambda: record.default, False)


def _partition(record: SlurmPartitionRecord, nodes: set[str], missing: NotKnown) -> SlurmPartition:
    get = missing.of
    listed = get(lambda: record.nodes, "")
    state = get(lambda: record.state, "UP")
    get(lambda: (record.min_nodes, record.max_cpus_per_node, record.max_cpus_per_socket), None)
    get(lambda: (record.memory, record.most_memory, record.default_time, record.share), None)
    get(
        lambda: (
            record.takes_least_loaded_first,
            record.job_defaults,
            record.priority,
            record.select,
        ),
        None,
    )
    get(lambda: (record.topology, record.cpu_bind), None)
    max_time = get(lambda: record.max_time, "UNLIMITED")
    return SlurmPartition(
        name=record.name,
        nodes=frozenset(nodes if listed == "ALL" else set(names(listed)) & nodes),
        max_nodes=get(lambda: record.max_nodes, None),
        max_time=None
        if max_time in ("UNLIMITED", "INFINITE", "NONE")
        else minutes(max_time, "time"),
        accepts=state in ("UP", "DOWN"),
        starts=state in ("UP", "DRAIN"),
    )
