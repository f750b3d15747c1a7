"""The GPUs of this very machine, as a driver: found, named as a family, guarded as asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from podwright.agents.gpu._guards import Guard
from podwright.agents.gpu._machine import PATIENCE, GpuMachine
from podwright.agents.gpu._reset import resetter
from podwright.errors import InvalidRequest, Unavailable
from podwright.fabric import HGX8, NVL72, Family, Machine, gpu_family
from podwright.hosts.gpus import Gpu, divided, take_gpus


def open_machine(
    machine: Machine,
    environ: Mapping[str, str],
    *,
    family: Family | None = None,
    guards: Callable[[Sequence[Gpu]], Sequence[Guard]] = lambda gpus: (),
    may_reset: bool = False,
    patience: float = PATIENCE,
) -> GpuMachine | None:
    """This machine's GPUs; None where it has none.

    family: what they should be; by default what they look like. guards: made of the GPUs.
    Raises wire.Unavailable for GPUs whose library fails, wire.InvalidRequest where there are more
    or fewer than the family has.
    """
    found = take_gpus(environ)
    if not found.gpus:
        for library in found.libraries:
            library.close()
        if found.notes:
            raise Unavailable(f"the GPUs of this machine cannot be read: {found.notes[0]}")
        return None
    parts = tuple(part.gpu for part in divided(found.gpus))
    if not parts:
        raise Unavailable(
            "the GPUs of this machine are in MIG mode, and cut into nothing",
            would_work="nvidia-smi mig -cgi PROFILES -C, or leave MIG mode",
        )
    looks = family_of(parts)
    family = family or looks
    if family.devices_per_machine != len(parts):
        raise InvalidRequest(
            f"this machine has {len(parts)} GPUs, and one of family {family.name} has "
            f"{family.devices_per_machine}",
            would_work=f"--family {looks.name}",
        )
    return GpuMachine(
        machine,
        family,
        found.libraries,
        found.gpus,
        guards=guards(found.gpus),
        reset=resetter(environ) if may_reset else None,
        patience=patience,
    )


def family_of(gpus: Sequence[Gpu]) -> Family:
    """What a machine with these GPUs looks like."""
    count = len(gpus)
    if any(gpu.profile for gpu in gpus):
        return gpu_family(f"gpu{count}", count, count)
    if count == NVL72.devices_per_machine and all(gpu.fabric for gpu in gpus):
        return NVL72
    if count == HGX8.devices_per_machine:
        return HGX8
    return gpu_family(f"gpu{count}", count, count)


def may_have_gpus(environ: Mapping[str, str]) -> bool:
    """A cheap look: is it worth asking the libraries?"""
    from podwright.hosts.gpus import STANDINS

    files = ("/dev/nvidiactl", "/dev/kfd")
    return any(environ.get(name) for name in STANDINS) or any(map(os.path.exists, files))
