"""Keeps Slurm's licence counts true: one reservation hides all licences that nobody can have now.

However many callers ask at once, one scontrol runs at a time. It reports the counts at the moment
when it starts.

Nobody waits for an update that only lets Slurm give out more. Such updates are gathered: each is a
command, and slurmctld looks at its whole queue after it. An ended job's licences come back when its
epilog has returned, and Slurm does not look at its queue then. So the gathered update, which comes
a little later, is also what lets waiting jobs start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping

from podwright.errors import PodwrightError, Unavailable
from podwright.guests.slurm.service._pods_and_licences import JOB_MARK_LICENCE
from podwright.slurm.site.commands import CommandResult, Slurm

_log = logging.getLogger("podwright.slurm")

RESERVATION_NAME = "podwright"
_RETRY_PAUSE_S = 0.2
#: Seconds in which updates that nobody waits for are gathered.
GATHER_S = 0.2


class LicenceCounts:
    """Reports counts to Slurm. hidden: returns how many of each licence must be hidden now."""

    def __init__(self, slurm: Slurm, hidden: Callable[[], Mapping[str, int]]) -> None:
        self._slurm = slurm
        self._hidden = hidden
        self._wanted = self._done = 0
        self._wake, self._hurry = asyncio.Event(), asyncio.Event()
        self._changed = asyncio.Condition()
        self.last_hidden: dict[str, int] = {}
        self._least_hidden: dict[str, int] = {}  # less than this is certainly not hidden in Slurm
        self.updates = 0
        self.problem = ""

    async def wait_until_synced(self, timeout_s: float = 15.0) -> None:
        """Return when Slurm has been told the present state, or a later one. Raises Unavailable
        after `timeout_s` seconds.
        """
        self.poke()
        number = self._wanted
        self._hurry.set()
        try:
            async with self._changed:
                await asyncio.wait_for(
                    self._changed.wait_for(lambda: self._done >= number), timeout_s
                )
        except TimeoutError:
            raise Unavailable(f"Slurm was not told: {self.problem or 'it is slow'}") from None

    async def wait_until_safe(self) -> None:
        """Return when Slurm gives out nothing that is not free. It is told soon what more it may.
        Raises Unavailable.
        """
        self.poke()
        if any(count > self._least_hidden.get(name, 0) for name, count in self._hidden().items()):
            await self.wait_until_synced()

    def poke(self) -> None:
        """Report the present state to Slurm soon, without waiting for it."""
        self._wanted += 1
        self._wake.set()

    async def run(self) -> None:
        """Send updates until cancelled.

        Each request raises `_wanted`. `requests_served` is read before the counts are computed, so
        an update serves exactly the requests that came before it. A request that comes meanwhile
        sets the event again, and the next update serves it.
        """
        while True:
            await self._wake.wait()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._hurry.wait(), GATHER_S)
            self._wake.clear()
            self._hurry.clear()
            requests_served = self._wanted
            try:
                await self.update(dict(self._hidden()))
            except PodwrightError as error:
                if self.problem != str(error):
                    _log.warning("%s", error)
                self.problem = str(error)
                await asyncio.sleep(_RETRY_PAUSE_S)
                self._wake.set()
                self._hurry.set()
                continue
            self.problem = ""
            async with self._changed:
                self._done = max(self._done, requests_served)
                self._changed.notify_all()

    async def update(self, hidden_by_licence: Mapping[str, int]) -> None:
        """Send one update, and make the reservation where it is missing. Raises Unavailable."""
        # A licence that is not named is not hidden. Slurm 26.05 refuses an empty reservation, and
        # takes zeros alone for one. One of the marks is then hidden: there are more than enough.
        hidden_licences = {name: count for name, count in hidden_by_licence.items() if count} or {
            JOB_MARK_LICENCE: 1
        }
        licences_setting = "licenses=" + ",".join(
            f"{name}:{count}" for name, count in hidden_licences.items()
        )
        # Until Slurm has answered, either the last update or this one is in force.
        self._least_hidden = {
            name: min(count, self._least_hidden.get(name, 0))
            for name, count in hidden_by_licence.items()
        }
        licence_name = f"reservationname={RESERVATION_NAME}"
        # Slurm gives a reservation without an end one year, which each update renews.
        slurm_reply = await self._slurm.run(
            "scontrol", "update", licence_name, licences_setting, "duration=UNLIMITED"
        )
        if slurm_reply.code and _reservation_is_missing(slurm_reply):
            slurm_reply = await self._slurm.run(
                *["scontrol", "create", "reservation", licence_name, "flags=LICENSE_ONLY"],
                *["starttime=now", "duration=UNLIMITED", "users=root", licences_setting],
            )
        if slurm_reply.code:
            raise Unavailable(
                f"reservation {RESERVATION_NAME} was not updated: {slurm_reply.text[:300]}"
            )
        self.last_hidden = self._least_hidden = dict(hidden_by_licence)
        self.updates += 1


def _reservation_is_missing(slurm_reply: CommandResult) -> bool:
    # Slurm 22.05 to 26.05: "Requested reservation is invalid", ESLURM_RESERVATION_INVALID.
    return "reservation is invalid" in slurm_reply.text.lower()
