"""The service as a process: `podwright slurm serve`, beside slurmctld, as root or Slurm's user."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from podwright.errors import Unavailable
from podwright.guests.shared import CALL_TIMEOUT, ThreadedServer, until_done
from podwright.guests.slurm.hooks._hook_identity import HookIdentity, KeyProofs, Proofs, read_key
from podwright.guests.slurm.hooks._hook_metrics import figures
from podwright.guests.slurm.hooks._hook_server import Front
from podwright.guests.slurm.hooks._hook_socket import (
    callers,
    listen,
    listen_far,
    nobody_at,
    remove_socket,
    slurm_uid,
)
from podwright.guests.slurm.hooks._post import Post
from podwright.guests.slurm.hooks._server_address import reach
from podwright.guests.slurm.hooks._service_standby import Peers, StandbyRole, ask_role
from podwright.guests.slurm.service._pods import Site
from podwright.guests.slurm.service._retry_limit import RetryLimit
from podwright.guests.slurm.service._work import Make, Work, native_work
from podwright.hosts import Munge, MungeError
from podwright.http import Figure, MetricsFront, host_port, more_descriptors
from podwright.slurm.site.commands import SlurmCommands

_log = logging.getLogger("podwright.slurm")
_RETRY_S = 0.5
_GRACE_S = 5.0


async def serve(
    site: Site,
    *,
    prefix: Sequence[str] = (),
    ready: Callable[[], None] = lambda: None,
    make: Make = native_work,
) -> None:
    """Serve until SIGTERM or SIGINT.

    prefix: the words before each of Slurm's commands. make: makes the work of the site's way of
    scheduling. ready: called once, when hooks are answered or when this service stands by. Raises
    AlreadyExists where another service answers at this socket.
    """
    more_descriptors()
    slurm = SlurmCommands(prefix)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    doors = Doors(site)
    await nobody_at(doors.path)
    server = ThreadedServer(lambda: reach(site, CALL_TIMEOUT))
    post = Post(RetryLimit(slurm, site.tries))

    async def now() -> Iterable[Figure]:
        return figures(site.mode, post.state())

    metrics = MetricsFront(now)
    try:
        if site.metrics:
            await metrics.start(*host_port(site.metrics, "serve metrics"))
        if len(site.doors) > 1:
            place = await doors.open(post)
            assert doors.identity is not None
            ask = partial(ask_role, identity=doors.identity)
            post.peers = Peers(site.doors, place, time.monotonic, ask)
            ready()
            ready = _nothing
        while await _first(stop, *_until(post.peers, StandbyRole.ACTIVE)):
            work = make(site, server, slurm)
            if not await _serve_active(work, post, doors, stop, ready):
                return
    finally:
        await metrics.stop()
        server.close()


async def _serve_active(
    work: Work, post: Post, doors: Doors, stop: asyncio.Event, ready: Callable[[], None]
) -> bool:
    """Answer as the active service. Return True when another service is active now, and False at
    the end.
    """
    duty = asyncio.create_task(_duty(work, post, doors, ready))
    try:
        if await _first(stop, duty, *_until(post.peers, StandbyRole.STANDBY)):
            _log.warning("another one is active: stands by")
            post.leave()
            return True
        if post.working:
            doors.remove_socket()
            await doors.finish()
            await work.close()
        return False
    finally:
        duty.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await duty


async def _duty(work: Work, post: Post, doors: Doors, ready: Callable[[], None]) -> None:
    """Serve until cancelled. Steps are answered when the server has been read, and hooks when Slurm
    has been read as well.
    """
    await until_done(work.read_server, _RETRY_S, _warn)
    post.proving = work
    if not doors.opened:
        await doors.open(post)
    await until_done(work.known, _RETRY_S, _warn)
    post.working = work
    _log.info("answers hooks")
    ready()
    await asyncio.gather(*work.tasks())


class Doors:
    """The sockets that hooks and steps connect to: the Unix socket, and the TCP address that
    belongs to this host.
    """

    def __init__(self, site: Site) -> None:
        self.path = Path(site.socket)
        self.opened = False
        self.identity: HookIdentity | None = None  # checks callers over TCP
        self._site = site
        self._front: Front | None = None

    async def open(self, post: Post) -> int:
        """Open the sockets, and return the index of our address in the site's list. Raises
        Unavailable.
        """
        site = self._site
        self.identity = proofs(site) if site.doors else None
        self._front = Front(post, self.identity, callers(site))
        place, far = listen_far(site.doors) if site.doors else (0, None)
        await self._front.start(listen(self.path, slurm_uid(site)))
        _log.info("listens at %s", self.path)
        if far is not None:
            await self._front.start_remote(far, site.doors[place])
            _log.info("listens for those who prove themselves at %s", site.doors[place])
        self.opened = True
        return place

    def remove_socket(self) -> None:
        """Remove the Unix socket, so that nobody finds it any more."""
        remove_socket(self.path)

    async def finish(self) -> None:
        """Accept no more connections, and answer the requests that are open."""
        if self._front is not None:
            await self._front.finish(_GRACE_S)


def proofs(site: Site) -> HookIdentity:
    """Return the check that a hook over TCP is root or Slurm's user. Raises Unavailable without the
    key or MUNGE.
    """
    if site.key:
        return KeyProofs(read_key(Path(site.key)))
    try:
        munge = Munge(site.munge_socket)
        munge.encode(b"")
    except MungeError as error:
        raise Unavailable(
            f"MUNGE does not answer here: {error}",
            operation=f"listen for hooks at {site.listen}",
            would_work="start munged, or leave `listen` out of the site's file",
        ) from None
    return Proofs(munge, callers(site))


def _warn(problem: str) -> None:
    _log.warning("waits: %s", problem)


async def _first(
    stop: asyncio.Event, *events: Coroutine[Any, Any, None] | asyncio.Task[None]
) -> bool:
    """Wait for `stop` or for one of the events.

    Returns True if an event came first, and raises the error that it ended with. Without events,
    returns at once whether `stop` is still unset.
    """
    if not events:
        return not stop.is_set()
    waiting = asyncio.create_task(stop.wait())
    given = [event for event in events if isinstance(event, asyncio.Task)]
    created = [
        asyncio.create_task(event) for event in events if not isinstance(event, asyncio.Task)
    ]
    try:
        done, _ = await asyncio.wait(
            {waiting, *given, *created}, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for event in (waiting, *created):
            event.cancel()
    for task in (*given, *created):
        if task in done:
            task.result()
    return waiting not in done


def _until(peers: Peers | None, role: StandbyRole) -> list[Coroutine[Any, Any, None]]:
    return [peers.become(role)] if peers else []


def _nothing() -> None:
    """Do nothing: it takes the place of `ready` after the first call."""
