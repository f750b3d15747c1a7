"""No other user reaches a twin, and nothing of a twin is left, whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.outer.lab import poll, release
from tests.outer.twin.test_ask import CHILD
from tests.slurm.twin.recorded import clusters

pytestmark = pytest.mark.twin

OWNER, OTHER = 1500, 1501
GONE_AFTER = 15.0  # seconds
ATTACK = Path(__file__).with_name("attack.py")
ROOT = Path(__file__).parents[3]


def command(uid: int, *words: str) -> list[str]:
    user = [] if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    return [*user, "/usr/bin/python3", *words]


def environment() -> dict[str, str]:
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}/src:{ROOT}:{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


@contextmanager
def running_twin(uid: int, root: str = "/") -> Iterator[subprocess.Popen[str]]:
    """A process of a user that keeps a twin."""
    recorded = "22.05.8" if root == "/" else "26.05.5"
    owner = subprocess.Popen(
        command(uid, str(CHILD), str(clusters(recorded)[0]), root, "1", "wait"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment(),
    )
    try:
        assert owner.stdout
        lines = iter(owner.stdout.readline, "")
        assert "ready\n" in lines, "the twin did not start"
        yield owner
    finally:
        owner.kill()
        for stream in (owner.stdin, owner.stdout):
            if stream:
                stream.close()
        owner.wait()


def descendants(pid: int) -> list[int]:
    """Processes below one, by number, those that were started first before the others."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize("owner", [0, OWNER])
@pytest.mark.parametrize("name", ["oldest", "newest"])
def test_another_user_reaches_nothing_of_a_twin(owner: int, name: str) -> None:
    root = str(release(name).root or "/")
    with running_twin(owner, root) as process:
        pids = descendants(process.pid)
        assert "slurmctld" in {name_of(pid) for pid in pids}
        attack = command(OTHER, str(ATTACK), *map(str, pids))
        done = subprocess.run(attack, capture_output=True, text=True, env=environment(), check=True)
        assert done.stdout == ""
        assert all(alive(pid) for pid in pids)


def test_the_attack_finds_the_twin_of_its_own_user() -> None:
    """The attack above would find what it looks for, were it there."""
    with running_twin(OWNER) as process:
        pids = descendants(process.pid)
        attack = command(OWNER, str(ATTACK), *map(str, pids))
        done = subprocess.run(attack, capture_output=True, text=True, env=environment(), check=True)
        for found in ("file", "network", "memory"):
            assert found in done.stdout


@pytest.mark.parametrize("victim", ["owner", "guardian", "first", "slurmctld"])
@pytest.mark.parametrize("owner", [0, OWNER])
def test_nothing_is_left_when_a_process_is_killed(owner: int, victim: str) -> None:
    with running_twin(owner) as process:
        guardian, first, *rest = descendants(process.pid)
        slurmctld = next(pid for pid in rest if name_of(pid) == "slurmctld")
        victims = {
            "owner": process.pid,
            "guardian": guardian,
            "first": first,
            "slurmctld": slurmctld,
        }
        os.kill(victims[victim], signal.SIGKILL)
        if victim == "slurmctld":
            process.kill()
        pids = (guardian, first, *rest)
        poll("the end of the twin", lambda: not any(alive(p) for p in pids), seconds=GONE_AFTER)
    assert not Path("/run/twin").exists()


def test_a_stopped_twin_ends_with_its_owner() -> None:
    """A stopped process sees no end of its input; the watcher kills it all the same."""
    with running_twin(OWNER) as process:
        guardian, first, *rest = descendants(process.pid)
        os.kill(first, signal.SIGSTOP)
        process.kill()
        pids = (guardian, first, *rest)
        poll("the end of the twin", lambda: not any(alive(p) for p in pids), seconds=GONE_AFTER)
