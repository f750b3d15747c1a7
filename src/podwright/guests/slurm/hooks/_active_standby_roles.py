"""Keeps one service active where several run: a Slurm with several slurmctld has one of ours beside
each.

The active service answers hooks and tells Slurm what to count. The others say `standby`, and hooks
go on to the next address. Each service asks the others for their roles every ROLE_POLL_S seconds.
When the active one falls silent, the first one of the list that answers takes over. An active one
that finds another active one before it in the list steps down.

Two services that cannot reach each other may both be active for a moment. That makes Slurm's counts
less exact, and does no other harm: the server alone gives devices, and it takes back only what is
still held for the exact start of the job that the caller names (RemoveRequest.job).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from podwright.guests.slurm.hooks._hook_request_proofs import SIGNATURE_HEADER, HookIdentity
from podwright.guests.slurm.service._hook_job_request import ROLE_PATH
from podwright.hosts import MungeError
from podwright.http import Reply, ask

#: ROLE_POLL_S: seconds between two questions. PEER_SILENCE_S: seconds without a reply until a peer
#: is GONE.
ROLE_POLL_S: Final = 0.5
PEER_SILENCE_S: Final = 3.0
_ROLE_TIMEOUT_S: Final = 1.5
#: The most bytes that are read of a reply.
MAX_ROLE_REPLY_BYTES: Final = 512


class StandbyRole(enum.Enum):
    """A service's role, as the others see it.

    UNKNOWN: it has not answered yet. GONE: it has not answered for PEER_SILENCE_S seconds.
    """

    ACTIVE = "active"
    STANDBY = "standby"
    UNKNOWN = "unknown"
    GONE = "gone"


def next_role(
    own_index: int, own_role: StandbyRole, peer_roles: Mapping[int, StandbyRole]
) -> StandbyRole:
    """Return the role that the service at `own_index` in the list has from here on. Pure.

    own_role: its present role. peer_roles: the roles of the others, by their places. An active
    service gives way only to an active one before it. A standby takes over only when no other is
    active, none before it stands by, and none is UNKNOWN: so after a start nobody takes over before
    everybody has answered or is GONE.
    """
    active_peers = [
        peer_index for peer_index, role in peer_roles.items() if role is StandbyRole.ACTIVE
    ]
    if own_role is StandbyRole.ACTIVE:
        return (
            StandbyRole.STANDBY
            if any(peer_index < own_index for peer_index in active_peers)
            else StandbyRole.ACTIVE
        )
    earlier_standbys = [
        peer_index
        for peer_index, role in peer_roles.items()
        if peer_index < own_index and role is StandbyRole.STANDBY
    ]
    has_unknown = StandbyRole.UNKNOWN in peer_roles.values()
    return (
        StandbyRole.STANDBY
        if active_peers or earlier_standbys or has_unknown
        else StandbyRole.ACTIVE
    )


class Peers:
    """The other services, and the role of this one that follows from theirs.

    addresses: HOST:PORT of all services, in the same order on every host. own_index: the index of
    our own address. ask_peer_role: returns the role of a service; raises OSError where it does not
    answer. clock: returns seconds.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        own_index: int,
        clock: Callable[[], float],
        ask_peer_role: Callable[[str], Awaitable[StandbyRole]],
    ) -> None:
        self.role = StandbyRole.STANDBY
        self._addresses, self._place, self._clock = addresses, own_index, clock
        self._ask = ask_peer_role
        indices = [peer_index for peer_index in range(len(addresses)) if peer_index != own_index]
        self._roles = dict.fromkeys(indices, StandbyRole.UNKNOWN)
        self._heard = dict.fromkeys(indices, clock())

    @property
    def active(self) -> str:
        """The address of the active service, or "" if none is known."""
        if self.role is StandbyRole.ACTIVE:
            return self._addresses[self._place]
        peers = (index for index, role in self._roles.items() if role is StandbyRole.ACTIVE)
        return next((self._addresses[index] for index in peers), "")

    async def become(self, role: StandbyRole) -> None:
        """Ask the others again and again, and return once this service has `role`."""
        while self.role is not role:
            await asyncio.gather(*map(self._ask_peer_role, self._roles))
            self.role = next_role(self._place, self.role, self._roles)
            if self.role is not role:
                await asyncio.sleep(ROLE_POLL_S)

    async def _ask_peer_role(self, peer_index: int) -> None:
        try:
            self._roles[peer_index] = await self._ask(self._addresses[peer_index])
            self._heard[peer_index] = self._clock()
        except (OSError, MungeError) as error:
            if isinstance(error, MungeError) and error.absent:
                return  # without MUNGE nobody can be asked, which says nothing about the peers
            if self._clock() - self._heard[peer_index] >= PEER_SILENCE_S:
                self._roles[peer_index] = StandbyRole.GONE


async def ask_role(address: str, identity: HookIdentity) -> StandbyRole:
    """Return the role that the service at HOST:PORT reports. Raises OSError and MungeError."""
    authorization = await identity.authorization(ROLE_PATH)
    reply = await asyncio.to_thread(_ask, address, authorization)
    if not await identity.believes(reply, authorization):
        raise ConnectionError(f"{address}: it is not Slurm's user who says so")
    assert isinstance(reply.body, bytes)
    role, _, served_address = reply.body.decode(errors="replace").strip().partition(" ")
    if served_address != address:  # a host there passes on another service's reply
        raise ConnectionError(f"{address}: the word of {served_address}")
    try:
        return StandbyRole(role)
    except ValueError:
        raise ConnectionError(f"{address}: {role} is not a role") from None


def _ask(address: str, authorization: str) -> Reply:
    answer = ask(
        address,
        "GET",
        ROLE_PATH,
        headers={"Authorization": authorization},
        timeout=_ROLE_TIMEOUT_S,
        limit=MAX_ROLE_REPLY_BYTES,
    )
    signature = answer.headers.get(SIGNATURE_HEADER.decode(), "").encode("latin-1", "replace")
    return Reply(answer.status, answer.content, headers=((SIGNATURE_HEADER, signature),))
