"""AMD's GPUs through AMD SMI, by its package `amdsmi`, which comes with ROCm and is imported here.

Names and shapes are those of amdsmi 7.0; what another version lacks is left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from podwright.hosts.gpus._holders import holder
from podwright.hosts.gpus._library import Condition, GpuUser, Health, LibraryError, Sample
from podwright.hosts.gpus._nvml import short_type
from podwright.hosts.gpus._pci import short_bus
from podwright.hosts.gpus._standin_amd import VARIABLE, AmdStandIn
from podwright.hosts.gpus._values import Gpu

_T = TypeVar("_T")

_XGMI = 2  #: AMDSMI_LINK_TYPE_XGMI
_PENDING = 1  #: AMDSMI_MEM_PAGE_STATUS_PENDING
#: Of amdsmi_get_violation_status. Its power limit is no fault: under load it is always met.
_SLOWED = {
    "active_prochot_thrm": "processor hot",
    "active_socket_thrm": "thermal",
    "active_vr_thrm": "voltage regulator hot",
    "active_hbm_thrm": "memory hot",
}


def open_amd(environ: Mapping[str, str], root: str = "/") -> AmdSmi | None:
    """The library, ready; None where there is none. Raises LibraryError for one that fails."""
    described = environ.get(VARIABLE, "")
    if not described and not os.path.exists(os.path.join(root, "dev/kfd")):
        return None
    module: Any = AmdStandIn(described)
    if not described:
        try:
            import amdsmi

            module = amdsmi
        except ImportError:
            raise LibraryError("the package amdsmi is not installed (it comes with ROCm)") from None
        except Exception as error:  # whatever it makes of a library that it cannot load
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
        found = [
            (short_bus(self._must(amdsmi.amdsmi_get_gpu_device_bdf, handle)), handle)
            for handle in self._must(amdsmi.amdsmi_get_processor_handles)
        ]
        order = sorted(range(len(found)), key=lambda i: found[i][0])
        self._buses = [found[i][0] for i in order]
        self._handles = [found[i][1] for i in order]

    def version(self) -> str:
        """See `Library.version`."""
        if not self._handles:
            return ""
        said = self._try(self._lib.amdsmi_get_gpu_driver_info, self._handles[0]) or {}
        return str(said.get("driver_version", ""))

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
            memory=int(vram.get("vram_size", 0)) << 20,  # it tells MiB
            node=-1 if node is None else int(node),
            files=(f"/dev/dri/renderD{render}",) if isinstance(render, int) else (),
            links=tuple(self._links(handle, other) for other in self._handles),
            firmware=str(vbios.get("version", "")),
        )

    def _links(self, handle: Any, other: Any) -> int:
        if handle is other:
            return -1
        said = self._try(self._lib.amdsmi_topo_get_link_type, handle, other) or {}
        return int(said.get("type") == _XGMI)

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
        """See `Library.forget`: nothing is kept of what was heard."""

    def holders(self, index: int) -> tuple[GpuUser, ...]:
        """See `Library.holders`."""
        found = self._try(self._lib.amdsmi_get_gpu_process_list, self._handles[index]) or ()
        return tuple(
            holder(p["pid"], int(p["memory_usage"]["vram_mem"]), root=self._root) for p in found
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
        """At its hottest point, which is what its clocks are held down by; else at its edge."""
        lib = self._lib
        for sensor in (lib.AmdSmiTemperatureType.HOTSPOT, lib.AmdSmiTemperatureType.EDGE):
            now = lib.AmdSmiTemperatureMetric.CURRENT
            found = _number(self._try(lib.amdsmi_get_temp_metric, handle, sensor, now))
            if found is not None:
                return found
        return None

    def condition(self, index: int) -> Condition:
        """See `Library.condition`."""
        return Condition(nvlinks=self._xgmi(index), slowed=self._slowed(index))

    def _slowed(self, index: int) -> tuple[str, ...]:
        """What holds its clocks down, but for the power that it may take; as MI300 and newer say.

        AMD SMI measures 0.1 s for an answer, so all GPUs are asked at once, for one look at each.
        """
        ask = getattr(self._lib, "amdsmi_get_violation_status", None)
        if ask and index not in self._violations:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(len(self._handles)) as pool:
                answers = pool.map(lambda handle: self._try(ask, handle), self._handles)
                self._violations = dict(enumerate(answers))
        said = self._violations.pop(index, None) or {}
        return tuple(word for key, word in _SLOWED.items() if said.get(key) is True)

    def _xgmi(self, index: int) -> tuple[bool, ...]:
        """Whether each Infinity Fabric link is up; those that are switched off are not counted.
        Older packages cannot tell."""
        ask = getattr(self._lib, "amdsmi_get_gpu_xgmi_link_status", None)
        said = self._try(ask, self._handles[index]) if ask else None
        return tuple(state == "U" for state in (said or {}).get("status", ()) if state != "X")

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
    """amdsmi says N/A in words."""
    return value if isinstance(value, int) else None
