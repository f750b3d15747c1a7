"""A stand-in for NVIDIA's library (libnvidia-ml.so.1), so that all above it runs without a GPU.

It stands below `pynvml`, which calls it as it calls the real one: same functions, same buffers,
same structures. What it has is described in a TOML file that is read anew when it changes, so
that a GPU can fail, or be held, while something runs:

    gpus = 8
    name = "NVIDIA H100 80GB HBM3"
    memory = 81559            # MiB
    nvlinks = 18              # of each, through switches; 0: none
    numa_nodes = 2            # GPUs and cpus are divided evenly over them
    cpus = 112
    driver = "570.124.06"
    hangs = false             # no call is ever answered
    fabric = ""               # a cluster's UUID and clique, as in an NVL72: "…:32766"

    [[gpu]]                   # how one differs
    index = 3
    xid = 79
    ecc_uncorrected = 2
    row_remap = "pending"     # none, pending, failed
    lost = false
    mig = "on"                # on, off; left out: it cannot be cut
    slices = ["1g.10gb", "2g.20gb"]
    processes = [{ pid = 4711, memory = 512 }]
    links_down = [5]
    nvlink_mbps = 26562
    firmware = "96.00.74.00.01"
    persistence = true
    ecc = true                # false: it is off
    slowed = ["thermal"]      # hardware, software thermal, thermal, power brake
    guid = "0x034c4931ff7d1c4f"  # in a rack, with chassis = "…", slot = 11 and tray = 0
    fabric_status = 0         # of its place in the fabric: other than 0 is a fault
    recovery = "reset"        # none, reset, reboot, drain; NVML's number; empty: not told

Every call that the real library has and this one lacks is answered as by an older driver.
"""

from __future__ import annotations

import ctypes
import os
import signal
import tomllib
import uuid
from typing import Any

from podwright.hosts.gpus._vendor_library import NVML_STANDIN_VARIABLE

#: The environment variable that names such a file.
STANDIN_VARIABLE = NVML_STANDIN_VARIABLE

SUCCESS, INVALID, NOT_SUPPORTED, NOT_FOUND = 0, 2, 3, 6
INSUFFICIENT_SIZE, TIMEOUT, GPU_IS_LOST = 7, 10, 15
_TOPOLOGY_NODE, _TOPOLOGY_SYSTEM, _TOPOLOGY_MULTIPLE = 40, 50, 20
_THROTTLE_REASON_BITS = {
    "hardware": 0x8,
    "software thermal": 0x20,
    "thermal": 0x40,
    "power brake": 0x80,
}
_LINK_SPEED_FIELD, _RECOVERY_FIELD = (
    90,
    230,
)  # NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, …_GPU_RECOVERY_ACTION
_RECOVERY_ACTIONS = ("none", "reset", "reboot", "drain")
_CALLS_WITHOUT_HANDLE = ("DeviceGetCount", "DeviceGetHandleByIndex")
_SLICE_STRIDE = 1000  # handles: 1 + index of the GPU, plus this times (1 + number of the slice)


class StandIn:
    """The library, with an attribute for each function, like ctypes's object for the real one."""

    #: Distinguishes it from the real library, for code that does not import this module.
    stands_in = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._read_at = -1
        self._known: dict[str, Any] = {}
        self._reported: set[tuple[int, int]] = set()

    def __getattr__(self, function_name: str) -> Any:
        if not function_name.startswith("nvml"):
            raise AttributeError(function_name)
        base_name = function_name.removesuffix("_v2").removesuffix("_v3").removeprefix("nvml")
        implementation = getattr(type(self), f"_do_{base_name}", None)
        if implementation is None:
            raise AttributeError(function_name)

        def call(*arguments: Any) -> Any:
            if not base_name.startswith("Device") or base_name in _CALLS_WITHOUT_HANDLE:
                return implementation(self, *arguments)
            handle = _pointer_value(arguments[0])
            if not handle:
                return INVALID
            index = handle % _SLICE_STRIDE - 1
            if self._describe_gpu(index).get("lost") and base_name not in (
                "DeviceGetUUID",
                "DeviceGetPciInfo",
            ):
                return GPU_IS_LOST
            return implementation(self, handle, *arguments[1:])

        return call

    # -- what is described -------------------------------------------------------------------

    @property
    def _description(self) -> dict[str, Any]:
        modified_at = os.stat(self._path).st_mtime_ns
        if modified_at != self._read_at:
            with open(self._path, "rb") as file:
                self._known = tomllib.load(file)
            self._read_at = modified_at
        return self._known

    @property
    def _gpu_count(self) -> int:
        return int(self._description.get("gpus", 0))

    def _describe_gpu(self, gpu_index: int) -> dict[str, Any]:
        description = self._description
        return {
            **description,
            **next(
                (entry for entry in description.get("gpu", ()) if entry["index"] == gpu_index),
                {},
            ),
        }

    def _numa_node(self, gpu_index: int) -> int:
        count = int(self._description.get("numa_nodes", 1))
        return gpu_index * count // max(self._gpu_count, 1)

    def _pci_bus_id(self, gpu_index: int) -> str:
        return str(
            self._describe_gpu(gpu_index).get("bus", f"00000000:{16 + 16 * gpu_index:02X}:00.0")
        )

    def _handle_uuid(self, handle: int) -> str:
        name = f"{self._description.get('serial', '')}{handle}"
        prefix = "GPU" if handle < _SLICE_STRIDE else "MIG"
        return f"{prefix}-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"

    # -- the library -------------------------------------------------------------------------

    def _do_InitWithFlags(self, flags: int) -> int:
        while self._description.get("hangs"):
            signal.pause()
        return SUCCESS if self._description else NOT_FOUND

    def _do_Shutdown(self) -> int:
        return SUCCESS

    def _do_SystemGetDriverVersion(self, buffer: Any, buffer_size: Any) -> int:
        return _set_buffer_text(buffer, str(self._description.get("driver", "570.124.06")))

    def _do_DeviceGetCount(self, count: Any) -> int:
        return _set_out_value(count, self._gpu_count)

    def _do_DeviceGetHandleByIndex(self, index: Any, device: Any) -> int:
        if not 0 <= index.value < self._gpu_count:
            return INVALID
        return _set_pointer_target(device, 1 + index.value)

    def _do_DeviceGetName(self, handle: int, buffer: Any, buffer_size: Any) -> int:
        gpu = self._describe_gpu(handle % _SLICE_STRIDE - 1)
        name = str(gpu.get("name", "NVIDIA H100 80GB HBM3"))
        if handle >= _SLICE_STRIDE:
            name += f" MIG {gpu['slices'][handle // _SLICE_STRIDE - 1]}"
        return _set_buffer_text(buffer, name)

    def _do_DeviceGetUUID(self, handle: int, buffer: Any, buffer_size: Any) -> int:
        return _set_buffer_text(buffer, self._handle_uuid(handle))

    def _do_DeviceGetPciInfo(self, handle: int, info: Any) -> int:
        info._obj.busId = self._pci_bus_id(handle % _SLICE_STRIDE - 1).encode()
        return SUCCESS

    def _do_DeviceGetMinorNumber(self, handle: int, minor: Any) -> int:
        return _set_out_value(minor, int(self._describe_gpu(handle - 1).get("minor", handle - 1)))

    def _do_DeviceGetModuleId(self, handle: int, module: Any) -> int:
        return _set_out_value(module, handle)

    def _do_DeviceGetMemoryInfo(self, handle: int, memory: Any) -> int:
        gpu = self._describe_gpu(handle % _SLICE_STRIDE - 1)
        total_bytes = int(gpu.get("memory", 81559)) << 20
        if handle >= _SLICE_STRIDE:
            total_bytes = _profile_gigabytes(gpu["slices"][handle // _SLICE_STRIDE - 1]) << 30
        used_bytes = (
            sum(int(process.get("memory", 0)) for process in gpu.get("processes", ())) << 20
        )
        memory._obj.total, memory._obj.used, memory._obj.free = (
            total_bytes,
            used_bytes,
            total_bytes - used_bytes,
        )
        return SUCCESS

    def _do_DeviceGetCpuAffinity(self, handle: int, mask_words: int, cpu_mask: Any) -> int:
        cpu_count, node_count = (
            int(self._description.get("cpus", 0)),
            int(self._description.get("numa_nodes", 1)),
        )
        if not cpu_count:
            return NOT_SUPPORTED
        node = self._numa_node(handle - 1)
        return _set_mask_bits(
            cpu_mask,
            range(cpu_count * node // node_count, cpu_count * (node + 1) // node_count),
            mask_words,
        )

    def _do_DeviceGetMemoryAffinity(
        self, handle: int, mask_words: int, node_mask: Any, scope: Any
    ) -> int:
        return _set_mask_bits(node_mask, [self._numa_node(handle - 1)], mask_words)

    def _do_DeviceGetTopologyCommonAncestor(
        self, handle: int, other_handle: Any, level: Any
    ) -> int:
        gpu_index, other_index = handle - 1, (_pointer_value(other_handle) or 0) - 1
        if self._numa_node(gpu_index) != self._numa_node(other_index):
            return _set_out_value(level, _TOPOLOGY_SYSTEM)
        return _set_out_value(
            level,
            0
            if gpu_index == other_index
            else _TOPOLOGY_MULTIPLE
            if gpu_index // 2 == other_index // 2
            else _TOPOLOGY_NODE,
        )

    def _do_DeviceGetNvLinkState(self, handle: int, link: int, active: Any) -> int:
        gpu = self._describe_gpu(handle - 1)
        if link >= int(gpu.get("nvlinks", 0)):
            return NOT_SUPPORTED if not gpu.get("nvlinks", 0) else INVALID
        return _set_out_value(active, int(link not in gpu.get("links_down", ())))

    def _do_DeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int, device_type: Any) -> int:
        return _set_out_value(device_type, 0 if self._bridged_peers(handle - 1) else 2)

    def _do_DeviceGetNvLinkRemotePciInfo(self, handle: int, link: int, info: Any) -> int:
        peers = self._bridged_peers(handle - 1)
        bus_id = self._pci_bus_id(peers[link % len(peers)]) if peers else "00000000:F0:00.0"
        info._obj.busId = bus_id.encode()
        return SUCCESS

    def _bridged_peers(self, gpu_index: int) -> list[int]:
        """Return the GPUs to which links lead without a switch: with `bridged = true`, all
        others.
        """
        if not self._description.get("bridged"):
            return []
        return [other_index for other_index in range(self._gpu_count) if other_index != gpu_index]

    def _do_DeviceGetGpuFabricInfoV(self, handle: int, info: Any) -> int:
        cluster_uuid, _, clique_id = str(
            self._describe_gpu(handle - 1).get("fabric", "")
        ).partition(":")
        if not cluster_uuid:
            return NOT_SUPPORTED
        fabric_info = info._obj
        fabric_info.clusterUuid[:] = list(uuid.UUID(cluster_uuid).bytes)
        fabric_info.cliqueId, fabric_info.state = int(clique_id or 0), 3
        fabric_info.status = int(self._describe_gpu(handle - 1).get("fabric_status", 0))
        return SUCCESS

    def _do_DeviceGetPlatformInfo(self, handle: int, info: Any) -> int:
        gpu, platform_info = self._describe_gpu(handle - 1), info._obj
        if not (guid := gpu.get("guid")):
            return NOT_SUPPORTED
        guid_bytes = int(guid, 16).to_bytes(8, "little")
        ctypes.memmove(
            ctypes.addressof(platform_info) + type(platform_info).ibGuid.offset,
            guid_bytes,
            len(guid_bytes),
        )
        platform_info.chassisSerialNumber = str(gpu.get("chassis", "")).encode()
        platform_info.slotNumber = bytes([gpu.get("slot", 0)])
        platform_info.trayIndex = bytes([gpu.get("tray", 0)])
        return SUCCESS

    def _do_DeviceGetMigMode(self, handle: int, current: Any, pending: Any) -> int:
        mode = self._describe_gpu(handle - 1).get("mig")
        if mode is None:
            return NOT_SUPPORTED
        _set_out_value(pending, int(mode == "on"))
        return _set_out_value(current, int(mode == "on"))

    def _do_DeviceGetMaxMigDeviceCount(self, handle: int, count: Any) -> int:
        return _set_out_value(count, 7)

    def _do_DeviceGetMigDeviceHandleByIndex(self, handle: int, index: Any, device: Any) -> int:
        if index.value >= len(self._describe_gpu(handle - 1).get("slices", ())):
            return NOT_FOUND
        return _set_pointer_target(device, handle + _SLICE_STRIDE * (1 + index.value))

    def _do_DeviceGetGpuInstanceId(self, handle: int, instance_id: Any) -> int:
        return _set_out_value(instance_id, handle // _SLICE_STRIDE)

    def _do_DeviceGetComputeInstanceId(self, handle: int, instance_id: Any) -> int:
        return _set_out_value(instance_id, 0)

    def _do_DeviceGetTotalEccErrors(
        self, handle: int, error_type: Any, counter_type: Any, count: Any
    ) -> int:
        gpu = self._describe_gpu(handle - 1)
        if gpu.get("ecc") is False:
            return NOT_SUPPORTED
        return _set_out_value(
            count, int(gpu.get("ecc_uncorrected" if error_type.value else "ecc_corrected", 0))
        )

    def _do_DeviceGetRemappedRows(
        self, handle: int, corrected_rows: Any, uncorrected_rows: Any, pending: Any, failed: Any
    ) -> int:
        state = self._describe_gpu(handle - 1).get("row_remap", "none")
        _set_out_value(pending, int(state == "pending"))
        return _set_out_value(failed, int(state == "failed"))

    def _do_DeviceGetComputeRunningProcesses(
        self, handle: int, count: Any, process_entries: Any
    ) -> int:
        processes = self._describe_gpu(handle - 1).get("processes", ())
        capacity = count._obj.value
        _set_out_value(count, len(processes))
        if not processes:
            return SUCCESS
        if process_entries is None or capacity < len(processes):
            return INSUFFICIENT_SIZE
        for entry, process in zip(process_entries, processes, strict=False):
            entry.pid = int(process["pid"])
            entry.usedGpuMemory = int(process.get("memory", 0)) << 20
            entry.gpuInstanceId = int(process.get("slice", 0xFFFFFFFF))
        return SUCCESS

    def _do_DeviceGetGraphicsRunningProcesses(
        self, handle: int, count: Any, process_entries: Any
    ) -> int:
        return _set_out_value(count, 0)

    def _do_DeviceGetUtilizationRates(self, handle: int, rates: Any) -> int:
        rates._obj.gpu = int(self._describe_gpu(handle - 1).get("load", 0))
        return SUCCESS

    def _do_DeviceGetPowerUsage(self, handle: int, power: Any) -> int:
        return _set_out_value(power, int(self._describe_gpu(handle - 1).get("watts", 70)) * 1000)

    def _do_DeviceGetTemperature(self, handle: int, sensor: Any, degrees: Any) -> int:
        return _set_out_value(degrees, int(self._describe_gpu(handle - 1).get("celsius", 30)))

    def _do_DeviceGetClockInfo(self, handle: int, clock_type: Any, clock: Any) -> int:
        return _set_out_value(clock, int(self._describe_gpu(handle - 1).get("mhz", 1980)))

    def _do_DeviceGetVbiosVersion(self, handle: int, buffer: Any, buffer_size: Any) -> int:
        return _set_buffer_text(
            buffer, str(self._describe_gpu(handle - 1).get("firmware", "96.00.74.00.01"))
        )

    def _do_DeviceGetPersistenceMode(self, handle: int, mode: Any) -> int:
        return _set_out_value(mode, int(self._describe_gpu(handle - 1).get("persistence", True)))

    def _do_DeviceGetEccMode(self, handle: int, current: Any, pending: Any) -> int:
        mode = int(self._describe_gpu(handle - 1).get("ecc", True))
        _set_out_value(pending, mode)
        return _set_out_value(current, mode)

    def _do_DeviceGetCurrentClocksThrottleReasons(self, handle: int, reasons: Any) -> int:
        return _set_out_value(
            reasons,
            sum(
                _THROTTLE_REASON_BITS[reason]
                for reason in self._describe_gpu(handle - 1).get("slowed", ())
            ),
        )

    def _do_DeviceGetFieldValues(self, handle: int, count: Any, values: Any) -> int:
        gpu = self._describe_gpu(handle - 1)
        action = gpu.get("recovery", "none")
        known_values: dict[int, int] = {}
        if action != "":
            is_number = isinstance(action, int)
            known_values[_RECOVERY_FIELD] = action if is_number else _RECOVERY_ACTIONS.index(action)
        if gpu.get("nvlinks"):
            known_values[_LINK_SPEED_FIELD] = int(gpu.get("nvlink_mbps", 26562))
        for field_value in values._obj:
            field_value.nvmlReturn = (
                SUCCESS if field_value.fieldId in known_values else NOT_SUPPORTED
            )
            field_value.value.uiVal = known_values.get(field_value.fieldId, 0)
        return SUCCESS

    def _do_EventSetCreate(self, events: Any) -> int:
        return _set_pointer_target(events, 1)

    def _do_DeviceRegisterEvents(self, handle: int, kinds: Any, events: Any) -> int:
        return SUCCESS

    def _do_EventSetFree(self, events: Any) -> int:
        return SUCCESS

    def _do_EventSetWait(self, events: Any, event_data: Any, timeout_ms: Any) -> int:
        for gpu_index in range(self._gpu_count):
            xid = int(self._describe_gpu(gpu_index).get("xid", 0))
            if xid and (gpu_index, xid) not in self._reported:
                self._reported.add((gpu_index, xid))
                _set_pointer_target(ctypes.byref(event_data._obj, 0), 1 + gpu_index)
                event_data._obj.eventType, event_data._obj.eventData = 8, xid
                return SUCCESS
        return TIMEOUT

    def _do_ErrorString(self, return_code: int) -> bytes:
        messages = {
            GPU_IS_LOST: b"GPU is lost",
            NOT_SUPPORTED: b"Not Supported",
            TIMEOUT: b"Timeout",
        }
        return messages.get(return_code, b"Error %d" % return_code)


def _pointer_value(pointer: Any) -> int | None:
    return ctypes.cast(pointer, ctypes.c_void_p).value if pointer is not None else None


def _set_out_value(out_reference: Any, value: int) -> int:
    out_reference._obj.value = value
    return SUCCESS


def _set_pointer_target(out_pointer: Any, pointer_value: int) -> int:
    """Set the target of a pointer that was passed by reference."""
    ctypes.memmove(
        out_pointer, ctypes.byref(ctypes.c_void_p(pointer_value)), ctypes.sizeof(ctypes.c_void_p)
    )
    return SUCCESS


def _set_buffer_text(buffer: Any, text: str) -> int:
    buffer.value = text.encode()
    return SUCCESS


def _set_mask_bits(mask: Any, bit_numbers: Any, word_count: int) -> int:
    for number in bit_numbers:
        if number // 64 < word_count:
            mask._obj[number // 64] |= 1 << number % 64
    return SUCCESS


def _profile_gigabytes(mig_profile: str) -> int:
    return int(mig_profile.partition(".")[2].partition("gb")[0])  # 1g.10gb+me
