"""How one of NVIDIA's GPUs is set and linked, by NVML.

A value that an older driver lacks is left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from podwright.hosts.gpus._library import Condition

#: Reasons for lower clocks that are faults of cooling or power, by their bit in NVML.
_SLOWED = {0x8: "hardware", 0x20: "software thermal", 0x40: "thermal", 0x80: "power brake"}
_FABRIC = {1: "not started", 2: "in progress", 3: "completed"}
#: nvmlDeviceGpuRecoveryAction_t
_RECOVERY = {0: "none", 1: "reset", 2: "reboot", 3: "drain", 4: "drain"}


def read_condition(lib: Any, handle: Any, ask: Callable[..., Any]) -> Condition:
    """Return the condition of a GPU. lib: pynvml.

    ask: calls one of its functions; returns None where the GPU or the driver does not have it.
    """
    ecc = ask(lib.nvmlDeviceGetEccMode, handle)
    persistence = ask(lib.nvmlDeviceGetPersistenceMode, handle)
    reasons = ask(lib.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
    fields = _fields(lib, handle, ask)
    action = fields.get(lib.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    return Condition(
        persistence=None if persistence is None else bool(persistence),
        ecc=None if ecc is None else bool(ecc[0]),
        nvlinks=_links(lib, handle, ask),
        mbps=fields.get(lib.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON),
        slowed=tuple(word for bit, word in _SLOWED.items() if reasons & bit),
        fabric=_fabric(lib, handle, ask),
        recovery="" if action is None else _RECOVERY.get(action, ""),
    )


def _links(lib: Any, handle: Any, ask: Callable[..., Any]) -> tuple[bool, ...]:
    links = []
    for link in range(lib.NVML_NVLINK_MAX_LINKS):
        state = ask(lib.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:
            break
        links.append(bool(state))
    return tuple(links)


def _fields(lib: Any, handle: Any, ask: Callable[..., Any]) -> dict[int, int]:
    wanted = [lib.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, lib.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]
    values = ask(lib.nvmlDeviceGetFieldValues, handle, wanted) or ()
    return {v.fieldId: int(v.value.uiVal) for v in values if v.nvmlReturn == 0}


def _fabric(lib: Any, handle: Any, ask: Callable[..., Any]) -> str:
    info = lib.c_nvmlGpuFabricInfoV_t()
    info.version = lib.nvmlGpuFabricInfo_v2
    if ask(lib.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info)) is None:
        return ""
    state = _FABRIC.get(info.state, "")
    return "failed" if state == "completed" and info.status else state
