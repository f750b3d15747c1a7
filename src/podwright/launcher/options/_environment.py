"""The environment of a launched instance.

Names and roles follow the PopRun guide, sections 2.6 to 2.8, and logs of PopRun. The target options
are those that PopRun was observed to derive from partitions of V-IPU. Frameworks read RANK and its
like.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.errors import InvalidRequest
from podwright.hosts import is_here

if TYPE_CHECKING:
    from podwright.wire import PartitionInfo

#: Seconds that a request to the V-IPU server may take (PopRun guide, options).
SERVER_TIMEOUT = 120.0
TIMEOUT_VARIABLE = "IPUOF_VIPU_API_TIMEOUT"
TARGET_VARIABLE = "POPLAR_TARGET_OPTIONS"
SIMULATED_VARIABLE = "PODWRIGHT_SIMULATED"
#: Which shared memory the instances use: the host's, or one of their launch alone.
IPC_VARIABLE, IPC_HOST, IPC_PRIVATE = "PODWRIGHT_IPC", "host", "private"
#: Variables that are unset for all instances. The first would make the IPUoF library bypass the
#: server (PopRun guide, 2.4.3). The others belong to the launch of which poprun itself is an
#: instance, if it is one.
UNSET = (
    "IPUOF_CONFIG_PATH",
    "PODWRIGHT_CPUS",
    "PODWRIGHT_GPUS",
    "PODWRIGHT_NUMA_NODES",
    "POPDIST_SECRET",
    "POPDIST_SECRET_FILE",
    "POPDIST_TRACE",
)

_NVIDIA_VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_AMD_VISIBLE = ("ROCR_VISIBLE_DEVICES",)

#: The codes of routings, by name.
_LINKS = {
    "RINGSWNC": ("slidingWindow", "torus"),
    "SWNC": ("slidingWindow", "mesh"),
}


def common_environment(
    replicas: int, ipus_per_replica: int, instances: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of all instances, on whichever partition they run."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(replicas),
        "POPDIST_NUM_IPUS_PER_REPLICA": str(ipus_per_replica),
        "POPDIST_NUM_LOCAL_REPLICAS": str(replicas // instances),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "IPUOF_LOG_LEVEL": environ.get("IPUOF_LOG_LEVEL", "WARN"),
        "WORLD_SIZE": str(instances),
        "LOCAL_WORLD_SIZE": str(instances),
    }


def whose_ipc(option: str | None, environ: Mapping[str, str]) -> str:
    """Return IPC_HOST, IPC_PRIVATE, or nothing when neither was chosen. Raises InvalidRequest."""
    choice = environ.get(IPC_VARIABLE, "") if option is None else option
    if choice not in ("", IPC_HOST, IPC_PRIVATE):
        raise InvalidRequest(
            f"{IPC_VARIABLE}={choice!r} is not {IPC_HOST} or {IPC_PRIVATE}",
            would_work=f"Use --ipc={IPC_PRIVATE}, or unset it",
        )
    return choice


def instance_environment(index: int, local_index: int, replicas: int) -> dict[str, str]:
    """Return the variables of one instance. Its GCD has the instance's own number."""
    return {
        "POPDIST_REPLICA_INDEX_OFFSET": str(index * replicas),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(local_index),
        "IPUOF_VIPU_API_GCD_ID": str(index),
        "RANK": str(index),
        "LOCAL_RANK": str(local_index),
    }


def local_index_environment(local_index: int) -> dict[str, str]:
    """Return the variables of an instance that change when it moves to another host."""
    return {"POPDIST_LOCAL_INSTANCE_INDEX": str(local_index), "LOCAL_RANK": str(local_index)}


def partition_environment(
    partition: PartitionInfo, host: str, port: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of all instances that follow from the partition.

    host, port: the address of its server.
    """
    variables = {"IPUOF_VIPU_API_PARTITION_ID": partition.name}
    if host:
        variables["IPUOF_VIPU_API_HOST"] = host
    if port:
        variables["IPUOF_VIPU_API_PORT"] = port
    variables[TARGET_VARIABLE] = environ.get(TARGET_VARIABLE) or target_options(partition)
    if partition.simulated:
        variables[SIMULATED_VARIABLE] = "1"
    return variables


def visible_gpus(partition: PartitionInfo, instances: int) -> dict[str, str]:
    """Return the GPUs that each instance is to see, for the script in front of it.

    Empty for devices that are not GPUs, which programs reach in another way. GPUs are named by
    UUID, so that the names mean the same whatever else is visible. Raises InvalidRequest for an
    instance with several slices of GPUs (MIG), because CUDA shows a program only one.
    """
    names = [[device.chip_id for device in gcd] for gcd in partition.gcds]
    kinds = {name.partition("-")[0] for gcd in names for name in gcd}
    if len(names) != instances or not kinds <= {"GPU", "MIG"}:
        return {}
    if "MIG" in kinds and any(len(gcd) > 1 for gcd in names):
        raise InvalidRequest(
            "an instance would have several slices of GPUs, and a program uses one",
            operation=f"a launch on partition {partition.name}",
            would_work=f"--num-instances {partition.size} --ipus-per-replica 1",
        )
    # AMD's are 16 digits, NVIDIA's are UUIDs.
    amd = all(n.count("-") == 1 for gcd in names for n in gcd)
    return {
        "PODWRIGHT_GPUS": ";".join(",".join(gcd) for gcd in names),
        "PODWRIGHT_GPUS_AS": " ".join(_AMD_VISIBLE if amd else _NVIDIA_VISIBLE),
    }


def check_hosts(partition: PartitionInfo, hosts: Sequence[str]) -> None:
    """Check that each instance runs on the host of its GCD's GPUs. hosts: by instance.

    Devices of a pool are at the host to which they are attached. Raises InvalidRequest that names
    the hosts to use.
    """
    if partition.hosts:
        _check_attached(partition, hosts)
        return
    for rank, (host, gcd) in enumerate(zip(hosts, partition.gcds, strict=True)):
        for device in gcd:
            if not _same_host(host, device.ip, device.machine):
                machines = dict.fromkeys(d.machine for devices in partition.gcds for d in devices)
                raise InvalidRequest(
                    f"instance {rank} is to run on {host}, and its GPUs are in {device.machine}",
                    operation=f"a launch on partition {partition.name}",
                    would_work=f"make the partition first, and launch with --vipu-partition="
                    f"{partition.name} --host {','.join(machines)}",
                )


def _check_attached(partition: PartitionInfo, hosts: Sequence[str]) -> None:
    for rank, host in enumerate(hosts):
        attached = partition.hosts[rank * len(partition.hosts) // len(hosts)]
        if not _same_host(host, attached):
            raise InvalidRequest(
                f"instance {rank} is to run on {host}, and its devices are attached to {attached}",
                operation=f"a launch on partition {partition.name}",
                would_work=f"--host {','.join(partition.hosts)}",
            )


def _same_host(host: str, *names: str) -> bool:
    if any(_short(host) == _short(name) for name in names):
        return True
    return is_here(host) and any(is_here(name) for name in names if name)


def _short(host: str) -> str:
    """Return a name up to its first dot; an address unchanged."""
    return host if host.replace(".", "").isdecimal() or ":" in host else host.split(".")[0]


def target_options(partition: PartitionInfo) -> str:
    """Return a partition's target options as the JSON that Poplar reads, in which all values are
    strings.
    """
    configuration, topology = _LINKS.get(partition.routing.name, ("default", "mesh"))
    options = {
        "ipuLinkDomainSize": str(partition.size // max(partition.num_ilds, 1)),
        "ipuLinkConfiguration": configuration,
        "ipuLinkTopology": topology,
        "gatewayMode": "true",
        "instanceSize": str(partition.size // max(partition.num_gcds, 1)),
    }
    return "{" + ",".join(f'"{name}":"{value}"' for name, value in options.items()) + "}"


def given_variables(words: Iterable[str]) -> dict[str, str]:
    """Return the variables that arguments for mpirun set: each `-x NAME=value`."""
    variables, is_variable = {}, False
    for word in words:
        name, equals, value = word.partition("=")
        if is_variable and equals:
            variables[name] = value
        is_variable = word == "-x" and not is_variable
    return variables


def whole_environment(
    environ: Mapping[str, str], *layers: Mapping[str, str] | tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """Return the caller's environment, overridden by these layers, without the variables to
    unset.
    """
    merged = {name: value for name, value in environ.items() if name not in UNSET}
    for layer in layers:
        merged.update(layer)
    return merged
