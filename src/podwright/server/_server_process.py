"""A server's life as a process: locks, store, hardware, fronts, and every way in which it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from podwright._version import __version__
from podwright.agents import Driver
from podwright.controller import Controller, Machines, Visible
from podwright.errors import AlreadyExists, PodwrightError, Unavailable
from podwright.http import more_descriptors
from podwright.server._caller_identity import Identity, find_munge
from podwright.server._garbage_collection import start_without_gc
from podwright.server._listen_options import DEFAULT_PAGE, ListenOptions, PageOptions
from podwright.server._local_launches import ThisHost
from podwright.server._make_store import is_secure
from podwright.server._metrics import pod_name
from podwright.server._server import Server
from podwright.server._shared_store import (
    LEASE_TTL_S,
    SharedStore,
    UnsharedStore,
    owner_name,
    serve_shared,
)
from podwright.server._socket_lock import Lock, prepare_folder
from podwright.server._standby_answers import Standby
from podwright.server.machines._choose_fabric_driver import FabricOptions, fabric_driver
from podwright.server.machines._reach_agents import reach
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

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger("podwright.server")
_event_log = logging.getLogger("podwright.events")

#: Seconds that calls under way have when the server is asked to end.
STOP_GRACE_S = 5.0
#: Seconds within which a user's server that ends makes room for the next one.
_LOCK_WAIT_S = 10.0
#: Seconds between two checks whether a full disk has room again.
_DISK_RETRY_S = 2.0
#: Files that commands leave in the folder of a user's server. They are removed with the folder.
_LEFTOVER_FILES = ("server.log", "start.lock")


@dataclass(frozen=True)
class ServingOptions:
    """What to serve and where. user: a server for one user, in the background.

    storage: a file, or the place of a store as store.open_store reads it. page: an empty `pod` is
    the store's `pod_name`. idle: seconds without partition, lease or call after which the server
    ends; None: never.

    agent_key: the key that agents must have. own_key: the key for agents on this machine where
    agent_key is not set. silence: seconds after which a silent agent is given up. interfaces: those
    on which agents may announce themselves. secure: callers on TCP must identify themselves; a
    store that was made secure requires it too. munge: the socket of MUNGE, whose credentials are
    accepted; empty: the usual one; None: they are not accepted. fabric: what joins devices of
    several machines. visible: what callers see of others' objects. weights: of schedulers and
    people.
    """

    storage: Path | str
    listen: ListenOptions
    page: PageOptions = DEFAULT_PAGE
    preset: str | None = None
    files: Sequence[Path] = ()
    user: bool = False
    idle: float | None = None
    agent_key: Path | None = None
    own_key: Path | None = None
    silence: float = 10.0
    fabric: FabricOptions | None = None
    interfaces: Sequence[str] = ()
    secure: bool = False
    munge: str | None = None
    visible: Visible | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    administrators: frozenset[str] = frozenset()

    @property
    def socket(self) -> Path:
        """The Unix socket, which every server of its own process has."""
        assert self.listen.socket is not None
        return self.listen.socket


class StoreAndDrivers(NamedTuple):
    """How a server gets at its store and its machines. Tests wrap both, to kill it at one step.

    connect: replaces sqlite3.connect. store: returns what is used in place of an opened store.
    drivers: returns the drivers of hardware, by the machines' names.
    """

    connect: Callable[..., sqlite3.Connection] | None = None
    store: Callable[[Any], Any] = lambda store: store
    drivers: Callable[[ServedHardware], Mapping[str, Driver]] = ServedHardware.drivers


async def serve(
    options: ServingOptions,
    ready: Callable[[Server, ServedHardware], None],
    seam: StoreAndDrivers | None = None,
) -> None:
    """Serve until a signal or idleness, or until the store fails; that failure is raised.

    ready: called once all fronts answer. Raises wire.PodwrightError when the server cannot begin.
    """
    # grpc's own lines on standard error are silenced, since Podwright's refusals are clearer.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    seam = seam or StoreAndDrivers()
    more_descriptors()
    prepare_folder(options.socket.parent, private=options.listen.private_folder)
    store_file = storage_file(options.storage)
    if store_file is None:
        await _serve_shared(options, ready, seam)
        return
    prepare_folder(store_file.parent, folder_mode=0o700)
    store_lock = Lock(store_file, f"the store {store_file}", locks_inode=True)
    if not await _take_store_lock(store_lock, options):
        return
    is_empty = False
    try:
        is_empty = await _serve_own_store(options, store_file, ready, store_lock, seam)
    finally:
        if options.user and is_empty:
            _remove_store_files(options, store_file)
        store_lock.release()
        if options.user and is_empty:
            with contextlib.suppress(OSError):
                options.socket.parent.rmdir()


async def _take_store_lock(store_lock: Lock, options: ServingOptions) -> bool:
    """Take the lock of the store. Return whether this server has it.

    A user's second server gives way to a first one that answers, and gets False.
    """
    deadline = time.monotonic() + _LOCK_WAIT_S
    while True:
        try:
            store_lock.take()
            return True
        except AlreadyExists:
            if not options.user or time.monotonic() > deadline:
                raise
            if _socket_answers(options.socket):
                return False
            await asyncio.sleep(0.02)


async def _serve_shared(
    options: ServingOptions,
    on_ready: Callable[[Server, ServedHardware], None],
    seam: StoreAndDrivers,
) -> None:
    stop_event = asyncio.Event()
    _end_on_signals(stop_event)
    server_name = owner_name(options.listen.host or "", options.listen.port)

    def open_anew() -> SharedStore:
        store = open_store(options.storage, owner=server_name, ttl=LEASE_TTL_S)
        if not isinstance(store, SharedStore):  # a store of another package
            store = cast(SharedStore, UnsharedStore(store))
        return cast(SharedStore, seam.store(store))

    store = open_anew()
    standby = Standby()
    server = _server_for(options, cast(Controller, standby), store)

    def chosen(opened_store: Opened) -> ServedHardware:
        hardware = _chosen_hardware(opened_store.records, options)
        if is_secure(opened_store.records):
            server.make_secure()
        return hardware

    await serve_shared(
        store,
        server,
        standby,
        choose_hardware=chosen,
        on_ready=on_ready,
        stop_event=stop_event,
        wait_for_end=lambda read_failure: _wait_for_end(stop_event, read_failure),
        machines=_machine_connections(options, lambda: server.calls.identity.secure),
        drivers=seam.drivers,
        visible=options.visible,
        weights=options.weights,
        open_handle=open_anew,
    )


def _chosen_hardware(
    store_records: Mapping[tuple[str, str], bytes], options: ServingOptions
) -> ServedHardware:
    return choose(
        store_records,
        preset_name=options.preset,
        cluster_files=options.files,
        simulate_if_none=options.user,
        store_name=shown_place(options.storage),
    )


def _machine_connections(
    options: ServingOptions, requires_identity: Callable[[], bool]
) -> Machines:
    return replace(
        reach(
            options.agent_key,
            options.silence,
            options.interfaces,
            own_key=options.own_key,
            certs=options.listen.certs,
            secure=requires_identity,
        ),
        administrators=options.administrators,
        fabric=fabric_driver(options.fabric),
    )


async def _wait_for_end(
    stop_event: asyncio.Event, read_failure: Callable[[], PodwrightError | None]
) -> None:
    while not stop_event.is_set() and read_failure() is None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop_event.wait(), 0.5)


def _server_for(
    options: ServingOptions, controller: Controller, store: Store, *, secure: bool = False
) -> Server:
    server = Server(
        controller,
        options.listen,
        page_options=replace(
            options.page,
            history=store.history(),
            standbys=lambda: getattr(store, "standbys", None),
            pod=options.page.pod or pod_name(options.storage, socket.gethostname()),
        ),
        identity=Identity(
            secure=secure or options.secure,
            munge=None if options.munge is None else find_munge(options.munge),
        ),
        # The controller is read at each call, since a standby serves another one after a takeover.
        extra_counters=lambda: {"commits": store.commits, **server.controller.moves},
    )
    return server


async def _reopen_store(
    stop_event: asyncio.Event, store_file: Path, make_controller: Callable[[Store], Controller]
) -> Controller | None:
    """Return a controller over the store once the disk has room again; None when asked to stop.

    Raises wire.PodwrightError for any other reason why the store cannot be opened.
    """
    while not stop_event.is_set():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop_event.wait(), _DISK_RETRY_S)
            return None
        store = SQLiteStore(store_file)
        try:
            opened_store = await store.open()
        except Unavailable as error:
            if not error.data.get("full"):
                raise
            continue
        controller = make_controller(store)
        try:
            await controller.start(opened_store)
        except Unavailable as error:  # there was room to open the store, but for no more
            if not error.data.get("full"):
                raise
            continue
        return controller
    return None


async def _serve_own_store(
    options: ServingOptions,
    store_file: Path,
    on_ready: Callable[[Server, ServedHardware], None],
    store_lock: Lock,
    seam: StoreAndDrivers,
) -> bool:
    stop_event = asyncio.Event()
    _end_on_signals(stop_event)
    store: Store = SQLiteStore(store_file, connect=seam.connect)
    opened_store: Opened | None = None
    full_store: Unavailable | None = None
    if store_file.exists():  # noqa: ASYNC240 (one look)
        try:
            opened_store = await store.open()
        except Unavailable as error:
            if not error.data.get("full"):
                raise
            full_store = error
            store = await _read_only_store(SQLiteStore(store_file), error)
            opened_store = await store.open()
    try:
        with start_without_gc():
            store_records = opened_store.records if opened_store is not None else {}
            secure = is_secure(store_records)
            hardware = _chosen_hardware(store_records, options)
            del store_records
            opened, store, drivers = store, seam.store(store), seam.drivers(hardware)

            def make(store: Store) -> Controller:
                return Controller(
                    store,
                    hardware.clusters,
                    drivers,
                    version=__version__,
                    machines=_machine_connections(options, lambda: options.secure or secure),
                    visible=(options.visible or Visible()).settled(secure=options.secure or secure),
                    weights=options.weights,
                    own_host=ThisHost(hardware.local),
                )

            controller = make(store)
            server = _server_for(options, controller, store, secure=secure)
            await server.start(opened_store if store is opened else None)
            opened_store = None  # a large pod's records are many bytes
            store_lock.hold()  # it may have been created just now
    except BaseException:
        await store.close()
        raise
    store_failure: PodwrightError | None = None
    idle_task = None
    try:
        if full_store is None:
            await hardware.remember(store)
        on_ready(server, hardware)
        if options.idle is not None:
            idle_task = asyncio.create_task(_end_when_idle(server, options.idle, stop_event))
        while True:
            await _wait_for_end(stop_event, lambda: server.controller.failure)
            store_failure = server.controller.failure
            if store_failure is None or (old_controller := server.controller).read_only is None:
                break
            _event_log.error("read only: %s", store_failure.message)
            store_failure = None  # if it is asked to stop meanwhile, it ends well
            new_controller = await _reopen_store(stop_event, store_file, make)
            if new_controller is None:
                break
            server.adopt(new_controller, lambda: None)
            _event_log.info("the store can be written again: serving as before")
            await old_controller.close()
    finally:
        if idle_task is not None:
            idle_task.cancel()
        is_empty = await server.stop(0.0 if store_failure else STOP_GRACE_S)
    if store_failure is not None:
        raise store_failure
    return is_empty


async def _read_only_store(store: SQLiteStore, full_disk_error: Unavailable) -> ReadOnlyStore:
    """Return the content of a store on a full disk.

    Raises wire.Unavailable as `SQLiteStore.peek` does.
    """
    return ReadOnlyStore(store.name, await store.peek_alone(), full_disk_error, store.history())


async def _end_when_idle(server: Server, idle_seconds: float, stop_event: asyncio.Event) -> None:
    await server.wait_until_idle(idle_seconds)
    stop_event.set()


def _end_on_signals(stop_event: asyncio.Event) -> None:
    """End the server gracefully at the first signal, and at once at the second.

    Ending at once is safe, since the server survives a crash.
    """

    def end(signal_number: int) -> None:
        if stop_event.is_set():
            os._exit(128 + signal_number)
        _log.info("%s: ending", signal.Signals(signal_number).name)
        stop_event.set()

    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, end, signal_number)


def _socket_answers(socket_path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(str(socket_path)) == 0


def _remove_store_files(options: ServingOptions, store_file: Path) -> None:
    """Remove the empty store of a user's server, and the files that commands left beside it."""
    for suffix in ("", "-wal", "-shm", "-history", "-history-journal"):
        store_file.with_name(store_file.name + suffix).unlink(missing_ok=True)
    for name in _LEFTOVER_FILES:
        (options.socket.parent / name).unlink(missing_ok=True)
