"""The driver of this machine's own GPUs: found, named as a family, and guarded as requested."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from podwright.agents._driver_interface import repeated
from podwright.agents.gpu._gpu_machine_driver import RELEASE_PATIENCE_S, GpuMachine
from podwright.agents.gpu._guards import Guard
from podwright.agents.gpu._reset import gpu_resetter
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
    release_patience: float = RELEASE_PATIENCE_S,
) -> GpuMachine | None:
    """Return the driver of this machine's GPUs; None when it has none.

    family: the family that the GPUs must be; by default the one that fits them. guards: makes the
    guards of the GPUs. Raises wire.Unavailable for GPUs whose library fails, wire.InvalidRequest
    when there are more or fewer GPUs than the family has.
    """
    inventory = take_gpus(environ)
    if not inventory.gpus:
        for library in inventory.libraries:
            library.close()
        if inventory.notes:
            raise Unavailable(f"the GPUs of this machine cannot be read: {inventory.notes[0]}")
        return None
    divided_gpus = tuple(device.gpu for device in divided(inventory.gpus))
    if not divided_gpus:
        raise Unavailable(
            "the GPUs of this machine are in MIG mode, and cut into nothing",
            would_work="nvidia-smi mig -cgi PROFILES -C, or leave MIG mode",
        )
    if twins := repeated(gpu.uuid for gpu in divided_gpus):
        raise Unavailable(
            f"two GPUs of this machine are {twins[0]}, so none of them can be told apart",
            would_work="a driver that names each of them",
        )
    detected_family = family_of(divided_gpus)
    family = family or detected_family
    if family.devices_per_machine != len(divided_gpus):
        raise InvalidRequest(
            f"this machine has {len(divided_gpus)} GPUs, and one of family {family.name} has "
            f"{family.devices_per_machine}",
            would_work=f"--family {detected_family.name}",
        )
    chosen_guards = guards(inventory.gpus)
    if chosen_guards and (parts := [gpu for gpu in divided_gpus if gpu.whole and not gpu.shared]):
        raise InvalidRequest(
            f"the GPUs of this machine are in mode {parts[0].profile.upper()}: ROCm selects such "
            "devices by number, and a guard changes the numbers",
            would_work="no --guard, or the mode SPX, which amd-smi sets",
        )
    return GpuMachine(
        machine,
        family,
        inventory.libraries,
        inventory.gpus,
        guards=chosen_guards,
        reset=gpu_resetter(environ) if may_reset else None,
        patience=release_patience,
    )


def family_of(gpus: Sequence[Gpu]) -> Family:
    """Return the family that fits a machine with these GPUs."""
    count = len(gpus)
    if any(gpu.profile for gpu in gpus):
        return gpu_family(f"gpu{count}", count, count)
    if count == NVL72.devices_per_machine and all(gpu.fabric for gpu in gpus):
        return NVL72
    if count == HGX8.devices_per_machine:
        return HGX8
    return gpu_family(f"gpu{count}", count, count)


def may_have_gpus(environ: Mapping[str, str]) -> bool:
    """Return whether the libraries are worth asking, after a cheap look at device files."""
    from podwright.hosts.gpus import STANDINS

    files = ("/dev/nvidiactl", "/dev/kfd")
    return any(environ.get(name) for name in STANDINS) or any(map(os.path.exists, files))
