"""One thing at a time for a job, and a wait for what others give back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)


class Locks(Generic[K]):
    """A lock for each job that has something under way."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[K, asyncio.Lock] = WeakValueDictionary()

    def __call__(self, job: K) -> asyncio.Lock:
        """The job's lock."""
        lock = self._locks.get(job)
        if lock is None:
            lock = self._locks[job] = asyncio.Lock()
        return lock


class Freed:
    """Wakes those who wait until devices are given back."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()

    async def notify(self) -> None:
        """Wake all who wait."""
        async with self._condition:
            self._condition.notify_all()

    async def wait(self, seconds: float) -> None:
        """Return when devices were given back, or after this many seconds."""
        async with self._condition:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._condition.wait(), seconds)
