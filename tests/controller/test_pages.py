"""Lists in pages contain everything exactly once, whatever changes between two pages."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from podwright.controller.calls import _list_pages as pages
from podwright.errors import InvalidRequest
from podwright.fabric import preset
from podwright.wire import (
    CreateRequest,
    ListRequest,
    PartitionSpec,
    QuotaInfo,
    ShareRequest,
    UserRequest,
    WaitRequest,
)
from tests.controller.world import ALL, ROOT, World

LISTS: dict[str, Callable[[Any], Any]] = {
    "list_clusters": lambda one: one.name,
    "list_allocations": lambda one: one.name,
    "list_devices": lambda one: (one.cluster, one.device.domain, one.device.offset),
    "list_partitions": lambda one: one.name,
    "list_leases": lambda one: one.id,
    "list_agents": lambda one: one.name,
    "list_users": lambda one: one.name,
    "list_quotas": lambda one: (one.user, one.allocation),
    "list_shares": lambda one: one.guest,
    "list_waiters": lambda one: one.id,
}


async def full() -> World:
    """A pod with objects of every kind."""
    machines = [m.name for d in preset("pod64").domains for m in d.machines]
    halves = {"pod64": {"left": machines[:8], "right": machines[8:]}}
    small = preset("pod16")
    (domain,) = small.domains
    others = tuple(replace(machine, name=f"b-{machine.name}") for machine in domain.machines)
    small = replace(small, domains=(replace(domain, machines=others),))
    world = World([preset("pod64"), small], allocations=halves)
    await world.start()
    for n in range(5):
        await world.create(f"p{n}", 4, allocation="left")
        await world.acquire(f"p{n}", 4)
        user = UserRequest(name=f"u{n}", role="user")
        await world.controller.create_user(ROOT, user)
        await world.controller.set_quota(ROOT, QuotaInfo(user=f"u{n}", devices=64))
        await world.controller.set_share(ROOT, ShareRequest(guest=f"s{n}", weight=1 + n))
    for n in range(5):
        wanted = CreateRequest(spec=PartitionSpec(name=f"w{n}", size=32, allocation="left"))
        await world.controller.wait(ROOT, WaitRequest(create=wanted, priority=n % 2))
    return world


def items(reply: Any) -> list[Any]:
    found: list[Any] = getattr(reply, reply.__struct_fields__[0])
    return found


@pytest.mark.parametrize("size", [1, 2, 3])
async def test_pages_joined_are_the_whole_list(size: int) -> None:
    world = await full()
    for name, key in LISTS.items():
        call: Callable[..., Awaitable[Any]] = getattr(world.controller, name)
        whole = await call(ROOT, ALL)
        assert not whole.next_page_token
        found, token = [], ""
        for _ in itertools.count():
            page = await call(ROOT, ListRequest(page_size=size, page_token=token))
            assert 0 < len(items(page)) <= size or not items(whole)
            found += items(page)
            if not (token := page.next_page_token):
                break
        assert [key(one) for one in found] == [key(one) for one in items(whole)], name
    await world.stop()


async def test_what_stays_is_listed_once_although_others_come_and_go() -> None:
    world = World([preset("pod64")])
    await world.start()
    for n in range(8):
        await world.create(f"p{n}", 1)
    found, token = [], ""
    while True:
        page = await world.controller.list_partitions(
            ROOT, ListRequest(page_size=2, page_token=token)
        )
        found += [p.name for p in page.partitions]
        if not (token := page.next_page_token):
            break
        if token == "p3":
            await world.remove("p3")  # the very one that the token names
            await world.remove("p0")
            await world.create("a", 1)
            await world.create("p55", 1)
    assert found == ["p0", "p1", "p2", "p3", "p4", "p5", "p55", "p6", "p7"]
    await world.stop()


async def test_a_page_of_large_partitions_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "HEAVY", 16)
    world = World([preset("pod64")])
    await world.start()
    for n in range(8):
        await world.create(f"p{n}", 8)
    page = await world.controller.list_partitions(ROOT, ALL)
    assert [p.name for p in page.partitions] == ["p0", "p1"]
    assert page.next_page_token == "p1"
    await world.stop()


@pytest.mark.parametrize("name", LISTS)
async def test_sizes_and_tokens_that_are_none_are_refused(name: str) -> None:
    world = await full()
    call = getattr(world.controller, name)
    with pytest.raises(InvalidRequest, match="page"):
        await call(ROOT, ListRequest(page_size=-1))
    if name in ("list_clusters", "list_allocations", "list_devices", "list_waiters"):
        for token in ("nonsense", "a/b", "pod64/x/1", "1/x/y", "\x00"):
            with pytest.raises(InvalidRequest) as refused:
                await call(ROOT, ListRequest(page_token=token))
            assert "list" in refused.value.message
    await world.stop()


async def test_a_page_is_never_larger_than_the_server_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "MOST", 3)
    world = World([preset("pod64")])
    await world.start()
    page = await world.controller.list_devices(ROOT, ListRequest(page_size=1_000_000))
    assert len(page.devices) == 3
    assert msgspec.json.encode(page)
    await world.stop()
