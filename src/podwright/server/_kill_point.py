"""A server that kills itself at a step that a test names: `PODWRIGHT_FAULT=commit:17:before`.

`kill -9` from outside hits a random instant. The instant between two given steps can be reached
only from inside. The nth commit, SQL statement or call to a machine after the server's start is the
last thing that the server does (`after`), or is never done (`before`). Only a server whose hardware
is simulated accepts it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from podwright.agents import Driver
from podwright.errors import Denied, InvalidRequest
from podwright.store import Change

if TYPE_CHECKING:
    import sqlite3

    from podwright.server.machines._served_hardware import ServedHardware

FAULT_VARIABLE = "PODWRIGHT_FAULT"
_STEP_KINDS = ("commit", "driver", "statement")


class KillPoint:
    """Counts one kind of step, and kills this process at the nth. It counts only after `arm`."""

    def __init__(self, step_kind: str, nth: int, *, after: bool) -> None:
        self._kind, self._left, self._after = step_kind, nth, after
        self._armed = False

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> KillPoint | None:
        """Return the fault that the environment asks for. Raises wire.InvalidRequest."""
        fault_text = environ.get(FAULT_VARIABLE, "")
        if not fault_text:
            return None
        step_kind, _, position_text = fault_text.partition(":")
        step_number, _, before_or_after = position_text.partition(":")
        if (
            step_kind not in _STEP_KINDS
            or not step_number.isdecimal()
            or before_or_after not in ("before", "after")
        ):
            raise InvalidRequest(
                f"{FAULT_VARIABLE}={fault_text!r} names no step",
                would_work="commit:N:before, or after, and driver or statement in place of commit",
            )
        return cls(step_kind, int(step_number), after=before_or_after == "after")

    def arm(self, hardware: ServedHardware) -> None:
        """Count from now on. Raises wire.Denied unless all the hardware is simulated."""
        if not all(cluster.simulated for cluster in hardware.clusters):
            raise Denied(
                f"{FAULT_VARIABLE} kills the server, and its hardware is real",
                would_work=f"unset {FAULT_VARIABLE}; it is for tests",
            )
        self._armed = True

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

    def drivers(self, drivers: Mapping[str, Driver]) -> dict[str, Driver]:
        """Return the drivers, with their calls counted."""
        return {
            machine_name: _CountedDriver(driver, self) for machine_name, driver in drivers.items()
        }

    def connect(self) -> Callable[..., sqlite3.Connection]:
        """Return a replacement for sqlite3.connect that counts the statements."""
        import sqlite3

        kill_point = self

        class Connection(sqlite3.Connection):
            def execute(self, *sql_arguments: Any) -> sqlite3.Cursor:
                is_kill_step = kill_point.before("statement")
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
