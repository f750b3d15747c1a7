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
    recovery = "reset"        # none, reset, reboot, drain

Every call that the real library has and this one lacks is answered as by an older driver.
"""

from __future__ import annotations

import ctypes
import os
import signal
import tomllib
import uuid
from collections.abc import Callable
from typing import Any

from podwright.hosts.gpus._library import NVML_STANDIN

#: The environment variable that names such a file.
VARIABLE = NVML_STANDIN

SUCCESS, INVALID, NOT_SUPPORTED, NOT_FOUND = 0, 2, 3, 6
INSUFFICIENT_SIZE, TIMEOUT, LOST = 7, 10, 15
_NODE, _SYSTEM, _MULTIPLE = 40, 50, 20
_SLOWED = {"hardware": 0x8, "software thermal": 0x20, "thermal": 0x40, "power brake": 0x80}
_LINK_MBPS, _RECOVERY = 90, 230  # NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, …_GPU_RECOVERY_ACTION
_ACTIONS = ("none", "reset", "reboot", "drain")
_NO_HANDLE = ("DeviceGetCount", "DeviceGetHandleByIndex")
_SLICE = 1000  # handles: 1 + index of the GPU, plus this times (1 + number of the slice)


class StandIn:
    """The library, with an attribute for each function, like ctypes's object for the real one."""

    #: Distinguishes it from the real library, for code that does not import this module.
    stands_in = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._read_at = -1
        self._known: dict[str, Any] = {}
        self._reported: set[tuple[int, int]] = set()
        self._functions: dict[str, Callable[..., int]] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        base_name = name.removesuffix("_v2").removesuffix("_v3").removeprefix("nvml")
        answer = getattr(type(self), f"_do_{base_name}", None)
        if answer is None:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if not base_name.startswith("Device") or base_name in _NO_HANDLE:
                return answer(self, *arguments)
            handle = _handle(arguments[0])
            if not handle:
                return INVALID
            index = handle % _SLICE - 1
            if self._gpu(index).get("lost") and base_name not in (
                "DeviceGetUUID",
                "DeviceGetPciInfo",
            ):
                return LOST
            return answer(self, handle, *arguments[1:])

        return call

    # -- what is described -------------------------------------------------------------------

    @property
    def _all(self) -> dict[str, Any]:
        stamp = os.stat(self._path).st_mtime_ns
        if stamp != self._read_at:
            with open(self._path, "rb") as file:
                self._known = tomllib.load(file)
            self._read_at = stamp
        return self._known

    @property
    def _count(self) -> int:
        return int(self._all.get("gpus", 0))

    def _gpu(self, index: int) -> dict[str, Any]:
        given = self._all
        return {**given, **next((g for g in given.get("gpu", ()) if g["index"] == index), {})}

    def _node(self, index: int) -> int:
        nodes = int(self._all.get("numa_nodes", 1))
        return index * nodes // max(self._count, 1)

    def _bus(self, index: int) -> str:
        return str(self._gpu(index).get("bus", f"00000000:{16 + 16 * index:02X}:00.0"))

    def _uuid(self, handle: int) -> str:
        name = f"{self._all.get('serial', '')}{handle}"
        kind = "GPU" if handle < _SLICE else "MIG"
        return f"{kind}-{uuid.uuid5(uuid.NAMESPACE_OID, name)}"

    # -- the library -------------------------------------------------------------------------

    def _do_InitWithFlags(self, flags: int) -> int:
        while self._all.get("hangs"):
            signal.pause()
        return SUCCESS if self._all else NOT_FOUND

    def _do_Shutdown(self) -> int:
        return SUCCESS

    def _do_SystemGetDriverVersion(self, text: Any, size: Any) -> int:
        return _text(text, str(self._all.get("driver", "570.124.06")))

    def _do_DeviceGetCount(self, count: Any) -> int:
        return _put(count, self._count)

    def _do_DeviceGetHandleByIndex(self, index: Any, device: Any) -> int:
        if not 0 <= index.value < self._count:
            return INVALID
        return _point(device, 1 + index.value)

    def _do_DeviceGetName(self, handle: int, text: Any, size: Any) -> int:
        gpu = self._gpu(handle % _SLICE - 1)
        name = str(gpu.get("name", "NVIDIA H100 80GB HBM3"))
        if handle >= _SLICE:
            name += f" MIG {gpu['slices'][handle // _SLICE - 1]}"
        return _text(text, name)

    def _do_DeviceGetUUID(self, handle: int, text: Any, size: Any) -> int:
        return _text(text, self._uuid(handle))

    def _do_DeviceGetPciInfo(self, handle: int, info: Any) -> int:
        info._obj.busId = self._bus(handle % _SLICE - 1).encode()
        return SUCCESS

    def _do_DeviceGetMinorNumber(self, handle: int, minor: Any) -> int:
        return _put(minor, int(self._gpu(handle - 1).get("minor", handle - 1)))

    def _do_DeviceGetModuleId(self, handle: int, module: Any) -> int:
        return _put(module, handle)

    def _do_DeviceGetMemoryInfo(self, handle: int, memory: Any) -> int:
        gpu = self._gpu(handle % _SLICE - 1)
        total = int(gpu.get("memory", 81559)) << 20
        if handle >= _SLICE:
            total = _gigabytes(gpu["slices"][handle // _SLICE - 1]) << 30
        used = sum(int(p.get("memory", 0)) for p in gpu.get("processes", ())) << 20
        memory._obj.total, memory._obj.used, memory._obj.free = total, used, total - used
        return SUCCESS

    def _do_DeviceGetCpuAffinity(self, handle: int, size: int, words: Any) -> int:
        cpus, nodes = int(self._all.get("cpus", 0)), int(self._all.get("numa_nodes", 1))
        if not cpus:
            return NOT_SUPPORTED
        node = self._node(handle - 1)
        return _bits(words, range(cpus * node // nodes, cpus * (node + 1) // nodes), size)

    def _do_DeviceGetMemoryAffinity(self, handle: int, size: int, words: Any, scope: Any) -> int:
        return _bits(words, [self._node(handle - 1)], size)

    def _do_DeviceGetTopologyCommonAncestor(self, handle: int, other: Any, level: Any) -> int:
        a, b = handle - 1, (_handle(other) or 0) - 1
        if self._node(a) != self._node(b):
            return _put(level, _SYSTEM)
        return _put(level, 0 if a == b else _MULTIPLE if a // 2 == b // 2 else _NODE)

    def _do_DeviceGetNvLinkState(self, handle: int, link: int, active: Any) -> int:
        gpu = self._gpu(handle - 1)
        if link >= int(gpu.get("nvlinks", 0)):
            return NOT_SUPPORTED if not gpu.get("nvlinks", 0) else INVALID
        return _put(active, int(link not in gpu.get("links_down", ())))

    def _do_DeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int, kind: Any) -> int:
        return _put(kind, 0 if self._peers(handle - 1) else 2)

    def _do_DeviceGetNvLinkRemotePciInfo(self, handle: int, link: int, info: Any) -> int:
        peers = self._peers(handle - 1)
        bus = self._bus(peers[link % len(peers)]) if peers else "00000000:F0:00.0"
        info._obj.busId = bus.encode()
        return SUCCESS

    def _peers(self, index: int) -> list[int]:
        """Return the GPUs to which links lead without a switch: with `bridged = true`, all
        others.
        """
        if not self._all.get("bridged"):
            return []
        return [other for other in range(self._count) if other != index]

    def _do_DeviceGetGpuFabricInfoV(self, handle: int, info: Any) -> int:
        cluster, _, clique = str(self._gpu(handle - 1).get("fabric", "")).partition(":")
        if not cluster:
            return NOT_SUPPORTED
        fabric = info._obj
        fabric.clusterUuid[:] = list(uuid.UUID(cluster).bytes)
        fabric.cliqueId, fabric.state = int(clique or 0), 3
        fabric.status = int(self._gpu(handle - 1).get("fabric_status", 0))
        return SUCCESS

    def _do_DeviceGetPlatformInfo(self, handle: int, info: Any) -> int:
        described, platform = self._gpu(handle - 1), info._obj
        if not (guid := described.get("guid")):
            return NOT_SUPPORTED
        number = int(guid, 16).to_bytes(8, "little")
        ctypes.memmove(
            ctypes.addressof(platform) + type(platform).ibGuid.offset, number, len(number)
        )
        platform.chassisSerialNumber = str(described.get("chassis", "")).encode()
        platform.slotNumber = bytes([described.get("slot", 0)])
        platform.trayIndex = bytes([described.get("tray", 0)])
        return SUCCESS

    def _do_DeviceGetMigMode(self, handle: int, current: Any, pending: Any) -> int:
        mode = self._gpu(handle - 1).get("mig")
        if mode is None:
            return NOT_SUPPORTED
        _put(pending, int(mode == "on"))
        return _put(current, int(mode == "on"))

    def _do_DeviceGetMaxMigDeviceCount(self, handle: int, count: Any) -> int:
        return _put(count, 7)

    def _do_DeviceGetMigDeviceHandleByIndex(self, handle: int, index: Any, device: Any) -> int:
        if index.value >= len(self._gpu(handle - 1).get("slices", ())):
            return NOT_FOUND
        return _point(device, handle + _SLICE * (1 + index.value))

    def _do_DeviceGetGpuInstanceId(self, handle: int, number: Any) -> int:
        return _put(number, handle // _SLICE)

    def _do_DeviceGetComputeInstanceId(self, handle: int, number: Any) -> int:
        return _put(number, 0)

    def _do_DeviceGetTotalEccErrors(self, handle: int, kind: Any, life: Any, count: Any) -> int:
        gpu = self._gpu(handle - 1)
        if gpu.get("ecc") is False:
            return NOT_SUPPORTED
        return _put(count, int(gpu.get("ecc_uncorrected" if kind.value else "ecc_corrected", 0)))

    def _do_DeviceGetRemappedRows(
        self, handle: int, right: Any, wrong: Any, pending: Any, failed: Any
    ) -> int:
        state = self._gpu(handle - 1).get("row_remap", "none")
        _put(pending, int(state == "pending"))
        return _put(failed, int(state == "failed"))

    def _do_DeviceGetComputeRunningProcesses(self, handle: int, count: Any, entries: Any) -> int:
        processes = self._gpu(handle - 1).get("processes", ())
        room = count._obj.value
        _put(count, len(processes))
        if not processes:
            return SUCCESS
        if entries is None or room < len(processes):
            return INSUFFICIENT_SIZE
        for entry, process in zip(entries, processes, strict=False):
            entry.pid = int(process["pid"])
            entry.usedGpuMemory = int(process.get("memory", 0)) << 20
            entry.gpuInstanceId = int(process.get("slice", 0xFFFFFFFF))
        return SUCCESS

    def _do_DeviceGetGraphicsRunningProcesses(self, handle: int, count: Any, entries: Any) -> int:
        return _put(count, 0)

    def _do_DeviceGetUtilizationRates(self, handle: int, rates: Any) -> int:
        rates._obj.gpu = int(self._gpu(handle - 1).get("load", 0))
        return SUCCESS

    def _do_DeviceGetPowerUsage(self, handle: int, power: Any) -> int:
        return _put(power, int(self._gpu(handle - 1).get("watts", 70)) * 1000)

    def _do_DeviceGetTemperature(self, handle: int, sensor: Any, degrees: Any) -> int:
        return _put(degrees, int(self._gpu(handle - 1).get("celsius", 30)))

    def _do_DeviceGetClockInfo(self, handle: int, kind: Any, clock: Any) -> int:
        return _put(clock, int(self._gpu(handle - 1).get("mhz", 1980)))

    def _do_DeviceGetVbiosVersion(self, handle: int, text: Any, size: Any) -> int:
        return _text(text, str(self._gpu(handle - 1).get("firmware", "96.00.74.00.01")))

    def _do_DeviceGetPersistenceMode(self, handle: int, mode: Any) -> int:
        return _put(mode, int(self._gpu(handle - 1).get("persistence", True)))

    def _do_DeviceGetEccMode(self, handle: int, current: Any, pending: Any) -> int:
        mode = int(self._gpu(handle - 1).get("ecc", True))
        _put(pending, mode)
        return _put(current, mode)

    def _do_DeviceGetCurrentClocksThrottleReasons(self, handle: int, reasons: Any) -> int:
        return _put(
            reasons, sum(_SLOWED[reason] for reason in self._gpu(handle - 1).get("slowed", ()))
        )

    def _do_DeviceGetFieldValues(self, handle: int, count: Any, values: Any) -> int:
        gpu = self._gpu(handle - 1)
        known = {_RECOVERY: _ACTIONS.index(gpu.get("recovery", "none"))}
        if gpu.get("nvlinks"):
            known[_LINK_MBPS] = int(gpu.get("nvlink_mbps", 26562))
        for entry in values._obj:
            entry.nvmlReturn = SUCCESS if entry.fieldId in known else NOT_SUPPORTED
            entry.value.uiVal = known.get(entry.fieldId, 0)
        return SUCCESS

    def _do_EventSetCreate(self, events: Any) -> int:
        return _point(events, 1)

    def _do_DeviceRegisterEvents(self, handle: int, kinds: Any, events: Any) -> int:
        return SUCCESS

    def _do_EventSetFree(self, events: Any) -> int:
        return SUCCESS

    def _do_EventSetWait(self, events: Any, data: Any, patience: Any) -> int:
        for index in range(self._count):
            code = int(self._gpu(index).get("xid", 0))
            if code and (index, code) not in self._reported:
                self._reported.add((index, code))
                _point(ctypes.byref(data._obj, 0), 1 + index)
                data._obj.eventType, data._obj.eventData = 8, code
                return SUCCESS
        return TIMEOUT

    def _do_ErrorString(self, code: int) -> bytes:
        words = {LOST: b"GPU is lost", NOT_SUPPORTED: b"Not Supported", TIMEOUT: b"Timeout"}
        return words.get(code, b"Error %d" % code)


def _handle(pointer: Any) -> int | None:
    return ctypes.cast(pointer, ctypes.c_void_p).value if pointer is not None else None


def _put(reference: Any, value: int) -> int:
    reference._obj.value = value
    return SUCCESS


def _point(reference: Any, value: int) -> int:
    """Set the target of a pointer that was passed by reference."""
    ctypes.memmove(reference, ctypes.byref(ctypes.c_void_p(value)), ctypes.sizeof(ctypes.c_void_p))
    return SUCCESS


def _text(buffer: Any, text: str) -> int:
    buffer.value = text.encode()
    return SUCCESS


def _bits(words: Any, numbers: Any, size: int) -> int:
    for number in numbers:
        if number // 64 < size:
            words._obj[number // 64] |= 1 << number % 64
    return SUCCESS


def _gigabytes(profile: str) -> int:
    return int(profile.partition(".")[2].partition("gb")[0])  # 1g.10gb+me
