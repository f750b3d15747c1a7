"""The controller: the only owner of state, and every call of podwright.v1 as the fronts make them.

A call that changes something continues if its caller disconnects: a step that has begun is always
completed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from podwright.agents import Driver
from podwright.controller._controller_assembly import (
    Machines,
    leave_machines,
    load_machines,
    make_services,
    watch_machines,
)
from podwright.controller._pod_observer import PodObserver
from podwright.controller._reconciler import Reconciler
from podwright.controller._store_check import ServedClusters, orphans, set_aside_faulty
from podwright.controller.administration._privacy import Visible
from podwright.controller.calls._call_checks import BoundCall, checked_calls
from podwright.controller.calls._call_table import CALLS
from podwright.controller.calls._scheduler_queues import AWAY
from podwright.controller.hardware import _recovery as recovery
from podwright.controller.queue import _stored_weights as stored_weights
from podwright.controller.queue._fair_share import guest_name
from podwright.controller.requests import _quotas as quotas
from podwright.controller.requests._allocation_access import restrict_to_open
from podwright.controller.state._caller import Caller
from podwright.controller.state._controller_state import ControllerState
from podwright.controller.state._own_host import OwnHost
from podwright.errors import PodwrightError, Unavailable
from podwright.fabric import Cluster
from podwright.store import Opened, ReadOnlyStore, Store
from podwright.wire import METHODS, Value

_event_logger = logging.getLogger("podwright.events")
_HEADS_LOG_PERIOD_S: Final = (
    3600.0  #: seconds between two lines with the ends of the audit's chains
)


class Controller:
    """The only owner of state.

    Each call of `wire.METHODS` is an attribute, by the name of its function:
    `await controller.list_clusters(caller, request)`. Calls raise PodwrightError.

    drivers: by machine name. allocations: cluster -> allocation -> machine names; a cluster
    without any has one, named like itself, with all of its machines. driver_timeout: seconds
    for one call to a machine. machines: how it finds those that an administrator registers.
    visible: what callers see of others' objects. weights: of schedulers and of people. sleep:
    how the timer waits. own_host: the host that
    the controller runs on, whose processes it can examine itself; None: it examines none.
    """

    def __init__(
        self,
        store: Store,
        clusters: Sequence[Cluster],
        drivers: Mapping[str, Driver],
        *,
        version: str,
        allocations: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
        driver_timeout: float = 30.0,
        machines: Machines | None = None,
        visible: Visible | None = None,
        weights: Mapping[str, float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        own_host: OwnHost | None = None,
    ) -> None:
        self.version = version
        self._store = store
        self._sleep = sleep
        self._state = ControllerState(
            store, clusters, drivers, allocations or {}, driver_timeout=driver_timeout
        )
        self._state.own_host = own_host
        self._services = make_services(
            self._state, version, machines or Machines(), visible or Visible(), sleep
        )
        self.observer = PodObserver(self._services)
        self._services.waiting.line.guest_queue.configure(weights or {})
        bound_calls = checked_calls(self._services, CALLS, self._check_serving)
        self._calls = {
            METHODS[name].function: bound_call for name, bound_call in bound_calls.items()
        }
        self._keepers: list[asyncio.Task[None]] = []
        self.epoch = 0  #: of the store's openings, once started
        self._heads_at = 0.0
        self._phase = "not started"

    def __getattr__(self, function_name: str) -> BoundCall:
        """A call, checked and audited, by the name of its function."""
        calls: dict[str, BoundCall] = self.__dict__.get("_calls", {})
        if function_name not in calls:
            raise AttributeError(f"there is no call {function_name}")
        return calls[function_name]

    async def start(self, opened_store: Opened | None = None) -> None:
        """Open the store, finish or undo what was interrupted, then serve.

        opened_store: what opening the store found, where that is done already. It is used up.
        Raises wire.Unavailable or wire.Fenced when the store cannot be had, and wire.Unavailable
        for one that is damaged (`_store_check`).
        """
        opened_store = opened_store or await self._store.open()
        self.epoch = opened_store.epoch
        if isinstance(self._store, ReadOnlyStore):
            self._state.journal.only_read(self._store.why)
        services = self._services
        try:
            self._check(opened_store)
            services.requests.load(opened_store.records)
            services.audit.load(opened_store.records)
            self._state.quotas.update(quotas.load(opened_store.records))
            guest_queue = services.waiting.line.guest_queue
            guest_queue.stored_weights.update(stored_weights.load(opened_store.records))
            load_machines(services, opened_store)
            await recovery.recover(self._state, opened_store)
        except BaseException:
            await self._store.close()
            raise
        if self._state.journal.full is None:
            services.audit.recover()
        services.waiting.load(opened_store)
        services.moves.load(opened_store)
        reconciler = Reconciler(self._state, self._sleep, self._sweep)
        loop = asyncio.get_running_loop()
        self._keepers = [loop.create_task(reconciler.run())]
        if services.fabric_watch is not None:
            self._keepers.append(loop.create_task(services.fabric_watch.run()))
        watch_machines(services)
        self._phase = ""

    async def close(self) -> None:
        """Refuse further calls, complete the steps in progress, and close the store."""
        if self._phase == "closed":
            return
        self._phase = "closed"
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        while self._state.tasks:
            await asyncio.wait(self._state.tasks)
        await leave_machines(self._services)
        with suppress(PodwrightError):
            await self._state.journal.flush()
        await self._store.close()

    @property
    def failure(self) -> PodwrightError | None:
        """Why the controller stopped for good (its store failed or is another's); else None."""
        return self._state.journal.failure

    @property
    def read_only(self) -> PodwrightError | None:
        """Why the controller only reads for now (the disk of its store is full); else None."""
        return self._state.journal.full

    def conditions(self, wall_time: float) -> dict[str, Any]:
        """What is wrong with the server and what belongs to it, as data. wall_time: seconds since
        1970.

        read_only: why nothing can be changed. silent_schedulers: those whose last report is older
        than `AWAY` seconds, and when it came. cabling: what the last test of each cluster found.
        """
        state, read_only_error = self._state, self.read_only
        report_ages = self._services.reported.ages(state.now())
        return {
            "read_only": read_only_error.problem if read_only_error else "",
            "fabric": [self.fabric, self.fabric_problem] if self.fabric_problem else [],
            "silent_schedulers": {
                guest_name(key): round((wall_time - seconds) / 10) * 10
                for key, seconds in report_ages.items()
                if seconds >= AWAY
            },
            "cabling": [
                [cluster_name, machine, problem]
                for cluster_name, cluster in state.inventory.clusters.items()
                for machine, problem in cluster.miscabled
            ],
        }

    @property
    def idle(self) -> bool:
        """Whether there is no partition, no lease and no step under way."""
        state = self._state
        return not (state.partitions or state.leases or state.tasks or len(self._services.waiting))

    @property
    def moves(self) -> dict[str, int]:
        """How many launches moved since the start, and how many were asked to and did not."""
        launch_moves = self._services.moves
        return {"moves": launch_moves.done, "failed_moves": launch_moves.failed}

    @property
    def changes(self) -> int:
        """A number that grows with every change; while it stays the same, so does the state."""
        return self._state.journal.changes

    @property
    def private(self) -> frozenset[str]:
        """What callers see only of their own things, of `_privacy.PRIVATE_KINDS`."""
        return self._services.privacy.kinds

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters, in the order of their definition."""
        return [cluster.layout for cluster in self._state.inventory.clusters.values()]

    @property
    def simulated(self) -> bool:
        """Whether any cluster is simulated."""
        return any(cluster.simulated for cluster in self.clusters)

    @property
    def fabric(self) -> str:
        """What kind of fabric joins devices of several machines; empty for none."""
        driver = self._state.hardware.fabric
        return driver.kind if driver is not None else ""

    @property
    def fabric_age(self) -> float | None:
        """Seconds since the fabric was last read and compared; None: not since the start."""
        watch = self._services.fabric_watch
        if watch is None or watch.read_at is None:
            return None
        return max(0.0, self._state.now() - watch.read_at)

    @property
    def fabric_problem(self) -> str:
        """Why the last attempt to read the fabric failed; empty: it did not."""
        watch = self._services.fabric_watch
        return watch.problem if watch is not None else ""

    # -- callers, and what each one sees -----------------------------------------------------

    async def authenticate(self, name: str, key: str) -> Caller:
        """The caller behind a name and an access key. Raises Unauthenticated."""
        return await self._services.users.authenticate(name, key)

    async def authenticate_certificate(self, name: str, uri: str) -> Caller:
        """The caller whom a certificate of the site's names. Raises Unauthenticated."""
        return self._services.users.caller_of_certificate(name, uri)

    def named_by_proxy(self, name: str) -> Caller:
        """The caller whom the site's proxy names. Raises Unauthenticated."""
        return self._services.users.named_by_proxy(name)

    def admitted(self, caller: Caller, request: Value) -> tuple[Caller, Value]:
        """Who a caller is here, and the request, kept to the allocations where it may create.

        Raises Denied for another, InvalidRequest where the request must name one, NotFound for what
        is not to be seen.
        """
        users = self._services.users
        caller = users.known(caller)
        self._services.privacy.check_request(caller, request)
        request = users.kept_to_grants(caller, request)
        return caller, restrict_to_open(self._state, caller, request)

    def user_of(self, caller: Caller) -> tuple[Caller, float]:
        """Who a caller is here now, and when that user of the server's was created; 0: none is."""
        users = self._services.users
        caller = users.known(caller)
        record = users.of(caller)
        return caller, record.created_at if record is not None else 0.0

    def redacted(self, caller: Caller, reply: Any) -> Any:
        """The reply without what this admitted caller may not see."""
        return self._services.privacy.redacted(caller, reply)

    # -- inside ------------------------------------------------------------------------------

    def _check(self, opened_store: Opened) -> None:
        """Remove what is set aside, which the log names. Raises Unavailable."""
        clusters = self._state.inventory.clusters.values()
        served = ServedClusters(
            [cluster.layout for cluster in clusters],
            {cluster.layout.name: cluster.allocations for cluster in clusters},
        )
        store_name = getattr(self._store, "name", "")
        faults = set_aside_faulty(opened_store.records, opened_store.epoch, store_name, served)
        for fault in faults:
            _event_logger.warning("%s: %s", fault, fault.gravity.value)
        if orphans(faults):
            option = f" --storage {store_name}" if store_name else ""
            _event_logger.warning("vipu-server%s --repair removes what is set aside", option)

    def _sweep(self) -> None:
        self._log_heads()
        self._services.waiting.sweep()
        self._services.moves.tick()

    def _log_heads(self) -> None:
        """The ends of the audit's chains go to the log, where nobody can cut them off unseen."""
        if (now := self._state.now()) >= self._heads_at:
            self._heads_at = now + _HEADS_LOG_PERIOD_S
            if chain_heads := self._services.audit.heads:
                _event_logger.info("audit heads: %s", " ".join(map(str, chain_heads)))

    def _check_serving(self) -> None:
        if self._phase:
            raise Unavailable(f"the server is {self._phase}", would_work="try again in a moment")
        if self._state.journal.full is None:  # else it can be read, and a change fails by itself
            self._state.journal.check()
