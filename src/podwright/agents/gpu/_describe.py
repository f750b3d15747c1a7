"""A GPU in words: what there is to know of it, and who holds it."""

from __future__ import annotations

from collections.abc import Sequence

from podwright.hosts.gpus import Gpu, GpuUser, Health


def names(holders: Sequence[GpuUser]) -> str:
    """Who holds a GPU, in words."""
    words = [f"process {h.pid} of {h.user or 'a user'} ({h.command or '?'})" for h in holders[:3]]
    more = len(holders) - 3
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")


def attributes(
    gpu: Gpu, version: str, health: Health, holders: Sequence[GpuUser]
) -> dict[str, str]:
    """What `vipu list ipu-attrs` and `gc-info --device-info` show of a GPU."""
    links = max((n for n in gpu.links if n > 0), default=0)
    ecc = None
    if health.ecc_uncorrected is not None:
        ecc = f"{health.ecc_corrected or 0} corrected, {health.ecc_uncorrected} uncorrected"
    found = {
        "name": gpu.name,
        "uuid": gpu.uuid,
        "pci bus": gpu.bus,
        "memory": f"{gpu.memory >> 20} MiB",
        "driver version": version,
        "numa node": str(gpu.node) if gpu.node >= 0 else None,
        "near threads": gpu.cpus or None,
        "links": str(links) if links else None,
        "fabric": gpu.fabric or None,
        "mig": gpu.mig or None,
        "profile": gpu.profile or None,
        "ecc errors": ecc,
        "row remapping": health.row_remap or None,
        "last xid": str(health.xid) if health.xid else None,
        "problems": "; ".join(health.problems) or None,
        "processes": "; ".join(
            f"{h.pid} {h.user} {h.command}"
            + (f" {h.memory >> 20} MiB" if h.memory is not None else "")
            for h in holders
        )
        or None,
    }
    return {key: value for key, value in found.items() if value is not None}
