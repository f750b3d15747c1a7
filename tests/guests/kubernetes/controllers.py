"""A V-IPU controller with a row of simulated IPUs, for the operator's tests.

It refuses what a real one refuses: a device twice, a name twice, a removal in another job's name.
"""

from __future__ import annotations

import asyncio

import msgspec

from podwright.errors import AlreadyExists, NoCapacity, Unavailable
from podwright.wire import (
    DeviceInfo,
    DeviceRef,
    EnqueueReply,
    EnqueueRequest,
    Explanation,
    GatewayRouting,
    JobInfo,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    Routing,
    SyncType,
)


class Controller:
    """devices: their number. did: the requests that it received, in order."""

    guest = ""

    def __init__(self, devices: int = 16) -> None:
        self.size = devices
        self.made: dict[str, PartitionInfo] = {}
        self.places: dict[str, list[int]] = {}
        self.did: list[str] = []
        self.down: set[int] = set()
        self.fails: list[Exception] = []
        self.away = False
        self.reported: list[JobInfo] = []
        self.reports: list[str] = []

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the controller is away")

    async def clusters(self) -> list[str]:
        self._answer()
        return ["c"]

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        self._answer()
        of = {at: name for name, devices in self.places.items() for at in devices}
        return [
            DeviceInfo(
                cluster=cluster,
                device=DeviceRef(domain=0, offset=at),
                state="DRAINED" if at in self.down else "IN_USE" if at in of else "FREE",
                partition=of.get(at, ""),
            )
            for at in range(self.size)
        ]

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        self._answer()
        return list(self.made.values())

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        await asyncio.sleep(0)
        self._answer()
        if self.fails:
            raise self.fails.pop(0)
        if spec.name in self.made:
            raise AlreadyExists(f"there is a partition {spec.name}")
        devices = [offset for _, offset in spec.devices]
        taken = {at for places in self.places.values() for at in places}
        if taken & set(devices):
            raise NoCapacity("devices are in use")
        self.places[spec.name] = devices
        self.made[spec.name] = PartitionInfo(
            name=spec.name,
            cluster="c",
            allocation="",
            size=len(devices),
            num_gcds=spec.num_gcds or 1,
            num_replicas=spec.num_replicas or 1,
            num_ilds=1,
            routing=Routing.DNC,
            gw_routing=GatewayRouting.DEFAULT,
            sync_type=SyncType.DEFAULT,
            ready_state=ReadyState.ACTIVE,
            owner=user,
            job=job,
            simulated=True,
        )
        self.did.append(f"create {spec.name}")
        return self.made[spec.name]

    async def remove(self, name: str, job: str) -> None:
        await asyncio.sleep(0)
        self._answer()
        if name in self.made and self.made[name].job == job:
            del self.made[name], self.places[name]
            self.did.append(f"remove {name}")

    async def reset(self, name: str) -> PartitionInfo:
        self._answer()
        self.did.append(f"reset {name}")
        self.set(name, ReadyState.ACTIVE)
        return self.made[name]

    async def explain(self, spec: PartitionSpec) -> Explanation:
        self._answer()
        free = self.size - sum(len(places) for places in self.places.values())
        return Explanation(
            starts_now=spec.size <= free, problem=f"{free} of {self.size} IPUs are free"
        )

    async def relocate(self, name: str) -> None:
        raise AssertionError

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        self._answer()
        return EnqueueReply()

    async def report(self, jobs: list[JobInfo]) -> None:
        self.reported = jobs
        self.reports.append(self.guest)

    def set(self, name: str, state: ReadyState, *errors: str) -> None:
        """Set a partition's state from here on."""
        failed = state is ReadyState.ERROR
        self.made[name] = msgspec.structs.replace(
            self.made[name],
            ready_state=state,
            operation_state=OperationState.FAILED if failed else OperationState.IDLE,
            errors=list(errors),
        )
