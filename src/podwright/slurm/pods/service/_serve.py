"""The service as a process: `podwright slurm serve`, beside slurmctld, as root or Slurm's user."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Protocol

from podwright.errors import InvalidRequest, PodwrightError, Unavailable
from podwright.hosts import Munge, MungeError
from podwright.http import more_descriptors
from podwright.slurm.pods.service._hook_server import Front, Proofs
from podwright.slurm.pods.service._hook_socket import callers, gone, listen, nobody_at, slurm_uid
from podwright.slurm.pods.service._job_request import Asked
from podwright.slurm.pods.service._pods import Site
from podwright.slurm.pods.service._retry_limit import Tries
from podwright.slurm.pods.service._server_address import reach
from podwright.slurm.pods.service._service import Service
from podwright.slurm.pods.service._sweep import Sweep, sentence
from podwright.slurm.pods.service._vipu_server import TIMEOUT, ThreadedServer
from podwright.slurm.site.commands import Slurm, SlurmCommands

_log = logging.getLogger("podwright.slurm")
_RETRY_S = 0.5
_GRACE_S = 5.0


class Work(Protocol):
    """What a way of scheduling does for hooks, and beside that."""

    async def begins(self, asked: Asked) -> str:
        """What a job gets, in lines. Raises PodwrightError."""
        ...

    async def ended(self, asked: Asked) -> str:
        """Nothing is held for the job. Raises PodwrightError."""
        ...

    async def proves(self, asked: Asked) -> str:
        """The job of a step holds its devices, for this start. Raises PodwrightError."""
        ...

    def state(self) -> dict[str, Any]:
        """What an administrator watches."""
        ...

    async def known(self) -> None:
        """Take over what the server and Slurm say; then hooks may ask. Raises PodwrightError."""
        ...

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What goes on until it is cancelled."""
        ...

    async def close(self) -> None:
        """The last word to Slurm."""
        ...


class Native:
    """The work of native mode."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._sweep = Sweep(service)
        self.begins, self.ended, self.close = service.begins, service.ended, service.close
        self.proves = service.proves

    def state(self) -> dict[str, Any]:
        """Counts, figures, and what each pod's jobs hold."""
        return state(self._service)

    async def known(self) -> None:
        """The book as the server has it, what is over ended, and Slurm told."""
        await self._service.refresh()
        await self._sweep.once()
        await self._service.counts.tell(self._service.hidden())

    def beside(self) -> Sequence[Coroutine[Any, Any, None]]:
        """Counts, the sweep, heterogeneous jobs."""
        return (self._service.counts.run(), self._sweep.run(), self._service.het.run())


def native_work(site: Site, server: ThreadedServer, slurm: Slurm) -> Work:
    """Native mode."""
    return Native(Service(site, server, slurm))


Make = Callable[[Site, ThreadedServer, Slurm], Work]


async def serve(
    site: Site,
    *,
    prefix: Sequence[str] = (),
    ready: Callable[[], None] = lambda: None,
    make: Make = native_work,
) -> None:
    """Serve until SIGTERM or SIGINT. prefix: what stands before Slurm's commands. make: the way.

    Until the server and slurmctld answered once, hooks find nobody and ask again.
    Raises AlreadyExists where another serves this socket.
    """
    more_descriptors()
    server = ThreadedServer(lambda: reach(site, TIMEOUT))
    slurm = SlurmCommands(prefix)
    work = make(site, server, slurm)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tries = Tries(slurm, site.tries)

    async def failed(asked: Asked) -> str:
        """The site's own prolog refused a job; Slurm would start it again and again."""
        await tries.refusal(asked, InvalidRequest(asked.problem or "the site's prolog failed"))
        return ""

    proven = proofs(site) if site.listen else None
    front = Front(work.begins, work.ended, failed, work.state, proven, callers(site), work.proves)
    path = Path(site.socket)
    await nobody_at(path)
    tasks = [asyncio.create_task(_until_known(work))]
    try:
        if not await _first(stop, tasks[0]):
            return
        tasks = [asyncio.create_task(one) for one in work.beside()]
        await front.start(listen(path, slurm_uid(site)))
        _log.info("answers hooks at %s", path)
        if site.listen:
            await front.start_remote(_listen_remote(site.listen))
            _log.info("answers hooks with a MUNGE credential at %s", site.listen)
        ready()
        await _first(stop, *tasks)
        gone(path)
        await front.finish(_GRACE_S)
        await work.close()
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        server.close()
    for error in ended:
        if isinstance(error, Exception):
            raise error


def proofs(site: Site) -> Proofs:
    """Whom hooks over TCP must be: root, or Slurm's user. Raises Unavailable without MUNGE."""
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


def state(service: Service) -> dict[str, Any]:
    """What an administrator watches: counts, figures, and what each pod's jobs hold."""
    pods = {}
    for name, book in service.books.items():
        pods[name] = {
            "devices": book.pod.devices,
            "free_together": {
                str(1 << order): whole for order, whole in enumerate(book.blocks.wholes())
            },
            "emptied_for_a_large_job": book.closed.bit_count(),
            "held": {str(h.job): h.size for h in book.holdings.values()},
            "next": sentence(book, book.pod.largest),
        }
    figures = {name: getattr(service.figures, name) for name in service.figures.__struct_fields__}
    return {
        "pods": pods,
        "figures": figures,
        "told": service.counts.told,
        "updates": service.counts.updates,
        "problem": service.counts.problem,
    }


async def _until_known(work: Work) -> None:
    said = ""
    while True:
        try:
            await work.known()
            return
        except PodwrightError as error:
            if str(error) != said:
                _log.warning("waits: %s", error)
                said = str(error)
            await asyncio.sleep(_RETRY_S)


async def _first(stop: asyncio.Event, *tasks: asyncio.Task[Any]) -> bool:
    """Wait for the end or for a task. True if it was a task, whose error is raised."""
    waiting = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for task in tasks:
        if task in done:
            task.result()
    return waiting not in done


def _listen_remote(where: str) -> socket.socket:
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidRequest(f"{where!r} is not HOST:PORT", asked="listen for hooks over TCP")
    try:
        family, *_, address = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server((address[0], int(port)), family=family, backlog=512)
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {where}: {(error.strerror or str(error)).lower()}",
            would_work="another `listen` in the site's file",
        ) from None
