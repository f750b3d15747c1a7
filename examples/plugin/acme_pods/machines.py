"""Acme's machines: how they are driven, and what keeps their GPUs apart."""

from collections.abc import Sequence

from acme_pods.family import RING
from podwright.agents import SimulatedMachine
from podwright.agents.gpu import Guard
from podwright.fabric import Family, Machine
from podwright.hosts.gpus import Gpu


def driver(machine: Machine, family: Family | None) -> SimulatedMachine:
    """What `vipu-agent --driver acme` serves. A real one talks to Acme's library here."""
    return SimulatedMachine(machine, family or RING, serial="ACME")


class Lock:
    """A guard that remembers whose GPUs are. A real one would tell Acme's switch."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}

    def check(self, gpus: Sequence[Gpu]) -> None:
        """All of them can be kept apart."""

    def join(self, partition: str, owner: str, gpus: Sequence[Gpu]) -> None:
        """These are this partition's."""
        self.owners |= dict.fromkeys((gpu.uuid for gpu in gpus), owner)

    def leave(self, gpus: Sequence[Gpu]) -> None:
        """These are nobody's."""
        for gpu in gpus:
            self.owners.pop(gpu.uuid, None)


def guard(gpus: Sequence[Gpu]) -> Guard:
    """What `vipu-agent --gpus --guard acme-lock` sets up."""
    return Lock()
