"""The source of a server's address, key by key, and texts that are not addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from podwright.client import Address, Credentials, ServerOptions, parse_addresses
from podwright.client._named_server import NamedServer, named_server
from podwright.errors import InvalidRequest

NOWHERE = "/nonexistent/vipu-cli.hcl"


def test_no_server_is_named_where_no_place_names_one() -> None:
    assert named_server(ServerOptions(), {}, NOWHERE) is None
    assert named_server(ServerOptions(), {"VIPU_CLI_API_HOST": ""}, NOWHERE) is None


def test_each_key_of_an_address_comes_from_option_then_environment_then_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "vipu-cli.hcl"
    file.write_text('# site\napi-host = "c"\napi-port="3"  // as text\n')
    environ = {"VIPU_CLI_API_HOST": "b"}

    def named(options: ServerOptions, environ: dict[str, str]) -> NamedServer:
        found = named_server(options, environ, str(file))
        assert found is not None
        return found

    assert named(ServerOptions(), {})[:3] == (str(file), "", (("c", 3),))
    assert named(ServerOptions(), environ)[:3] == ("the environment", "", (("b", 3),))
    assert named(ServerOptions(host="a"), environ)[:3] == ("an option", "", (("a", 3),))
    assert named(ServerOptions(host="a", port="1"), environ).addresses == (("a", 1),)
    environ["VIPU_CLI_API_PORT"] = "2"
    assert named(ServerOptions(host="a"), environ).addresses == (("a", 2),)
    assert named(ServerOptions(port="1"), {}).addresses == (("c", 1),)


def test_a_port_alone_names_this_machine() -> None:
    found = named_server(ServerOptions(), {"VIPU_CLI_API_PORT": "9"}, NOWHERE)
    assert found is not None
    assert found[:3] == ("the environment", "", (("localhost", 9),))


def test_a_named_socket_stands_behind_options_only() -> None:
    environ = {"PODWRIGHT_SOCKET": "/s", "VIPU_CLI_API_HOST": "b"}
    found = named_server(ServerOptions(), environ, NOWHERE)
    assert found is not None
    assert found[:3] == ("PODWRIGHT_SOCKET", "/s", ())
    found = named_server(ServerOptions(host="a"), environ, NOWHERE)
    assert found is not None
    assert found[:3] == ("an option", "", (("a", 8090),))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("h", ["h:8090"]),
        ("h:1", ["h:1"]),
        ("h1,h2:2 , h3", ["h1:8090", "h2:2", "h3:8090"]),
        ("10.0.0.1", ["10.0.0.1:8090"]),
        ("::1", ["[::1]:8090"]),
        ("[::1]", ["[::1]:8090"]),
        ("[fe80::1%eth0]:3", ["[fe80::1%eth0]:3"]),
    ],
)
def test_addresses_are_read_as_host_and_port(text: str, expected: list[str]) -> None:
    assert [str(address) for address in parse_addresses(text)] == expected


def test_a_named_port_counts_for_addresses_without_one() -> None:
    assert parse_addresses("a,b:2", "7") == (Address("a", 7), Address("b", 2))


@pytest.mark.parametrize(
    "text", ["", ",", "h:", "h:x", "h:0", "h:65536", "h h", "http://h", "[::1", "[::1]x", "h:1:x y"]
)
def test_malformed_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_addresses(text, source="an option")


@pytest.mark.parametrize("port", ["x", "-1", "0", "65536", "80 90", "1e3"])
def test_malformed_ports_are_refused(port: str) -> None:
    with pytest.raises(InvalidRequest, match=r"not a port from 1 to 65535 \(from an option\)"):
        named_server(ServerOptions(port=port), {}, NOWHERE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('api-host = "a\n', "line 1: not of the form"),
        ("\n\napi-host\n", "line 3: not of the form"),
        ('api-host = ["a", "b"]', "line 1: not of the form"),
        ('api-host = "h"\napi-access-key = "x"', "there is no user id"),
    ],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.hcl"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=message) as caught:
        named_server(ServerOptions(config=str(file)), {}, NOWHERE)
    assert str(file) in str(caught.value) or "user id" in str(caught.value)


def test_a_users_key_comes_from_option_environment_or_file(tmp_path: Path) -> None:
    file = tmp_path / "alice.vipu-cli.hcl"
    file.write_text('api-user-id="alice"\napi-access-key="k1"\n')
    named = named_server(ServerOptions(config=str(file)), {"PODWRIGHT_SOCKET": "/s"}, NOWHERE)
    assert named is not None
    assert (named.socket, named.addresses) == ("", (Address("localhost", 8090),))
    assert named.credentials == Credentials("alice", "k1")
    environ = {"VIPU_CLI_API_USER_ID": "bob", "VIPU_CLI_API_ACCESS_KEY": "k2"}
    named = named_server(ServerOptions(user="carol", certs="/c"), environ, NOWHERE)
    assert named is not None
    assert named.credentials == Credentials("carol", "k2", "/c")


def test_a_file_that_was_asked_for_must_be_there() -> None:
    with pytest.raises(InvalidRequest, match="no such file"):
        named_server(ServerOptions(config=NOWHERE), {"VIPU_CLI_API_HOST": "b"})
    with pytest.raises(InvalidRequest, match="is a directory"):
        named_server(ServerOptions(config="/"), {})


def test_a_file_without_a_server_names_none(tmp_path: Path) -> None:
    file = tmp_path / "vipu-cli.hcl"
    file.write_text('log-level = "info"\n')
    assert named_server(ServerOptions(), {}, str(file)) is None
