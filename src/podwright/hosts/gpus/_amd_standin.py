"""A stand-in for AMD's package `amdsmi`: the calls that Podwright makes, with its names and shapes.

A TOML file describes its GPUs, as for NVIDIA's (`_nvml_standin`):

    gpus = 8
    name = "AMD Instinct MI300X"
    memory = 196592           # MiB
    xgmi = true
    numa_nodes = 2
    driver = "6.12.12"
    mode = "CPX"              # of every socket; gpus then counts the parts, `parts` of each socket
    parts = 8

    [[gpu]]                   # how one differs
    index = 3
    ecc_uncorrected = 1
    bad_pages = "pending"
    celsius = 95              # at its hottest point
    xgmi_links = "UUDUUUU"    # up, down, X: switched off
    slowed = ["socket_thrm"]  # prochot_thrm, ppt_pwr, socket_thrm, vr_thrm, hbm_thrm
    lost = false
    processes = [{ pid = 4711, memory = 512 }]
"""

from __future__ import annotations

import os
import time
import tomllib
from types import SimpleNamespace
from typing import Any

from podwright.hosts.gpus._vendor_library import AMDSMI_STANDIN_VARIABLE

#: The environment variable that names such a file.
STANDIN_VARIABLE = AMDSMI_STANDIN_VARIABLE


class AmdStandInError(Exception):
    """The exception that the package raises, under the package's own name for it."""


class AmdStandIn:
    """The package. Its handles are numbers."""

    AmdSmiException = AmdStandInError
    AmdSmiTemperatureType = SimpleNamespace(EDGE=0, HOTSPOT=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)

    def __init__(self, path: str) -> None:
        self._path = path
        self._read_at = -1
        self._known: dict[str, Any] = {}

    @property
    def _description(self) -> dict[str, Any]:
        modified_at = os.stat(self._path).st_mtime_ns
        if modified_at != self._read_at:
            with open(self._path, "rb") as file:
                self._known = tomllib.load(file)
            self._read_at = modified_at
        return self._known

    def _describe_gpu(self, gpu_index: int) -> dict[str, Any]:
        description = self._description
        gpu_description = {
            **description,
            **next(
                (entry for entry in description.get("gpu", ()) if entry["index"] == gpu_index),
                {},
            ),
        }
        if gpu_description.get("lost"):
            raise AmdStandInError("Error code: 49 | AMDSMI_STATUS_NO_DATA")
        return gpu_description

    def amdsmi_init(self) -> None:
        self._description  # noqa: B018  # reads it

    def amdsmi_shut_down(self) -> None:
        return None

    def amdsmi_get_processor_handles(self) -> list[int]:
        return list(range(int(self._description.get("gpus", 0))))

    def _socket_and_part(self, handle: int) -> tuple[int, int]:
        return divmod(handle, int(self._description.get("parts", 1)))

    def amdsmi_get_gpu_device_bdf(self, handle: int) -> str:
        socket, part = self._socket_and_part(handle)
        return f"0000:{5 + 32 * socket:02x}:00.{part}"

    def amdsmi_get_gpu_compute_partition(self, handle: int) -> str:
        return str(self._description.get("mode", "SPX"))

    def amdsmi_get_gpu_kfd_info(self, handle: int) -> dict[str, int]:
        _, part = self._socket_and_part(handle)
        return {"kfd_id": 1000 + handle, "node_id": 2 + handle, "current_partition_id": part}

    def amdsmi_get_gpu_driver_info(self, handle: int) -> dict[str, str]:
        version = str(self._description.get("driver", "6.12.12"))
        return {"driver_name": "amdgpu", "driver_version": version, "driver_date": "N/A"}

    def amdsmi_get_gpu_asic_info(self, handle: int) -> dict[str, Any]:
        name = str(self._describe_gpu(handle).get("name", "AMD Instinct MI300X"))
        socket, _ = self._socket_and_part(handle)
        serial = f"0x{0x4A10C0DE00000000 + socket:016X}"
        return {"market_name": name, "asic_serial": serial, "vendor_id": "0x1002"}

    def amdsmi_get_gpu_vram_info(self, handle: int) -> dict[str, Any]:
        return {"vram_size": int(self._describe_gpu(handle).get("memory", 196592))}

    def amdsmi_get_gpu_vbios_info(self, handle: int) -> dict[str, str]:
        version = str(self._describe_gpu(handle).get("firmware", "022.040.003.043"))
        return {"name": "N/A", "build_date": "N/A", "part_number": "N/A", "version": version}

    def amdsmi_get_gpu_enumeration_info(self, handle: int) -> dict[str, Any]:
        return {"drm_render": 128 + handle, "drm_card": handle, "hip_id": handle}

    def amdsmi_topo_get_numa_node_number(self, handle: int) -> int:
        count = int(self._description.get("numa_nodes", 1))
        return handle * count // max(int(self._description.get("gpus", 1)), 1)

    def amdsmi_topo_get_link_type(self, handle: int, other_handle: int) -> dict[str, int]:
        return {"hops": 1, "type": 2} if self._description.get("xgmi") else {"hops": 2, "type": 1}

    def amdsmi_get_gpu_total_ecc_count(self, handle: int) -> dict[str, int]:
        gpu = self._describe_gpu(handle)
        return {
            "correctable_count": int(gpu.get("ecc_corrected", 0)),
            "uncorrectable_count": int(gpu.get("ecc_uncorrected", 0)),
            "deferred_count": 0,
        }

    def amdsmi_get_gpu_bad_page_info(self, handle: int) -> list[dict[str, Any]]:
        status = {"reserved": 0, "pending": 1}.get(str(self._describe_gpu(handle).get("bad_pages")))
        if status is None:
            return []
        return [{"value": 0, "page_address": 1 << 20, "page_size": 4096, "status": status}]

    def amdsmi_get_gpu_process_list(self, handle: int) -> list[dict[str, Any]]:
        return [
            {
                "name": "N/A",
                "pid": int(process["pid"]),
                "memory_usage": {"vram_mem": int(process.get("memory", 0)) << 20},
            }
            for process in self._describe_gpu(handle).get("processes", ())
        ]

    def amdsmi_get_gpu_activity(self, handle: int) -> dict[str, Any]:
        load = self._describe_gpu(handle).get("load", "N/A")
        return {"gfx_activity": load, "umc_activity": "N/A", "mm_activity": "N/A"}

    def amdsmi_get_power_info(self, handle: int) -> dict[str, Any]:
        return {"current_socket_power": self._describe_gpu(handle).get("watts", "N/A")}

    def amdsmi_get_temp_metric(self, handle: int, sensor: int, metric: int) -> int:
        gpu = self._describe_gpu(handle)
        if sensor != self.AmdSmiTemperatureType.HOTSPOT or "celsius" not in gpu:
            raise AmdStandInError("Error code: 2 | AMDSMI_STATUS_NOT_SUPPORTED")
        return int(gpu["celsius"])

    def amdsmi_get_gpu_xgmi_link_status(self, handle: int) -> dict[str, Any]:
        states = list(self._describe_gpu(handle).get("xgmi_links", ""))
        return {"total_links": len(states), "status": states}

    def amdsmi_get_violation_status(self, handle: int) -> dict[str, Any]:
        gpu = self._describe_gpu(handle)
        time.sleep(float(self._description.get("violation_takes", 0)))
        names = ("prochot_thrm", "ppt_pwr", "socket_thrm", "vr_thrm", "hbm_thrm")
        return {
            f"active_{violation}": violation in gpu["slowed"] if "slowed" in gpu else "N/A"
            for violation in names
        }
