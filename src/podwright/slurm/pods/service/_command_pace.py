"""How soon one of Slurm's commands follows another: a burst of jobs is answered by few of them.

Each costs slurmctld and this host what a short job costs, and answers however many ask meanwhile.
So one that follows another waits for as long as that took, twice; the first after a while does not
wait at all. A Slurm that is slow is thereby asked less often.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_TIMES = 2.0
#: Seconds, at most: a command may take long for other reasons than load.
_MOST = 0.3


class CommandPace:
    """Of commands that run one at a time. clock: seconds, never backwards."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due = float("-inf")

    async def turn(self) -> None:
        """Return when the next one may run."""
        left = self._due - self._clock()
        if left > 0:
            await asyncio.sleep(left)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Around it."""
        began = self._clock()
        try:
            yield
        finally:
            now = self._clock()
            self._due = now + min(_MOST, _TIMES * (now - began))
