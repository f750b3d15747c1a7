"""A server of a simulated pod, which this process's own environment names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import home_variables
from tests.whole.conftest import Pod as Server


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests of a file. Each test takes and gives back what it needs."""
    folder = tmp_path_factory.mktemp("pod")
    folder.chmod(0o700)
    server = Server(folder, "--preset", "pod16", variables=home_variables(folder))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(served: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Server:
    """The server, for this process. No partition is left when a test begins or ends."""
    monkeypatch.setenv("PODWRIGHT_SOCKET", str(served.socket))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", served.environ["PATH"])
    assert served.partitions() == {}
    return served
