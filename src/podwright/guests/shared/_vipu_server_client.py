"""The seam to vipu-server: partitions in the name of a job's user.

A call may take seconds (a reset), so calls run in threads, each with a connection of its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import msgspec

from podwright.client import Client
from podwright.errors import NotFound
from podwright.wire import (
    CreateRequest,
    DeviceInfo,
    Empty,
    EnqueueReply,
    EnqueueRequest,
    JobInfo,
    JobReport,
    PartitionInfo,
    PartitionSpec,
    RemoveRequest,
    ResetRequest,
    Value,
)

CALL_THREADS = 24
#: Seconds for a call.
CALL_TIMEOUT = 60.0

_T = TypeVar("_T")
_V = TypeVar("_V", bound=Value)


class GuestServer(Protocol):
    """What a guest asks of the server. Everything raises wire.PodwrightError.

    guest: the scheduler's name, under which it enqueues and reports jobs, and creates partitions
    for them.
    """

    guest: str

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        """All devices of a pod."""
        ...

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        """All partitions of a pod."""
        ...

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        """A partition of that user's, for that job; ACTIVE or in ERROR."""
        ...

    async def remove(self, name: str, job: str) -> None:
        """A job's partition goes, whatever errors and leases stand in the way; job: as it was
        created for it. That there is none, or that it is another start's by now, is fine, too."""
        ...

    async def relocate(self, name: str) -> None:
        """A partition in error moves to healthy devices as soon as there are any."""
        ...

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        """Name the first job for each pool, and learn what is kept there. An older
        server raises InvalidRequest or NotFound.
        """
        ...

    async def report(self, jobs: list[JobInfo]) -> None:
        """Report all jobs that wait in the scheduler's queue, in its order."""
        ...


class ThreadedServer:
    """The real one. connect: makes a client; called once in each thread."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._clients: list[Client] = []
        self.guest = ""
        self._threads = ThreadPoolExecutor(CALL_THREADS, thread_name_prefix="server")
        self._local = threading.local()

    async def devices(self, cluster: str, allocation: str) -> list[DeviceInfo]:
        """All devices of a pod."""
        return await self._run_in_thread(
            lambda client: client.list_devices(cluster=cluster, allocation=allocation)
        )

    async def partitions(self, cluster: str, allocation: str) -> list[PartitionInfo]:
        """All partitions of a pod."""
        return await self._run_in_thread(
            lambda client: client.list_partitions(cluster=cluster, allocation=allocation)
        )

    async def create(self, spec: PartitionSpec, uid: int, user: str, job: str) -> PartitionInfo:
        """A partition of that user's, for that job; ACTIVE or in ERROR."""
        request = CreateRequest(spec=spec, owner=user, owner_uid=uid, job=job, guest=self.guest)
        return await self.call("CreatePartition", request, PartitionInfo)

    async def remove(self, name: str, job: str) -> None:
        """A job's partition goes, whatever errors and leases stand in the way; job: as it was
        created for it. That there is none, or that it is another start's by now, is fine, too."""
        request = RemoveRequest(name=name, force=True, job=job)
        try:
            await self._run_in_thread(lambda client: client.call("RemovePartition", request))
        except NotFound:
            return

    async def relocate(self, name: str) -> None:
        """A partition in error moves to healthy devices as soon as there are any."""
        await self._run_in_thread(
            lambda client: client.call(
                "ResetPartition",
                ResetRequest(name=name, relocatable=True, force=True, wait=False),
            )
        )

    async def enqueue(self, request: EnqueueRequest) -> EnqueueReply:
        """See GuestServer."""
        request = msgspec.structs.replace(request, guest=self.guest)
        return await self.call("Enqueue", request, EnqueueReply)

    async def report(self, jobs: list[JobInfo]) -> None:
        """See GuestServer."""
        await self.call("ReportJobs", JobReport(jobs=jobs, guest=self.guest), Empty)

    async def call(self, method: str, request: Value, reply: type[_V]) -> _V:
        """Any call of podwright.v1."""

        def ask(client: Client) -> _V:
            reply_value = client.call(method, request)
            assert isinstance(reply_value, reply)
            return reply_value

        return await self._run_in_thread(ask)

    def close(self) -> None:
        """End the threads, and the connections of those that wait for no answer."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for client in self._clients:
            client.close()

    async def _run_in_thread(self, client_call: Callable[[Client], _T]) -> _T:
        def call() -> _T:
            client: Client | None = getattr(self._local, "client", None)
            if client is None:
                client = self._local.client = self._connect()
                self._clients.append(client)
            return client_call(client)

        return await asyncio.get_running_loop().run_in_executor(self._threads, call)
