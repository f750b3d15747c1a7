"""Lines stay whole, and memory stays flat."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podwright.launcher import Output
from podwright.launcher.instances._tagged_output import (
    FULL,
    MAX_LINE_BYTES,
    TAIL_BYTES,
    Sink,
    Stream,
    last_lines,
)


@given(st.lists(st.binary(max_size=30)), st.integers())
def test_every_line_gets_one_tag_however_its_bytes_arrive(lines: list[bytes], seed: int) -> None:
    lines = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in lines)
    stream = Stream(3, "stdout")
    out = b""
    chance = random.Random(seed)
    while data:
        cut = chance.randint(1, len(data))
        piece, data = data[:cut], data[cut:]
        passed = stream.tagged(stream.feed(piece))
        assert passed in (b"",) or passed.endswith(b"\n")
        out += passed
    shown = [next((p for p in reversed(line.split(b"\r")) if p), b"") for line in lines]
    assert out == b"".join(b"[1,3]<stdout>: " + line + b"\n" for line in shown)
    assert stream.finish() == b""


def test_a_line_without_end_is_ended_when_the_stream_is() -> None:
    stream = Stream(0, "stderr")
    assert stream.tagged(stream.feed(b"one\ntwo")) == b"[1,0]<stderr>: one\n"
    assert stream.tagged(stream.finish()) == b"[1,0]<stderr>: two\n"


def test_only_the_end_of_a_very_long_line_is_kept() -> None:
    stream = Stream(0, "stdout")
    passed = sum(len(stream.feed(b"x" * 65536)) for _ in range(64))
    assert passed >= 64 * 65536 - MAX_LINE_BYTES
    assert len(stream.last) == TAIL_BYTES


def test_last_lines_have_their_beginnings() -> None:
    streams = [Stream(1, "stdout"), Stream(1, "stderr")]
    for i in range(1000):
        streams[0].feed(b"line %d\n" % i)
    streams[1].feed(b"Traceback\nValueError: no")
    lines = last_lines(streams)
    assert lines[-2:] == [b"[1,1]<stderr>: Traceback", b"[1,1]<stderr>: ValueError: no"]
    assert lines[0] == b"[1,1]<stdout>: line 980"
    assert lines[19] == b"[1,1]<stdout>: line 999"


def test_a_slow_reader_fills_the_sink_and_a_gone_one_breaks_it() -> None:
    reader, writer = os.pipe()
    sink = Sink(writer, is_slow=True)
    sink.add(b"a" * (FULL + 1))
    assert sink.full
    sink.pump()
    assert os.read(reader, 1 << 20) == b"a" * 4096
    assert sink.size == FULL + 1 - 4096
    os.close(reader)
    sink.pump()
    assert sink.broken
    assert sink.size == 0
    sink.add(b"more")
    assert sink.size == 0
    os.close(writer)


def test_a_signal_between_write_and_count_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    output = Output(writing, writing)
    write = os.write

    def interrupted(handle: int, data: bytes) -> int:
        write(handle, data)
        raise KeyboardInterrupt

    output.write_line("one")
    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        output.flush()
    monkeypatch.undo()
    output.write_line("two")
    output.flush()  # has an end
    assert os.read(reading, 100) == b"one\ntwo\n"
    os.close(reading)
    os.close(writing)


def test_two_streams_to_one_place_share_a_queue() -> None:
    reader, writer = os.pipe()
    output = Output(writer, writer)
    assert output.err is output.out
    output.out.add(b"one\n")
    output.write_line("two")
    output.out.add(b"three\n")
    output.flush()
    assert os.read(reader, 100) == b"one\ntwo\nthree\n"
    os.close(reader)
    os.close(writer)


def test_a_progress_bar_becomes_a_line_now_and_then() -> None:
    now = [0.0]
    stream = Stream(0, "stderr", clock=lambda: now[0])
    out = []
    for i in range(1, 101):
        now[0] += 0.25
        out += stream.feed(b"\r%3d%%" % i).splitlines()
    assert out == [b" 19%", b" 39%", b" 59%", b" 79%", b" 99%"]
    assert stream.feed(b"\r100%\ndone\n") == b"100%\ndone\n"
    assert stream.finish() == b""


def test_a_bar_that_never_ends_needs_no_memory() -> None:
    stream = Stream(0, "stderr", clock=lambda: 0.0)
    for i in range(20000):
        assert stream.feed(b"\rstep %d" % i) == b""
    assert sum(map(len, stream._partial)) < 50
    assert stream.finish() == b"step 19999\n"


def test_line_ends_of_other_systems_end_lines() -> None:
    stream = Stream(0, "stdout", clock=lambda: 0.0)
    assert stream.feed(b"one\r\ntwo\r") + stream.feed(b"\n\nend") == b"one\ntwo\n\n"


def test_tags_have_stamps_and_colours() -> None:
    stream = Stream(1, "stdout", has_colour=True, has_timestamps=True, clock=lambda: 0.25)
    lines = stream.tagged(stream.feed(b"a\nb\n")).splitlines()
    for line, text in zip(lines, (b"a", b"b"), strict=True):
        assert line[2:3] == b":"
        assert line[8:] == b".250 \x1b[33m[1,1]<stdout>: \x1b[0m" + text
