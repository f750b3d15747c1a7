"""A server that kills itself at a step: `python -P kill_point.py commit:17:before ARGUMENTS`.

`kill -9` from outside hits a random instant. The instant between two given steps can be reached
only from inside. The nth commit, SQL statement or call to a machine after the server's start is the
last thing that the server does (`after`), or is never done (`before`). Without a step (an empty
text) the server goes on. ARGUMENTS are those of vipu-server.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from podwright import server
from podwright.agents import Driver
from podwright.cli import vipu_server
from podwright.server import ServedHardware
from podwright.server._server_process import StoreAndDrivers
from podwright.store import Change


class KillPoint:
    """Counts one kind of step, and kills this process at the nth. It counts only after the
    hardware's drivers were made.
    """

    def __init__(self, fault: str) -> None:
        self._kind, nth, when = fault.split(":")
        self._left, self._after = int(nth), when == "after"
        self._armed = False

    def seam(self) -> StoreAndDrivers:
        """Return a store and drivers whose steps are counted."""
        return StoreAndDrivers(self.connect(), self.store, self.drivers)

    def before(self, step_kind: str) -> bool:
        """Count a step that is about to be done. Return whether it is the last one."""
        if not self._armed or step_kind != self._kind:
            return False
        self._left -= 1
        if self._left:
            return False
        if not self._after:
            die()
        return True

    def store(self, store: Any) -> Any:
        """Return the store, with its commits counted."""
        return _CountedStore(store, self)

    def drivers(self, hardware: ServedHardware) -> dict[str, Driver]:
        """Return the drivers, with their calls counted. From now on all steps are counted."""
        assert all(cluster.simulated for cluster in hardware.clusters)
        self._armed = True
        return {name: _CountedDriver(driver, self) for name, driver in hardware.drivers().items()}

    def connect(self) -> Callable[..., sqlite3.Connection]:
        """Return a replacement for sqlite3.connect that counts the statements."""
        point = self

        class Connection(sqlite3.Connection):
            def execute(self, *sql_arguments: Any) -> sqlite3.Cursor:
                is_kill_step = point.before("statement")
                cursor = super().execute(*sql_arguments)
                if is_kill_step:
                    die()
                return cursor

        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            return sqlite3.connect(*arguments, **options, factory=Connection)

        return connect


def die() -> None:
    """Kill this process, as `kill -9` from outside does: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


class _CountedStore:
    """A store whose commits are counted."""

    def __init__(self, real_store: Any, kill_point: KillPoint) -> None:
        self._inner, self._kill_point = real_store, kill_point

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)

    async def commit(self, changes: Sequence[Change]) -> None:
        is_kill_step = self._kill_point.before("commit")
        await self._inner.commit(changes)
        if is_kill_step:
            die()


class _CountedDriver:
    """A driver whose calls are counted, except those that only read."""

    def __init__(self, real_driver: Driver, kill_point: KillPoint) -> None:
        self._inner, self._kill_point = real_driver, kill_point

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._inner, attribute)

    async def describe(self) -> Any:
        return await self._inner.describe()

    async def configure(self, partition: str, epoch: int, devices: Sequence[int]) -> None:
        is_kill_step = self._kill_point.before("driver")
        await self._inner.configure(partition, epoch, devices)
        if is_kill_step:
            die()

    async def reset(self, epoch: int, devices: Sequence[int]) -> None:
        is_kill_step = self._kill_point.before("driver")
        await self._inner.reset(epoch, devices)
        if is_kill_step:
            die()

    async def release(self, epoch: int, devices: Sequence[int]) -> None:
        is_kill_step = self._kill_point.before("driver")
        await self._inner.release(epoch, devices)
        if is_kill_step:
            die()


if __name__ == "__main__":
    fault, *arguments = sys.argv[1:]
    if fault:
        server.serve = partial(server.serve, seam=KillPoint(fault).seam())
    sys.exit(vipu_server.main(arguments))
