"""The notes of a fabric's driver, as records of the store.

They are committed like everything else: under the server's epoch, so that a server which another
has replaced can write no intent, and therefore begins no change of the fabric any more. A request
that it sent before stays on its way: neither NMX-M nor Redfish takes an epoch with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from podwright.controller.state._journal import Journal
from podwright.store import Change, Delete, Opened, Put

FABRIC_KIND = "fabric"


class StoredFabricJournal:
    """Implements agents.FabricJournal over the controller's journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[str, bytes] = {}

    def load(self, opened: Opened) -> None:
        """Load the notes from the store."""
        self._entries = {
            key: body for (kind, key), body in opened.records.items() if kind == FABRIC_KIND
        }

    def entries(self) -> Mapping[str, bytes]:
        """See `FabricJournal.entries`."""
        return dict(self._entries)

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write`."""
        await self._journal.commit([_store_change(key, body) for key, body in changes.items()])
        self._remember_changes(changes)

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write_later`."""
        for key, body in changes.items():
            self._journal.later(_store_change(key, body))
        self._remember_changes(changes)

    def _remember_changes(self, changes: Mapping[str, bytes | None]) -> None:
        self._entries.update({key: body for key, body in changes.items() if body is not None})
        for entry_key, entry_body in changes.items():
            if entry_body is None:
                self._entries.pop(entry_key, None)


def _store_change(entry_key: str, entry_body: bytes | None) -> Change:
    return (
        Delete(FABRIC_KIND, entry_key)
        if entry_body is None
        else Put(FABRIC_KIND, entry_key, entry_body)
    )
