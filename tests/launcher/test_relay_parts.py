"""The parts of a relay and of a connection to a host, each alone."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.launcher.hosts._connection_process import ConnectionProcess
from podwright.launcher.hosts._poprun_liveness import HEARTBEAT_INTERVAL_S, SILENCE, PeerLiveness
from podwright.launcher.hosts._relay import BEAT
from podwright.launcher.hosts._relay_connections import Remote
from podwright.launcher.hosts._relay_protocol import HostsUnusable, RelayConnection
from podwright.launcher.hosts._remote_hosts import Remotes
from podwright.launcher.instances._instance_pipes import InstancePipes
from podwright.launcher.instances._instance_wrapper import Event, StatusPipe
from podwright.launcher.instances._run_folder import RunFolder, make_folder
from podwright.launcher.watchers._stop_detection import STILL_SECONDS, LoopTurns

# -- whether poprun lives --------------------------------------------------------------------


class Clock:
    """Seconds that a test moves on."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def turn(poprun: PeerLiveness, clock: Clock, seconds: float, *, heard: bool = False) -> bool:
    """One turn, this long after the one before. Returns whether poprun counts as gone."""
    clock.now += seconds
    poprun.begin_turn()
    if heard:
        poprun.heard()
    return poprun.silent


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def poprun(clock: Clock) -> PeerLiveness:
    return PeerLiveness(LoopTurns(clock, clock))


def test_silence_is_counted_from_what_was_heard_last(poprun: PeerLiveness, clock: Clock) -> None:
    assert not turn(poprun, clock, HEARTBEAT_INTERVAL_S, heard=True)
    assert not any(
        turn(poprun, clock, HEARTBEAT_INTERVAL_S)
        for _ in range(int(SILENCE / HEARTBEAT_INTERVAL_S))
    )
    assert turn(poprun, clock, 0.1)
    assert not turn(poprun, clock, 0.1, heard=True)


def test_an_announced_silence_holds_until_the_next_word(poprun: PeerLiveness, clock: Clock) -> None:
    poprun.announce_silence()
    assert not any(turn(poprun, clock, HEARTBEAT_INTERVAL_S) for _ in range(100))
    assert not turn(poprun, clock, HEARTBEAT_INTERVAL_S, heard=True)
    assert any(turn(poprun, clock, HEARTBEAT_INTERVAL_S) for _ in range(7))


@given(
    st.lists(
        st.tuples(
            st.floats(0, HEARTBEAT_INTERVAL_S), st.sampled_from(["before", "inside", "after"])
        ),
        min_size=1,
        max_size=30,
    ),
    st.floats(HEARTBEAT_INTERVAL_S + STILL_SECONDS + 0.1, 1e6),
)
def test_a_process_that_stood_still_takes_no_peer_for_gone(
    turns: list[tuple[float, str]], seconds: float
) -> None:
    """This process stands still once in every turn: before it, inside it or at its end."""
    clock = Clock()
    reads = 0

    def read() -> float:
        nonlocal reads
        reads += 1
        if reads == inside:
            clock.now += seconds
        return clock.now

    inside = 0
    poprun = PeerLiveness(LoopTurns(read, clock))
    for pause, where in turns:
        clock.now += pause + (seconds if where == "before" else 0.0)
        inside = reads + 2 if where == "inside" else 0  # between the clock and the question
        poprun.begin_turn()
        assert not poprun.silent
        poprun.heard()  # poprun speaks in each turn, and was read in each
        clock.now += seconds if where == "after" else 0.0
        assert not poprun.silent


def test_signs_of_life_are_sent_once_in_a_while(poprun: PeerLiveness, clock: Clock) -> None:
    sent = 0
    for _ in range(101):
        clock.now += HEARTBEAT_INTERVAL_S / 10
        sent += poprun.beat_due()
    assert sent in (9, 10)
    assert not poprun.beat_due()


# -- what instances write --------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    made = make_folder({"TMPDIR": str(tmp_path)})
    for name in ("out.0", "err.0", "out.3", "err.3", "status"):
        with suppress(FileExistsError):
            os.mkfifo(made.local_path(made.stream(name)))
    yield made
    made.remove()


class Taken:
    """What pipes gave: bytes by stream, and the streams that ended."""

    def __init__(self, folder: RunFolder) -> None:
        self.data: dict[tuple[int, int], bytes] = {}
        self.ended: list[tuple[int, int]] = []
        self.pipes = InstancePipes(folder, [0, 3], {"out": 0, "err": 1}, self._wrote, self._end)

    def _wrote(self, rank: int, number: int, data: bytes) -> None:
        self.data[rank, number] = self.data.get((rank, number), b"") + data

    def _end(self, rank: int, number: int) -> None:
        self.ended.append((rank, number))


def writer(folder: RunFolder, name: str) -> int:
    return os.open(folder.local_path(folder.stream(name)), os.O_WRONLY)


def test_a_pipe_without_a_writer_has_not_ended(folder: RunFolder) -> None:
    taken = Taken(folder)
    taken.pipes.read()
    assert (taken.data, taken.ended) == ({}, [])
    out = writer(folder, "out.3")
    os.write(out, b"one\n")
    taken.pipes.read()
    os.write(out, b"two\n")
    os.close(out)
    taken.pipes.read()
    assert (taken.data, taken.ended) == ({(3, 0): b"one\ntwo\n"}, [])
    taken.pipes.read()
    assert taken.ended == [(3, 0)]
    taken.pipes.close()


def test_the_rest_of_one_stream_leaves_the_others(folder: RunFolder) -> None:
    taken = Taken(folder)
    out, err = writer(folder, "out.0"), writer(folder, "err.0")
    os.write(out, b"out")
    os.write(err, b"x" * 65536)
    os.close(err)
    taken.pipes.read_rest(0, 1)
    assert (taken.data, taken.ended) == ({(0, 1): b"x" * 65536}, [(0, 1)])
    os.close(out)
    taken.pipes.close()
    assert taken.data[0, 0] == b"out"


def test_at_the_end_every_stream_is_read_piece_by_piece(folder: RunFolder) -> None:
    taken = Taken(folder)
    handles = [writer(folder, name) for name in ("out.0", "err.3")]
    for handle in handles:
        os.write(handle, b"last words")
        os.close(handle)
    pieces: list[int] = []
    taken.pipes.close(lambda: pieces.append(len(taken.data)), unread=(1,))
    assert taken.data == {(0, 0): b"last words"}
    assert pieces == [1]
    with pytest.raises(ValueError, match="closed"):
        taken.pipes.read()


def test_reports_come_whole_and_in_order(folder: RunFolder) -> None:
    status = StatusPipe(folder)
    assert status.read() == []
    other = writer(folder, "status")
    os.write(other, b"0 start 17\nnonsense\n1 sta")
    assert status.read() == [Event(0, "start", 17)]
    os.write(other, b"rt 18\n0 end 3\n")
    os.close(other)
    assert status.read() == [Event(1, "start", 18), Event(0, "end", 3)]
    assert status.read() == []  # it stays open
    status.close()


# -- the connection to a host ----------------------------------------------------------------


def shell(script: str) -> ConnectionProcess:
    return ConnectionProcess(["/bin/sh", "-c", script], {})


def close(process: ConnectionProcess, seconds: float = 10.0) -> None:
    os.close(process.reading)
    os.close(process.writing)
    process.close(seconds)


def test_the_reason_of_a_connection_is_what_ssh_said_and_how_it_ended() -> None:
    process = shell("echo first >&2; echo; read line; echo $line >&2; exit 7")
    assert os.read(process.reading, 10) == b"\n"  # what it said before is there
    assert process.stderr_text() == "first\n"
    process.forget_stderr()
    assert process.wait(0.0) is None
    os.write(process.writing, b"refused\n")
    assert process.wait(10.0) == 7
    assert process.stderr_text() == "refused\n"
    assert process.reason() == "refused"
    assert process.wait(0.0) == 0  # the status is read once
    close(process)


def test_a_connection_that_was_killed_names_the_signal() -> None:
    process = shell("kill -KILL $$")
    assert process.reason() == "its sh was ended by signal 9 (SIGKILL)"
    close(process)


def test_a_connection_that_does_not_end_is_killed() -> None:
    process = shell("trap '' TERM HUP; echo; while :; do sleep 60; done")
    os.read(process.reading, 1)
    close(process, 0.0)
    assert process.wait(0.0) == 0
    process.close(0.0)  # once more does nothing


def test_signals_that_this_process_ignores_end_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = shell("kill -HUP $$; exit 0")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert process.wait(10.0) == -signal.SIGHUP
    close(process)


def test_a_command_that_cannot_be_started_leaves_no_descriptors() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        ConnectionProcess(["/no/ssh"], {})
    assert sorted(os.listdir("/proc/self/fd")) == before


def test_hosts_that_were_never_started_can_be_closed() -> None:
    """As when there is no ssh on PATH: the error says so, and closing raises nothing instead."""
    Remotes([Remote(1, "h1", [1]), Remote(2, "h2", [2])]).close(0.0)


@pytest.fixture
def waiting_hosts(clock: Clock) -> Iterator[Remotes]:
    """One host that is ready but says nothing, while poprun waits for its partition."""
    reading, relay_end = os.pipe()
    remote = Remote(1, "h1", [1])
    remote.line = RelayConnection(reading, os.open(os.devnull, os.O_WRONLY))
    remote.heard = clock.now
    yield Remotes([remote], turns=LoopTurns(clock, clock))
    remote.line.close()
    os.close(relay_end)


def test_a_host_that_is_silent_before_the_start_is_named(
    waiting_hosts: Remotes, clock: Clock
) -> None:
    for _ in range(int(SILENCE)):
        clock.now += 1.0
        waiting_hosts.idle()
    clock.now += 1.0
    with pytest.raises(HostsUnusable, match="host h1 is lost: it does not answer any more"):
        waiting_hosts.idle()


def test_a_host_is_not_silent_because_poprun_stood_still_before_the_start(
    waiting_hosts: Remotes, clock: Clock
) -> None:
    for seconds in (1.0, 1000.0, 1.0, 1.0):
        clock.now += seconds
        waiting_hosts.idle()


def test_a_host_hears_poprun_while_it_waits_for_the_server() -> None:
    """A server may take minutes to configure a fabric."""
    (reading, relay_writes), (relay_reads, writing) = os.pipe(), os.pipe()
    remote = Remote(1, "h1", [1])
    remote.line = RelayConnection(reading, writing)
    relay = RelayConnection(relay_reads, relay_writes)
    relay.version, remote.heard = "any", time.monotonic()
    remotes = Remotes([remote])
    with remotes.kept_alive() as check:
        heard: list[tuple[object, ...]] = []
        while not heard:
            select.select([relay.handle], [], [], 60)
            heard = relay.receive()
        check()
    assert heard == [(BEAT,)]
    for line in (remote.line, relay):
        line.close()


def test_a_host_that_is_lost_while_poprun_waits_for_the_server_ends_the_wait(
    waiting_hosts: Remotes, clock: Clock
) -> None:
    def wait_for_the_server() -> None:
        with waiting_hosts.kept_alive() as check:
            while True:
                check()
                clock.now += 0.05
                time.sleep(0.01)

    with pytest.raises(HostsUnusable, match="host h1 is lost: it does not answer any more"):
        wait_for_the_server()
