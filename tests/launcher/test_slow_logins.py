"""poprun waits for the slowest of its hosts, and the others know meanwhile that it lives."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from podwright._version import __version__
from podwright.hosts import RemoteAnswer
from podwright.launcher.hosts._host_sweep import SWEPT_MESSAGE, sweep_hosts
from podwright.launcher.hosts._relay_connections import Remote, connect
from podwright.launcher.hosts._relay_protocol import HostsUnusable, HostTask
from podwright.launcher.hosts._remote_hosts import Remotes
from podwright.launcher.watchers._stop_detection import LoopTurns
from tests.launcher.test_relay_parts import Clock

#: A relay that is ready at once, and notes the first sign of life that it gets after that.
_READY = f"""
import os, select, sys
from podwright.launcher.hosts._relay import BEAT, HELLO, READY
from podwright.launcher.hosts._relay_protocol import RelayConnection
line = RelayConnection(os.dup(0), os.dup(1), greets={__version__!r})
while not line.closed:
    select.select([line.handle], [], [])
    for kind, *_ in line.receive():
        if kind == HELLO:
            line.send(READY, {{"wrapper": [], "restore": [], "subnets": [], "port": 1}})
        elif kind == BEAT:
            open(sys.argv[1], "w").close()
"""
#: A login that takes until the other relay has had that sign, and talks more than a pipe holds.
_SLOW = """\
head -c 200000 /dev/zero >&2
while [ ! -e "$2" ]; do sleep 0.05; done
exec "$0" -c "$1" "$2"
"""
TASK = HostTask("", [], "", "", "", [], {}, "", False, False, False)


class Hosts:
    """Stand-ins for what ssh starts on a host."""

    def __init__(self, heard: Path) -> None:
        self.heard = heard

    def start(self, host: str, words: Sequence[str]) -> list[str]:
        if host == "slow":
            return ["/bin/sh", "-c", _SLOW, sys.executable, _READY, str(self.heard)]
        if host == "never":
            return ["/bin/sh", "-c", "exec sleep 600"]
        return [sys.executable, "-c", _READY, str(self.heard)]

    def connect(self, *hosts: str, limit: float = 60.0, turns: LoopTurns | None = None) -> None:
        remotes = [Remote(number, host, [number]) for number, host in enumerate(hosts)]
        try:
            connect(remotes, lambda remote: TASK, self.start, {}, limit, turns=turns)
        finally:
            Remotes(remotes).close(0.0)


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    return Hosts(tmp_path / "heard")


def test_a_relay_that_is_ready_hears_poprun_while_another_host_logs_in(hosts: Hosts) -> None:
    hosts.connect("fast", "slow")
    assert hosts.heard.exists()


def test_a_host_without_any_progress_is_the_one_that_is_named(hosts: Hosts) -> None:
    with pytest.raises(HostsUnusable) as caught:
        hosts.connect("fast", "never", limit=5.0)
    assert caught.value.data["hosts"] == ["never"]
    assert "its login is not over after 5 s without a sign of progress" in caught.value.message
    assert "ssh never true" in caught.value.message


def test_time_in_which_poprun_was_stopped_counts_against_no_host(hosts: Hosts) -> None:
    """An hour passes between two turns of the loop."""
    clock = Clock()

    def later() -> float:
        clock.now += 3600.0
        return clock.now

    hosts.connect("fast", "slow", turns=LoopTurns(later, clock))


def test_a_sweep_waits_for_as_long_as_the_logins_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a healthy host with a slow login counts as one where instances may still run."""
    limits = []

    def ask_all(commands: object, environ: object, limit: float) -> list[RemoteAnswer]:
        limits.append(limit)
        return [RemoteAnswer(SWEPT_MESSAGE if limit > 35.0 else "", "", 0, 0.0, 0.0)]

    monkeypatch.setattr("podwright.launcher.hosts._host_sweep.ask_all", ask_all)
    assert sweep_hosts({"slow": ["sweep"]}, {}, 35.0) == []
    assert sweep_hosts({"slow": ["sweep"]}, {}, 0.0) == ["slow"]
