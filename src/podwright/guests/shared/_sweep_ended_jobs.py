"""The sweep: the guest's own list of jobs against the books, for what was missed.

It never touches a job that lives, and where the guest's scheduler does not answer, nothing at all.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar

from podwright.guests.shared._block_holdings import Book, Holding
from podwright.guests.shared._guest_interface import Guest
from podwright.guests.shared._job_locks import Locks

_log = logging.getLogger("podwright.guests")

K = TypeVar("K", bound=Hashable)
J = TypeVar("J")
H = TypeVar("H", bound=Holding[Any])


async def sweep(
    guest: Guest[K, J, H], books: Mapping[str, Book[K, H]], locks: Locks[K]
) -> tuple[Mapping[K, J], int]:
    """End what jobs hold that are over. Returns the guest's jobs, and how many held something.

    A holding that changed after the jobs were asked for is left to the next sweep.
    Raises wire.PodwrightError; what is left over is the next one's, too.
    """
    ticks_by_pod = {pod: book.tick() for pod, book in books.items()}
    in_progress = guest.in_progress()
    jobs = await guest.jobs()
    ended_count = 0
    for pod, book in books.items():
        for holding in list(book.holdings.values()):
            if holding.changed >= ticks_by_pod[pod] or not guest.is_over(
                holding, jobs, in_progress
            ):
                continue
            was_made = holding.created
            async with locks(holding.job):
                if book.holdings.get(holding.job) is holding and holding.created == was_made:
                    _log.warning("job %s is over and held %d devices", holding.job, holding.size)
                    await guest.give_back(book, holding)
                    ended_count += 1
    return jobs, ended_count
