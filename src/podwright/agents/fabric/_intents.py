"""The durable notes that a driver of a fabric writes before each change, and reads after a kill.

There are two kinds of entries. `intent:N` exists for each call that is not known to be complete.
`machine:NAME` contains the highest epoch that each device of a machine has seen. The open intents
cover disjoint sets of devices, so there are never more open intents than devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from podwright.agents._fabric_driver import FabricDevice, FabricJournal, FabricParts


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
        for entry_key, body in journal.entries().items():
            kind, _, name = entry_key.partition(":")
            if kind == "intent":
                self.open[int(name)] = msgspec.json.decode(body, type=FabricIntent)
            elif kind == "machine":
                self._seen[name] = msgspec.json.decode(body, type=dict[int, int])

    def newest(self, devices: Iterable[FabricDevice]) -> int:
        """Return the highest epoch that any of these devices has seen; 0 for none."""
        return max((self._seen.get(d.machine, {}).get(d.index, 0) for d in devices), default=0)

    def overlap(self, devices: frozenset[FabricDevice]) -> bool:
        """Return whether a call on some of these devices is open."""
        return any(not known.devices.isdisjoint(devices) for known in self.open.values())

    async def begin(self, intent: FabricIntent) -> int:
        """Write a call down, durably, and return the number of its intent.

        The new call supersedes older open calls for the devices that both have.
        """
        number = max(self.open, default=0) + 1
        changes: dict[str, bytes | None] = {f"intent:{number}": msgspec.json.encode(intent)}
        opened = {**self.open, number: intent}
        for old, known in self.open.items():
            if known.devices.isdisjoint(intent.devices):
                continue
            if rest := known.devices - intent.devices:
                opened[old] = FabricIntent(known.partition, known.epoch, parts_of(rest))
                changes[f"intent:{old}"] = msgspec.json.encode(opened[old])
            else:
                del opened[old]
                changes[f"intent:{old}"] = None
        seen = self._raised(intent)
        changes.update({f"machine:{m}": msgspec.json.encode(seen[m]) for m in intent.parts})
        await self._journal.write(changes)
        self.open, self._seen = opened, seen
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
            self._seen = self._raised(intent)
            self._journal.write_later(
                {f"machine:{m}": msgspec.json.encode(self._seen[m]) for m in intent.parts}
            )

    def _raised(self, intent: FabricIntent) -> dict[str, dict[int, int]]:
        seen = dict(self._seen)
        for machine, indices in intent.parts.items():
            known = seen.get(machine, {})
            raised = {index: max(known.get(index, 0), intent.epoch) for index in indices}
            seen[machine] = {**known, **raised}
        return seen


def devices_of(parts: FabricParts) -> frozenset[FabricDevice]:
    """Return the parts as a set of devices."""
    return frozenset(
        FabricDevice(name, index) for name, indices in parts.items() for index in indices
    )


def parts_of(devices: Iterable[FabricDevice]) -> dict[str, list[int]]:
    """Return the devices by machine, in order; the inverse of `devices_of`."""
    out: dict[str, list[int]] = {}
    for device in sorted(devices):
        out.setdefault(device.machine, []).append(device.index)
    return out


def named_devices(devices: Iterable[FabricDevice]) -> str:
    """Return the devices in words: `devices 0, 1 of machine m1`."""
    texts: Mapping[str, list[int]] = parts_of(devices)
    return ", ".join(
        f"device{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))} "
        f"of machine {machine}"
        for machine, indices in texts.items()
    )
