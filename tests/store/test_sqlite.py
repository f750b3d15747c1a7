"""What only the SQLite store can get wrong: files, disks, versions, groups."""

# ruff: noqa: ASYNC220, ASYNC240 (nothing else runs on a test's loop)

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.store import Delete, Put, SQLiteStore, _format
from podwright.store._sqlite_schema import APPLICATION, MIGRATIONS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "podwright.db"


def put(key: str, size: int = 1) -> list[Put | Delete]:
    return [Put("a", key, b"x" * size)]


async def records(path: Path) -> dict[tuple[str, str], bytes]:
    store = SQLiteStore(path)
    try:
        return (await store.open()).records
    finally:
        await store.close()


async def test_files_are_private(path: Path) -> None:
    old = os.umask(0)
    try:
        store = SQLiteStore(path)
        await store.open()
        await store.commit(put("x"))
        files = list(path.parent.iterdir())
        assert path in files
        assert len(files) > 1, "the write-ahead log counts, too"
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        await store.close()
    finally:
        os.umask(old)
    assert list(path.parent.iterdir()) == [path], "nothing else stays behind"


async def test_a_file_open_to_others_is_closed_to_them(path: Path) -> None:
    path.parent.mkdir()
    path.touch(0o644)
    path.chmod(0o644)
    await records(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_every_commit_is_synced(path: Path) -> None:
    made: list[sqlite3.Connection] = []

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        made.append(sqlite3.connect(*args, **options))
        return made[0]

    store = SQLiteStore(path, connect=connect)
    await store.open()
    assert made[0].execute("PRAGMA synchronous").fetchone() == (2,)
    assert made[0].execute("PRAGMA journal_mode").fetchone() == ("wal",)
    await store.close()


async def test_commits_that_wait_together_share_a_transaction(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await asyncio.gather(*(store.commit(put(str(i))) for i in range(500)))
    assert store.commits == 1
    await store.close()
    assert len(await records(path)) == 500


async def test_a_bad_name_fails_alone(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    good, bad, also = await asyncio.gather(
        store.commit(put("good")),
        store.commit(put("\ud800")),
        store.commit(put("also")),
        return_exceptions=True,
    )
    assert (good, also) == (None, None)
    assert isinstance(bad, InvalidRequest)
    await store.close()
    assert set(await records(path)) == {("a", "good"), ("a", "also")}


async def test_a_cancelled_caller_disturbs_nobody(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    tasks = [asyncio.ensure_future(store.commit(put(str(i)))) for i in range(3)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.gather(tasks[0], tasks[2])
    await store.commit(put("later"))
    await store.close()
    assert {("a", "0"), ("a", "2"), ("a", "later")} <= set(await records(path))


async def test_a_full_disk_applies_nothing_and_heals(path: Path) -> None:
    made: list[sqlite3.Connection] = []

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        made.append(sqlite3.connect(*args, **options))
        made[0].execute("PRAGMA max_page_count = 16")
        return made[0]

    store = SQLiteStore(path, connect=connect)
    await store.open()
    await store.commit(put("fits"))
    with pytest.raises(Unavailable, match=r"disk of the store .* is full\. Free some space"):
        await store.commit([*put("small"), *put("large", 200_000)])
    await store.commit(put("fits, too"))
    made[0].execute("PRAGMA max_page_count = 1000")
    await store.commit(put("large", 200_000))
    await store.close()
    assert set(await records(path)) == {("a", "fits"), ("a", "fits, too"), ("a", "large")}


async def test_after_a_write_error_only_opening_anew_helps(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.commit(put("before"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 65_536, limits[1]))
    try:
        with pytest.raises(Unavailable, match="I/O error"):
            await store.commit(put("too large", 1_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    with pytest.raises(Unavailable, match="Open it anew"):
        await store.commit(put("later"))
    assert set((await store.open()).records) == {("a", "before")}
    await store.commit(put("after"))
    await store.close()


async def refusal(path: Path) -> str:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(Unavailable) as caught:
        await SQLiteStore(path).open()
    assert str(path) in caught.value.message
    assert caught.value.would_work
    if before is not None:
        assert path.read_bytes() == before
    return caught.value.message


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "Is a directory" in await refusal(tmp_path)


async def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "Not a directory" in await refusal(tmp_path / "file" / "x.db")
    assert "cannot be opened" in await refusal(Path("/proc/podwright/x.db"))


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is a letter, not a database\n" * 100)
    assert "is damaged" in await refusal(path)


async def test_a_damaged_database_is_refused(path: Path) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.commit([Put("a", str(i), b"x" * 3000) for i in range(50)])
    await store.close()
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * 8192 + whole[16384:])
    assert "is damaged" in await refusal(path)


async def test_another_programs_database_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE theirs (x)")
    db.close()
    assert "another program's" in await refusal(path)


async def test_a_newer_file_is_refused(path: Path) -> None:
    await records(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    assert "newer Podwright" in await refusal(path)


async def test_a_newer_builds_store_is_opened_unless_it_needs_a_newer_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer build's store is opened unless its records need a newer reader; nothing changes."""
    await records(path)

    async def write_as(number: int, oldest_reader: int) -> None:
        with monkeypatch.context() as newer:
            newer.setattr(_format, "FORMAT", number)
            newer.setattr(_format, "OLDEST_READER", oldest_reader)
            await records(path)

    await write_as(_format.FORMAT + 5, _format.FORMAT)
    await records(path)
    await write_as(_format.FORMAT + 5, _format.FORMAT + 1)
    before = path.read_bytes()
    assert f"for readers of format {_format.FORMAT + 1} or newer" in await refusal(path)
    with pytest.raises(Unavailable, match="newer Podwright"):
        await SQLiteStore(path).peek()
    assert path.read_bytes() == before
    await write_as(_format.FORMAT + 5, _format.FORMAT)  # what is in it stays as it was
    assert "newer Podwright" in await refusal(path)


async def test_a_store_from_before_the_format_numbers_is_opened(path: Path) -> None:
    """A look leaves it as it is. Opening raises its version, which older builds then refuse."""
    path.parent.mkdir(mode=0o700)
    db = sqlite3.connect(path)
    for statement in MIGRATIONS[0]:
        db.execute(statement)
    db.execute("INSERT INTO records VALUES ('a', 'old', x'00')")
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    assert set((await SQLiteStore(path).peek()).records) == {("a", "old")}
    assert version_of(path) == 1
    assert set(await records(path)) == {("a", "old")}
    assert version_of(path) == 2


def version_of(path: Path) -> int:
    db = sqlite3.connect(path)
    (version,) = db.execute("PRAGMA user_version").fetchone()
    db.close()
    return int(version)


async def test_an_older_file_is_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.commit(put("kept"))
    await store.close()
    newer = (*MIGRATIONS, ("ALTER TABLE records ADD COLUMN note TEXT",))
    monkeypatch.setattr("podwright.store._sqlite_schema.MIGRATIONS", newer)
    assert set(await records(path)) == {("a", "kept")}
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (len(newer),)
    assert db.execute("SELECT note FROM records").fetchone() == (None,)
    db.close()


async def test_a_migration_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(path)
    await store.open()
    await store.commit(put("kept"))
    await store.close()
    with monkeypatch.context() as broken:
        step = ("ALTER TABLE records ADD COLUMN note TEXT", "ALTER TABLE missing ADD COLUMN x")
        broken.setattr("podwright.store._sqlite_schema.MIGRATIONS", (*MIGRATIONS, step))
        with pytest.raises(Unavailable, match="missing"):
            await SQLiteStore(path).open()
    assert set(await records(path)) == {("a", "kept")}


async def test_a_commit_fails_while_another_process_writes_and_the_next_succeeds(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("podwright.store._sqlite_schema._BUSY", 0.05)
    store = SQLiteStore(path)
    await store.open()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="in use by another process"):
        await store.commit(put("x"))
    other.execute("ROLLBACK")
    other.close()
    await store.commit(put("y"))
    await store.close()
    assert set(await records(path)) == {("a", "y")}


WRITER = """
import asyncio, sys
from podwright.store import Delete, Put, SQLiteStore

async def main():
    store = SQLiteStore(sys.argv[1])
    await store.open()
    async def client(name):
        n = 0
        while True:
            n += 1
            body = str(n).encode()
            await store.commit([Put(part, name, body) for part in ("a", "b", "c")]
                               + [Put("log", f"{name}-{n}", body),
                                  Delete("log", f"{name}-{n - 2}")])
            print(name, n, flush=True)
    await asyncio.gather(*(client(str(i)) for i in range(8)))

asyncio.run(main())
"""


@pytest.mark.parametrize("answers", [1, 40, 333])
async def test_what_was_acknowledged_survives_a_kill(path: Path, answers: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        acknowledged: dict[str, int] = {}
        for _ in range(answers):
            name, n = writer.stdout.readline().split()
            acknowledged[name] = int(n)
        writer.kill()
        for line in writer.stdout:  # said before the kill took effect
            if line.endswith("\n"):
                name, n = line.split()
                acknowledged[name] = int(n)
    found = await records(path)
    for name in {key for kind, key in found if kind == "a"} | set(acknowledged):
        whole = {found[part, name] for part in ("a", "b", "c")}
        assert len(whole) == 1, "a group is there whole or not at all"
        last = int(whole.pop())
        assert last >= acknowledged.get(name, 0)
        log = {key for kind, key in found if kind == "log" and key.startswith(f"{name}-")}
        assert log == {f"{name}-{n}" for n in (last - 1, last) if n > 0}


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
async def test_a_file_that_others_can_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Anybody who can write it could have changed the owners of partitions in it."""
    path = tmp_path / "state" / "podwright.db"
    path.parent.mkdir(0o700)
    path.touch()
    path.chmod(mode)
    with pytest.raises(Unavailable, match=f"cannot be trusted: .* chmod go-w {path}"):
        await SQLiteStore(path).open()
    path.chmod(0o600)
    path.parent.chmod(0o777)
    with pytest.raises(Unavailable, match=f"chmod go-w {path.parent}"):
        await SQLiteStore(path).open()
    path.parent.chmod(0o1777)  # as /tmp: nobody can put another file in its place
    store = SQLiteStore(path)
    await store.open()
    await store.close()
