"""A store that cannot be true is served by nobody: the refusal names store, record and cure.

Each case is a store that a real controller has written, with one record changed by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podwright.cli import vipu_server
from podwright.controller import ServedClusters, find_faults
from podwright.errors import Unavailable
from podwright.fabric import preset
from podwright.server.machines._served_hardware import choose
from podwright.store import MemoryStore, SQLiteStore, backup_text
from tests.controller.world import World, virtually

Records = dict[tuple[str, str], bytes]


def edit(records: Records, kind: str, key: str = "", **fields: Any) -> None:
    """Change fields of the record with this key, or of the first of its kind."""
    place = next(place for place in sorted(records) if place[0] == kind and key in ("", place[1]))
    body = msgspec.json.decode(records[place])
    records[place] = msgspec.json.encode({**body, **fields})


async def written() -> MemoryStore:
    """The store of a pod with two partitions, and a lease on one of them."""
    world = World([preset("pod16")])
    await world.start()
    await world.create("p1", 4)
    await world.create("p2", 4)
    await world.acquire("p1", 4, ttl=600.0)
    await world.stop()
    return world.store


def share_devices(records: Records) -> None:
    first = msgspec.json.decode(records["partition", "p1"])
    edit(records, "partition", "p2", blocks=first["blocks"], gcds=first["gcds"])


def cut_off(kind: str) -> Callable[[Records], None]:
    def change(records: Records) -> None:
        place = next(place for place in sorted(records) if place[0] == kind)
        records[place] = records[place][:-5]

    return change


CASES: list[tuple[Callable[[Records], None], str]] = [
    (share_devices, "partition p2 shares device 0 of link domain 0 with partition p1"),
    (lambda r: edit(r, "lease", first=2), "covers devices 2 to 5 of partition p1, which has 4"),
    (lambda r: edit(r, "partition", "p1", epoch=2**52), "partition p1 has epoch"),
    (lambda r: edit(r, "lease", epoch=2**52), "has epoch"),
    (lambda r: edit(r, "partition", "p1", name="p9"), "partition p1 calls itself p9"),
    (lambda r: edit(r, "partition", "p1", size="four"), "partition p1 cannot be read"),
    (cut_off("partition"), "partition p1 cannot be read"),
    (cut_off("lease"), "cannot be read"),
    (cut_off("meta"), "meta "),
    (lambda r: r.update({("user", "u"): b"{"}), "user u cannot be read"),
    (lambda r: r.update({("agent", "a"): b"\xff"}), "agent a cannot be read"),
    (lambda r: r.update({("quota", "q"): b"[]"}), "quota q cannot be read"),
    (lambda r: r.update({("waiter", "w1"): b"{}"}), "waiter w1 cannot be read"),
    (lambda r: r.update({("event", "1"): b"{}"}), "event 1 cannot be read"),
    (lambda r: r.update({("request", "r"): b"{}"}), "request r cannot be read"),
    (lambda r: r.update({("allocation", "a"): b"{}"}), "allocation a cannot be read"),
    (lambda r: r.update({("cluster", "c"): b"{}"}), "cluster c cannot be read"),
]


@pytest.mark.parametrize(("change", "says"), CASES)
@virtually
async def test_a_store_with_faults_that_forbid_it_is_not_served(
    change: Callable[[Records], None], says: str
) -> None:
    store = await written()
    change(store._disk.records)
    world = World([preset("pod16")])
    world.store = store
    with pytest.raises(Unavailable) as caught:
        await world.start()
    assert says in caught.value.message
    assert "Restore a backup: vipu-server --restore FILE --replace" in caught.value.message


@virtually
async def test_a_sound_store_has_no_fault() -> None:
    store = await written()
    snapshot = await store.read()
    served = ServedClusters([preset("pod16")])
    assert find_faults(snapshot.records, snapshot.epoch + 1, served) == []


def test_what_is_served_is_named_too() -> None:
    with pytest.raises(Unavailable, match=r"the store pod\.db is damaged: server hardware cannot"):
        choose({("server", "hardware"): b"{"}, store_name="pod.db")


def in_file(path: Path, change: Callable[[Records], None]) -> None:
    async def write() -> None:
        @virtually
        async def make() -> None:
            records.update((await (await written()).read()).records)
            records["server", "hardware"] = b'{"preset":"pod16"}'

        records: Records = {}
        await asyncio.to_thread(make)
        change(records)
        store = SQLiteStore(path)
        await store.open()
        await store.replace(records, epoch=1)
        await store.close()

    asyncio.run(write())


def test_the_command_lists_all_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pod.db"

    def change(records: Records) -> None:
        share_devices(records)
        records["user", "u"] = b"{"
        records["server", "hardware"] = b"{"

    in_file(path, change)
    before = path.read_bytes()
    assert vipu_server.main(["--check", "--storage", str(path)]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert "server hardware cannot be read" in out
    assert "partition p2 shares device 0" in out
    assert f"the store {path} is damaged; restore a backup" in err
    assert path.read_bytes() == before


def test_a_backup_heals_a_damaged_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, file = tmp_path / "good.db", tmp_path / "bad.db", tmp_path / "pod.backup"
    in_file(good, lambda records: None)
    in_file(bad, share_devices)
    assert vipu_server.main(["--check", "--storage", str(good)]) == 0
    assert "records of" in capsys.readouterr().err
    assert vipu_server.main(["--check", "--storage", str(bad)]) == 1
    file.write_text(backup_text(asyncio.run(SQLiteStore(good).peek())))
    restored = ["--storage", str(bad), "--restore", str(file), "--replace"]
    assert vipu_server.main(restored) == 0
    assert vipu_server.main(["--check", "--storage", str(bad)]) == 0


def test_the_command_removes_what_is_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, bad = tmp_path / "pod.db", tmp_path / "bad.db"

    def orphan(records: Records) -> None:
        place = next(place for place in records if place[0] == "lease")
        body = {**msgspec.json.decode(records[place]), "id": "lx", "partition": "px"}
        records["lease", "lx"] = msgspec.json.encode(body)

    in_file(path, orphan)
    assert vipu_server.main(["--check", "--storage", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "lease lx names partition px, which is not there\n"
    assert "is served without these; --repair removes them" in err
    assert vipu_server.main(["--repair", "--storage", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == "lease lx names partition px, which is not there\n"
    assert f"removed from {path}: 1 record" in err
    assert vipu_server.main(["--check", "--storage", str(path)]) == 0

    def damage(records: Records) -> None:
        share_devices(records)
        orphan(records)

    in_file(bad, damage)
    before = bad.read_bytes()
    assert vipu_server.main(["--repair", "--storage", str(bad)]) != 0
    assert "shares device 0" in capsys.readouterr().err
    assert vipu_server.main(["--check", "--storage", str(bad)]) == 1
    assert len(bad.read_bytes()) == len(before)


def test_an_empty_file_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pod.db"
    path.touch(mode=0o600)
    assert vipu_server.main(["--check", "--storage", str(path)]) != 0
    assert f"the file {path} is empty, so it is no store" in capsys.readouterr().err
