"""The records of instances: popdist writes them, podwright.timeline reads them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import popdist
from podwright.launcher.instances._function_exchange import TRACE_VARIABLE
from podwright.timeline import HostClock
from podwright.timeline import _instance_records as ours
from popdist import _trace_events
from popdist import _trace_records as theirs


def read(handle: int) -> bytes:
    """Read everything in a pipe."""
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


class Said(NamedTuple):
    """One record."""

    kind: int
    name: str
    size: int
    group: int
    members: int
    nth: int
    begin: int
    end: int


def heard(decoder: ours.InstanceRecords, data: bytes) -> list[Said]:
    """Return the records that `data` completes."""
    return [
        Said(*piece.kinds[index], *rest)
        for piece in decoder.feed(data)
        for index, *rest in piece.records()
    ]


def test_popdist_and_the_reader_agree_on_the_packets_format() -> None:
    names = ("MARK", "COLLECTIVE", "JOINED", "LEFT", "LEFT_OUT", "LONGEST", "LARGEST")
    assert {n: getattr(theirs, n) for n in names} == {n: getattr(ours, n) for n in names}
    for form in ("PIECE", "KIND", "RECORD"):
        assert getattr(theirs, form).format == getattr(ours, form).format
    assert _trace_events.TRACE_VARIABLE == TRACE_VARIABLE


def test_records_arrive_in_the_order_in_which_they_were_written() -> None:
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
    found = [r for i in range(len(data)) for r in heard(decoded, data[i : i + 1])]
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
    times = [t for record in found for t in (record.begin, record.end)]
    assert times == sorted(times)
    assert began <= times[0] <= times[-1] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.close(reading)
    os.close(writing)


def test_a_program_never_waits_for_its_reader_and_counts_what_it_lost() -> None:
    reading, writing = pipe()
    records = theirs.Records(writing)
    for _ in range(20000):  # more than a pipe holds, and nobody reads
        records.mark("step")
    decoded = ours.InstanceRecords()
    found = heard(decoded, read(reading))
    records.flush()
    found += heard(decoded, read(reading))
    lost = sum(r.size for r in found if r.kind == ours.LEFT_OUT)
    assert lost > 1000
    assert lost + sum(r.kind == ours.MARK for r in found) == 20000
    os.close(reading)
    records.mark("nobody listens any more")
    records.flush()
    os.close(writing)


def test_without_a_trace_a_record_does_nothing() -> None:
    code = (
        "import sys, popdist; popdist.mark('epoch'); popdist.init(); popdist.mark('epoch')\n"
        "print('popdist._trace_records' in sys.modules)"
    )
    environ = {k: v for k, v in os.environ.items() if k != _trace_events.TRACE_VARIABLE}
    for more in ({}, {_trace_events.TRACE_VARIABLE: "/nowhere/at/all"}):
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


def test_a_forked_child_sends_no_record_of_its_parent_again(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    code = (
        "import os, popdist\n"
        "for _ in range(3): popdist.mark('before')\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait()\n"
    )
    environ = {**os.environ, _trace_events.TRACE_VARIABLE: str(path)}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=300)
    found = heard(ours.InstanceRecords(), read(reading))
    assert [r.name for r in found] == ["before"] * 3
    os.close(reading)


def test_many_kinds_of_records_are_sent_in_several_pieces() -> None:
    reading, writing = pipe()
    records = theirs.Records(writing)
    names = [f"{n:03}" + "ö" * n for n in range(60)]
    for name in names:
        records.mark(name)
    records.flush()
    found = heard(ours.InstanceRecords(), read(reading))
    assert [r.name for r in found] == [
        name.encode()[: ours.LONGEST].decode(errors="replace") for name in names
    ]
    os.close(reading)
    os.close(writing)


def test_records_of_several_threads_all_arrive() -> None:
    reading, writing = pipe()
    records = theirs.Records(writing)
    decoded, found = ours.InstanceRecords(), list[Said]()

    def marks(name: str) -> None:
        for _ in range(500):
            records.mark(name)

    threads = [threading.Thread(target=marks, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        found += heard(decoded, read(reading))
    records.flush()
    found += heard(decoded, read(reading))
    lost = sum(r.size for r in found if r.kind == ours.LEFT_OUT)
    assert lost + sum(r.kind == ours.MARK for r in found) == 2000
    os.close(reading)
    os.close(writing)


_PIECE = theirs._pack_piece([theirs._head("mark")], [theirs.RECORD.pack(0, 0, 5, 3)])


@given(st.lists(st.binary(max_size=200) | st.just(_PIECE) | st.just(_PIECE[:20])))
def test_any_bytes_of_a_program_are_read_without_an_error(pieces: list[bytes]) -> None:
    decoded = ours.InstanceRecords()
    for piece in pieces:
        assert all(record.name.isprintable() for record in heard(decoded, piece))
    assert len(decoded._rest) < ours.LARGEST


@pytest.mark.parametrize(
    "wrong",
    [
        ours.PIECE.pack(1, ours.LARGEST, 1),
        ours.PIECE.pack(0, 0, 1) + ours.RECORD.pack(0, 0, 1, 1),
        _PIECE.replace(ours.RECORD.pack(0, 0, 5, 3), ours.RECORD.pack(1, 0, 5, 3)),
        _PIECE.replace(b"\x01\x04", b"\x09\x04"),
        _PIECE.replace(b"\x01\x04", b"\x01\x05"),
        _PIECE.replace(b"\x01\x04", b"\x01\x03"),
    ],
)
def test_a_malformed_piece_ends_the_stream(wrong: bytes) -> None:
    decoded = ours.InstanceRecords()
    assert len(heard(decoded, _PIECE + wrong + _PIECE)) == 1
    assert decoded.broken
    assert heard(decoded, _PIECE) == []


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**7), st.integers(0, 10**7))),
)
def test_the_true_offset_of_a_clock_lies_within_its_stated_error(
    ahead: int, answers: list[tuple[int, int, int]]
) -> None:
    """However long the two directions take, the offset is right within the error."""
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


def test_the_quickest_answer_decides_the_clock_offset_until_it_is_old() -> None:
    known = HostClock()
    known.answered(0, 1_000, 200)
    assert (known.offset, known.error) == (-900, 100)
    known.answered(1_000, 12_000, 21_000)  # slow: nothing is learnt from it
    assert known.offset == -900
    known.answered(20 * 10**9, 20 * 10**9 + 950, 20 * 10**9 + 300)
    assert (known.offset, known.error) == (-800, 150)
    known.answered(500, 0, 100)  # heard before it was asked: no answer
    assert known.offset == -800
