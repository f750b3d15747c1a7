"""The service as a process: `podwright slurm twin serve`, beside slurmctld.

The order at the start matters. The sockets are made, and the keeper is forked, with the rights that
the process was started with. Then the process becomes its own user. Only after that it starts
threads and answers strangers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pwd
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from podwright.errors import AlreadyExists, InvalidRequest, Unavailable
from podwright.hosts import Munge, MungeError
from podwright.http import listen
from podwright.slurm.site.blocking_commands import Ask
from podwright.slurm.twin import InstalledSlurm, Twin, find_slurm, same_files
from podwright.slurm.twin_service._site_copy import SiteCopy, receive
from podwright.slurm.twin_service._state_keeper_process import Keeper, start_keeper
from podwright.slurm.twin_service._twin_http_server import TwinFront
from podwright.slurm.twin_service._warm_twins import TwinSource, WarmTwins, sees_everything

_log = logging.getLogger("podwright.twin")
_STOP_GRACE_S: Final = 3.0  # seconds for open questions at the end
#: The users that the service may become where root starts it without --user. No account has them.
_FREE_UIDS: Final = range(0x61000000, 0x61FFFFFF)


@dataclass(frozen=True)
class TwinServeOptions:
    """The options of the service.

    socket: the Unix socket. listen: HOST:PORT for other machines, by MUNGE. user: the user that the
    service becomes where root starts it; empty: a number that no account has. interval: seconds
    between copies of the state. workers: the number of twins. slurm: where Slurm is, as find_slurm
    takes it.
    """

    socket: Path
    listen: str = ""
    munge_socket: str = ""
    user: str = ""
    interval: float = 3.0
    workers: int = 2
    slurm: str = ""


def serve_twins(
    options: TwinServeOptions, ask: Ask, ready: Callable[[str], None] = lambda place: None
) -> None:
    """Serve until SIGTERM or SIGINT.

    ask: runs a command of Slurm. ready: called with each address where questions are answered, once
    a twin is warm.

    Raises Unavailable where there is no Slurm here or a socket cannot be made, AlreadyExists where
    another service answers, and InvalidRequest for options that cannot be used.
    """
    installed_slurm = find_slurm(path=options.slurm)
    if installed_slurm is None:
        raise Unavailable(
            "there is no slurmctld on this machine",
            would_work="Run it where slurmctld runs, or name its prefix with --slurm",
        )
    service_uid = _service_uid(options.user)
    folder_is_ours = not options.socket.parent.exists()
    local_socket = _listening_socket(options.socket)
    try:
        remote_socket = asyncio.run(_remote_socket(options.listen)) if options.listen else None
        service_sockets = [local_socket, remote_socket] if remote_socket else [local_socket]
        keeper = start_keeper(
            ask,
            options.socket,
            service_sockets,
            interval=options.interval,
            folder_is_ours=folder_is_ours,
        )
    except BaseException:
        local_socket.close()
        options.socket.unlink(missing_ok=True)
        if folder_is_ours:
            options.socket.parent.rmdir()
        raise
    try:
        _become_user(service_uid)
        asyncio.run(
            _serve_until_signal(
                options, installed_slurm, (local_socket, remote_socket), keeper, ready
            )
        )
    finally:
        local_socket.close()
        keeper.close()


async def _serve_until_signal(
    options: TwinServeOptions,
    installed_slurm: InstalledSlurm,
    service_sockets: tuple[socket.socket, socket.socket | None],
    keeper: Keeper,
    ready: Callable[[str], None],
) -> None:
    stop_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_event.set)
    warm_twins = WarmTwins(_twin_source(installed_slurm), time.monotonic, workers=options.workers)
    newest_site = _NewestSite(
        warm_twins, keeper, partial(loop.call_soon_threadsafe, stop_event.set)
    )
    threading.Thread(target=newest_site.follow, name="copies", daemon=True).start()
    local_socket, remote_socket = service_sockets
    twin_front = TwinFront(
        warm_twins, newest_site.is_privileged, _find_munge(options) if remote_socket else None
    )
    try:
        await twin_front.local.start(local_socket)
        if remote_socket is not None:
            await twin_front.remote.start(remote_socket)
        while not (stop_event.is_set() or warm_twins.status()["warm"]):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop_event.wait(), 0.1)
        if not stop_event.is_set():
            ready(str(options.socket))
            if options.listen:
                ready(options.listen)
        await stop_event.wait()
    finally:
        await twin_front.finish(_STOP_GRACE_S)
        await asyncio.to_thread(warm_twins.close, _STOP_GRACE_S)


class _NewestSite:
    """Reads the keeper's copies and passes them to the twins."""

    def __init__(self, twins: WarmTwins, keeper: Keeper, end_service: Callable[[], object]) -> None:
        self._twins, self._keeper, self._end = twins, keeper, end_service
        self._copy: SiteCopy | None = None

    def follow(self) -> None:
        """Read copies until the keeper ends, and then end the service."""
        problem = ""
        with contextlib.suppress(OSError, ValueError):
            while (copy := receive(self._keeper.copies, self._copy)) is not None:
                self._copy = copy
                self._twins.update(copy)
                if copy.no_state and copy.no_state != problem:
                    _log.warning("the present state is not read: %s", copy.no_state)
                problem = copy.no_state
        _log.info("no more copies of the site come")
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            self._end()

    def is_privileged(self, uid: int) -> bool:
        """Return whether a user may ask as another one."""
        return self._copy is not None and sees_everything(self._copy, uid)


def _twin_source(installed_slurm: InstalledSlurm) -> TwinSource:
    def start(copy: SiteCopy, with_state: bool) -> Twin:
        if copy.version != installed_slurm.version:
            raise Unavailable(
                "the site runs another release than the slurmctld here "
                f"({installed_slurm.release})",
                would_work="Start the service again, on the controller's own Slurm",
            )
        return Twin(copy.files, installed_slurm, copy.present if with_state else None).__enter__()

    def fits(before: SiteCopy, now: SiteCopy) -> bool:
        if before.files is now.files or before.files == now.files:
            return True
        accounts = bool(before.present and before.present.accounts)
        return same_files(before.files, now.files, installed_slurm.version, accounts=accounts)

    return TwinSource(start, fits, installed_slurm.release)


def _service_uid(user_name: str) -> int | None:
    """Return the uid to become, or None to stay. Raises InvalidRequest."""
    if os.geteuid() != 0:
        if user_name and _user_id(user_name) != os.geteuid():
            raise InvalidRequest(
                "only root can become another user", operation=f"--user {user_name}"
            )
        return None
    if not user_name:
        return random.SystemRandom().choice(_FREE_UIDS)
    return _user_id(user_name) or None


def _user_id(name: str) -> int:
    """Return the uid that a name or a number stands for. Raises InvalidRequest."""
    try:
        return int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
    except KeyError:
        raise InvalidRequest(f"there is no user {name}", operation=f"--user {name}") from None


def _become_user(uid: int | None) -> None:
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        os.environ["HOME"] = "/"
        _check_python(os.__file__)


def _check_python(library_path: str) -> None:
    """Raise Unavailable if this user may not read the Python of this process: modules that are
    loaded later would seem to be missing.
    """
    try:
        with open(library_path, "rb"):
            pass
    except OSError as error:
        raise Unavailable(
            f"the service gives up its rights, and uid {os.getuid()} may not read the Python that "
            f"it runs on: {library_path}: {error.strerror}",
            would_work="Install Podwright where every user may read it, such as /opt",
        ) from None


def _listening_socket(socket_path: Path) -> socket.socket:
    """Return the socket, which is open to everybody, because the kernel says who asks.

    A socket at which nobody answers is replaced. Raises AlreadyExists, Unavailable.
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        socket_path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(1)
            try:
                probe.connect(str(socket_path))
            except (FileNotFoundError, ConnectionRefusedError):
                socket_path.unlink(missing_ok=True)
            else:
                raise AlreadyExists(
                    f"another service answers at {socket_path}",
                    would_work="Stop it, or --socket=PATH",
                )
        listener.bind(str(socket_path))
        socket_path.chmod(0o666)
        listener.listen(512)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise Unavailable(
            f"{socket_path}: {error.strerror}",
            would_work="--socket=PATH in a folder of this user's",
        ) from None
    except BaseException:
        listener.close()
        raise
    return listener


async def _remote_socket(listen_address: str) -> socket.socket:
    host, _, port = listen_address.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidRequest(
            f"{listen_address!r} is not HOST:PORT", operation=f"--listen {listen_address}"
        )
    try:
        return await listen(host.strip("[]"), int(port))
    except OSError as error:
        raise Unavailable(f"cannot listen on {listen_address}: {error.strerror or error}") from None


def _find_munge(options: TwinServeOptions) -> Munge:
    """Return MUNGE. Raises Unavailable where it does not answer."""
    try:
        munge = Munge(options.munge_socket)
        munge.encode(b"")
    except MungeError as error:
        raise Unavailable(
            f"MUNGE does not answer here: {error}",
            operation=f"--listen {options.listen}",
            would_work="Start munged, or leave --listen out: the Unix socket needs no MUNGE",
        ) from None
    return munge
