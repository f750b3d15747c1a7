"""What a job gets that does not say: memory and cores for each GPU. Pure.

Where Slurm counts memory, a job without --mem and without a default takes all of its node's, and
the other GPUs of the node stand idle. So each GPU has its share of what its node has for jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from podwright.slurm.gpus.configure._inventory import SiteInventory
from podwright.slurm.gpus.configure._lines import Row, fold, logical, names_in, read_row, value

#: A default of any of these is the site's own, and stays.
_MEMORY = ("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode")


class NodeShare(NamedTuple):
    """What a node has for jobs. memory: bytes, 0 where nobody says. threads: of a core."""

    gpus: int
    cpus: int
    memory: int
    threads: int

    @property
    def memory_per_gpu(self) -> int:
        """Bytes, in whole MiB, as Slurm counts them."""
        return self.memory // self.gpus >> 20 << 20

    @property
    def cpus_per_gpu(self) -> int:
        """Whole cores, counted in threads as Slurm counts CPUs; at least one core."""
        return max(self.cpus // self.threads // self.gpus, 1) * self.threads


def rooms(inventory: SiteInventory, text: str, path: str) -> dict[str, NodeShare]:
    """What each node of the inventory has; the rest by slurm.conf. Raises InvalidRequest."""
    rows: dict[str, Row] = {}
    common: Row = {}
    for _, said in logical(text):
        row = read_row(said)
        names = value(row, "NodeName")
        if names.upper() == "DEFAULT":
            common |= {key.lower(): v for key, v in row.items()}
        elif names:
            mine = common | {key.lower(): v for key, v in row.items()}
            rows.update(dict.fromkeys(names_in(names, path), mine))
    found = {}
    for name, kind in inventory.nodes.items():
        row = rows.get(name, {})
        kept = kind.mem_spec_limit or _number(row, "MemSpecLimit") << 20
        memory = (kind.memory or _number(row, "RealMemory") << 20) - kept
        cores = kind.sockets * kind.cores_per_socket
        cores -= kind.core_spec_count or _number(row, "CoreSpecCount")
        threads = kind.threads_per_core
        found[name] = NodeShare(len(kind.gpus), max(cores, 1) * threads, max(memory, 0), threads)
    return found


def _number(row: Row, key: str) -> int:
    said = value(row, key)
    return int(said) if said.isdecimal() else 0


def cluster_defaults(
    found: Mapping[str, NodeShare], now: Mapping[str, str], *, memory: bool
) -> dict[str, str]:
    """Settings of the whole cluster: what fits on each of its nodes; the site's own stay.

    now: slurm.conf's settings by lower-case key. memory: whether Slurm counts it.
    """
    out = _shares(found.values(), now, memory=memory)
    if memory and out.get("DefMemPerGPU"):
        # Else a job without GPUs would still take all memory of its node.
        out["DefMemPerCPU"] = str(min(room.memory // room.cpus for room in found.values()) >> 20)
    return out


def partition_defaults(
    found: Mapping[str, NodeShare],
    nodes: Iterable[str],
    row: Row,
    now: Mapping[str, str],
    memory: bool,
) -> dict[str, str]:
    """Settings of a partition, where its nodes have more for each GPU than the poorest node."""
    mine = {key.lower(): v for key, v in row.items()}
    if any(key.lower() in mine for key in _MEMORY):
        return {}
    own = _shares([found[name] for name in nodes], {**now, **mine}, memory=memory)
    every = _shares(found.values(), now, memory=memory)
    return {key: number for key, number in own.items() if every.get(key) != number}


def _shares(found: Iterable[NodeShare], now: Mapping[str, str], *, memory: bool) -> dict[str, str]:
    those = list(found)
    told = {word.partition("=")[0].lower() for word in now.get("jobdefaults", "").split(",")}
    told |= now.keys()
    out = {}
    if "defcpupergpu" not in told:
        out["DefCpuPerGPU"] = str(min(room.cpus_per_gpu for room in those))
    least = min(room.memory_per_gpu for room in those) >> 20
    if memory and least and not told & {key.lower() for key in _MEMORY}:
        out["DefMemPerGPU"] = str(least)
    return out


def memory_notes(
    found: Mapping[str, NodeShare], now: Mapping[str, str], *, memory: bool
) -> list[str]:
    """What an administrator should hear of memory."""
    silent = [name for name, room in found.items() if not room.memory_per_gpu]
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
        return ["DefMemPerNode stands in slurm.conf: a job of one GPU takes that much of its node"]
    return []
