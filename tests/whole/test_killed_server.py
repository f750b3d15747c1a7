"""The real server is killed at every step it can name and at random instants, under real load.

Clients continue where they were: a request whose answer was lost is repeated under its id. After
each restart, everything that was answered must hold, and everything else must be done or undone
completely.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podwright.client import Client, UnixTransport
from podwright.errors import Fenced, PodwrightError, Unavailable
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    BackupReply,
    BackupRequest,
    CreateRequest,
    LeaseRequest,
    OperationState,
    PartitionInfo,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
    ResetRequest,
    Value,
)
from tests.server import kill_point

SEED = 20240229
CLIENTS = 4
ENOUGH = 10  #: calls, for a server that is killed under load
TTL = 600.0  #: seconds; no lease runs out by itself here


class Server:
    """A server over one store, as often as it is killed. place: as --storage takes it."""

    def __init__(self, folder: Path, place: str) -> None:
        self.folder, self.place = folder, place
        self.socket = folder / "s"
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = 0

    def start(self, fault: str = "") -> bool:
        """Start it; False when it killed itself before it answered."""
        self.kill()
        self.restarts += 1
        self._launch(fault)
        deadline = time.monotonic() + 300
        while True:
            try:
                with self.client() as client:
                    client.list_leases()
                return True
            except PodwrightError:
                assert self.process is not None
                if (code := self.process.poll()) == 69 and "postgresql" in self.place:
                    self._launch(fault)  # as systemd does: its database was too slow
                elif code is not None:
                    assert code == -signal.SIGKILL, (self.folder / "log").read_text()
                    return False
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.01)

    def _launch(self, fault: str) -> None:
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-P", kill_point.__file__, fault, "--user"),
                    *("--preset", "pod16", "--idle-seconds", "3600"),
                    *("--storage", self.place, "--socket", self.socket),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def client(self) -> Client:
        return Client(UnixTransport(str(self.socket)), timeout=300)

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait(300)
            self.process = None


class Worker:
    """A client with partitions of its own, and the books of what it was answered.

    pending: a call whose answer never came; it is made again before anything else.
    """

    def __init__(self, number: int) -> None:
        self.name = f"w{number}"
        self.random = random.Random(SEED + number)
        self.there: dict[str, PartitionInfo] = {}
        self.held: dict[str, AcquireReply] = {}
        self.pending: tuple[str, Value] | None = None
        self.count = 0
        self.done = 0

    @property
    def touched(self) -> str:
        """The partition that the pending call is about."""
        if self.pending is None:
            return ""
        request: Any = self.pending[1]
        if isinstance(request, LeaseRequest):
            return next(n for n, r in self.held.items() if r.lease.id == request.id)
        return str(request.spec.name if hasattr(request, "spec") else request.name)

    def run(self, server: Server) -> None:
        """Call until the server is gone."""
        with server.client() as client:
            while True:
                method, request = self.pending = self.pending or self._choose()
                try:
                    reply: Value | None = client.call(method, request)
                except Unavailable:
                    return
                except Fenced:
                    # Asked again, a release finds that it was done.
                    assert method == "Release", (method, request)
                    reply = None
                self._note(method, request, reply)
                self.pending = None
                self.done += 1

    def _choose(self) -> tuple[str, Value]:
        self.count += 1
        rid = f"{self.name}-{self.count}-{self.random.getrandbits(64):x}"
        free = [name for name in self.there if name not in self.held]
        choice = self.random.random()
        if self.held and choice < 0.3:
            name = self.random.choice(sorted(self.held))
            lease = self.held[name].lease
            kind = "Renew" if choice < 0.1 else "Release"
            return kind, LeaseRequest(id=lease.id, epoch=lease.epoch)
        if free and choice < 0.5:
            spec = PartitionSpec(name=self.random.choice(free))
            return "Acquire", AcquireRequest(spec=spec, ttl=TTL, request_id=rid)
        if free and choice < 0.6:
            return "ResetPartition", ResetRequest(name=self.random.choice(free), request_id=rid)
        if free and (choice < 0.75 or len(self.there) > 2):
            return "RemovePartition", RemoveRequest(name=self.random.choice(free), request_id=rid)
        if len(self.there) > 2:
            return self._choose()
        spec = PartitionSpec(name=f"{self.name}-{self.count}", size=1)
        if choice < 0.85:
            request = AcquireRequest(spec=spec, create=True, keep=True, ttl=TTL, request_id=rid)
            return "Acquire", request
        return "CreatePartition", CreateRequest(spec=spec, request_id=rid)

    def _note(self, method: str, request: Any, reply: Value | None) -> None:
        if isinstance(reply, AcquireReply):
            self.held[request.spec.name] = reply
            self.there[request.spec.name] = reply.partition
        elif isinstance(reply, PartitionInfo):
            self.there[reply.name] = reply
        elif method == "RemovePartition":
            del self.there[request.name]
        elif method == "Release":
            self.held = {n: r for n, r in self.held.items() if r.lease.id != request.id}


def check(server: Server, workers: list[Worker]) -> None:
    """Check that all answers hold, nothing is half done, and no device has two holders."""
    with server.client() as client:
        found = {info.name: info for info in client.list_partitions()}
        leases = {lease.id: lease for lease in client.list_leases()}
        devices = client.list_devices()
    unsure = {worker.touched for worker in workers}
    there = {name: info for worker in workers for name, info in worker.there.items()}
    assert set(there) - unsure <= set(found) <= set(there) | unsure
    owner: dict[tuple[str, int], str] = {}
    for name, info in found.items():
        assert (info.ready_state, info.operation_state) == (
            ReadyState.ACTIVE,
            OperationState.IDLE,
        ), info
        places = [(ref.machine, ref.index) for gcd in info.gcds for ref in gcd]
        assert len(places) == info.size
        for place in places:
            assert place not in owner, f"{place} is in {owner.get(place)} and in {name}"
            owner[place] = name
        if name in there and name not in unsure:
            assert info.gcds == there[name].gcds
            assert info.created_at == there[name].created_at
    for device in devices:
        assert device.partition == owner.get((device.device.machine, device.device.index), "")
    held = {
        reply.lease.id: reply.lease
        for worker in workers
        for name, reply in worker.held.items()
        if name != worker.touched
    }
    assert held.keys() <= leases.keys()
    for lease in leases.values():
        if lease.id in held:
            assert lease.epoch == held[lease.id].epoch
        else:
            assert lease.partition in unsure, lease
    covered = [lease.partition for lease in leases.values()]
    assert len(covered) == len(set(covered)), "a lease is shared"


def idle(fault: str, workers: list[Worker]) -> bool:
    """Return whether too little was answered yet, as on a busy machine; a fault does not wait."""
    return not fault and sum(worker.done for worker in workers) <= ENOUGH


def harass(server: Server, faults: list[str], chance: random.Random) -> int:
    """Start, load and kill the server once for each fault. Returns how many calls were answered."""
    workers = [Worker(number) for number in range(CLIENTS)]
    for fault in [*faults, ""]:
        if not server.start(fault):
            continue  # it died while it recovered
        try:
            check(server, workers)
        except Unavailable:
            assert not server.running() or fault
            continue
        threads = [threading.Thread(target=worker.run, args=[server]) for worker in workers]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + (0.5 if fault else chance.uniform(0, 0.3))
        while server.running() and (time.monotonic() < deadline or idle(fault, workers)):
            time.sleep(0.005)
        server.kill()
        for thread in threads:
            thread.join(300)
            assert not thread.is_alive()
    assert server.start()
    check(server, workers)
    with server.client() as client:
        for worker in workers:
            for reply in worker.held.values():
                if reply.partition.name != worker.touched:
                    client.renew(reply.lease.id, reply.lease.epoch)
        for name in [info.name for info in client.list_partitions()]:
            client.remove_partition(name, force=True)
        client.create_partition(PartitionSpec(name="all", size=16))
        assert all(device.state == "IN_USE" for device in client.list_devices())
    return sum(worker.done for worker in workers)


def faults_of(counts: dict[str, int], randoms: int) -> list[str]:
    """Each named step up to the counts, before and after, and so many random instants."""
    named = [
        f"{kind}:{n}:{when}"
        for kind, count in counts.items()
        for n in range(1, count + 1)
        for when in ("before", "after")
    ]
    return [*named, *[""] * randoms]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, str(tmp_path / "store.db"))
    yield made
    made.kill()


def test_a_server_killed_at_named_steps_and_at_random_loses_nothing(server: Server) -> None:
    chance = random.Random(SEED)
    faults = faults_of({"commit": 60, "driver": 60, "statement": 150}, 100)
    faults = chance.sample(faults, 12)
    answered = harass(server, faults, chance)
    assert server.restarts == len(faults) + 2
    assert answered > ENOUGH
    print(f"\n{server.restarts} restarts, {answered} calls answered")


@pytest.mark.soak
@pytest.mark.timeout(10800)
def test_a_server_killed_a_thousand_times_loses_nothing(server: Server) -> None:
    chance = random.Random(SEED)
    faults = faults_of({"commit": 120, "driver": 120, "statement": 160}, 250)
    chance.shuffle(faults)
    assert len(faults) >= 1000
    answered = harass(server, faults, chance)
    print(f"\n{server.restarts} restarts, {answered} calls answered")


def test_a_backup_taken_under_load_restores_to_a_consistent_state(
    server: Server, tmp_path: Path
) -> None:
    """Taken while clients create and remove, it stands as a server killed then would."""
    assert server.start()
    workers = [Worker(number) for number in range(CLIENTS)]
    threads = [threading.Thread(target=worker.run, args=[server]) for worker in workers]
    for thread in threads:
        thread.start()
    backups = []
    with server.client() as client:
        for _ in range(5):
            time.sleep(0.1)
            backups.append(client.ask("Backup", BackupRequest(), BackupReply).content)
    server.kill()
    for thread in threads:
        thread.join(300)
    for number, text in enumerate(backups):
        file = tmp_path / f"backup{number}"
        file.write_text(text)
        other = Server(tmp_path / f"again{number}", str(tmp_path / f"again{number}.db"))
        other.folder.mkdir()
        restored = command(other, "--restore", str(file))
        assert restored.returncode == 0, restored.stderr
        try:
            assert other.start()
            with other.client() as client:
                found = client.list_partitions()
                places = [(r.machine, r.index) for p in found for gcd in p.gcds for r in gcd]
                assert len(places) == len(set(places))
                assert {p.ready_state for p in found} <= {ReadyState.ACTIVE}
                stored = [json.loads(line) for line in text.splitlines()[1:-1]]
                kept = [
                    msgspec.json.decode(line, type=tuple[str, str, bytes])
                    for line in text.encode().splitlines()[1:-1]
                ]
                assert len(stored) == len(kept)
                names = {
                    key
                    for kind, key, body in kept
                    if kind == "partition" and json.loads(body)["operation"] != "REMOVING"
                }
                assert {p.name for p in found} == names
        finally:
            other.kill()


def command(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A vipu-server that does one thing and ends."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "podwright.cli.vipu_server"),
            *("--storage", server.place, *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
