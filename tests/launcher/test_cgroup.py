"""Launches without a PID namespace, in a cgroup that was delegated to their user.

The instances fork and exit faster than anything can observe, in a session and an environment of
their own: neither a mark nor a parent leads to them. In the ring that runs as root, the cgroup is
the kernel's own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from podwright.hosts import group_is_empty, make_group, remove_group
from podwright.hosts._device_cgroups import _mounted
from tests.launcher.conftest import Launcher, wait_until

#: A user that may do nothing: nobody.
ORDINARY = 65534
WATCHERS = ("poprun", "keeper", "guardian")
#: Each process starts the next and ends; the first stays until it has begun.
RESTLESS = """\
import os, signal, sys, time
print("up", flush=True)
for name in ("TERM", "INT", "HUP"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
if os.fork():
    time.sleep(1000)
os.setsid()
while True:
    if os.fork():
        os._exit(0)
    time.sleep(0.002)
"""


def kernel(folder: Path, own: str, *, mounted: str = "/", kill: bool = True) -> dict[str, str]:
    """The files of a kernel's cgroups, as ordinary folders."""
    (folder / "user").mkdir(exist_ok=True)
    (folder / "user" / "cgroup.procs").touch()
    (folder / "mounts").write_text(
        f"30 20 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
        f"31 20 0:27 {mounted} {folder} rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
    )
    (folder / "own").write_text(f"8:pids:/\n0::{own}\n")
    return {"mounts_path": str(folder / "mounts"), "cgroups_path": str(folder / "own")}


@pytest.fixture
def kernel_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill a new folder with the files that the kernel would put there."""
    made = os.mkdir

    def mkdir(path: str, mode: int = 0o777) -> None:
        made(path, mode)
        for name in ("cgroup.kill", "cgroup.procs", "cgroup.events"):
            Path(path, name).touch()

    monkeypatch.setattr(os, "mkdir", mkdir)


@pytest.mark.usefixtures("kernel_fills")
@pytest.mark.parametrize(
    ("own", "mounted"),
    [("/user", "/"), ("/far/user", "/far"), ("/user/../user", "/")],
)
def test_a_launchs_cgroup_is_made_below_our_own(tmp_path: Path, own: str, mounted: str) -> None:
    made = make_group("run-1", {}, **kernel(tmp_path, own, mounted=mounted))
    assert made == str(tmp_path / "user" / "run-1")


def test_no_cgroup_is_made_where_it_would_not_work(tmp_path: Path) -> None:
    here = kernel(tmp_path, "/user")
    # A kernel before 5.14 has no cgroup.kill: what was made is taken away again.
    assert make_group("run-1", {}, **here) == ""
    assert not (tmp_path / "user" / "run-1").exists()
    # Slurm does not look into what is made below its own.
    assert make_group("run-1", {"SLURM_JOB_ID": "1"}, **here) == ""
    # Nobody handed it to us.
    (tmp_path / "user" / "cgroup.procs").unlink()
    assert make_group("run-1", {}, **here) == ""
    # It is mounted elsewhere, or there is only version 1.
    assert make_group("run-1", {}, **kernel(tmp_path, "/user", mounted="/far")) == ""
    (tmp_path / "own").write_text("8:pids:/\n")
    assert make_group("run-1", {}, **here) == ""


class Delegated(Launcher):
    """Starts poprun as an ordinary user in a cgroup of this user."""

    def __init__(self, folder: Path, group: Path) -> None:
        folder.mkdir()
        (folder / "memory").mkdir()
        super().__init__(folder, folder / "memory", ORDINARY)
        self.group = group
        group.mkdir()
        for path in (group, group / "cgroup.procs"):
            os.chown(path, ORDINARY, ORDINARY)

    def _as_user(self) -> list[str]:
        enter = 'echo 0 >"$0" && exec "$@"'
        return ["sh", "-c", enter, str(self.group / "cgroup.procs"), *super()._as_user()]

    def restless(self) -> subprocess.Popen[str]:
        """Start a launch, and wait until its instances are up."""
        program = ["env", "-i", sys.executable, "-c", RESTLESS]
        options = ["-v", "--pid-namespace=no", "--num-replicas=2", "--num-instances=2"]
        process = self.start(*options, "--grace=1", *program)
        assert process.stdout
        for _ in range(2):
            assert process.stdout.readline().endswith("up\n"), process.communicate()
        return process

    def kill(self, process: subprocess.Popen[str], parts: tuple[str, ...]) -> None:
        """Kill some of a launch's watchers."""
        tree = self.tree(process)._asdict()
        for part in parts:
            os.kill(tree[part], signal.SIGKILL)

    def is_empty(self) -> bool:
        """Return whether neither a process nor a group is left."""
        return group_is_empty(str(self.group)) and not [*self.group.glob("podwright-run-*")]

    def clear(self) -> None:
        """Remove what a failed test left."""
        (self.group / "cgroup.kill").write_text("1")
        super().clear()
        wait_until(lambda: group_is_empty(str(self.group)))
        remove_group(str(self.group))


@pytest.fixture
def delegated(request: pytest.FixtureRequest) -> Iterator[list[Delegated]]:
    """Makes as many as requested, each in a cgroup of its own."""
    mounted = dict(_mounted("/proc/self/mountinfo"))
    assert "2" in mounted, "cgroups of version 2 are not mounted"
    made: list[Delegated] = []
    with tempfile.TemporaryDirectory(prefix="podwright-test-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        for at in range(request.param):
            group = Path(mounted["2"], f"podwright-test-{os.getpid()}-{at}")
            made.append(Delegated(Path(folder, str(at)), group))
        yield made
        for launcher in made:
            launcher.clear()


SETS = [(one,) for one in WATCHERS] + [(a, b) for a in WATCHERS for b in WATCHERS if a < b]


@pytest.mark.outer
@pytest.mark.parametrize("delegated", [len(SETS)], indirect=True, ids=["each"])
def test_any_watcher_that_is_left_ends_processes_that_hide(delegated: list[Delegated]) -> None:
    runs = [launcher.restless() for launcher in delegated]
    for launcher, run, parts in zip(delegated, runs, SETS, strict=True):
        launcher.kill(run, parts)
    for launcher, run, parts in zip(delegated, runs, SETS, strict=True):
        _, err = run.communicate(timeout=300)
        assert "a cgroup, and no PID namespace (it is not wanted)" in err, parts
        wait_until(launcher.is_empty)
        launcher.leaves_nothing()
        if not {"poprun", "keeper"} <= set(parts):
            assert launcher.calls() == ["Acquire", "Release"], parts


@pytest.mark.outer
@pytest.mark.parametrize("delegated", [1], indirect=True, ids=["one"])
def test_the_next_launch_ends_what_all_watchers_left(delegated: list[Delegated]) -> None:
    """When all watchers were killed, nobody writes to the cgroup before the next launch."""
    launcher = delegated[0]
    run = launcher.restless()
    launcher.kill(run, WATCHERS)
    run.communicate(timeout=300)
    assert not group_is_empty(str(launcher.group))
    for path in launcher.temporary.iterdir():  # as if it had been left six seconds ago
        os.utime(path, (0, 0))
    assert launcher.run("--num-replicas=1", "true").code == 0
    wait_until(launcher.is_empty)
