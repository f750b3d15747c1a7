"""The GPUs of a machine as devices that programs can have: whole ones, and slices of the others.

A GPU in MIG mode runs nothing itself: its slices do. How GPUs are cut is the administrator's, and
is only looked at here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from podwright.hosts.gpus._values import Gpu


class Device(NamedTuple):
    """gpu: as a device; its index counts devices. whole: the GPU that it is, or is cut from.
    part: of that GPU, as a `Holder` names it; empty for all of it."""

    gpu: Gpu
    whole: Gpu
    part: str = ""


def divided(gpus: Iterable[Gpu]) -> tuple[Device, ...]:
    """The devices: whole ones, then slices, so that those which share switches are neighbours.

    A GPU in MIG mode that is cut into nothing is none.
    """
    every = list(gpus)
    found: list[Device] = []
    for whole in every:
        if whole.mig != "on":
            found.append(Device(msgspec.structs.replace(whole, index=len(found)), whole))
    for whole in every:
        for piece in whole.slices:
            gpu = msgspec.structs.replace(
                whole,
                index=len(found),
                uuid=piece.uuid,
                name=f"{whole.name} MIG {piece.profile}",
                memory=piece.memory,
                files=tuple(file for file in piece.files if file not in whole.files),
                links=(),
                paths=(),
                fabric="",
                slices=(),
                module=-1,
                profile=piece.profile,
                shared=whole.files,
            )
            found.append(Device(gpu, whole, str(piece.number)))
    return tuple(found)
