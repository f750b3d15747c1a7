"""The durable notes that a driver of a fabric writes before each change, and reads after a kill.

There are two kinds of entries. `intent:N` exists for each call that is not known to be complete.
`machine:NAME` contains the highest epoch that each device of a machine has seen. The open intents
cover disjoint sets of devices, so there are never more open intents than devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from podwright.agents._fabric_driver_interface import FabricDevice, FabricJournal, FabricParts


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
        self.open: dict[int, FabricIntent] = {}
        self._seen: dict[str, dict[int, int]] = {}
        for entry_key, entry_json in journal.entries().items():
            entry_kind, _, entry_name = entry_key.partition(":")
            if entry_kind == "intent":
                self.open[int(entry_name)] = msgspec.json.decode(entry_json, type=FabricIntent)
            elif entry_kind == "machine":
                self._seen[entry_name] = msgspec.json.decode(entry_json, type=dict[int, int])

    def newest(self, devices: Iterable[FabricDevice]) -> int:
        """Return the highest epoch that any of these devices has seen; 0 for none."""
        return max(
            (self._seen.get(device.machine, {}).get(device.index, 0) for device in devices),
            default=0,
        )

    def overlap(self, devices: frozenset[FabricDevice]) -> bool:
        """Return whether a call on some of these devices is open."""
        return any(
            not open_intent.devices.isdisjoint(devices) for open_intent in self.open.values()
        )

    async def begin(self, intent: FabricIntent) -> int:
        """Write a call down, durably, and return the number of its intent.

        The new call supersedes older open calls for the devices that both have.
        """
        intent_number = max(self.open, default=0) + 1
        journal_changes: dict[str, bytes | None] = {
            f"intent:{intent_number}": msgspec.json.encode(intent)
        }
        open_intents = {**self.open, intent_number: intent}
        for open_number, open_intent in self.open.items():
            if open_intent.devices.isdisjoint(intent.devices):
                continue
            if remaining_devices := open_intent.devices - intent.devices:
                open_intents[open_number] = FabricIntent(
                    open_intent.partition, open_intent.epoch, parts_of(remaining_devices)
                )
                journal_changes[f"intent:{open_number}"] = msgspec.json.encode(
                    open_intents[open_number]
                )
            else:
                del open_intents[open_number]
                journal_changes[f"intent:{open_number}"] = None
        seen_epochs = self._raised_epochs(intent)
        journal_changes.update(
            {
                f"machine:{machine}": msgspec.json.encode(seen_epochs[machine])
                for machine in intent.parts
            }
        )
        await self._journal.write(journal_changes)
        self.open, self._seen = open_intents, seen_epochs
        return intent_number

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
            self._journal.write_later(
                {
                    f"machine:{machine}": msgspec.json.encode(self._seen[machine])
                    for machine in intent.parts
                }
            )

    def _raised_epochs(self, intent: FabricIntent) -> dict[str, dict[int, int]]:
        seen_epochs = dict(self._seen)
        for machine, indices in intent.parts.items():
            known_epochs = seen_epochs.get(machine, {})
            raised_epochs = {
                device_index: max(known_epochs.get(device_index, 0), intent.epoch)
                for device_index in indices
            }
            seen_epochs[machine] = {**known_epochs, **raised_epochs}
        return seen_epochs


def devices_of(parts: FabricParts) -> frozenset[FabricDevice]:
    """Return the parts as a set of devices."""
    return frozenset(
        FabricDevice(machine, device_index)
        for machine, indices in parts.items()
        for device_index in indices
    )


def parts_of(devices: Iterable[FabricDevice]) -> dict[str, list[int]]:
    """Return the devices by machine, in order; the inverse of `devices_of`."""
    indices_by_machine: dict[str, list[int]] = {}
    for device in sorted(devices):
        indices_by_machine.setdefault(device.machine, []).append(device.index)
    return indices_by_machine


def named_devices(devices: Iterable[FabricDevice]) -> str:
    """Return the devices in words: `devices 0, 1 of machine m1`."""
    indices_by_machine: Mapping[str, list[int]] = parts_of(devices)
    return ", ".join(
        f"device{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))} "
        f"of machine {machine}"
        for machine, indices in indices_by_machine.items()
    )
