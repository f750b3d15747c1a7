"""NVIDIA's GPUs through NVML, by nvidia-ml-py, which only this module imports, on first use.

A value that an older driver or a smaller GPU does not report is left out, never guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from podwright.hosts._cores import write_list
from podwright.hosts.gpus._holders import holder
from podwright.hosts.gpus._library import (
    NVML_STANDIN,
    Condition,
    GpuUser,
    Health,
    LibraryError,
    Sample,
    stand_in,
)
from podwright.hosts.gpus._nvml_condition import read_condition
from podwright.hosts.gpus._nvml_place import read_place
from podwright.hosts.gpus._pci import read_line, short_bus
from podwright.hosts.gpus._values import Gpu, Slice

_T = TypeVar("_T")

#: NVML's levels of a common ancestor, with the names of PATHS.
_WAYS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
#: Errors of a program, not of a GPU: the GPU may still be used (NVIDIA's list of Xid errors).
_PROGRAM_XIDS = frozenset((13, 31, 43, 45, 68))
_CPU_WORDS, _NODE_WORDS = 64, 4
_NONE = 0xFFFFFFFF


def open_nvml(environ: Mapping[str, str], root: str = "/") -> Nvml | None:
    """Return the library, initialised; None where it is not installed.

    Raises LibraryError if it fails.
    """
    described = environ.get(NVML_STANDIN, "")
    try:
        import pynvml
    except ImportError:
        if described or os.path.exists(os.path.join(root, "dev/nvidiactl")):
            raise LibraryError("nvidia-ml-py is not installed (pip install nvidia-ml-py)") from None
        return None
    if described or getattr(pynvml.nvmlLib, "stands_in", False):
        pynvml.nvmlLib = stand_in("StandIn", described) if described else None
        pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return None
        raise LibraryError(str(error)) from None
    except OSError as error:
        raise LibraryError(f"{described}: {error.strerror}") from None
    return Nvml(pynvml, simulated=bool(described), root=root)


class Nvml:
    """See `Library`."""

    vendor = "nvidia"

    def __init__(self, pynvml: Any, *, simulated: bool = False, root: str = "/") -> None:
        self.simulated = simulated
        self._lib = pynvml
        self._root = root
        count = self._must(pynvml.nvmlDeviceGetCount)
        handles = [self._must(pynvml.nvmlDeviceGetHandleByIndex, i) for i in range(count)]
        buses = [short_bus(self._must(pynvml.nvmlDeviceGetPciInfo, h).busId) for h in handles]
        order = sorted(range(count), key=lambda i: buses[i])
        self._handles = [handles[i] for i in order]
        self._buses = [buses[i] for i in order]
        self._xids: dict[int, int] = {}
        self._events = self._listen()

    def version(self) -> str:
        """See `Library.version`."""
        return str(self._must(self._lib.nvmlSystemGetDriverVersion))

    def close(self) -> None:
        """See `Library.close`."""
        if self._events is not None:
            self._try(self._lib.nvmlEventSetFree, self._events)
        self._try(self._lib.nvmlShutdown)

    def gpus(self) -> tuple[Gpu, ...]:
        """See `Library.gpus`."""
        links = self._links()
        return tuple(self._gpu(index, links[index]) for index in range(len(self._handles)))

    def _gpu(self, index: int, links: tuple[int, ...]) -> Gpu:
        lib, handle = self._lib, self._handles[index]
        name = str(self._try(lib.nvmlDeviceGetName, handle) or "unknown")
        memory = self._try(lib.nvmlDeviceGetMemoryInfo, handle)
        minor = self._try(lib.nvmlDeviceGetMinorNumber, handle)
        near = self._try(lib.nvmlDeviceGetCpuAffinity, handle, _CPU_WORDS)
        nodes = self._bits(self._try(lib.nvmlDeviceGetMemoryAffinity, handle, _NODE_WORDS, 0))
        mig = self._try(lib.nvmlDeviceGetMigMode, handle)
        files = (f"/dev/nvidia{minor}",) if minor is not None else ()
        return Gpu(
            index=index,
            vendor=self.vendor,
            uuid=str(self._must(lib.nvmlDeviceGetUUID, handle)),
            name=name,
            type=short_type(name),
            bus=self._buses[index],
            memory=memory.total >> 20 << 20 if memory else 0,
            node=nodes[0] if nodes else -1,
            cpus=write_list(self._bits(near)),
            files=files,
            links=links,
            paths=self._paths(index),
            fabric=self._fabric(handle),
            mig="" if mig is None else "on" if mig[0] else "off",
            slices=self._slices(handle, minor, files) if mig and mig[0] else (),
            module=-1
            if (module := self._try(lib.nvmlDeviceGetModuleId, handle)) is None
            else module,
            firmware=str(self._try(lib.nvmlDeviceGetVbiosVersion, handle) or ""),
            place=read_place(lib, handle, self._try),
        )

    def _paths(self, index: int) -> tuple[str, ...]:
        out = []
        for other, handle in enumerate(self._handles):
            level: int | None = 0
            if other != index:
                level = self._try(
                    self._lib.nvmlDeviceGetTopologyCommonAncestor, self._handles[index], handle
                )
            if level is None:
                return ()  # the kernel's answer is used
            out.append("X" if other == index else _WAYS.get(level, "SYS"))
        return tuple(out)

    def _links(self) -> list[tuple[int, ...]]:
        """Return the number of NVLinks of each two GPUs; through switches, as many as both have."""
        count = len(self._handles)
        direct = [[0] * count for _ in range(count)]
        switched = [0] * count
        for index, handle in enumerate(self._handles):
            for link in range(self._lib.NVML_NVLINK_MAX_LINKS):
                if not self._try(self._lib.nvmlDeviceGetNvLinkState, handle, link):
                    continue
                info = self._try(self._lib.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
                bus = short_bus(info.busId) if info and info.busId else ""
                if bus in self._buses:
                    direct[index][self._buses.index(bus)] += 1
                else:
                    switched[index] += 1
        return [
            tuple(
                -1 if a == b else direct[a][b] or min(switched[a], switched[b])
                for b in range(count)
            )
            for a in range(count)
        ]

    def _fabric(self, handle: Any) -> str:
        import ctypes
        import uuid

        info = self._lib.c_nvmlGpuFabricInfoV_t()
        info.version = self._lib.nvmlGpuFabricInfo_v2
        status = self._try(self._lib.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info))
        if status is None or info.state != 3 or not any(info.clusterUuid):
            return ""
        return f"{uuid.UUID(bytes=bytes(info.clusterUuid))}:{info.cliqueId}"

    def _slices(self, handle: Any, minor: int | None, files: tuple[str, ...]) -> tuple[Slice, ...]:
        lib, slices = self._lib, []
        for i in range(self._try(lib.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = self._try(lib.nvmlDeviceGetMigDeviceHandleByIndex, handle, i)
            if part is None:
                continue
            memory = self._try(lib.nvmlDeviceGetMemoryInfo, part)
            name = str(self._try(lib.nvmlDeviceGetName, part) or "")
            instance = self._try(lib.nvmlDeviceGetGpuInstanceId, part)
            compute = self._try(lib.nvmlDeviceGetComputeInstanceId, part)
            slices.append(
                Slice(
                    uuid=str(self._must(lib.nvmlDeviceGetUUID, part)),
                    profile=name.rpartition("MIG ")[2],
                    memory=memory.total >> 20 << 20 if memory else 0,
                    files=files + self._caps(minor, instance, compute),
                    number=-1 if instance is None else int(instance),
                )
            )
        return tuple(slices)

    def _caps(self, minor: Any, instance: Any, compute: Any) -> tuple[str, ...]:
        """Return the files that open a slice, in addition to those of its GPU."""
        base = f"proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{instance}"
        paths = []
        for path in (f"{base}/access", f"{base}/ci{compute}/access"):
            words = read_line(os.path.join(self._root, path)).split()
            if len(words) == 2 and words[1].isdigit():
                paths.append(f"/dev/nvidia-caps/nvidia-cap{words[1]}")
        return tuple(paths)

    def health(self, index: int) -> Health:
        """See `Library.health`."""
        lib, handle = self._lib, self._handles[index]
        self._hear()
        problems = []
        lost = self._code(lib.nvmlDeviceGetMemoryInfo, handle)
        if lost in (lib.NVML_ERROR_GPU_IS_LOST, lib.NVML_ERROR_RESET_REQUIRED):
            fell = lost == lib.NVML_ERROR_GPU_IS_LOST
            problems.append("has fallen off the bus" if fell else "must be reset")
        corrected = self._try(lib.nvmlDeviceGetTotalEccErrors, handle, 0, 0)
        uncorrected = self._try(lib.nvmlDeviceGetTotalEccErrors, handle, 1, 0)
        if uncorrected:
            problems.append(f"{uncorrected} memory errors that could not be corrected")
        rows = self._try(lib.nvmlDeviceGetRemappedRows, handle)
        remap = "" if rows is None else "failed" if rows[3] else "pending" if rows[2] else "none"
        if rows and remap in ("failed", "pending"):
            problems.append(
                f"replacing rows of its memory {'has failed' if rows[3] else 'waits for a reset'}"
            )
        xid = self._xids.get(index, 0)
        if xid and xid not in _PROGRAM_XIDS:
            problems.append(f"XID {xid}")
        return Health(tuple(problems), corrected, uncorrected, remap, xid)

    def forget(self, index: int) -> None:
        """See `Library.forget`."""
        self._hear()
        self._xids.pop(index, None)

    def holders(self, index: int) -> tuple[GpuUser, ...]:
        """See `Library.holders`."""
        lib, handle = self._lib, self._handles[index]
        by_process = {}
        for ask in (
            lib.nvmlDeviceGetComputeRunningProcesses,
            lib.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for process in self._try(ask, handle) or ():
                used = process.usedGpuMemory
                part = "" if process.gpuInstanceId == _NONE else str(process.gpuInstanceId)
                by_process[process.pid] = holder(process.pid, used, part, self._root)
        return tuple(by_process.values())

    def sample(self, index: int) -> Sample:
        """See `Library.sample`."""
        lib, handle = self._lib, self._handles[index]
        rates = self._try(lib.nvmlDeviceGetUtilizationRates, handle)
        memory = self._try(lib.nvmlDeviceGetMemoryInfo, handle)
        power = self._try(lib.nvmlDeviceGetPowerUsage, handle)
        return Sample(
            load=rates.gpu if rates else None,
            memory=memory.used if memory else None,
            watts=None if power is None else power // 1000,
            celsius=self._try(lib.nvmlDeviceGetTemperature, handle, 0),
            mhz=self._try(lib.nvmlDeviceGetClockInfo, handle, 1),
        )

    def condition(self, index: int) -> Condition:
        """See `Library.condition`."""
        return read_condition(self._lib, self._handles[index], self._try)

    def _listen(self) -> Any:
        """Let the library keep the driver's errors from now on, until they are read."""
        lib = self._lib
        events = self._try(lib.nvmlEventSetCreate)
        if events is None:
            return None
        for handle in self._handles:
            self._try(
                lib.nvmlDeviceRegisterEvents, handle, lib.nvmlEventTypeXidCriticalError, events
            )
        return events

    def _hear(self) -> None:
        lib = self._lib
        places = {self._address(handle): i for i, handle in enumerate(self._handles)}
        while self._events is not None:
            event = self._try(lib.nvmlEventSetWait, self._events, 0)
            if event is None:
                return
            index = places.get(self._address(event.device))
            if index is not None:
                self._xids[index] = int(event.eventData)

    @staticmethod
    def _address(handle: Any) -> int | None:
        import ctypes

        return ctypes.cast(handle, ctypes.c_void_p).value

    @staticmethod
    def _bits(words: Any) -> list[int]:
        if words is None:
            return []
        return [
            64 * i + bit for i, word in enumerate(words) for bit in range(64) if word >> bit & 1
        ]

    def _must(self, call: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return call(*arguments)
        except self._lib.NVMLError as error:
            raise LibraryError(f"{call.__name__}: {error}") from None

    def _try(self, call: Callable[..., _T], *arguments: Any) -> _T | None:
        try:
            return call(*arguments)
        except self._lib.NVMLError:
            return None

    def _code(self, call: Callable[..., Any], *arguments: Any) -> int:
        try:
            call(*arguments)
        except self._lib.NVMLError as error:
            return int(error.value)
        return 0


def short_type(name: str) -> str:
    """Return the type for Slurm: the model alone, a part of the name that its AutoDetect makes.

    `NVIDIA H100 80GB HBM3` is h100, `NVIDIA GeForce RTX 4090` rtx_4090, `NVIDIA GB200` gb200.
    """
    lead = r"(?:RTX[ _](?:PRO[ _]|A)?|GTX[ _]|[A-Z]{1,3})"
    match = re.search(rf"\b{lead}\d{{1,4}}[A-Z]{{0,2}}\b", name.upper())
    word = match[0] if match else name
    return re.sub(r"[^a-z0-9]+", "_", word.lower()).strip("_")
