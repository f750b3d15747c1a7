"""An older Podwright and this one, by turns on one store, and each beside the other's clients.

The older one is built from this project's own history: going back, it is the last commit whose
oldest reader is ours, so everything between the two can follow each other as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.release import unpack

from podwright.client import Client, UnixTransport
from podwright.errors import PodwrightError
from podwright.ground.endpoints import SOCKET_VARIABLE
from podwright.store._format import OLDEST_READER
from podwright.wire import AcquireRequest, AuditReport, AuditRequest, PartitionSpec
from tests.outer.test_full_disk import until
from tests.whole.conftest import Pod, make_pod, world
from tests.whole.machines import World

__all__ = ["make_pod", "world"]  # fixtures

pytestmark = pytest.mark.outer
ROOT = Path(__file__).parents[2]


def git(*words: str) -> bytes:
    """What git says of this checkout."""
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout


@pytest.fixture
def silence() -> float:
    """So long that an agent which starts again on a busy machine never counts as dead.

    The server asks its agents once in a quarter of that time, and each change of a build waits for
    both agents to be asked.
    """
    return 60.0


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the older build's sources."""
    if not (ROOT / ".git").exists():
        pytest.skip("these sources are no clone: there is no history to build from")
    if git("rev-parse", "--is-shallow-repository").strip() == b"true":
        pytest.skip("this clone is shallow: git fetch --unshallow brings the history")
    line = f"OLDEST_READER: Final = {OLDEST_READER}"
    commits = git("log", "--format=%H", f"-S{line}", "--", "src/podwright/store/_format.py")
    commit = commits.decode().split()[-1]  # that brought this number
    folder = tmp_path_factory.mktemp("older")
    unpack(git("archive", commit, "src"), folder)
    return folder / "src"


@contextmanager
def served(folder: Path, sources: Path | None, *, killed: bool = False) -> Iterator[Client]:
    """A client of a server on the folder's store. sources: of another build; None: of this one."""
    place = folder / "s"
    words = [sys.executable, "-m", "podwright.cli.vipu_server", "--preset", "pod16"]
    words += ["--api-port", "0", "--storage", str(folder / "db"), "--socket", str(place)]
    env = {**os.environ, "XDG_STATE_HOME": str(folder)}
    if sources is not None:
        env["PYTHONPATH"] = str(sources)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=folder, env=env) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert "pod16" in line, line + process.stderr.read()
            with Client(UnixTransport(str(place))) as client:
                yield client
        finally:
            (process.kill if killed else process.terminate)()
            process.wait(300)


def is_active(client: Client, name: str) -> bool:
    """Whether a partition is there, and settled."""
    try:
        return client.get_partition(name).ready_state.value == "ACTIVE"
    except PodwrightError:
        return False


def test_the_older_build_is_another_one(older: Path) -> None:
    code = "import podwright; print(podwright.__file__)"
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(older)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert loaded.strip() == str(older / "podwright" / "__init__.py")


@pytest.mark.parametrize("killed", [False, True])
def test_they_follow_each_other_on_one_store(older: Path, tmp_path: Path, killed: bool) -> None:
    """Partitions and leases stand through an upgrade, the way back, and another upgrade."""
    with served(tmp_path, older, killed=killed) as client:
        client.create_partition(PartitionSpec(name="p0", size=4))
        held = client.acquire(AcquireRequest(spec=PartitionSpec(name="p0"), ttl=600)).lease
    expected = {"p0"}
    for turn, build in enumerate([None, older, None]):
        with served(tmp_path, build, killed=killed) as client:
            for name in expected:
                until(lambda name=name: is_active(client, name))  # type: ignore[misc]
            assert {partition.name for partition in client.list_partitions()} == expected
            assert [lease.id for lease in client.list_leases()] == [held.id]
            client.renew(held.id, held.epoch)
            client.create_partition(PartitionSpec(name=f"p{turn + 1}", size=2))
            expected.add(f"p{turn + 1}")
    with served(tmp_path, None) as client:
        assert [
            chain
            for chain in client.ask("VerifyAudit", AuditRequest(), AuditReport).chains
            if chain.problems
        ] == []
        client.release(held.id, held.epoch)
        for name in sorted(expected):
            client.remove_partition(name)
        assert client.list_partitions() == []


@pytest.mark.parametrize("old_server", [True, False])
def test_commands_of_either_build_call_the_others_server(
    older: Path, tmp_path: Path, old_server: bool
) -> None:
    server, commands = (older, None) if old_server else (None, older)
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path), SOCKET_VARIABLE: str(tmp_path / "s")}
    if commands is not None:
        env["PYTHONPATH"] = str(commands)

    def vipu(*words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "podwright.cli.vipu", *words],
            env=env,
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    with served(tmp_path, server):
        vipu("create", "partition", "p0", "--size", "4")
        assert "p0" in vipu("list", "partitions")
        vipu("remove", "partition", "p0")
        assert "p0" not in vipu("list", "partitions")


@pytest.mark.parametrize("newer_first", ["server", "agents"])
@pytest.mark.parametrize("back", [False, True], ids=["upgrade", "rollback"])
def test_a_launch_runs_on_while_server_and_agents_change_their_builds(
    older: Path, world: World, tmp_path: Path, newer_first: str, back: bool
) -> None:
    """The server and its two agents change builds one by one, under a launch of the first build.

    Whatever has changed and whatever has not, the launch's partition is ACTIVE and its lease HELD,
    and another partition is configured, reset and removed on the same machines' other devices.
    """
    pod, machines = world.pod, world.machines
    old: dict[str, str] = {"PYTHONPATH": str(older)}
    first, second = ({}, old) if back else (old, {})
    pod.stop()
    pod.variables.update(first)
    machines.variables.update(first)
    pod.start()
    world.register("ag1", "ag2")
    world.admin("create", "cluster", "c1", "--agents", "ag1,ag2", "--topology", "mesh")
    go_on = tmp_path / "go-on"
    waits = f"touch {tmp_path}/started.$$; until [ -e {go_on} ]; do sleep 0.1; done; echo went on"
    launched = ["poprun", "--vipu-partition", "p1", "--update-partition", "yes"]
    launched += ["--num-replicas", "4", "--num-instances", "2", "sh", "-c", waits]
    with subprocess.Popen(
        [str(Path(sys.executable).parent / launched[0]), *launched[1:]],
        env={**pod.environ, **first},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launch:
        try:
            world.until(lambda: _runs(pod, tmp_path))
            changes = (
                ["server", "ag1", "ag2"] if newer_first == "server" else ["ag1", "ag2", "server"]
            )
            for changed in changes:
                if changed == "server":
                    pod.variables = dict(second)
                    pod.stop()
                    pod.start()
                else:
                    machines.variables = dict(second)
                    machines.signal(changed, signal.SIGKILL)
                    machines.start(changed)
                for agent in ("ag1", "ag2"):
                    world.until_heard(agent)
                world.until(lambda: world.ready("p1") == "ACTIVE")
                with pod.client() as client:
                    (lease,) = client.list_leases()
                    assert (lease.partition, lease.state) == ("p1", "HELD"), changed
                    client.create_partition(PartitionSpec(name="p2", size=4))
                    client.reset_partition("p2")
                    client.remove_partition("p2")
                assert launch.poll() is None, changed
            go_on.touch()
            out, _ = launch.communicate(timeout=300)
        finally:
            launch.kill()
    assert launch.returncode == 0, out
    assert out.count("went on") == 2
    with pod.client() as client:
        until(lambda: client.list_leases() == [])


def _runs(pod: Pod, folder: Path) -> bool:
    """Whether the launch holds its partition and both of its instances run."""
    with pod.client() as client:
        return bool(client.list_leases()) and len([*folder.glob("started.*")]) == 2
