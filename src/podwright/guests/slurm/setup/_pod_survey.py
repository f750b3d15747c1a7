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


def survey(client: Client, named: Sequence[str]) -> tuple[SlurmPod, ...]:
    """Return the pods of a site. named: TYPE=CLUSTER[/ALLOCATION][@FEATURE]; empty: all clusters.

    The first pod's licence is `ipu`; each other pod's is named like its type. Raises
    InvalidRequest.
    """
    clusters = {cluster.name: cluster for cluster in client.list_clusters()}
    words = list(named) or list(clusters)
    pods: list[SlurmPod] = []
    for word in words:
        kind, _, place = word.partition("=")
        place, at_sign, feature = (place or kind).partition("@")
        cluster, _, allocation = place.partition("/")
        if cluster not in clusters:
            raise InvalidRequest(
                f"there is no cluster {cluster}",
                operation=f"--pod {word}",
                would_work=f"choose one of {', '.join(clusters)}",
            )
        if not kind.replace("_", "").isalnum():
            raise InvalidRequest(f"{kind!r} is not a type", would_work="use letters, digits and _")
        if at_sign and not feature.replace("_", "").isalnum():
            raise InvalidRequest(
                f"{feature!r} is not a feature of nodes",
                operation=f"--pod {word}",
                would_work="choose one of slurm.conf's: NodeName=... Feature=NAME",
            )
        blocks = BuddyBlocks(
            PodPlaces(client.list_devices(cluster=cluster, allocation=allocation)).capacity
        )
        domain = max(clusters[cluster].ild_sizes)
        largest = 1 << (blocks.orders - 1)
        if clusters[cluster].topology == "none":
            largest = min(largest, 1 << (domain.bit_length() - 1))
        sizes = _sizes(clusters[cluster], domain, largest)
        pods.append(
            SlurmPod(
                type=kind,
                cluster=cluster,
                allocation=allocation,
                feature=feature,
                devices=blocks.capacity.bit_count(),
                largest=sizes[-1],
                sizes=sizes,
                domain=1 << (domain.bit_length() - 1),
                licence="ipu" if not pods else kind,
            )
        )
    return tuple(pods)


def _family(cluster: ClusterInfo) -> Family:
    family = family_named(cluster.family)
    if family is None:
        raise InvalidRequest(
            f"the family {cluster.family} of cluster {cluster.name} is not known here",
            would_work="install the package that brings it on this host, too",
        )
    return family


def _sizes(cluster: ClusterInfo, domain: int, largest: int) -> tuple[int, ...]:
    """Return the sizes of its family that Slurm can count: Slurm counts aligned blocks of a power
    of two.

    Above the size of a link domain, these are whole domains. Raises InvalidRequest where there are
    none.
    """
    family = _family(cluster)
    legal = family.sizes(domain)
    powers = (1 << order for order in range(largest.bit_length()))
    sizes = tuple(size for size in powers if size > domain or size in legal)
    if not sizes:
        examples = ", ".join(map(str, legal[:4])) or "no"
        raise InvalidRequest(
            f"partitions of cluster {cluster.name} have {examples} ... devices, and Slurm counts "
            "blocks of a power of two",
            operation=f"schedule {family.device_noun}s by number",
            would_work="--mode static, or --mode host-mapping",
        )
    return sizes


def mapping(client: Client, text: str, path: str) -> tuple[Mapped, ...]:
    """Read a mapping file: `host:machine,machine` on each line, and `#` begins a comment (V-IPU
    guide).

    Raises InvalidRequest, which names the line.
    """
    homes: dict[str, ClusterInfo] = {}
    devices: dict[str, int] = {}
    for cluster in client.list_clusters():
        homes |= dict.fromkeys(cluster.machines, cluster)
    for device in client.list_devices():
        machine = device.device.machine
        devices[machine] = devices.get(machine, 0) + 1
    hosts: dict[str, Mapped] = {}
    owners: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        name, colon, rest = (part.strip() for part in words.partition(":"))
        machines = tuple(word.strip() for word in rest.split(",") if word.strip())
        action = f"{path}:{number}"
        if not (name and colon and machines):
            raise InvalidRequest(
                f"not understood: {words}", operation=action, would_work="host:m1,m2"
            )
        if name in hosts:
            raise InvalidRequest(f"host {name} has a line already", operation=action)
        for machine in machines:
            if machine not in homes:
                raise InvalidRequest(
                    f"the server has no machine {machine}",
                    operation=action,
                    would_work=f"choose one of {', '.join(sorted(homes)[:8])}",
                )
            if machine in owners:
                raise InvalidRequest(
                    f"machine {machine} is host {owners[machine]}'s already", operation=action
                )
            owners[machine] = name
        if len({homes[machine].name for machine in machines}) > 1:
            raise InvalidRequest(f"the machines of {name} are in two clusters", operation=action)
        home = homes[machines[0]]
        family = _family(home)
        hosts[name] = Mapped(
            name=name,
            cluster=home.name,
            machines=machines,
            devices=sum(devices[machine] for machine in machines),
            sizes=family.allocation_sizes_in_domain,
            size_multiple=family.max_domain_devices,
        )
    if not hosts:
        raise InvalidRequest("it maps no host", operation=path, would_work="host:m1,m2 on a line")
    return tuple(hosts.values())


def shelf(client: Client, named: Sequence[str]) -> tuple[Fixed, ...]:
    """Return the partitions to give out. named: these; empty: all that are not reconfigurable.

    Raises InvalidRequest.
    """
    infos = {info.name: info for info in client.list_partitions() if not info.job}
    names = list(named) or [name for name, info in infos.items() if not info.reconfigurable]
    for name in names:
        _check_known(name, infos)
    if not names:
        raise InvalidRequest(
            "there are no partitions to hand over",
            would_work="make them first, vipu create partition s4-1 --size 4, and run this again",
        )
    chosen = [infos[name] for name in dict.fromkeys(names)]
    return tuple(
        Fixed(name=info.name, cluster=info.cluster, size=info.size, gcds=info.num_gcds)
        for info in chosen
    )


def shared(client: Client, named: Sequence[str]) -> tuple[str, SlurmPod]:
    """Return the one reconfigurable partition, and what Slurm counts of it. Raises
    InvalidRequest.
    """
    infos = {info.name: info for info in client.list_partitions() if not info.job}
    names = list(named) or [name for name, info in infos.items() if info.reconfigurable]
    if len(names) != 1:
        raise InvalidRequest(
            f"there are {len(names)} partitions that could be the shared one",
            would_work="name it with --partition"
            if names
            else "make it first: vipu create partition all --size 64 --reconfigurable",
        )
    _check_known(names[0], infos)
    info = infos[names[0]]
    if not info.reconfigurable:
        raise InvalidRequest(f"partition {info.name} is not reconfigurable")
    size = info.size
    pod = SlurmPod(
        type="shared",
        cluster=info.cluster,
        allocation=info.allocation,
        devices=size,
        largest=size,
        domain=size,
    )
    return info.name, pod


def _check_known(name: str, infos: Mapping[str, PartitionInfo]) -> None:
    if name not in infos:
        raise InvalidRequest(
            f"there is no partition {name}",
            would_work=f"choose one of {', '.join(sorted(infos)[:8]) or 'none: make it first'}",
        )
