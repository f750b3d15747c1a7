"""The notes of an agent about its machine's fabrics: the journal of a driver, and its partitions.

Fabric Manager's partitions and IMEX channels are numbers without an owner. So a number is written
down with the partition's name before it is used. A number that is in use without a note belongs to
another party.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from podwright.errors import Internal


class PartitionNote(msgspec.Struct, frozen=True):
    """The partition that has a number. gpus: the UUIDs of its GPUs on this machine."""

    partition: str
    gpus: tuple[str, ...]


class PartitionNotes(Protocol):
    """Durable notes by number. All calls raise Internal when the disk fails."""

    def entries(self) -> Mapping[int, PartitionNote]:
        """Return all notes."""
        ...

    def write(self, number: int, note: PartitionNote) -> None:
        """Write a note, durably."""
        ...

    def remove(self, number: int) -> None:
        """Remove a note. A note that does not exist is not an error."""
        ...


class FilePartitionNotes:
    """A file for each number, in a folder of this agent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self) -> Mapping[int, PartitionNote]:
        """See `PartitionNotes.entries`."""
        try:
            numbers = [int(name) for name in os.listdir(self._folder) if name.isdecimal()]
            bodies = {number: (self._folder / str(number)).read_bytes() for number in numbers}
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Internal(f"{self._folder} cannot be read: {error.strerror}") from None
        try:
            return {n: msgspec.json.decode(body, type=PartitionNote) for n, body in bodies.items()}
        except msgspec.MsgspecError as error:
            raise Internal(f"a note in {self._folder} cannot be read: {error}") from None

    def write(self, number: int, note: PartitionNote) -> None:
        """See `PartitionNotes.write`."""
        _replace(self._folder / str(number), msgspec.json.encode(note))

    def remove(self, number: int) -> None:
        """See `PartitionNotes.remove`."""
        try:
            (self._folder / str(number)).unlink(missing_ok=True)
        except OSError as error:
            raise Internal(f"a note in {self._folder} stays: {error.strerror}") from None


class FileFabricJournal:
    """A FabricJournal in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            texts = msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            texts = {}
        except OSError as error:
            raise Internal(f"{path} cannot be read: {error.strerror}") from None
        except msgspec.MsgspecError as error:
            raise Internal(f"{path} is not a journal of a fabric: {error}") from None
        self._entries = {key: text.encode() for key, text in texts.items()}

    def entries(self) -> Mapping[str, bytes]:
        """See `FabricJournal.entries`."""
        return dict(self._entries)

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write`."""
        entries = self._changed(changes)
        texts = {key: body.decode() for key, body in entries.items()}
        _replace(self._path, msgspec.json.encode(texts))
        self._entries = entries

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write_later`. The next `write` writes these changes too."""
        self._entries = self._changed(changes)

    def _changed(self, changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
        entries = {**self._entries, **{k: body for k, body in changes.items() if body is not None}}
        return {key: body for key, body in entries.items() if changes.get(key, body) is not None}


def _replace(path: Path, content: bytes) -> None:
    """Write a small private file, completely or not at all. Durable on return."""
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(fresh, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise Internal(f"{path} cannot be written: {error.strerror}") from None
