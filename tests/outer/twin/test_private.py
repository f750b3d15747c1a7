"""A twin of a user to whom the kernel grants no namespaces: its answers, its privacy, its end."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.outer.lab import ALICE, BOB, poll
from tests.outer.twin.test_ask import CHILD
from tests.outer.twin.test_safety import (
    GONE_AFTER,
    ROOT,
    alive,
    descendants,
    environment,
    name_of,
)
from tests.slurm.twin.recorded import clusters, read_cluster

pytestmark = pytest.mark.twin

ATTACK = Path(__file__).with_name("attack_private.py")
WITHOUT = Path(__file__).with_name("without_namespaces.py")
SITE = clusters("22.05.8")[0]
PYTHON = "/usr/bin/python3"


def user_command(uid: int, *words: str) -> list[str]:
    return [PYTHON, str(WITHOUT), str(uid), PYTHON, *words]


@contextmanager
def running_twin(folder: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """A process of Alice that keeps a twin below a folder, and the lines of its answers."""
    alice = pwd.getpwnam(ALICE).pw_uid
    folder.chmod(0o755)
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o755)
    os.chown(temporary, alice, alice)
    owner = subprocess.Popen(
        user_command(alice, str(CHILD), str(SITE), "/", "10", "wait"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment() | {"TMPDIR": str(temporary)},
    )
    try:
        assert owner.stdout
        answers = []
        for line in iter(owner.stdout.readline, ""):
            if line == "ready\n":
                break
            answers.append(line.strip())
        else:
            pytest.fail("the twin did not start")
        yield owner, answers
    finally:
        owner.kill()
        for stream in (owner.stdin, owner.stdout):
            if stream:
                stream.close()
        owner.wait()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name that other users may pass: a socket's path has 107 bytes."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="twin.", dir="/tmp") as made:
        yield Path(made)


def twin_folder(folder: Path) -> Path:
    (found,) = (folder / "tmp").iterdir()
    return found


def controller_port(twin: Path) -> str:
    match = re.search(r"SlurmctldPort=(\d+)", (twin / "etc/slurm.conf").read_text())
    assert match
    return match[1]


def listens(port: str) -> bool:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[3] == "0A" and int(row[1].split(":")[1], 16) == int(port) for row in rows)


def test_answers_are_those_of_the_recorded_cluster(folder: Path) -> None:
    with running_twin(folder) as (process, answers):
        names = {name_of(pid) for pid in descendants(process.pid)}
        assert {"munged", "slurmctld"} <= names
        assert not twin_folder(folder).stat().st_mode & 0o077
    recorded = read_cluster(SITE)[1]
    assert answers == [request.outcome for request in recorded[:10]]


def test_another_user_is_refused(folder: Path) -> None:
    with running_twin(folder) as (process, _):
        twin = twin_folder(folder)
        bob = pwd.getpwnam(BOB)
        own = folder / "bob"
        own.mkdir(mode=0o700)
        os.chown(own, bob.pw_uid, bob.pw_gid)
        attack = ["setpriv", f"--reuid={BOB}", f"--regid={bob.pw_gid}", "--clear-groups", PYTHON]
        words = [str(ATTACK), str(twin), controller_port(twin), ALICE, str(own)]
        done = subprocess.run([*attack, *words], capture_output=True, text=True, check=False)
        lines = done.stdout.splitlines()
        assert done.returncode == 0, done.stderr
        assert len(lines) == 5 + 3 * 4
        assert [line for line in lines if not line.endswith(" refused")] == []
        assert "slurmctld" in {name_of(pid) for pid in descendants(process.pid)}


def test_the_attack_reaches_the_twin_of_its_own_user(folder: Path) -> None:
    """The attack above would find what it looks for, were it there."""
    with running_twin(folder):
        twin = twin_folder(folder)
        alice = pwd.getpwnam(ALICE)
        own = folder / "own"
        own.mkdir(mode=0o700)
        os.chown(own, alice.pw_uid, alice.pw_gid)
        attack = ["setpriv", f"--reuid={ALICE}", f"--regid={alice.pw_gid}", "--clear-groups"]
        words = [str(ATTACK), str(twin), controller_port(twin), ALICE, str(own)]
        done = subprocess.run(
            [*attack, PYTHON, *words], capture_output=True, text=True, check=False
        )
        reached = {line for line in done.stdout.splitlines() if line.endswith(" reached")}
        assert {
            f"{name} with their munge reached" for name in ("sinfo", "scontrol", "sbatch")
        } <= reached
        assert "folder/munge.key reached" in reached


@pytest.mark.parametrize("victim", ["owner", "guardian", "serving", "slurmctld", "munged"])
def test_nothing_is_left_when_a_process_is_killed(folder: Path, victim: str) -> None:
    with running_twin(folder) as (process, _):
        port = controller_port(twin_folder(folder))
        pids = descendants(process.pid)
        victims = {name_of(pid): pid for pid in pids} | {
            "owner": process.pid,
            "guardian": pids[0],
            "serving": pids[1],
        }
        os.kill(victims[victim], signal.SIGKILL)
        if victim in ("slurmctld", "munged"):
            process.kill()
        poll("the end of the twin", lambda: not any(map(alive, pids)), seconds=GONE_AFTER)
        poll(
            "the end of its folder",
            lambda: not any((folder / "tmp").iterdir()) and not listens(port),
            seconds=GONE_AFTER,
        )
