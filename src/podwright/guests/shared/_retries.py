"""Work that is repeated until it succeeds, without a line in the log for each failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from podwright.errors import PodwrightError

_T = TypeVar("_T")


async def until_done(
    work: Callable[[], Awaitable[_T]], pause_s: float, warn: Callable[[str], None]
) -> _T:
    """Repeat `work` until it raises no PodwrightError, in pauses of `pause_s` seconds.

    warn: takes a problem that is another than the one before.
    """
    problem = ""
    while True:
        try:
            return await work()
        except PodwrightError as error:
            if str(error) != problem:
                problem = str(error)
                warn(problem)
            await asyncio.sleep(pause_s)
