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
from podwright.ground.durable_files import write_whole


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
            fabric_numbers = [int(name) for name in os.listdir(self._folder) if name.isdecimal()]
            note_bodies = {
                fabric_number: (self._folder / str(fabric_number)).read_bytes()
                for fabric_number in fabric_numbers
            }
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise Internal(f"{self._folder} cannot be read: {error.strerror}") from None
        try:
            return {
                note_number: msgspec.json.decode(note_json, type=PartitionNote)
                for note_number, note_json in note_bodies.items()
            }
        except msgspec.MsgspecError as error:
            raise Internal(f"a note in {self._folder} cannot be read: {error}") from None

    def write(self, number: int, note: PartitionNote) -> None:
        """See `PartitionNotes.write`."""
        _replace_file(self._folder / str(number), msgspec.json.encode(note))

    def remove(self, number: int) -> None:
        """See `PartitionNotes.remove`."""
        try:
            (self._folder / str(number)).unlink(missing_ok=True)
        except OSError as error:
            raise Internal(f"a note in {self._folder} stays: {error.strerror}") from None


class FileFabricJournal:
    """A FabricJournal in one file."""

    def __init__(self, journal_path: Path) -> None:
        self._path = journal_path
        try:
            entry_texts = msgspec.json.decode(journal_path.read_bytes(), type=dict[str, str])
        except FileNotFoundError:
            entry_texts = {}
        except OSError as error:
            raise Internal(f"{journal_path} cannot be read: {error.strerror}") from None
        except msgspec.MsgspecError as error:
            raise Internal(f"{journal_path} is not a journal of a fabric: {error}") from None
        self._entries = {key: text.encode() for key, text in entry_texts.items()}

    def entries(self) -> Mapping[str, bytes]:
        """See `FabricJournal.entries`."""
        return dict(self._entries)

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write`."""
        entries = self._merged_entries(changes)
        texts = {key: entry_bytes.decode() for key, entry_bytes in entries.items()}
        _replace_file(self._path, msgspec.json.encode(texts))
        self._entries = entries

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write_later`. The next `write` writes these changes too."""
        self._entries = self._merged_entries(changes)

    def _merged_entries(self, changes: Mapping[str, bytes | None]) -> dict[str, bytes]:
        merged_entries = {
            **self._entries,
            **{
                changed_key: entry_bytes
                for changed_key, entry_bytes in changes.items()
                if entry_bytes is not None
            },
        }
        return {
            entry_key: entry_bytes
            for entry_key, entry_bytes in merged_entries.items()
            if changes.get(entry_key, entry_bytes) is not None
        }


def _replace_file(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, content)
    except OSError as error:
        raise Internal(f"{path} cannot be written: {error.strerror}") from None
