"""Which of a machine's GPUs a process may use, and which cores are nearest to them.

A variable names the GPUs by number or by UUID. Numbers count the GPUs that the process can open:
where cgroups exclude the others, the first remaining one is 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from podwright.hosts._cores import Cores, CpuCore, read_list
from podwright.hosts.gpus._inventory_types import Gpu

#: The variable by which each vendor's runtime selects GPUs.
VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"}


class HasNearCores(Protocol):
    """A thing that has near cores."""

    @property
    def node(self) -> int:
        """The NUMA node, -1 where not known."""
        ...

    @property
    def cpus(self) -> str:
        """The hardware threads near to it, as a list."""
        ...


def shut(device_file: str) -> bool:
    """Return whether a device file exists and may not be opened, by permission or by cgroup."""
    try:
        os.close(os.open(device_file, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def visible(
    environ: Mapping[str, str], gpus: Sequence[Gpu], shut: Callable[[str], bool] = shut
) -> tuple[Gpu, ...]:
    """Return the GPUs that a program sees, in its order.

    As in CUDA, an unknown name ends the list.
    """
    visible_gpus: list[Gpu] = []
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        openable_gpus = [
            vendor_gpu
            for vendor_gpu in gpus
            if vendor_gpu.vendor == vendor and not any(shut(file) for file in vendor_gpu.files)
        ]
        variable_value = environ.get(VARIABLES.get(vendor, ""))
        if variable_value is None:
            visible_gpus += openable_gpus
            continue
        for number_or_uuid in filter(None, variable_value.split(",")):
            if number_or_uuid.isdigit():
                matching_gpus = openable_gpus[int(number_or_uuid) : int(number_or_uuid) + 1]
            else:
                matching_gpus = [
                    vendor_gpu
                    for vendor_gpu in openable_gpus
                    if vendor_gpu.uuid.startswith(number_or_uuid)
                ] or [
                    vendor_gpu
                    for vendor_gpu in openable_gpus
                    if any(
                        mig_slice.uuid.startswith(number_or_uuid) for mig_slice in vendor_gpu.slices
                    )
                ]
            if len(matching_gpus) != 1:
                break
            visible_gpus += matching_gpus
    return tuple(visible_gpus)


def near_cores(gpus: Sequence[HasNearCores], machine_cores: Cores) -> tuple[CpuCore, ...]:
    """Return the cores beside these GPUs; all cores where it is not known."""
    near_cpus = {number for gpu in gpus for number in read_list(gpu.cpus)}
    numa_nodes = {gpu.node for gpu in gpus if gpu.node >= 0}
    cores_by_cpu = tuple(core for core in machine_cores.cores if near_cpus.issuperset(core.cpus))
    cores_by_numa_node = tuple(core for core in machine_cores.cores if core.node in numa_nodes)
    return cores_by_cpu or cores_by_numa_node or machine_cores.cores
