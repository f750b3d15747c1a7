"""Records that contradict each other: what could give a device twice is not served.

The store is one that a real controller has written: agents, a cluster, two allocations, partitions,
leases, a fence, a waiter, a user. Each test changes it by hand, as a disk or a person may.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec
import pytest

from podwright.agents import SimulatedMachine
from podwright.controller._store_check import find_faults
from podwright.controller._store_references import _MAY_BE_GONE, REFERENCES, Gravity
from podwright.errors import PodwrightError, Unavailable
from podwright.fabric import IPU, Machine
from podwright.store import MemoryStore
from podwright.wire import (
    AcquireReply,
    AcquireRequest,
    AllocationRequest,
    CreateRequest,
    ListRequest,
    PartitionSpec,
    ReadyState,
    RemoveRequest,
    UserRequest,
    WaitRequest,
)
from tests.controller.test_agents import Site
from tests.controller.world import ROOT

Records = dict[tuple[str, str], bytes]


class Machines(dict[str, SimulatedMachine]):
    """Machines by their hosts; at an address that nobody has, none answers."""

    def __missing__(self, host: str) -> SimulatedMachine:
        machine = SimulatedMachine(Machine(host), IPU)
        machine.set_down(True)
        return machine


class Written(NamedTuple):
    """A site whose server is down, and its store."""

    site: Site
    records: Records

    def body(self, kind: str, key: str) -> dict[str, Any]:
        """The fields of a record."""
        fields: dict[str, Any] = msgspec.json.decode(self.records[kind, key])
        return fields

    def edit(self, kind: str, key: str, **fields: Any) -> None:
        """Change fields of a record."""
        self.records[kind, key] = msgspec.json.encode({**self.body(kind, key), **fields})

    def copy(self, kind: str, key: str, other: str, **fields: Any) -> None:
        """Write a record a second time, under another key."""
        self.records[kind, other] = msgspec.json.encode({**self.body(kind, key), **fields})

    def cluster(self, name: str, /, **fields: Any) -> dict[str, Any]:
        """The fields of a cluster, with some of them changed."""
        return {**self.body("cluster", name)["cluster"], **fields}

    def key_of(self, kind: str, number: int = 0) -> str:
        """The key of a record of a kind."""
        return sorted(key for each, key in self.records if each == kind)[number]


async def written() -> Written:
    site = Site()
    site.machines = Machines()
    await site.start()
    await site.agents("ag1", "ag2", "ag3")
    await site.cluster("c1", "ag1", "ag2")
    await site.cluster("c2", "ag3")
    call = site.controller
    for number in (1, 2):
        request = AllocationRequest(name=f"a{number}", cluster="c1", agents=[f"ag{number}"])
        await call.create_allocation(ROOT, request)
    for name, allocation, size in (("p1", "a1", 4), ("p2", "a2", 2), ("p3", "c2", 4)):
        spec = PartitionSpec(name=name, size=size, allocation=allocation)
        await call.create_partition(ROOT, CreateRequest(spec=spec))
    job = await _acquire(site, "p1")
    launch = await _acquire(site, "p1", parent=job.lease.id)
    assert launch.lease.parent == job.lease.id
    await call.create_user(ROOT, UserRequest(name="bob", allocations=["a1"]))
    spec = PartitionSpec(name="pw", size=4, allocation="a1")
    await call.wait(ROOT, WaitRequest(create=CreateRequest(spec=spec), timeout=0.0))
    await call.close()
    records = site.store._disk.records
    parent = job.lease.id
    lease = msgspec.json.decode(records["lease", launch.lease.id])
    fence = {"lease": {**lease, "id": "gone", "parent": parent}, "hosts": ["h1"], "since": 5.0}
    del records["lease", launch.lease.id]
    records["fence", "gone"] = msgspec.json.encode(fence)
    return Written(site, records)


async def _acquire(site: Site, name: str, parent: str = "") -> AcquireReply:
    spec = PartitionSpec(name=name, size=4)
    reply: AcquireReply = await site.controller.acquire(
        ROOT, AcquireRequest(spec=spec, ttl=600.0, parent=parent)
    )
    return reply


def faults(store: Written) -> dict[str, Gravity]:
    return {str(fault): fault.gravity for fault in find_faults(store.records, 1 << 60)}


async def refuses(store: Written) -> str:
    """The sentence by which the start refuses the store, which it leaves as it was."""
    before = dict(store.records)
    with pytest.raises(Unavailable) as caught:
        await store.site.start()
    assert store.records == before
    return caught.value.message


REFUSED: dict[str, tuple[Callable[[Written], Any], str]] = {
    "a cluster that is there twice": (
        lambda s: s.edit("cluster", "c2", cluster=s.cluster("c1", name="c2")),
        "has machine ag1, which is in cluster c1 too",
    ),
    "a held partition of another cluster": (
        lambda s: s.edit("partition", "p1", cluster="c9"),
        "partition p1 names cluster c9, which is not there, while lease",
    ),
    "no cluster at all": (
        lambda s: [s.records.pop(("cluster", name)) for name in ("c1", "c2")],
        "partition p1 names cluster c1, which is not there, while lease",
    ),
    "a machine in two allocations": (
        lambda s: s.edit("allocation", "a2", agents=["ag1", "ag2"]),
        "allocation a2 has machine ag1, which is in allocation a1 too",
    ),
    "an allocation of another cluster": (
        lambda s: s.edit("allocation", "a1", cluster="c9"),
        "allocation a1 names cluster c9, which is not there",
    ),
    "a held partition of another tenant's devices": (
        lambda s: s.edit("partition", "p1", allocation="a2"),
        "partition p1 has devices that are not in allocation a2, while lease",
    ),
    "a held partition of no allocation": (
        lambda s: s.edit("partition", "p1", allocation="a9"),
        "partition p1 names allocation a9, which cluster c1 has not, while lease",
    ),
    "an agent at another agent's address": (
        lambda s: s.edit("agent", "ag2", host="ag1"), "agent ag2 is at ag1:1, as agent ag1 is"
    ),
    "a negative size": (
        lambda s: s.edit("partition", "p2", size=-2),
        "partition p2 says that it has -2 devices, and has 2",
    ),
    "negative blocks": (
        lambda s: s.edit("partition", "p2", blocks=[[0, 4, -2]]),
        "partition p2 has devices that cannot be",
    ),
    "devices outside the cluster": (
        lambda s: s.edit("partition", "p1", blocks=[[0, 64, 4]], gcds=[[0, 64, 4]]),
        "partition p1 has devices that are not in allocation a1",
    ),
    "machines without devices": (
        lambda s: s.edit(
            "cluster",
            "c2",
            cluster=s.cluster(
                "c2", family={**s.cluster("c2")["family"], "devices_per_machine": 0}
            ),
        ),
        "cluster c2 has machines without devices",
    ),
    "a lease on a fenced device": (
        lambda s: s.edit("fence", "gone", lease={**s.body("fence", "gone")["lease"], "parent": ""}),
        "fence gone shares devices with lease",
    ),
    "a lease within itself": (
        lambda s: s.edit("lease", s.key_of("lease"), parent=s.key_of("lease")), "is within itself"
    ),
    "a role that is none": (
        lambda s: s.edit("user", "bob", role="wizard"), "has the role 'wizard'"
    ),
    "a time that cannot be": (
        lambda s: s.edit("partition", "p2", created_at=2.0**62), "has a time that cannot be"
    ),
    "a quota of somebody else": (
        lambda s: s.records.update({("quota", "ann/"): b'{"user":"bob","devices":4}'}),
        "quota ann/ calls itself bob/",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
async def test_what_could_give_a_device_twice_does_not_start(what: str) -> None:
    store = await written()
    change, says = REFUSED[what]
    assert faults(store) == {}
    change(store)
    assert any(says in text for text in faults(store)), faults(store)
    assert says in await refuses(store)


SET_ASIDE: dict[str, tuple[Callable[[Written], Any], tuple[str, str]]] = {
    "a lease without a partition": (
        lambda s: s.copy("lease", s.key_of("lease"), "lx", id="lx", partition="px"), ("lease", "lx")
    ),
    "a fence without a partition": (
        lambda s: s.edit(
            "fence", "gone", lease={**s.body("fence", "gone")["lease"], "partition": "px"}
        ),
        ("fence", "gone"),
    ),
    "an allocation of nothing": (
        lambda s: s.records.update(
            {("allocation", "ax"): b'{"name":"ax","cluster":"cx","agents":["agx"]}'}
        ),
        ("allocation", "ax"),
    ),
    "a quarantine of no cluster": (
        lambda s: s.records.update(
            {
                ("quarantine", "cx/0/0/4"): b'{"cluster":"cx","allocation":"cx","machine":"agx",'
                b'"block":[0,0,4],"epoch":1,"partition":"px"}'
            }
        ),
        ("quarantine", "cx/0/0/4"),
    ),
}  # fmt: skip


async def test_a_fence_below_a_lease_that_was_given_back_is_no_damage() -> None:
    """The lease between the two is gone, so whether they are apart is not known."""
    store = await written()
    store.edit("fence", "gone", lease={**store.body("fence", "gone")["lease"], "parent": "between"})
    assert faults(store) == {}


@pytest.mark.parametrize("what", SET_ASIDE)
async def test_an_orphan_is_set_aside_and_reported(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await written()
    change, place = SET_ASIDE[what]
    change(store)
    (found,) = find_faults(store.records, 1 << 60)
    assert (found.kind, found.key, found.gravity) == (*place, Gravity.SET_ASIDE)
    with caplog.at_level(logging.WARNING, "podwright"):
        await store.site.start()
    assert str(found) in caplog.text
    assert "--repair removes what is set aside" in caplog.text
    assert place in store.records  # until somebody removes it
    listed = await store.site.controller.list_leases(ROOT, ListRequest())
    assert "lx" not in [lease.id for lease in listed.leases]
    assert (await store.site.partition("p2")).ready_state is ReadyState.ACTIVE
    await store.site.controller.close()


async def test_an_unheld_partition_without_a_place_is_served_in_error() -> None:
    store = await written()
    store.edit("partition", "p2", cluster="c9")
    assert set(faults(store).values()) == {Gravity.SERVED}
    await store.site.start()
    info = await store.site.partition("p2")
    assert info.ready_state is ReadyState.ERROR
    await store.site.controller.remove_partition(ROOT, RemoveRequest(name="p2"))
    await store.site.controller.close()
    assert faults(store) == {}


async def test_a_lease_whose_parent_is_gone_is_still_a_lease() -> None:
    store = await written()
    lease = store.key_of("lease")
    store.records.pop(("fence", "gone"))
    store.edit("lease", lease, parent="lx")
    assert list(faults(store).values()) == [Gravity.SERVED]
    await store.site.start()
    listed = await store.site.controller.list_leases(ROOT, ListRequest())
    assert [one.id for one in listed.leases] == [lease]
    await store.site.controller.close()


def _damages(store: Written, numbers: random.Random) -> Iterator[str]:
    """Change one field of one record after another, each to what another record has there."""
    places = sorted(store.records)
    while True:
        kind, key = numbers.choice(places)
        try:
            body = msgspec.json.decode(store.records[kind, key])
        except msgspec.DecodeError:
            continue
        if not isinstance(body, dict) or not body:
            continue
        field = numbers.choice(sorted(body))
        peers = [msgspec.json.decode(store.records[one]) for one in places if one[0] == kind]
        values = [peer[field] for peer in peers if field in peer and peer[field] != body[field]]
        value = numbers.choice([*values, None, -1, 2**62, "nonesuch", [], {}])
        store.records[kind, key] = msgspec.json.encode({**body, field: value})
        yield f"{kind} {key}: {field} = {value!r}"


def _held(store: MemoryStore) -> dict[tuple[str, int, int], str]:
    """The devices of held partitions, by their places."""
    records = {
        place: msgspec.json.decode(body)
        for place, body in store._disk.records.items()
        if place[0] in ("partition", "lease")
    }
    names = {record["partition"] for (kind, _), record in records.items() if kind == "lease"}
    return {
        (records["partition", name]["cluster"], domain, at): name
        for name in names
        if ("partition", name) in records
        for domain, offset, size in records["partition", name]["blocks"]
        for at in range(offset, offset + size)
    }


@pytest.mark.parametrize(
    "seeds",
    [range(200), pytest.param(range(200, 5000), marks=pytest.mark.soak)],
    ids=["200", "soak"],
)
async def test_no_damage_makes_the_server_fail_or_give_a_held_device_away(seeds: range) -> None:
    for seed in seeds:
        await _survives(seed)


async def _survives(seed: int) -> None:
    numbers = random.Random(seed)
    store = await written()
    damages = _damages(store, numbers)
    done = [next(damages) for _ in range(numbers.randint(1, 2))]
    try:
        await store.site.start()
    except PodwrightError:
        return  # a refusal, in a sentence; another exception is a fault of the server's
    before = _held(store.site.store)
    controller = store.site.controller
    for number, (cluster, allocation) in enumerate(
        [("c1", "a1"), ("c1", "a2"), ("c2", ""), ("", "")] * 2
    ):
        spec = PartitionSpec(name=f"new{number}", size=2, cluster=cluster, allocation=allocation)
        try:
            await controller.create_partition(ROOT, CreateRequest(spec=spec))
        except PodwrightError:
            continue
        made = msgspec.json.decode(store.site.store._disk.records["partition", f"new{number}"])
        taken = {
            (made["cluster"], domain, at)
            for domain, offset, size in made["blocks"]
            for at in range(offset, offset + size)
        }
        assert not taken & before.keys(), (seed, done, spec)
    await controller.close()


def test_every_reference_is_declared_once() -> None:
    rows = [(row.kind, row.field) for row in REFERENCES]
    assert len(rows) == len(set(rows))
    for names, reason in _MAY_BE_GONE.items():
        assert names
        assert reason
