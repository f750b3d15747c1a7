"""Two servers on one store: a lease in the store decides which is active; the other stands by.

Both answer from the start, the standby with refusals only. When the active server gives the lease
up, or the lease runs out, the standby opens the store. From then on the store refuses every commit
of the old server, and machines refuse its calls. The old server notices at its next renewal and
ends.

Where the database's disk is full, the active server continues to read as long as it can renew its
lease, and opens the store anew until it can be written. A server that starts in that time serves
reads as well. It cannot claim the store, so two servers may read side by side. The first that finds
room becomes active, and the other ends at its next check.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from podwright._version import __version__
from podwright.agents import Driver
from podwright.controller import Controller, Machines, Visible
from podwright.errors import AlreadyExists, Internal, PodwrightError, Unavailable
from podwright.server._garbage_collection import start_without_gc
from podwright.server._standby_answers import Standby
from podwright.server.machines._served_hardware import ServedHardware
from podwright.store import Opened, ReadOnlyStore, Snapshot, Store, Turn

if TYPE_CHECKING:
    from podwright.server._server import Server

_log = logging.getLogger("podwright.server")
_event_log = logging.getLogger("podwright.events")

#: Seconds for which a lease on the store lives. Clients of a killed server wait at most that long.
LEASE_TTL_S = 2.5
_RENEW = 0.7
_POLL = 0.25
#: Seconds between two checks whether a full disk has room again.
_LOOK_AGAIN = 2.0


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that several servers share, one active at a time; see store.PostgresStore."""

    async def turn(self) -> Turn:
        """Return whose turn it is."""
        ...

    async def renew(self) -> None:
        """Move the end of this server's lease."""
        ...

    async def close(self) -> None:
        """Close the store."""
        ...

    @property
    def lease_lives(self) -> bool:
        """Whether this server's lease lives."""
        ...


class UnsharedStore:
    """Adapts the store of a single server to `SharedStore`: it is always this server's turn."""

    lease_lives = True

    def __init__(self, single_store: Store) -> None:
        self._inner = single_store

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)

    async def turn(self) -> Turn:
        """Return that it is this server's turn."""
        return Turn("", 0.0)

    async def renew(self) -> None:
        """Do nothing: there is no lease."""


def owner_name(host: str, port: int) -> str:
    """Return this server's name for others to read. It is unique for every process."""
    return f"{socket.gethostname()}, {host}:{port}, process {os.getpid()}"


class StoreRight:
    """The right to the store, from this server's turn on. failure: why the right is over, or None.

    read_only: the store that is served instead where the disk is full; else None.
    """

    def __init__(self, store: SharedStore, standby: Standby) -> None:
        self.store = store
        self._standby = standby
        self._renewal: asyncio.Task[None] | None = None
        self.failure: PodwrightError | None = None
        self.read_only: ReadOnlyStore | None = None

    async def take(self, stop_event: asyncio.Event) -> Opened | None:
        """Wait for this server's turn and open the store; None when asked to stop.

        Raises wire.PodwrightError when the store cannot be reached at the first attempt, since its
        place may be wrong. After that the database may come and go.
        """
        was_reached = False
        while not stop_event.is_set():
            try:
                turn = await self.store.turn()
                was_reached = True
                self._note_active_server(turn.owner if turn.left else "")
                if not turn.left:
                    opened_store = await self.store.open()
                    self._renewal = asyncio.create_task(self._keep_renewing_lease())
                    return opened_store
            except AlreadyExists as error:
                self._note_active_server(str(error.data.get("holder", "")))
            except Unavailable as error:
                if not was_reached:
                    raise
                self._note_active_server("")
                if error.data.get("full"):
                    snapshot = await self.store.peek()
                    return await self.only_read(snapshot, error).open()
                _log.warning("standing by: %s", error.message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop_event.wait(), _POLL)
        return None

    def only_read(self, snapshot: Snapshot, write_error: PodwrightError) -> ReadOnlyStore:
        """Serve this snapshot from now on, since nothing can be written."""
        name = getattr(self.store, "name", "")
        self.read_only = ReadOnlyStore(name, snapshot, write_error, self.store.history())
        return self.read_only

    def refusal(self) -> PodwrightError | None:
        """Return why no call may be answered now, or None.

        This process may have been stopped while another server took over. The check uses this
        host's own clock, so it needs no answer of the database.
        """
        if self.read_only is not None or self.store.lease_lives:
            return None
        return Unavailable(
            "this server's lease on its store has run out",
            would_work="ask again in a moment, or another server",
            standby=True,
        )

    def _note_active_server(self, active_server: str) -> None:
        if active_server and active_server != self._standby.active:
            _log.warning("standing by; active is %s", active_server)
        self._standby.active = active_server

    async def switch(self, store: SharedStore) -> None:
        """Use another handle of the store, which has been opened, from now on."""
        await self.end()
        if self.read_only is not None:  # otherwise its controller closes the handle before
            self.read_only = None
            await self.store.close()
        self.store = store
        self._renewal = asyncio.create_task(self._keep_renewing_lease())

    async def end(self) -> None:
        """Stop renewing the lease."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def _keep_renewing_lease(self) -> None:
        while self.failure is None:
            await asyncio.sleep(_RENEW)
            try:
                await self.store.renew()
            except PodwrightError as error:
                if not error.data.get("full"):  # there may be room again before the lease ends
                    self.failure = error
            except Exception as error:  # without a lease nothing may be answered
                _log.exception("the lease on the store is renewed no more")
                self.failure = Internal(f"the lease on the store is not renewed: {error}")


async def serve_shared(
    store: SharedStore,
    server: Server,
    standby: Standby,
    *,
    choose_hardware: Callable[[Opened], ServedHardware],
    on_ready: Callable[[Server, ServedHardware], None],
    stop_event: asyncio.Event,
    wait_for_end: Callable[[Callable[[], PodwrightError | None]], Awaitable[None]],
    machines: Machines,
    drivers: Callable[[ServedHardware], Mapping[str, Driver]] = ServedHardware.drivers,
    visible: Visible | None = None,
    weights: Mapping[str, float] | None = None,
    open_handle: Callable[[], SharedStore] | None = None,
) -> None:
    """Stand by, then serve. server: one that serves `standby` and has not started.

    wait_for_end: returns when the server is asked to stop, or when the function that it gets names
    a failure, which is raised here. drivers: returns those of the hardware. open_handle: returns
    another handle of the same store, for when a full disk has room again; without it the server
    ends when the disk is full.
    """
    store_right = StoreRight(store, standby)
    store_failure: PodwrightError | None = None
    try:
        await server.start()
        opened_store = await store_right.take(stop_event)
        if opened_store is None:
            return
        _event_log.info("active from now on, epoch %d", opened_store.epoch)
        with start_without_gc():
            hardware = choose_hardware(opened_store)
            hardware_drivers = drivers(hardware)

            def make(store: Store) -> Controller:
                return Controller(
                    store,
                    hardware.clusters,
                    hardware_drivers,
                    version=__version__,
                    machines=machines,
                    visible=(visible or Visible()).settled(secure=server.calls.identity.secure),
                    weights=weights,
                )

            controller = make(store_right.read_only or store)
            try:
                await controller.start(opened_store._replace(records={**opened_store.records}))
            except Unavailable as error:  # there was room to open the store, but for no more
                if not error.data.get("full"):
                    raise
                snapshot = Snapshot(opened_store.epoch - 1, store.now(), opened_store.records)
                controller = make(store_right.only_read(snapshot, error))
                await controller.start()
        server.adopt(controller, store_right.refusal)
        await _remember_hardware(hardware, store_right.read_only or store)
        on_ready(server, hardware)

        def failed() -> PodwrightError | None:
            return controller.failure or store_right.failure

        while True:
            await wait_for_end(failed)
            store_failure = failed()
            if store_failure is None or controller.read_only is None or open_handle is None:
                break
            _event_log.error("read only: %s", store_failure.message)
            store_failure = None  # if it is asked to stop meanwhile, it ends well
            new_controller = await _reopen_store(store_right, open_handle, make, stop_event)
            if new_controller is None:
                break
            old_controller, controller = controller, new_controller
            server.adopt(controller, store_right.refusal)
            await _remember_hardware(hardware, store_right.store)
            _event_log.info("the store can be written again: serving as before")
            await old_controller.close()
    finally:
        await store_right.end()
        await server.stop(0.0 if store_failure else 5.0)
        await store_right.store.close()
    if store_failure is not None:
        raise store_failure


async def _remember_hardware(hardware: ServedHardware, store: Store) -> None:
    try:
        await hardware.remember(store)
    except Unavailable as error:
        if not error.data.get("full"):  # it is recorded once there is room
            raise


async def _reopen_store(
    store_right: StoreRight,
    open_handle: Callable[[], SharedStore],
    make_controller: Callable[[Store], Controller],
    stop_event: asyncio.Event,
) -> Controller | None:
    """Return a controller over the store once it can be written; None when asked to stop.

    Raises wire.PodwrightError where another server has the store now, or it fails in another way.
    """
    previous_handle: SharedStore | None = None
    while not stop_event.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop_event.wait(), _LOOK_AGAIN)
            return None
        if store_right.failure is not None:
            raise store_right.failure
        store = open_handle()
        try:
            opened_store = await store.open()
            await store_right.switch(store)
            if previous_handle is not None:  # this handle is no longer used
                await previous_handle.close()
            previous_handle = store
            controller = make_controller(store)
            await controller.start(opened_store)
        except Unavailable as error:
            if not error.data.get("full"):
                raise
            continue
        return controller
    return None
