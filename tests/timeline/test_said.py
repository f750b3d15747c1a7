"""What instances say of themselves: popdist writes it, podwright.timeline reads it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import popdist
from podwright.launcher._exchange import TRACE_VARIABLE
from podwright.timeline import HostClock
from podwright.timeline import _instance_records as ours
from popdist import _records as theirs
from popdist import _trace


def read(handle: int) -> bytes:
    """All that is in a pipe."""
    found = b""
    while True:
        try:
            data = os.read(handle, 1 << 16)
        except BlockingIOError:
            return found
        if not data:
            return found
        found += data


def pipe() -> tuple[int, int]:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    return reading, writing


def test_both_have_one_form() -> None:
    names = ("MARK", "COLLECTIVE", "JOINED", "LEFT", "LEFT_OUT", "LONGEST")
    assert {n: getattr(theirs, n) for n in names} == {n: getattr(ours, n) for n in names}
    assert theirs.HEAD.format == ours.HEAD.format
    assert _trace.PIPE == TRACE_VARIABLE


def test_records_arrive_in_their_order() -> None:
    reading, writing = pipe()
    records = theirs.Records(writing)
    began = records.begin()
    records.joined(b"TCP", began)
    records.mark("epoch")
    records.mark("ä" * 60)
    for size in (8, 16):
        records.collective(b"allReduceSum", records.begin(), size, 0, 4)
    records.collective(b"barrier", records.begin(), 0, 7, 2)
    records.left(b"TCP", records.begin())
    decoded = ours.InstanceRecords()
    data = read(reading)
    found = [
        ours.InstanceRecord(*r) for i in range(len(data)) for r in decoded.feed(data[i : i + 1])
    ]
    assert not decoded.broken
    assert [(r.kind, r.name, r.size, r.group, r.nth, r.members) for r in found] == [
        (ours.JOINED, "TCP", 0, 0, 0, 0),
        (ours.MARK, "epoch", 0, 0, 0, 0),
        (ours.MARK, "ä" * 40, 0, 0, 0, 0),
        (ours.COLLECTIVE, "allReduceSum", 8, 0, 1, 4),
        (ours.COLLECTIVE, "allReduceSum", 16, 0, 2, 4),
        (ours.COLLECTIVE, "barrier", 0, 7, 1, 2),
        (ours.LEFT, "TCP", 0, 0, 0, 0),
    ]
    times = [t for record in found for t in record[2:4]]
    assert times == sorted(times)
    assert began <= times[0] <= times[-1] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.close(reading)
    os.close(writing)


def test_a_program_never_waits_for_who_reads_and_is_told_what_it_lost() -> None:
    reading, writing = pipe()
    records = theirs.Records(writing)
    for _ in range(20000):  # more than a pipe holds, and nobody reads
        records.mark("step")
    decoded = ours.InstanceRecords()
    heard = [ours.InstanceRecord(*r) for r in decoded.feed(read(reading))]
    records.flush()
    heard += [ours.InstanceRecord(*r) for r in decoded.feed(read(reading))]
    lost = sum(r.size for r in heard if r.kind == ours.LEFT_OUT)
    assert lost > 1000
    assert lost + sum(r.kind == ours.MARK for r in heard) == 20000
    os.close(reading)
    records.mark("nobody listens any more")
    records.flush()
    os.close(writing)


def test_nothing_happens_where_nothing_is_traced() -> None:
    code = (
        "import sys, popdist; popdist.mark('epoch'); popdist.init(); popdist.mark('epoch')\n"
        "print('popdist._records' in sys.modules)"
    )
    environ = {k: v for k, v in os.environ.items() if k != _trace.PIPE}
    for more in ({}, {_trace.PIPE: "/nowhere/at/all"}):
        ran = subprocess.run(
            [sys.executable, "-c", code],
            env={**environ, **more},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert (ran.stdout.strip() == "True") == bool(more)
    assert popdist.mark.__doc__


def test_a_child_sends_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    code = (
        "import os, popdist\n"
        "for _ in range(3): popdist.mark('before')\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait()\n"
    )
    environ = {**os.environ, _trace.PIPE: str(path)}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=300)
    found = ours.InstanceRecords().feed(read(reading))
    assert [r[1] for r in found] == ["before"] * 3
    os.close(reading)


@given(st.lists(st.binary(max_size=200)))
def test_whatever_a_program_writes_is_taken(pieces: list[bytes]) -> None:
    decoded = ours.InstanceRecords()
    for piece in pieces:
        for record in (ours.InstanceRecord(*r) for r in decoded.feed(piece)):
            assert record.begin <= record.end
            assert record.name.isprintable()
    assert len(decoded._rest) < ours.HEAD.size + ours.LONGEST


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**7))),
)
def test_the_error_of_a_clock_holds(ahead: int, answers: list[tuple[int, int, int]]) -> None:
    """Whatever the way there and the way back take, the offset is right within the error."""
    known, at = HostClock(), 0
    assert known.error is None
    for pause, there, back in answers:
        at += pause
        known.answered(at, at + there + ahead, at + there + back)
        at += there + back
    if answers:
        assert known.error is not None
        assert abs(known.offset + ahead) <= known.error + 1
        assert known.error <= min((there + back + 1) // 2 for _, there, back in answers) + 10**8


def test_the_quickest_answer_counts_until_it_is_old() -> None:
    known = HostClock()
    known.answered(0, 1_000, 200)
    assert (known.offset, known.error) == (-900, 100)
    known.answered(1_000, 12_000, 21_000)  # slow: nothing is learnt from it
    assert known.offset == -900
    known.answered(20 * 10**9, 20 * 10**9 + 950, 20 * 10**9 + 300)
    assert (known.offset, known.error) == (-800, 150)
    known.answered(500, 0, 100)  # heard before it was asked: no answer
    assert known.offset == -800
