"""The ways of scheduling, as users type them, and the ground of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from podwright.errors import InvalidRequest
from podwright.fabric import IPU, Attachment, Cluster
from podwright.replay.grounds._gpu_nodes import GpuNodes
from podwright.replay.grounds._ground import Ground
from podwright.replay.grounds._host_resources import Hosts
from podwright.replay.grounds._pod_ground import POLICIES, Counted, PodGround
from podwright.replay.grounds._static_grounds import Mapping, StaticPartitions

POD_WAYS = (
    "native",
    "plugin",
    "shared",
    "static:COUNTxDEVICES[+...]",
    "host-mapping:HOSTSxDEVICES",
)
GPU_WAYS = ("shared", "exclusive")
_PART = re.compile(r"(\d{1,6})x(\d{1,6})")
_POD = re.compile(r"(?:pod)?(\d{1,8})")


@dataclass(frozen=True)
class HostKind:
    """The hosts on which jobs of a pod run: their number, cores of each, bytes of each (0: not
    counted).
    """

    count: int
    cpus: int
    memory: int = 0


@dataclass(frozen=True)
class ReplayWay:
    """One way to try. name: as the report names it. stock: (how many, devices of each)."""

    name: str
    kind: str
    size: int
    policy: str = "best-fit"
    stock: tuple[tuple[int, int], ...] = ()
    cluster: Cluster | None = None
    hosts: HostKind | None = None

    def ground(self) -> Ground:
        """Return the way's ground with all devices free."""
        if self.cluster is not None:
            return GpuNodes(self.name, self.cluster, exclusive=self.kind == "exclusive")
        ground = self._pod()
        if self.hosts is None or self.kind == "host-mapping":
            return ground
        return Hosts(ground, self.hosts.count, self.hosts.cpus, self.hosts.memory)

    def _pod(self) -> Ground:
        if self.kind == "static":
            return StaticPartitions(self.name, self.size, self.stock)
        if self.kind == "host-mapping":
            return Mapping(self.name, *self.stock[0])
        if self.policy == "no-shape":
            return Counted(self.name, self.size)
        if self.kind == "shared":
            size = min(self.size, IPU.reconfigurable_max)
            return PodGround(self.name, size, policy=self.policy)
        return PodGround(self.name, self.size, policy=self.policy)


def pod_size(text: str) -> int:
    """Return the devices of `pod64`, or `64`. Raises InvalidRequest."""
    match = _POD.fullmatch(text)
    size, devices = int(match[1]) if match else 0, IPU.max_domain_devices
    if size <= 0 or size % IPU.devices_per_machine or (size > devices and size % devices):
        raise InvalidRequest(
            f"{text!r} is not a pod",
            operation="replay a trace on it",
            would_work=f"pod4 to pod{devices}, a multiple of 4, or a multiple of {devices}: pod256",
        )
    return size


def pod_ways(
    words: Sequence[str], size: int, policies: Sequence[str] = (), hosts: HostKind | None = None
) -> list[ReplayWay]:
    """Return the ways for a pod that the user typed. Raises InvalidRequest.

    policies: how native, plugin and shared choose blocks; none: the product's own rule.
    """
    for policy in policies:
        if policy not in POLICIES:
            raise InvalidRequest(
                f"there is no policy {policy!r}", would_work=f"choose one of {', '.join(POLICIES)}"
            )
    if policies and not any(word in ("native", "plugin", "shared") for word in words):
        raise InvalidRequest(
            "a policy says how blocks are chosen, and none of these ways chooses any",
            operation=f"try {', '.join(words)} with {', '.join(policies)}",
            would_work="add native to the ways",
        )
    ways: list[ReplayWay] = []
    for word in words:
        kind, _, rest = word.partition(":")
        if kind in ("native", "plugin", "shared") and not rest:
            for policy in policies or ("best-fit",):
                name = kind if policy == "best-fit" else f"{kind}, {policy}"
                ways.append(ReplayWay(name, kind, size, policy, hosts=hosts))
        elif kind in ("static", "host-mapping"):
            ways.append(
                ReplayWay(word, kind, size, stock=_stock(word, kind, rest, size), hosts=hosts)
            )
        else:
            raise InvalidRequest(
                f"there is no way {word!r}", would_work=f"choose one of {', '.join(POD_WAYS)}"
            )
    return ways


def gpu_ways(words: Sequence[str], cluster: Cluster) -> list[ReplayWay]:
    """Return the ways for GPU nodes. Raises InvalidRequest."""
    if cluster.family.attachment is not Attachment.HOST:
        raise InvalidRequest(
            f"cluster {cluster.name} has {cluster.family.device_noun}s behind a fabric",
            operation="take it for GPU nodes",
            would_work="--pod for such devices",
        )
    for word in words:
        if word not in GPU_WAYS:
            raise InvalidRequest(
                f"there is no way {word!r} for GPU nodes",
                would_work=f"choose one of {', '.join(GPU_WAYS)}",
            )
    return [ReplayWay(word, word, cluster.size, cluster=cluster) for word in words]


def _stock(word: str, kind: str, rest: str, size: int) -> tuple[tuple[int, int], ...]:
    parts = [_PART.fullmatch(part) for part in rest.split("+")]
    stock = tuple((int(part[1]), int(part[2])) for part in parts if part)
    example = "static:8x4+2x16" if kind == "static" else "host-mapping:4x16"
    if len(stock) != len(parts) or any(not count or not each for count, each in stock):
        raise InvalidRequest(f"{word!r} is not understood", would_work=example)
    if kind == "host-mapping" and len(stock) > 1:
        raise InvalidRequest(f"{word!r}: all hosts have as many devices", would_work=example)
    legal = IPU.partition_sizes_in_domain
    for _, each in stock:
        if each not in legal and each % IPU.max_domain_devices:
            raise InvalidRequest(f"{word!r}: {each} devices make no partition", would_work=example)
    total = sum(count * each for count, each in stock)
    if total > size:
        raise InvalidRequest(f"{word!r} takes {total} devices, and the pod has {size}")
    return stock
