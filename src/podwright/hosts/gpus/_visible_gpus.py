"""Which of a machine's GPUs a process may use, and which cores are nearest to them.

A variable names the GPUs by number or by UUID. Numbers count the GPUs that the process can open:
where cgroups exclude the others, the first remaining one is 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from podwright.hosts._cores import Cores, CpuCore, read_list
from podwright.hosts.gpus._values import Gpu

#: The variable by which each vendor's runtime selects GPUs.
VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"}


class Located(Protocol):
    """A thing that has near cores."""

    @property
    def node(self) -> int:
        """The NUMA node, -1 where not known."""
        ...

    @property
    def cpus(self) -> str:
        """The hardware threads near to it, as a list."""
        ...


def shut(file: str) -> bool:
    """Return whether a device file exists and may not be opened, by permission or by cgroup."""
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK))
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
        own = [g for g in gpus if g.vendor == vendor and not any(shut(file) for file in g.files)]
        text = environ.get(VARIABLES.get(vendor, ""))
        if text is None:
            visible_gpus += own
            continue
        for word in filter(None, text.split(",")):
            if word.isdigit():
                named = own[int(word) : int(word) + 1]
            else:
                named = [g for g in own if g.uuid.startswith(word)] or [
                    g for g in own if any(s.uuid.startswith(word) for s in g.slices)
                ]
            if len(named) != 1:
                break
            visible_gpus += named
    return tuple(visible_gpus)


def near_cores(gpus: Sequence[Located], cores: Cores) -> tuple[CpuCore, ...]:
    """Return the cores beside these GPUs; all cores where it is not known."""
    cpus = {cpu for gpu in gpus for cpu in read_list(gpu.cpus)}
    nodes = {gpu.node for gpu in gpus if gpu.node >= 0}
    by_cpu = tuple(core for core in cores.cores if cpus.issuperset(core.cpus))
    by_node = tuple(core for core in cores.cores if core.node in nodes)
    return by_cpu or by_node or cores.cores
