"""Backups: a store as text, and a store from that text.

A backup is what the store held between two commits, which is all that a restart needs: a step
that was under way is finished or undone, as after a crash. One line says what the file is, one
line follows for each record, and the last one proves that nothing is missing.

A store that is restored goes on with much higher epochs. Machines remember the highest that they
have seen and refuse older ones, and the lost store may have been opened many times since.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from podwright.errors import InvalidRequest, Unavailable, WrongState
from podwright.store._protocol import Snapshot, Store

VERSION = 1
#: How often a store may have been opened after its backup was taken.
_EPOCHS = 10_000
_KIND = "podwright-backup"


class _Head(msgspec.Struct, frozen=True):
    """The first line. time: of the store, seconds since 1970. records: how many lines follow."""

    file: str
    version: int
    epoch: int
    time: float
    records: int


class _Foot(msgspec.Struct, frozen=True):
    """The last line: of all before it, as bytes."""

    sha256: str


def backup_text(snapshot: Snapshot) -> str:
    """A snapshot as the text of a backup file."""
    lines = [
        msgspec.json.encode(
            _Head(_KIND, VERSION, snapshot.epoch, snapshot.time, len(snapshot.records))
        )
    ]
    lines.extend(
        msgspec.json.encode((kind, key, body))  # the body travels as base64
        for (kind, key), body in sorted(snapshot.records.items())
    )
    whole = b"\n".join(lines) + b"\n"
    foot = msgspec.json.encode(_Foot(hashlib.sha256(whole).hexdigest()))
    return (whole + foot + b"\n").decode()


def read_backup(text: str, name: str = "the backup") -> Snapshot:
    """A snapshot from the text of a backup file.

    name: of the file, for messages. Raises wire.InvalidRequest for another program's file, one
    that is damaged or cut off, and one of a newer Podwright.
    """
    first, _, _ = text.partition("\n")
    try:
        start = msgspec.json.decode(first.encode(errors="replace"))
        foreign = not isinstance(start, dict) or start.get("file") != _KIND
    except msgspec.DecodeError:
        foreign = True
    if foreign:
        raise InvalidRequest(
            f"{name} is no backup of Podwright's", would_work="name a file that --backup wrote"
        )
    if not isinstance(start.get("version"), int) or start["version"] > VERSION:
        raise InvalidRequest(
            f"{name} was written by a newer Podwright (its version is {start.get('version')}, "
            f"this one knows {VERSION})",
            would_work="restore it with the newer one",
        )
    whole, _, last = text.rstrip("\n").rpartition("\n")
    try:
        head = msgspec.json.decode(first, type=_Head)
        foot = msgspec.json.decode(last, type=_Foot)
        if foot.sha256 != hashlib.sha256(f"{whole}\n".encode()).hexdigest():
            raise _damaged(name)
        records = dict(_records(whole.split("\n")[1:]))
    except (msgspec.MsgspecError, UnicodeError):
        raise _damaged(name) from None
    if len(records) != head.records:
        raise _damaged(name)
    return Snapshot(head.epoch, head.time, records)


def _records(lines: list[str]) -> Iterator[tuple[tuple[str, str], bytes]]:
    decoder = msgspec.json.Decoder(tuple[str, str, bytes])
    for line in lines:
        kind, key, body = decoder.decode(line)
        yield (kind, key), body


def _damaged(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{name} is damaged or cut off", would_work="use another backup; this one cannot be trusted"
    )


def write_backup(path: Path, text: str) -> None:
    """Write a backup file, private to its owner (0600), whole or not at all; replaces one.

    Raises wire.Unavailable when it cannot be written.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(handle)
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise Unavailable(
            f"cannot write {path}: {error.strerror}", would_work="name a file in another folder"
        ) from None


def read_backup_file(path: Path) -> Snapshot:
    """The snapshot in a file. Raises wire.InvalidRequest."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    return read_backup(text, str(path))


async def restore(store: Store, backup: Snapshot, *, replace: bool = False) -> None:
    """Put a backup into a store that nobody serves; it is closed afterwards.

    replace: although the store holds something. Raises wire.WrongState for one that does, and
    as `Store.open` and `Store.commit` do; then the store is as it was.
    """
    opened = await store.open()
    try:
        if opened.records and not replace:
            raise WrongState(
                f"the store holds {len(opened.records)} records already",
                asked="restore a backup",
                would_work="restore into an empty store, or say that what it holds may go",
            )
        await store.replace(backup.records, epoch=max(opened.epoch, backup.epoch) + _EPOCHS)
    finally:
        await store.close()
