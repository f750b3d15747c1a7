"""What the server can see of launches on its own host: their processes, by the mark they carry."""

from __future__ import annotations

import os
from collections.abc import Container

from podwright.hosts import is_here, marked
from podwright.wire import RUN_VARIABLE


class ThisHost:
    """Implements controller.Here. machines: those whose devices sit in this host."""

    def __init__(self, machines: Container[str]) -> None:
        self._machines = machines

    def is_here(self, host: str) -> bool:
        """See `Here.is_here`."""
        return is_here(host)

    def has(self, machine: str) -> bool:
        """See `Here.has`."""
        return machine in self._machines

    def is_gone(self, run: str, uid: int) -> bool:
        """See `Here.is_gone`. The environments of others' processes are root's to read alone."""
        if os.geteuid() not in (0, uid):
            return False
        return not marked(RUN_VARIABLE, run)
