"""Work that is repeated until it succeeds, without a line in the log for each failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from podwright.errors import PodwrightError


async def until_done(
    work: Callable[[], Awaitable[None]], pause_s: float, warn: Callable[[str], None]
) -> None:
    """Repeat `work` until it raises no PodwrightError, in pauses of `pause_s` seconds.

    warn: takes a problem that is another than the one before.
    """
    problem = ""
    while True:
        try:
            await work()
            return
        except PodwrightError as error:
            if str(error) != problem:
                problem = str(error)
                warn(problem)
            await asyncio.sleep(pause_s)
