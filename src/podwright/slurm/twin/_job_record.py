"""Reads Slurm's answer from what `scontrol --oneliner --details show job` prints of one job.
Pure.
"""

from __future__ import annotations

import re

from podwright.slurm.twin._site_conf import expand
from podwright.slurm.twin._values import Granted, GrantedNode, Refused, Waits

_ON_NODES = re.compile(r" Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")
_GRES = re.compile(r"(gpu|shard|mps)[^(]*?:(\d+)\(([^)]*)\)")
_STATE = re.compile(r"\bJobState=(\S+)(?:.*? Reason=(\S+))?")
_RUNS = ("RUNNING", "CONFIGURING", "COMPLETING")


def read_answer(record: str, messages: str = "") -> Granted | Waits | Refused | None:
    """Return Slurm's answer for a job, or None where slurmctld has not looked at the job yet."""
    match = _STATE.search(record)
    if not match:
        return None
    state, reason = match[1], match[2] or ""
    if state in _RUNS:
        return Granted(granted_nodes(record), _field(record, "Partition"), record, messages)
    if state == "FAILED":  # slurmctld keeps the job that it refused to salloc or srun
        return refused(messages or reason)
    if state != "PENDING":
        return Waits(state, record, messages)
    return None if reason in ("", "None") else Waits(reason, record, messages)


def refused(messages: str) -> Refused:
    """Return a refusal, with the reason that the command printed."""
    lines = [line for line in messages.splitlines() if line.strip()]
    errors = [line for line in lines if "error:" in line]
    return Refused((errors or lines or ["refused without a reason"])[-1], messages)


def granted_nodes(record: str) -> tuple[GrantedNode, ...]:
    """Return the nodes of a running job with what the job has on each, in the order of their
    names.
    """
    nodes = {
        name: GrantedNode(name, (), 0)
        for name in expand(_field(record, "NodeList").replace("(null)", ""))
    }
    for names, cpus, memory, gres in _ON_NODES.findall(record):
        gpus, shares = _devices(gres)
        for name in expand(names):
            nodes[name] = GrantedNode(name, numbers(cpus), int(memory), gpus, shares)
    return tuple(nodes[name] for name in sorted(nodes))


def _field(record: str, key: str) -> str:
    match = re.search(rf" {key}=(\S+)", record)
    return match[1] if match else ""


def _devices(gres: str) -> tuple[tuple[int, ...], dict[int, int]]:
    """Return GPUs by number, and shares by GPU, from `gpu:a100:2(IDX:0-1),shard:2(2/4,0/4)`."""
    gpus: set[int] = set()
    shares: dict[int, int] = {}
    for name, count, places in _GRES.findall(gres):
        if places.startswith("IDX:"):
            listed = numbers(places[4:])
            if name == "gpu":
                gpus.update(listed)
            else:
                shares.update(dict.fromkeys(listed, int(count)))
        elif "/" in places:
            for gpu, part in enumerate(places.split(",")):
                if int(part.split("/")[0]):
                    shares[gpu] = int(part.split("/")[0])
    return tuple(sorted(gpus)), shares


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in `0-3,8`."""
    listed: list[int] = []
    for part in text.split(","):
        low, dash, high = part.partition("-")
        if low.isdecimal():
            listed += range(int(low), int(high if dash else low) + 1)
    return tuple(listed)
