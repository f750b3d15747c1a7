"""The order in which servers are searched. None is silently replaced by another."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from podwright.client import Address, FoundServer, LocalServers, ServerOptions, find_server
from podwright.errors import Denied, InvalidRequest, TimedOut, Unavailable
from tests.client.stub import answers_info, http, stub


class World:
    """A machine with places of its own, none of which is in use yet."""

    def __init__(self, folder: Path, closed_port: int) -> None:
        self.system = folder / "system.sock"
        self.run = folder / "run"
        self.run.mkdir(mode=0o700)
        self.folder = self.run / "podwright"
        self.user = self.folder / "server.sock"
        self.config = folder / "vipu-cli.hcl"
        self.port = closed_port
        self.marks: tuple[str, ...] = ()
        self.environ = {"XDG_RUNTIME_DIR": str(self.run)}
        self.started: list[str] = []
        self.start: Callable[[str, Mapping[str, str], Callable[[], bool]], bool] = self._refuse

    def _refuse(self, folder: str, environ: Mapping[str, str], ready: Callable[[], bool]) -> bool:
        self.started.append(folder)
        raise Unavailable("must not be started here")

    def find(self, host: str = "", port: str = "", timeout: float = 120.0) -> FoundServer:
        places = LocalServers(
            str(self.system),
            str(self.config),
            Address("127.0.0.1", self.port),
            self.start,
            self.marks,
        )
        options = ServerOptions(host, port)
        found = find_server(options, self.environ, timeout=timeout, local_servers=places)
        found.client.close()
        return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with socket.socket() as bound:  # bound and not listening: refused, and nobody else's
        bound.bind(("127.0.0.1", 0))
        yield World(tmp_path, bound.getsockname()[1])


def test_a_system_server_is_found_before_the_users(world: World) -> None:
    world.folder.mkdir(mode=0o700)
    with stub(world.user, answers_info(version="user")):
        assert world.find().how == "user"
        with stub(world.system, answers_info(version="system")):
            found = world.find()
            assert (found.how, found.info.version) == ("system", "system")


def test_a_named_socket_comes_before_all(world: World, tmp_path: Path) -> None:
    world.environ["PODWRIGHT_SOCKET"] = str(tmp_path / "mine")
    with stub(world.system, answers_info()), stub(tmp_path / "mine", answers_info(version="mine")):
        found = world.find()
    assert (found.how, found.info.version, found.address) == (
        "named",
        "mine",
        str(tmp_path / "mine"),
    )


@pytest.mark.parametrize("how", ["option", "environment", "socket", "file"])
def test_a_named_server_that_is_down_is_an_error_though_others_run(world: World, how: str) -> None:
    host = ""
    if how == "option":
        host = f"127.0.0.1:{world.port}"
    elif how == "environment":
        world.environ["VIPU_CLI_API_HOST"] = f"127.0.0.1:{world.port}"
    elif how == "socket":
        world.environ["PODWRIGHT_SOCKET"] = str(world.folder / "gone")
    else:
        world.config.write_text(f'api-host = "127.0.0.1"\napi-port = "{world.port}"\n')
    with stub(world.system, answers_info()), pytest.raises(Unavailable) as caught:
        world.find(host)
    assert caught.value.exit_code == 69
    if how != "socket":
        assert caught.value.problem == (
            f"unable to connect to VIRM/V-IPU Controller at 127.0.0.1:{world.port}: "
            "context deadline exceeded"
        )
        assert "connection refused" in caught.value.would_work
    assert not world.started


def test_several_that_are_down_are_all_named(world: World) -> None:
    hosts = f"127.0.0.1:{world.port},127.0.0.1:1"
    with pytest.raises(Unavailable, match=f"at {hosts}: context deadline exceeded"):
        world.find(hosts)


def test_a_system_server_that_is_down_is_an_error(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(world.system))  # as a killed server leaves it
    with pytest.raises(Unavailable, match=r"system\.sock \(connection refused\)"):
        world.find()
    assert not world.started


@pytest.mark.parametrize("mark", ["vipu-server.service", "vipu-server.db", "server.toml"])
def test_a_machine_of_a_systems_server_never_simulates(
    world: World, tmp_path: Path, mark: str
) -> None:
    """A server that was stopped in order leaves no socket, and this user's earlier pod does not
    replace it.
    """
    world.marks = (str(tmp_path / "not there" / mark), str(tmp_path / mark))
    (tmp_path / mark).touch()
    world.folder.mkdir(mode=0o700)
    with stub(world.user, answers_info(version="user")):
        for _ in range(2):
            with pytest.raises(Unavailable, match=f"server does not run: there is .*{mark}"):
                world.find()
        world.environ["PODWRIGHT_SOCKET"] = str(
            world.user
        )  # asked for by name it is not a surprise
        assert world.find().info.version == "user"
    assert not world.started
    del world.environ["PODWRIGHT_SOCKET"]
    with stub(world.system, answers_info(version="system")):
        assert world.find().how == "system"


def test_a_masked_unit_says_that_a_machine_has_no_server(world: World, tmp_path: Path) -> None:
    """`systemctl mask` links the unit to /dev/null; the package's own files stay."""
    unit, settings = tmp_path / "vipu-server.service", tmp_path / "vipu-server.env"
    world.marks = (str(unit), str(settings))
    settings.touch()
    with pytest.raises(Unavailable, match="systemctl mask vipu-server"):
        world.find()
    unit.symlink_to("/dev/null")
    world.folder.mkdir(mode=0o700)
    with stub(world.user, answers_info(version="user")):
        assert world.find().info.version == "user"


def test_a_socket_that_cannot_be_opened_is_another_users(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kept(path: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, "permission denied", path)

    world.marks = (str(tmp_path / "var" / "vipu-server.db"),)
    monkeypatch.setattr(os, "lstat", kept)
    with pytest.raises(Unavailable, match=f"there is {tmp_path}/var, and nobody answers"):
        world.find()


def test_what_a_dead_server_of_the_user_left_is_passed_over(world: World) -> None:
    world.folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(world.user))
    with pytest.raises(Unavailable, match="must not be started here"):
        world.find()
    assert world.started == [str(world.folder)]


def test_where_there_is_no_server_one_is_started(world: World) -> None:
    def start(folder: str, environ: Mapping[str, str], ready: Callable[[], bool]) -> bool:
        assert folder == str(world.folder)
        assert environ is world.environ
        assert not ready()
        with stub(world.user, answers_info(simulated=True)):
            assert ready()
        return True

    world.start = start
    found = world.find()
    assert (found.how, found.info.simulated) == ("started", True)
    assert world.folder.stat().st_mode & 0o777 == 0o700


def test_one_that_another_command_started_meanwhile_is_the_users(world: World) -> None:
    def start(folder: str, environ: Mapping[str, str], ready: Callable[[], bool]) -> bool:
        with stub(world.user, answers_info()):
            assert ready()
        return False

    world.start = start
    assert world.find().how == "user"


def test_a_hanging_server_costs_the_time_out_and_is_not_replaced(world: World) -> None:
    go_on = threading.Event()

    def hang(name: str, body: object) -> bytes:
        go_on.wait(300)
        return http({})

    with stub(world.system, hang):
        with pytest.raises(TimedOut):
            world.find(timeout=0.1)
        go_on.set()
    assert not world.started


def test_a_stranger_on_the_default_port_is_no_reason_to_start_one(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        world.port = listener.getsockname()[1]

        def greet() -> None:
            for _ in range(8):
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=greet, daemon=True)
        thread.start()
        with pytest.raises((Unavailable, TimedOut)):
            world.find(timeout=2.0)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(120)
    assert not world.started


def test_a_folder_of_another_user_is_not_trusted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.folder.mkdir(mode=0o700)
    with stub(world.user, answers_info()):
        monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)
        with pytest.raises(Denied, match="is not a folder of this user"):
            world.find()


def test_a_link_for_a_folder_is_not_trusted(world: World, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    world.folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Denied, match="not to be trusted"):
        world.find()


def test_a_named_loopback_server_is_reached_by_its_socket(world: World) -> None:
    """On the socket the kernel identifies the caller, so no token is needed."""
    world.folder.mkdir(mode=0o700)
    with (
        stub(world.system, answers_info(version="other", port=1)),
        stub(world.user, answers_info(version="it", port=4711, host="127.0.0.1")),
    ):
        found = world.find("localhost:4711")
    assert (found.info.version, found.how) == ("it", "named")
    assert found.address == "127.0.0.1:4711"


def test_a_wrong_address_is_bad_usage(world: World) -> None:
    with pytest.raises(InvalidRequest, match="'a b' is not the address of a server") as caught:
        world.find("a b")
    assert caught.value.exit_code == 2
