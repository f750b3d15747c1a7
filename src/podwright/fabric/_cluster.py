"""The hardware of a cluster: machines in link domains. Values only."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from podwright.fabric._family import Family


class DomainTopology(enum.Enum):
    """How the machines of one link domain are cabled."""

    MESH = "mesh"
    TORUS = "torus"


class ClusterTopology(enum.Enum):
    """How link domains are joined by second-tier links."""

    NONE = "none"
    LOOPED = "looped"
    SWITCHED = "switched"


@dataclass(frozen=True, slots=True)
class Machine:
    """A box of devices with one agent. `name` is the agent's id; `host`, `port` reach it."""

    name: str
    host: str = "127.0.0.1"
    port: int = 8080


@dataclass(frozen=True, slots=True)
class LinkDomain:
    """Machines joined by first-tier links, in the order of their links."""

    name: str
    machines: tuple[Machine, ...]


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of link domains, in the order of their loop.

    A device is named by `(domain, offset)`: the index of its link domain in `domains`, and its
    place among the devices of that domain, counted machine by machine, from 0.
    """

    name: str
    family: Family
    domains: tuple[LinkDomain, ...]
    domain_topology: DomainTopology = DomainTopology.MESH
    topology: ClusterTopology = ClusterTopology.NONE
    simulated: bool = False

    @property
    def size(self) -> int:
        """The number of devices."""
        return sum(self.domain_size(index) for index in range(len(self.domains)))

    def domain_size(self, domain_index: int) -> int:
        """Return the number of devices of one link domain."""
        return len(self.domains[domain_index].machines) * self.family.devices_per_machine

    def machine_of(self, domain_index: int, device_offset: int) -> Machine:
        """Return the machine that holds a device.

        Raises IndexError for a device that does not exist.
        """
        return self.domains[domain_index].machines[device_offset // self.family.devices_per_machine]
