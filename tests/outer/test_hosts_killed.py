"""Any of a launch's own processes may be killed or stopped on both its hosts, any number at once.

As tests/launcher/test_killed.py has it for one host: the instances hear nothing that can be
ignored, and have daemons. All sets in soak; here each one, each pair, all at once, and some drawn.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from podwright.launcher.hosts._poprun_liveness import SILENCE
from tests.launcher.test_killed import DEAF, sets
from tests.outer.lab import HostsLab, poll

pytestmark = [pytest.mark.outer]

REPOSITORY = Path(__file__).parents[2]
PAIRS = 6
#: On the first host of a pair, and on the other; by their own names, or words of their lines.
HERE = {
    "poprun": "tests.launcher.alone",
    "keeper": "podwright-keep",
    "guardian": "podwright-guard",
    "ssh": "ssh",
    "mpirun": "prterun",
}
THERE = {
    "relay": "podwright.launcher.hosts._remote_main",
    "far guardian": "podwright-guard",
    "daemon": "prted",
    "far script": "/wrapper ",
}
PARTS = (*HERE, *THERE)
#: Counts, on a host's own /tmp; and how far it is.
COUNTING = """echo up
while :; do i=$((i + 1)); echo $i >/tmp/n; mv /tmp/n /tmp/c; sleep 0.05; done"""
COUNTED = "cat /tmp/c 2>/dev/null || echo 0"
MARKS = ("podwright", "prted", "prterun", "tests.launcher.alone", "sleep 1000", "/wrapper ")


class Pair:
    """Two hosts with one launch over both."""

    def __init__(self, lab: HostsLab, one: str, other: str) -> None:
        self.lab, self.hosts = lab, (one, other)
        self.process: subprocess.Popen[str] | None = None

    def start(self, *options: str, program: str = DEAF) -> None:
        words = ["--num-replicas=2", "--num-instances=2", "--grace=1", "sh", "-c", program]
        line = ["-m", "tests.launcher.alone", f"--host={','.join(self.hosts)}", *options, *words]
        self.process = subprocess.Popen(
            self.lab.place(self.hosts[0]).wrap(
                ["env", "-C", str(REPOSITORY), sys.executable, *line]
            ),
            env={
                **os.environ,
                "CALLS": "/tmp/calls",
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # as a shell has it: Ctrl-Z stops none that nobody could wake
        )

    def up(self) -> None:
        assert self.process
        assert self.process.stdout
        for _ in self.hosts:
            assert self.process.stdout.readline().endswith("up\n"), self.process.communicate()

    def find(self, part: str) -> list[str]:
        """The pids of a part, as its host counts."""
        host, mark = (self.hosts[0], HERE[part]) if part in HERE else (self.hosts[1], THERE[part])
        found = []
        for pid, name, words in self._processes(host):
            if name == mark or (mark in words and not name.startswith("podwright")):
                found.append(pid)
        assert found, (part, self._processes(host))
        return found

    def signal(self, parts: Sequence[str], number: int) -> None:
        by_host: dict[str, list[str]] = {}
        for part in parts:
            host = self.hosts[0] if part in HERE else self.hosts[1]
            by_host.setdefault(host, []).extend(self.find(part))
        for host, pids in by_host.items():
            self.lab.exec(host, "kill", f"-{int(number)}", *pids)

    def wake(self) -> None:
        """poprun, and nsenter, which stops with what it has started."""
        assert self.process
        self.signal(["poprun"], signal.SIGCONT)
        state = Path(f"/proc/{self.process.pid}/stat")
        until = time.monotonic() + 5
        while time.monotonic() < until and " T " not in state.read_text():
            time.sleep(0.05)
        self.process.send_signal(signal.SIGCONT)
        self.signal(["poprun"], signal.SIGCONT)

    def left(self) -> list[str]:
        """What there is of the launch on its hosts."""
        found = []
        for host in self.hosts:
            for _, name, words in self._processes(host):
                if any(mark in f"{name} {words}" for mark in MARKS):
                    found.append(f"{host}: {name} {words[:80]}")
            listed = self.lab.exec(host, "ls", "/tmp", "/dev/shm").stdout.split()
            found += [f"{host}: {name}" for name in listed if name.startswith("podwright-run")]
        return found

    def leaves_nothing(self) -> None:
        until = time.monotonic() + 300
        while left := self.left():
            assert time.monotonic() < until, left
            time.sleep(0.2)

    def calls(self) -> list[str]:
        """What the server was asked, renewals aside."""
        said = self.lab.exec(self.hosts[0], "cat", "/tmp/calls").stdout.split()
        return [word.strip('"') for word in said if word != '"Renew"']

    def counts(self) -> list[int]:
        """How far the instance of each host has counted."""
        return [int(self.lab.exec(host, "sh", "-c", COUNTED).stdout) for host in self.hosts]

    def count_on(self) -> list[int]:
        """Once both have counted on; how far."""
        before, until = self.counts(), time.monotonic() + 300
        while any(a <= b for a, b in zip(self.counts(), before, strict=True)):
            assert time.monotonic() < until, (before, self.counts())
            time.sleep(0.1)
        return self.counts()

    def clear(self) -> None:
        for host in self.hosts:
            script = "rm -rf /tmp/podwright-run-* /dev/shm/podwright-run-* /tmp/calls"
            self.lab.exec(host, "sh", "-c", script)

    def _processes(self, host: str) -> list[tuple[str, str, str]]:
        found = []
        for line in self.lab.exec(host, "ps", "-ww", "-eo", "pid=,comm=,args=").stdout.splitlines():
            pid, name, *words = line.split(None, 2)
            found.append((pid, name, words[0] if words else ""))
        return found


@pytest.fixture(scope="module")
def pairs() -> Iterator[list[Pair]]:
    names = [f"{letter}{at}" for at in range(PAIRS) for letter in "ab"]
    with HostsLab(names) as lab:
        found = [Pair(lab, f"a{at}", f"b{at}") for at in range(PAIRS)]
        yield found
        for pair in found:
            if pair.process and pair.process.poll() is None:
                pair.process.kill()


def _batches(wanted: Sequence[tuple[str, ...]]) -> list[list[tuple[str, ...]]]:
    return [list(wanted[at : at + PAIRS]) for at in range(0, len(wanted), PAIRS)]


def _name(batch: list[tuple[str, ...]]) -> str:
    return "+".join(batch[0]).replace(" ", "-")


@pytest.mark.parametrize("batch", _batches(sets(PARTS)), ids=_name)
def test_any_set_that_is_killed(pairs: list[Pair], batch: list[tuple[str, ...]]) -> None:
    for pair, _ in zip(pairs, batch, strict=False):
        pair.start()
    for pair, _ in zip(pairs, batch, strict=False):
        pair.up()
    for pair, parts in zip(pairs, batch, strict=False):
        pair.signal(parts, signal.SIGKILL)
    for pair, parts in zip(pairs, batch, strict=False):
        assert pair.process
        killed = set(parts)
        pair.leaves_nothing()
        pair.process.communicate(timeout=300)
        if not {"poprun", "keeper"} <= killed:
            assert pair.calls() == ["Acquire", "Release"], parts
        pair.clear()


@pytest.mark.parametrize("batch", _batches(sets(PARTS)), ids=_name)
def test_any_set_that_is_stopped(pairs: list[Pair], batch: list[tuple[str, ...]]) -> None:
    """An end that is asked for comes all the same, and is seen to on both hosts."""
    for pair, _ in zip(pairs, batch, strict=False):
        pair.start()
    for pair, _ in zip(pairs, batch, strict=False):
        pair.up()
    for pair, parts in zip(pairs, batch, strict=False):
        pair.signal(parts, signal.SIGSTOP)
        if "poprun" in parts:
            pair.wake()
        pair.signal(["poprun"], signal.SIGTERM)
    for pair, parts in zip(pairs, batch, strict=False):
        assert pair.process
        _, err = pair.process.communicate(timeout=300)
        assert "POPRUN ERROR: " in err, parts
        pair.leaves_nothing()
        assert pair.calls() == ["Acquire", "Release"], parts
        pair.clear()


def test_ctrl_z_stops_both_hosts_for_as_long_as_it_takes_and_fg_goes_on(pairs: list[Pair]) -> None:
    """Longer than a relay waits for a poprun that says nothing."""
    pair = pairs[0]
    pair.start(program=COUNTING)
    pair.up()
    pair.count_on()
    pair.signal(["poprun"], signal.SIGTSTP)
    for host in pair.hosts:
        poll("the instance stands still", partial(pair.lab.stopped, host, "sh -c echo up"))
    stopped = pair.counts()
    time.sleep(SILENCE + 2.0)
    assert pair.counts() == stopped
    pair.wake()
    pair.count_on()
    pair.signal(["poprun"], signal.SIGTERM)
    assert pair.process
    pair.process.communicate(timeout=300)
    assert pair.process.returncode == 128 + signal.SIGTERM
    pair.leaves_nothing()
    assert pair.calls() == ["Acquire", "Release"]
    pair.clear()


@pytest.mark.parametrize("launcher", ["mpirun", "local"])
def test_poprun_that_was_stopped_for_too_long_blames_itself(
    pairs: list[Pair], launcher: str
) -> None:
    """Longer than a relay waits for a poprun that says nothing, and has said nothing of Ctrl-Z."""
    pair = pairs[0]
    pair.start(f"--launcher={launcher}", program=COUNTING)
    pair.up()
    pair.signal(["poprun"], signal.SIGSTOP)
    relay_is_gone = partial(_has_no_process, pair, THERE["relay"])
    poll("the relay has given up", relay_is_gone)
    pair.wake()
    assert pair.process
    _, err = pair.process.communicate(timeout=300)
    assert re.search(r"POPRUN ERROR: poprun stood still for \d+ s .*host b0 \(instance 1\): ", err)
    assert pair.process.returncode == 75
    pair.leaves_nothing()
    pair.clear()


def _has_no_process(pair: Pair, mark: str) -> bool:
    return not any(mark in words for _, _, words in pair._processes(pair.hosts[1]))
