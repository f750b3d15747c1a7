"""Device cgroups of this machine's own kernel, in each version that it has.

The files opened are NVIDIA's by number, and no driver is behind them: what may be opened answers
ENXIO, what may not EPERM.
"""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from podwright.hosts import CgroupsV1, CgroupsV2, DeviceCgroups, host_name
from podwright.hosts._device_cgroups import _mounted
from tests.outer.lab import LabError
from tests.whole.conftest import Pod
from tests.whole.machines import SILENCE, Machines, World

pytestmark = pytest.mark.outer
MOUNTED = dict(_mounted("/proc/self/mountinfo"))
ALL = {(195, index) for index in range(4)}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Four device files that everybody may open."""
    made = [str(tmp_path / f"gpu{index}") for index in range(4)]
    tmp_path.chmod(0o755)
    for index, path in enumerate(made):
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(195, index))
        os.chmod(path, 0o666)
    return made


def made_at(version: str) -> CgroupsV1 | CgroupsV2:
    """Groups of this version, in a folder of this process's own."""
    where, folder = MOUNTED[version], f"podwright-test-{os.getpid()}"
    return CgroupsV1(where, folder) if version == "1" else CgroupsV2(where, folder)


def works(version: str) -> bool:
    """Whether this machine lets us have them."""
    try:
        made_at(version).confine("try-out", (), ())
        return made_at(version).remove("try-out")
    except OSError:
        return False


#: Where none does, the tests fail and say so.
VERSIONS = [v for v in sorted(MOUNTED) if os.geteuid() == 0 and works(v)] or ["any"]


@pytest.fixture(params=VERSIONS)
def groups(request: pytest.FixtureRequest) -> Iterator[DeviceCgroups]:
    """Groups in a folder of the test's own."""
    if request.param not in MOUNTED:
        raise LabError("device cgroups need root, and cgroups that are mounted and may be changed")
    made = made_at(request.param)
    yield made
    for name in made.names():
        assert made.remove(name)
    assert not made.path.exists()


def opened(files: list[str]) -> list[str]:
    """How each answers this process."""
    found = []
    for path in files:
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError as error:
            found.append(errno.errorcode[error.errno or 0])
    return found


def inside(groups: DeviceCgroups, name: str, what: Callable[[], str], uid: int = 0) -> str:
    """What a process in the group returns; it becomes this user after it was moved."""
    ready, told = os.pipe()
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.read(ready, 1)
            os.setuid(uid)
            os.write(theirs, what().encode())
        finally:
            os._exit(0)
    groups.enter(name, pid)
    assert groups.members(name) == [pid]
    os.write(told, b"x")
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    for handle in (ready, told):
        os.close(handle)
    return said


def test_only_what_is_allowed_is_opened(groups: DeviceCgroups, files: list[str]) -> None:
    def look() -> str:
        return inside(groups, "p1", lambda: " ".join(opened(files)))

    for _ in range(2):
        groups.confine("p1", ALL - {(195, 1), (195, 2)}, {(195, 1), (195, 2)})
        assert look() == "EPERM ENXIO ENXIO EPERM"
    groups.confine("p1", ALL - {(195, 3)}, {(195, 3)})
    assert look() == "EPERM EPERM EPERM ENXIO"
    groups.confine("p1", ALL, ())
    assert look() == "EPERM EPERM EPERM EPERM"
    assert opened(files) == ["ENXIO"] * 4  # we are in no group
    assert inside(groups, "p1", lambda: str(os.path.exists("/dev/null"))) == "True"
    with open("/dev/null", "wb") as null:
        null.write(b"x")


def test_a_user_does_not_get_out(groups: DeviceCgroups, files: list[str]) -> None:
    groups.confine("p1", ALL, ())
    groups.confine("p2", ALL - {(195, 0)}, {(195, 0)})
    path = getattr(groups, "path", Path())

    def flee() -> str:
        said = []
        for folder in (path / "p-p2", path.parent, path):
            try:
                (folder / "cgroup.procs").write_text("0")
                said.append("out")
            except OSError as error:
                said.append(errno.errorcode[error.errno or 0])
        return " ".join([*said, *opened(files)])

    assert set(inside(groups, "p1", flee, 65534).split()) <= {"EACCES", "EPERM"}


def test_a_group_goes_when_its_processes_have_gone(groups: DeviceCgroups) -> None:
    groups.confine("a/../b c", ALL, ())
    assert groups.names() == ["a/../b c"]
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.read(ready, 1)
        finally:
            os._exit(0)
    groups.enter("a/../b c", pid)
    assert not groups.remove("a/../b c")
    os.write(told, b"x")
    os.waitpid(pid, 0)
    assert groups.remove("a/../b c")
    assert groups.remove("a/../b c")
    for handle in (ready, told):
        os.close(handle)


TELL = """
import os, sys
def tell(path):
    try: os.close(os.open(path, os.O_RDWR))
    except OSError as error: return error.strerror.split()[0]
print("saw", *(tell(path) for path in sys.argv[1:]))
"""


@pytest.fixture
def node(tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A server, and an agent of this host with four GPUs behind cgroups."""
    described = tmp_path / "gpus.toml"
    described.write_text("gpus = 4\n")
    monkeypatch.setenv("PODWRIGHT_AGENT_SOCKET", str(tmp_path / "agent.sock"))
    pod = Pod(tmp_path, "--agent-silence", str(SILENCE), "-a", "lo")
    pod.start()
    monkeypatch.setenv("PODWRIGHT_STANDIN_NVML", str(described))  # the agent's, not the server's
    machines = Machines(tmp_path, "--gpus", "--guard", "cgroups")
    try:
        world = World(pod, machines)
        world.register(host_name())
        world.admin("create", "cluster", "row", "--agents", host_name())
        yield world
    finally:
        machines.end()
        pod.stop(signal.SIGKILL)


def test_the_programs_of_a_launch(node: World, files: list[str]) -> None:
    pod, name = node.pod, host_name()
    program = [sys.executable, "-c", TELL, *files]

    def saw(partition: str) -> list[str]:
        ran = pod.run(
            *("poprun", "--vipu-partition", partition, "--num-instances", "1"),
            *("--num-replicas", "1", "--ipus-per-replica", "2", "--update-partition", "no"),
            *program,
        )
        assert ran.code == 0, ran
        (line,) = [line for line in ran.out.splitlines() if "saw" in line]
        return line.split()[-4:]

    for partition in ("p1", "p2"):
        pod.good("vipu", "create", "partition", partition, "--size", "2")
    assert saw("p1") == ["No", "No", "Operation", "Operation"]
    assert saw("p2") == ["Operation", "Operation", "No", "No"]
    node.machines.signal(name, signal.SIGKILL)
    node.until(lambda: node.ready("p1") == "ERROR")
    node.machines.start(name)
    node.until(lambda: node.ready("p1") == "ACTIVE")
    assert saw("p1") == ["No", "No", "Operation", "Operation"]
    pod.good("vipu", "remove", "partition", "p1")
    pod.good("vipu", "remove", "partition", "p2")
    where = MOUNTED.get("1") or MOUNTED["2"]
    deadline = time.monotonic() + 300
    while (left := [*Path(where).glob("podwright/p-p[12]")]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
