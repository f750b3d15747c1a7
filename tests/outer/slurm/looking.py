"""Looks that a test takes at a lab all the while, beside what it does."""

from __future__ import annotations

import threading
from typing import Self


class Looking:
    """`look` is called again and again in a thread, at least once, until the end of a `with`."""

    #: Seconds from one look to the next.
    every = 0.3

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def look(self) -> None:
        """Once. What it raises fails the test."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        over = False
        while not over:
            over = self._stop.wait(self.every)
            self.look()
