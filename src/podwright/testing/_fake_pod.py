"""A pod's server in memory, for tests of guests."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from podwright.errors import AlreadyExists, NoCapacity, Unavailable
from podwright.wire import (
    DeviceInfo,
    DeviceRef,
    EnqueueReply,
    EnqueueRequest,
    Explanation,
    GatewayRouting,
    JobInfo,
    KeptPlace,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    Routing,
    SyncType,
)


class FakePod:
    """The server of one cluster with one link domain, as a guest sees it (`guests.GuestServer`).

    It refuses what a real one refuses: a device twice, a name twice, a removal in another job's
    name.

    made: the partitions by name. down, drained: devices of such machines. away: it answers nothing.
    fails: what the next creations raise. sharing, places: whether guests share the pod, and what
    `enqueue` says is kept. refusal: what `enqueue` raises instead. did: the changes, in order.
    requests, reported, reporters: what guests named, what they reported, and under which name.
    """

    guest = ""

    def __init__(self, devices: int = 16, cluster: str = "") -> None:
        self.size, self.cluster = devices, cluster
        self.made: dict[str, PartitionInfo] = {}
        self.down: set[int] = set()
        self.drained: set[int] = set()
        self.away = False
        self.fails: list[Exception] = []
        self.sharing = False
        self.places: list[KeptPlace] = []
        self.refusal: Exception | None = None
        self.did: list[str] = []
        self.requests: list[EnqueueRequest] = []
        self.reported: list[list[JobInfo]] = []
        self.reporters: list[str] = []

    async def clusters(self) -> list[str]:
        """Return the names of all clusters."""
        self.check_answers()
        return [self.cluster]

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        """See `GuestServer.devices`."""
        self.check_answers()
        names = {offset: name for name in self.made for offset in self.offsets(name)}
        return [
            DeviceInfo(
                cluster=cluster,
                device=DeviceRef(domain=0, offset=offset),
                state=self._state(offset, names),
                partition=names.get(offset, ""),
            )
            for offset in range(self.size)
        ]

    def _state(self, offset: int, names: Mapping[int, str]) -> str:
        if offset in self.down:
            return "DOWN"
        return "DRAINED" if offset in self.drained else "IN_USE" if offset in names else "FREE"

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        """See `GuestServer.partitions`."""
        self.check_answers()
        return list(self.made.values())

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        """See `GuestServer.create`."""
        await asyncio.sleep(0)
        self.check_answers()
        if self.fails:
            raise self.fails.pop(0)
        if spec.name in self.made:
            raise AlreadyExists(f"there is a partition {spec.name}")
        if {offset for name in self.made for offset in self.offsets(name)} & {
            offset for _, offset in spec.devices
        }:
            raise NoCapacity("devices are in use")
        self.made[spec.name] = PartitionInfo(
            name=spec.name,
            cluster=spec.cluster or self.cluster,
            allocation="",
            size=len(spec.devices),
            num_gcds=spec.num_gcds or 1,
            num_replicas=spec.num_replicas or 1,
            num_ilds=1,
            routing=Routing.DEFAULT,
            gw_routing=GatewayRouting.DEFAULT,
            sync_type=SyncType.DEFAULT,
            ready_state=ReadyState.ACTIVE,
            gcds=[[DeviceRef(domain=domain, offset=offset) for domain, offset in spec.devices]],
            owner=user,
            owner_uid=uid,
            job=job,
            movable=spec.movable,
            simulated=True,
        )
        self.did.append(f"create {spec.name}")
        return self.made[spec.name]

    async def remove(self, name: str, job: str) -> None:
        """See `GuestServer.remove`."""
        await asyncio.sleep(0)
        self.check_answers()
        if name in self.made and self.made[name].job == job:
            del self.made[name]
            self.did.append(f"remove {name}")

    async def reset(self, name: str) -> PartitionInfo:
        """Reset a partition."""
        self.check_answers()
        self.did.append(f"reset {name}")
        self.set_state(name, ReadyState.ACTIVE)
        return self.made[name]

    async def explain(self, spec: PartitionSpec) -> Explanation:
        """Say whether a request starts now."""
        self.check_answers()
        free = self.size - sum(len(self.offsets(name)) for name in self.made)
        return Explanation(
            starts_now=spec.size <= free, problem=f"{free} of {self.size} IPUs are free"
        )

    async def relocate(self, name: str) -> None:
        """See `GuestServer.relocate`. It goes to the last devices of the pod."""
        self.check_answers()
        first = self.size - len(self.offsets(name))
        self.place(name, range(first, self.size))

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        """See `GuestServer.enqueue`."""
        self.check_answers()
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(request)
        return EnqueueReply(sharing=self.sharing, places=self.places)

    async def report(self, jobs: list[JobInfo]) -> None:
        """See `GuestServer.report`."""
        self.check_answers()
        self.reported.append(jobs)
        self.reporters.append(self.guest)

    @property
    def waiting(self) -> list[JobInfo]:
        """The jobs of the last report."""
        return self.reported[-1] if self.reported else []

    def check_answers(self) -> None:
        """Raise Unavailable while it is away."""
        if self.away:
            raise Unavailable("the server does not answer")

    def offsets(self, name: str) -> list[int]:
        """Return the devices of a partition."""
        return [device.offset for gcd in self.made[name].gcds for device in gcd]

    def place(self, name: str, offsets: Sequence[int]) -> None:
        """Give a partition these devices."""
        gcd = [DeviceRef(domain=0, offset=offset) for offset in offsets]
        self.made[name] = replace(self.made[name], gcds=[gcd])

    def set_state(self, name: str, state: ReadyState, *errors: str) -> None:
        """Set a partition's state from here on."""
        failed = state is ReadyState.ERROR
        self.made[name] = replace(
            self.made[name],
            ready_state=state,
            operation_state=OperationState.FAILED if failed else OperationState.IDLE,
            errors=list(errors),
        )

    def keep(self, job: str, first: int, count: int, *, offered: bool = False) -> None:
        """Keep these devices for a job, and no others for anybody."""
        self.sharing = True
        devices = [(0, first + place) for place in range(count)]
        self.places = [
            KeptPlace(
                cluster=self.cluster, allocation="", job=job, devices=devices, offered=offered
            )
        ]
