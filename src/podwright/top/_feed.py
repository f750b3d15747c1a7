"""What `top` sees and does: a server's lists as one snapshot, and the few acts it offers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from podwright.client import Client
from podwright.page import Snapshot, take
from podwright.wire import METHODS


class Feed:
    """One server, asked by one thread at a time: a client takes one call after another."""

    def __init__(self, client: Client, now: Callable[[], float] = time.time) -> None:
        self._client, self._now = client, now
        self._lock = threading.Lock()
        self.info = client.get_server_info()

    def look(self) -> Snapshot:
        """All that the caller may see. Raises wire.PodwrightError."""

        async def ask(method: str) -> Any:
            return self._client.call(method, METHODS[method].request())

        with self._lock:
            return asyncio.run(take(ask, self._now))

    def explain(self, name: str) -> list[str]:
        """How a waiter, lease or partition stands, a sentence each. Raises wire.PodwrightError."""
        with self._lock:
            found = self._client.explain(name)
        told = [found.problem, *found.lines, found.would_work and f"Would work: {found.would_work}"]
        return [line for line in dict.fromkeys(told) if line] or ["It starts now."]

    def drain(self, machine: str) -> None:
        """Let a machine take nothing new. Raises wire.PodwrightError."""
        with self._lock:
            self._client.drain_machine(machine)

    def resume(self, machine: str) -> None:
        """Let a machine serve again. Raises wire.PodwrightError."""
        with self._lock:
            self._client.resume_machine(machine)
