"""A server's life as a process: locks, store, hardware, fronts, and every way in which it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from podwright._version import __version__
from podwright.agents import Driver
from podwright.controller import Controller, Machines, Sharing, Visible
from podwright.errors import AlreadyExists, PodwrightError, Unavailable
from podwright.http import more_descriptors
from podwright.page import SiteProxy
from podwright.server._collection import start_without_collection
from podwright.server._faults import KillPoint
from podwright.server._identity import Identity, find_munge
from podwright.server._init import is_secure
from podwright.server._listen_options import ListenOptions, PageOptions
from podwright.server._local_launches import ThisHost
from podwright.server._metrics import pod_name
from podwright.server._server import Server
from podwright.server._shared_store import (
    LEASE,
    SharedStore,
    UnsharedStore,
    owner_name,
    serve_shared,
)
from podwright.server._sockets import Lock, prepare_folder
from podwright.server._standby import Standby
from podwright.server._traces import open_traces
from podwright.server.machines._agents import reach
from podwright.server.machines._fabrics import FabricOptions, fabric_driver
from podwright.server.machines._served_hardware import ServedHardware, choose
from podwright.store import (
    Opened,
    ReadOnlyStore,
    SQLiteStore,
    Store,
    open_store,
    shown_place,
    storage_file,
)

_log = logging.getLogger("podwright.server")
_events = logging.getLogger("podwright.events")

#: Seconds that calls under way have when the server is asked to end.
GRACE = 5.0
#: Seconds within which a user's server that ends makes room for the next one.
_HANDOVER = 10.0
#: Seconds between two checks whether a full disk has room again.
_LOOK_AGAIN = 2.0
#: Files that commands leave in the folder of a user's server. They are removed with the folder.
_LEFT_BY_COMMANDS = ("server.log", "start.lock")


@dataclass(frozen=True)
class ServingOptions:
    """What to serve and where. user: a server for one user, in the background.

    storage: a file, or the place of a store as store.open_store reads it. idle: seconds without
    partition, lease or call after which the server ends; None: never. socket_mode: 0600, or 0666
    for a server of all users. private: the socket's folder belongs to the server's user only.

    agent_key: the key that agents must have. own_key: the key for agents on this machine where
    agent_key is not set. silence: seconds after which a silent agent is given up. interfaces: those
    on which agents may announce themselves. secure: callers on TCP must identify themselves; a
    store that was made secure requires it too. certs: the folder of TLS certificates.

    web: host and port of read-only HTTP. web_names: its further host names. proxy: the proxy that
    names the callers of its page. other_pods: the pages that it links, URLs by name. pod: its name
    in metrics; empty: `pod_name` of the store. munge: the socket of MUNGE, whose credentials are
    accepted; empty: the usual one; None: they are not accepted. fabric: what joins devices of
    several machines. visible: what callers see of others' objects. sharing: between schedulers and
    people.
    """

    storage: Path | str
    socket: Path
    preset: str | None = None
    files: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = 0
    anywhere: bool = False
    user: bool = False
    idle: float | None = None
    socket_mode: int = 0o600
    private: bool = False
    agent_key: Path | None = None
    own_key: Path | None = None
    silence: float = 10.0
    fabric: FabricOptions | None = None
    interfaces: tuple[str, ...] = ()
    secure: bool = False
    certs: Path | None = None
    web: tuple[str, int] | None = None
    web_names: tuple[str, ...] = ()
    proxy: SiteProxy | None = None
    pod: str = ""
    other_pods: Mapping[str, str] = field(default_factory=dict)
    munge: str | None = None
    visible: Visible | None = None
    sharing: Sharing | None = None
    administrators: frozenset[str] = frozenset()


async def serve(options: ServingOptions, ready: Callable[[Server, ServedHardware], None]) -> None:
    """Serve until a signal or idleness, or until the store fails; that failure is raised.

    ready: called once all fronts answer. Raises wire.PodwrightError when the server cannot begin.
    """
    # grpc's own lines on standard error are silenced, since Podwright's refusals are clearer.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    more_descriptors()
    prepare_folder(options.socket.parent, private=options.private)
    file = storage_file(options.storage)
    if file is None:
        await _serve_shared(options, ready)
        return
    prepare_folder(file.parent, mode=0o700)
    lock = Lock(file, f"the store {file}", inode=True)
    if not await _take(lock, options):
        return
    empty = False
    try:
        empty = await _serve(options, file, ready, lock)
    finally:
        if options.user and empty:
            _remove(options, file)
        lock.release()
        if options.user and empty:
            with contextlib.suppress(OSError):
                options.socket.parent.rmdir()


async def _take(lock: Lock, options: ServingOptions) -> bool:
    """Take the lock of the store. Return whether this server has it.

    A user's second server gives way to a first one that answers, and gets False.
    """
    deadline = time.monotonic() + _HANDOVER
    while True:
        try:
            lock.take()
            return True
        except AlreadyExists:
            if not options.user or time.monotonic() > deadline:
                raise
            if _answers(options.socket):
                return False
            await asyncio.sleep(0.02)


async def _serve_shared(
    options: ServingOptions, ready: Callable[[Server, ServedHardware], None]
) -> None:
    stop = asyncio.Event()
    _on_signals(stop)
    fault = KillPoint.from_environment(os.environ)
    owner = owner_name(options.host, options.port)

    def open_anew() -> SharedStore:
        store = open_store(options.storage, owner=owner, ttl=LEASE)
        if not isinstance(store, SharedStore):  # a store of another package
            store = cast(SharedStore, UnsharedStore(store))
        return store if fault is None else cast(SharedStore, fault.store(store))

    store = open_anew()
    standby = Standby()
    server = _server_for(options, cast(Controller, standby), store)

    def chosen(opened: Opened) -> ServedHardware:
        hardware = _chosen(opened.records, options)
        if fault is not None:
            fault.arm(hardware)
        if is_secure(opened.records):
            server.make_secure()
        return hardware

    def drivers(hardware: ServedHardware) -> Mapping[str, Driver]:
        by_cluster = hardware.drivers()
        return by_cluster if fault is None else fault.drivers(by_cluster)

    await serve_shared(
        store,
        server,
        standby,
        choose=chosen,
        ready=ready,
        stop=stop,
        until_end=lambda failed: _until_end(stop, failed),
        machines=_machines(options, lambda: server.calls.identity.secure),
        drivers=drivers,
        visible=options.visible,
        sharing=options.sharing,
        anew=open_anew,
    )


def _chosen(records: Mapping[tuple[str, str], bytes], options: ServingOptions) -> ServedHardware:
    return choose(
        records,
        preset_name=options.preset,
        cluster_files=options.files,
        simulate_if_none=options.user,
        store_name=shown_place(options.storage),
    )


def _machines(options: ServingOptions, secure: Callable[[], bool]) -> Machines:
    return replace(
        reach(
            options.agent_key,
            options.silence,
            options.interfaces,
            own_key=options.own_key,
            certs=options.certs,
            secure=secure,
        ),
        administrators=options.administrators,
        fabric=fabric_driver(options.fabric),
    )


async def _until_end(stop: asyncio.Event, failed: Callable[[], PodwrightError | None]) -> None:
    while not stop.is_set() and failed() is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)


def _server_for(
    options: ServingOptions, controller: Controller, store: Store, *, secure: bool = False
) -> Server:
    server = Server(
        controller,
        ListenOptions(
            options.socket,
            host=options.host,
            port=options.port,
            anywhere=options.anywhere,
            socket_mode=options.socket_mode,
            private_folder=options.private,
            certs=options.certs,
            apart=True,
            web=options.web,
        ),
        page=PageOptions(
            names=options.web_names,
            proxy=options.proxy,
            other_pods=options.other_pods,
            history=store.history(),
            standbys=lambda: getattr(store, "standbys", None),
            pod=options.pod or pod_name(options.storage, socket.gethostname()),
        ),
        identity=Identity(
            secure=secure or options.secure,
            munge=None if options.munge is None else find_munge(options.munge),
        ),
        # The controller is read at each call, since a standby serves another one after a takeover.
        counters=lambda: {"commits": store.commits, **server.controller.moves},
        traces=open_traces(os.environ),
    )
    return server


async def _reopened(
    stop: asyncio.Event, file: Path, make: Callable[[Store], Controller]
) -> Controller | None:
    """Return a controller over the store once the disk has room again; None when asked to stop.

    Raises wire.PodwrightError for any other reason why the store cannot be opened.
    """
    while not stop.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _LOOK_AGAIN)
            return None
        store = SQLiteStore(file)
        try:
            opened = await store.open()
        except Unavailable as error:
            if not error.data.get("full"):
                raise
            continue
        controller = make(store)
        try:
            await controller.start(opened)
        except Unavailable as error:  # there was room to open the store, but for no more
            if not error.data.get("full"):
                raise
            continue
        return controller
    return None


async def _serve(
    options: ServingOptions, file: Path, ready: Callable[[Server, ServedHardware], None], lock: Lock
) -> bool:
    stop = asyncio.Event()
    _on_signals(stop)
    fault = KillPoint.from_environment(os.environ)
    store: Store = SQLiteStore(file, connect=fault.connect() if fault else None)
    records: Mapping[tuple[str, str], bytes] = {}
    full_store: Unavailable | None = None
    if file.exists():  # noqa: ASYNC240 (one look)
        try:
            records = (await store.open()).records
        except Unavailable as error:
            if not error.data.get("full"):
                raise
            full_store = error
            store = await _read_only(SQLiteStore(file), error)
            records = (await store.open()).records
    try:
        with start_without_collection():
            hardware = _chosen(records, options)
            drivers = hardware.drivers()
            if fault is not None:
                fault.arm(hardware)
                store, drivers = fault.store(store), fault.drivers(drivers)

            def make(store: Store) -> Controller:
                return Controller(
                    store,
                    hardware.clusters,
                    drivers,
                    version=__version__,
                    machines=_machines(options, lambda: options.secure or is_secure(records)),
                    visible=(options.visible or Visible()).settled(
                        secure=options.secure or is_secure(records)
                    ),
                    sharing=options.sharing,
                    own_host=ThisHost(hardware.local),
                )

            controller = make(store)
            server = _server_for(options, controller, store, secure=is_secure(records))
            await server.start()
            lock.hold()  # it may have been created just now
    except BaseException:
        await store.close()
        raise
    failure: PodwrightError | None = None
    idle = None
    try:
        if full_store is None:
            await hardware.remember(store)
        ready(server, hardware)
        if options.idle is not None:
            idle = asyncio.create_task(_end_when_idle(server, options.idle, stop))
        while True:
            await _until_end(stop, lambda: server.controller.failure)
            failure = server.controller.failure
            if failure is None or (old := server.controller).read_only is None:
                break
            _events.error("read only: %s", failure.message)
            failure = None  # if it is asked to stop meanwhile, it ends well
            reopened = await _reopened(stop, file, make)
            if reopened is None:
                break
            server.adopt(reopened, lambda: None)
            _events.info("the store can be written again: serving as before")
            await old.close()
    finally:
        if idle is not None:
            idle.cancel()
        empty = await server.stop(0.0 if failure else GRACE)
    if failure is not None:
        raise failure
    return empty


async def _read_only(store: SQLiteStore, reason: Unavailable) -> ReadOnlyStore:
    """Return the content of a store on a full disk.

    Raises wire.Unavailable as `SQLiteStore.peek` does.
    """
    return ReadOnlyStore(store.name, await store.peek_alone(), reason, store.history())


async def _end_when_idle(server: Server, seconds: float, stop: asyncio.Event) -> None:
    await server.until_idle(seconds)
    stop.set()


def _on_signals(stop: asyncio.Event) -> None:
    """End the server gracefully at the first signal, and at once at the second.

    Ending at once is safe, since the server survives a crash.
    """

    def end(number: int) -> None:
        if stop.is_set():
            os._exit(128 + number)
        _log.info("%s: ending", signal.Signals(number).name)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, number)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(path)) == 0


def _remove(options: ServingOptions, file: Path) -> None:
    """Remove the empty store of a user's server, and the files that commands left beside it."""
    for end in ("", "-wal", "-shm", "-history", "-history-journal"):
        file.with_name(file.name + end).unlink(missing_ok=True)
    for name in _LEFT_BY_COMMANDS:
        (options.socket.parent / name).unlink(missing_ok=True)
