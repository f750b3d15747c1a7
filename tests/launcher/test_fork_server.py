"""The fork server exists for the keepers of later attempts, and ends with poprun."""

from __future__ import annotations

import os
import signal

from podwright.hosts import children
from tests.launcher.conftest import Launcher, name_of, wait_until

WAIT = "echo up; while [ ! -e go ]; do sleep 0.1; done"
PROGRAM = f'[ "$PODWRIGHT_RESTART" = 1 ] && exit 0; {WAIT}; exit 3'
LINE = ("--num-replicas=1", "--num-instances=1", "--max-restarts=1", "sh", "-c", PROGRAM)


def server_of(poprun: int) -> int:
    """Return the pid of the fork server."""

    def find() -> list[int]:
        return [pid for pid in children(poprun) if name_of(pid) == "podwright-fork"]

    wait_until(lambda: len(find()) == 1)
    return find()[0]


def test_a_launch_that_cannot_restart_has_no_fork_server(launcher: Launcher) -> None:
    process = launcher.start("--num-replicas=1", "--num-instances=1", "sh", "-c", WAIT)
    assert process.stdout
    assert process.stdout.readline().endswith("up\n")
    assert "podwright-fork" not in {name_of(pid) for pid in children(process.pid)}
    (launcher.cwd / "go").touch()
    process.communicate(timeout=300)
    assert process.returncode == 0
    launcher.leaves_nothing()


def test_a_launch_ends_where_its_fork_server_is_gone(launcher: Launcher) -> None:
    process = launcher.start(*LINE)
    assert process.stdout
    assert process.stdout.readline().endswith("up\n")
    os.kill(server_of(process.pid), signal.SIGKILL)
    (launcher.cwd / "go").touch()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 75, err
    assert "poprun's fork server process, which starts instances anew, was ended" in err
    assert launcher.calls() == ["Acquire", "Release"]
    launcher.leaves_nothing()


def test_a_stopped_fork_server_ends_with_poprun(launcher: Launcher) -> None:
    process = launcher.start(*LINE)
    assert process.stdout
    assert process.stdout.readline().endswith("up\n")
    os.kill(server_of(process.pid), signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=300)
    launcher.leaves_nothing()
