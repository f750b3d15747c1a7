"""One operator acts at a time. The next one acts at once if the one before ended in good order."""

from __future__ import annotations

from typing import Any

from podwright.errors import NotFound, Unavailable, WrongState
from podwright.guests.kubernetes.cluster._leader import LEASE_SECONDS, Leader


class OneLease:
    """The API server's state of one lease."""

    def __init__(self) -> None:
        self.item: dict[str, Any] | None = None
        self.version = 0
        self.is_away = False

    async def lease(self, namespace: str, name: str) -> dict[str, Any]:
        if self.is_away:
            raise Unavailable("the API server does not answer")
        if self.item is None:
            raise NotFound("no lease")
        return self.item

    async def put_lease(
        self, namespace: str, name: str, body: dict[str, Any], *, new: bool
    ) -> None:
        if not new and body["metadata"].get("resourceVersion") != str(self.version):
            raise WrongState("somebody else wrote it")
        self.version += 1
        self.item = {**body, "metadata": {"name": name, "resourceVersion": str(self.version)}}


class Clock:
    """Seconds that pass only when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def candidates(lease: OneLease, clock: Clock) -> list[Leader]:
    return [Leader(lease, "podwright", "operator", name, wall_clock=clock) for name in ("a", "b")]


async def test_the_next_operator_waits_for_the_lease_of_one_that_was_killed() -> None:
    first, second = candidates(OneLease(), clock := Clock())
    assert await first.attempt()
    assert not await second.attempt()
    clock.now += LEASE_SECONDS
    assert await second.attempt()
    assert not await first.attempt()


async def test_the_next_operator_acts_at_once_after_one_that_ended() -> None:
    first, second = candidates(lease := OneLease(), Clock())
    async with first.holding(), second.holding():
        assert await first.attempt()
    assert await second.attempt()
    # What is somebody else's by now stays theirs.
    async with first.holding():
        pass
    assert not await first.attempt()
    assert lease.item
    assert lease.item["spec"]["holderIdentity"] == "b"


async def test_an_operator_can_end_while_the_api_server_does_not_answer() -> None:
    first, second = candidates(lease := OneLease(), clock := Clock())
    async with first.holding():
        assert await first.attempt()
        lease.is_away = True
    lease.is_away = False
    assert not await second.attempt()
    clock.now += LEASE_SECONDS
    assert await second.attempt()
