"""TLS between server and agents: each accepts the other only by the site's authority."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from podwright.agents import Agent, RemoteMachine, Secret, SimulatedMachine
from podwright.errors import Internal, InvalidRequest, Unavailable
from podwright.fabric import IPU, Machine
from tests.certificates import CLIENT, MACHINE, NUMBER, SERVER, folder_of


class Link:
    """An agent with TLS, and its callers."""

    def __init__(self) -> None:
        self.machine = SimulatedMachine(Machine(MACHINE, "10.1.2.3"), IPU, max_kept_calls=9)
        self.port = 0
        self._open: list[RemoteMachine | Agent] = []

    async def start(self, certs: Path | None, secret: Secret | None = None) -> None:
        agent = Agent(self.machine, MACHINE, certs_folder=certs, secret=secret)
        self.port = await agent.start("127.0.0.1", 0)
        self._open.append(agent)

    def caller(
        self,
        certs: Path | None,
        name: str = MACHINE,
        secret: Secret | None = None,
        certificate: str = "",
    ) -> RemoteMachine:
        remote = RemoteMachine(
            name, "127.0.0.1", self.port, certs_folder=certs, secret=secret, certificate=certificate
        )
        self._open.insert(0, remote)
        return remote

    async def close(self) -> None:
        for each in self._open:
            await (each.close() if isinstance(each, RemoteMachine) else each.stop(0))


@pytest.fixture
async def link() -> AsyncIterator[Link]:
    made = Link()
    yield made
    await made.close()


async def test_the_server_and_its_machine_know_each_other(link: Link) -> None:
    await link.start(folder_of(MACHINE))
    server = link.caller(SERVER)
    await server.configure("p1", 1, [0])
    assert (await server.describe()).configured == {0: ("p1", 1)}


async def test_a_key_may_be_asked_for_as_well(link: Link) -> None:
    key = b"0123456789abcdef"
    await link.start(folder_of(MACHINE), Secret(key))
    await link.caller(SERVER, secret=Secret(key)).configure("p1", 1, [0])
    with pytest.raises(Internal, match="not signed"):
        await link.caller(SERVER).reset(2, [0])


@pytest.mark.parametrize("who", ["alice", "client", MACHINE])
async def test_an_agent_obeys_no_user_and_no_other_agent(link: Link, who: str) -> None:
    await link.start(folder_of(MACHINE))
    stranger = link.caller(CLIENT if who == "client" else folder_of(who))
    with pytest.raises(Internal, match="this caller's certificate is not a server's"):
        await stranger.configure("p1", 1, [0])
    assert link.machine.calls == []


async def test_an_agent_does_not_hear_who_speaks_in_the_clear(link: Link) -> None:
    await link.start(folder_of(MACHINE))
    with pytest.raises(Unavailable):
        await link.caller(None).configure("p1", 1, [0])
    assert link.machine.calls == []


async def test_a_server_believes_no_other_machine(link: Link) -> None:
    await link.start(folder_of(MACHINE))
    with pytest.raises(Unavailable, match=r"has no certificate of ag1\."):
        await link.caller(SERVER, "ag1").describe()


async def test_a_server_believes_one_certificate_of_a_machine_if_told_so(link: Link) -> None:
    """Another certificate of that machine, for example a stolen one, is refused from then on."""
    await link.start(folder_of(MACHINE))
    assert (await link.caller(SERVER, certificate=NUMBER).describe()).devices
    with pytest.raises(Unavailable, match=f"has no certificate of 4f1d00c6.{MACHINE}") as caught:
        await link.caller(SERVER, certificate="4f1d00c6").describe()
    assert f"create agent {MACHINE} --replace --certificate N" in caught.value.would_work


@pytest.mark.parametrize("certs", [None, folder_of("alice")])
async def test_a_server_believes_nobody_without_a_machines_certificate(
    link: Link, certs: Path | None
) -> None:
    await link.start(certs, None if certs else Secret(b"0123456789abcdef"))
    with pytest.raises(Unavailable):
        await link.caller(SERVER).describe()


async def test_certificates_that_cannot_be_read_are_said(link: Link, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot read .*ca\.pem"):
        await link.start(tmp_path)
