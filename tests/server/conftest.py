"""A server over a fake controller, both fronts open, in a folder that others may enter."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType

import grpc.aio
import pytest

from podwright.server import ListenOptions, Server
from tests.server.fakes import FakeController, Http, as_controller


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path (sockets have 107 bytes) that other accounts may enter."""
    path = Path(tempfile.mkdtemp(prefix="pw-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
async def server(controller: FakeController, folder: Path) -> AsyncIterator[Server]:
    running = Server(as_controller(controller), ListenOptions(folder / "s", socket_mode=0o666))
    await running.start()
    yield running
    await running.stop(1)


@pytest.fixture
async def http(server: Server) -> AsyncIterator[Http]:
    assert server.socket_path is not None
    client = await Http.connect(server.socket_path)
    yield client
    client.close()


@pytest.fixture
async def channel(server: Server) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as opened:
        yield opened


@pytest.fixture(scope="session")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ModuleType]]:
    """Client stubs as anybody would generate them from our .proto files."""
    import importlib

    tools = str(Path(__file__).parents[2] / "tools")
    made = tmp_path_factory.mktemp("stubs")
    sys.path[:0] = [tools, str(made)]
    try:
        from generate_wire import generate  # type: ignore[import-not-found]

        generate(made, stubs=True)
        yield {
            name: importlib.import_module(f"{name}_pb2_grpc")
            for name in ("virmgrpc", "podwright_v1")
        }
    finally:
        del sys.path[:2]
