"""Reads Slurm's answer from what `scontrol --oneliner --details show job` prints of one job.
Pure.
"""

from __future__ import annotations

import re

from podwright.hosts import expand_names
from podwright.slurm.twin._twin_types import Granted, GrantedNode, Refused, Waits

_NODE_DETAILS_PATTERN = re.compile(r" Nodes=(\S+) CPU_IDs=(\S*) Mem=(\d+) GRES=(\S*)")
_GRES_INDEX_PATTERN = re.compile(r"(gpu|shard|mps)[^(]*?:(\d+)\(([^)]*)\)")
_JOB_STATE_PATTERN = re.compile(r"\bJobState=(\S+)(?:.*? Reason=(\S+))?")
_RUNNING_STATES = ("RUNNING", "CONFIGURING", "COMPLETING")


def read_job_answer(record: str, messages: str = "") -> Granted | Waits | Refused | None:
    """Return Slurm's answer for a job, or None where slurmctld has not looked at the job yet."""
    state_match = _JOB_STATE_PATTERN.search(record)
    if not state_match:
        return None
    state, reason = state_match[1], state_match[2] or ""
    if state in _RUNNING_STATES:
        return Granted(granted_nodes(record), _field(record, "Partition"), record, messages)
    if state == "FAILED":  # slurmctld keeps the job that it refused to salloc or srun
        return refused(messages or reason)
    if state != "PENDING":
        return Waits(state, record, messages)
    return None if reason in ("", "None") else Waits(reason, record, messages)


def refused(messages: str) -> Refused:
    """Return a refusal, with the reason that the command printed."""
    message_lines = [line for line in messages.splitlines() if line.strip()]
    error_lines = [line for line in message_lines if "error:" in line]
    return Refused((error_lines or message_lines or ["refused without a reason"])[-1], messages)


def granted_nodes(record: str) -> tuple[GrantedNode, ...]:
    """Return the nodes of a running job with what the job has on each, in the order of their
    names.
    """
    nodes_by_name = {
        node_name: GrantedNode(node_name, (), 0)
        for node_name in expand_names(_field(record, "NodeList").replace("(null)", ""))
    }
    for node_list, cpu_list, mib, gres in _NODE_DETAILS_PATTERN.findall(record):
        gpus, shares = _parse_gres_devices(gres)
        for node_name in expand_names(node_list):
            nodes_by_name[node_name] = GrantedNode(
                node_name, numbers(cpu_list), int(mib), gpus, shares
            )
    return tuple(nodes_by_name[node_name] for node_name in sorted(nodes_by_name))


def _field(record: str, field_name: str) -> str:
    field_match = re.search(rf" {field_name}=(\S+)", record)
    return field_match[1] if field_match else ""


def _parse_gres_devices(gres: str) -> tuple[tuple[int, ...], dict[int, int]]:
    """Return GPUs by number, and shares by GPU, from `gpu:a100:2(IDX:0-1),shard:2(2/4,0/4)`."""
    gpus: set[int] = set()
    shares: dict[int, int] = {}
    for gres_name, share_count, device_indices in _GRES_INDEX_PATTERN.findall(gres):
        if device_indices.startswith("IDX:"):
            gpu_numbers = numbers(device_indices[4:])
            if gres_name == "gpu":
                gpus.update(gpu_numbers)
            else:
                shares.update(dict.fromkeys(gpu_numbers, int(share_count)))
        elif "/" in device_indices:
            for gpu, text in enumerate(device_indices.split(",")):
                if int(text.split("/")[0]):
                    shares[gpu] = int(text.split("/")[0])
    return tuple(sorted(gpus)), shares


def numbers(number_list: str) -> tuple[int, ...]:
    """Return the numbers in `0-3,8`."""
    listed_numbers: list[int] = []
    for text in number_list.split(","):
        low, dash, high = text.partition("-")
        if low.isdecimal():
            listed_numbers += range(int(low), int(high if dash else low) + 1)
    return tuple(listed_numbers)
