"""MUNGE over the commands, with a munged of the test's own: who calls is whom it vouches for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from podwright.hosts import Munge, Vouched
from podwright.wire import ServerInfo, ServerInfoRequest, messages, munge_payload
from tests.outer.lab import SlurmLab
from tests.server.test_roles import walk
from tests.server.walk import Doors, Who, everybody

BIN = Path(sys.executable).parent
PATH = messages.method_path("GetServerInfo")
NOBODY = 65534

pytestmark = [pytest.mark.outer, pytest.mark.slurm]


@pytest.fixture(scope="module")
def munge() -> Iterator[Path]:
    """The socket of a munged."""
    lab = SlurmLab(nodes=1)
    try:
        lab._start_munged()
        yield lab.folder / "munge.socket"
    finally:
        lab.stop()


def credential(munge: Path, uid: int, payload: bytes) -> str:
    """What MUNGE makes for a user. By setpriv: Python itself would fork, which gRPC takes ill."""
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    command += ["munge", f"--socket={munge}"]
    made = subprocess.run(command, input=payload, stdout=subprocess.PIPE, check=True)
    return made.stdout.decode().strip()


def serve(folder: Path, *words: str) -> subprocess.Popen[str]:
    command = [str(BIN / "vipu-server"), "--preset", "pod4", "--api-port", "0", "--secure"]
    command += ["--storage", str(folder / "db"), "--socket", str(folder / "s"), *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def port(tmp_path: Path, munge: Path) -> Iterator[int]:
    """Where a secure server answers that believes MUNGE."""
    with serve(tmp_path, "--munge", "--munge-socket", str(munge)) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        yield int(line.partition(" on 127.0.0.1:")[2].partition(" ")[0])
        process.kill()


def vipu(folder: Path, port: int, munge: str, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}
    environ["VIPU_CLI_MUNGE"] = munge
    command = [str(BIN / "vipu"), "-H", f"localhost:{port}", *words]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=300, check=False
    )


def test_the_commands_show_a_credential(port: int, munge: Path, tmp_path: Path) -> None:
    create = ("create", "partition", "p1", "--size", "4", "--no-ipuof-files")
    made = vipu(tmp_path, port, str(munge), *create)
    assert made.returncode == 0, made
    shown = vipu(tmp_path, port, str(munge), "get", "partition", "p1", "--json")
    assert '"owner": "root"' in shown.stdout
    never = vipu(tmp_path, port, "no", "list", "partitions")
    assert (never.returncode, "or --munge, where munged runs" in never.stderr) == (1, True)
    absent = vipu(tmp_path, port, str(tmp_path / "none"), "list", "partitions")
    assert absent.returncode == 1
    assert "MUNGE does not answer on this machine" in absent.stderr


def test_another_users_credential_is_that_users_once(port: int, munge: Path) -> None:
    body = messages.encode(ServerInfoRequest())
    shown = (("authorization", f"MUNGE {credential(munge, NOBODY, munge_payload(PATH, body))}"),)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary(PATH)
        info = messages.decode(ServerInfo, call(body, metadata=shown, timeout=120))
        assert (info.caller, info.role) == ("nobody", "user")
        with pytest.raises(grpc.RpcError, match="it was shown before"):
            call(body, metadata=shown, timeout=120)


class Anybodys:
    """Real MUNGE, which root can ask in anybody's name."""

    def __init__(self, socket: Path) -> None:
        self.uid = 0
        self._socket = socket
        self._munge = Munge(str(socket))

    def encode(self, payload: bytes) -> str:
        return credential(self._socket, self.uid, payload)

    def decode(self, credential: str) -> Vouched:
        return self._munge.decode(credential)


@pytest.mark.parametrize("who", [w for w in everybody() if w.door == "munge"], ids=str)
async def test_every_cell_of_the_table_with_munged(munge: Path, tmp_path: Path, who: Who) -> None:
    doors = Doors(tmp_path / "s", Anybodys(munge))
    await doors.start()
    try:
        await walk(doors, who)
    finally:
        await doors.stop()


def test_a_server_does_not_start_without_the_munge_that_it_promises(tmp_path: Path) -> None:
    with serve(tmp_path, "--munge", "--munge-socket", str(tmp_path / "none")) as process:
        _, said = process.communicate(timeout=300)
    assert process.returncode == 69
    assert "MUNGE does not answer here" in said
