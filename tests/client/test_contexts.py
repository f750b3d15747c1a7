"""Contexts: servers by name, used as a whole or not at all."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from podwright.cli.podwright import main
from podwright.client import Context, Contexts, ServerOptions, contexts_as_toml, read_contexts
from podwright.client import write_contexts as write
from podwright.client._named_server import NamedServer, named_server
from podwright.errors import InvalidRequest, NotFound

LAB = Context(api_host="lab:8090", api_user_id="alice", api_access_key="lab-key")
HERE = Context(socket="/run/podwright/server.sock")


class Home:
    """A user's home, with V-IPU's own file beside it."""

    def __init__(self, folder: Path) -> None:
        self.environ = {"XDG_CONFIG_HOME": str(folder / "config"), "HOME": str(folder)}
        self.path = str(folder / "config" / "podwright" / "config.toml")
        self.hcl = folder / "vipu-cli.hcl"

    def named(self, **options: str) -> NamedServer | None:
        return named_server(ServerOptions(**options), self.environ, str(self.hcl))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    write(home.path, Contexts("lab", {"lab": LAB, "here": HERE}))
    return home


def test_the_current_context_names_the_server_where_nothing_else_does(home: Home) -> None:
    named = home.named()
    assert named is not None
    assert (str(named.addresses[0]), named.credentials.key) == ("lab:8090", "lab-key")
    write(home.path, Contexts("", {"lab": LAB}))
    assert home.named() is None


def test_option_environment_and_file_come_before_the_current_context(home: Home) -> None:
    home.hcl.write_text('api-host = "site"\n')
    assert str(_address(home.named())) == "site:8090"
    home.environ["VIPU_CLI_API_HOST"] = "env"
    assert str(_address(home.named())) == "env:8090"
    home.environ["PODWRIGHT_CONTEXT"] = "lab"
    assert str(_address(home.named())) == "lab:8090"
    assert str(_address(home.named(host="option"))) == "option:8090"
    named = home.named(context="here")
    assert named is not None
    assert (named.socket, named.addresses) == (HERE.socket, ())


def _address(named: NamedServer | None) -> object:
    assert named is not None
    return named.addresses[0]


@pytest.mark.parametrize("place", ["environment", "V-IPU's file", "--config", "current context"])
def test_a_key_goes_to_its_own_host_alone(home: Home, tmp_path: Path, place: str) -> None:
    """An option names another host, so the key that stands beside the first host is not sent."""
    options: dict[str, str] = {}
    if place == "environment":
        home.environ |= {
            "VIPU_CLI_API_HOST": "first",
            "VIPU_CLI_API_USER_ID": "alice",
            "VIPU_CLI_API_ACCESS_KEY": "secret",
            "VIPU_CLI_TLS_CERTS": "/certs",
        }
    elif place != "current context":
        text = 'api-host = "first"\napi-user-id = "alice"\napi-access-key = "secret"\n'
        path = home.hcl if place == "V-IPU's file" else tmp_path / "own.hcl"
        path.write_text(text + 'tls-certs = "/certs"\n')
        options = {} if place == "V-IPU's file" else {"config": str(path)}
    own = home.named(**options)
    assert own is not None
    assert own.credentials.key == ("lab-key" if place == "current context" else "secret")
    other = home.named(host="other", **options)
    assert other is not None
    assert (str(other.addresses[0]), other.credentials) == ("other:8090", ("", "", "", ""))


def test_a_place_that_names_no_host_gives_its_key_to_any(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "key.hcl"
    path.write_text('api-user-id = "alice"\napi-access-key = "secret"\n')
    named = home.named(host="other", config=str(path))
    assert named is not None
    assert named.credentials.key == "secret"


def test_a_context_is_used_as_a_whole(home: Home) -> None:
    home.environ |= {"VIPU_CLI_API_USER_ID": "bob", "VIPU_CLI_API_ACCESS_KEY": "bobs"}
    home.hcl.write_text('tls-certs = "/certs"\n')
    named = home.named(context="lab")
    assert named is not None
    assert named.credentials == ("alice", "lab-key", "", "")
    with pytest.raises(NotFound, match="there is no context 'nowhere'"):
        home.named(context="nowhere")


@pytest.mark.parametrize("chosen", ["--context", "PODWRIGHT_CONTEXT", "the current context"])
@pytest.mark.parametrize("option", ["host", "port", "config", "user", "key", "certs", "munge"])
def test_an_option_beside_a_context_is_used_or_refused(
    home: Home, tmp_path: Path, chosen: str, option: str
) -> None:
    """Nothing is answered as somebody else than the command says."""
    own = tmp_path / "own.hcl"
    own.write_text('api-user-id = "bob"\napi-access-key = "bobs"\n')
    value = {"config": str(own), "port": "1"}.get(option, "x")
    options = {option: value}
    if chosen == "--context":
        options["context"] = "lab"
    elif chosen == "PODWRIGHT_CONTEXT":
        home.environ["PODWRIGHT_CONTEXT"] = "lab"
        write(home.path, Contexts("here", {"lab": LAB, "here": HERE}))
    used = option in ("host", "port") or (option, chosen) == ("config", "PODWRIGHT_CONTEXT")
    if chosen != "--context" and used:
        if option == "config":
            write(home.path, Contexts("", {"lab": LAB}))
        named = home.named(**options)
        assert named is not None
        assert not named.by.startswith("context")
        return
    with pytest.raises(InvalidRequest, match="cannot be used with it"):
        home.named(**options)


@pytest.mark.parametrize("variable", ["VIPU_CLI_API_USER_ID", "VIPU_CLI_API_ACCESS_KEY"])
def test_a_name_in_the_environment_does_not_abandon_the_context(home: Home, variable: str) -> None:
    home.environ[variable] = "bob"
    with pytest.raises(InvalidRequest, match=f"{variable} cannot be used with it"):
        home.named()


def test_the_address_of_a_context_is_the_context(home: Home) -> None:
    """Programs of a launch get the address alone, and call as the launch does."""
    assert home.named(host="lab", port="8090") == home.named()._replace(by="an option")  # type: ignore[union-attr]
    other = home.named(host="lab", port="8091")
    assert other is not None
    assert other.credentials == ("", "", "", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("current-context = 'gone'\n", "'gone' is not among the contexts"),
        ("[contexts.a]\n", "needs either api-host or socket"),
        ("[contexts.a]\napi-host = 'h'\nsocket = '/s'\n", "needs either api-host or socket"),
        ("[contexts.a]\napi-host = 'h'\napi-user-id = 'u'\n", "belong together"),
        ("[contexts.a]\napi-hots = 'h'\n", "api-hots"),
        ("contexts = 3\n", "config.toml"),
        ("[contexts\n", "config.toml"),
        ("\udcff", "config.toml"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(home: Home, text: str, words: str) -> None:
    Path(home.path).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidRequest, match=words):
        read_contexts(home.path)


def test_a_file_with_a_key_that_others_can_read_is_refused(home: Home) -> None:
    assert stat.S_IMODE(Path(home.path).stat().st_mode) == 0o600
    Path(home.path).chmod(0o644)
    with pytest.raises(InvalidRequest, match="others can read it"):
        read_contexts(home.path)
    write(home.path, Contexts("here", {"here": HERE}))
    Path(home.path).chmod(0o644)
    assert read_contexts(home.path).current_context == "here"


@pytest.mark.parametrize("name", ["lab", "a b", 'quote"d', "dotted.name", "\u00e9t\u00e9"])
def test_any_context_that_is_written_is_read_back(home: Home, name: str) -> None:
    found = Contexts(name, {name: Context(api_host="h", tls_certs=f'/a"b\\{name}')})
    write(home.path, found)
    assert read_contexts(home.path) == found


def test_a_key_is_not_printed(home: Home) -> None:
    found = read_contexts(home.path)
    assert "lab-key" not in repr(found)
    assert "lab-key" in contexts_as_toml(found)


def test_the_commands_add_use_list_and_remove_contexts(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in home.environ.items():
        monkeypatch.setenv(name, value)

    def typed(*words: str) -> str:
        assert main(["config", *words]) == 0
        return capsys.readouterr().out

    assert typed("set-context", "third", "--api-host", "host3", "--munge", "yes") == (
        "Context third is set.\n"
    )
    assert typed("use-context", "third") == "The current context is third: host3.\n"
    assert typed("current-context") == "third\n"
    lines = typed("get-contexts").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["here", "lab", "third"]
    assert [line[0] for line in lines[2:]] == ["-", "-", "*"]
    rows = json.loads(typed("get-contexts", "--json"))
    assert rows[1] == {"name": "lab", "address": "lab:8090", "user": "alice", "current": False}
    assert "lab-key" not in typed("view")
    assert "lab-key" in typed("view", "--raw")
    assert json.loads(typed("view", "--json"))["contexts"]["lab"]["api-access-key"] == "(hidden)"
    assert "api-access-key" in typed("schema")
    assert typed("delete-context", "third") == "Context third is forgotten.\n"
    assert main(["config", "current-context"]) == 1
    assert main(["config", "use-context", "third"]) != 0
    assert "there is no context 'third'" in capsys.readouterr().err
