"""Backups: what is read is what was written, or refused; a restore is whole or nothing."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import pytest

from podwright.errors import Fenced, InvalidRequest, NotFound, Unavailable, WrongState
from podwright.store import (
    MemoryStore,
    Put,
    Snapshot,
    SQLiteStore,
    _backup,
    backup_text,
    read_backup,
    read_backup_file,
    restore,
    write_backup,
)
from podwright.store._format import FORMAT, Format

RECORDS = {
    ("partition", "p1"): b'{"name":"p1"}',
    ("k'\n", '"ä'): bytes(range(256)),
    ("lease", "l1"): b"",
}
SNAPSHOT = Snapshot(7, 1_000_000.5, RECORDS)


def test_what_is_read_is_what_was_written() -> None:
    assert read_backup(backup_text(SNAPSHOT)) == SNAPSHOT
    empty = Snapshot(1, 0.0, {})
    assert read_backup(backup_text(empty)) == empty


def test_a_file_is_private_and_replaced_whole(tmp_path: Path) -> None:
    file = tmp_path / "backup"
    file.write_text("old")
    file.chmod(0o644)
    write_backup(file, backup_text(SNAPSHOT))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_backup_file(file) == SNAPSHOT
    assert list(tmp_path.iterdir()) == [file]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"cannot write .*No such file"):
        write_backup(tmp_path / "none" / "backup", "x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(Unavailable, match="cannot write"):
        write_backup(tmp_path / "folder", "x")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("text", ["", "hello", "{}", "[1]\n", '{"file":"other","version":1}\n'])
def test_foreign_files_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a backup that Podwright wrote"):
        read_backup(text)


def test_a_newer_file_is_refused() -> None:
    newer = backup_text(SNAPSHOT).replace('"version":2', '"version":3', 1)
    with pytest.raises(InvalidRequest, match="newer Podwright"):
        read_backup(newer)


def test_a_newer_builds_backup_is_read_unless_it_needs_a_newer_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_backup, "OURS", Format(FORMAT + 5, FORMAT))
    assert read_backup(backup_text(SNAPSHOT)) == SNAPSHOT
    monkeypatch.setattr(_backup, "OURS", Format(FORMAT + 5, FORMAT + 1))
    with pytest.raises(Unavailable, match=f"for readers of format {FORMAT + 1} or newer"):
        read_backup(backup_text(SNAPSHOT))


def test_a_backup_from_before_the_format_numbers_can_be_read() -> None:
    lines = backup_text(SNAPSHOT).splitlines()
    head = {**json.loads(lines[0]), "version": 1}
    del head["format"], head["oldest_reader"]
    whole = "\n".join([json.dumps(head), *lines[1:-1]]) + "\n"
    foot = json.dumps({"sha256": hashlib.sha256(whole.encode()).hexdigest()})
    assert read_backup(f"{whole}{foot}\n") == SNAPSHOT


def test_a_damaged_or_short_file_is_refused() -> None:
    text = backup_text(SNAPSHOT)
    lines = text.splitlines(keepends=True)
    for cut in range(1, len(lines)):
        with pytest.raises(InvalidRequest, match="damaged or cut off"):
            read_backup("".join(lines[:cut]))
    for at in range(len(lines[0]) + 3, len(text) - 2, 7):
        with pytest.raises(InvalidRequest, match="damaged or cut off"):
            read_backup(text[:at] + ("x" if text[at] != "x" else "y") + text[at + 1 :])


async def test_a_restored_store_goes_on_far_above_all_epochs(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "x.db")
    await restore(store, SNAPSHOT)
    opened = await store.open()
    assert opened.records == RECORDS
    assert opened.epoch > SNAPSHOT.epoch + 1000
    await store.close()


async def test_a_store_that_holds_something_is_kept_unless_told() -> None:
    disk = MemoryStore()
    await disk.open()
    await disk.commit([Put("a", "x", b"1")])
    with pytest.raises(WrongState, match="holds 1 records already"):
        await restore(disk.reopened(), SNAPSHOT)
    assert (await disk.reopened().open()).records == {("a", "x"): b"1"}
    await restore(disk.reopened(), SNAPSHOT, replace=True)
    assert (await disk.reopened().open()).records == RECORDS
    with pytest.raises(Fenced):
        await disk.commit([])


async def test_a_look_disturbs_no_server(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no store"):
        await SQLiteStore(tmp_path / "x.db").peek()
    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240 (nothing else runs)
    serving = SQLiteStore(tmp_path / "x.db")
    opened = await serving.open()
    await serving.commit([Put("a", "x", b"1")])
    seen = await SQLiteStore(tmp_path / "x.db").peek()
    assert (seen.epoch, seen.records) == (opened.epoch, {("a", "x"): b"1"})
    await serving.commit([Put("a", "y", b"1")])
    assert len((await serving.read()).records) == 2
    await serving.close()
