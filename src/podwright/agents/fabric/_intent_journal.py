"""The durable notes that a driver of a fabric writes before each change, and reads after a kill.

There are two kinds of entries. `intent:N` exists for each call that is not known to be complete.
`machine:NAME` contains the highest epoch that each device of a machine has seen. The open intents
cover disjoint sets of devices, so there are never more open intents than devices.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from podwright.agents._fabric_driver_interface import (
    FabricDevice,
    FabricJournal,
    devices_of,
    parts_of,
)


class FabricIntent(msgspec.Struct, frozen=True):
    """One call. partition: where the devices belong after it; empty: in none of Podwright's
    partitions.
    """

    partition: str
    epoch: int
    parts: dict[str, list[int]]

    @property
    def devices(self) -> frozenset[FabricDevice]:
        """The devices of the call."""
        return devices_of(self.parts)


class Intents:
    """The open intents and the epochs, in memory and in the journal."""

    def __init__(self, journal: FabricJournal) -> None:
        self._journal = journal
        self._writing = asyncio.Lock()
        self.open: dict[int, FabricIntent] = {}
        self._seen: dict[str, dict[int, int]] = {}
        for key, entry_json in journal.entries().items():
            kind, _, name = key.partition(":")
            if kind == "intent":
                self.open[int(name)] = msgspec.json.decode(entry_json, type=FabricIntent)
            elif kind == "machine":
                self._seen[name] = msgspec.json.decode(entry_json, type=dict[int, int])

    def newest(self, devices: Iterable[FabricDevice]) -> int:
        """Return the highest epoch that any of these devices has seen; 0 for none."""
        return max(
            (self._seen.get(device.machine, {}).get(device.index, 0) for device in devices),
            default=0,
        )

    def overlap(self, devices: frozenset[FabricDevice]) -> bool:
        """Return whether a call on some of these devices is open."""
        return any(not intent.devices.isdisjoint(devices) for intent in self.open.values())

    async def begin(self, intent: FabricIntent) -> int:
        """Write a call down, durably, and return the number of its intent.

        The new call supersedes older open calls for the devices that both have.
        """
        async with self._writing:  # two calls must not get one number, nor shorten one intent
            number = max(self.open, default=0) + 1
            changed: dict[int, FabricIntent | None] = {number: intent}
            for older, open_intent in self.open.items():
                if not open_intent.devices.isdisjoint(intent.devices):
                    rest = parts_of(open_intent.devices - intent.devices)
                    changed[older] = (
                        FabricIntent(open_intent.partition, open_intent.epoch, rest)
                        if rest
                        else None
                    )
            # Epochs count from here on: a call that only raises one may come before the write ends.
            self._seen = self._raised_epochs(intent)
            await self._journal.write(
                {
                    f"intent:{key}": msgspec.json.encode(value) if value is not None else None
                    for key, value in changed.items()
                }
                | self._epoch_entries(intent)
            )
            for key, value in changed.items():
                if value is not None:
                    self.open[key] = value
                else:
                    self.open.pop(key, None)
            return number

    def end(self, number: int) -> None:
        """Close the intent of a call that is complete, or that was refused before it changed
        anything.
        """
        if self.open.pop(number, None) is not None:
            self._journal.write_later({f"intent:{number}": None})

    def raise_epochs(self, intent: FabricIntent) -> None:
        """Record the epoch of a call that had nothing to change."""
        if self.newest(intent.devices) < intent.epoch:
            self._seen = self._raised_epochs(intent)
            self._journal.write_later(self._epoch_entries(intent))

    def _epoch_entries(self, intent: FabricIntent) -> dict[str, bytes | None]:
        return {
            f"machine:{machine}": msgspec.json.encode(self._seen[machine])
            for machine in intent.parts
        }

    def _raised_epochs(self, intent: FabricIntent) -> dict[str, dict[int, int]]:
        seen_epochs = dict(self._seen)
        for machine, indices in intent.parts.items():
            known_epochs = seen_epochs.get(machine, {})
            raised_epochs = {
                index: max(known_epochs.get(index, 0), intent.epoch) for index in indices
            }
            seen_epochs[machine] = {**known_epochs, **raised_epochs}
        return seen_epochs
