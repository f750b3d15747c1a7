"""NVIDIA's GPUs through NVML, by nvidia-ml-py, which only this module imports, on first use.

A value that an older driver or a smaller GPU does not report is left out, never guessed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from podwright.hosts._cores import write_list
from podwright.hosts.gpus._inventory_types import Gpu, Slice
from podwright.hosts.gpus._nvml_condition import read_condition
from podwright.hosts.gpus._nvml_rack_place import read_place
from podwright.hosts.gpus._pci import read_line, short_pci_address
from podwright.hosts.gpus._process_owner import holder
from podwright.hosts.gpus._vendor_library import (
    NVML_STANDIN_VARIABLE,
    Condition,
    GpuUser,
    Health,
    LibraryError,
    Sample,
)

_T = TypeVar("_T")

#: NVML's levels of a common ancestor, with the names of PATHS.
_PCI_PATH_BY_ANCESTOR = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
#: Errors of a program, not of a GPU: the GPU may still be used (NVIDIA's list of Xid errors).
_PROGRAM_XIDS = frozenset((13, 31, 43, 45, 68))
_CPU_MASK_WORDS, _NODE_MASK_WORDS = 64, 4
_NO_GPU_INSTANCE = 0xFFFFFFFF


def open_nvml(environ: Mapping[str, str], root_folder: str = "/") -> Nvml | None:
    """Return the library, initialised; None where it is not installed.

    Raises LibraryError if it fails.
    """
    standin_description = environ.get(NVML_STANDIN_VARIABLE, "")
    try:
        import pynvml
    except ImportError:
        if standin_description or os.path.exists(os.path.join(root_folder, "dev/nvidiactl")):
            raise LibraryError("nvidia-ml-py is not installed (pip install nvidia-ml-py)") from None
        return None
    if standin_description or getattr(pynvml.nvmlLib, "stands_in", False):
        pynvml.nvmlLib = None
        if standin_description:
            from podwright.hosts.gpus._nvml_standin import StandIn

            pynvml.nvmlLib = StandIn(standin_description)
        pynvml._nvmlGetFunctionPointer_cache.clear()
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            return None
        raise LibraryError(str(error)) from None
    except OSError as error:
        raise LibraryError(f"{standin_description}: {error.strerror}") from None
    return Nvml(pynvml, simulated=bool(standin_description), root_folder=root_folder)


class Nvml:
    """See `Library`."""

    vendor = "nvidia"

    def __init__(self, pynvml: Any, *, simulated: bool = False, root_folder: str = "/") -> None:
        self.simulated = simulated
        self._lib = pynvml
        self._root = root_folder
        gpu_count = self._call_or_raise(pynvml.nvmlDeviceGetCount)
        gpu_handles = [
            self._call_or_raise(pynvml.nvmlDeviceGetHandleByIndex, index)
            for index in range(gpu_count)
        ]
        pci_addresses = [
            short_pci_address(self._call_or_raise(pynvml.nvmlDeviceGetPciInfo, handle).busId)
            for handle in gpu_handles
        ]
        address_order = sorted(range(gpu_count), key=lambda nvml_index: pci_addresses[nvml_index])
        self._handles = [gpu_handles[index] for index in address_order]
        self._buses = [pci_addresses[index] for index in address_order]
        self._xids: dict[int, int] = {}
        self._events = self._open_event_set()

    def version(self) -> str:
        """See `Library.version`."""
        return str(self._call_or_raise(self._lib.nvmlSystemGetDriverVersion))

    def close(self) -> None:
        """See `Library.close`."""
        if self._events is not None:
            self._call_or_none(self._lib.nvmlEventSetFree, self._events)
        self._call_or_none(self._lib.nvmlShutdown)

    def gpus(self) -> tuple[Gpu, ...]:
        """See `Library.gpus`."""
        links_by_gpu = self._nvlink_counts()
        return tuple(
            self._describe_gpu(index, links_by_gpu[index]) for index in range(len(self._handles))
        )

    def _describe_gpu(self, index: int, link_counts: tuple[int, ...]) -> Gpu:
        nvml_library, gpu_handle = self._lib, self._handles[index]
        product_name = str(
            self._call_or_none(nvml_library.nvmlDeviceGetName, gpu_handle) or "unknown"
        )
        memory_info = self._call_or_none(nvml_library.nvmlDeviceGetMemoryInfo, gpu_handle)
        minor_number = self._call_or_none(nvml_library.nvmlDeviceGetMinorNumber, gpu_handle)
        cpu_mask = self._call_or_none(
            nvml_library.nvmlDeviceGetCpuAffinity, gpu_handle, _CPU_MASK_WORDS
        )
        numa_nodes = self._mask_bit_numbers(
            self._call_or_none(
                nvml_library.nvmlDeviceGetMemoryAffinity, gpu_handle, _NODE_MASK_WORDS, 0
            )
        )
        mig_mode = self._call_or_none(nvml_library.nvmlDeviceGetMigMode, gpu_handle)
        device_files = (f"/dev/nvidia{minor_number}",) if minor_number is not None else ()
        return Gpu(
            index=index,
            vendor=self.vendor,
            uuid=str(self._call_or_raise(nvml_library.nvmlDeviceGetUUID, gpu_handle)),
            name=product_name,
            type=slurm_gpu_type(product_name),
            bus=self._buses[index],
            memory=memory_info.total >> 20 << 20 if memory_info else 0,
            node=numa_nodes[0] if numa_nodes else -1,
            cpus=write_list(self._mask_bit_numbers(cpu_mask)),
            files=device_files,
            links=link_counts,
            paths=self._paths(index),
            fabric=self._fabric_clique(gpu_handle),
            mig="" if mig_mode is None else "on" if mig_mode[0] else "off",
            slices=self._mig_slices(gpu_handle, minor_number, device_files)
            if mig_mode and mig_mode[0]
            else (),
            module=-1
            if (module_id := self._call_or_none(nvml_library.nvmlDeviceGetModuleId, gpu_handle))
            is None
            else module_id,
            firmware=str(
                self._call_or_none(nvml_library.nvmlDeviceGetVbiosVersion, gpu_handle) or ""
            ),
            place=read_place(nvml_library, gpu_handle, self._call_or_none),
        )

    def _paths(self, index: int) -> tuple[str, ...]:
        paths_by_gpu = []
        for other_index, other_handle in enumerate(self._handles):
            level: int | None = 0
            if other_index != index:
                level = self._call_or_none(
                    self._lib.nvmlDeviceGetTopologyCommonAncestor,
                    self._handles[index],
                    other_handle,
                )
            if level is None:
                return ()  # the kernel's answer is used
            paths_by_gpu.append(
                "X" if other_index == index else _PCI_PATH_BY_ANCESTOR.get(level, "SYS")
            )
        return tuple(paths_by_gpu)

    def _nvlink_counts(self) -> list[tuple[int, ...]]:
        """Return the number of NVLinks of each two GPUs; through switches, as many as both have."""
        gpu_count = len(self._handles)
        direct_links = [[0] * gpu_count for _ in range(gpu_count)]
        switched_links = [0] * gpu_count
        for gpu_index, gpu_handle in enumerate(self._handles):
            for link_number in range(self._lib.NVML_NVLINK_MAX_LINKS):
                if not self._call_or_none(
                    self._lib.nvmlDeviceGetNvLinkState, gpu_handle, link_number
                ):
                    continue
                remote_pci_info = self._call_or_none(
                    self._lib.nvmlDeviceGetNvLinkRemotePciInfo, gpu_handle, link_number
                )
                remote_address = (
                    short_pci_address(remote_pci_info.busId)
                    if remote_pci_info and remote_pci_info.busId
                    else ""
                )
                if remote_address in self._buses:
                    direct_links[gpu_index][self._buses.index(remote_address)] += 1
                else:
                    switched_links[gpu_index] += 1
        return [
            tuple(
                -1
                if from_gpu == to_gpu
                else direct_links[from_gpu][to_gpu]
                or min(switched_links[from_gpu], switched_links[to_gpu])
                for to_gpu in range(gpu_count)
            )
            for from_gpu in range(gpu_count)
        ]

    def fabric(self, index: int) -> str:
        """See `Library.fabric`."""
        return self._fabric_clique(self._handles[index])

    def _fabric_clique(self, gpu_handle: Any) -> str:
        import ctypes
        import uuid

        info = self._lib.c_nvmlGpuFabricInfoV_t()
        info.version = self._lib.nvmlGpuFabricInfo_v2
        status = self._call_or_none(
            self._lib.nvmlDeviceGetGpuFabricInfoV, gpu_handle, ctypes.byref(info)
        )
        if status is None or info.state != 3 or not any(info.clusterUuid):
            return ""
        return f"{uuid.UUID(bytes=bytes(info.clusterUuid))}:{info.cliqueId}"

    def _mig_slices(
        self, gpu_handle: Any, minor_number: int | None, gpu_files: tuple[str, ...]
    ) -> tuple[Slice, ...]:
        nvml_library, mig_slices = self._lib, []
        for slice_index in range(
            self._call_or_none(nvml_library.nvmlDeviceGetMaxMigDeviceCount, gpu_handle) or 0
        ):
            slice_handle = self._call_or_none(
                nvml_library.nvmlDeviceGetMigDeviceHandleByIndex, gpu_handle, slice_index
            )
            if slice_handle is None:
                continue
            memory_info = self._call_or_none(nvml_library.nvmlDeviceGetMemoryInfo, slice_handle)
            slice_name = str(self._call_or_none(nvml_library.nvmlDeviceGetName, slice_handle) or "")
            gpu_instance_id = self._call_or_none(
                nvml_library.nvmlDeviceGetGpuInstanceId, slice_handle
            )
            compute_instance_id = self._call_or_none(
                nvml_library.nvmlDeviceGetComputeInstanceId, slice_handle
            )
            mig_slices.append(
                Slice(
                    uuid=str(self._call_or_raise(nvml_library.nvmlDeviceGetUUID, slice_handle)),
                    profile=slice_name.rpartition("MIG ")[2],
                    memory=memory_info.total >> 20 << 20 if memory_info else 0,
                    files=gpu_files
                    + self._capability_files(minor_number, gpu_instance_id, compute_instance_id),
                    number=-1 if gpu_instance_id is None else int(gpu_instance_id),
                )
            )
        return tuple(mig_slices)

    def _capability_files(
        self, minor_number: Any, gpu_instance_id: Any, compute_instance_id: Any
    ) -> tuple[str, ...]:
        """Return the files that open a slice, in addition to those of its GPU."""
        folder = f"proc/driver/nvidia/capabilities/gpu{minor_number}/mig/gi{gpu_instance_id}"
        device_files = []
        for capability_path in (
            f"{folder}/access",
            f"{folder}/ci{compute_instance_id}/access",
        ):
            fields = read_line(os.path.join(self._root, capability_path)).split()
            if len(fields) == 2 and fields[1].isdigit():
                device_files.append(f"/dev/nvidia-caps/nvidia-cap{fields[1]}")
        return tuple(device_files)

    def health(self, index: int) -> Health:
        """See `Library.health`."""
        nvml_library, gpu_handle = self._lib, self._handles[index]
        self._read_xid_events()
        problems = []
        error_code = self._call_error_code(nvml_library.nvmlDeviceGetMemoryInfo, gpu_handle)
        if error_code in (
            nvml_library.NVML_ERROR_GPU_IS_LOST,
            nvml_library.NVML_ERROR_RESET_REQUIRED,
        ):
            fell_off_bus = error_code == nvml_library.NVML_ERROR_GPU_IS_LOST
            problems.append("has fallen off the bus" if fell_off_bus else "must be reset")
        corrected_errors = self._call_or_none(
            nvml_library.nvmlDeviceGetTotalEccErrors, gpu_handle, 0, 0
        )
        uncorrected_errors = self._call_or_none(
            nvml_library.nvmlDeviceGetTotalEccErrors, gpu_handle, 1, 0
        )
        if uncorrected_errors:
            problems.append(f"{uncorrected_errors} memory errors that could not be corrected")
        remapped_rows = self._call_or_none(nvml_library.nvmlDeviceGetRemappedRows, gpu_handle)
        remap_state = (
            ""
            if remapped_rows is None
            else "failed"
            if remapped_rows[3]
            else "pending"
            if remapped_rows[2]
            else "none"
        )
        if remapped_rows and remap_state in ("failed", "pending"):
            problems.append(
                "replacing rows of its memory "
                f"{'has failed' if remapped_rows[3] else 'waits for a reset'}"
            )
        last_xid = self._xids.get(index, 0)
        if last_xid and last_xid not in _PROGRAM_XIDS:
            problems.append(f"XID {last_xid}")
        return Health(tuple(problems), corrected_errors, uncorrected_errors, remap_state, last_xid)

    def forget(self, index: int) -> None:
        """See `Library.forget`."""
        self._read_xid_events()
        self._xids.pop(index, None)

    def holders(self, index: int) -> tuple[GpuUser, ...]:
        """See `Library.holders`."""
        nvml_library, gpu_handle = self._lib, self._handles[index]
        users_by_pid = {}
        for list_processes in (
            nvml_library.nvmlDeviceGetComputeRunningProcesses,
            nvml_library.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for gpu_process in self._call_or_none(list_processes, gpu_handle) or ():
                used_bytes = gpu_process.usedGpuMemory
                slice_number = (
                    ""
                    if gpu_process.gpuInstanceId == _NO_GPU_INSTANCE
                    else str(gpu_process.gpuInstanceId)
                )
                users_by_pid[gpu_process.pid] = holder(
                    gpu_process.pid, used_bytes, slice_number, self._root
                )
        return tuple(users_by_pid.values())

    def sample(self, index: int) -> Sample:
        """See `Library.sample`."""
        library, handle = self._lib, self._handles[index]
        rates = self._call_or_none(library.nvmlDeviceGetUtilizationRates, handle)
        info = self._call_or_none(library.nvmlDeviceGetMemoryInfo, handle)
        milliwatts = self._call_or_none(library.nvmlDeviceGetPowerUsage, handle)
        return Sample(
            load=rates.gpu if rates else None,
            memory=info.used if info else None,
            watts=None if milliwatts is None else milliwatts // 1000,
            celsius=self._call_or_none(library.nvmlDeviceGetTemperature, handle, 0),
            mhz=self._call_or_none(library.nvmlDeviceGetClockInfo, handle, 1),
        )

    def condition(self, index: int) -> Condition:
        """See `Library.condition`."""
        return read_condition(self._lib, self._handles[index], self._call_or_none)

    def _open_event_set(self) -> Any:
        """Let the library keep the driver's errors from now on, until they are read."""
        library = self._lib
        xid_event_set = self._call_or_none(library.nvmlEventSetCreate)
        if xid_event_set is None:
            return None
        for gpu_handle in self._handles:
            self._call_or_none(
                library.nvmlDeviceRegisterEvents,
                gpu_handle,
                library.nvmlEventTypeXidCriticalError,
                xid_event_set,
            )
        return xid_event_set

    def _read_xid_events(self) -> None:
        library = self._lib
        index_by_address = {
            self._handle_address(handle): index for index, handle in enumerate(self._handles)
        }
        while self._events is not None:
            xid_event = self._call_or_none(library.nvmlEventSetWait, self._events, 0)
            if xid_event is None:
                return
            gpu = index_by_address.get(self._handle_address(xid_event.device))
            if gpu is not None:
                self._xids[gpu] = int(xid_event.eventData)

    @staticmethod
    def _handle_address(gpu_handle: Any) -> int | None:
        import ctypes

        return ctypes.cast(gpu_handle, ctypes.c_void_p).value

    @staticmethod
    def _mask_bit_numbers(mask_words: Any) -> list[int]:
        if mask_words is None:
            return []
        return [
            64 * word_index + bit_index
            for word_index, word in enumerate(mask_words)
            for bit_index in range(64)
            if word >> bit_index & 1
        ]

    def _call_or_raise(self, nvml_call: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return nvml_call(*arguments)
        except self._lib.NVMLError as error:
            raise LibraryError(f"{nvml_call.__name__}: {error}") from None

    def _call_or_none(self, nvml_call: Callable[..., _T], *arguments: Any) -> _T | None:
        try:
            return nvml_call(*arguments)
        except self._lib.NVMLError:
            return None

    def _call_error_code(self, nvml_call: Callable[..., Any], *arguments: Any) -> int:
        try:
            nvml_call(*arguments)
        except self._lib.NVMLError as error:
            return int(error.value)
        return 0


def slurm_gpu_type(product_name: str) -> str:
    """Return the type for Slurm: the model alone, a part of the name that its AutoDetect makes.

    `NVIDIA H100 80GB HBM3` is h100, `NVIDIA GeForce RTX 4090` rtx_4090, `NVIDIA GB200` gb200.
    """
    prefix = r"(?:RTX[ _](?:PRO[ _]|A)?|GTX[ _]|[A-Z]{1,3})"
    model_match = re.search(rf"\b{prefix}\d{{1,4}}[A-Z]{{0,2}}\b", product_name.upper())
    model_name = model_match[0] if model_match else product_name
    return re.sub(r"[^a-z0-9]+", "_", model_name.lower()).strip("_")
