"""Asks the server what there is to schedule: pods, mapped machines, and partitions made
beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from podwright.client import Client
from podwright.errors import InvalidRequest
from podwright.fabric import Family, family_named
from podwright.guests.shared import PodPlaces
from podwright.guests.slurm.service import Fixed, Mapped, SlurmPod
from podwright.placement.buddy_blocks import BuddyBlocks
from podwright.wire import ClusterInfo, PartitionInfo


def survey(client: Client, pod_options: Sequence[str]) -> tuple[SlurmPod, ...]:
    """Return the pods of a site. pod_options: TYPE=CLUSTER[/ALLOCATION][@FEATURE]; empty: all
    clusters.

    The first pod's licence is `ipu`; each other pod's is named like its type. Raises
    InvalidRequest.
    """
    clusters = {cluster.name: cluster for cluster in client.list_clusters()}
    pod_specs = list(pod_options) or list(clusters)
    slurm_pods: list[SlurmPod] = []
    for pod_spec in pod_specs:
        pod_type, _, place_text = pod_spec.partition("=")
        place_text, at_sign, feature = (place_text or pod_type).partition("@")
        cluster, _, allocation = place_text.partition("/")
        if cluster not in clusters:
            raise InvalidRequest(
                f"there is no cluster {cluster}",
                operation=f"--pod {pod_spec}",
                would_work=f"choose one of {', '.join(clusters)}",
            )
        if not pod_type.replace("_", "").isalnum():
            raise InvalidRequest(
                f"{pod_type!r} is not a type", would_work="use letters, digits and _"
            )
        if at_sign and not feature.replace("_", "").isalnum():
            raise InvalidRequest(
                f"{feature!r} is not a feature of nodes",
                operation=f"--pod {pod_spec}",
                would_work="choose one of slurm.conf's: NodeName=... Feature=NAME",
            )
        pod_blocks = BuddyBlocks(
            PodPlaces(client.list_devices(cluster=cluster, allocation=allocation)).capacity
        )
        domain_size = max(clusters[cluster].ild_sizes)
        largest_size = 1 << (pod_blocks.orders - 1)
        if clusters[cluster].topology == "none":
            largest_size = min(largest_size, 1 << (domain_size.bit_length() - 1))
        pod_sizes = _countable_sizes(clusters[cluster], domain_size, largest_size)
        slurm_pods.append(
            SlurmPod(
                type=pod_type,
                cluster=cluster,
                allocation=allocation,
                feature=feature,
                devices=pod_blocks.capacity.bit_count(),
                largest=pod_sizes[-1],
                sizes=pod_sizes,
                domain=1 << (domain_size.bit_length() - 1),
                licence="ipu" if not slurm_pods else pod_type,
            )
        )
    return tuple(slurm_pods)


def _known_family(cluster: ClusterInfo) -> Family:
    family = family_named(cluster.family)
    if family is None:
        raise InvalidRequest(
            f"the family {cluster.family} of cluster {cluster.name} is not known here",
            would_work="install the package that brings it on this host, too",
        )
    return family


def _countable_sizes(cluster: ClusterInfo, domain_size: int, largest_size: int) -> tuple[int, ...]:
    """Return the sizes of its family that Slurm can count: Slurm counts aligned blocks of a power
    of two.

    Above the size of a link domain, these are whole domains. Raises InvalidRequest where there are
    none.
    """
    family = _known_family(cluster)
    legal_sizes = family.sizes(domain_size)
    powers_of_two = (1 << order for order in range(largest_size.bit_length()))
    sizes = tuple(size for size in powers_of_two if size > domain_size or size in legal_sizes)
    if not sizes:
        example_sizes = ", ".join(map(str, legal_sizes[:4])) or "no"
        raise InvalidRequest(
            f"partitions of cluster {cluster.name} have {example_sizes} ... devices, and Slurm "
            "counts blocks of a power of two",
            operation=f"schedule {family.device_noun}s by number",
            would_work="--mode static, or --mode host-mapping",
        )
    return sizes


def mapping(client: Client, mapping_text: str, mapping_path: str) -> tuple[Mapped, ...]:
    """Read a mapping file: `host:machine,machine` on each line, and `#` begins a comment (V-IPU
    guide).

    Raises InvalidRequest, which names the line.
    """
    cluster_of_machine: dict[str, ClusterInfo] = {}
    devices_by_machine: dict[str, int] = {}
    for cluster in client.list_clusters():
        cluster_of_machine |= dict.fromkeys(cluster.machines, cluster)
    for device in client.list_devices():
        machine = device.device.machine
        devices_by_machine[machine] = devices_by_machine.get(machine, 0) + 1
    mapped_hosts: dict[str, Mapped] = {}
    host_of_machine: dict[str, str] = {}
    for line_number, mapping_line in enumerate(mapping_text.splitlines(), 1):
        line_text = mapping_line.partition("#")[0].strip()
        if not line_text:
            continue
        host_name, colon, machines_text = (part.strip() for part in line_text.partition(":"))
        machines = tuple(
            machine_text.strip()
            for machine_text in machines_text.split(",")
            if machine_text.strip()
        )
        operation = f"{mapping_path}:{line_number}"
        if not (host_name and colon and machines):
            raise InvalidRequest(
                f"not understood: {line_text}", operation=operation, would_work="host:m1,m2"
            )
        if host_name in mapped_hosts:
            raise InvalidRequest(f"host {host_name} has a line already", operation=operation)
        for machine in machines:
            if machine not in cluster_of_machine:
                raise InvalidRequest(
                    f"the server has no machine {machine}",
                    operation=operation,
                    would_work=f"choose one of {', '.join(sorted(cluster_of_machine)[:8])}",
                )
            if machine in host_of_machine:
                raise InvalidRequest(
                    f"machine {machine} is host {host_of_machine[machine]}'s already",
                    operation=operation,
                )
            host_of_machine[machine] = host_name
        if len({cluster_of_machine[machine].name for machine in machines}) > 1:
            raise InvalidRequest(
                f"the machines of {host_name} are in two clusters", operation=operation
            )
        home_cluster = cluster_of_machine[machines[0]]
        family = _known_family(home_cluster)
        mapped_hosts[host_name] = Mapped(
            name=host_name,
            cluster=home_cluster.name,
            machines=machines,
            devices=sum(devices_by_machine[machine] for machine in machines),
            sizes=family.allocation_sizes_in_domain,
            size_multiple=family.max_domain_devices,
        )
    if not mapped_hosts:
        raise InvalidRequest(
            "it maps no host", operation=mapping_path, would_work="host:m1,m2 on a line"
        )
    return tuple(mapped_hosts.values())


def shelf(client: Client, named_partitions: Sequence[str]) -> tuple[Fixed, ...]:
    """Return the partitions to give out. named_partitions: these; empty: all that are not
    reconfigurable.

    Raises InvalidRequest.
    """
    partition_infos = {info.name: info for info in client.list_partitions() if not info.job}
    partition_names = list(named_partitions) or [
        name for name, info in partition_infos.items() if not info.reconfigurable
    ]
    for partition_name in partition_names:
        _check_partition_exists(partition_name, partition_infos)
    if not partition_names:
        raise InvalidRequest(
            "there are no partitions to hand over",
            would_work="make them first, vipu create partition s4-1 --size 4, and run this again",
        )
    chosen_infos = [partition_infos[name] for name in dict.fromkeys(partition_names)]
    return tuple(
        Fixed(
            name=info.name,
            cluster=info.cluster,
            size=info.size,
            gcds=info.num_gcds,
        )
        for info in chosen_infos
    )


def shared(client: Client, named_partitions: Sequence[str]) -> tuple[str, SlurmPod]:
    """Return the one reconfigurable partition, and what Slurm counts of it. Raises
    InvalidRequest.
    """
    partition_infos = {info.name: info for info in client.list_partitions() if not info.job}
    partition_names = list(named_partitions) or [
        name for name, info in partition_infos.items() if info.reconfigurable
    ]
    if len(partition_names) != 1:
        raise InvalidRequest(
            f"there are {len(partition_names)} partitions that could be the shared one",
            would_work="name it with --partition"
            if partition_names
            else "make it first: vipu create partition all --size 64 --reconfigurable",
        )
    _check_partition_exists(partition_names[0], partition_infos)
    partition_info = partition_infos[partition_names[0]]
    if not partition_info.reconfigurable:
        raise InvalidRequest(f"partition {partition_info.name} is not reconfigurable")
    partition_size = partition_info.size
    shared_pod = SlurmPod(
        type="shared",
        cluster=partition_info.cluster,
        allocation=partition_info.allocation,
        devices=partition_size,
        largest=partition_size,
        domain=partition_size,
    )
    return partition_info.name, shared_pod


def _check_partition_exists(
    partition_name: str, partition_infos: Mapping[str, PartitionInfo]
) -> None:
    if partition_name not in partition_infos:
        raise InvalidRequest(
            f"there is no partition {partition_name}",
            would_work="choose one of "
            f"{', '.join(sorted(partition_infos)[:8]) or 'none: make it first'}",
        )
