"""The launches that the server can see on its own host: their processes, by the mark they carry."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Container

from podwright.hosts import is_here, marked, run_lives
from podwright.wire import RUN_VARIABLE


class ThisHost:
    """Implements controller.OwnHost. machines: those whose devices are in this host."""

    def __init__(self, machines: Container[str]) -> None:
        self._machines = machines

    def is_here(self, host: str) -> bool:
        """See `OwnHost.is_here`."""
        return is_here(host)

    def has(self, machine: str) -> bool:
        """See `OwnHost.has`."""
        return machine in self._machines

    def is_gone(self, run: str, uid: int) -> bool:
        """See `OwnHost.is_gone`. Only root can read the environments of other users' processes."""
        if os.geteuid() not in (0, uid):
            return False
        return not marked(RUN_VARIABLE, run)

    async def lives(self, run: str, uid: int) -> bool | None:
        """See `OwnHost.lives`.

        It runs in a thread, since it takes many milliseconds on a busy host.
        """
        if os.geteuid() not in (0, uid):
            return None
        return await asyncio.to_thread(run_lives, RUN_VARIABLE, run)
