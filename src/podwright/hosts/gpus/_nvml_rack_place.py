"""The place of a GPU of an NVLink rack, and its name in the fabric (nvmlDeviceGetPlatformInfo).

The driver gives sixteen bytes for the GUID, of which Blackwell uses the first eight (nvml.h). They
are a number with the least significant byte first: NVIDIA's DCGM prints them so, "the way NVML
formats the GUID" (DcgmCacheManager.cpp, 4.6.0). That the fabric's manager calls the GPU by this
number is not documented. So nothing relies on that alone: a GUID that the manager does not list is
an error, and chassis, slot and tray are compared with the manager's.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from podwright.hosts.gpus._inventory_types import RackPlace

_GUID_BYTES = 8


def read_place(
    pynvml_module: Any, gpu_handle: Any, call_nvml: Callable[..., Any]
) -> RackPlace | None:
    """Return the place of a GPU; None where its driver knows of none.

    call_nvml: calls a function of the library; returns None if it fails.
    """
    platform_info = pynvml_module.c_nvmlPlatformInfo_v2_t()
    if (
        call_nvml(pynvml_module.nvmlDeviceGetPlatformInfo, gpu_handle, ctypes.byref(platform_info))
        is None
    ):
        return None

    def raw(field_name: str) -> bytes:
        """Return all bytes of a field, since pynvml's texts end at the first zero."""
        field = getattr(type(platform_info), field_name)
        return ctypes.string_at(ctypes.addressof(platform_info) + field.offset, field.size)

    guid = raw("ibGuid")[:_GUID_BYTES]
    if not any(guid):
        return None
    chassis_serial = raw("chassisSerialNumber").rstrip(b"\0").decode("ascii", "replace").strip()
    guid_number = int.from_bytes(guid, "little")
    return RackPlace(
        f"0x{guid_number:016x}", chassis_serial, raw("slotNumber")[0], raw("trayIndex")[0]
    )
