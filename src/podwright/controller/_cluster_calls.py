"""An administrator's calls about clusters and the allocations in them."""

from __future__ import annotations

import asyncio

from podwright.controller import _allocations as allocations
from podwright.controller import _cluster_change as change
from podwright.controller import _clusters as clusters
from podwright.controller import _recovery as recovery
from podwright.controller import _registry as registry
from podwright.controller import _users as users
from podwright.controller import _views as views
from podwright.controller._caller import Caller
from podwright.controller._cluster_index import IndexedCluster
from podwright.controller._core import Core
from podwright.controller._journal import unless_written
from podwright.controller._registry import Registry
from podwright.controller._shielded import to_its_end
from podwright.errors import InvalidRequest, PodwrightError, WrongState
from podwright.wire import (
    AllocationInfo,
    AllocationRequest,
    ClusterChange,
    ClusterInfo,
    ClusterRequest,
    ClusterTest,
    Empty,
    Named,
)


class ClusterCalls:
    """The part of the controller that makes and unmakes clusters and allocations."""

    _core: Core
    _registry: Registry
    _users: users.Users
    _changing: asyncio.Lock

    @to_its_end
    async def create_cluster(self, caller: Caller, request: ClusterRequest) -> ClusterInfo:
        """Make a cluster of agents; their devices are reset before they serve."""
        async with self._changing:
            cluster = clusters.designed(self._core, self._registry, request)
            await self._core.journal.commit([registry.put_cluster(cluster)])
            site = self._registry.begin_cluster(cluster)
            for name in site.places:
                self._core.mark_down(name, told=False)  # until its devices are reset
            await asyncio.gather(*(self._welcome(name) for name in site.places))
        return self._cluster(request.name)

    @to_its_end
    async def remove_cluster(self, caller: Caller, request: Named) -> Empty:
        """Take a cluster apart; its agents stay. Raises NotFound, WrongState while it is in use."""
        action = f"remove cluster {request.name[:80]}"
        core = self._core
        async with self._changing:
            site = self._named(request.name, action)
            if request.name not in self._registry.clusters:
                raise WrongState(
                    "the server was started with it",
                    asked=action,
                    would_work="start vipu-server without its --preset or --cluster-file",
                )
            inside = sorted(
                {e.name for e in core.partitions.values() if e.site is site}
                | {q.partition for q in core.quarantine.values() if q.cluster == request.name}
            )
            if inside:
                raise WrongState(
                    f"it has {', '.join(inside[:8])}{' and more' if inside[8:] else ''} in it",
                    asked=action,
                    would_work="remove these partitions first",
                    partitions=inside[:100],
                )
            defined = [] if allocations.implicit(site) else list(site.allocations)
            if defined and not request.force:
                raise WrongState(
                    f"the allocations {', '.join(defined[:8])}{' and more' * bool(defined[8:])} "
                    "are in it",
                    asked=action,
                    would_work="vipu-admin remove cluster --force removes them with it",
                    allocations=defined[:100],
                )
            dropped = [registry.drop_cluster(request.name)]
            dropped += [allocations.drop_allocation(name) for name in defined]
            await core.journal.commit(dropped)
            core.lift(site)
            self._registry.end_cluster(request.name)
        return Empty()

    @to_its_end
    async def change_cluster(self, caller: Caller, request: ClusterChange) -> ClusterInfo:
        """Add machines to a cluster, or put one in another's place; or say what that would be.

        Raises NotFound, InvalidRequest, WrongState.
        """
        action = f"change cluster {request.name[:80]}"
        core = self._core
        async with self._changing:
            site = self._named(request.name, action)
            if request.name not in self._registry.clusters:
                raise WrongState(
                    "the server was started with it",
                    asked=action,
                    would_work="change its --cluster-file, and restart vipu-server",
                )
            draft = change.drafted(core, self._registry, site, request)
            if request.dry_run:
                preview = IndexedCluster(draft.cluster, draft.machines)
                preview.index = draft.index
                return views.cluster_info(core, preview)
            # In memory first, at one stroke: nobody is placed by the old cluster while the new one
            # is written down, and fresh machines take nothing before they are welcome.
            changes, undo = change.applied(core, site, draft)
            with unless_written(undo):
                await core.journal.commit(changes)
            core.freed(None, (), "")
            await asyncio.gather(*(self._welcome(name) for name in draft.fresh))
        return self._cluster(request.name)

    async def test_cluster(self, caller: Caller, request: Named) -> ClusterTest:
        """Ask every machine of a cluster, and say what is wrong and where."""
        action = f"test cluster {request.name[:80]}"
        site = self._named(request.name, action)
        results = await clusters.tested(self._core, self._registry, site)
        return ClusterTest(cluster=request.name, results=results)

    # -- allocations -------------------------------------------------------------------------

    @to_its_end
    async def create_allocation(self, caller: Caller, request: AllocationRequest) -> AllocationInfo:
        """Set machines apart, for some users or for all."""
        action = f"create allocation {request.name[:80]}"
        core = self._core
        async with self._changing:
            if request.scheduler:
                self._users.check_scheduler(request.scheduler, action)
            record = allocations.drafted(core, request)
            granted = [self._users.granted(name, record.name, action) for name in request.users]
            changes = [allocations.put_allocation(record), *map(users.put_user, granted)]
            await core.journal.commit(changes)
            core.lift(core.inventory.sites[record.cluster])
            allocations.define(core.inventory.sites[record.cluster], record)
            for user in granted:
                self._users.add(user)
            core.freed(None, (), "")
        return views.allocation_info(core.inventory.sites[record.cluster], record.name)

    @to_its_end
    async def remove_allocation(self, caller: Caller, request: Named) -> Empty:
        """Give an allocation's machines back. Raises NotFound, WrongState while it is in use."""
        action = f"remove allocation {request.name[:80]}"
        core = self._core
        async with self._changing:
            site = allocations.found(core, request.name, action)
            await core.journal.commit([allocations.drop_allocation(request.name)])
            core.lift(site)
            allocations.undefine(site, request.name)
            core.freed(None, (), "")
        return Empty()

    # -- inside ------------------------------------------------------------------------------

    async def _welcome(self, machine: str) -> None:
        """Reset all that a machine has, and let it serve. A silent one is the keeper's to ask."""
        core = self._core
        try:
            report = await core.hardware.describe(machine)
        except PodwrightError:
            core.tell("MachineDown", machine, "", "it does not answer")
            return
        core.inventory.by_machine[machine].learn(machine, report)
        everything = {machine: [d.index for d in report.devices if d.healthy]}
        if not await core.hardware.release(core.next_epoch(), everything) and (
            await recovery.release_strays(core, machine, report._replace(configured={}))
        ):
            core.mark_up(machine, told=False)
        else:
            core.tell("MachineDown", machine, "", "its devices could not be reset")

    def _cluster(self, name: str) -> ClusterInfo:
        return views.cluster_info(self._core, self._core.inventory.sites[name])

    def _named(self, name: str, action: str) -> IndexedCluster:
        """The cluster of this name. Raises NotFound, and InvalidRequest without a name."""
        if not name:
            raise InvalidRequest(
                "no cluster is named",
                asked=action,
                would_work=f"name one of {', '.join(self._core.inventory.sites)}",
            )
        return self._core.inventory.candidates(name, "", action)[0]
