"""Reads a site's nodes, partitions and settings, from the output of scontrol and the site's files.

An answer needs every field that is read here. Fields that Slurm does not show are collected in
`SlurmCluster.not_known`, and no answer is given then.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from podwright.gpu.requests._site_answer_types import NodeHardware, SlurmCluster
from podwright.gpu.requests._unshown_fields import UnshownFields
from podwright.hosts import read_list
from podwright.slurm.reader import (
    SlurmConfig,
    SlurmNode,
    SlurmPartitionRecord,
    read_gpus,
    read_nodes,
    read_partitions,
    release_note,
)
from podwright.slurm.site.time_and_memory import MIB

#: Settings that decide about a request. A twin gets them from the output of scontrol.
_NEEDED_SETTINGS = (
    *("SelectType", "SchedulerParameters"),
    *("TaskPluginParam", "TopologyParam", "AllowSpecResourcesUsage"),
)


@dataclass(frozen=True)
class Texts:
    """The texts that describe a site: output of scontrol, or the site's own files.

    slurm_conf: where it is given, config, nodes and partitions are those of a twin with it.
    """

    config: str  # scontrol show config
    nodes: str  # scontrol --oneliner show node
    partitions: str = ""  # scontrol --oneliner show partition
    gres_conf: str = ""
    topology_conf: str = ""
    cgroup_conf: str = ""
    topology_yaml: str = ""  # or scontrol show topoconf
    slurm_conf: str = ""


def read_site(site_texts: Texts) -> SlurmCluster:
    """Return the site that these texts describe."""
    unshown_fields = UnshownFields()
    read_or_default = unshown_fields.of
    config = SlurmConfig(site_texts.config)
    confined = _constrains_devices(config, site_texts.cgroup_conf)
    binds_tasks = read_or_default(lambda: config.binds_tasks_to_cores, False)
    gpus_placed = _names_gpu_files(site_texts.gres_conf)
    select_parameters = read_or_default(lambda: config.value("SelectTypeParameters"), "")
    counts_memory = "MEMORY" in select_parameters.upper()
    hardware_indices: dict[NodeHardware, int] = {}
    nodes_with_hardware: list[tuple[str, int]] = []
    down_nodes: set[str] = set()
    unplaced_nodes: set[str] = set()
    for node in read_nodes(site_texts.nodes):
        hardware, spread_over_sockets = _node_hardware(node, unshown_fields)
        hardware = replace(hardware, nodes=0, confined=confined, affinity=binds_tasks)
        if not counts_memory:
            hardware = replace(hardware, memory=0)
        nodes_with_hardware.append(
            (node.name, hardware_indices.setdefault(hardware, len(hardware_indices)))
        )
        if spread_over_sockets and not gpus_placed:
            unplaced_nodes.add(node.name)
        if not _takes_jobs(node, unshown_fields):
            down_nodes.add(node.name)
    for partition in read_partitions(site_texts.partitions):
        _need_partition(partition, unshown_fields)
    nodes_by_hardware = Counter(index for _, index in nodes_with_hardware)
    read_or_default(lambda: config.text("EnforcePartLimits"), "")
    for name in _NEEDED_SETTINGS:
        _need_setting(config, name, unshown_fields)
    read_or_default(lambda: (config.memory, config.most_memory, config.job_defaults), None)
    read_or_default(lambda: (config.names("GresTypes"), config.topology, config.version), None)
    return SlurmCluster(
        shapes=tuple(
            replace(hardware, nodes=nodes_by_hardware[index])
            for hardware, index in hardware_indices.items()
        ),
        nodes=tuple(nodes_with_hardware),
        down=frozenset(down_nodes),
        cautions=read_or_default(lambda: _site_cautions(config), ()),
        unplaced=frozenset(unplaced_nodes),
        not_known=unshown_fields.fields,
    )


def read_shape(
    slurm_nodes: Sequence[SlurmNode], config: SlurmConfig, partition_name: str = ""
) -> NodeHardware | None:
    """Return the most frequent hardware of nodes with GPUs (of one partition); None if there are
    none.

    Raises FieldNotKnown.
    """
    hardware_counts: Counter[tuple[int, int, str]] = Counter()
    for node in slurm_nodes:
        if node.gpus and (not partition_name or partition_name in node.partitions):
            hardware_counts[(node.sockets, node.cores_per_socket, node.gres)] += 1
    if not hardware_counts:
        return None
    (sockets_per_node, cores_per_socket, gres_text), node_count = hardware_counts.most_common(1)[0]
    gpu_count, gpu_types = _count_gpus(gres_text)
    return NodeHardware(
        nodes=node_count,
        sockets=sockets_per_node,
        cores_per_socket=cores_per_socket,
        gpus=gpu_count,
        types=gpu_types,
        confined=_constrains_devices(config, ""),
        affinity=config.binds_tasks_to_cores,
    )


def _node_hardware(node: SlurmNode, unshown_fields: UnshownFields) -> tuple[NodeHardware, bool]:
    """Return a node's hardware, and whether GPUs of one type are near several sockets."""
    read_or_default = unshown_fields.of
    gres_text = read_or_default(lambda: node.gres, "")
    gpu_count, gpu_types = _count_gpus(gres_text)
    memory_mib = read_or_default(lambda: node.memory_mib, 0) - read_or_default(
        lambda: node.reserved_memory_mib, 0
    )
    cpu_count, reserved_list = (
        read_or_default(lambda: node.cpus, 0),
        read_or_default(lambda: node.reserved_cpus, ""),
    )
    read_or_default(lambda: (node.disk_mib, node.weight, node.features, node.cpu_bind), None)
    hardware = NodeHardware(
        sockets=read_or_default(lambda: node.sockets, 1),
        cores_per_socket=read_or_default(lambda: node.cores_per_socket, 1),
        threads=read_or_default(lambda: node.threads_per_core, 1),
        gpus=gpu_count,
        types=gpu_types,
        memory=memory_mib * MIB,
    )
    spread_over_sockets = any(re.search(r"[,-]", entry.sockets) for entry in read_gpus(gres_text))
    return replace(
        hardware, reserved=_reserved_cpu_count(reserved_list, cpu_count, hardware)
    ), spread_over_sockets


def _reserved_cpu_count(reserved_list: str, cpu_count: int, hardware: NodeHardware) -> int:
    """Return how many CPUs no job gets, from a list such as `6-7`.

    The list numbers threads if CPUs= counts threads, and on 22.05 also if CPUs= counts cores.
    """
    reserved_numbers = read_list(reserved_list)
    cores = cpu_count == hardware.cores and all(number < cpu_count for number in reserved_numbers)
    return len(reserved_numbers) * (hardware.threads if cores else 1)


def _takes_jobs(node: SlurmNode, unshown_fields: UnshownFields) -> bool:
    return unshown_fields.of(lambda: node.state.takes_jobs, True)


def _need_setting(config: SlurmConfig, setting_name: str, unshown_fields: UnshownFields) -> None:
    unshown_fields.of(lambda: config.value(setting_name), "")


def _count_gpus(gres_text: str) -> tuple[int, tuple[tuple[str, int], ...]]:
    """Return all GPUs of a node, and their number by type."""
    gpus_by_type: Counter[str] = Counter()
    for entry in read_gpus(gres_text):
        gpus_by_type[entry.type] += entry.amount
    return sum(gpus_by_type.values()), tuple(
        (gpu_type, count) for gpu_type, count in gpus_by_type.items() if gpu_type
    )


def _names_gpu_files(gres_conf: str) -> bool:
    """Return whether gres.conf names the files of GPUs, so that their numbers are the site's."""
    conf_lines = (line.split("#")[0] for line in gres_conf.splitlines())
    gpu_lines = [line for line in conf_lines if re.search(r"\bname\s*=\s*gpu\b", line, re.I)]
    return any(re.search(r"\b(multiple)?files?\s*=", line, re.I) for line in gpu_lines)


def _constrains_devices(config: SlurmConfig, cgroup_conf: str) -> bool:
    """Return ConstrainDevices, which Slurm shows only together with a cgroup.conf that it has
    read.
    """
    if config.optional("ConstrainDevices").lower() == "yes":
        return True
    return bool(re.search(r"^\s*ConstrainDevices\s*=\s*yes", cgroup_conf, re.M | re.I))


def _site_cautions(config: SlurmConfig) -> tuple[str, ...]:
    """Return what may change a request or delay it, and is not examined."""
    cautions = []
    limits = config.value("AccountingStorageEnforce").lower()
    if "limits" in limits or "qos" in limits or "safe" in limits:
        cautions.append("limits of accounts and QOS hold here, and are not looked at")
    for setting in ("JobSubmitPlugins", "CliFilterPlugins"):
        if plugin_names := config.value(setting):
            cautions.append(f"{setting}={plugin_names} of this site may change the options")
    if release_caution := release_note(config.version):
        cautions.append(release_caution)
    return tuple(cautions)


def _need_partition(partition: SlurmPartitionRecord, unshown_fields: UnshownFields) -> None:
    """Record the fields of a partition that Slurm does not show: a twin would have Slurm's default
    in their place."""
    needed = (
        lambda: partition.default,
        lambda: (partition.nodes, partition.state, partition.max_nodes, partition.max_time),
        lambda: (
            partition.min_nodes,
            partition.max_cpus_per_node,
            partition.max_cpus_per_socket,
        ),
        lambda: (
            partition.memory,
            partition.most_memory,
            partition.default_time,
            partition.share,
        ),
        lambda: (
            partition.takes_least_loaded_first,
            partition.job_defaults,
            partition.priority,
            partition.select,
        ),
        lambda: (partition.topology, partition.cpu_bind),
    )
    for read_fields in needed:
        unshown_fields.of(read_fields, None)
