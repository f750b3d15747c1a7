"""poprun that stood still, as `scontrol suspend` makes it, takes nobody else for gone."""

from __future__ import annotations

import contextlib
import os
import signal
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from podwright.hosts import NOT_HELD, HeldChild
from podwright.launcher.hosts._relay import BEAT
from podwright.launcher.hosts._relay_connections import Remote
from podwright.launcher.hosts._relay_protocol import RelayConnection
from podwright.launcher.hosts._remote_hosts import Remotes
from podwright.launcher.instances._instance_output import InstanceOutput, StreamOptions
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.instances._run_folder import RunFolder, make_folder
from podwright.launcher.run._watch_launch import Watch
from podwright.launcher.watchers._guardian_channel import Channel
from podwright.launcher.watchers._lease_clock import LeaseClock
from podwright.launcher.watchers._lease_keeper import KEPT
from podwright.launcher.watchers._stop_detection import LoopTurns

TURN_SECONDS = 0.5
LEASE_SECONDS = 60.0
STOOD_SECONDS = 1000.0


class Clock:
    """Seconds that a test moves on. With `stands_at`, STOOD_SECONDS pass before that reading."""

    def __init__(self) -> None:
        self.now, self.readings, self.stands_at = 1000.0, 0, 0

    def __call__(self) -> float:
        self.readings += 1
        if self.readings == self.stands_at:
            self.now += STOOD_SECONDS
        return self.now


class Launch:
    """A watch over a launch with one instance here and one on the host h2, without processes."""

    def __init__(self, folder: RunFolder, stack: contextlib.ExitStack) -> None:
        self.clock = Clock()
        self.lost: list[str] = []
        reader, self._relay_writer = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY)
        stack.callback(os.close, self._relay_writer)
        self._relay = RelayConnection(os.open(os.devnull, os.O_RDONLY), self._relay_writer)
        stack.callback(os.close, self._relay.handle)
        remote = Remote(0, "h2", [1])
        remote.line = RelayConnection(reader, null)
        remote.line.version = "any"
        stack.callback(remote.line.close)
        self._channels = [*Channel.pair(), *Channel.pair()]
        guardian, self._guardian, keeper, self._keeper = self._channels
        for channel in self._channels:
            stack.callback(channel.close)
        attempt = types.SimpleNamespace(
            keeper=types.SimpleNamespace(
                guardian=guardian, channel=keeper, pid=0, inner=HeldChild(0, NOT_HELD, "")
            ),
            remotes=Remotes([remote], {0: "h1", 1: "h2"}),
            folder=folder,
            words=-1,
            spare=list,
        )
        plan = types.SimpleNamespace(
            instances=[types.SimpleNamespace(host=name) for name in ("h1", "h2")],
            log_folder="",
            grace=5.0,
            timeout=None,
            move=None,
        )
        output = Output(null, null, environ={})
        wake, self._wake_writer = os.pipe()
        for handle in (wake, self._wake_writer):
            stack.callback(os.close, handle)
        os.set_blocking(wake, False)
        self.watch = Watch(
            cast(Any, attempt),
            cast(Any, plan),
            output,
            written=InstanceOutput(
                folder, StreamOptions(2), output, remote_instances=frozenset([1])
            ),
            wake=wake,
            lease=LeaseClock(
                LEASE_SECONDS,
                lambda code, text: self.lost.append(text),
                LoopTurns(self.clock, self.clock),
            ),
            deadline=None,
            mpirun=False,
        )

    def turn(self, *, host_speaks: bool) -> None:
        """One turn of the loop, woken by a sign of life of the host, or by nothing of note."""
        self.clock.now += TURN_SECONDS
        self._keeper.send(KEPT)
        if host_speaks:
            self._relay.send(BEAT)
        else:
            os.write(self._wake_writer, bytes([signal.SIGCONT]))
        self.watch._run_turn()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    with contextlib.ExitStack() as stack:
        folder = make_folder({"TMPDIR": str(tmp_path)})
        stack.callback(folder.remove)
        for name in ("out.0", "err.0", "status"):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(folder.local_path(folder.stream(name)))
        yield Launch(folder, stack)


@pytest.mark.parametrize("reading", range(1, 9))
def test_a_standstill_at_any_reading_of_the_clock_loses_no_host_and_no_lease(
    launch: Launch, reading: int
) -> None:
    """The host speaks in every second turn. In the others nothing is read that hides the gap."""
    for speaks in (True, False) * 3:
        launch.turn(host_speaks=speaks)
        launch.clock.stands_at = launch.clock.readings + reading
        for turn in range(6):
            launch.turn(host_speaks=bool(turn % 2) == speaks)
    assert launch.watch.cause is None
    assert launch.lost == []


def test_a_host_that_is_silent_for_too_long_is_lost(launch: Launch) -> None:
    for _ in range(60):
        launch.turn(host_speaks=False)
    assert launch.watch.cause is not None
    assert "host h2 is lost (instance 1)" in launch.watch.cause.text


def test_a_lease_that_nobody_renews_is_lost(launch: Launch) -> None:
    launch._keeper = launch._channels[0]  # its renewals go nowhere
    for _ in range(130):
        launch.turn(host_speaks=True)
    assert launch.lost == ["nobody renewed it in time"]
