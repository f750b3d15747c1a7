"""Which of a machine's GPUs a process may use, and which of them are nearest to whom.

A variable names them by number or by UUID. Numbers count what the process can open: where
cgroups shut the others out, the first that is left is 0.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from podwright.hosts._cores import Cores, CpuCore, read_list
from podwright.hosts.gpus._values import Gpu

#: What each vendor's runtime reads, and what says the same in other words.
VARIABLES = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "ROCR_VISIBLE_DEVICES"}


class Located(Protocol):
    """What is near to cores."""

    @property
    def node(self) -> int:
        """The NUMA node, -1 where nothing tells."""
        ...

    @property
    def cpus(self) -> str:
        """The hardware threads near to it, as a list."""
        ...


def shut(file: str) -> bool:
    """Whether a device file is there and may not be opened, by permission or by cgroup."""
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
    """The GPUs that a program sees, in its order. As CUDA, it stops at a name it does not know."""
    found: list[Gpu] = []
    for vendor in dict.fromkeys(gpu.vendor for gpu in gpus):
        own = [g for g in gpus if g.vendor == vendor and not any(shut(file) for file in g.files)]
        text = environ.get(VARIABLES.get(vendor, ""))
        if text is None:
            found += own
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
            found += named
    return tuple(found)


def near_cores(gpus: Sequence[Located], cores: Cores) -> tuple[CpuCore, ...]:
    """The cores beside these GPUs; all, where nothing tells."""
    cpus = {cpu for gpu in gpus for cpu in read_list(gpu.cpus)}
    nodes = {gpu.node for gpu in gpus if gpu.node >= 0}
    by_cpu = tuple(core for core in cores.cores if cpus.issuperset(core.cpus))
    by_node = tuple(core for core in cores.cores if core.node in nodes)
    return by_cpu or by_node or cores.cores
