"""Backups: a store as text, and a store from that text.

A backup holds the store as it was between two commits. That is enough for a restart: a step that
was under way is finished or undone, as after a crash. The first line says what the file is, one
line follows for each record, and the last line proves that nothing is missing.

A store that is restored continues with much higher epochs. Machines remember the highest epoch that
they have seen and refuse lower ones, and the lost store may have been opened many times since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from podwright.errors import InvalidRequest, Unavailable, WrongState
from podwright.ground.durable_files import write_whole
from podwright.ground.plural import counted
from podwright.store._format import OURS, Format, check
from podwright.store._store_interface import Snapshot, Store

#: The version of the file. From 2 on, the first line names the format, and builds without it
#: refuse.
BACKUP_VERSION = 2
#: The number of times that a store may have been opened since its backup was taken.
_EPOCH_MARGIN = 10_000
_BACKUP_KIND = "podwright-backup"


class _BackupHead(msgspec.Struct, frozen=True):
    """The first line of a backup.

    time: the store's clock, seconds since 1970. records: number of lines that follow. format,
    oldest_reader: of the records, as in `_format`.
    """

    file: str
    version: int
    epoch: int
    time: float
    records: int
    format: int = 1
    oldest_reader: int = 1


class _BackupFoot(msgspec.Struct, frozen=True):
    """The last line of a backup. sha256: the digest of all bytes before it."""

    sha256: str


def backup_text(snapshot: Snapshot) -> str:
    """Return a snapshot as the text of a backup file."""
    backup_lines = [
        msgspec.json.encode(
            _BackupHead(
                _BACKUP_KIND,
                BACKUP_VERSION,
                snapshot.epoch,
                snapshot.time,
                len(snapshot.records),
                *OURS,
            )
        )
    ]
    backup_lines.extend(
        # msgspec writes the body as base64.
        msgspec.json.encode((kind, key, body))
        for (kind, key), body in sorted(snapshot.records.items())
    )
    content = b"\n".join(backup_lines) + b"\n"
    foot_line = msgspec.json.encode(_BackupFoot(hashlib.sha256(content).hexdigest()))
    return (content + foot_line + b"\n").decode()


def read_backup(file_text: str, backup_name: str = "the backup") -> Snapshot:
    """Return the snapshot in the text of a backup file.

    backup_name: of the file, for messages. Raises wire.InvalidRequest for another program's file
    and for one that is damaged or cut off. Raises wire.InvalidRequest or wire.Unavailable for a
    newer Podwright's.
    """
    head_line, _, _ = file_text.partition("\n")
    try:
        head_object = msgspec.json.decode(head_line.encode(errors="replace"))
        is_foreign = not isinstance(head_object, dict) or head_object.get("file") != _BACKUP_KIND
    except msgspec.DecodeError:
        is_foreign = True
    if is_foreign:
        raise InvalidRequest(
            f"{backup_name} is not a backup that Podwright wrote",
            would_work="name a file that --backup wrote",
        )
    if not isinstance(head_object.get("version"), int) or head_object["version"] > BACKUP_VERSION:
        raise InvalidRequest(
            f"{backup_name} was written by a newer Podwright (its version is "
            f"{head_object.get('version')}, "
            f"this one knows {BACKUP_VERSION})",
            would_work="restore it with the newer one",
        )
    head_and_records, _, foot_line = file_text.rstrip("\n").rpartition("\n")
    try:
        head = msgspec.json.decode(head_line, type=_BackupHead)
        foot = msgspec.json.decode(foot_line, type=_BackupFoot)
        if foot.sha256 != hashlib.sha256(f"{head_and_records}\n".encode()).hexdigest():
            raise _damaged_error(backup_name)
        records = dict(_decode_records(head_and_records.split("\n")[1:]))
    except (msgspec.MsgspecError, UnicodeError):
        raise _damaged_error(backup_name) from None
    if len(records) != head.records:
        raise _damaged_error(backup_name)
    check(Format(head.format, head.oldest_reader), backup_name)
    return Snapshot(head.epoch, head.time, records)


def _decode_records(record_lines: list[str]) -> Iterator[tuple[tuple[str, str], bytes]]:
    decoder = msgspec.json.Decoder(tuple[str, str, bytes])
    for line in record_lines:
        kind, key, body = decoder.decode(line)
        yield (kind, key), body


def _damaged_error(backup_name: str) -> InvalidRequest:
    return InvalidRequest(
        f"{backup_name} is damaged or cut off",
        would_work="use another backup; this one cannot be trusted",
    )


def write_backup(path: Path, file_text: str) -> None:
    """Write a backup file, private to its owner (0600), as a whole or not at all.

    An existing file is replaced. Raises wire.Unavailable when the file cannot be written.
    """
    try:
        write_whole(path, file_text)
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror}", would_work="name a file in another folder"
        ) from None


def read_backup_file(path: Path) -> Snapshot:
    """Return the snapshot in a file. Raises wire.InvalidRequest."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        text = ""
    return read_backup(text, str(path))


async def restore(store: Store, backup: Snapshot, *, replace: bool = False) -> None:
    """Put a backup into a store that no server uses, and close the store.

    replace: overwrite a store that is not empty. Without it, such a store raises wire.WrongState.
    Raises as `Store.open` and `Store.commit` do; then the store is unchanged.
    """
    opened_store = await store.open()
    try:
        if opened_store.records and not replace:
            raise WrongState(
                f"the store holds {counted(len(opened_store.records), 'record')} already",
                operation="restore a backup",
                would_work="restore into an empty store, or say that what it holds may go",
            )
        await store.replace(
            backup.records, epoch=max(opened_store.epoch, backup.epoch) + _EPOCH_MARGIN
        )
    finally:
        await store.close()
