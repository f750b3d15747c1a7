"""Two servers on one store: one is active by a lease in it, the other stands by.

Both answer from the start, the standby with refusals alone. When the active one lets the lease
go, or it runs out, the standby opens the store. From then on the store refuses every commit of
the old server, and machines refuse its calls; it notices at its next renewal and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

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


class SharedStore(Store, Protocol):
    """A store that several servers may want, one at a time; see store.PostgresStore."""

    async def turn(self) -> Turn:
        """Whose turn it is."""
        ...

    async def renew(self) -> None:
        """Move the end of our lease."""
        ...

    @property
    def held(self) -> bool:
        """Whether our lease lives."""
        ...


def owner_name(host: str, port: int) -> str:
    """Who we are, for others to read: unique for every process."""
    return f"{socket.gethostname()}, {host}:{port}, process {os.getpid()}"


class Active:
    """The right to the store, from the turn on. failure: why it is over."""

    def __init__(self, store: SharedStore, standby: Standby) -> None:
        self._store = store
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
                turn = await self._store.turn()
                reached = True
                self._stands_by(turn.owner if turn.left else "")
                if not turn.left:
                    opened = await self._store.open()
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
        if self._store.held:
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

    async def end(self) -> None:
        """Renew no more."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def _renew(self) -> None:
        while self.failure is None:
            await asyncio.sleep(_RENEW)
            try:
                await self._store.renew()
            except PodwrightError as error:
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
) -> None:
    """Stand by, then serve. server: one that serves `standby`, not started.

    until_end: returns when we are told to stop, or when what it asks names a failure, which
    is raised here. drivers: those of the hardware.
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
            controller = Controller(
                store,
                hardware.clusters,
                drivers(hardware),
                version=__version__,
                machines=machines,
                visible=visible,
            )
            await controller.start(opened)
        server.adopt(controller, active.refusal)
        await hardware.remember(store)
        ready(server, hardware)

        def failed() -> PodwrightError | None:
            return controller.failure or active.failure

        await until_end(failed)
        failure = failed()
    finally:
        await active.end()
        await server.stop(0.0 if failure else 5.0)
        await store.close()
    if failure is not None:
        raise failure
