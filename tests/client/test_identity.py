"""Who a program is reaches all its processes, and a key reaches nobody but the server."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from podwright.api._server_variables import with_variables
from podwright.client import (
    Address,
    Client,
    Context,
    Contexts,
    Credentials,
    NamedServer,
    ServerOptions,
    reopen,
    write_contexts,
)
from podwright.client._grpc_transport import GrpcTransport
from podwright.client._named_server import named_server
from podwright.client._verified_loopback import VerifiedLoopback
from podwright.errors import Denied, PodwrightError
from podwright.wire import ServerInfo, Value
from tests.client.test_grpc import ours, serving

ALICE = Credentials("alice", "key")
CERTS = Credentials(certs="/certs")
MUNGE = Credentials(munge="yes")
WHO = {"a key": ALICE, "TLS": CERTS, "MUNGE": MUNGE, "nobody": Credentials()}
PLACES = ("options", "environment", "--config", "V-IPU's file", "a context", "the current context")


class Named(NamedTuple):
    """A server that is named in one of the ways, and the machine on which it is."""

    server: NamedServer
    hcl: str
    environ: dict[str, str]


def name_server(folder: Path, place: str, who: Credentials, hosts: str = "h1:1") -> Named:
    """Name a server in one place, and resolve it."""
    options, hcl = ServerOptions(), folder / "vipu-cli.hcl"
    environ = {"XDG_CONFIG_HOME": str(folder), "HOME": str(folder), "PATH": "/bin"}
    if place == "options":
        options = ServerOptions(hosts, "", "", *who)
    elif place == "environment":
        values = (hosts, who.user, who.key, who.certs, who.munge)
        names = ("API_HOST", "API_USER_ID", "API_ACCESS_KEY", "TLS_CERTS", "MUNGE")
        environ |= {f"VIPU_CLI_{name}": value for name, value in zip(names, values, strict=True)}
    elif place in ("--config", "V-IPU's file"):
        keys = ("api-user-id", "api-access-key", "tls-certs", "munge")
        text = "".join(f'{key} = "{value}"\n' for key, value in zip(keys, who, strict=True))
        path = hcl if place == "V-IPU's file" else folder / "own.hcl"
        path.write_text(f'api-host = "{hosts}"\n{text}')
        options = ServerOptions(config="" if path is hcl else str(path))
    else:
        current = place == "the current context"
        contexts = {"lab": Context(hosts, "", *who)}
        path = folder / "podwright" / "config.toml"
        write_contexts(str(path), Contexts("lab" if current else "", contexts))
        options = ServerOptions(context="" if current else "lab")
    server = named_server(options, environ, str(hcl))
    assert server is not None
    return Named(server, str(hcl), environ)


#: What may stand in the environment of a process besides, and leads elsewhere.
ELSEWHERE = {
    "PODWRIGHT_SOCKET": "/elsewhere.sock",
    "PODWRIGHT_CONTEXT": "lab",
    "VIPU_CLI_API_HOST": "elsewhere",
    "VIPU_CLI_API_PORT": "9",
    "VIPU_CLI_API_USER_ID": "mallory",
    "VIPU_CLI_API_ACCESS_KEY": "other",
    "VIPU_CLI_TLS_CERTS": "/other",
    "VIPU_CLI_MUNGE": "no",
    "IPUOF_VIPU_API_HOST": "elsewhere",
}


@pytest.mark.parametrize("hosts", ["h1:1", "h1,h2:2", "[::1]:3"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("who", WHO)
def test_every_process_gets_the_server_and_the_caller_that_were_found(
    tmp_path: Path, place: str, who: str, hosts: str
) -> None:
    named = name_server(tmp_path, place, WHO[who], hosts)
    assert named.server.credentials == WHO[who]
    assert reopen(NamedServer.of_plain(named.server.plain())).server == named.server
    for count in (0, 1, 2, len(ELSEWHERE)):
        for names in itertools.combinations(ELSEWHERE, count):
            environ = named.environ | {name: ELSEWHERE[name] for name in names}
            child = with_variables(environ, named.server.variables)
            again = named_server(ServerOptions(), child, named.hcl)
            assert again is not None
            assert again._replace(by="") == named.server._replace(by=""), names


def test_a_socket_is_passed_on_as_a_socket(tmp_path: Path) -> None:
    for text in ("/run/s.sock", "/run/a.sock,/run/b.sock"):
        named = named_server(ServerOptions(), {"PODWRIGHT_SOCKET": text}, "/nowhere")
        assert named is not None
        child = with_variables(ELSEWHERE, named.variables)
        assert named_server(ServerOptions(), child, "/nowhere") == named
        assert reopen(NamedServer.of_plain(named.plain())).server.socket == text


@pytest.mark.parametrize("place", ["environment", "V-IPU's file", "the current context"])
@pytest.mark.parametrize("who", WHO)
def test_a_program_that_got_the_address_alone_calls_as_the_launch_does(
    tmp_path: Path, place: str, who: str
) -> None:
    """poprun's instances have IPUOF_VIPU_API_HOST and _PORT; gc-info reads them as options."""
    named = name_server(tmp_path, place, WHO[who])
    inside = named_server(ServerOptions("h1", "1"), named.environ, named.hcl)
    assert inside is not None
    assert inside.credentials == named.server.credentials


def test_an_instance_calls_as_the_context_that_was_chosen(tmp_path: Path) -> None:
    named = name_server(tmp_path, "a context", ALICE)
    environ = named.environ | {"PODWRIGHT_CONTEXT": "lab"}
    inside = named_server(ServerOptions("h1", "1"), environ, named.hcl)
    assert inside is not None
    assert inside.credentials == ALICE


@pytest.mark.parametrize("place", ["environment", "--config", "V-IPU's file"])
def test_a_key_goes_to_no_other_port_of_its_host(tmp_path: Path, place: str) -> None:
    named = name_server(tmp_path, place, ALICE, "h1")
    config = str(tmp_path / "own.hcl") if place == "--config" else ""
    for port, credentials in (("", ALICE), ("8090", ALICE), ("9999", Credentials())):
        server = named_server(ServerOptions(port=port, config=config), named.environ, named.hcl)
        assert server is not None
        assert server.credentials == credentials, port


def test_a_file_of_options_comes_before_the_socket_of_the_environment(tmp_path: Path) -> None:
    named = name_server(tmp_path, "--config", Credentials())
    environ = named.environ | {"PODWRIGHT_SOCKET": "/s.sock"}
    config = str(tmp_path / "own.hcl")
    assert named_server(ServerOptions(config=config), environ) == named.server


@pytest.mark.parametrize("option", ["certs", "munge"])
def test_an_option_that_says_who_calls_names_v_ipus_usual_server(option: str) -> None:
    for environ in ({}, {"PODWRIGHT_SOCKET": "/s.sock"}):
        server = named_server(ServerOptions(**{option: "/x"}), environ, "/nowhere")
        assert server is not None
        assert server.addresses == (Address("localhost", 8090),)
        assert getattr(server.credentials, option) == "/x"


def test_a_key_in_the_environment_is_not_dropped_for_a_socket() -> None:
    environ = {
        "PODWRIGHT_SOCKET": "/s",
        "VIPU_CLI_API_USER_ID": "a",
        "VIPU_CLI_API_ACCESS_KEY": "k",
    }
    with pytest.raises(PodwrightError, match="on a socket the kernel says who calls"):
        named_server(ServerOptions(), environ, "/nowhere")


class Stranger:
    """Whoever listens at the server's port, and what it hears."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", self.listener.getsockname()[1])
        self.heard = b""
        self.accepts = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        self.accepts.wait()
        while True:
            try:
                visitor, _ = self.listener.accept()
            except OSError:
                return
            with visitor:
                visitor.settimeout(5)
                while chunk := visitor.recv(4096):
                    self.heard += chunk


@pytest.fixture
def stranger() -> Iterator[Stranger]:
    stranger = Stranger()
    yield stranger
    stranger.listener.close()


def _call(loopback: VerifiedLoopback) -> bytes:
    """Send a key through an endpoint; return what comes back."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect("\0" + loopback.target.partition(":")[2])
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            client.sendall(b"the key")
            client.shutdown(socket.SHUT_WR)
            return client.recv(100)
    return b""


def test_a_stranger_is_sent_nothing(stranger: Stranger) -> None:
    stranger.accepts.set()
    loopback = VerifiedLoopback(stranger.address, trusted_uids=lambda: {os.getuid() + 1})
    assert _call(loopback) == b""
    assert stranger.heard == b""
    assert isinstance(loopback.refusal, Denied)
    assert "was not sent to 127.0.0.1" in str(loopback.refusal)
    loopback.close()


def test_a_connection_that_nobody_has_accepted_proves_nothing(
    stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says root of it, whoever listens."""
    monkeypatch.setattr("podwright.client._verified_loopback._ACCEPT_TIMEOUT_S", 0.3)
    loopback = VerifiedLoopback(stranger.address, trusted_uids=lambda: {0})
    assert _call(loopback) == b""
    assert "who listens there is not known" in str(loopback.refusal)
    stranger.accepts.set()
    loopback.close()


@pytest.mark.parametrize("trusted", [True, False])
def test_a_key_travels_to_the_server_alone(trusted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, str]] = []

    def answer(name: str, request: Value, metadata: dict[str, str]) -> Value:
        seen.append(metadata)
        return ServerInfo(version="1")

    if not trusted:
        monkeypatch.setattr(
            "podwright.client._verified_loopback.server_uids", lambda: {os.getuid() + 1}
        )
    with serving(ours(answer)) as address:
        client = Client(GrpcTransport(*address, credentials=ALICE))
        ask: Callable[[], object] = client.get_server_info
        if trusted:
            ask()
            assert [one["podwright-access-key"] for one in seen] == ["key"]
        else:
            with pytest.raises(Denied, match="your access key was not sent"):
                ask()
            assert seen == []
        client.close()
