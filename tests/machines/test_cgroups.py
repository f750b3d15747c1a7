"""Device cgroups of partitions are made, joined and removed, whoever is killed in between."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from podwright.agents import SavedMachine
from podwright.agents.gpu import Cgroups, CgroupSocket, GpuMachine, open_machine
from podwright.errors import Denied, Fenced, InvalidRequest, NotFound, WrongState
from podwright.fabric import Machine
from podwright.hosts import CgroupsV1, CgroupsV2, RecordedCgroups, find_device_cgroups
from podwright.hosts.gpus import Library, divided
from podwright.hosts.gpus._nvml_standin import STANDIN_VARIABLE
from podwright.launcher.watchers._join_cgroup import enter_partition
from podwright.wire import AGENT_SOCKET_VARIABLE


@pytest.fixture
def groups() -> RecordedCgroups:
    """Groups like the kernel's."""
    return RecordedCgroups()


@pytest.fixture
def machine(described: Path, groups: RecordedCgroups) -> Iterator[GpuMachine]:
    """Eight GPUs behind the guard. Their device files are not made yet."""
    made = open_machine(
        Machine("n1"),
        {STANDIN_VARIABLE: str(described)},
        guards=lambda gpus: [
            Cgroups(groups, [d.gpu for d in divided(gpus)], "/nowhere/", exit_patience=0)
        ],
    )
    assert made is not None
    yield made
    made.close()


def shut(*but: int) -> set[tuple[int, int]]:
    """Return all of NVIDIA's eight files but these."""
    return {(195, index) for index in range(8) if index not in but}


async def test_a_partition_opens_its_own_alone(
    machine: GpuMachine, groups: RecordedCgroups
) -> None:
    for epoch in (1, 2):  # the second changes nothing
        await machine.configure("p1", epoch, [1, 2])
    await machine.configure("p2", 3, [5])
    assert groups.denied == {"p1": shut(1, 2), "p2": shut(5)}
    await machine.release(4, [1])
    assert groups.denied["p1"] == shut(2)
    await machine.release(5, [2])
    await machine.release(6, [5])
    assert groups.denied == {}


async def test_who_may_be_moved_into_it(machine: GpuMachine, groups: RecordedCgroups) -> None:
    await machine.configure_for("4711", "p1", 1, [1])
    await machine.configure_for("", "open", 2, [2])
    for uid in (4711, 0):
        await machine.enter("p1", 100 + uid, uid)
    await machine.enter("open", 7, 12)
    assert groups.inside == {"p1": [4811, 100], "open": [7]}
    with pytest.raises(Denied, match="partition p1 is user 4711's"):
        await machine.enter("p1", 8, 12)
    with pytest.raises(NotFound, match="no GPUs of partition p3"):
        await machine.enter("p3", 8, 12)


async def test_what_is_left_of_an_ended_partition(
    machine: GpuMachine, groups: RecordedCgroups
) -> None:
    await machine.configure("p1", 1, [1])
    await machine.enter("p1", 4711, 0)
    await machine.release(2, [1])
    assert groups.denied == {"p1": shut()}  # it opens none any more
    with pytest.raises(WrongState, match=r"processes of an earlier partition p1 .*: 4711"):
        await machine.configure("p1", 3, [1])
    groups.inside["p1"].clear()
    await machine.describe()
    assert groups.denied == {}
    await machine.configure("p1", 4, [1])
    assert groups.denied == {"p1": shut(1)}


async def test_found_again_after_a_kill(
    machine: GpuMachine, described: Path, groups: RecordedCgroups, tmp_path: Path
) -> None:
    kept = SavedMachine(machine, tmp_path / "state")
    await kept.configure_for("4711", "p1", 1, [1, 2])
    kept.let_go()
    groups.confine("killed-before-it-was-known", shut(3), ())
    groups.denied["p1"] -= shut(1, 2)  # as if killed before the kernel was told
    again = open_machine(
        Machine("n1"),
        {STANDIN_VARIABLE: str(described)},
        guards=lambda gpus: [
            Cgroups(groups, [d.gpu for d in divided(gpus)], "/nowhere/", exit_patience=0)
        ],
    )
    assert again is not None
    kept = SavedMachine(again, tmp_path / "state")
    await kept.describe()
    assert groups.denied == {"p1": shut(1, 2)}
    with pytest.raises(Denied):
        await again.enter("p1", 5, 12)
    assert groups.remove("p1")  # by somebody else
    await kept.describe()
    assert groups.denied == {"p1": shut(1, 2)}
    await kept.release(2, [1, 2])
    assert groups.denied == {}
    kept.let_go()
    again.close()


async def test_a_launch_asks_for_itself(
    machine: GpuMachine, groups: RecordedCgroups, tmp_path: Path
) -> None:
    import asyncio

    await machine.configure_for(str(os.getuid()), "p1", 1, [1])
    path = tmp_path / "agent.sock"
    environ = {
        AGENT_SOCKET_VARIABLE: str(path),
        "IPUOF_VIPU_API_PARTITION_ID": "p1",
        "PODWRIGHT_GPUS": "GPU-1",
    }
    assert await asyncio.to_thread(enter_partition, environ) == ""  # no agent here
    assert groups.inside == {"p1": []}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        assert "does not answer" in await asyncio.to_thread(enter_partition, environ)
        listener.listen()
        listener.setblocking(False)
        door = CgroupSocket(machine)
        await door.start(listener)
        for ours in ({"SLURM_JOB_ID": "1"}, {"IPUOF_VIPU_API_PARTITION_ID": ""}):
            assert await asyncio.to_thread(enter_partition, {**environ, **ours}) == ""
        assert groups.inside == {"p1": []}
        assert await asyncio.to_thread(enter_partition, environ) == ""
        assert groups.inside == {"p1": [os.getpid()]}
        other = {**environ, "IPUOF_VIPU_API_PARTITION_ID": "p2"}
        assert "no GPUs of partition p2" in await asyncio.to_thread(enter_partition, other)
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"x" * 10_000 + b"\n")
        assert json.loads(await reader.readline())["code"] == "INTERNAL"
        writer.close()
        await writer.wait_closed()
        await door.stop()


def test_trying_it_out_leaves_nothing(nvml: Library, groups: RecordedCgroups) -> None:
    guard = Cgroups(groups, nvml.gpus(), "/nowhere/")
    guard.check_supported()
    guard.check(nvml.gpus())
    assert groups.names() == []


def test_a_kernel_that_lets_nobody_is_told_at_once(nvml: Library) -> None:
    guard = Cgroups(CgroupsV1("/proc/self"), nvml.gpus(), "/nowhere/")
    with pytest.raises(InvalidRequest, match="device cgroups cannot be made here: "):
        guard.check_supported()


V1 = "36 35 0:31 / /sys/fs/cgroup/devices rw,nosuid shared:9 - cgroup cgroup rw,devices\n"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = "37 35 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"


@pytest.mark.parametrize(
    ("mounts", "kind", "path"),
    [
        (OTHER + V1, CgroupsV1, "/sys/fs/cgroup/devices/podwright"),
        (V2, CgroupsV2, "/sys/fs/cgroup/podwright"),
        (V2 + V1, CgroupsV1, "/sys/fs/cgroup/devices/podwright"),
    ],
)
def test_which_version(tmp_path: Path, mounts: str, kind: type, path: str) -> None:
    (tmp_path / "mounts").write_text(mounts)
    found = find_device_cgroups(mounts_path=str(tmp_path / "mounts"))
    assert type(found) is kind
    assert str(getattr(found, "path", "")) == path


def test_a_machine_without(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(OTHER)
    assert find_device_cgroups(mounts_path=str(tmp_path / "mounts")) is None


async def test_a_fence_ends_what_a_launch_left_and_nothing_else(
    machine: GpuMachine, groups: RecordedCgroups
) -> None:
    """Stopped processes end too: one that goes on later must not find its GPU again."""
    await machine.configure_for("", "p1", 1, [1, 2])

    def start(**environ: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "600"], env={**os.environ, **environ})

    run, further = f"run-{uuid4()}", f"run-{uuid4()}"  # a fence ends what bears its mark, anywhere
    inside, marked, other = start(), start(PODWRIGHT_RUN=run), start(PODWRIGHT_RUN=further)
    try:
        groups.enter("p1", inside.pid)
        inside.send_signal(signal.SIGSTOP)
        await machine.fence(2, [1], f"{further}-not")  # the other half may be somebody else's
        assert inside.poll() is marked.poll() is None
        await machine.fence(3, [1, 2], run)
        assert (inside.wait(60), marked.wait(60)) == (-9, -9)
        assert other.poll() is None
        with pytest.raises(Fenced):
            await machine.reset(2, [1])
        assert (await machine.describe()).configured == {1: ("p1", 3), 2: ("p1", 3)}
    finally:
        for process in (inside, marked, other):
            process.kill()
            process.wait()


@pytest.mark.parametrize(
    ("guarded", "uid", "cuts"), [(True, 0, "agent"), (True, 500, ""), (False, 0, "")]
)
async def test_what_it_says_that_it_can_cut_off(
    machine: GpuMachine, monkeypatch: pytest.MonkeyPatch, guarded: bool, uid: int, cuts: str
) -> None:
    """Guards close the device's file, and only root can end a process that has it open."""
    assert (await machine.describe()).cuts_off == "devices"  # these are simulated
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    machine.simulated = False
    if not guarded:
        machine._guards = ()
    report = await machine.describe()
    assert (report.cuts_off, report.uid) == (cuts, uid)
