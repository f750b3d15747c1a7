"""What a launched instance finds in its environment.

Names and roles: PopRun guide, sections 2.6 to 2.8, and logs of PopRun; target options: what PopRun
was seen to derive from partitions of V-IPU. RANK and its like are what frameworks read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from podwright.errors import InvalidRequest
from podwright.hosts import is_here

if TYPE_CHECKING:
    from podwright.wire import PartitionInfo

#: Seconds a request to the V-IPU server may take (PopRun guide, options).
SERVER_TIMEOUT = 120.0
TIMEOUT_VARIABLE = "IPUOF_VIPU_API_TIMEOUT"
TARGET_VARIABLE = "POPLAR_TARGET_OPTIONS"
SIMULATED_VARIABLE = "PODWRIGHT_SIMULATED"
#: Whose shared memory the instances use: the host's, or that of their launch alone.
IPC_VARIABLE, IPC_HOST, IPC_PRIVATE = "PODWRIGHT_IPC", "host", "private"
#: Unset for all instances: it would lead the IPUoF library past the server (PopRun guide, 2.4.3).
#: The others are of the launch that poprun itself is an instance of, if it is one.
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

#: By the name of a routing.
_LINKS = {
    "RINGSWNC": ("slidingWindow", "torus"),
    "SWNC": ("slidingWindow", "mesh"),
}


def common_environment(
    replicas: int, ipus_per_replica: int, instances: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """What all instances get whatever partition they run on."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(replicas),
        "POPDIST_NUM_IPUS_PER_REPLICA": str(ipus_per_replica),
        "POPDIST_NUM_LOCAL_REPLICAS": str(replicas // instances),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "IPUOF_LOG_LEVEL": environ.get("IPUOF_LOG_LEVEL", "WARN"),
        "WORLD_SIZE": str(instances),
        "LOCAL_WORLD_SIZE": str(instances),
    }


def whose_ipc(told: str | None, environ: Mapping[str, str]) -> str:
    """IPC_HOST, IPC_PRIVATE, or nothing where neither was said. Raises InvalidRequest."""
    said = environ.get(IPC_VARIABLE, "") if told is None else told
    if said not in ("", IPC_HOST, IPC_PRIVATE):
        raise InvalidRequest(
            f"{IPC_VARIABLE}={said!r} is not {IPC_HOST} or {IPC_PRIVATE}",
            would_work=f"Use --ipc={IPC_PRIVATE}, or unset it",
        )
    return said


def instance_environment(index: int, local_index: int, replicas: int) -> dict[str, str]:
    """What one instance gets beside that. Its GCD is the one of its own number."""
    return {
        "POPDIST_REPLICA_INDEX_OFFSET": str(index * replicas),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(local_index),
        "IPUOF_VIPU_API_GCD_ID": str(index),
        "RANK": str(index),
        "LOCAL_RANK": str(local_index),
    }


def local_index_environment(local_index: int) -> dict[str, str]:
    """The part of it that is another one where the instance is moved to another host."""
    return {"POPDIST_LOCAL_INSTANCE_INDEX": str(local_index), "LOCAL_RANK": str(local_index)}


def partition_environment(
    partition: PartitionInfo, host: str, port: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """What all instances get once the partition is known. host, port: where its server answers."""
    found = {"IPUOF_VIPU_API_PARTITION_ID": partition.name}
    if host:
        found["IPUOF_VIPU_API_HOST"] = host
    if port:
        found["IPUOF_VIPU_API_PORT"] = port
    found[TARGET_VARIABLE] = environ.get(TARGET_VARIABLE) or target_options(partition)
    if partition.simulated:
        found[SIMULATED_VARIABLE] = "1"
    return found


def visible_gpus(partition: PartitionInfo, instances: int) -> dict[str, str]:
    """Which GPUs each instance is to see, for the script in front of it: it knows its number.

    Empty for devices that are none, which programs reach in another way. Names are UUIDs, so that
    they mean the same whatever else is visible. Raises InvalidRequest for an instance with several
    slices of GPUs (MIG): CUDA shows a program one.
    """
    names = [[device.chip_id for device in gcd] for gcd in partition.gcds]
    kinds = {name.partition("-")[0] for gcd in names for name in gcd}
    if len(names) != instances or not kinds <= {"GPU", "MIG"}:
        return {}
    if "MIG" in kinds and any(len(gcd) > 1 for gcd in names):
        raise InvalidRequest(
            "an instance would have several slices of GPUs, and a program uses one",
            asked=f"a launch on partition {partition.name}",
            would_work=f"--num-instances {partition.size} --ipus-per-replica 1",
        )
    # AMD's are 16 digits, NVIDIA's are UUIDs.
    amd = all(n.count("-") == 1 for gcd in names for n in gcd)
    return {
        "PODWRIGHT_GPUS": ";".join(",".join(gcd) for gcd in names),
        "PODWRIGHT_GPUS_AS": " ".join(_AMD_VISIBLE if amd else _NVIDIA_VISIBLE),
    }


def check_hosts(partition: PartitionInfo, hosts: Sequence[str]) -> None:
    """GPUs sit in hosts: each instance runs where those of its GCD are. hosts: by instance.

    Raises InvalidRequest that names the hosts to use.
    """
    for rank, (host, gcd) in enumerate(zip(hosts, partition.gcds, strict=True)):
        for device in gcd:
            if not _same_host(host, device.ip, device.machine):
                found = dict.fromkeys(d.machine for devices in partition.gcds for d in devices)
                raise InvalidRequest(
                    f"instance {rank} is to run on {host}, and its GPUs are in {device.machine}",
                    asked=f"a launch on partition {partition.name}",
                    would_work=f"make the partition first, and launch with --vipu-partition="
                    f"{partition.name} --host {','.join(found)}",
                )


def _same_host(host: str, *names: str) -> bool:
    if any(_short(host) == _short(name) for name in names):
        return True
    return is_here(host) and any(is_here(name) for name in names if name)


def _short(host: str) -> str:
    """A name up to its first dot, an address as it is."""
    return host if host.replace(".", "").isdecimal() or ":" in host else host.split(".")[0]


def target_options(partition: PartitionInfo) -> str:
    """The target options of a partition, as the JSON that Poplar reads: all values are strings."""
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
    """The variables that arguments for mpirun set: each `-x NAME=value`."""
    found, is_variable = {}, False
    for word in words:
        name, equals, value = word.partition("=")
        if is_variable and equals:
            found[name] = value
        is_variable = word == "-x" and not is_variable
    return found


def whole_environment(
    environ: Mapping[str, str], *layers: Mapping[str, str] | tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """The caller's whole environment under the given layers, without what has to be unset."""
    whole = {name: value for name, value in environ.items() if name not in UNSET}
    for layer in layers:
        whole.update(layer)
    return whole
