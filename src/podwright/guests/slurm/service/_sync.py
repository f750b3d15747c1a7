"""Keeps Slurm's licence counts true: one reservation hides all licences that nobody can have now.

However many callers ask at once, one scontrol runs at a time. It reports the counts at the moment
when it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from podwright.errors import PodwrightError, Unavailable
from podwright.guests.slurm.service._pods import MARK
from podwright.slurm.site.commands import CommandResult, Slurm

_log = logging.getLogger("podwright.slurm")

RESERVATION = "podwright"
_RETRY = 0.2


class Counts:
    """Reports counts to Slurm. hidden: returns how many of each licence must be hidden now."""

    def __init__(self, slurm: Slurm, hidden: Callable[[], Mapping[str, int]]) -> None:
        self._slurm = slurm
        self._hidden = hidden
        self._wanted = self._done = 0
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self.last_hidden: dict[str, int] = {}
        self.updates = 0
        self.problem = ""

    async def synced(self, timeout: float = 15.0) -> None:
        """Return when Slurm has been told the present state, or a later one. Raises Unavailable
        after `timeout` seconds.
        """
        self._wanted += 1
        ticket = self._wanted
        self._wake.set()
        try:
            async with self._changed:
                await asyncio.wait_for(
                    self._changed.wait_for(lambda: self._done >= ticket), timeout
                )
        except TimeoutError:
            raise Unavailable(f"Slurm was not told: {self.problem or 'it is slow'}") from None

    def poke(self) -> None:
        """Report the present state to Slurm soon, without waiting for it."""
        self._wanted += 1
        self._wake.set()

    async def run(self) -> None:
        """Send updates until cancelled.

        Each request raises `_wanted`. `upto` is read before the counts are computed, so an update
        serves exactly the requests that came before it. A request that comes meanwhile sets the
        event again, and the next update serves it.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            upto = self._wanted
            try:
                await self.update(dict(self._hidden()))
            except PodwrightError as error:
                if self.problem != str(error):
                    _log.warning("%s", error)
                self.problem = str(error)
                await asyncio.sleep(_RETRY)
                self._wake.set()
                continue
            self.problem = ""
            async with self._changed:
                self._done = max(self._done, upto)
                self._changed.notify_all()

    async def update(self, hidden: Mapping[str, int]) -> None:
        """Send one update, and make the reservation where it is missing. Raises Unavailable."""
        # A licence that is not named is not hidden. Slurm 26.05 refuses an empty reservation, and
        # takes zeros alone for one. One of the marks is then hidden: there are more than enough.
        licences = {name: count for name, count in hidden.items() if count} or {MARK: 1}
        setting = "licenses=" + ",".join(f"{name}:{count}" for name, count in licences.items())
        name = f"reservationname={RESERVATION}"
        # Slurm gives a reservation without an end one year, which each update renews.
        reply = await self._slurm.run("scontrol", "update", name, setting, "duration=UNLIMITED")
        if reply.code and _missing(reply):
            reply = await self._slurm.run(
                *["scontrol", "create", "reservation", name, "flags=LICENSE_ONLY"],
                *["starttime=now", "duration=UNLIMITED", "users=root", setting],
            )
        if reply.code:
            raise Unavailable(f"reservation {RESERVATION} was not updated: {reply.text[:300]}")
        self.last_hidden = dict(hidden)
        self.updates += 1


def _missing(reply: CommandResult) -> bool:
    # Slurm 22.05 to 26.05: "Requested reservation is invalid", ESLURM_RESERVATION_INVALID.
    return "reservation is invalid" in reply.text.lower()
