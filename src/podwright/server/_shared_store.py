"""Two servers on one store: one is active by a lease in it, the other stands by.

Both answer from the start, the standby with refusals alone. When the active one lets the lease
go, or it runs out, the standby opens the store. From then on the store refuses every commit of
the old server, and machines refuse its calls; it notices at its next renewal and ends.
Where the database's disk is full, the active one reads on as long as it can renew its lease, and
opens the store anew until that can be written.
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
from podwright.server._collection import start_without_collection
from podwright.server._hardware import ServedHardware
from podwright.server._standby import Standby
from podwright.store import Opened, Store, Turn

if TYPE_CHECKING:
    from podwright.server._server import Server

_log = logging.getLogger("podwright.server")
_events = logging.getLogger("podwright.events")

#: Seconds that a lease on the store lives: what a killed server's clients wait for, at most.
LEASE = 2.5
_RENEW = 0.7
_POLL = 0.25
#: Seconds until it is tried again whether a full disk has room.
_LOOK_AGAIN = 2.0


@runtime_checkable
class SharedStore(Store, Protocol):
    """A store that several servers may want, one at a time; see store.PostgresStore."""

    async def turn(self) -> Turn:
        """Whose turn it is."""
        ...

    async def renew(self) -> None:
        """Move the end of our lease."""
        ...

    async def close(self) -> None:
        """Let go."""
        ...

    @property
    def held(self) -> bool:
        """Whether our lease lives."""
        ...


class UnsharedStore:
    """A store of one server, as one that several may want: it is always our turn."""

    held = True

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def turn(self) -> Turn:
        """Ours."""
        return Turn("", 0.0)

    async def renew(self) -> None:
        """There is nothing to renew."""


def owner_name(host: str, port: int) -> str:
    """Who we are, for others to read: unique for every process."""
    return f"{socket.gethostname()}, {host}:{port}, process {os.getpid()}"


class Active:
    """The right to the store, from the turn on. failure: why it is over."""

    def __init__(self, store: SharedStore, standby: Standby) -> None:
        self.store = store
        self._standby = standby
        self._renewal: asyncio.Task[None] | None = None
        self.failure: PodwrightError | None = None

    async def take(self, stop: asyncio.Event) -> Opened | None:
        """Wait for our turn and open the store; None when told to stop.

        Raises wire.PodwrightError when the store cannot be reached at the first attempt: its
        place may be wrong. Later the database may come and go.
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
                _log.warning("standing by: %s", error.message)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), _POLL)
        return None

    def refusal(self) -> PodwrightError | None:
        """Why no call may be answered now: we may have been asleep while another took over."""
        if self.store.held:
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
        """Another handle of the store, which was opened since, is ours now."""
        await self.end()
        self.store = store
        self._renewal = asyncio.create_task(self._renew())

    async def end(self) -> None:
        """Renew no more."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def _renew(self) -> None:
        while self.failure is None:
            await asyncio.sleep(_RENEW)
            try:
                await self.store.renew()
            except PodwrightError as error:
                if not error.data.get("full"):  # else there may be room before the lease is over
                    self.failure = error
            except Exception as error:  # whatever it is: without a lease nothing may be answered
                _log.exception("the lease on the store is renewed no more")
                self.failure = Internal(f"the lease on the store is not renewed: {error}")


async def serve_shared(
    store: SharedStore,
    server: Server,
    standby: Standby,
    choose: Callable[[Opened], ServedHardware],
    ready: Callable[[Server, ServedHardware], None],
    stop: asyncio.Event,
    until_end: Callable[[Callable[[], PodwrightError | None]], Awaitable[None]],
    machines: Machines,
    drivers: Callable[[ServedHardware], Mapping[str, Driver]] = ServedHardware.drivers,
    visible: Visible | None = None,
    anew: Callable[[], SharedStore] | None = None,
) -> None:
    """Stand by, then serve. server: one that serves `standby`, not started.

    until_end: returns when we are told to stop, or when what it asks names a failure, which
    is raised here. drivers: those of the hardware. anew: another handle of the same store, for
    when a full disk has room again; without it the server ends when the disk is full.
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
                    visible=visible,
                )

            controller = make(store)
            await controller.start(opened)
        server.adopt(controller, active.refusal)
        await hardware.remember(store)
        ready(server, hardware)

        def failed() -> PodwrightError | None:
            return controller.failure or active.failure

        while True:
            await until_end(failed)
            failure = failed()
            if failure is None or controller.read_only is None or anew is None:
                break
            _events.error("read only: %s", failure.message)
            failure = None  # told to stop meanwhile, it ends well
            again = await _reopened(active, anew, make, stop)
            if again is None:
                break
            old, controller = controller, again
            server.adopt(controller, active.refusal)
            _events.info("the store can be written again: serving as before")
            await old.close()
    finally:
        await active.end()
        await server.stop(0.0 if failure else 5.0)
        await active.store.close()
    if failure is not None:
        raise failure


async def _reopened(
    active: Active,
    anew: Callable[[], SharedStore],
    make: Callable[[Store], Controller],
    stop: asyncio.Event,
) -> Controller | None:
    """A controller over the store once that can be written; None when told to stop.

    Raises wire.PodwrightError where another server has it now, or it fails in another way.
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
            if tried is not None:  # it holds nothing any more
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
