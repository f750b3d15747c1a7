"""AMD's GPUs through AMD SMI, by its package `amdsmi`, which comes with ROCm and is imported here.

Names and shapes are those of amdsmi 7.0. A value that another version lacks is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from podwright.hosts.gpus._holders import holder
from podwright.hosts.gpus._library import (
    AMDSMI_STANDIN,
    Condition,
    GpuUser,
    Health,
    LibraryError,
    Sample,
    stand_in,
)
from podwright.hosts.gpus._nvml import short_type
from podwright.hosts.gpus._pci import short_bus
from podwright.hosts.gpus._values import Gpu

_T = TypeVar("_T")

_XGMI = 2  #: AMDSMI_LINK_TYPE_XGMI
_PENDING = 1  #: AMDSMI_MEM_PAGE_STATUS_PENDING
#: Fields of amdsmi_get_violation_status. The power limit is not a fault, since a loaded GPU always
#: reaches it.
_SLOWED = {
    "active_prochot_thrm": "processor hot",
    "active_socket_thrm": "thermal",
    "active_vr_thrm": "voltage regulator hot",
    "active_hbm_thrm": "memory hot",
}


def open_amd(environ: Mapping[str, str], root: str = "/") -> AmdSmi | None:
    """Return the library, initialised; None where it is not installed.

    Raises LibraryError if it fails.
    """
    described = environ.get(AMDSMI_STANDIN, "")
    if not described and not os.path.exists(os.path.join(root, "dev/kfd")):
        return None
    module: Any
    if described:
        module = stand_in("AmdStandIn", described)
    else:
        try:
            import amdsmi

            module = amdsmi
        except ImportError:
            raise LibraryError("the package amdsmi is not installed (it comes with ROCm)") from None
        except Exception as error:  # any error that a library that does not load may raise
            raise LibraryError(f"the package amdsmi fails: {error}") from None
    try:
        module.amdsmi_init()
        return AmdSmi(module, simulated=bool(described), root=root)
    except OSError as error:
        raise LibraryError(f"{described}: {error.strerror}") from None
    except module.AmdSmiException as error:
        raise LibraryError(str(error)) from None


class AmdSmi:
    """See `Library`."""

    vendor = "amd"

    def __init__(self, amdsmi: Any, *, simulated: bool = False, root: str = "/") -> None:
        self.simulated = simulated
        self._lib = amdsmi
        self._root = root
        self._violations: dict[int, Any] = {}
        handles = [
            (short_bus(self._must(amdsmi.amdsmi_get_gpu_device_bdf, handle)), handle)
            for handle in self._must(amdsmi.amdsmi_get_processor_handles)
        ]
        order = sorted(range(len(handles)), key=lambda i: handles[i][0])
        self._buses = [handles[i][0] for i in order]
        self._handles = [handles[i][1] for i in order]

    def version(self) -> str:
        """See `Library.version`."""
        if not self._handles:
            return ""
        driver_info = self._try(self._lib.amdsmi_get_gpu_driver_info, self._handles[0]) or {}
        return str(driver_info.get("driver_version", ""))

    def close(self) -> None:
        """See `Library.close`."""
        self._try(self._lib.amdsmi_shut_down)

    def gpus(self) -> tuple[Gpu, ...]:
        """See `Library.gpus`."""
        return tuple(self._gpu(index) for index in range(len(self._handles)))

    def _gpu(self, index: int) -> Gpu:
        lib, handle = self._lib, self._handles[index]
        asic = self._must(lib.amdsmi_get_gpu_asic_info, handle)
        vram = self._try(lib.amdsmi_get_gpu_vram_info, handle) or {}
        files = self._try(lib.amdsmi_get_gpu_enumeration_info, handle) or {}
        node = self._try(lib.amdsmi_topo_get_numa_node_number, handle)
        vbios = self._try(lib.amdsmi_get_gpu_vbios_info, handle) or {}
        name, render = str(asic["market_name"]), files.get("drm_render")
        return Gpu(
            index=index,
            vendor=self.vendor,
            uuid=f"GPU-{str(asic['asic_serial']).removeprefix('0x').lower():0>16}",
            name=name,
            type=short_type(name),
            bus=self._buses[index],
            memory=int(vram.get("vram_size", 0)) << 20,  # the library reports MiB
            node=-1 if node is None else int(node),
            files=(f"/dev/dri/renderD{render}",) if isinstance(render, int) else (),
            links=tuple(self._links(handle, other) for other in self._handles),
            firmware=str(vbios.get("version", "")),
        )

    def _links(self, handle: Any, other: Any) -> int:
        if handle is other:
            return -1
        link = self._try(self._lib.amdsmi_topo_get_link_type, handle, other) or {}
        return int(link.get("type") == _XGMI)

    def health(self, index: int) -> Health:
        """See `Library.health`."""
        lib, handle = self._lib, self._handles[index]
        problems = []
        try:
            count = lib.amdsmi_get_gpu_total_ecc_count(handle)
        except lib.AmdSmiException:
            count = {}
        if self._try(lib.amdsmi_get_gpu_asic_info, handle) is None:
            problems.append("does not answer")
        corrected, wrong = count.get("correctable_count"), count.get("uncorrectable_count")
        if wrong:
            problems.append(f"{wrong} memory errors that could not be corrected")
        pages = self._try(lib.amdsmi_get_gpu_bad_page_info, handle)
        pending = [page for page in pages or () if int(page["status"]) == _PENDING]
        if pending:
            problems.append("replacing pages of its memory waits for a reset")
        remap = "" if pages is None else "pending" if pending else "none"
        return Health(tuple(problems), corrected, wrong, remap)

    def forget(self, index: int) -> None:
        """See `Library.forget`. Nothing from before is kept."""

    def holders(self, index: int) -> tuple[GpuUser, ...]:
        """See `Library.holders`."""
        process_list = self._try(self._lib.amdsmi_get_gpu_process_list, self._handles[index]) or ()
        return tuple(
            holder(p["pid"], int(p["memory_usage"]["vram_mem"]), root=self._root)
            for p in process_list
        )

    def sample(self, index: int) -> Sample:
        """See `Library.sample`."""
        lib, handle = self._lib, self._handles[index]
        activity = self._try(lib.amdsmi_get_gpu_activity, handle) or {}
        power = self._try(lib.amdsmi_get_power_info, handle) or {}
        used = sum(holder.memory or 0 for holder in self.holders(index))
        return Sample(
            load=_number(activity.get("gfx_activity")),
            memory=used,
            watts=_number(power.get("current_socket_power")),
            celsius=self._celsius(handle),
        )

    def _celsius(self, handle: Any) -> int | None:
        """Return the temperature of the hottest point, which limits the clocks, or of the edge."""
        lib = self._lib
        for sensor in (lib.AmdSmiTemperatureType.HOTSPOT, lib.AmdSmiTemperatureType.EDGE):
            now = lib.AmdSmiTemperatureMetric.CURRENT
            celsius = _number(self._try(lib.amdsmi_get_temp_metric, handle, sensor, now))
            if celsius is not None:
                return celsius
        return None

    def condition(self, index: int) -> Condition:
        """See `Library.condition`."""
        return Condition(nvlinks=self._xgmi(index), slowed=self._slowed(index))

    def _slowed(self, index: int) -> tuple[str, ...]:
        """Return what lowers the clocks, except for the power limit, as MI300 and newer report it.

        AMD SMI measures for 0.1 s before it answers, so all GPUs are asked at once, for one reading
        of each.
        """
        ask = getattr(self._lib, "amdsmi_get_violation_status", None)
        if ask and index not in self._violations:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(len(self._handles)) as pool:
                answers = pool.map(lambda handle: self._try(ask, handle), self._handles)
                self._violations = dict(enumerate(answers))
        violations = self._violations.pop(index, None) or {}
        return tuple(word for key, word in _SLOWED.items() if violations.get(key) is True)

    def _xgmi(self, index: int) -> tuple[bool, ...]:
        """Return whether each Infinity Fabric link is up.

        Links that are switched off are not counted. Older packages cannot tell.
        """
        ask = getattr(self._lib, "amdsmi_get_gpu_xgmi_link_status", None)
        xgmi_info = self._try(ask, self._handles[index]) if ask else None
        return tuple(state == "U" for state in (xgmi_info or {}).get("status", ()) if state != "X")

    def _must(self, call: Callable[..., _T], *arguments: Any) -> _T:
        try:
            return call(*arguments)
        except self._lib.AmdSmiException as error:
            raise LibraryError(f"{call.__name__}: {error}") from None

    def _try(self, call: Callable[..., _T], *arguments: Any) -> _T | None:
        try:
            return call(*arguments)
        except self._lib.AmdSmiException:
            return None


def _number(value: Any) -> int | None:
    """Return a number; None for amdsmi's text N/A."""
    return value if isinstance(value, int) else None
