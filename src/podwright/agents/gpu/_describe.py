"""Descriptions of a GPU: its attributes and the processes that hold it."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.hosts.gpus import Gpu, GpuUser, Health, Sample


def names(holders: Sequence[GpuUser]) -> str:
    """Return the processes that hold a GPU, in words."""
    words = [f"process {h.pid} of {h.user or 'a user'} ({h.command or '?'})" for h in holders[:3]]
    more = len(holders) - 3
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")


def attributes(
    gpu: Gpu, version: str, health: Health, holders: Sequence[GpuUser], sample: Sample
) -> dict[str, str]:
    """Return what `vipu list ipu-attrs` and `gc-info --device-info` show of a GPU.

    Values that the GPU's driver does not report are left out.
    """
    links = max((n for n in gpu.links if n > 0), default=0)
    ecc = None
    if health.ecc_uncorrected is not None:
        ecc = f"{health.ecc_corrected or 0} corrected, {health.ecc_uncorrected} uncorrected"
    reported: dict[str, str | None] = {
        "name": gpu.name,
        "uuid": gpu.uuid,
        "pci bus": gpu.bus,
        "memory": f"{gpu.memory >> 20} MiB",
        "driver version": version,
        "numa node": str(gpu.node) if gpu.node >= 0 else None,
        "near threads": gpu.cpus or None,
        "links": str(links) if links else None,
        "fabric": gpu.fabric or None,
        **_rack(gpu),
        "mig": gpu.mig or None,
        "profile": gpu.profile or None,
        "ecc errors": ecc,
        "row remapping": health.row_remap or None,
        "last xid": str(health.xid) if health.xid else None,
        "problems": "; ".join(health.problems) or None,
        "load": _with_unit(sample.load, "%"),
        "memory used": _with_unit(None if sample.memory is None else sample.memory >> 20, "MiB"),
        "power": _with_unit(sample.watts, "W"),
        "temperature": _with_unit(sample.celsius, "°C"),
        "processes": "; ".join(
            f"{h.pid} {h.user} {h.command}"
            + (f" {h.memory >> 20} MiB" if h.memory is not None else "")
            for h in holders
        )
        or None,
    }
    return {key: value for key, value in reported.items() if value is not None}


def _rack(gpu: Gpu) -> dict[str, str | None]:
    """Return the attributes by which the driver of a rack's fabric identifies this GPU
    (`FabricInventory`).
    """
    place = gpu.place
    if place is None or gpu.profile:  # a slice is not a device of the fabric
        return {}
    return {
        "fabric guid": place.guid,
        "fabric domain": gpu.fabric.partition(":")[0] or None,
        "chassis serial": place.chassis or None,
        "slot": str(place.slot) if place.slot >= 0 else None,
        "tray": str(place.tray) if place.tray >= 0 else None,
    }


def _with_unit(value: int | None, unit: str) -> str | None:
    return None if value is None else f"{value} {unit}"
