"""Partitions of the NVLink fabric of racks, as the controller wants them: FabricDriver over NMX-M.

Nothing is remembered here: each call looks at what NMX-M has and makes the difference. So a call
that a kill interrupted is finished, or undone, by the next one on the same GPUs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from podwright.agents.gpu._nmx import Nmx
from podwright.errors import Internal

#: Before the names of our partitions there.
PREFIX = "podwright-"

Key = tuple[str, int, int, int, int]  #: domain, chassis, slot, host and device


class Racks:
    """place: where a machine stands: its link domain in the cluster, and its place there.

    A link domain is one of NMX-M's, and its machines are the hosts there, both in the order of
    their numbers (our choice). All partitions share one fabric, so calls are made one at a time.
    """

    def __init__(self, nmx: Nmx, place: Callable[[str], tuple[int, int]]) -> None:
        self._nmx = nmx
        self._place = place
        self._one_at_a_time = asyncio.Lock()

    async def join(self, partition: str, parts: Mapping[str, Sequence[int]]) -> None:
        """See `FabricDriver.join`."""
        async with self._one_at_a_time:
            await asyncio.to_thread(self._join, PREFIX + partition, parts)

    async def leave(self, parts: Mapping[str, Sequence[int]]) -> None:
        """See `FabricDriver.leave`."""
        async with self._one_at_a_time:
            await asyncio.to_thread(self._leave, parts, "")

    def _join(self, name: str, parts: Mapping[str, Sequence[int]]) -> None:
        wanted = self._leave(parts, name)
        mine = [p for p in self._nmx.partitions() if p["Name"] == name]
        if not mine:
            self._nmx.create(name, [wanted[key]["ID"] for key in sorted(wanted)])
            return
        (partition,) = mine[:1]
        known = self._by_key()
        has = [_key_of(member, known) for member in partition["Members"]]
        if missing := [key for key in sorted(wanted) if key not in has]:
            added = [_like(partition["Members"], wanted[key]) for key in missing]
            self._nmx.update(str(partition["ID"]), [*partition["Members"], *added])

    def _leave(self, parts: Mapping[str, Sequence[int]], but: str) -> dict[Key, dict[str, Any]]:
        """Take these GPUs out of all partitions, but for the one of this name. Returns them."""
        known = self._by_key()
        leaving = self._found(parts, known)
        for partition in self._nmx.partitions():
            if partition["Name"] == but:
                continue
            members = partition["Members"]
            rest = [m for m in members if _key_of(m, known) not in leaving]
            if len(rest) == len(members):
                continue
            if rest:
                self._nmx.update(str(partition["ID"]), rest)
            else:
                self._nmx.delete(str(partition["ID"]))
        return leaving

    def _by_key(self) -> dict[Key, dict[str, Any]]:
        return {_key(gpu): gpu for gpu in self._nmx.gpus()}

    def _found(
        self, parts: Mapping[str, Sequence[int]], known: Mapping[Key, dict[str, Any]]
    ) -> dict[Key, dict[str, Any]]:
        hosts: dict[str, dict[tuple[int, int, int], list[Key]]] = {}
        for key in sorted(known):
            hosts.setdefault(key[0], {}).setdefault(key[1:4], []).append(key)
        domains = [hosts[name] for name in sorted(hosts)]
        out: dict[Key, dict[str, Any]] = {}
        for machine, indices in parts.items():
            domain, at = self._place(machine)
            try:
                keys = list(domains[domain].values())[at]
                chosen = [keys[index] for index in indices]
            except IndexError:
                raise Internal(
                    f"NMX-M knows no GPUs of machine {machine}",
                    would_work="machines in the order of their trays in the cluster's description",
                ) from None
            out.update((key, known[key]) for key in chosen)
        return out


def _key(gpu: Mapping[str, Any]) -> Key:
    where = gpu.get("LocationInfo") or {}
    return (
        str(gpu.get("DomainUUID", "")),
        int(where.get("ChassisID", 0)),
        int(where.get("SlotID", 0)),
        int(where.get("HostID", 0)),
        int(gpu.get("DeviceID", 0)),
    )


def _key_of(member: Any, known: Mapping[Key, dict[str, Any]]) -> Key | None:
    """A member is the id of a GPU, or its location."""
    if isinstance(member, Mapping):
        return _key({**member, "LocationInfo": member})
    return next((key for key, gpu in known.items() if gpu["ID"] == member), None)


def _like(members: Iterable[Any], gpu: Mapping[str, Any]) -> Any:
    """A GPU as the members of a partition are written: NMX-M refuses to mix."""
    if all(isinstance(member, str) for member in members):
        return gpu["ID"]
    domain, chassis, slot, host, device = _key(gpu)
    return {
        "DomainUUID": domain,
        "ChassisID": chassis,
        "SlotID": slot,
        "HostID": host,
        "DeviceID": device,
    }
