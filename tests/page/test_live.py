"""The stream of a page has the whole state first, then the differences.

Nothing grows for a page that does not read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.errors import Denied, Unavailable
from podwright.page._live_view import BEHIND, Live
from podwright.page._snapshot import TOPICS, changes, take
from podwright.wire import (
    METHODS,
    AgentInfo,
    AgentList,
    ClusterInfo,
    ClusterList,
    DeviceInfo,
    DeviceList,
    DeviceRef,
    DrainInfo,
    LeaseInfo,
    LeaseList,
    ListRequest,
    MoveRow,
    MoveTable,
    UserInfo,
    UserList,
    WaiterInfo,
    WaiterList,
)

ITEMS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))
SNAPSHOTS = st.dictionaries(st.sampled_from(["devices", "leases"]), ITEMS)


@pytest.fixture(autouse=True)
def only_what_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """It makes it look: five seconds pass in any test, where a machine is slow."""
    monkeypatch.setattr("podwright.page._live_view.LOOK_ANYWAY", 1e9)


def applied(known: dict[str, dict[str, Any]], told: dict[str, dict[str, Any]]) -> None:
    """Apply an event as the page does (static/live.js)."""
    for topic, items in told.items():
        for key, item in items.items():
            if item is None:
                known.setdefault(topic, {}).pop(key, None)
            else:
                known.setdefault(topic, {})[key] = item


@given(st.lists(SNAPSHOTS, min_size=1))
def test_a_page_that_applies_all_changes_has_the_present_snapshot(
    snapshots: list[dict[str, dict[str, int]]],
) -> None:
    known: dict[str, dict[str, Any]] = {}
    before: dict[str, dict[str, int]] = {}
    for after in snapshots:
        told = changes(before, after)
        applied(known, told)
        before = after
        assert {topic: items for topic, items in known.items() if items} == {
            topic: items for topic, items in after.items() if items
        }
        assert not changes(after, after)


class Lists:
    """A server's lists; users are denied."""

    def __init__(self) -> None:
        self.asked = 0
        self.users: list[UserInfo] | None = None
        self.waiters: list[WaiterInfo] = []
        self.away = ""

    async def __call__(self, method: str) -> Any:
        self.asked += 1
        if self.away:
            raise Unavailable(self.away)
        if method == "ListUsers":
            if self.users is None:
                raise Denied("only administrators see users")
            return UserList(users=self.users)
        if method == "ListWaiters":
            return WaiterList(waiters=self.waiters)
        return METHODS[method].reply()


async def told(events: AsyncGenerator[bytes]) -> tuple[str, Any]:
    """Return the next event, without comments."""
    while True:
        text = (await anext(events)).decode()
        if not text.startswith(":"):
            kind, _, data = text.rstrip("\n").split("\n")
            return kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def waiter(name: str, estimate: float = 0.0) -> WaiterInfo:
    return WaiterInfo(id=name, owner="alice", estimate=estimate)


async def test_a_denied_list_leaves_its_topic_out_and_keeps_the_others() -> None:
    found = await take(Lists(), lambda: 0.0)
    assert "users" not in found
    assert set(found) == set(TOPICS) - {"users"} | {"fragments", "problems"}
    assert METHODS["ListClusters"].request is ListRequest


async def test_readings_are_in_the_snapshot_of_devices_whose_driver_reports_them() -> None:
    def device(offset: int, **attributes: str) -> DeviceInfo:
        ref = DeviceRef(domain=0, offset=offset, machine="m1", index=offset)
        return DeviceInfo(cluster="c", device=ref, attributes=attributes)

    found = [device(0, load="97 %", name="G", processes="7 alice"), device(1, name="G", power="")]

    async def ask(method: str) -> Any:
        return DeviceList(devices=found) if method == "ListDevices" else METHODS[method].reply()

    assert (await take(ask, lambda: 0.0))["readings"] == {"c/0/0": {"load": "97 %"}}
    found.pop(0)
    assert "readings" not in await take(ask, lambda: 0.0)


async def test_an_estimate_that_counts_down_sends_no_change() -> None:
    lists = Lists()
    lists.waiters = [waiter("w", 600.0)]
    first = await take(lists, lambda: 1000.0)
    lists.waiters = [waiter("w", 590.0)]
    assert not changes(first, await take(lists, lambda: 1010.0))


async def test_two_pages_share_one_reading_and_each_gets_the_whole_and_then_changes() -> None:
    lists, counted = Lists(), [0]
    live = Live(lambda: take(lists, lambda: 0.0), lambda: counted[0])
    one, two = live.events(), live.events()
    assert (await told(one))[0] == "all"
    assert (await told(two))[0] == "all"
    looks = lists.asked
    assert looks == len(TOPICS)
    lists.waiters = [waiter("w1")]
    counted[0] += 1
    for page in (one, two):
        kind, value = await told(page)
        assert (kind, list(value["topics"])) == ("change", ["waiters"])
    assert lists.asked == 2 * looks
    await one.aclose()
    await two.aclose()
    assert not len(live)
    await live.close()


async def test_a_page_that_does_not_read_gets_the_whole_view_later() -> None:
    lists, counted = Lists(), [0]
    live = Live(lambda: take(lists, lambda: 0.0), lambda: counted[0])
    slow, quick = live.events(), live.events()
    assert (await told(slow))[0] == "all"
    assert (await told(quick))[0] == "all"
    for number in range(BEHIND + 2):
        lists.waiters = [waiter(f"w{number}")]
        counted[0] += 1
        assert (await told(quick))[0] == "change"
    assert all(len(reader.waiting) <= BEHIND for reader in live._readers)
    kind, value = await told(slow)
    assert kind == "all"
    assert list(value["topics"]["waiters"]) == [f"w{BEHIND + 1}"]
    await slow.aclose()
    await quick.aclose()
    await live.close()


async def test_a_server_that_fails_is_shown_as_away_and_sends_the_whole_view_when_it_is_back() -> (
    None
):
    lists, counted = Lists(), [0]
    live = Live(lambda: take(lists, lambda: 0.0), lambda: counted[0])
    page = live.events()
    assert (await told(page))[0] == "all"
    lists.away = "this server stands by"
    counted[0] += 1
    assert await told(page) == ("away", {"problem": "this server stands by"})
    lists.away = ""
    counted[0] += 1
    assert (await told(page))[0] == "all"
    await page.aclose()
    await live.close()


async def test_the_server_is_not_read_while_no_page_is_open() -> None:
    lists = Lists()
    live = Live(lambda: take(lists, lambda: 0.0), lambda: 0)
    page = live.events()
    await told(page)
    await page.aclose()
    looking = live._refreshing
    assert looking is not None
    await asyncio.wait_for(looking, 60)
    asked = lists.asked
    again = live.events()
    assert (await told(again))[0] == "all"
    assert lists.asked == 2 * asked
    await again.aclose()
    await live.close()


def test_a_device_is_encoded_as_a_row_without_field_names() -> None:
    assert msgspec.json.encode(("ag1", 0, "FREE", "", "a")) == b'["ag1",0,"FREE","","a"]'


async def test_the_snapshot_has_machines_without_agents_drains_and_moves() -> None:
    cluster = ClusterInfo(
        name="c", family="ipu", size=6, free=6, machines=["m1", "m2", "m3"], ild_sizes=[6],
        down=["m2"], drained=["m1"],
        drains=[DrainInfo(machine="m1", reason="fan 3 is loud", who="ruth", at=9.4)],
    )  # fmt: skip
    devices = [
        DeviceInfo(cluster="c", device=DeviceRef(domain=0, offset=at, machine=f"m{at // 2 + 1}"))
        for at in range(6)
    ]
    asked = MoveRow(partition="p1", owner="bob", size=2, state="ASKED", waiter="w7", to="m3")
    lists = {
        "ListClusters": ClusterList(clusters=[cluster]),
        "ListDevices": DeviceList(devices=devices),
        "ListAgents": AgentList(agents=[AgentInfo(name="m3", devices=2, state="REFUSED")]),
        "ListLeases": LeaseList(leases=[LeaseInfo(id="l1", partition="p1", epoch=1, move="m12")]),
        "ShowMoves": MoveTable(moves=[asked]),
    }

    async def ask(method: str) -> Any:
        return lists.get(method) or METHODS[method].reply()

    found: Any = await take(ask, lambda: 0.0)
    machines = found["machines"]
    assert {name: row["state"] for name, row in machines.items()} == {
        "m1": "UP", "m2": "DOWN", "m3": "REFUSED"
    }  # fmt: skip
    assert (machines["m1"]["devices"], machines["m1"]["cluster"]) == (2, "c")
    assert machines["m1"]["reason"] == "drained: fan 3 is loud"
    assert found["clusters"]["c"]["drains"] == {
        "m1": {"reason": "fan 3 is loud", "who": "ruth", "at": 9}
    }
    assert found["leases"]["l1"]["move"] is True
    assert found["moves"] == {
        "p1": {"owner": "bob", "size": 2, "asked": True, "waiter": "w7", "to": "m3"}
    }
