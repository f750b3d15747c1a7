"""The ways of scheduling, as users type them, and the ground of each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from podwright.errors import InvalidRequest
from podwright.fabric import IPU
from podwright.replay.grounds._ground import Ground
from podwright.replay.grounds._host_limited_ground import Hosts
from podwright.replay.grounds._pod_ground import POLICIES, PodGround, ShapelessGround
from podwright.replay.grounds._static_grounds import Mapping, StaticPartitions

POD_WAYS = (
    "native",
    "plugin",
    "shared",
    "static:COUNTxDEVICES[+...]",
    "host-mapping:HOSTSxDEVICES",
)
_STOCK_PART_PATTERN = re.compile(r"(\d{1,6})x(\d{1,6})")
_POD_PATTERN = re.compile(r"(?:pod)?(\d{1,8})")


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
    hosts: HostKind | None = None

    def ground(self) -> Ground:
        """Return the way's ground with all devices free."""
        pod_ground = self._make_pod_ground()
        if self.hosts is None or self.kind == "host-mapping":
            return pod_ground
        return Hosts(pod_ground, self.hosts.count, self.hosts.cpus, self.hosts.memory)

    def _make_pod_ground(self) -> Ground:
        if self.kind == "static":
            return StaticPartitions(self.name, self.size, self.stock)
        if self.kind == "host-mapping":
            return Mapping(self.name, *self.stock[0])
        if self.policy == "no-shape":
            return ShapelessGround(self.name, self.size)
        if self.kind == "shared":
            size = min(self.size, IPU.reconfigurable_max)
            return PodGround(self.name, size, policy=self.policy)
        return PodGround(self.name, self.size, policy=self.policy)


def pod_size(pod_name: str) -> int:
    """Return the devices of `pod64`, or `64`. Raises InvalidRequest."""
    match = _POD_PATTERN.fullmatch(pod_name)
    size, devices = int(match[1]) if match else 0, IPU.max_domain_devices
    if size <= 0 or size % IPU.devices_per_machine or (size > devices and size % devices):
        raise InvalidRequest(
            f"{pod_name!r} is not a pod",
            operation="replay a trace on it",
            would_work=f"pod4 to pod{devices}, a multiple of 4, or a multiple of {devices}: pod256",
        )
    return size


def pod_ways(
    way_names: Sequence[str],
    pod_devices: int,
    policies: Sequence[str] = (),
    host_kind: HostKind | None = None,
) -> list[ReplayWay]:
    """Return the ways for a pod that the user typed. Raises InvalidRequest.

    policies: how native, plugin and shared choose blocks; none: the product's own rule.
    """
    for policy in policies:
        if policy not in POLICIES:
            raise InvalidRequest(
                f"there is no policy {policy!r}", would_work=f"choose one of {', '.join(POLICIES)}"
            )
    if policies and not any(way_name in ("native", "plugin", "shared") for way_name in way_names):
        raise InvalidRequest(
            "a policy says how blocks are chosen, and none of these ways chooses any",
            operation=f"try {', '.join(way_names)} with {', '.join(policies)}",
            would_work="add native to the ways",
        )
    ways: list[ReplayWay] = []
    for way_name in way_names:
        way_kind, _, stock_text = way_name.partition(":")
        if way_kind in ("native", "plugin", "shared") and not stock_text:
            for policy in policies or ("best-fit",):
                report_name = way_kind if policy == "best-fit" else f"{way_kind}, {policy}"
                ways.append(ReplayWay(report_name, way_kind, pod_devices, policy, hosts=host_kind))
        elif way_kind in ("static", "host-mapping"):
            ways.append(
                ReplayWay(
                    way_name,
                    way_kind,
                    pod_devices,
                    stock=_parse_stock(way_name, way_kind, stock_text, pod_devices),
                    hosts=host_kind,
                )
            )
        else:
            raise InvalidRequest(
                f"there is no way {way_name!r}", would_work=f"choose one of {', '.join(POD_WAYS)}"
            )
    return ways


def _parse_stock(
    way_name: str, way_kind: str, stock_text: str, pod_devices: int
) -> tuple[tuple[int, int], ...]:
    part_matches = [_STOCK_PART_PATTERN.fullmatch(part) for part in stock_text.split("+")]
    stock = tuple((int(part[1]), int(part[2])) for part in part_matches if part)
    example = "static:8x4+2x16" if way_kind == "static" else "host-mapping:4x16"
    if len(stock) != len(part_matches) or any(not count or not each for count, each in stock):
        raise InvalidRequest(f"{way_name!r} is not understood", would_work=example)
    if way_kind == "host-mapping" and len(stock) > 1:
        raise InvalidRequest(f"{way_name!r}: all hosts have as many devices", would_work=example)
    legal_sizes = IPU.partition_sizes_in_domain
    for _, devices_each in stock:
        if devices_each not in legal_sizes and devices_each % IPU.max_domain_devices:
            raise InvalidRequest(
                f"{way_name!r}: {devices_each} devices make no partition", would_work=example
            )
    total_devices = sum(count * each for count, each in stock)
    if total_devices > pod_devices:
        raise InvalidRequest(
            f"{way_name!r} takes {total_devices} devices, and the pod has {pod_devices}"
        )
    return stock
