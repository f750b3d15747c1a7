"""The data and the actions of `top`: a server's lists as one snapshot, and a few calls."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

from podwright.client import Client
from podwright.page import Snapshot, take
from podwright.wire import METHODS, MachineName


class Feed:
    """One server. Only one thread may use it: a client makes one call after another."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.time) -> None:
        self._client, self._now = client, clock
        self._lock = threading.Lock()
        self.info = client.get_server_info()

    def snapshot(self) -> Snapshot:
        """Return everything that the caller may see. Raises wire.PodwrightError."""

        async def ask(method: str) -> Any:
            return self._client.call(method, METHODS[method].request())

        with self._lock:
            return asyncio.run(take(ask, self._now))

    def explain(self, name: str) -> list[str]:
        """Return the state of a waiter, lease or partition in sentences. Raises
        wire.PodwrightError.
        """
        with self._lock:
            explanation = self._client.explain(name)
        explanation_lines = [
            explanation.problem,
            *explanation.lines,
            explanation.would_work and f"Would work: {explanation.would_work}",
        ]
        return [line for line in dict.fromkeys(explanation_lines) if line] or ["It starts now."]

    def drain(self, machine: str) -> None:
        """Let a machine take nothing new. Raises wire.PodwrightError."""
        with self._lock:
            self._client.call("DrainMachine", MachineName(name=machine))

    def resume(self, machine: str) -> None:
        """Let a machine serve again. Raises wire.PodwrightError."""
        with self._lock:
            self._client.call("ResumeMachine", MachineName(name=machine))
