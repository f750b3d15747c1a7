"""Descriptions of a GPU: its attributes and the processes that hold it."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.hosts.gpus import Gpu, GpuUser, Health, Sample


def names(holders: Sequence[GpuUser]) -> str:
    """Return the processes that hold a GPU, in words."""
    texts = [
        f"process {holder.pid} of {holder.user or 'a user'} ({holder.command or '?'})"
        for holder in holders[:3]
    ]
    count = len(holders) - 3
    return ", ".join(texts) + (f" and {count} more" if count > 0 else "")


def attributes(
    gpu: Gpu, driver_version: str, health: Health, holders: Sequence[GpuUser], load_sample: Sample
) -> dict[str, str]:
    """Return what `vipu list ipu-attrs` and `gc-info --device-info` show of a GPU.

    Values that the GPU's driver does not report are left out.
    """
    most_links = max((count for count in gpu.links if count > 0), default=0)
    ecc_text = None
    if health.ecc_uncorrected is not None:
        ecc_text = f"{health.ecc_corrected or 0} corrected, {health.ecc_uncorrected} uncorrected"
    optional_values: dict[str, str | None] = {
        "name": gpu.name,
        "uuid": gpu.uuid,
        "pci bus": gpu.bus,
        "memory": f"{gpu.memory >> 20} MiB",
        "driver version": driver_version,
        "numa node": str(gpu.node) if gpu.node >= 0 else None,
        "near threads": gpu.cpus or None,
        "links": str(most_links) if most_links else None,
        "fabric": gpu.fabric or None,
        **_rack_attributes(gpu),
        "mig": gpu.mig or None,
        "profile": gpu.profile or None,
        "ecc errors": ecc_text,
        "row remapping": health.row_remap or None,
        "last xid": str(health.xid) if health.xid else None,
        "problems": "; ".join(health.problems) or None,
        "load": _with_unit(load_sample.load, "%"),
        "memory used": _with_unit(
            None if load_sample.memory is None else load_sample.memory >> 20, "MiB"
        ),
        "power": _with_unit(load_sample.watts, "W"),
        "temperature": _with_unit(load_sample.celsius, "°C"),
        "processes": "; ".join(
            f"{holder.pid} {holder.user} {holder.command}"
            + (f" {holder.memory >> 20} MiB" if holder.memory is not None else "")
            for holder in holders
        )
        or None,
    }
    return {
        name: attribute_text
        for name, attribute_text in optional_values.items()
        if attribute_text is not None
    }


def _rack_attributes(gpu: Gpu) -> dict[str, str | None]:
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


def _with_unit(quantity: int | None, unit: str) -> str | None:
    return None if quantity is None else f"{quantity} {unit}"
