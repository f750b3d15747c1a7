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
from podwright.controller import Controller, Machines, Sharing, Visible
from podwright.errors import AlreadyExists, Internal, PodwrightError, Unavailable
from podwright.server._collection import start_without_collection
from podwright.server._standby import Standby
from podwright.server.machines._served_hardware import ServedHardware
from podwright.store import Opened, ReadOnlyStore, Snapshot, Store, Turn

if TYPE_CHECKING:
    from podwright.server._server import Server

_log = logging.getLogger("podwright.server")
_events = logging.getLogger("podwright.events")

#: Seconds for which a lease on the store lives. Clients of a killed server wait at most that long.
LEASE = 2.5
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

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def turn(self) -> Turn:
        """Return that it is this server's turn."""
        return Turn("", 0.0)

    async def renew(self) -> None:
        """Do nothing: there is no lease."""


def owner_name(host: str, port: int) -> str:
    """Return this server's name for others to read. It is unique for every process."""
    return f"{socket.gethostname()}, {host}:{port}, process {os.getpid()}"


class Active:
    """The right to the store, from this server's turn on. failure: why the right is over, or None.

    read_only: the store that is served instead where the disk is full; else None.
    """

    def __init__(self, store: SharedStore, standby: Standby) -> None:
        self.store = store
        self._standby = standby
        self._renewal: asyncio.Task[None] | None = None
        self.failure: PodwrightError | None = None
        self.read_only: ReadOnlyStore | None = None

    async def take(self, stop: asyncio.Event) -> Opened | None:
        """Wait for this server's turn and open the store; None when asked to stop.

        Raises wire.PodwrightError when the store cannot be reached at the first attempt, since its
        place may be wrong. After that the database may come and go.
        """
        reached = False
        while not stop.is_set():
            try:
                turn = await self.store.turn()
                reached = True
                self._stands_by(turn.owner if turn.left else "")
                if not turn.left:
                    opened = await self.store.open()
                    self._renewal = asyncio.create_task(self._renew())
                    return opened
            except AlreadyExists as error:
                self._stands_by(str(error.data.get("holder", "")))
            except Unavailable as error:
                if not reached:
                    raise
                self._stands_by("")
                if error.data.get("full"):
                    snapshot = await self.store.peek()
                    return await self.only_read(snapshot, error).open()
                _log.warning("standing by: %s", error.message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _POLL)
        return None

    def only_read(self, snapshot: Snapshot, why: PodwrightError) -> ReadOnlyStore:
        """Serve this snapshot from now on, since nothing can be written."""
        name = getattr(self.store, "name", "")
        self.read_only = ReadOnlyStore(name, snapshot, why, self.store.history())
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

    def _stands_by(self, active: str) -> None:
        if active and active != self._standby.active:
            _log.warning("standing by; active is %s", active)
        self._standby.active = active

    async def switch(self, store: SharedStore) -> None:
        """Use another handle of the store, which has been opened, from now on."""
        await self.end()
        if self.read_only is not None:  # otherwise its controller closes the handle before
            self.read_only = None
            await self.store.close()
        self.store = store
        self._renewal = asyncio.create_task(self._renew())

    async def end(self) -> None:
        """Stop renewing the lease."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def _renew(self) -> None:
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
    choose: Callable[[Opened], ServedHardware],
    ready: Callable[[Server, ServedHardware], None],
    stop: asyncio.Event,
    until_end: Callable[[Callable[[], PodwrightError | None]], Awaitable[None]],
    machines: Machines,
    drivers: Callable[[ServedHardware], Mapping[str, Driver]] = ServedHardware.drivers,
    visible: Visible | None = None,
    sharing: Sharing | None = None,
    anew: Callable[[], SharedStore] | None = None,
) -> None:
    """Stand by, then serve. server: one that serves `standby` and has not started.

    until_end: returns when the server is asked to stop, or when the function that it gets names a
    failure, which is raised here. drivers: returns those of the hardware. anew: returns another
    handle of the same store, for when a full disk has room again; without it the server ends when
    the disk is full.
    """
    active = Active(store, standby)
    failure: PodwrightError | None = None
    try:
        await server.start()
        opened = await active.take(stop)
        if opened is None:
            return
        _events.info("active from now on, epoch %d", opened.epoch)
        with start_without_collection():
            hardware = choose(opened)
            its_drivers = drivers(hardware)

            def make(store: Store) -> Controller:
                return Controller(
                    store,
                    hardware.clusters,
                    its_drivers,
                    version=__version__,
                    machines=machines,
                    visible=(visible or Visible()).settled(secure=server.calls.identity.secure),
                    sharing=sharing,
                )

            controller = make(active.read_only or store)
            try:
                await controller.start(opened)
            except Unavailable as error:  # there was room to open the store, but for no more
                if not error.data.get("full"):
                    raise
                snapshot = Snapshot(opened.epoch - 1, store.now(), opened.records)
                controller = make(active.only_read(snapshot, error))
                await controller.start()
        server.adopt(controller, active.refusal)
        await _remember(hardware, active.read_only or store)
        ready(server, hardware)

        def failed() -> PodwrightError | None:
            return controller.failure or active.failure

        while True:
            await until_end(failed)
            failure = failed()
            if failure is None or controller.read_only is None or anew is None:
                break
            _events.error("read only: %s", failure.message)
            failure = None  # if it is asked to stop meanwhile, it ends well
            reopened = await _reopened(active, anew, make, stop)
            if reopened is None:
                break
            old, controller = controller, reopened
            server.adopt(controller, active.refusal)
            await _remember(hardware, active.store)
            _events.info("the store can be written again: serving as before")
            await old.close()
    finally:
        await active.end()
        await server.stop(0.0 if failure else 5.0)
        await active.store.close()
    if failure is not None:
        raise failure


async def _remember(hardware: ServedHardware, store: Store) -> None:
    try:
        await hardware.remember(store)
    except Unavailable as error:
        if not error.data.get("full"):  # it is recorded once there is room
            raise


async def _reopened(
    active: Active,
    anew: Callable[[], SharedStore],
    make: Callable[[Store], Controller],
    stop: asyncio.Event,
) -> Controller | None:
    """Return a controller over the store once it can be written; None when asked to stop.

    Raises wire.PodwrightError where another server has the store now, or it fails in another way.
    """
    tried: SharedStore | None = None
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_AGAIN)
            return None
        if active.failure is not None:
            raise active.failure
        store = anew()
        try:
            opened = await store.open()
            await active.switch(store)
            if tried is not None:  # this handle is no longer used
                await tried.close()
            tried = store
            controller = make(store)
            await controller.start(opened)
        except Unavailable as error:
            if not error.data.get("full"):
                raise
            continue
        return controller
    return None
