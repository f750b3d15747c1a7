"""Slurm's grant of GPUs as a partition: what a job was given is checked and taken over.

Where GPUs sit in nodes that Slurm manages, Slurm alone chooses. A partition of just those GPUs is
what their fabric and guards can be set up for, before the job's first instruction.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from podwright.client import Client
from podwright.errors import InvalidRequest, WrongState
from podwright.hosts import expand, read_list
from podwright.wire import CreateRequest, DeviceInfo, PartitionInfo, PartitionSpec, ReadyState

_GPUS = re.compile(r"gpu(?::[^(),:]+)?:\d+\(IDX:([0-9,-]+)\)")
_NODES = re.compile(r"\bNodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")


class GrantedJob(NamedTuple):
    """What Slurm gave a job. gpus: node and number there, as gres.conf counts."""

    job: str
    user: str
    uid: int
    state: str
    gpus: tuple[tuple[str, int], ...]


def read_grant(text: str) -> GrantedJob:
    """What `scontrol -d -o show job` says. Raises InvalidRequest where it says of no GPU."""
    job = re.search(r"\bJobId=(\d+)", text)
    user = re.search(r"\bUserId=([^\s()]+)\((\d+)\)", text)
    state = re.search(r"\bJobState=(\w+)", text)
    if not (job and user and state):
        raise InvalidRequest("scontrol tells of no job", asked="adopt a job's GPUs")
    gpus = [
        (node, index)
        for nodes, gres in _NODES.findall(text)
        for node in expand(nodes)
        for numbers in _GPUS.findall(gres)
        for index in read_list(numbers)
    ]
    if not gpus:
        raise InvalidRequest(
            f"job {job[1]} is {state[1].lower()} and has no GPUs",
            asked=f"adopt the GPUs of job {job[1]}",
            would_work="a job that runs, or is being set up, with --gpus-per-node=N",
        )
    return GrantedJob(job[1], user[1], int(user[2]), state[1], tuple(gpus))


def partition_name(job: str) -> str:
    """What the partition of a job is called."""
    return f"job{job}"


def adopt(client: Client, grant: GrantedJob) -> PartitionInfo:
    """The partition of a job's GPUs, made if it is not there.

    Raises WrongState where the server knows them as something else than a job can be given, and
    whatever creation raises.
    """
    action = f"adopt the GPUs of job {grant.job}"
    found = _devices(client.list_devices(), grant, action)
    name = partition_name(grant.job)
    for info in client.list_partitions():
        if info.name == name:
            held = {(d.machine, d.index) for gcd in info.gcds for d in gcd}
            if held != set(grant.gpus):
                raise WrongState(
                    f"partition {name} has other GPUs than Slurm gave job {grant.job}",
                    asked=action,
                    would_work=f"podwright slurm adopt {grant.job} --release, and again",
                )
            return info
    spec = PartitionSpec(
        name=name,
        cluster=found[0].cluster,
        num_gcds=len(found),
        devices=[(one.device.domain, one.device.offset) for one in found],
    )
    made = client.call(
        "CreatePartition",
        CreateRequest(spec=spec, owner=grant.user, owner_uid=grant.uid, job=grant.job),
    )
    assert isinstance(made, PartitionInfo)
    if made.ready_state is not ReadyState.ACTIVE:
        client.remove_partition(name, force=True)
        raise WrongState("; ".join(made.errors) or "the devices cannot be had", asked=action)
    return made


def _devices(known: Sequence[DeviceInfo], grant: GrantedJob, action: str) -> list[DeviceInfo]:
    by_place = {(one.device.machine, one.device.index): one for one in known}
    cut = {one.device.machine for one in known if one.device.chip_id.startswith("MIG-")}
    mine = partition_name(grant.job)
    found = []
    for node, index in grant.gpus:
        if node in cut:
            raise WrongState(
                f"GPUs of node {node} are cut into slices, which Slurm counts in its own order",
                asked=action,
                would_work="no partition there: podwright slurm configure --gpus --confine keeps "
                "slices apart, and they have no NVLink",
            )
        one = by_place.get((node, index))
        if one is None:
            raise WrongState(
                f"this server knows no GPU {index} of node {node}",
                asked=action,
                would_work="an agent on each node, called as Slurm calls the node, and gres.conf "
                "from podwright slurm configure --gpus",
            )
        if one.partition not in ("", mine):
            raise WrongState(
                f"GPU {index} of node {node} is in partition {one.partition}",
                asked=action,
                would_work=f"vipu remove partition {one.partition}: Slurm alone gives these out",
            )
        if one.state not in ("FREE", "IN_USE"):
            raise WrongState(
                f"GPU {index} of node {node} is {one.state.lower()}",
                asked=action,
                would_work=f"scontrol update nodename={node} state=drain reason='GPU {index}'",
            )
        found.append(one)
    if len({one.cluster for one in found}) > 1:
        raise WrongState("they are of several clusters", asked=action)
    return found
