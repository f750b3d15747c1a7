"""The GPUs of a machine as devices for programs: whole GPUs, and slices of the others.

A GPU in MIG mode runs no program itself; its slices do. How GPUs are cut is the administrator's
choice, which this module only reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from podwright.hosts.gpus._inventory_types import Gpu


class Device(NamedTuple):
    """A device. gpu: its description, whose index counts devices.

    whole: the GPU that it is, or is cut from. part: the part of that GPU, as a `Holder` names it;
    empty for all of it.
    """

    gpu: Gpu
    whole: Gpu
    part: str = ""


def divided(whole_or_sliced_gpus: Iterable[Gpu]) -> tuple[Device, ...]:
    """Return the devices: whole ones, then slices, so that devices on one switch are neighbours.

    A GPU in MIG mode without any slice is not a device.
    """
    whole_gpus = list(whole_or_sliced_gpus)
    devices: list[Device] = []
    for undivided in whole_gpus:
        if undivided.mig != "on":
            devices.append(
                Device(msgspec.structs.replace(undivided, index=len(devices)), undivided)
            )
    for undivided in whole_gpus:
        for gpu_slice in undivided.slices:
            slice_gpu = msgspec.structs.replace(
                undivided,
                index=len(devices),
                uuid=gpu_slice.uuid,
                name=f"{undivided.name} MIG {gpu_slice.profile}",
                memory=gpu_slice.memory,
                files=tuple(file for file in gpu_slice.files if file not in undivided.files),
                links=(),
                paths=(),
                fabric="",
                slices=(),
                module=-1,
                profile=gpu_slice.profile,
                whole=undivided.uuid,
                shared=undivided.files,
            )
            devices.append(Device(slice_gpu, undivided, str(gpu_slice.number)))
    return tuple(devices)
