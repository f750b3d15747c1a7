"""What of a site goes into a job script: how large its nodes are, and what its fabric needs."""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from podwright.slurm.gpus import Inventory, Kind
from podwright.slurm.requests import Shape, Version
from podwright.wire import InvalidRequest


class Wishes(NamedTuple):
    """What the user said. memory: GiB that a GPU must have."""

    nodes: int = 2
    partition: str = ""
    type: str = ""
    memory: int = 0
    image: str = "nvcr.io#nvidia/pytorch:25.01-py3"


class Fit(NamedTuple):
    """What a script is made of. adapters: as NCCL names them. sizes: GiB of GPU memory that
    nodes name in a feature."""

    gpus: int = 8
    cores: int = 64
    topology: str = ""
    version: Version | None = None
    adapters: tuple[str, ...] = ()
    interface: str = ""
    sizes: tuple[int, ...] = ()


def of_inventory(inventory: Inventory, wishes: Wishes) -> Fit:
    """From an inventory: the commonest kind of node that has what is wished for."""
    fitting = {
        kind: len(names)
        for kind, names in inventory.kinds().items()
        if (not wishes.type or any(gpu.type == wishes.type for gpu in kind.gpus))
        and all(gpu.memory >= wishes.memory for gpu in kind.gpus)
    }
    if not fitting:
        raise InvalidRequest(
            "no node of the inventory has such GPUs",
            asked=_asked(wishes),
            would_work=f"there are {_there(inventory)}",
        )
    kind = max(fitting, key=lambda k: fitting[k])
    sizes = {gpu.memory for some in inventory.kinds() for gpu in some.gpus} - {0}
    rails = sorted((nic for nic in kind.nics if nic.device), key=lambda nic: nic.rail)
    plain = [nic.interface for nic in kind.nics if nic.interface]
    return Fit(
        gpus=len(kind.gpus),
        cores=kind.sockets * kind.cores_per_socket,
        topology="tree" if inventory.switches else "",
        adapters=tuple(nic.device for nic in rails),
        interface=plain[0] if plain else "",
        sizes=tuple(sorted(sizes)),
    )


def of_slurm(shape: Shape | None, config: str, features: str) -> Fit:
    """From what this site's Slurm says: scontrol's configuration, sinfo's features."""
    found = re.search(r"^TopologyPlugin\s*=\s*topology/(tree|block)", config, re.M)
    sizes = {int(size) for size in re.findall(r"\bgpumem(\d+)g\b", features)}
    common = Fit(topology=found[1] if found else "", sizes=tuple(sorted(sizes)))
    return common._replace(gpus=shape.gpus, cores=shape.cores) if shape else common


def _asked(wishes: Wishes) -> str:
    said = [f"--gpu-type={wishes.type}"] if wishes.type else []
    return " ".join([*said, *([f"--gpu-memory={wishes.memory}"] if wishes.memory else [])])


def _there(inventory: Inventory) -> str:
    def words(kind: Kind) -> str:
        counted = Counter((gpu.type, gpu.memory) for gpu in kind.gpus)
        return ", ".join(f"{n} {t} of {m} GiB" for (t, m), n in counted.items())

    return "; ".join(f"nodes with {words(kind)}" for kind in inventory.kinds())
