"""Default memory and cores per GPU, for jobs that request neither. Pure.

Where Slurm counts memory, a job without --mem and without a default takes all memory of its node,
and the node's other GPUs stand idle. Each GPU therefore gets its share of what its node has for
jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podwright.gpu.configure._inventory import SiteInventory
from podwright.gpu.configure._lines import Row, fold, logical, names_in, read_row, value

#: Where the site sets any of these, its default stays.
_MEMORY = ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")


class NodeShare(NamedTuple):
    """What one node has for jobs. memory: bytes, 0 where it is not known. threads: hardware threads
    of each core."""

    gpus: int
    cpus: int
    memory: int
    threads: int

    @property
    def memory_per_gpu(self) -> int:
        """Bytes of memory per GPU, in whole MiB as Slurm counts them."""
        return self.memory // self.gpus >> 20 << 20

    @property
    def cpus_per_gpu(self) -> int:
        """CPUs per GPU: whole cores, at least one, counted in threads as Slurm counts CPUs."""
        return max(self.cpus // self.threads // self.gpus, 1) * self.threads


def node_shares(inventory: SiteInventory, text: str, path: str) -> dict[str, NodeShare]:
    """What each node of the inventory has for jobs. slurm.conf supplies what the inventory leaves
    out. Raises InvalidRequest."""
    rows: dict[str, Row] = {}
    common: Row = {}
    for _, line in logical(text):
        row = read_row(line)
        names = value(row, "NodeName")
        if names.upper() == "DEFAULT":
            common |= {key.lower(): v for key, v in row.items()}
        elif names:
            settings = common | {key.lower(): v for key, v in row.items()}
            rows.update(dict.fromkeys(names_in(names, path), settings))
    shares = {}
    for name, kind in inventory.nodes.items():
        row = rows.get(name, {})
        reserved = kind.mem_spec_limit or _number(row, "MemSpecLimit") << 20
        memory = (kind.memory or _number(row, "RealMemory") << 20) - reserved
        cores = kind.sockets * kind.cores_per_socket
        cores -= kind.core_spec_count or _number(row, "CoreSpecCount")
        threads = kind.threads_per_core
        shares[name] = NodeShare(len(kind.gpus), max(cores, 1) * threads, max(memory, 0), threads)
    return shares


def _number(row: Row, key: str) -> int:
    text = value(row, key)
    return int(text) if text.isdecimal() else 0


def cluster_defaults(
    shares: Mapping[str, NodeShare], now: Mapping[str, str], *, memory: bool
) -> dict[str, str]:
    """The defaults of the whole cluster: values that fit on every node. The site's own settings
    stay.

    now: slurm.conf's settings by lower-case key. memory: whether Slurm counts memory.
    """
    out = _shares(shares.values(), now, memory=memory)
    if memory and out.get("DefMemPerGPU"):
        # Otherwise a job without GPUs would still take all memory of its node.
        out["DefMemPerCPU"] = str(
            min(share.memory // share.cpus for share in shares.values()) >> 20
        )
    return out


def partition_defaults(
    shares: Mapping[str, NodeShare],
    nodes: Iterable[str],
    row: Row,
    now: Mapping[str, str],
    memory: bool,
) -> dict[str, str]:
    """The defaults of one partition, where its nodes have more per GPU than the poorest node of the
    cluster."""
    settings = {key.lower(): v for key, v in row.items()}
    if any(key.lower() in settings for key in _MEMORY):
        return {}
    own = _shares([shares[name] for name in nodes], {**now, **settings}, memory=memory)
    cluster_wide = _shares(shares.values(), now, memory=memory)
    return {key: number for key, number in own.items() if cluster_wide.get(key) != number}


def _shares(shares: Iterable[NodeShare], now: Mapping[str, str], *, memory: bool) -> dict[str, str]:
    those = list(shares)
    known = {word.partition("=")[0].lower() for word in now.get("jobdefaults", "").split(",")}
    known |= now.keys()
    out = {}
    if "defcpupergpu" not in known:
        out["DefCpuPerGPU"] = str(min(share.cpus_per_gpu for share in those))
    least = min(share.memory_per_gpu for share in those) >> 20
    if memory and least and not known & {key.lower() for key in _MEMORY}:
        out["DefMemPerGPU"] = str(least)
    return out


def memory_notes(
    shares: Mapping[str, NodeShare], now: Mapping[str, str], *, memory: bool
) -> list[str]:
    """Notes about memory for the administrator."""
    silent = [name for name, share in shares.items() if not share.memory_per_gpu]
    if silent and not memory:
        return [
            f"nobody says how much memory {fold(silent)} has, so Slurm does not count it: "
            "`memory` in the inventory changes that"
        ]
    if silent:
        return [
            f"Slurm counts memory, and nobody says how much {fold(silent)} has: jobs without "
            "--mem take a whole node; tell `memory` in the inventory"
        ]
    if memory and "defmempernode" in now:
        return ["slurm.conf sets DefMemPerNode: a job of one GPU takes that much of its node"]
    return []
