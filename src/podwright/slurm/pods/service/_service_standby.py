"""Two services, one active: beside each slurmctld of a Slurm that has several stands one of ours.

The active one answers hooks and tells Slurm what to count. The others say `standby`, and hooks go
on to the next address. Each asks the others once in a while which they are: the first of the list
that answers takes over from one that is silent, and one that finds an active one before it steps
down. That two are active for a moment, each cut off from the other, costs a little exactness in
what Slurm counts and nothing else: the server alone gives devices, and takes back only what is
still held for the very start that it is named (RemoveRequest.job).
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import http.client
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from podwright.hosts import MungeError
from podwright.http import Reply
from podwright.slurm.pods.service._hook_identity import WORD, HookIdentity

#: Seconds between two questions, and after which one that does not answer counts as gone.
ASK_S: Final = 0.5
SILENT_S: Final = 3.0
_TIMEOUT_S: Final = 1.5
#: Bytes of an answer that are read.
LONGEST_ROLE: Final = 512
PATH: Final = "/slurm.v1/Role"


class StandbyRole(enum.Enum):
    """What a service is to the others. UNKNOWN: it has not answered yet. GONE: not for long."""

    ACTIVE = "active"
    STANDBY = "standby"
    UNKNOWN = "unknown"
    GONE = "gone"


def role_of(place: int, now: StandbyRole, others: Mapping[int, StandbyRole]) -> StandbyRole:
    """What the service at `place` in the list is from here on. Pure."""
    active = [at for at, role in others.items() if role is StandbyRole.ACTIVE]
    if now is StandbyRole.ACTIVE:
        return StandbyRole.STANDBY if any(at < place for at in active) else StandbyRole.ACTIVE
    waits_for = [at for at, role in others.items() if at < place and role is StandbyRole.STANDBY]
    unsure = StandbyRole.UNKNOWN in others.values()
    return StandbyRole.STANDBY if active or waits_for or unsure else StandbyRole.ACTIVE


class Peers:
    """The others, and what that makes us.

    addresses: of all, HOST:PORT, in the order that all of them have. place: ours among them.
    ask: what one says it is; raises OSError where it does not answer. clock: seconds.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        place: int,
        clock: Callable[[], float],
        ask: Callable[[str], Awaitable[StandbyRole]],
    ) -> None:
        self.role = StandbyRole.STANDBY
        self._addresses, self._place, self._clock = addresses, place, clock
        self._ask = ask
        others = [at for at in range(len(addresses)) if at != place]
        self._said = dict.fromkeys(others, StandbyRole.UNKNOWN)
        self._heard = dict.fromkeys(others, clock())

    @property
    def active(self) -> str:
        """The address of the active one; empty: nobody that we know of."""
        if self.role is StandbyRole.ACTIVE:
            return self._addresses[self._place]
        known = (at for at, role in self._said.items() if role is StandbyRole.ACTIVE)
        return next((self._addresses[at] for at in known), "")

    async def become(self, role: StandbyRole) -> None:
        """Return when we are that."""
        while self.role is not role:
            await asyncio.gather(*map(self._hear, self._said))
            self.role = role_of(self._place, self.role, self._said)
            if self.role is not role:
                await asyncio.sleep(ASK_S)

    async def _hear(self, at: int) -> None:
        try:
            self._said[at] = await self._ask(self._addresses[at])
            self._heard[at] = self._clock()
        except (OSError, http.client.HTTPException, MungeError) as error:
            if isinstance(error, MungeError) and error.absent:
                return  # we cannot ask anybody: that says nothing of them
            if self._clock() - self._heard[at] >= SILENT_S:
                self._said[at] = StandbyRole.GONE


async def ask_role(address: str, identity: HookIdentity) -> StandbyRole:
    """What the service at HOST:PORT says it is. Raises OSError, HTTPException, MungeError."""
    shown = await identity.shown(PATH)
    reply = await asyncio.to_thread(_asked, address, shown)
    if not await identity.believes(reply, shown):
        raise http.client.HTTPException(f"{address}: it is not Slurm's user who says so")
    assert isinstance(reply.body, bytes)
    role, _, at = reply.body.decode(errors="replace").strip().partition(" ")
    if at != address:  # somebody there hands on what another says
        raise http.client.HTTPException(f"{address}: the word of {at}")
    try:
        return StandbyRole(role)
    except ValueError:
        raise http.client.HTTPException(f"{address}: {role} is no role") from None


def _asked(address: str, shown: str) -> Reply:
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=_TIMEOUT_S)
    with contextlib.closing(connection):
        connection.request("GET", PATH, headers={"Authorization": shown})
        answer = connection.getresponse()
        word = answer.getheader("Authentication-Info", "").encode("latin-1", "replace")
        return Reply(answer.status, answer.read(LONGEST_ROLE), headers=((WORD, word),))
