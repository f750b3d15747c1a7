"""The history has each minute as it was, in few bytes, and sums of durations."""

from __future__ import annotations

import random
from typing import Any

import pytest

from podwright.errors import InvalidRequest, NotFound
from podwright.history import KEEP, Past, Writer
from podwright.page._query_parameters import minute_of, minutes_span_of
from podwright.store import MemoryHistory

NOW = 29_000_000 // 60 * 60  # minutes since 1970, at a full hour


def pod(size: int = 256) -> dict[str, dict[str, Any]]:
    """A snapshot with every device free."""
    return {
        "clusters": {
            "c": {
                "family": "ipu",
                "size": size,
                "domains": [64] * (size // 64),
                "simulated": True,
                "machines": [],
            }
        },
        "devices": {
            f"c/{at // 64}/{at % 64}": (f"m{at // 4}", at % 4, "FREE", "", "a")
            for at in range(size)
        },
        "partitions": {},
        "waiters": {},
        "fragments": {"c": {"sizes": [[1, size, 0], [2, size // 2, 0]]}},
    }


def take(snapshot: dict[str, dict[str, Any]], name: str, first: int, size: int) -> None:
    for at in range(first, first + size):
        key = f"c/{at // 64}/{at % 64}"
        machine, index = snapshot["devices"][key][:2]
        snapshot["devices"][key] = (machine, index, "IN_USE" if name else "FREE", name, "a")
    if name:
        snapshot["partitions"][name] = {
            "owner": f"user{first % 7}", "job": f"job {name}", "allocation": "a",
            "created": 1_700_000_000, "until": 0, "state": "ACTIVE",
        }  # fmt: skip


async def write(writer: Writer, history: MemoryHistory, at: int, snapshot: Any) -> None:
    await history.write(writer.add(at, snapshot), since=at - KEEP, most=50_000_000, epoch=1)


async def test_each_minute_is_shown_as_it_was() -> None:
    history, writer, dice = MemoryHistory(), Writer(), random.Random(1)
    now, told = pod(), {}
    for at in range(NOW - 10, NOW + 70):
        if dice.random() < 0.3 and at > NOW - 10:
            await write(writer, history, at, None)
        else:
            place = dice.randrange(64) * 4
            take(now, f"p{at}" if dice.random() < 0.6 else "", place, 4)
            await write(writer, history, at, now)
        told[at] = {key: row[:4] for key, row in now["devices"].items()}
    past = Past(history)
    for at, devices in told.items():
        found = await past.at(at)
        assert found["time"] == at * 60
        assert {k: row[:4] for k, row in found["topics"]["devices"].items()} == devices
    with pytest.raises(NotFound):
        await past.at(NOW - 11)
    with pytest.raises(NotFound):
        await past.at(NOW + 70)


async def test_a_gap_is_a_gap_and_what_follows_stands_alone() -> None:
    history, writer, now = MemoryHistory(), Writer(), pod()
    await write(writer, history, NOW, now)
    writer.forget()
    with pytest.raises(ValueError, match="nothing was told"):
        writer.add(NOW + 5, None)
    await write(writer, history, NOW + 5, now)
    past = Past(history)
    assert len((await past.at(NOW + 5))["topics"]["devices"]) == 256
    with pytest.raises(NotFound):
        await past.at(NOW + 3)
    assert [p.time // 60 - NOW for p in await past.series(NOW, NOW + 10, 1)] == [0, 5]


async def test_sums_are_means_by_time_and_what_is_wrong_is_the_most() -> None:
    history, writer, now = MemoryHistory(), Writer(), pod(64)
    await write(writer, history, NOW, now)
    for at in range(NOW + 1, NOW + 15):
        await write(writer, history, at, None)
    take(now, "p", 0, 32)
    now["partitions"]["p"]["state"] = "ERROR"
    key = "c/0/63"
    now["devices"][key] = (*now["devices"][key][:2], "DOWN", "", "a")
    await write(writer, history, NOW + 15, now)
    for at in range(NOW + 16, NOW + 20):
        await write(writer, history, at, None)
    (point,) = await Past(history).series(NOW, NOW + 20, 20)
    assert (point.used, point.free) == (8.0, 64 - 8 - 0.25)
    assert (point.down, point.failed) == (1, 1)
    assert point.fits == [64, 32]
    halves = await Past(history).series(NOW, NOW + 20, 10)
    assert [half.used for half in halves] == [0.0, 16.0]


async def test_what_drivers_measure_is_summed_and_is_not_told_to_who_may_not_see_it() -> None:
    history, writer, now = MemoryHistory(), Writer(), pod(64)
    await write(writer, history, NOW, now)
    now["readings"] = {
        "c/0/0": {"load": "90 %", "temperature": "71 °C", "power": "400 W"},
        "c/0/1": {"load": "10 %", "temperature": "40 °C", "ecc errors": "7 corrected"},
        "c/0/2": {"ecc errors": "0 corrected, 2 uncorrected"},
        "c/0/3": {"last xid": "79", "problems": "fell off the bus"},
    }
    await write(writer, history, NOW + 1, now)
    now["readings"] = {"c/0/0": {"load": "30 %", "temperature": "60 °C", "power": "100 W"}}
    await write(writer, history, NOW + 2, now)
    past = Past(history)
    points = await past.series(NOW, NOW + 3, 1)
    assert [p.measured for p in points] == [None, (50.0, 71, 400, 2), (30.0, 60, 100, 0)]
    (joined,) = await past.series(NOW, NOW + 3, 3)
    assert joined.measured == (40.0, 71, 250.0, 2)
    assert joined.fits == [64, 32]
    assert [p.measured for p in await past.series(NOW, NOW + 3, 1, own="user0")] == [None] * 3
    now["readings"] = {"c/0/0": {"problems": "its driver does not answer"}}
    await write(writer, history, NOW + 3, now)
    assert (await past.series(NOW + 3, NOW + 4, 1))[0].measured == (None, None, None, 1)


async def test_who_sees_only_what_is_theirs_sees_no_others_in_what_was() -> None:
    history, writer, now = MemoryHistory(), Writer(), pod(64)
    take(now, "mine", 0, 4)
    take(now, "theirs", 4, 4)
    now["waiters"]["w"] = {
        "place": 1, "owner": "user4", "asked": "a secret", "needs": "", "since": 1, "priority": 0
    }  # fmt: skip
    await write(writer, history, NOW, now)
    found = (await Past(history).at(NOW, own="user0"))["topics"]
    assert set(found["partitions"]) == {"mine"}
    assert found["devices"]["c/0/4"][2:4] == ("IN_USE", "")
    assert "theirs" not in str(found)
    assert "secret" not in str(found)


async def test_thirty_days_of_a_busy_pod_are_small_and_a_minute_needs_one_row() -> None:
    """Two busy hours stand for all 720: rows know nothing of each other."""
    history, writer, dice = MemoryHistory(), Writer(), random.Random(2)
    now, ends = pod(), dict.fromkeys(range(0, 256, 4), 0)
    for minute in range(120):
        for place, end in ends.items():
            if end <= minute:
                take(now, f"slurm_{minute * 64 + place}", place, 4)
                ends[place] = minute + 1 + int(dice.expovariate(1 / 10))
        alive = {row[3] for row in now["devices"].values()}
        for name in set(now["partitions"]) - alive:
            del now["partitions"][name]
        await write(writer, history, NOW + minute, now)
    rows = [await history.at(NOW), await history.at(NOW + 60)]
    size = sum(len(row.body) + len(row.sums) for row in rows if row)
    assert size / len(rows) * 24 * 30 < 44_000_000
    reads: list[int] = []
    looked = history.at

    async def at(minute: int) -> Any:
        row = await looked(minute)
        reads.append(len(row.body) if row else 0)
        return row

    history.at = at  # type: ignore[method-assign]
    await Past(history).at(NOW + 59)
    assert len(reads) == 1
    assert reads[0] < 100_000


async def test_an_unchanged_minute_writes_no_body() -> None:
    writer = Writer()
    writer.add(NOW, pod())
    assert writer.add(NOW + 1, None)[2:] == (b"", b"")
    assert writer.add(NOW + 60, None).body, "an hour's row stands alone"


@pytest.mark.parametrize(
    "query", ["time=1&time=2", "time=-1", "time=x", "time=", "when=1", "time=" + "9" * 12]
)
def test_a_query_that_is_none_is_refused(query: str) -> None:
    with pytest.raises(InvalidRequest):
        minute_of(query)


async def test_a_span_has_a_bound() -> None:
    assert minutes_span_of("", 3_600_000.0) == (60_001 - 60, 60_001, 1)
    for since, until, step in ((0, KEEP + 1, 60), (0, KEEP, 1), (5, 5, 1), (5, 4, 1)):
        with pytest.raises(InvalidRequest):
            await Past(MemoryHistory()).series(since, until, step)
