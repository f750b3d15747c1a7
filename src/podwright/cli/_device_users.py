"""Who uses which device: partitions, leases and the state of devices laid side by side.

What `gc-monitor` and `gc-info` show is worked out here, from the server's answers alone, so that
it is the same for every family of devices.
"""

from __future__ import annotations

from typing import NamedTuple

from podwright.client import Client
from podwright.errors import InvalidRequest, NotFound
from podwright.fabric import IPU, Attachment, Family, family_named
from podwright.wire import (
    DeviceInfo,
    DeviceRef,
    LeaseInfo,
    PartitionInfo,
    ReadyState,
    ServerInfo,
    device_sets,
    read_holder,
)


class User(NamedTuple):
    """A program on a device, as its lease tells. pid 0, host empty: its holder did not say."""

    user: str
    host: str
    pid: int
    program: str
    lease: str
    expires_in: float


class Use(NamedTuple):
    """One device of a partition. id: what a program attaches to to have it: in a reconfigurable
    partition the device alone, else its GCD. routing: its place in the partition.
    state: `used`, `free`, or why it is neither: `resetting`, `down`, and the like."""

    id: int
    gcd: int
    routing: int
    device: DeviceRef
    state: str
    users: tuple[User, ...]


class ShownUse(NamedTuple):
    """A partition with its devices. first: the number of its first device in the listing.
    attributes: of each device, in routing order, as its machine tells them."""

    info: PartitionInfo
    family: Family
    uses: tuple[Use, ...]
    attributes: tuple[dict[str, str], ...]
    first: int = 0

    @property
    def noun(self) -> str:
        """IPU, GPU: one of these devices."""
        return self.family.device_noun

    @property
    def target(self) -> str:
        """Where a single device is, as gc-info says it: `Fabric`, or `Host`."""
        return "Fabric" if self.family.attachment is Attachment.FABRIC else "Host"


def look(
    client: Client, me: ServerInfo, *, partition: str = "", every: bool = False
) -> list[ShownUse]:
    """The partitions to show, and who uses their devices.

    partition: this one. Otherwise, unless `every`, those of the caller. Numbers of devices go on
    from one partition to the next, as gc-info has it. Raises NotFound.
    """
    found = client.list_partitions()
    if partition:
        chosen = [info for info in found if info.name == partition]
        if not chosen:
            names = ", ".join(info.name for info in found[:8]) or "none"
            raise NotFound(f"there is no partition {partition!r}", would_work=f"there are: {names}")
    else:
        chosen = [info for info in found if every or me.caller in (info.owner, info.creator)]
    families = _families(client) if chosen and "podwright.v1" in me.apis else {}
    states: dict[tuple[str, int, int], DeviceInfo] = {}
    for cluster, allocation in sorted({(info.cluster, info.allocation) for info in chosen}):
        for one in client.list_devices(cluster=cluster, allocation=allocation) if families else ():
            states[cluster, one.device.domain, one.device.offset] = one
    shown, first = [], 0
    for info in chosen:
        one_shown = _shown(info, families.get(info.cluster, IPU), states, first)
        shown.append(one_shown)
        first += len(device_sets(info)) if is_listed(info) else 0
    return shown


def is_listed(info: PartitionInfo) -> bool:
    """Can programs attach to its devices?"""
    return info.ready_state is ReadyState.ACTIVE


def _families(client: Client) -> dict[str, Family]:
    return {c.name: family_named(c.family) or IPU for c in client.list_clusters()}


def _shown(
    info: PartitionInfo,
    family: Family,
    states: dict[tuple[str, int, int], DeviceInfo],
    first: int,
) -> ShownUse:
    numbers = {s.routing[0]: s.id for s in device_sets(info) if len(s.routing) == 1}
    uses: list[Use] = []
    attributes: list[dict[str, str]] = []
    for gcd, devices in enumerate(info.gcds):
        for device in devices:
            routing = len(uses)
            known = states.get((info.cluster, device.domain, device.offset))
            users = tuple(_user(lease) for lease in _holding(info.leases, routing))
            state = known.state if known else "IN_USE"
            word = ("used" if users else "free") if state == "IN_USE" else state.lower()
            number = first + (numbers[routing] if info.reconfigurable else gcd)
            uses.append(Use(number, gcd, routing, device, word, users))
            attributes.append(dict(known.attributes) if known else {})
    return ShownUse(info, family, tuple(uses), tuple(attributes), first)


def _holding(leases: list[LeaseInfo], routing: int) -> list[LeaseInfo]:
    """The leases that cover a device; of a job's and one within it, the inner one."""
    covering = [lease for lease in leases if not lease.devices or routing in lease.devices]
    outer = {lease.parent for lease in covering}
    return [lease for lease in covering if lease.id not in outer]


def _user(lease: LeaseInfo) -> User:
    said = read_holder(lease.holder)
    return User(lease.owner, said.host, said.pid, said.program, lease.id, lease.expires_in)


def device_of(shown: list[ShownUse], number: int) -> tuple[ShownUse, tuple[Use, ...]]:
    """The partition and the devices that a number of the listing stands for. Raises
    InvalidRequest."""
    for one in shown:
        for found in device_sets(one.info) if is_listed(one.info) else ():
            if one.first + found.id == number:
                return one, tuple(one.uses[place] for place in found.routing)
    raise InvalidRequest(
        f"there is no device {number}", would_work="gc-info -l lists those that there are"
    )
