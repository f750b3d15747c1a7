"""How one of NVIDIA's GPUs is set and linked, by NVML.

A value that an older driver lacks is left out.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from podwright.hosts.gpus._vendor_library import Condition

#: Reasons for lower clocks that are faults of cooling or power, by their bit in NVML.
_THROTTLE_TEXT_BY_BIT = {
    0x8: "hardware",
    0x20: "software thermal",
    0x40: "thermal",
    0x80: "power brake",
}
_FABRIC_STATE_TEXTS = {1: "not started", 2: "in progress", 3: "completed"}
#: By nvmlDeviceGpuRecoveryAction_t. 5 is of the IMEX domain, 6 of the bus, 7 of the system.
_RECOVERY_ACTION_TEXTS = ("none", "reset", "reboot", "drain", "drain", "imex", "reset", "reboot")


def read_condition(pynvml_module: Any, gpu_handle: Any, call_nvml: Callable[..., Any]) -> Condition:
    """Return the condition of a GPU. pynvml_module: pynvml.

    call_nvml: calls one of its functions; returns None where the GPU or the driver does not have
    it.
    """
    ecc_modes = call_nvml(pynvml_module.nvmlDeviceGetEccMode, gpu_handle)
    persistence_mode = call_nvml(pynvml_module.nvmlDeviceGetPersistenceMode, gpu_handle)
    throttle_reason_bits = (
        call_nvml(pynvml_module.nvmlDeviceGetCurrentClocksThrottleReasons, gpu_handle) or 0
    )
    field_values = _nvlink_field_values(pynvml_module, gpu_handle, call_nvml)
    recovery_action = field_values.get(pynvml_module.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    return Condition(
        persistence=None if persistence_mode is None else bool(persistence_mode),
        ecc=None if ecc_modes is None else bool(ecc_modes[0]),
        nvlinks=_nvlinks_up(pynvml_module, gpu_handle, call_nvml),
        mbps=field_values.get(pynvml_module.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON),
        slowed=tuple(
            name for bit, name in _THROTTLE_TEXT_BY_BIT.items() if throttle_reason_bits & bit
        ),
        fabric=_fabric_state_text(pynvml_module, gpu_handle, call_nvml),
        recovery="" if recovery_action is None else _recovery_text(recovery_action),
    )


def _recovery_text(action: int) -> str:
    is_known = 0 <= action < len(_RECOVERY_ACTION_TEXTS)
    return _RECOVERY_ACTION_TEXTS[action] if is_known else f"action {action}"


def _nvlinks_up(
    pynvml_module: Any, gpu_handle: Any, call_nvml: Callable[..., Any]
) -> tuple[bool, ...]:
    link_states = []
    for number in range(pynvml_module.NVML_NVLINK_MAX_LINKS):
        link_state = call_nvml(pynvml_module.nvmlDeviceGetNvLinkState, gpu_handle, number)
        if link_state is None:
            break
        link_states.append(bool(link_state))
    return tuple(link_states)


def _nvlink_field_values(
    pynvml_module: Any, gpu_handle: Any, call_nvml: Callable[..., Any]
) -> dict[int, int]:
    field_ids = [
        pynvml_module.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON,
        pynvml_module.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    ]
    field_values = call_nvml(pynvml_module.nvmlDeviceGetFieldValues, gpu_handle, field_ids) or ()
    return {
        field_value.fieldId: int(field_value.value.uiVal)
        for field_value in field_values
        if field_value.nvmlReturn == 0
    }


def _fabric_state_text(pynvml_module: Any, gpu_handle: Any, call_nvml: Callable[..., Any]) -> str:
    info = pynvml_module.c_nvmlGpuFabricInfoV_t()
    info.version = pynvml_module.nvmlGpuFabricInfo_v2
    if call_nvml(pynvml_module.nvmlDeviceGetGpuFabricInfoV, gpu_handle, ctypes.byref(info)) is None:
        return ""
    state = _FABRIC_STATE_TEXTS.get(info.state, "")
    return "failed" if state == "completed" and info.status else state
