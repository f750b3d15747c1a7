"""Default memory and cores per GPU, for jobs that request neither. Pure.

Where Slurm counts memory, a job without --mem and without a default takes all memory of its node,
and the node's other GPUs stand idle. Each GPU therefore gets its share of what its node has for
jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podwright.gpu.configure._edit_conf_lines import names_in
from podwright.gpu.configure._inventory import SiteInventory
from podwright.hosts import fold_names
from podwright.slurm.site.conf_lines import Row, logical_lines, read_row, value

#: Where the site sets any of these, its default stays.
_MEMORY_SETTINGS = ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")


class NodeShare(NamedTuple):
    """What one node has for jobs. gpus: 0 on a node of CPUs alone. memory: bytes, 0 where it is not
    known. threads: hardware threads of each core."""

    gpus: int
    cpus: int
    memory: int
    threads: int

    @property
    def memory_per_gpu(self) -> int:
        """Bytes of memory per GPU, in whole MiB as Slurm counts them; all without GPUs."""
        return self.memory // max(self.gpus, 1) >> 20 << 20

    @property
    def cpus_per_gpu(self) -> int:
        """CPUs per GPU: whole cores, at least one, counted in threads as Slurm counts CPUs."""
        return max(self.cpus // self.threads // self.gpus, 1) * self.threads


def node_shares(inventory: SiteInventory, slurm_conf: str, conf_path: str) -> dict[str, NodeShare]:
    """What each node of the inventory has for jobs. slurm.conf supplies what the inventory leaves
    out. Raises InvalidRequest."""
    settings_by_node: dict[str, Row] = {}
    default_settings: Row = {}
    for _, conf_line in logical_lines(slurm_conf):
        row = read_row(conf_line)
        node_list = value(row, "NodeName")
        if node_list.upper() == "DEFAULT":
            default_settings |= {key.lower(): row_value for key, row_value in row.items()}
        elif node_list:
            settings = default_settings | {key.lower(): row_value for key, row_value in row.items()}
            settings_by_node.update(dict.fromkeys(names_in(node_list, conf_path), settings))
    shares = {}
    for node_name, node_kind in inventory.nodes.items():
        row = settings_by_node.get(node_name, {})
        reserved_bytes = node_kind.mem_spec_limit or _numeric_setting(row, "MemSpecLimit") << 20
        memory_bytes = (
            node_kind.memory or _numeric_setting(row, "RealMemory") << 20
        ) - reserved_bytes
        core_count = node_kind.sockets * node_kind.cores_per_socket
        core_count -= node_kind.core_spec_count or _numeric_setting(row, "CoreSpecCount")
        threads = node_kind.threads_per_core
        shares[node_name] = NodeShare(
            len(node_kind.gpus), max(core_count, 1) * threads, max(memory_bytes, 0), threads
        )
    return shares


def _numeric_setting(row: Row, setting_name: str) -> int:
    text = value(row, setting_name)
    return int(text) if text.isdecimal() else 0


def cluster_defaults(
    shares: Mapping[str, NodeShare], site_settings: Mapping[str, str], *, counts_memory: bool
) -> dict[str, str]:
    """The defaults of the whole cluster: values that fit on every node. The site's own settings
    stay.

    site_settings: slurm.conf's settings by lower-case key. counts_memory: whether Slurm counts
    memory.
    """
    defaults = _share_defaults(shares.values(), site_settings, memory=counts_memory)
    if counts_memory and defaults.get("DefMemPerGPU"):
        # Otherwise a job without GPUs would still take all memory of its node.
        defaults["DefMemPerCPU"] = str(
            min(share.memory // share.cpus for share in shares.values()) >> 20
        )
    return defaults


def partition_defaults(
    shares: Mapping[str, NodeShare],
    nodes: Iterable[str],
    row: Row,
    site_settings: Mapping[str, str],
    counts_memory: bool,
) -> dict[str, str]:
    """The defaults of one partition, where its nodes have more per GPU than the poorest node of the
    cluster."""
    row_settings = {key.lower(): row_value for key, row_value in row.items()}
    if any(key.lower() in row_settings for key in _MEMORY_SETTINGS):
        return {}
    own_defaults = _share_defaults(
        [shares[name] for name in nodes],
        {**site_settings, **row_settings},
        memory=counts_memory,
    )
    cluster_wide = _share_defaults(shares.values(), site_settings, memory=counts_memory)
    return {
        key: default_value
        for key, default_value in own_defaults.items()
        if cluster_wide.get(key) != default_value
    }


def _share_defaults(
    shares: Iterable[NodeShare], site_settings: Mapping[str, str], *, memory: bool
) -> dict[str, str]:
    share_list = [share for share in shares if share.gpus]
    if not share_list:
        return {}
    known_settings = {
        default.partition("=")[0].lower()
        for default in site_settings.get("jobdefaults", "").split(",")
    }
    known_settings |= site_settings.keys()
    defaults = {}
    if "defcpupergpu" not in known_settings:
        defaults["DefCpuPerGPU"] = str(min(share.cpus_per_gpu for share in share_list))
    least_memory_mib = min(share.memory_per_gpu for share in share_list) >> 20
    if (
        memory
        and least_memory_mib
        and not known_settings & {key.lower() for key in _MEMORY_SETTINGS}
    ):
        defaults["DefMemPerGPU"] = str(least_memory_mib)
    return defaults


def memory_notes(
    shares: Mapping[str, NodeShare], site_settings: Mapping[str, str], *, counts_memory: bool
) -> list[str]:
    """Notes about memory for the administrator."""
    unknown_memory_nodes = [name for name, share in shares.items() if not share.memory_per_gpu]
    if unknown_memory_nodes and not counts_memory:
        return [
            f"nobody says how much memory {fold_names(unknown_memory_nodes)} has, so Slurm does "
            "not count it: `memory` in the inventory changes that"
        ]
    if unknown_memory_nodes:
        return [
            "Slurm counts memory, and nobody says how much "
            f"{fold_names(unknown_memory_nodes)} has: jobs without --mem take a whole node; "
            "tell `memory` in the inventory"
        ]
    if counts_memory and "defmempernode" in site_settings:
        return ["slurm.conf sets DefMemPerNode: a job of one GPU takes that much of its node"]
    return []
