"""Of several services one is active, whichever are killed, stopped or cut off. Clocks are
virtual.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest, Unavailable
from podwright.guests.slurm.hooks._active_standby_roles import (
    PEER_SILENCE_S,
    ROLE_POLL_S,
    Peers,
    StandbyRole,
    next_role,
)
from podwright.guests.slurm.hooks._hook_server import HookFront
from podwright.guests.slurm.hooks._hook_socket import listen, listen_tcp
from podwright.guests.slurm.service._pods_and_licences import Site
from tests.ports import free_ports

ACTIVE, STANDBY, UNKNOWN, GONE = (
    StandbyRole.ACTIVE,
    StandbyRole.STANDBY,
    StandbyRole.UNKNOWN,
    StandbyRole.GONE,
)


@pytest.mark.parametrize(
    ("place", "now", "others", "then"),
    [
        (0, STANDBY, {1: UNKNOWN}, STANDBY),  # it may be active, and only slow to say so
        (0, STANDBY, {1: GONE}, ACTIVE),
        (1, STANDBY, {0: GONE}, ACTIVE),
        (0, STANDBY, {1: STANDBY}, ACTIVE),  # both have just begun: the first one is
        (1, STANDBY, {0: STANDBY}, STANDBY),
        (0, STANDBY, {1: ACTIVE}, STANDBY),  # who is active stays so
        (1, STANDBY, {0: ACTIVE}, STANDBY),
        (1, ACTIVE, {0: STANDBY}, ACTIVE),
        (0, ACTIVE, {1: ACTIVE}, ACTIVE),  # cut off from each other, and back
        (1, ACTIVE, {0: ACTIVE}, STANDBY),
        (1, ACTIVE, {0: UNKNOWN}, ACTIVE),
        (2, STANDBY, {0: GONE, 1: STANDBY}, STANDBY),
        (2, STANDBY, {0: GONE, 1: GONE}, ACTIVE),
    ],
)
def test_the_others_roles_decide_the_role_of_a_service(
    place: int, now: StandbyRole, others: dict[int, StandbyRole], then: StandbyRole
) -> None:
    assert next_role(place, now, others) is then


def test_whatever_happens_one_is_active_in_the_end() -> None:
    """Three services start in every state, with every set of them alive and connected."""
    for roles in itertools.product((ACTIVE, STANDBY), repeat=3):
        for alive in itertools.product((True, False), repeat=3):
            now = dict(enumerate(roles))
            for _ in range(4):
                for place in range(3):
                    others = {at: now[at] if alive[at] else GONE for at in range(3) if at != place}
                    if alive[place]:
                        now[place] = next_role(place, now[place], others)
            active = [at for at in range(3) if alive[at] and now[at] is ACTIVE]
            assert len(active) == (1 if any(alive) else 0), (roles, alive)


class Net:
    """Services that ask each other. gone: those that do not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.gone: set[str] = set()
        self.peers = {
            name: Peers(("a:1", "b:1"), at, lambda: self.now, self.ask)
            for at, name in enumerate(("a:1", "b:1"))
        }
        self._sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._pass)

    async def ask(self, address: str) -> StandbyRole:
        if address in self.gone:
            raise OSError
        return self.peers[address].role

    async def _pass(self, seconds: float) -> None:
        self.now += seconds
        await self._sleep(0)


async def test_the_second_takes_over_when_the_first_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Net(monkeypatch)
    await net.peers["a:1"].become(ACTIVE)
    waiting = asyncio.create_task(net.peers["b:1"].become(ACTIVE))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert net.peers["b:1"].active == "a:1"
    net.gone.add("a:1")
    killed = net.now
    await waiting
    assert PEER_SILENCE_S <= net.now - killed <= PEER_SILENCE_S + 2 * ROLE_POLL_S


async def answer(path: Path, call: str) -> str:
    """What a hook is answered at a Unix socket."""
    reader, writer = await asyncio.open_unix_connection(path)
    head = f"POST /slurm.v1/{call} HTTP/1.0\r\nContent-Length: 11\r\n\r\n"
    writer.write(head.encode() + b'{"job":"1"}')
    text = (await reader.read()).decode()
    writer.close()
    return text


async def test_a_hook_that_is_told_to_ask_again_is_told_which_service_to_ask(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    net = Net(monkeypatch)
    front, path = HookFront(), tmp_path / "slurm.sock"
    await front.start(listen(path, os.geteuid()))
    for call in ("JobBegins", "JobEnded", "StepBegins", "PrologFailed"):
        assert "have not answered yet" in await answer(path, call)
    assert front.role() == "active"  # the only one there is
    await net.peers["a:1"].become(ACTIVE)
    front.peers = net.peers["b:1"]
    waiting = asyncio.create_task(front.peers.become(ACTIVE))
    async with asyncio.timeout(120):
        while not front.peers.active:
            await net._sleep(0)
    said = await answer(path, "JobBegins")
    assert said.startswith("HTTP/1.1 503")
    assert "stands by: active is a:1" in said
    assert front.state() == {"role": "standby", "ready": False, "active": "a:1"}
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    await front.finish(1)


def test_of_one_file_each_host_finds_its_own_address() -> None:
    first, second = free_ports(2)
    doors = (f"192.0.2.1:{first}", f"127.0.0.1:{first}", f"127.0.0.1:{second}")
    assert Site(listen=", ".join(doors)).doors == doors
    place, here = listen_tcp(doors)
    with here, socket.socket() as taken:
        assert place == 1
        with listen_tcp(doors)[1] as there:
            assert there.getsockname()[1] == second
            with pytest.raises(
                Unavailable, match=rf"127\.0\.0\.1:{second}: address already in use"
            ):
                listen_tcp(doors)
        assert taken.connect_ex(("127.0.0.1", first)) == 0
    with pytest.raises(Unavailable, match="cannot assign requested address"):
        listen_tcp(doors[:1])
    with pytest.raises(InvalidRequest, match="not HOST:PORT"):
        listen_tcp(("here",))
