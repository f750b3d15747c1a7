"""A controller that keeps partitions in a dict, and a socket client: all that the fronts need."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from podwright import wire
from podwright.controller import Caller
from podwright.fabric import preset

if TYPE_CHECKING:
    from podwright.controller import Controller


_CALLS = {method.function for method in wire.METHODS.values()}


class FakeController:
    """Answers as told. fail: method name -> what to raise. hold: method name -> wait for it."""

    def __init__(self) -> None:
        self.partitions: dict[str, wire.PartitionInfo] = {}
        self.callers: list[tuple[str, Caller]] = []
        self.requests: list[wire.Value] = []
        self.fail: dict[str, Exception] = {}
        self.hold: dict[str, asyncio.Event] = {}
        self.finished: list[str] = []
        self.started = self.closed = False
        self.simulated = True
        self.fabric = self.fabric_problem = ""
        self.fabric_age: float | None = None
        self.clusters = [preset("pod4")]
        self.idle = True
        self.read_only: wire.PodwrightError | None = None
        self.failure: wire.PodwrightError | None = None

    async def start(self) -> None:
        self.started = True

    async def close(self) -> None:
        self.closed = True

    def admitted(self, caller: Caller, request: wire.Value) -> tuple[Caller, wire.Value]:
        return caller, request

    def redacted(self, caller: Caller, reply: Any) -> Any:
        return reply

    def __getattr__(self, name: str) -> Any:
        """Calls of podwright.v1 that no test of the server looks at."""
        if name not in _CALLS:
            raise AttributeError(name)

        async def answer(caller: Caller, request: wire.Value) -> wire.Value:
            await self._enter(name, caller, request)
            raise wire.NotFound(f"the fake has no {name}")

        return answer

    async def _enter(self, name: str, caller: Caller, request: wire.Value) -> None:
        self.callers.append((name, caller))
        self.requests.append(request)
        if name in self.hold:
            await self.hold[name].wait()
        if name in self.fail:
            raise self.fail[name]
        self.finished.append(name)

    def _find(self, name: str) -> wire.PartitionInfo:
        if name not in self.partitions:
            raise wire.NotFound(f"there is no partition {name}", would_work="vipu list partitions")
        return self.partitions[name]

    async def list_clusters(self, caller: Caller, request: wire.ListRequest) -> wire.ClusterList:
        await self._enter("list_clusters", caller, request)
        return wire.ClusterList(
            clusters=[wire.ClusterInfo(name="c1", family="ipu", size=16, free=16, simulated=True)]
        )

    async def list_allocations(
        self, caller: Caller, request: wire.ListRequest
    ) -> wire.AllocationList:
        await self._enter("list_allocations", caller, request)
        return wire.AllocationList()

    async def list_devices(self, caller: Caller, request: wire.ListRequest) -> wire.DeviceList:
        await self._enter("list_devices", caller, request)
        return wire.DeviceList(
            devices=[
                wire.DeviceInfo(
                    cluster="c1",
                    device=wire.DeviceRef(domain=0, offset=o, machine=f"ag{o // 4}", index=o % 4),
                    attributes={"clock": str(o)},
                )
                for o in range(8)
            ]
        )

    async def list_partitions(
        self, caller: Caller, request: wire.ListRequest
    ) -> wire.PartitionList:
        await self._enter("list_partitions", caller, request)
        chosen = [
            info
            for _, info in sorted(self.partitions.items())
            if request.allocation in ("", info.allocation)
        ]
        return wire.PartitionList(partitions=chosen)

    async def list_leases(self, caller: Caller, request: wire.ListRequest) -> wire.LeaseList:
        await self._enter("list_leases", caller, request)
        return wire.LeaseList()

    async def get_partition(
        self, caller: Caller, request: wire.PartitionName
    ) -> wire.PartitionInfo:
        await self._enter("get_partition", caller, request)
        return self._find(request.name)

    async def create_partition(
        self, caller: Caller, request: wire.CreateRequest
    ) -> wire.PartitionInfo:
        await self._enter("create_partition", caller, request)
        spec = request.spec
        if spec.name in self.partitions:
            raise wire.AlreadyExists(f"there is a partition {spec.name} already")
        self.partitions[spec.name] = info = wire.PartitionInfo(
            name=spec.name,
            cluster="c1",
            allocation=spec.allocation or "a1",
            size=spec.size,
            num_gcds=spec.num_gcds or 1,
            num_replicas=spec.num_replicas or spec.num_gcds or 1,
            num_ilds=1,
            routing=spec.routing,
            gw_routing=spec.gw_routing,
            sync_type=spec.sync_type,
            ready_state=wire.ReadyState.ACTIVE,
            gcds=[
                [wire.DeviceRef(domain=0, offset=o, machine="ag0", ip="127.0.0.1")]
                for o in range(spec.num_gcds or 1)
            ],
            ilds=[0],
            owner=caller.name,
        )
        return info

    async def reset_partition(
        self, caller: Caller, request: wire.ResetRequest
    ) -> wire.PartitionInfo:
        await self._enter("reset_partition", caller, request)
        return self._find(request.name)

    async def remove_partition(self, caller: Caller, request: wire.RemoveRequest) -> wire.Empty:
        await self._enter("remove_partition", caller, request)
        self._find(request.name)
        del self.partitions[request.name]
        return wire.Empty()

    async def acquire(self, caller: Caller, request: wire.AcquireRequest) -> wire.AcquireReply:
        await self._enter("acquire", caller, request)
        info = await self.create_partition(caller, wire.CreateRequest(spec=request.spec))
        lease = wire.LeaseInfo(id="l1", partition=info.name, epoch=1, owner=caller.name)
        return wire.AcquireReply(lease=lease, partition=info, created=True)

    async def renew(self, caller: Caller, request: wire.LeaseRequest) -> wire.LeaseInfo:
        await self._enter("renew", caller, request)
        return wire.LeaseInfo(id=request.id, partition="p", epoch=request.epoch)

    async def release(self, caller: Caller, request: wire.LeaseRequest) -> wire.Empty:
        await self._enter("release", caller, request)
        return wire.Empty()


def as_controller(fake: FakeController) -> Controller:
    """The fake, for what wants a controller."""
    return cast("Controller", fake)


class Http:
    """A client of the Unix socket that can also say what no client should."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, path: Path) -> Http:
        return cls(*await asyncio.open_unix_connection(str(path)))

    async def raw(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send bytes, read one answer: status, headers, body."""
        self.writer.write(data)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def post(self, method: str, body: Any = None) -> tuple[int, Any]:
        """Call a method: status, and the answer's JSON."""
        sent = b"" if body is None else msgspec.json.encode(body)
        head = f"POST /podwright.v1/{method} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(sent)}"
        status, _, answer = await self.raw(head.encode() + b"\r\n\r\n" + sent)
        return status, json.loads(answer)

    async def call(self, method: str, request: wire.Value) -> Any:
        """Call a method: the reply's value, or raise the refusal."""
        status, answer = await self.post(method, request)
        if status != 200:
            raise wire.error_from_json(answer)
        return msgspec.convert(answer, wire.METHODS[method].reply)

    def close(self) -> None:
        self.writer.close()
