"""A server with every door open, and callers of every role who come through each of them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import grpc
import grpc.aio

from podwright.agents import Agent, RemoteMachine, Secret, SimulatedMachine
from podwright.controller import Caller, Controller, Discovery, Machines, Role
from podwright.errors import NotFound, PodwrightError
from podwright.fabric import IPU, Machine, preset
from podwright.hosts import FakeMunge, Vouches
from podwright.server import Identity, ListenOptions, Server
from podwright.server._grpc_front import GrpcFront
from podwright.store import MemoryStore
from podwright.wire import (
    METHODS,
    AcquireRequest,
    AgentRequest,
    CreateRequest,
    LeaseInfo,
    ListRequest,
    PartitionName,
    PartitionSpec,
    QuotaInfo,
    RemoveRequest,
    UserRequest,
    Value,
    WaiterName,
    WaitRequest,
    messages,
    munge_payload,
    virm,
)
from tests.certificates import CLIENT, SERVER, folder_of
from tests.server.fakes import Http

ROOT = Caller("root", 0, Role.ADMINISTRATOR)
UIDS = {"administrator": 0, "user": 1001, "reader": 1003, "scheduler": 64030}
#: The users of the store. A kernel's alice needs to be none; the others get their role by uid.
USERS = {"administrator": "chief", "user": "alice", "reader": "ruth", "scheduler": "slurm"}
BOB = Caller("bob", 1002, Role.USER)
MINE, THEIRS = "own", "other"


@dataclass(frozen=True)
class Who:
    """A caller: by which door, in which role, under which name."""

    door: str
    role: str
    name: str

    def __str__(self) -> str:
        return f"{self.door}-{self.role}"


def everybody() -> list[Who]:
    """Each role at each door."""
    found = []
    for role in UIDS:
        kernel = "root" if role == "administrator" else USERS[role]
        found += [Who(door, role, kernel) for door in ("unix", "token", "munge")]
        found += [Who(door, role, USERS[role]) for door in ("key", "certificate")]
    return [*found, Who("loopback", "anonymous", "anonymous")]


KEY = Secret(b"0123456789abcdef")  # server and agents share it


class SomebodysMunge(Vouches, Protocol):
    """MUNGE that makes credentials of any user."""

    uid: int


class Doors:
    """The server. kernel: whom the Unix socket's other end is, by the kernel's word.

    munge: of whichever user its `uid` says.
    """

    def __init__(self, socket: Path, munge: SomebodysMunge | None = None) -> None:
        cluster = preset("pod16")
        machines = [m for d in cluster.domains for m in d.machines]
        drivers = {m.name: SimulatedMachine(m, cluster.family) for m in machines}
        self.store = MemoryStore()
        self.controller = Controller(
            self.store,
            [cluster],
            drivers,
            version="test",
            machines=Machines(
                partial(RemoteMachine, secret=KEY),
                discovery=Discovery(("lo",), lambda host: "lo"),
            ),
        )
        self.munge = munge or FakeMunge()
        self.kernel = 0
        names = {0: "root", 1001: "alice", 1003: "rut", 64030: "slurmuser"}
        identity = Identity(server_uid=500, name_of=names.get, munge=self.munge)
        self.server = Server(self.controller, ListenOptions(socket), identity=identity)
        self.tls = GrpcFront(self.server.calls, SERVER)
        self.agent = Agent(SimulatedMachine(Machine("ag9", "127.0.0.1"), IPU), "ag9", secret=KEY)
        self.agent_port = 0
        self.spare = Agent(SimulatedMachine(Machine("ag7", "127.0.0.1"), IPU), "ag7", secret=KEY)
        self.keys: dict[str, str] = {}
        self.leases: dict[str, LeaseInfo] = {}
        self.waiters: dict[str, str] = {}
        self._channels: list[grpc.aio.Channel] = []

    async def start(self) -> None:
        await self.server.start()
        port = await self.tls.start("127.0.0.1", 0)
        self.agent_port = await self.agent.start("127.0.0.1", 0)
        spare = await self.spare.start("127.0.0.1", 0)
        known = AgentRequest(name="ag7", host="127.0.0.1", port=spare)
        await self.controller.create_agent(ROOT, known)
        self._plain = grpc.aio.insecure_channel(f"127.0.0.1:{self.server.port}")
        self._secure = {}
        for folder in (CLIENT, *map(folder_of, USERS.values())):
            ca, key, cert = ((folder / f"{n}.pem").read_bytes() for n in ("ca", "key", "cert"))
            tls = grpc.ssl_channel_credentials(ca, key, cert)
            self._secure[folder] = grpc.aio.secure_channel(f"127.0.0.1:{port}", tls)
        for role, name in USERS.items():
            uid = UIDS[role] if role in ("reader", "scheduler") else -1
            request = UserRequest(name=name, role=role, uid=uid)
            self.keys[name] = (await self.controller.create_user(ROOT, request)).access_key
        for name in ("bob", *USERS.values()):
            quota = QuotaInfo(user=name, devices=1000)
            await self.controller.set_quota(ROOT, quota)

    async def stop(self) -> None:
        for channel in (self._plain, *self._secure.values()):
            await channel.close()
        await self.tls.stop(0)
        await self.agent.stop(0)
        await self.spare.stop(0)
        await self.server.stop(0)

    # -- calling -----------------------------------------------------------------------------

    async def call(self, who: Who, name: str, request: Any) -> tuple[str, Any]:
        """`OK` or the code of the refusal, and the answer."""
        if who.door == "unix":
            return await self._by_socket(who, name, request)
        if name.startswith("virmgrpc."):
            method = virm.VIRM_METHODS[name.removeprefix("virmgrpc.")]
            path, body = method.path, request.SerializeToString()
        else:
            path, body = messages.method_path(name), messages.encode(request)
        channel, shown = await self._shown(who, path, body)
        try:
            answer = await channel.unary_unary(path)(body, metadata=shown, timeout=300)
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details()
        if name.startswith("virmgrpc."):
            return "OK", answer
        return "OK", messages.decode(METHODS[name].reply, answer)

    async def _by_socket(self, who: Who, name: str, request: Value) -> tuple[str, Any]:
        self.kernel = UIDS[who.role]
        assert self.server.socket_path is not None
        http = await Http.connect(self.server.socket_path)
        try:
            return "OK", await http.call(name, request)
        except PodwrightError as error:
            return error.code, error.message
        finally:
            http.close()

    async def _shown(
        self, who: Who, path: str, body: bytes
    ) -> tuple[grpc.aio.Channel, tuple[tuple[str, str], ...]]:
        """By which channel a caller comes, and what metadata it shows."""
        if who.door == "key":
            key = self.keys[who.name]
            shown = ((messages.USER_KEY, who.name), (messages.ACCESS_KEY, key))
            return self._secure[CLIENT], shown
        if who.door == "certificate":
            return self._secure[folder_of(who.name)], ()
        if who.door == "token":
            identity = self.server.calls.identity
            token = identity.issue(await identity.caller_of_uid(UIDS[who.role], "unix")).token
            return self._plain, (("authorization", f"Bearer {token}"),)
        if who.door == "munge":
            self.munge.uid = UIDS[who.role]
            proof = self.munge.encode(munge_payload(path, body))
            return self._plain, (("authorization", f"MUNGE {proof}"),)
        return self._plain, ()

    # -- what there is -----------------------------------------------------------------------

    async def tidy(self, who: Who) -> None:
        """For the caller and for bob: a partition, a lease on another, and a place in line."""
        for waiter in self.waiters.values():
            with contextlib.suppress(NotFound):
                await self.controller.leave(ROOT, WaiterName(id=waiter))
        for info in (await self.controller.list_partitions(ROOT, ListRequest())).partitions:
            await self.controller.remove_partition(ROOT, RemoveRequest(name=info.name, force=True))
        mine = Caller(who.name, UIDS.get(who.role), Role.USER)
        if who.role == "anonymous":
            mine = Caller("anonymous", None, Role.READER, "tcp")
        for prefix, owner in ((MINE, mine), (THEIRS, BOB)):
            jobs = who.role == "scheduler" and prefix == MINE
            for name in (prefix, f"{prefix}-leased"):
                spec = PartitionSpec(name=name, size=1)
                if jobs:
                    await self.controller.create_partition(_slurm(), for_job(spec))
                else:
                    await self.controller.create_partition(owner, CreateRequest(spec=spec))
            spec = PartitionSpec(name=f"{prefix}-leased", size=1)
            held = await self.controller.acquire(
                _slurm() if jobs else owner,
                AcquireRequest(spec=spec, ttl=999, **(JOB if jobs else {})),
            )
            self.leases[prefix] = held.lease
            late = Caller(owner.name, owner.uid, Role.ADMINISTRATOR)  # whatever the role may do
            same = WaitRequest(acquire=AcquireRequest(spec=spec))
            joined = await self.controller.wait(late, same)
            self.waiters[prefix] = joined.waiter.id

    async def state(self) -> Mapping[tuple[str, str], bytes]:
        """All that is written down but for what was heard and who waits, and the line's length."""
        await self.controller._state.journal.flush()
        records = (await self.store.read()).records
        waiting = await self.controller.list_waiters(ROOT, ListRequest())
        ids = ",".join(sorted(info.id for info in waiting.waiters)).encode()
        kept = {key: body for key, body in records.items() if key[0] not in ("event", "waiter")}
        return {**kept, ("waiters", ""): ids}

    async def there(self, name: str) -> bool:
        """Is there such a partition?"""
        with contextlib.suppress(NotFound):
            await self.controller.get_partition(ROOT, PartitionName(name=name))
            return True
        return False


JOB: dict[str, Any] = {"owner": "alice", "owner_uid": 1001}


def for_job(spec: PartitionSpec) -> CreateRequest:
    """What a scheduler asks for."""
    return CreateRequest(spec=spec, job="7", **JOB)


def _slurm() -> Caller:
    return Caller("slurm", UIDS["scheduler"], Role.SCHEDULER)


def is_ours(name: str) -> bool:
    """Not one of the vendor's calls, which the Unix socket does not serve."""
    return re.fullmatch("[A-Za-z]+", name) is not None
