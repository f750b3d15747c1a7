"""The service as a process: `podwright slurm serve`, beside slurmctld, as root or Slurm's user."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from podwright.errors import PodwrightError, Unavailable
from podwright.guests import CALL_TIMEOUT, ThreadedServer
from podwright.hosts import Munge, MungeError
from podwright.http import Figure, MetricsFront, more_descriptors
from podwright.slurm.pods.service._hook_identity import HookIdentity, KeyProofs, Proofs, read_key
from podwright.slurm.pods.service._hook_metrics import figures
from podwright.slurm.pods.service._hook_server import Front
from podwright.slurm.pods.service._hook_socket import (
    callers,
    gone,
    host_port,
    listen,
    listen_far,
    nobody_at,
    slurm_uid,
)
from podwright.slurm.pods.service._pods import Site
from podwright.slurm.pods.service._post import Post
from podwright.slurm.pods.service._retry_limit import RetryLimit
from podwright.slurm.pods.service._server_address import reach
from podwright.slurm.pods.service._service_standby import Peers, StandbyRole, ask_role
from podwright.slurm.pods.service._work import Make, Work, native_work
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
    """Serve until SIGTERM or SIGINT. prefix: what stands before Slurm's commands. make: the way.

    ready: called when hooks are answered, or when this one stands by.
    Raises AlreadyExists where another serves this socket.
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
            assert doors.proven is not None
            ask = partial(ask_role, identity=doors.proven)
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
    """Answer as the active one. True: another one is active now; False: the end."""
    duty = asyncio.create_task(_duty(work, post, doors, ready))
    try:
        if await _first(stop, duty, *_until(post.peers, StandbyRole.STANDBY)):
            _log.warning("another one is active: stands by")
            post.leave()
            return True
        if post.working:
            doors.gone()
            await doors.finish()
            await work.close()
        return False
    finally:
        duty.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await duty


async def _duty(work: Work, post: Post, doors: Doors, ready: Callable[[], None]) -> None:
    """What is done until it is cancelled. Steps are answered when the server has said its part,
    hooks when Slurm has, too."""
    await _again(work.held)
    post.proving = work
    if not doors.opened:
        await doors.open(post)
    await _again(work.known)
    post.working = work
    _log.info("answers hooks")
    ready()
    await asyncio.gather(*work.beside())


class Doors:
    """Where hooks and steps come: the Unix socket, and the address that is this host's own."""

    def __init__(self, site: Site) -> None:
        self.path = Path(site.socket)
        self.opened = False
        self.proven: HookIdentity | None = None  # who comes over TCP
        self._site = site
        self._front: Front | None = None

    async def open(self, post: Post) -> int:
        """Let them in. The place of our address in the site's list. Raises Unavailable."""
        site = self._site
        self.proven = proofs(site) if site.doors else None
        self._front = Front(post, self.proven, callers(site))
        place, far = listen_far(site.doors) if site.doors else (0, None)
        await self._front.start(listen(self.path, slurm_uid(site)))
        _log.info("listens at %s", self.path)
        if far is not None:
            await self._front.start_remote(far, site.doors[place])
            _log.info("listens for those who prove themselves at %s", site.doors[place])
        self.opened = True
        return place

    def gone(self) -> None:
        """Nobody finds the socket any more."""
        gone(self.path)

    async def finish(self) -> None:
        """Let in no more, and answer who is in."""
        if self._front is not None:
            await self._front.finish(_GRACE_S)


def proofs(site: Site) -> HookIdentity:
    """Whom hooks over TCP must be: root, or Slurm's user. Raises Unavailable without the key or
    MUNGE."""
    if site.key:
        return KeyProofs(read_key(Path(site.key)))
    try:
        munge = Munge(site.munge_socket)
        munge.encode(b"")
    except MungeError as error:
        raise Unavailable(
            f"MUNGE does not answer here: {error}",
            asked=f"listen for hooks at {site.listen}",
            would_work="start munged, or leave `listen` out of the site's file",
        ) from None
    return Proofs(munge, callers(site))


async def _again(what: Callable[[], Awaitable[None]]) -> None:
    """Until it succeeds."""
    said = ""
    while True:
        try:
            await what()
            return
        except PodwrightError as error:
            if str(error) != said:
                _log.warning("waits: %s", error)
                said = str(error)
            await asyncio.sleep(_RETRY_S)


async def _first(
    stop: asyncio.Event, *others: Coroutine[Any, Any, None] | asyncio.Task[None]
) -> bool:
    """Wait for the end or for one of the others; True if it was one, whose error is raised. Without
    others: has the end not come?"""
    if not others:
        return not stop.is_set()
    waiting = asyncio.create_task(stop.wait())
    given = [one for one in others if isinstance(one, asyncio.Task)]
    made = [asyncio.create_task(one) for one in others if not isinstance(one, asyncio.Task)]
    try:
        done, _ = await asyncio.wait({waiting, *given, *made}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in (waiting, *made):
            one.cancel()
    for task in (*given, *made):
        if task in done:
            task.result()
    return waiting not in done


def _until(peers: Peers | None, role: StandbyRole) -> list[Coroutine[Any, Any, None]]:
    return [peers.become(role)] if peers else []


def _nothing() -> None:
    """What is called the second time."""
