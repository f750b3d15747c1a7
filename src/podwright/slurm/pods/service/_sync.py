"""Keeps what Slurm counts true: one reservation that hides all licences that cannot be had.

However many ask at once, one scontrol runs at a time, and it tells what is true when it starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from podwright.errors import PodwrightError, Unavailable
from podwright.slurm.pods.service._pods import MARK
from podwright.slurm.site.commands import CommandResult, Slurm

_log = logging.getLogger("podwright.slurm")

RESERVATION = "podwright"
_RETRY = 0.2


class Counts:
    """hidden: what must be hidden now."""

    def __init__(self, slurm: Slurm, hidden: Callable[[], Mapping[str, int]]) -> None:
        self._slurm = slurm
        self._hidden = hidden
        self._wanted = self._done = 0
        self._wake = asyncio.Event()
        self._changed = asyncio.Condition()
        self.told: dict[str, int] = {}
        self.updates = 0
        self.problem = ""

    async def synced(self, timeout: float = 15.0) -> None:
        """Return when Slurm has been told what is true now, or later. Raises Unavailable."""
        self._wanted += 1
        mine = self._wanted
        self._wake.set()
        try:
            async with self._changed:
                await asyncio.wait_for(self._changed.wait_for(lambda: self._done >= mine), timeout)
        except TimeoutError:
            raise Unavailable(f"Slurm was not told: {self.problem or 'it is slow'}") from None

    def poke(self) -> None:
        """Tell Slurm what is true, without waiting for it."""
        self._wanted += 1
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            upto = self._wanted
            try:
                await self.tell(dict(self._hidden()))
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

    async def tell(self, hidden: Mapping[str, int]) -> None:
        """One update; the reservation is made where it is missing. Raises Unavailable."""
        # What is not named is not hidden. Slurm 26.05 refuses a reservation of nothing, and counts
        # zeros as that: then one of the marks is hidden, of which there are more than jobs.
        some = {name: count for name, count in hidden.items() if count} or {MARK: 1}
        what = "licenses=" + ",".join(f"{name}:{count}" for name, count in some.items())
        name = f"reservationname={RESERVATION}"
        # Without an end Slurm gives it a year: each update renews that.
        said = await self._slurm.run("scontrol", "update", name, what, "duration=UNLIMITED")
        if said.code and _missing(said):
            said = await self._slurm.run(
                *["scontrol", "create", "reservation", name, "flags=LICENSE_ONLY"],
                *["starttime=now", "duration=UNLIMITED", "users=root", what],
            )
        if said.code:
            raise Unavailable(f"reservation {RESERVATION} was not updated: {said.text[:300]}")
        self.told = dict(hidden)
        self.updates += 1


def _missing(said: CommandResult) -> bool:
    # Slurm 22.05 to 26.05: "Requested reservation is invalid", ESLURM_RESERVATION_INVALID.
    return "reservation is invalid" in said.text.lower()
