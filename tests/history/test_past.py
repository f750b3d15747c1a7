"""The history has each minute as it was, in few bytes, and sums of durations."""

from __future__ import annotations

import random
import zlib
from typing import Any

import msgspec
import pytest

from podwright.errors import InvalidRequest, NotFound, Unavailable
from podwright.history import KEEP, Past
from podwright.history import _pod_history as pod_history
from podwright.page._query_parameters import minute_of, minutes_span_of
from podwright.store import MemoryHistory, Row
from tests.history.recording import Recording, kept, sums

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
                "drained": [],
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


@pytest.fixture
def recording() -> Recording:
    return Recording()


@pytest.mark.parametrize("least", [pod_history.LEAST_CHANGES, 4_000])
async def test_each_minute_is_shown_as_it_was(
    recording: Recording, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_history, "LEAST_CHANGES", least)
    dice, now, told = random.Random(1), pod(), {}
    for at in range(NOW - 10, NOW + 140):
        if dice.random() > 0.3:
            place = dice.randrange(64) * 4
            take(now, f"p{at}" if dice.random() < 0.6 else "", place, 4)
        await recording.write(at, now)
        told[at] = {key: row[:4] for key, row in now["devices"].items()}
    assert (len(recording.wholes) > 2) == (least == 4_000), recording.wholes
    past = Past(recording.history)
    for at, devices in told.items():
        found = await past.at(at)
        assert found["time"] == at * 60
        assert {k: row[:4] for k, row in found["topics"]["devices"].items()} == devices
    with pytest.raises(NotFound):
        await past.at(NOW - 11)
    with pytest.raises(NotFound):
        await past.at(NOW + 140)


async def test_a_gap_is_a_gap_and_what_follows_stands_alone(recording: Recording) -> None:
    now = pod()
    await recording.write(NOW, now)
    recording.forget()
    with pytest.raises(ValueError, match="nothing was told"):
        recording.writer.add(NOW + 5, {}, sums(now))
    await recording.write(NOW + 5, now)
    past = Past(recording.history)
    assert len((await past.at(NOW + 5))["topics"]["devices"]) == 256
    with pytest.raises(NotFound):
        await past.at(NOW + 3)
    assert [p.time // 60 - NOW for p in await past.series(NOW, NOW + 10, 1)] == [0, 5]


async def test_sums_are_means_by_time_and_what_is_wrong_is_the_most(recording: Recording) -> None:
    now = pod(64)
    for at in range(NOW, NOW + 15):
        await recording.write(at, now)
    take(now, "p", 0, 32)
    now["partitions"]["p"]["state"] = "ERROR"
    key = "c/0/63"
    now["devices"][key] = (*now["devices"][key][:2], "DOWN", "", "a")
    for at in range(NOW + 15, NOW + 20):
        await recording.write(at, now)
    past = Past(recording.history)
    (point,) = await past.series(NOW, NOW + 20, 20)
    assert (point.used, point.free) == (8.0, 64 - 8 - 0.25)
    assert (point.down, point.failed) == (1, 1)
    assert point.fits == [64, 32]
    halves = await past.series(NOW, NOW + 20, 10)
    assert [half.used for half in halves] == [0.0, 16.0]


async def test_what_drivers_measure_is_summed_and_is_not_told_to_who_may_not_see_it(
    recording: Recording,
) -> None:
    now = pod(64)
    await recording.write(NOW, now)
    now["readings"] = {
        "c/0/0": {"load": "90 %", "temperature": "71 °C", "power": "400 W"},
        "c/0/1": {"load": "10 %", "temperature": "40 °C", "ecc errors": "7 corrected"},
        "c/0/2": {"ecc errors": "0 corrected, 2 uncorrected"},
        "c/0/3": {"last xid": "79", "problems": "fell off the bus"},
    }
    await recording.write(NOW + 1, now)
    now["readings"] = {"c/0/0": {"load": "30 %", "temperature": "60 °C", "power": "100 W"}}
    await recording.write(NOW + 2, now)
    past = Past(recording.history)
    points = await past.series(NOW, NOW + 3, 1)
    assert [p.measured for p in points] == [None, (50.0, 71, 400, 2), (30.0, 60, 100, 0)]
    (joined,) = await past.series(NOW, NOW + 3, 3)
    assert joined.measured == (40.0, 71, 250.0, 2)
    assert joined.fits == [64, 32]
    assert [p.measured for p in await past.series(NOW, NOW + 3, 1, own="user0")] == [None] * 3
    now["readings"] = {"c/0/0": {"problems": "its driver does not answer"}}
    await recording.write(NOW + 3, now)
    assert (await past.series(NOW + 3, NOW + 4, 1))[0].measured == (None, None, None, 1)


async def test_who_sees_only_what_is_theirs_sees_no_others_in_what_was(
    recording: Recording,
) -> None:
    now = pod(64)
    take(now, "mine", 0, 4)
    take(now, "theirs", 4, 4)
    now["waiters"]["w"] = {
        "place": 1, "owner": "user4", "asked": "a secret", "needs": "", "since": 1, "priority": 0
    }  # fmt: skip
    await recording.write(NOW, now)
    for domain in ("", "c/0"):
        found = (await Past(recording.history).at(NOW, own="user0", domain=domain))["topics"]
        assert set(found["partitions"]) == {"mine"}
        assert found["devices"]["c/0/4"][2:4] == ("IN_USE", "")
        assert "theirs" not in str(found)
        assert "secret" not in str(found)


async def test_a_large_pod_is_told_by_its_domains_and_a_domain_when_it_is_opened(
    recording: Recording,
) -> None:
    now = pod(4096)
    take(now, "p", 64, 32)
    take(now, "q", 128, 4)
    await recording.write(NOW, now)
    past = Past(recording.history)
    found = (await past.at(NOW))["topics"]
    assert (found["devices"], found["partitions"]) == ({}, {})
    assert found["totals"] == {"partitions": {"count": 2}}
    assert found["domains"]["c/1"] == [32, 32, 0, 0, 0, 0]
    assert found["domains"]["c/3"] == [64, 0, 0, 0, 0, 0]
    assert len(found["domains"]) == 64
    opened = (await past.at(NOW, domain="c/1"))["topics"]
    assert set(opened["partitions"]) == {"p"}
    assert len(opened["devices"]) == 64
    assert opened["devices"]["c/1/31"][2:4] == ("IN_USE", "p")


async def test_thirty_days_of_a_busy_pod_are_small_and_a_minute_is_read_from_few_bytes(
    recording: Recording,
) -> None:
    """Two busy hours stand for all 720."""
    dice, now, ends = random.Random(2), pod(), dict.fromkeys(range(0, 256, 4), 0)
    for minute in range(120):
        for place, end in ends.items():
            if end <= minute:
                take(now, f"slurm_{minute * 64 + place}", place, 4)
                ends[place] = minute + 1 + int(dice.expovariate(1 / 10))
        alive = {row[3] for row in now["devices"].values()}
        for name in set(now["partitions"]) - alive:
            del now["partitions"][name]
        await recording.write(NOW + minute, now)
    history = recording.history
    rows = [await history.at(row.start) for row in await history.sums(NOW, NOW + 120)]
    size = sum(len(row.body) + len(row.sums) for row in rows if row)
    assert size / 2 * 24 * 30 < 44_000_000
    reads: list[int] = []
    looked = history.at

    async def at(minute: int) -> Any:
        row = await looked(minute)
        reads.append(len(row.body) if row else 0)
        return row

    history.at = at  # type: ignore[method-assign]
    await Past(history).at(NOW + 119)
    assert sum(reads) < 200_000


async def test_an_unchanged_minute_writes_no_body(recording: Recording) -> None:
    recording.row(NOW, pod())
    for minute in (1, 60, pod_history.WHOLE_MINUTES + 1):
        assert recording.row(NOW + minute, pod())[2:] == (b"", b"")


async def test_the_whole_is_written_again_a_day_later_if_something_changed(
    recording: Recording,
) -> None:
    now = pod()
    await recording.write(NOW, now)
    for day in (1, 2):
        await recording.write(NOW + day * pod_history.WHOLE_MINUTES, now)
    take(now, "p", 0, 4)
    later = NOW + 2 * pod_history.WHOLE_MINUTES + 1
    await recording.write(later, now)
    assert recording.wholes == [NOW, later]
    assert "p" in (await Past(recording.history).at(later))["topics"]["partitions"]


async def test_changes_whose_whole_was_dropped_are_told_as_not_known(recording: Recording) -> None:
    now = pod()
    await recording.write(NOW, now)
    take(now, "p", 0, 4)
    await recording.write(NOW + 1, now)
    del recording.history._rows[NOW]
    with pytest.raises(NotFound):
        await Past(recording.history).at(NOW + 1)


async def test_rows_of_an_earlier_build_are_told_and_a_later_builds_are_refused(
    recording: Recording,
) -> None:
    """An earlier build wrote the whole at the beginning of each row."""

    def packed(*value: Any) -> bytes:
        return zlib.compress(msgspec.json.encode(value))

    now = pod(64)
    take(now, "p", 0, 4)
    gone = {"partitions": {"p": None}}
    body = packed(1, [[NOW, kept(now)], [NOW + 1, gone]])
    lines = packed(1, [[NOW, *sums(now)], [NOW + 1, *sums(now)]])
    await recording.history.write(Row(NOW, NOW + 5, lines, body), since=0, most=10**9, epoch=1)
    past = Past(recording.history)
    assert set((await past.at(NOW))["topics"]["partitions"]) == {"p"}
    assert (await past.at(NOW + 3))["topics"]["partitions"] == {}
    assert [point.used for point in await past.series(NOW, NOW + 2, 1)] == [4.0, 4.0]
    later = Row(NOW + 6, NOW + 6, packed(9, []), packed(9, []))
    await recording.history.write(later, since=0, most=10**9, epoch=1)
    with pytest.raises(Unavailable, match="newer Podwright"):
        await past.at(NOW + 6)


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
