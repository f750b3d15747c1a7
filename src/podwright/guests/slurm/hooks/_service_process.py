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
from podwright.guests.slurm.hooks._active_standby_roles import Peers, StandbyRole, ask_role
from podwright.guests.slurm.hooks._hook_request_proofs import (
    HookIdentity,
    KeyProofs,
    MungeProofs,
    read_key,
)
from podwright.guests.slurm.hooks._hook_server import HookFront
from podwright.guests.slurm.hooks._hook_socket import (
    callers,
    listen,
    listen_tcp,
    remove_socket,
    require_free_socket,
    slurm_uid,
)
from podwright.guests.slurm.hooks._reach_vipu_server import reach
from podwright.guests.slurm.hooks._service_metrics import figures
from podwright.guests.slurm.service._hook_calls import JobCalls
from podwright.guests.slurm.service._pods_and_licences import Site
from podwright.hosts import Munge, MungeError
from podwright.http import Figure, MetricsFront, host_port, more_descriptors
from podwright.slurm.site.commands import Slurm, SlurmCommands

_log = logging.getLogger("podwright.slurm")
_RETRY_S = 0.5
_GRACE_S = 5.0


async def serve(
    site: Site,
    *,
    make: Callable[[Site, ThreadedServer, Slurm], JobCalls],
    prefix: Sequence[str] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    make: makes the site's way of scheduling. prefix: the words before each of Slurm's commands.
    ready: called once, when hooks are answered or when this service stands by. Raises
    AlreadyExists where another service answers at this socket.
    """
    more_descriptors()
    slurm = SlurmCommands(prefix)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    front = HookFront()
    hook_sockets = HookSockets(site, front)
    await require_free_socket(hook_sockets.path)
    server = ThreadedServer(lambda: reach(site, CALL_TIMEOUT))

    async def now() -> Iterable[Figure]:
        return figures(site.mode, front.state())

    metrics = MetricsFront(now)
    try:
        if site.metrics:
            await metrics.open(*host_port(site.metrics, "serve metrics"))
        if len(site.doors) > 1:
            own_index = await hook_sockets.open()
            assert hook_sockets.identity is not None
            ask_peer = partial(ask_role, identity=hook_sockets.identity)
            front.peers = Peers(site.doors, own_index, time.monotonic, ask_peer)
            ready()
            ready = _do_nothing
        while await _wait_for_first(stop, *_until_role(front.peers, StandbyRole.ACTIVE)):
            site_work = make(site, server, slurm)
            if not await _serve_active(site_work, front, hook_sockets, stop, ready):
                return
    finally:
        await metrics.stop()
        server.close()


async def _serve_active(
    site_work: JobCalls,
    front: HookFront,
    hook_sockets: HookSockets,
    stop: asyncio.Event,
    on_ready: Callable[[], None],
) -> bool:
    """Answer as the active service. Return True when another service is active now, and False at
    the end.
    """
    duty_task = asyncio.create_task(
        _serve_until_cancelled(site_work, front, hook_sockets, on_ready)
    )
    try:
        if await _wait_for_first(stop, duty_task, *_until_role(front.peers, StandbyRole.STANDBY)):
            _log.warning("another one is active: stands by")
            front.leave()
            return True
        if front.working:
            hook_sockets.remove_socket()
            await hook_sockets.finish()
            await site_work.close()
        return False
    finally:
        duty_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await duty_task


async def _serve_until_cancelled(
    site_work: JobCalls, front: HookFront, hook_sockets: HookSockets, on_ready: Callable[[], None]
) -> None:
    """Serve until cancelled. Steps are answered when the server has been read, and hooks when Slurm
    has been read as well.
    """
    await until_done(site_work.refresh, _RETRY_S, _warn_waiting)
    front.proving = site_work
    if not hook_sockets.opened:
        await hook_sockets.open()
    await until_done(site_work.known, _RETRY_S, _warn_waiting)
    front.working = site_work
    _log.info("answers hooks")
    on_ready()
    await asyncio.gather(*site_work.tasks())


class HookSockets:
    """The sockets that hooks and steps connect to: the Unix socket, and the TCP address that
    belongs to this host.
    """

    def __init__(self, site: Site, front: HookFront) -> None:
        self.path = Path(site.socket)
        self.opened = False
        self.identity: HookIdentity | None = None  # checks callers over TCP
        self._site = site
        self._front = front

    async def open(self) -> int:
        """Open the sockets, and return the index of our address in the site's list. Raises
        Unavailable.
        """
        site = self._site
        self.identity = proofs(site) if site.doors else None
        index, listener = listen_tcp(site.doors) if site.doors else (0, None)
        await self._front.start(listen(self.path, slurm_uid(site)), callers(site))
        _log.info("listens at %s", self.path)
        if listener is not None and self.identity is not None:
            await self._front.start_remote(listener, self.identity, site.doors[index])
            _log.info("listens for those who prove themselves at %s", site.doors[index])
        self.opened = True
        return index

    def remove_socket(self) -> None:
        """Remove the Unix socket, so that nobody finds it any more."""
        remove_socket(self.path)

    async def finish(self) -> None:
        """Accept no more connections, and answer the requests that are open."""
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
    return MungeProofs(munge, callers(site))


def _warn_waiting(problem: str) -> None:
    _log.warning("waits: %s", problem)


async def _wait_for_first(
    stop: asyncio.Event, *events: Coroutine[Any, Any, None] | asyncio.Task[None]
) -> bool:
    """Wait for `stop` or for one of the events.

    Returns True if an event came first, and raises the error that it ended with. Without events,
    returns at once whether `stop` is still unset.
    """
    if not events:
        return not stop.is_set()
    stop_task = asyncio.create_task(stop.wait())
    given_tasks = [event for event in events if isinstance(event, asyncio.Task)]
    created_tasks = [
        asyncio.create_task(event) for event in events if not isinstance(event, asyncio.Task)
    ]
    try:
        done_tasks, _ = await asyncio.wait(
            {stop_task, *given_tasks, *created_tasks}, return_when=asyncio.FIRST_COMPLETED
        )
    finally:
        for event in (stop_task, *created_tasks):
            event.cancel()
    for task in (*given_tasks, *created_tasks):
        if task in done_tasks:
            task.result()
    return stop_task not in done_tasks


def _until_role(peers: Peers | None, role: StandbyRole) -> list[Coroutine[Any, Any, None]]:
    return [peers.become(role)] if peers else []


def _do_nothing() -> None:
    """Do nothing: it takes the place of `ready` after the first call."""
