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
SERVER_TIMEOUT_SECONDS = 120.0
TIMEOUT_VARIABLE = "IPUOF_VIPU_API_TIMEOUT"
TARGET_VARIABLE = "POPLAR_TARGET_OPTIONS"
SIMULATED_VARIABLE = "PODWRIGHT_SIMULATED"
#: Which shared memory the instances use: the host's, or one of their launch alone.
IPC_VARIABLE, HOST_IPC, PRIVATE_IPC = "PODWRIGHT_IPC", "host", "private"
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

_NVIDIA_VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_AMD_VISIBILITY_VARIABLES = ("ROCR_VISIBLE_DEVICES",)

#: The codes of routings, by name.
_LINK_OPTIONS_BY_ROUTING = {
    "RINGSWNC": ("slidingWindow", "torus"),
    "SWNC": ("slidingWindow", "mesh"),
}


def common_environment(
    total_replicas: int, ipus_per_replica: int, instance_count: int, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of all instances, on whichever partition they run."""
    return {
        "POPDIST_NUM_TOTAL_REPLICAS": str(total_replicas),
        "POPDIST_NUM_IPUS_PER_REPLICA": str(ipus_per_replica),
        "POPDIST_NUM_LOCAL_REPLICAS": str(total_replicas // instance_count),
        "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": "1",
        "IPUOF_LOG_LEVEL": environ.get("IPUOF_LOG_LEVEL", "WARN"),
        "WORLD_SIZE": str(instance_count),
        "LOCAL_WORLD_SIZE": str(instance_count),
    }


def chosen_ipc(ipc_option: str | None, environ: Mapping[str, str]) -> str:
    """Return HOST_IPC, PRIVATE_IPC, or nothing when neither was chosen. Raises InvalidRequest."""
    choice = environ.get(IPC_VARIABLE, "") if ipc_option is None else ipc_option
    if choice not in ("", HOST_IPC, PRIVATE_IPC):
        raise InvalidRequest(
            f"{IPC_VARIABLE}={choice!r} is not {HOST_IPC} or {PRIVATE_IPC}",
            would_work=f"Use --ipc={PRIVATE_IPC}, or unset it",
        )
    return choice


def instance_environment(
    instance_rank: int, local_rank: int, replicas_per_instance: int
) -> dict[str, str]:
    """Return the variables of one instance. Its GCD has the instance's own number."""
    return {
        "POPDIST_REPLICA_INDEX_OFFSET": str(instance_rank * replicas_per_instance),
        "POPDIST_LOCAL_INSTANCE_INDEX": str(local_rank),
        "IPUOF_VIPU_API_GCD_ID": str(instance_rank),
        "RANK": str(instance_rank),
        "LOCAL_RANK": str(local_rank),
    }


def local_index_environment(local_rank: int) -> dict[str, str]:
    """Return the variables of an instance that change when it moves to another host."""
    return {"POPDIST_LOCAL_INSTANCE_INDEX": str(local_rank), "LOCAL_RANK": str(local_rank)}


def partition_environment(
    partition: PartitionInfo, server_host: str, server_port: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of all instances that follow from the partition.

    host, server_port: the address of its server.
    """
    variables = {"IPUOF_VIPU_API_PARTITION_ID": partition.name}
    if server_host:
        variables["IPUOF_VIPU_API_HOST"] = server_host
    if server_port:
        variables["IPUOF_VIPU_API_PORT"] = server_port
    variables[TARGET_VARIABLE] = environ.get(TARGET_VARIABLE) or target_options(partition)
    if partition.simulated:
        variables[SIMULATED_VARIABLE] = "1"
    return variables


def visible_gpus(partition: PartitionInfo, instance_count: int) -> dict[str, str]:
    """Return the GPUs that each instance is to see, for the script in front of it.

    Empty for devices that are not GPUs, which programs reach in another way. GPUs are named by
    UUID, so that the names mean the same whatever else is visible. Raises InvalidRequest for an
    instance with several slices of GPUs (MIG), because CUDA shows a program only one.
    """
    gpu_ids_by_gcd = [[device.chip_id for device in gcd] for gcd in partition.gcds]
    id_prefixes = {gpu_id.partition("-")[0] for gcd in gpu_ids_by_gcd for gpu_id in gcd}
    if len(gpu_ids_by_gcd) != instance_count or not id_prefixes <= {"GPU", "MIG"}:
        return {}
    if "MIG" in id_prefixes and any(len(gcd) > 1 for gcd in gpu_ids_by_gcd):
        raise InvalidRequest(
            "an instance would have several slices of GPUs, and a program uses one",
            operation=f"a launch on partition {partition.name}",
            would_work=f"--num-instances {partition.size} --ipus-per-replica 1",
        )
    # AMD's are 16 digits, NVIDIA's are UUIDs.
    all_amd = all(amd_id.count("-") == 1 for gcd in gpu_ids_by_gcd for amd_id in gcd)
    # ROCm has no name for a part of a socket (`GPU-….3`), so its number on the host is used.
    names_by_gcd = [
        [str(device.index) if "." in device.chip_id else device.chip_id for device in gcd]
        for gcd in partition.gcds
    ]
    return {
        "PODWRIGHT_GPUS": ";".join(",".join(gcd) for gcd in names_by_gcd),
        "PODWRIGHT_GPUS_AS": " ".join(
            _AMD_VISIBILITY_VARIABLES if all_amd else _NVIDIA_VISIBILITY_VARIABLES
        ),
    }


def check_hosts(partition: PartitionInfo, hosts: Sequence[str]) -> None:
    """Check that each instance runs on the host of its GCD's GPUs. hosts: by instance.

    Devices of a pool are at the host to which they are attached. Raises InvalidRequest that names
    the hosts to use.
    """
    if partition.hosts:
        _check_attached(partition, hosts)
        return
    for instance_rank, (instance_host, gcd) in enumerate(zip(hosts, partition.gcds, strict=True)):
        for device in gcd:
            if not _is_same_host(instance_host, device.ip, device.machine):
                machine_names = dict.fromkeys(
                    other_device.machine for devices in partition.gcds for other_device in devices
                )
                raise InvalidRequest(
                    f"instance {instance_rank} is to run on {instance_host}, and its GPUs are in "
                    f"{device.machine}",
                    operation=f"a launch on partition {partition.name}",
                    would_work=f"make the partition first, and launch with --vipu-partition="
                    f"{partition.name} --host {','.join(machine_names)}",
                )


def _check_attached(partition: PartitionInfo, hosts: Sequence[str]) -> None:
    for instance_rank, host in enumerate(hosts):
        attached_host = partition.hosts[instance_rank * len(partition.hosts) // len(hosts)]
        if not _is_same_host(host, attached_host):
            raise InvalidRequest(
                f"instance {instance_rank} is to run on {host}, and its devices are attached to "
                f"{attached_host}",
                operation=f"a launch on partition {partition.name}",
                would_work=f"--host {','.join(partition.hosts)}",
            )


def _is_same_host(host: str, *host_names: str) -> bool:
    if any(_short_host_name(host) == _short_host_name(other_name) for other_name in host_names):
        return True
    return is_here(host) and any(is_here(other_name) for other_name in host_names if other_name)


def _short_host_name(host_name: str) -> str:
    """Return a name up to its first dot; an address unchanged."""
    return (
        host_name
        if host_name.replace(".", "").isdecimal() or ":" in host_name
        else host_name.split(".")[0]
    )


def target_options(partition: PartitionInfo) -> str:
    """Return a partition's target options as the JSON that Poplar reads, in which all values are
    strings.
    """
    link_configuration, link_topology = _LINK_OPTIONS_BY_ROUTING.get(
        partition.routing.name, ("default", "mesh")
    )
    options = {
        "ipuLinkDomainSize": str(partition.size // max(partition.num_ilds, 1)),
        "ipuLinkConfiguration": link_configuration,
        "ipuLinkTopology": link_topology,
        "gatewayMode": "true",
        "instanceSize": str(partition.size // max(partition.num_gcds, 1)),
    }
    return (
        "{" + ",".join(f'"{name}":"{option_value}"' for name, option_value in options.items()) + "}"
    )


def given_variables(mpirun_arguments: Iterable[str]) -> dict[str, str]:
    """Return the variables that arguments for mpirun set: each `-x NAME=value`."""
    variables, option = {}, False
    for argument in mpirun_arguments:
        name, sign, variable_value = argument.partition("=")
        if option and sign:
            variables[name] = variable_value
        option = argument == "-x" and not option
    return variables


def whole_environment(
    environ: Mapping[str, str], *overriding_layers: Mapping[str, str] | tuple[tuple[str, str], ...]
) -> dict[str, str]:
    """Return the caller's environment, overridden by these layers, without the variables to
    unset.
    """
    variables = {
        name: variable_value for name, variable_value in environ.items() if name not in UNSET
    }
    for layer in overriding_layers:
        variables.update(layer)
    return variables
