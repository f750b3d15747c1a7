"""What a machine must remember of each of its devices, real or simulated: whose it is, and the
fence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DeviceRecord:
    """One device.

    partition: that it is configured for, or empty. epoch: that of the last call that was finished.
    seen: highest epoch of any call, the fence. owner: the user whose partition it is in, where
    machines are told.
    """

    partition: str = ""
    epoch: int = 0
    seen: int = 0
    owner: str = ""
