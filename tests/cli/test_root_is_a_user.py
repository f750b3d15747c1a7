"""Root's server is private to root, as any account's is: only `--system` means the machine's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from podwright.agents.command._machine_from_options import state_file
from podwright.cli import vipu_agent, vipu_server
from podwright.ground.endpoints import SYSTEM_SOCKET
from podwright.server.command._serving_from_options import serving_options

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.delenv("PODWRIGHT_AGENT_KEY")


def test_a_server_that_root_starts_is_its_own(nobody_at_home: Path) -> None:
    options = serving_options(vipu_server.parse(["--preset", "pod16"]))
    state = nobody_at_home / "state" / "podwright"
    assert options.storage == state / "vipu-server.db"
    assert options.own_key == state / "agent.key"
    assert options.socket == nobody_at_home / "run" / "podwright" / "server.sock"
    assert (options.listen.socket_mode, options.listen.private_folder) == (0o600, True)


def test_a_server_of_the_system_is_the_machines(nobody_at_home: Path) -> None:
    options = serving_options(vipu_server.parse(["--system"]))
    root = os.environ["PODWRIGHT_ROOT"]  # stands for / in a test
    assert str(options.storage) == f"{root}/var/lib/podwright/vipu-server.db"
    assert str(options.own_key) == f"{root}/var/lib/podwright/agent.key"
    assert (str(options.socket), options.listen.socket_mode) == (SYSTEM_SOCKET, 0o666)


def test_an_agent_that_root_starts_keeps_its_state_in_its_home(nobody_at_home: Path) -> None:
    parsed = vipu_agent.parse(["--machine", "ag1"])
    assert state_file(parsed, "ag1").parent == nobody_at_home / "state" / "podwright"


@pytest.mark.parametrize("unit", ["vipu-server.service", "vipu-agent@.service"])
def test_each_unit_starts_the_machines_own_server_or_agent(unit: str) -> None:
    lines = (UNITS / unit).read_text().splitlines()
    (start,) = [line for line in lines if line.startswith("ExecStart=")]
    assert " --system " in start


def test_an_agents_figures_may_have_any_free_port() -> None:
    assert vipu_agent.parse(["--http-port", "0"]).http_port == 0
