"""Partitions out of `scontrol --oneliner show partition`: limits and defaults."""

from __future__ import annotations

import re

from podwright.slurm.gpus.requests._units import MIB, is_number, minutes, names
from podwright.slurm.gpus.requests._values import UNLIMITED, SlurmPartition


def read_partitions(text: str, there: set[str]) -> tuple[tuple[SlurmPartition, ...], str]:
    """All of them, and the name of the default one. there: all nodes."""
    found, default = [], ""
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        name = fields.get("PartitionName", "")
        if not name:
            continue
        if fields.get("Default") == "YES":
            default = name
        found.append(_partition(name, fields, there))
    return tuple(found) or (SlurmPartition(),), default


def _partition(name: str, fields: dict[str, str], there: set[str]) -> SlurmPartition:
    listed = fields.get("Nodes", "")
    nodes = there if listed == "ALL" else set(names(listed)) & there
    state = fields.get("State", "UP")
    defaults = fields.get("JobDefaults", "")
    default_time = fields.get("DefaultTime", "NONE")
    return SlurmPartition(
        name=name,
        nodes=frozenset(nodes),
        min_nodes=_count(fields, "MinNodes", 0),
        max_nodes=_count(fields, "MaxNodes", UNLIMITED),
        max_cpus_per_node=_count(fields, "MaxCPUsPerNode", UNLIMITED),
        max_cpus_per_socket=_count(fields, "MaxCPUsPerSocket", UNLIMITED),
        memory=sized(fields, "Def"),
        most_memory=sized(fields, "Max"),
        max_time=_time(fields.get("MaxTime", "UNLIMITED")),
        default_time=None if default_time == "NONE" else _time(default_time),
        share=_share(fields),
        least_loaded=fields.get("LLN", "NO") == "YES",
        cpus_per_gpu=_default(defaults, "DefCpuPerGPU"),
        memory_per_gpu=_default(defaults, "DefMemPerGPU") * MIB,
        up=state in ("UP", "DRAIN"),
        accepts=state in ("UP", "DOWN"),
        priority=_count(fields, "PriorityTier", 1),
        unmodelled=_unmodelled(fields),
        topology=fields.get("Topology", "").replace("(null)", ""),
        cpu_bind=fields.get("CpuBind", ""),
    )


def _unmodelled(fields: dict[str, str]) -> str:
    own = fields.get("SelectTypeParameters", "NONE")
    if own not in ("NONE", "(null)", "N/A"):
        return f"SelectTypeParameters={own} of a partition"
    closed = fields.get("State", "UP") in ("DRAIN", "INACTIVE")
    if closed and fields.get("Alternate", "NONE") not in ("NONE", "(null)"):
        return "Alternate= of a partition"
    return ""


def _share(fields: dict[str, str]) -> int:
    if fields.get("Exclusive") == "NODE":
        return 0
    word = fields.get("OverSubscribe", fields.get("Shared", "NO")).partition(":")[0]
    return {"EXCLUSIVE": 0, "NO": 1, "YES": 2, "FORCE": 3}.get(word, 1)


def _count(fields: dict[str, str], key: str, missing: int) -> int:
    value = fields.get(key, "")
    return int(value) if is_number(value) else missing


def _time(text: str) -> int:
    return UNLIMITED if text in ("UNLIMITED", "INFINITE", "NONE") else minutes(text, "time")


def _default(text: str, key: str) -> int:
    found = re.search(rf"{key}=(\d+)", text, re.I)
    return int(found[1]) if found else 0


def sized(fields: dict[str, str], which: str) -> tuple[int, bool]:
    """DefMem… or MaxMem…: (bytes, whether each CPU), (0, False) where there is none."""
    for key, per_cpu in ((f"{which}MemPerCPU", True), (f"{which}MemPerNode", False)):
        value = fields.get(key, "")
        if is_number(value) and int(value):
            return int(value) * MIB, per_cpu
    return 0, False
