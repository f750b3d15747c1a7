"""Makes a partition of the GPUs that Slurm granted to a job.

On nodes that Slurm manages, Slurm alone chooses the GPUs. A partition of exactly those GPUs lets
their fabric and guards be set up before the job's first instruction.

This is the one module of `gpu` that knows the pod. It loads the pod's values when it adopts, so the
rest of `gpu` works where they are not installed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from podwright.errors import InvalidRequest, NotFound, Unavailable, WrongState
from podwright.hosts import find_program
from podwright.slurm.reader import read_jobs

if TYPE_CHECKING:
    from podwright.client import Client
    from podwright.wire import DeviceInfo, PartitionInfo


class GrantedJob(NamedTuple):
    """A job and the GPUs that Slurm granted to it. gpus: (node, index), with the indices of
    gres.conf."""

    job: str
    user: str
    uid: int
    state: str
    gpus: tuple[tuple[str, int], ...]


def read_grant(scontrol_output: str) -> GrantedJob:
    """Read the grant from the output of `scontrol -d -o show job`.

    Raises InvalidRequest for a job without GPUs, and FieldNotKnown for a job whose own name or
    comment contains such a field.
    """
    # The requested job comes first. A line break in its name or comment adds no second record.
    job = next(iter(read_jobs(scontrol_output)), None)
    if job is None:
        raise InvalidRequest("scontrol shows no job", operation="adopt a job's GPUs")
    gpus = [(node, index) for node, indices in job.gpus.items() for index in indices]
    if not gpus:
        raise InvalidRequest(
            f"job {job.number} is {job.state.lower()} and has no GPUs",
            operation=f"adopt the GPUs of job {job.number}",
            would_work="name a job that runs, or is being set up, with --gpus-per-node=N",
        )
    return GrantedJob(str(job.number), job.user.name, job.user.uid, job.state, tuple(gpus))


def partition_name(job_id: str) -> str:
    """The name of the partition of a job."""
    return f"job{job_id}"


def adopt(client: Client, grant: GrantedJob) -> PartitionInfo:
    """Return the partition of a job's GPUs, and create it if it does not exist.

    Raises WrongState where the server's view of the GPUs does not allow the grant, and whatever the
    creation of a partition raises.
    """
    from podwright.wire import CreateRequest, PartitionInfo, PartitionSpec, ReadyState

    action = f"adopt the GPUs of job {grant.job}"
    devices = _granted_devices(client.list_devices(), grant, action)
    job_partition = partition_name(grant.job)
    for info in client.list_partitions():
        if info.name == job_partition:
            partition_gpus = {(ref.machine, ref.index) for gcd in info.gcds for ref in gcd}
            if partition_gpus != set(grant.gpus):
                raise WrongState(
                    f"partition {job_partition} has other GPUs than Slurm gave job {grant.job}",
                    operation=action,
                    would_work=f"podwright slurm adopt {grant.job} --release, and again",
                )
            return info
    spec = PartitionSpec(
        name=job_partition,
        cluster=devices[0].cluster,
        num_gcds=len(devices),
        devices=[(info.device.domain, info.device.offset) for info in devices],
    )
    partition = client.call(
        "CreatePartition",
        CreateRequest(spec=spec, owner=grant.user, owner_uid=grant.uid, job=grant.job),
    )
    assert isinstance(partition, PartitionInfo)
    if partition.ready_state is not ReadyState.ACTIVE:
        client.remove_partition(job_partition, force=True)
        raise WrongState(
            "; ".join(partition.errors) or "the devices cannot be had", operation=action
        )
    return partition


def _granted_devices(
    known_devices: Sequence[DeviceInfo], grant: GrantedJob, action: str
) -> list[DeviceInfo]:
    device_by_place = {(info.device.machine, info.device.index): info for info in known_devices}
    sliced_nodes = {
        info.device.machine for info in known_devices if info.device.chip_id.startswith("MIG-")
    }
    job_partition = partition_name(grant.job)
    devices = []
    for node_name, gpu_index in grant.gpus:
        if node_name in sliced_nodes:
            raise WrongState(
                f"GPUs of node {node_name} are cut into slices, which Slurm counts in its own "
                "order",
                operation=action,
                would_work="leave the node out: podwright slurm configure --gpus --confine keeps "
                "slices apart, and they have no NVLink",
            )
        device_info = device_by_place.get((node_name, gpu_index))
        if device_info is None:
            raise WrongState(
                f"this server knows no GPU {gpu_index} of node {node_name}",
                operation=action,
                would_work="run an agent on each node under Slurm's name for the node, and make "
                "gres.conf by podwright slurm configure --gpus",
            )
        if device_info.partition not in ("", job_partition):
            raise WrongState(
                f"GPU {gpu_index} of node {node_name} is in partition {device_info.partition}",
                operation=action,
                would_work=f"vipu remove partition {device_info.partition}: Slurm alone gives "
                "these out",
            )
        if device_info.state not in ("FREE", "IN_USE"):
            raise WrongState(
                f"GPU {gpu_index} of node {node_name} is {device_info.state.lower()}",
                operation=action,
                would_work=f"scontrol update nodename={node_name} state=drain reason='GPU "
                f"{gpu_index}'",
            )
        devices.append(device_info)
    if len({info.cluster for info in devices}) > 1:
        raise WrongState("they are of several clusters", operation=action)
    return devices


def ask_grant(job_number: str) -> GrantedJob:
    """Ask Slurm what it gave a job, by its number. Raises NotFound and Unavailable."""
    scontrol_path = find_program("scontrol", os.environ)
    if scontrol_path is None:
        raise Unavailable("there is no scontrol on PATH", would_work="run it where Slurm is")
    try:
        scontrol_result = subprocess.run(
            [scontrol_path, "-d", "-o", "show", "job", job_number],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable("scontrol does not answer within 60 s") from None
    if scontrol_result.returncode:
        raise NotFound(f"Slurm shows no job {job_number}: {scontrol_result.stderr.strip()}")
    return read_grant(scontrol_result.stdout)
