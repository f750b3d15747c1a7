"""The notes of a fabric's driver, as records of the store.

They are committed like everything else: under the server's epoch, so that a server which another
has replaced can write no intent, and therefore begins no change of the fabric any more. A request
that it sent before stays on its way: neither NMX-M nor Redfish takes an epoch with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from podwright.controller.state._journal import Journal
from podwright.store import Change, Delete, Opened, Put

FABRIC = "fabric"


class StoredFabricJournal:
    """Implements agents.FabricJournal over the controller's journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._entries: dict[str, bytes] = {}

    def load(self, opened: Opened) -> None:
        """Load the notes from the store."""
        self._entries = {
            key: body for (kind, key), body in opened.records.items() if kind == FABRIC
        }

    def entries(self) -> Mapping[str, bytes]:
        """See `FabricJournal.entries`."""
        return dict(self._entries)

    async def write(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write`."""
        await self._journal.commit([_change(key, body) for key, body in changes.items()])
        self._remember(changes)

    def write_later(self, changes: Mapping[str, bytes | None]) -> None:
        """See `FabricJournal.write_later`."""
        for key, body in changes.items():
            self._journal.later(_change(key, body))
        self._remember(changes)

    def _remember(self, changes: Mapping[str, bytes | None]) -> None:
        self._entries.update({key: body for key, body in changes.items() if body is not None})
        for key, body in changes.items():
            if body is None:
                self._entries.pop(key, None)


def _change(key: str, body: bytes | None) -> Change:
    return Delete(FABRIC, key) if body is None else Put(FABRIC, key, body)
