"""What a partition is asked to be: checked, completed and turned into a request for placement.

Pure. Rules are those of the V-IPU guides where they are known (chapter 1.1 for sizes, the 1.18
protocol for defaults); where they are silent we choose, and say so beside the rule.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from podwright.controller.requests._pool_hosts import short_name
from podwright.errors import InvalidRequest
from podwright.fabric import Attachment, Cluster, ClusterTopology, DomainTopology
from podwright.ground.plural import counted
from podwright.placement import Block, Request
from podwright.wire import GatewayRouting, PartitionSpec, Routing, SyncType

MAX_DEVICES: Final = 1 << 24  #: far above any pod; keeps arithmetic and messages small

_NAME_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")


def check_name(name: str, object_noun: str = "partition") -> None:
    """Raises InvalidRequest unless the name can be used in files, commands and variables."""
    if _NAME_PATTERN.fullmatch(name) is None:
        shortened = name if len(name) <= 80 else name[:77] + "..."
        raise InvalidRequest(
            f"{shortened!r} is not a name for a {object_noun}",
            would_work="use 1 to 64 letters, digits, '.', '_' or '-', not beginning with '.' or "
            "'-'",
            name=shortened,
        )


def described(spec: PartitionSpec, device_noun: str) -> str:
    """The request in words, for refusals."""
    device_count = spec.size or len(spec.devices)
    device_noun = (
        f"slice{'' if device_count == 1 else 's'} of {spec.profile}"
        if spec.profile
        else device_noun
    )
    plural_suffix = "" if device_count == 1 or spec.profile else "s"
    spec_text = f"{device_count} {device_noun}{plural_suffix}" if device_count else "any size"
    if spec.num_gcds > 1:
        spec_text += f" in {spec.num_gcds} GCDs"
    if spec.num_ilds > 0:
        spec_text += f" over {spec.num_ilds} link domain{'' if spec.num_ilds == 1 else 's'}"
    if spec.allocation:
        spec_text += f" of allocation {spec.allocation}"
    return f"partition {spec.name} of {spec_text}" if spec.name else f"a partition of {spec_text}"


class ShapeInCluster(NamedTuple):
    """What placement is asked for in one cluster. hosts: those of a pool's devices."""

    request: Request
    hosts: tuple[str, ...]


class CheckedSpec:
    """What a partition is asked to be, checked once. action: the request in words. size: devices.

    launch_hosts: where the launch will run that requests it, if one does.

    Raises InvalidRequest for what no hardware could make legal; `at` for what a cluster cannot do.
    """

    __slots__ = ("_hosts", "_shapes", "action", "size", "spec", "sync_type")

    def __init__(
        self,
        spec: PartitionSpec,
        action: str,
        *,
        for_job: bool = False,
        launch_hosts: Sequence[str] = (),
    ) -> None:
        _check_counts(spec, action, for_job=for_job)
        self.spec, self.action, self._hosts = spec, action, launch_hosts
        self.size = spec.size or len(spec.devices)
        self.sync_type = _checked_sync_type(spec, action)
        self._shapes: dict[str, tuple[Cluster, ShapeInCluster]] = {}

    def at(self, cluster: Cluster) -> ShapeInCluster:
        """The shape that placement is asked for in a cluster. Raises InvalidRequest."""
        cached = self._shapes.get(cluster.name)
        if cached is None or cached[0] is not cluster:
            spec, action = self.spec, self.action
            _check_reconfigurable(spec, cluster, action)
            _check_profile(spec, cluster, action)
            _check_gateway_routing(spec.gw_routing, cluster, action)
            _check_blocks(cluster, spec.devices, action)
            hosts = _hosts_of(spec, self._hosts, cluster, action)
            shape = ShapeInCluster(to_request(spec, cluster, len(hosts)), hosts)
            cached = self._shapes[cluster.name] = cluster, shape
        return cached[1]

    def routing(self, cluster: Cluster, blocks: Sequence[Block]) -> Routing:
        """The routing inside link domains. Raises InvalidRequest where it cannot be."""
        return _checked_routing(self.spec.routing, cluster, blocks, self.action)


def renamed(spec: PartitionSpec, name: str) -> PartitionSpec:
    """The same under another name."""
    return spec if spec.name == name else msgspec.structs.replace(spec, name=name)


def _check_counts(spec: PartitionSpec, action: str, *, for_job: bool) -> None:
    """Raises InvalidRequest for numbers that no hardware could make legal."""

    def refuse(problem: str, would_work: str, **error_data: object) -> None:
        raise InvalidRequest(problem, operation=action, would_work=would_work, **error_data)

    device_count = spec.size or len(spec.devices)
    if device_count <= 0:
        refuse("a partition has at least one device", "give a size of 1 or more", size=spec.size)
    if device_count > MAX_DEVICES:
        refuse(
            f"no partition has more than {MAX_DEVICES} devices",
            "list clusters shows how many each has",
            size=spec.size,
        )
    if spec.devices and spec.size not in (0, len(spec.devices)):
        refuse(
            f"{counted(len(spec.devices), 'device', ('is', 'are'))} named, but the size is "
            f"{spec.size}",
            f"use size {len(spec.devices)}, or name {spec.size} devices",
        )
    if len(set(spec.devices)) != len(spec.devices):
        refuse("a device is named twice", "name each device once")
    if spec.devices and spec.relocatable:  # our choice: V-IPU's documents are silent
        refuse(
            "a partition of devices chosen one by one does not move to others",
            "leave out the devices, or do not make it relocatable",
        )
    if spec.movable and (spec.profile or (spec.devices and not for_job)):
        refuse(
            f"{'slices of GPUs do' if spec.profile else 'devices chosen one by one do'} not move",
            "whole devices of the server's choice, or leave out movable",
        )
    gcd_count = spec.num_gcds or 1
    if gcd_count < 0 or device_count % gcd_count:
        fitting_counts = _power_of_two_divisors(device_count)
        refuse(
            f"{device_count} devices do not divide into {spec.num_gcds} GCDs",
            f"use {_numbers_in_words(fitting_counts)} GCDs",
            num_gcds=spec.num_gcds,
            nearest=fitting_counts,
        )
    replica_count = spec.num_replicas or gcd_count
    if replica_count < 1 or replica_count % gcd_count or device_count % replica_count:
        fitting_counts = [
            divisor for divisor in _power_of_two_divisors(device_count) if divisor % gcd_count == 0
        ] or [gcd_count]
        refuse(
            f"{replica_count} replicas do not divide evenly over {device_count} devices in "
            f"{gcd_count} GCD{'' if gcd_count == 1 else 's'}",
            f"use {_numbers_in_words(fitting_counts)} replicas",
            num_replicas=replica_count,
            nearest=fitting_counts,
        )
    if spec.num_ilds < 0 or (spec.num_ilds and device_count % spec.num_ilds):
        fitting_counts = _power_of_two_divisors(device_count)
        refuse(
            f"{device_count} devices do not divide into {spec.num_ilds} link domains",
            f"use {_numbers_in_words(fitting_counts)} link domains, or leave it to the server",
            num_ilds=spec.num_ilds,
        )


def _check_reconfigurable(spec: PartitionSpec, cluster: Cluster, action: str) -> None:
    """Raises InvalidRequest where a reconfigurable partition breaks its rules (V-IPU user
    guide, partitions: c2-compatible sync only, at most 64 IPUs, one GCD)."""
    if not spec.reconfigurable:
        return
    size_limit, device_count = cluster.family.reconfigurable_max, spec.size or len(spec.devices)
    problem = would_work = ""
    if not size_limit:
        problem = f"partitions of {cluster.family.device_noun}s are not reconfigurable"
        would_work = "leave out --reconfigurable"
    elif device_count > size_limit:
        problem = f"a reconfigurable partition has at most {size_limit} devices"
        would_work = (
            f"use a size of {size_limit} or less, or a partition that is not reconfigurable"
        )
    elif spec.num_gcds > 1 or spec.num_replicas > 1 or spec.num_ilds > 1:
        problem = "a reconfigurable partition is one GCD with one replica in one link domain"
        would_work = "leave out the GCDs and replicas, or do not make it reconfigurable"
    elif spec.sync_type not in (SyncType.DEFAULT, SyncType.GS2_DEFAULT):
        problem = "a reconfigurable partition has the sync type GS2_DEFAULT (c2-compatible)"
        would_work = "leave out the sync type"
    if problem:
        raise InvalidRequest(problem, operation=action, would_work=would_work)


def _check_profile(spec: PartitionSpec, cluster: Cluster, action: str) -> None:
    """Raises InvalidRequest for slices of what is not a GPU, or of devices that are named."""
    if spec.profile and cluster.family.attachment is not Attachment.HOST:
        noun = cluster.family.device_noun
        raise InvalidRequest(
            f"{noun}s are not cut into slices",
            operation=action,
            would_work="leave out the profile",
        )
    if spec.profile and spec.devices:
        raise InvalidRequest(
            "devices are named, and a profile too",
            operation=action,
            would_work="leave out one of them",
        )


def _hosts_of(
    spec: PartitionSpec, launch_hosts: Sequence[str], cluster: Cluster, action: str
) -> tuple[str, ...]:
    """Return the hosts that a request names for devices of this cluster.

    launch_hosts: where the instances of the launch will run that requests it. It counts if the
    request itself names no host. The result is empty for a cluster that is not a pool.

    Raises InvalidRequest for hosts where devices have a home, and for a pool without hosts, since
    the server does not choose the host.
    """
    if cluster.family.attachment is not Attachment.POOL:
        if spec.hosts:
            raise InvalidRequest(
                f"the devices of cluster {cluster.name} have a home, and are not attached to hosts",
                operation=action,
                would_work="leave out the hosts, or name a cluster that is a pool",
            )
        return ()
    hosts, device_count = tuple(spec.hosts or launch_hosts), spec.size or len(spec.devices)
    if not hosts:
        raise InvalidRequest(
            f"cluster {cluster.name} is a pool, and no host is named that its devices are for",
            operation=action,
            would_work="--host HOST, or a launch by poprun, which names its own hosts",
        )
    if len(set(map(short_name, hosts))) < len(hosts):
        raise InvalidRequest(
            "a host is named twice", operation=action, would_work="name each host once"
        )
    if device_count % len(hosts):
        raise InvalidRequest(
            f"{device_count} devices do not divide evenly over {len(hosts)} hosts",
            operation=action,
            would_work=f"use a multiple of {len(hosts)} devices",
        )
    if spec.num_gcds % len(hosts):
        raise InvalidRequest(
            f"a GCD lies at one host: {spec.num_gcds} do not divide over {len(hosts)} hosts",
            operation=action,
            would_work=f"use a multiple of {len(hosts)} GCDs, or leave the count open",
        )
    return hosts


def fewest_gcds(spec: PartitionSpec, cluster: Cluster, host_count: int = 0) -> int:
    """The GCDs of a partition whose creator leaves them open: a GCD lies in one link domain, in
    one machine where devices sit inside hosts or a chassis, and at one of the hosts of a pool's."""
    device_count, family = spec.size or len(spec.devices), cluster.family
    if family.attachment is not Attachment.FABRIC:  # a process drives devices of its own host
        devices_per_machine = family.devices_per_machine
        if device_count > devices_per_machine and device_count % devices_per_machine:
            # Each GCD is as large as the part of the last machine allows.
            return device_count // math.gcd(device_count, devices_per_machine)
        gcd_count = max(1, spec.num_ilds, -(-device_count // devices_per_machine))
        return math.lcm(gcd_count, host_count) if host_count else gcd_count
    domain_count = spec.num_ilds or len({domain for domain, _ in spec.devices})
    if device_count <= cluster.domain_size(0):  # most requests: not every domain is looked at
        return max(1, domain_count)
    limit = max(cluster.domain_size(domain) for domain in range(len(cluster.domains)))
    return max(1, domain_count, -(-device_count // limit))


def to_request(spec: PartitionSpec, cluster: Cluster, host_count: int = 0) -> Request:
    """The shape that placement is asked for. The spec's numbers are checked already.

    host_count: the number of hosts that devices of a pool are for.
    """
    blocks = blocks_of(spec.devices) if spec.devices else None
    return Request(
        size=spec.size or len(spec.devices),
        allocation=spec.allocation or None,
        domains=spec.num_ilds or (1 if spec.reconfigurable else None),
        gcds=spec.num_gcds
        or (spec.size if spec.profile else fewest_gcds(spec, cluster, host_count)),
        blocks=blocks,
        profile=spec.profile,
    )


def blocks_of(devices: Sequence[tuple[int, int]]) -> tuple[Block, ...]:
    """Single devices as runs of consecutive ones, in the order of domain and offset."""
    blocks: list[Block] = []
    for domain, offset in sorted(devices):
        last_block = blocks[-1] if blocks else None
        if (
            last_block
            and last_block.domain == domain
            and last_block.offset + last_block.size == offset
        ):
            blocks[-1] = Block(domain, last_block.offset, last_block.size + 1)
        else:
            blocks.append(Block(domain, offset, 1))
    return tuple(blocks)


def _checked_routing(
    wanted_routing: Routing, cluster: Cluster, blocks: Sequence[Block], action: str
) -> Routing:
    """The routing inside link domains.

    Known points: 8 and 16 IPUs have DNC (PopRun guide 2.10.1), a whole torus of 64 has RINGSWNC.
    Our choice: loops are used where all of a torus is the partition's, DNC everywhere else.
    """
    has_loops = cluster.domain_topology is DomainTopology.TORUS and all(
        block.size == cluster.domain_size(block.domain) for block in blocks
    )
    if wanted_routing is Routing.DEFAULT:
        full_loop = has_loops and blocks[0].size >= cluster.family.max_domain_devices
        return Routing.RINGSWNC if full_loop else Routing.DNC
    if wanted_routing in (Routing.RINGSWNC, Routing.BTNC) and not has_loops:
        raise InvalidRequest(
            f"routing {wanted_routing.value} needs loop links: whole link domains that are a torus",
            operation=action,
            would_work="use DNC, or leave the routing to the server",
            routing=wanted_routing.value,
        )
    return wanted_routing


def _check_gateway_routing(wanted_routing: GatewayRouting, cluster: Cluster, action: str) -> None:
    """Raises InvalidRequest where the cluster's second-tier links cannot do it (V-IPU 1.18
    protocol: RING for loop links, SWRING for switched ones)."""
    if wanted_routing is GatewayRouting.RING:
        topology = ClusterTopology.LOOPED
    elif wanted_routing is GatewayRouting.SWRING:
        topology = ClusterTopology.SWITCHED
    else:
        return
    if cluster.topology is not topology:
        raise InvalidRequest(
            f"gateway routing {wanted_routing.value} needs {topology.value} link domains, "
            "and those of "
            f"cluster {cluster.name} are: {cluster.topology.value}",
            operation=action,
            would_work="leave the gateway routing to the server",
            gw_routing=wanted_routing.value,
        )


def _checked_sync_type(spec: PartitionSpec, action: str) -> SyncType:
    """The sync type. Our choice of default: GS2 for reconfigurable partitions, as the guide
    demands, else the Pod-native one. Independent rails are unsupported (V-IPU 1.18 protocol)."""
    if spec.sync_type is SyncType.GS2_INDEPENDENT_RAILS:
        raise InvalidRequest(
            "sync type GS2_INDEPENDENT_RAILS is not supported",
            operation=action,
            would_work="leave out the sync type",
        )
    if spec.sync_type is not SyncType.DEFAULT:
        return spec.sync_type
    return SyncType.GS2_DEFAULT if spec.reconfigurable else SyncType.POD_NATIVE_DEFAULT


def _check_blocks(cluster: Cluster, devices: Sequence[tuple[int, int]], action: str) -> None:
    """Raises InvalidRequest for explicit devices that the cluster does not have."""
    for domain, offset in devices:
        in_cluster = 0 <= domain < len(cluster.domains) and 0 <= offset < cluster.domain_size(
            domain
        )
        if not in_cluster:
            raise InvalidRequest(
                f"cluster {cluster.name} has no device {offset} in link domain {domain}",
                operation=action,
                would_work=f"use devices 0 to {cluster.domain_size(domain) - 1} of it"
                if 0 <= domain < len(cluster.domains)
                else f"use link domains 0 to {len(cluster.domains) - 1}",
            )


def _power_of_two_divisors(dividend: int) -> list[int]:
    """Powers of two that divide n, at most ten of them."""
    return [
        1 << exponent for exponent in range(10) if dividend > 0 and dividend % (1 << exponent) == 0
    ]


def _numbers_in_words(numbers: Sequence[int]) -> str:
    texts = [str(number) for number in numbers]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"
