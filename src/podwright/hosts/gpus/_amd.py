"""AMD's GPUs through AMD SMI, by its package `amdsmi`, which comes with ROCm and is imported here.

Names and shapes are those of amdsmi 7.0. A value that another version lacks is left out.

An MI300 in another mode than SPX is several devices: each has a handle of its own, and all of a
socket report one serial number, the whole memory, and PCI addresses that differ in a function that
PCI does not have (ROCm's issues legacy-rocm-build 4261 and 4750, rocm-systems 5805 and PR 3977). So
such a device is named by its socket and its number there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from podwright.hosts.gpus._inventory_types import Gpu
from podwright.hosts.gpus._nvml import slurm_gpu_type
from podwright.hosts.gpus._pci import short_pci_address
from podwright.hosts.gpus._process_owner import holder
from podwright.hosts.gpus._vendor_library import (
    AMDSMI_STANDIN_VARIABLE,
    Condition,
    GpuUser,
    Health,
    LibraryError,
    Sample,
)

_T = TypeVar("_T")

#: The modes in which a socket is several devices, as amdsmi_get_gpu_compute_partition has them.
_PARTED_MODES = ("DPX", "TPX", "QPX", "CPX")
_XGMI_LINK_TYPE = 2  #: AMDSMI_LINK_TYPE_XGMI
_PENDING_PAGE_STATUS = 1  #: AMDSMI_MEM_PAGE_STATUS_PENDING
#: Fields of amdsmi_get_violation_status. The power limit is not a fault, since a loaded GPU always
#: reaches it.
_THROTTLE_TEXT_BY_FIELD = {
    "active_prochot_thrm": "processor hot",
    "active_socket_thrm": "thermal",
    "active_vr_thrm": "voltage regulator hot",
    "active_hbm_thrm": "memory hot",
}


def open_amd_library(environ: Mapping[str, str], root_folder: str = "/") -> AmdSmi | None:
    """Return the library, initialised; None where it is not installed.

    Raises LibraryError if it fails.
    """
    standin_description = environ.get(AMDSMI_STANDIN_VARIABLE, "")
    if not standin_description and not os.path.exists(os.path.join(root_folder, "dev/kfd")):
        return None
    amdsmi_module: Any
    if standin_description:
        from podwright.hosts.gpus._amd_standin import AmdStandIn

        amdsmi_module = AmdStandIn(standin_description)
    else:
        try:
            import amdsmi

            amdsmi_module = amdsmi
        except ImportError:
            raise LibraryError("the package amdsmi is not installed (it comes with ROCm)") from None
        except Exception as error:  # any error that a library that does not load may raise
            raise LibraryError(f"the package amdsmi fails: {error}") from None
    try:
        amdsmi_module.amdsmi_init()
        return AmdSmi(amdsmi_module, simulated=bool(standin_description), root_folder=root_folder)
    except OSError as error:
        raise LibraryError(f"{standin_description}: {error.strerror}") from None
    except amdsmi_module.AmdSmiException as error:
        raise LibraryError(str(error)) from None


class AmdSmi:
    """See `Library`."""

    vendor = "amd"

    def __init__(
        self, amdsmi_module: Any, *, simulated: bool = False, root_folder: str = "/"
    ) -> None:
        self.simulated = simulated
        self._lib = amdsmi_module
        self._root = root_folder
        self._violations: dict[int, Any] = {}
        addresses_and_handles = [
            (
                short_pci_address(
                    self._call_or_raise(amdsmi_module.amdsmi_get_gpu_device_bdf, handle)
                ),
                handle,
            )
            for handle in self._call_or_raise(amdsmi_module.amdsmi_get_processor_handles)
        ]
        address_order = sorted(
            range(len(addresses_and_handles)),
            key=lambda handle_index: addresses_and_handles[handle_index][0],
        )
        self._buses = [addresses_and_handles[index][0] for index in address_order]
        self._handles = [addresses_and_handles[index][1] for index in address_order]

    def version(self) -> str:
        """See `Library.version`."""
        if not self._handles:
            return ""
        info = self._call_or_none(self._lib.amdsmi_get_gpu_driver_info, self._handles[0]) or {}
        return str(info.get("driver_version", ""))

    def close(self) -> None:
        """See `Library.close`."""
        self._call_or_none(self._lib.amdsmi_shut_down)

    def gpus(self) -> tuple[Gpu, ...]:
        """See `Library.gpus`."""
        gpus = [self._describe_gpu(index) for index in range(len(self._handles))]
        sizes = Counter(gpu.whole for gpu in gpus)
        return tuple(
            msgspec.structs.replace(gpu, memory=gpu.memory // sizes[gpu.whole])
            if gpu.whole
            else gpu
            for gpu in gpus
        )

    def _describe_gpu(self, index: int) -> Gpu:
        amd_library, gpu_handle = self._lib, self._handles[index]
        asic_info = self._call_or_raise(amd_library.amdsmi_get_gpu_asic_info, gpu_handle)
        vram_info = self._call_or_none(amd_library.amdsmi_get_gpu_vram_info, gpu_handle) or {}
        enumeration_info = (
            self._call_or_none(amd_library.amdsmi_get_gpu_enumeration_info, gpu_handle) or {}
        )
        numa_node = self._call_or_none(amd_library.amdsmi_topo_get_numa_node_number, gpu_handle)
        vbios_info = self._call_or_none(amd_library.amdsmi_get_gpu_vbios_info, gpu_handle) or {}
        market_name, render_number = (
            str(asic_info["market_name"]),
            enumeration_info.get("drm_render"),
        )
        uuid = f"GPU-{str(asic_info['asic_serial']).removeprefix('0x').lower():0>16}"
        bus = self._buses[index]
        mode, number = self._compute_partition(index)
        if mode:  # a part of a socket
            bus = f"{bus.rpartition('.')[0]}.0"
        return Gpu(
            index=index,
            vendor=self.vendor,
            uuid=f"{uuid}.{number}" if mode else uuid,
            name=market_name,
            type=slurm_gpu_type(market_name),
            bus=bus,
            memory=int(vram_info.get("vram_size", 0)) << 20,  # the library reports MiB
            node=-1 if numa_node is None else int(numa_node),
            files=(f"/dev/dri/renderD{render_number}",) if isinstance(render_number, int) else (),
            links=tuple(
                self._xgmi_link_count(gpu_handle, other_handle) for other_handle in self._handles
            ),
            firmware=str(vbios_info.get("version", "")),
            profile=mode.lower(),
            whole=uuid if mode else "",
        )

    def _compute_partition(self, index: int) -> tuple[str, int]:
        """Return the mode of the socket and the number of this device in it; no mode for SPX."""
        read_mode = getattr(self._lib, "amdsmi_get_gpu_compute_partition", None)
        mode = self._call_or_none(read_mode, self._handles[index]) if read_mode else None
        if mode not in _PARTED_MODES:
            return "", 0
        read_kfd = getattr(self._lib, "amdsmi_get_gpu_kfd_info", None)
        kfd = self._call_or_none(read_kfd, self._handles[index]) if read_kfd else None
        number = (kfd or {}).get("current_partition_id")
        # Older packages tell it in the address alone.
        return str(mode), number if isinstance(number, int) else int(self._buses[index][-1], 16)

    def _xgmi_link_count(self, gpu_handle: Any, other_handle: Any) -> int:
        if gpu_handle is other_handle:
            return -1
        info = (
            self._call_or_none(self._lib.amdsmi_topo_get_link_type, gpu_handle, other_handle) or {}
        )
        return int(info.get("type") == _XGMI_LINK_TYPE)

    def health(self, index: int) -> Health:
        """See `Library.health`."""
        amd_library, gpu_handle = self._lib, self._handles[index]
        problems = []
        try:
            ecc_counts = amd_library.amdsmi_get_gpu_total_ecc_count(gpu_handle)
        except amd_library.AmdSmiException:
            ecc_counts = {}
        if self._call_or_none(amd_library.amdsmi_get_gpu_asic_info, gpu_handle) is None:
            problems.append("does not answer")
        corrected, uncorrected = (
            ecc_counts.get("correctable_count"),
            ecc_counts.get("uncorrectable_count"),
        )
        if uncorrected:
            problems.append(f"{uncorrected} memory errors that could not be corrected")
        bad_pages = self._call_or_none(amd_library.amdsmi_get_gpu_bad_page_info, gpu_handle)
        pending_pages = [
            page for page in bad_pages or () if int(page["status"]) == _PENDING_PAGE_STATUS
        ]
        if pending_pages:
            problems.append("replacing pages of its memory waits for a reset")
        row_remap_state = "" if bad_pages is None else "pending" if pending_pages else "none"
        return Health(tuple(problems), corrected, uncorrected, row_remap_state)

    def fabric(self, index: int) -> str:
        """See `Library.fabric`. No fabric joins AMD's GPUs across machines yet."""
        return ""

    def forget(self, index: int) -> None:
        """See `Library.forget`. Nothing from before is kept."""

    def holders(self, index: int) -> tuple[GpuUser, ...]:
        """See `Library.holders`."""
        process_list = (
            self._call_or_none(self._lib.amdsmi_get_gpu_process_list, self._handles[index]) or ()
        )
        return tuple(
            holder(info["pid"], int(info["memory_usage"]["vram_mem"]), root=self._root)
            for info in process_list
        )

    def sample(self, index: int) -> Sample:
        """See `Library.sample`."""
        library, handle = self._lib, self._handles[index]
        activity = self._call_or_none(library.amdsmi_get_gpu_activity, handle) or {}
        power = self._call_or_none(library.amdsmi_get_power_info, handle) or {}
        used_bytes = sum(user.memory or 0 for user in self.holders(index))
        return Sample(
            load=_number_or_none(activity.get("gfx_activity")),
            memory=used_bytes,
            watts=_number_or_none(power.get("current_socket_power")),
            celsius=self._temperature_celsius(handle),
        )

    def _temperature_celsius(self, gpu_handle: Any) -> int | None:
        """Return the temperature of the hottest point, which limits the clocks, or of the edge."""
        library = self._lib
        for sensor in (
            library.AmdSmiTemperatureType.HOTSPOT,
            library.AmdSmiTemperatureType.EDGE,
        ):
            metric = library.AmdSmiTemperatureMetric.CURRENT
            celsius = _number_or_none(
                self._call_or_none(library.amdsmi_get_temp_metric, gpu_handle, sensor, metric)
            )
            if celsius is not None:
                return celsius
        return None

    def condition(self, index: int) -> Condition:
        """See `Library.condition`."""
        return Condition(nvlinks=self._xgmi_links_up(index), slowed=self._throttle_reasons(index))

    def _throttle_reasons(self, index: int) -> tuple[str, ...]:
        """Return what lowers the clocks, except for the power limit, as MI300 and newer report it.

        AMD SMI measures for 0.1 s before it answers, so all GPUs are asked at once, for one reading
        of each.
        """
        read_violations = getattr(self._lib, "amdsmi_get_violation_status", None)
        if read_violations and index not in self._violations:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(len(self._handles)) as thread_pool:
                violation_answers = thread_pool.map(
                    lambda gpu_handle: self._call_or_none(read_violations, gpu_handle),
                    self._handles,
                )
                self._violations = dict(enumerate(violation_answers))
        violations = self._violations.pop(index, None) or {}
        return tuple(
            name for field, name in _THROTTLE_TEXT_BY_FIELD.items() if violations.get(field) is True
        )

    def _xgmi_links_up(self, index: int) -> tuple[bool, ...]:
        """Return whether each Infinity Fabric link is up.

        Links that are switched off are not counted. Older packages cannot tell.
        """
        status = getattr(self._lib, "amdsmi_get_gpu_xgmi_link_status", None)
        info = self._call_or_none(status, self._handles[index]) if status else None
        return tuple(state == "U" for state in (info or {}).get("status", ()) if state != "X")

    def _call_or_raise(self, library_call: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return library_call(*arguments)
        except self._lib.AmdSmiException as error:
            raise LibraryError(f"{library_call.__name__}: {error}") from None

    def _call_or_none(self, library_call: Callable[..., _T], *arguments: Any) -> _T | None:
        try:
            return library_call(*arguments)
        except self._lib.AmdSmiException:
            return None


def _number_or_none(amdsmi_value: Any) -> int | None:
    """Return a number; None for amdsmi's text N/A."""
    return amdsmi_value if isinstance(amdsmi_value, int) else None
