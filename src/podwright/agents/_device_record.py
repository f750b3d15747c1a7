"""The durable record of one device, real or simulated: its partition, its owner and its fence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DeviceRecord:
    """The record of one device.

    partition: the partition that the device is configured for, or empty. epoch: the epoch of the
    last call that was finished. seen: the highest epoch of any call, which is the fence. owner: the
    user who owns the partition, on machines that are given an owner.
    """

    partition: str = ""
    epoch: int = 0
    seen: int = 0
    owner: str = ""
