"""What the server itself looks at: for its page, its history and its metrics.

What is told without a caller is not to be shown to callers as it is: whoever shows it leaves out
what they may not know of.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from podwright.controller.calls._agent_calls import agent_info
from podwright.controller.calls._call_context import Services
from podwright.controller.calls._object_replies import cluster_info
from podwright.controller.state._caller import Caller, Role
from podwright.controller.state._change_feed import ChangeFeed
from podwright.controller.state._pod_summary import PodSummary
from podwright.placement.fragmentation import SizeFit
from podwright.wire import AgentInfo, ClusterInfo, EventList, PartitionInfo, ReadyState

OWNERS_SHOWN: Final = 20  #: owners of whom it is told how much they have, those with most


class PartitionFacts(NamedTuple):
    """What is kept of a partition for later. created, until: seconds since 1970."""

    owner: str
    job: str
    allocation: str
    created: int
    until: int
    state: str


class PodObserver:
    """Looks at a controller's state. summary: the pod by link domain.

    partition_feed: which partitions changed, by name.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._state = services.state
        self.summary = PodSummary(services.state)

    @property
    def partition_feed(self) -> ChangeFeed:
        """Which partitions changed, by name."""
        return self._state.partitions.feed

    @property
    def device_count(self) -> int:
        """How many devices there are."""
        clusters = self._state.inventory.clusters.values()
        return sum(cluster.size for cluster in clusters)

    def definitions(self) -> dict[str, int]:
        """By cluster, a number that is another for each definition of it."""
        clusters = self._state.inventory.clusters
        return {name: cluster.definition for name, cluster in clusters.items()}

    def clusters(self) -> dict[str, dict[str, Any]]:
        """Family, size, sizes of link domains, whether it is simulated, and its drained machines,
        by cluster."""
        return {
            name: {
                "family": cluster.layout.family.name,
                "size": cluster.size,
                "domains": [len(refs) for refs in cluster.refs],
                "simulated": cluster.layout.simulated,
                "drained": sorted(cluster.drained),
            }
            for name, cluster in self._state.inventory.clusters.items()
        }

    def partition(self, name: str) -> PartitionFacts | None:
        """A partition; None: there is none of this name."""
        entry = self._state.partitions.get(name)
        record = entry.record if entry is not None else None
        if record is None:
            return None
        return PartitionFacts(
            record.owner,
            record.job,
            record.allocation,
            round(record.created_at),
            round(record.until),
            record.ready.value,
        )

    def partition_names(self) -> Iterator[str]:
        """The names of all partitions, in order. They may come and go meanwhile."""
        return self._state.partitions.names.after("")

    # -- what a caller may know of -----------------------------------------------------------

    def cluster_infos(self) -> list[ClusterInfo]:
        """All clusters, without the names of their machines: there are many."""
        return [
            cluster_info(self._state, cluster, machines=False)
            for cluster in self._state.inventory.clusters.values()
        ]

    def totals(self, caller: Caller) -> dict[str, int]:
        """How many partitions, leases and machines a caller may know of."""
        state = self._state
        _, partition_count = state.known_names(caller)
        lease_count = len(state.leases) + len(state.fences)
        if not state.sight.all_leases(caller):
            own = map(state.partitions.get, state.own_names(caller))
            lease_count = sum(len(entry.leases) + len(entry.fences) for entry in own if entry)
        return {
            "partitions": partition_count,
            "leases": lease_count,
            "machines": len(state.inventory.by_machine),
        }

    def partitions_in_trouble(self, caller: Caller, limit: int) -> list[PartitionInfo]:
        """Partitions in error or with fences that a caller may know of, by name."""
        state = self._state
        fenced = {entry.name for entry in state.fences.values()}
        found = []
        for name in sorted(fenced.union(state.partitions.broken)):
            entry = state.find(caller, name)
            if entry is not None and entry.record is not None:
                found.append(self._services.info(entry))
                if len(found) == limit:
                    break
        return found

    def agents_in_trouble(self, caller: Caller, limit: int) -> list[AgentInfo]:
        """Agents that are not in service, by name; none for a caller who may not see agents."""
        services, state = self._services, self._state
        if services.privacy.hides_agents(caller):
            return []
        agents = services.registry.agents
        refused = {name for name, agent in agents.items() if agent.refused}
        names = sorted(refused.union(state.down, state.hardware.foreign).intersection(agents))
        return [agent_info(services, agents[name]) for name in names[:limit]]

    def machine_names(self, caller: Caller) -> list[str]:
        """The names of all machines, and of agents if a caller may see these, in order."""
        services = self._services
        agents = () if services.privacy.hides_agents(caller) else services.registry.agents
        return sorted({*self._state.inventory.by_machine, *agents})

    def machines(self, caller: Caller, names: Iterable[str]) -> list[AgentInfo]:
        """Machines as their agents have them. Of one without an agent, and for a caller who may not
        see agents, only whether it is in service."""
        services, state = self._services, self._state
        agents = {} if services.privacy.hides_agents(caller) else services.registry.agents
        found = []
        for name in names:
            cluster = state.inventory.by_machine.get(name)
            if (agent := agents.get(name)) is not None:
                found.append(agent_info(services, agent))
            elif cluster is not None:
                family = cluster.layout.family
                found.append(
                    AgentInfo(
                        name=name,
                        family=family.name,
                        cluster=cluster.layout.name,
                        devices=family.devices_per_machine,
                        state="DOWN" if name in state.down else "UP",
                    )
                )
        return found

    def domain_machines(self, key: str) -> list[str]:
        """The machines of a link domain; none where there is no such domain."""
        return [name for name, _ in self.summary.machines(key) or ()]

    def domain_place(self, key: str) -> tuple[str, int, int, str] | None:
        """Where a list of devices has a link domain: its cluster, its number and size there, and
        the page token of what precedes it. None: there is no such domain."""
        name, _, number = key.rpartition("/")
        cluster = self._state.inventory.clusters.get(name)
        if cluster is None or not number.isdecimal() or int(number) >= len(cluster.refs):
            return None
        domain = int(number)
        before = f"{name}/{domain - 1}/{len(cluster.refs[domain - 1])}" if domain else ""
        return name, domain, len(cluster.refs[domain]), before

    def troubled_domains(self, limit: int) -> list[str]:
        """Link domains with devices that are down, or machines that are drained, in order."""
        found: list[str] = []
        for name, cluster in self._state.inventory.clusters.items():
            machines = self._state.down | cluster.drained | cluster.unhealthy.keys()
            domains = {
                cluster.places[machine][0] for machine in machines if machine in cluster.places
            }
            found += [f"{name}/{domain}" for domain in sorted(domains)]
        return found[:limit]

    def fits_for(self, caller: Caller) -> dict[str, dict[str, Any]]:
        """By cluster, as the page has it: free devices, which sizes fit, and how many are kept for
        whom. Sizes and free devices of allocations that the caller may know of count."""
        use = self._services.privacy.use(caller)
        names_kept = caller.role is Role.ADMINISTRATOR or "waiters" not in self._state.sight.private
        fits: dict[str, dict[str, Any]] = {}
        for name, cluster in self._state.inventory.clusters.items():
            if name in self.summary.domains:
                free, sizes = self.summary.fits(name, partial(use, cluster))
                kept = dict(self.summary.kept[name])
                if kept and not names_kept:
                    kept = {"?": sum(kept.values())}
                fits[name] = {"free": free, "sizes": sizes, "kept": kept}
        return fits

    def newest_events(self, caller: Caller, limit: int) -> EventList:
        """The newest events that a caller may see, the oldest of them first."""
        return self._services.audit.newest(caller, limit)

    # -- for history and metrics -------------------------------------------------------------

    def machine_attributes(self) -> list[list[dict[str, str]]]:
        """The attributes of devices, a machine at a time, where drivers measure something."""
        return [
            attributes
            for cluster in self._state.inventory.clusters.values()
            for machine in cluster.measuring
            if (attributes := cluster.attributes_in(machine))
        ]

    def size_fits(self) -> list[SizeFit]:
        """Which sizes fit, of all clusters."""
        clusters = self._state.inventory.clusters
        return [
            size
            for name in self.summary.domains
            if name in clusters
            for size in self.summary.fits(name, lambda _: True)[1]
        ]

    @property
    def partition_states(self) -> Counter[tuple[str, str]]:
        """How many partitions there are, by cluster and ready state."""
        return self._state.partitions.states

    @property
    def failed(self) -> int:
        """How many partitions are in error."""
        states = self._state.partitions.states.items()
        return sum(count for (_, state), count in states if state == ReadyState.ERROR.value)

    def lease_states(self) -> Counter[tuple[str, str]]:
        """How many leases there are, by cluster and state, those that left a fence among them."""
        states = Counter(self._state.leases_by_cluster)
        for entry in self._state.fences.values():
            if entry.cluster is not None:
                states[entry.cluster.layout.name, "FENCING"] += 1
        return states

    def largest_owners(self) -> list[tuple[str, int, int]]:
        """Owners with most devices: the name, devices, partitions."""
        owned = (
            (owner, used.devices, used.partitions)
            for owner, used in self._state.partitions.owned().items()
        )
        return heapq.nsmallest(OWNERS_SHOWN, owned, key=lambda one: (-one[1], one[0]))

    def machine_states(self) -> tuple[Counter[tuple[str, str]], list[tuple[str, str]]]:
        """How many machines have which state, by cluster and state; and cluster and name of those
        that are down."""
        states: Counter[tuple[str, str]] = Counter()
        down = []
        for name, cluster in self._state.inventory.clusters.items():
            silent = [machine for machine in self._state.down if machine in cluster.places]
            states[name, "DOWN"] = len(silent)
            states[name, "DRAINED"] = len(cluster.drained - set(silent))
            states[name, "UP"] = len(cluster.places) - len(cluster.drained | set(silent))
            down += [(name, machine) for machine in sorted(silent)]
        return states, down

    @property
    def waiting(self) -> int:
        """How many requests wait for devices."""
        return len(self._services.waiting)
