"""A launch's timeline in Perfetto's form, read back by its own classes."""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

from podwright.errors import InvalidRequest, NotFound
from podwright.timeline import (
    OFF,
    TraceWriter,
    account,
    in_sentences,
    open_file,
    parse_timeline,
    read_timeline,
)
from podwright.timeline import _instance_records as said
from podwright.timeline import _packets as packets

MS = 1_000_000


class Clock:
    """A clock that is put forward."""

    def __init__(self) -> None:
        self.at = 5_000 * MS

    def __call__(self) -> int:
        return self.at

    def forward(self, milliseconds: int) -> None:
        self.at += milliseconds * MS


def record(kind: int, name: bytes, begin: int, end: int, size: int = 0, nth: int = 0) -> bytes:
    head = said.KIND.pack(kind, len(name), 2, 0, size) + name
    return said.PIECE.pack(1, len(head), 1) + head + said.RECORD.pack(0, nth, begin, end)


def launch(path: Path, clock: Clock, *, ahead: int = 0) -> TraceWriter:
    """Two starts of two instances on two hosts: 1 s of waiting, and 100 collectives in each."""
    trace = TraceWriter(open_file(str(path)), 2, clock)
    trace.begin("launch", program="train.py", instances=2)
    for attempt in (1, 2):
        trace.attempt(attempt)
        if attempt == 1:
            trace.begin("partition")
            trace.begin("waiting")
            clock.forward(1000)
            trace.end()
            trace.past("fabric", clock(), clock() + 500 * MS)
            clock.forward(500)
            trace.end(name="p")
        trace.starting("MPI start")
        clock.forward(500)
        for rank, host in ((0, "a"), (1, "b")):
            trace.instance_began(rank, host)
        trace.started()
        if ahead:
            trace.clock_answered("b", clock(), clock() + ahead + MS, clock() + 2 * MS)
        clock.forward(1000)
        begin = clock()
        for rank in (0, 1):
            trace.instance_wrote(rank)
            trace.instance_wrote(rank)
            own = begin + (ahead if rank else 0)
            data = record(said.JOINED, b"MPI", own - 500 * MS, own)
            for i in range(100):
                at = own + i * 10 * MS + (rank + 1) * 2 * MS  # instance 1 comes 2 ms later
                data += record(said.MARK, b"step", at - MS, at - MS)
                data += record(said.COLLECTIVE, b"allReduceSum", at, own + (i * 10 + 5) * MS, 64, i)
            clock.at = max(clock.at, begin + 1000 * MS)
            trace.records(rank, data[:1000])
            trace.records(rank, data[1000:])
        clock.forward(100)
        for rank in (0, 1):
            trace.instance_ended(rank, 9 if attempt == 1 else 0)
        if attempt == 1:
            trace.happened("restart", number=1, cause="instance 0 ended with code 9")
        trace.end_to(1)
    trace.report(1, "/profile/1", [("profile.pop", 77)], 3)
    trace.begin("giving back")
    clock.forward(10)
    trace.end()
    trace.close(code=0)
    assert not trace.problem
    return trace


def read_packets(path: Path) -> list[Any]:
    found = perfetto.Trace()
    found.ParseFromString(path.read_bytes())
    return list(found.packet)


@given(st.lists(st.integers(0, packets.LATEST), max_size=1200))
@example([0, 1, 0x7F, 0x80, packets.LATEST])
def test_times_that_are_encoded_together_are_decoded_to_the_same_numbers(
    numbers: list[int],
) -> None:
    found = [
        perfetto.TracePacket.FromString(bytes((packets.TIMESTAMP_KEY,)) + time).timestamp
        for time in packets.times(numbers)
    ]
    assert found == numbers


def test_perfettos_own_classes_read_the_file(tmp_path: Path) -> None:
    """Nesting, order and flows: what ui.perfetto.dev makes of them follows from these."""
    path = tmp_path / "t"
    launch(path, Clock())
    tracks: dict[int, tuple[str, int]] = {}
    depth: dict[int, int] = defaultdict(int)
    last: dict[int, int] = defaultdict(int)
    flows: dict[int, list[int]] = defaultdict(list)
    begun: dict[int, list[str]] = defaultdict(list)
    first, *rest = read_packets(path)
    assert {c.clock_id for c in first.clock_snapshot.clocks} == {1, 6}
    for packet in rest:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            told = packet.track_descriptor
            assert told.uuid not in tracks
            assert not told.parent_uuid or told.parent_uuid in tracks
            tracks[told.uuid] = told.name, told.parent_uuid
            continue
        event = packet.track_event
        assert event.track_uuid in tracks  # a track is told of before its first event
        if event.type == perfetto.TrackEvent.TYPE_INSTANT:
            continue
        assert packet.timestamp >= last[event.track_uuid]
        last[event.track_uuid] = packet.timestamp
        if event.type == perfetto.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.name
            depth[event.track_uuid] += 1
            begun[event.track_uuid].append(event.name)
            for flow in event.flow_ids:
                flows[flow].append(event.track_uuid)
        else:
            assert event.type == perfetto.TrackEvent.TYPE_SLICE_END
            depth[event.track_uuid] -= 1
            assert depth[event.track_uuid] >= 0
    assert set(depth.values()) == {0}
    names = {name: uuid for uuid, (name, _) in tracks.items()}
    assert tracks[names["instance 1"]] == ("instance 1", names["host b"])
    pair = [names["instance 0"], names["instance 1"]]
    assert len(flows) == 200  # each collective of each start, once on each instance's track
    assert all(some == pair for some in flows.values())
    assert begun[names["launch"]] == [
        *("launch", "run", "partition", "waiting", "fabric", "start 2", "giving back")
    ]
    assert begun[names["instance 0"]][:3] == ["instance 0", "join by MPI", "allReduceSum"]
    assert begun[names["collectives"]] == ["allReduceSum: instance 1 arrives last"] * 200


def test_a_trace_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "t"
    launch(path, Clock())
    found = read_timeline(str(path))
    assert found.whole
    phases = [(s.name, s.depth, (s.end - s.begin) // MS) for s in found.of("launch")]
    assert phases[:5] == [
        ("launch", 0, 6710),
        ("run", 1, 4100),
        ("partition", 2, 1500),
        ("waiting", 3, 1000),
        ("fabric", 3, 500),
    ]
    assert next(s.annotations for s in found.of("launch")) == {
        "program": "train.py",
        "instances": 2,
        "code": 0,
    }
    one = found.of("collective")[0]
    assert (one.name, one.annotations, one.end - one.begin) == (
        "allReduceSum",
        {"bytes": 64},
        3 * MS,
    )
    instants = {i.name: i.annotations for i in found.instants}
    assert instants["restart"] == {"number": 1, "cause": "instance 0 ended with code 9"}
    assert instants["report"] == {"folder": "/profile/1", "more": 3, "file profile.pop": 77}
    assert sum(i.name == "first line" for i in found.instants) == 4
    assert sum(i.name == "step" for i in found.instants) == 400


def test_the_account_says_where_the_time_went(tmp_path: Path) -> None:
    path = tmp_path / "t"
    launch(path, Clock())
    found = account(read_timeline(str(path)))
    parts = (
        *(found.waiting, found.starting, found.program),
        *(found.waiting_for_instances, found.transfer, found.ending),
    )
    assert sum(parts) == pytest.approx(found.total)
    assert found.waiting == pytest.approx(1.0)
    # 100 times in both starts, instance 0 waits 2 ms for instance 1, and the transfer takes 1 ms.
    assert found.waiting_for_instances == pytest.approx(2 * 100 * 0.002 / 2)
    assert found.transfer == pytest.approx(2 * 100 * 0.001)
    assert found.by_rank[0].waiting == pytest.approx(2 * 100 * 0.002)
    assert found.by_rank[1].waiting == 0
    assert found.by_rank[0].transfer == found.by_rank[1].transfer == pytest.approx(0.2)
    assert found.program == pytest.approx(2 * (1.1 - 0.2))
    assert found.slowest is not None
    assert found.slowest[:3] == (1, 200, 200)
    assert found.slowest.waited == pytest.approx(0.4)
    assert found.marks == {"step": 400}
    lines = in_sentences(found)
    assert lines[0] == (
        "It took 6.7 s: 15% waiting for devices, 52% starting, 27% in the program, "
        "3% waiting in popdist's collectives, 3% transferring in them, 0% ending."
    )
    assert lines[1].startswith("What it did in the program is not known")
    assert lines[2:4] == [
        "All instances were started 2 times.",
        "Instance 1 was the slowest: it came last to 200 of 200 collectives, and the others "
        "waited 400.0 ms for it.",
    ]
    assert lines[4] == "Most of the transfer was allReduceSum of 64 bytes: 1.0 ms each."


def test_the_table_and_the_sentence_count_the_same_collectives(tmp_path: Path) -> None:
    path = tmp_path / "t"
    launch(path, Clock())
    times = account(read_timeline(str(path)))
    assert times.slowest is not None
    assert sum(kind.collectives for kind in times.kinds) == times.slowest.collectives == 200
    assert sum(kind.calls for kind in times.kinds) == 400


@pytest.mark.parametrize("ahead", [-4000 * MS, 7 * 10**12])
def test_clocks_of_hosts_are_aligned_and_the_error_is_stated(tmp_path: Path, ahead: int) -> None:
    path = tmp_path / "t"
    launch(path, Clock(), ahead=ahead)
    found = account(read_timeline(str(path)))
    assert found.slowest is not None
    assert found.slowest.waited == pytest.approx(0.4, abs=0.01)
    assert found.clock_error == pytest.approx(0.001, rel=0.2)
    assert any("may differ by 1.0 ms" in line for line in in_sentences(found))


def test_a_file_that_is_cut_off_anywhere_is_read_up_to_the_cut(tmp_path: Path) -> None:
    """As after kill -9 of everything, or on a disk that is full."""
    path = tmp_path / "t"
    launch(path, Clock())
    data = path.read_bytes()
    before = -1
    for size in range(200, len(data), len(data) // 30):
        found = parse_timeline(data[:size])
        count = len(found.slices) + len(found.instants)
        assert count >= before
        before = count
    assert sum(s.done for s in found.of("instance")) >= 2
    half = parse_timeline(data[: len(data) // 2])
    open_slices = [s for s in half.slices if not s.done]
    assert {s.name for s in open_slices} >= {"launch"}
    account(half)
    assert not parse_timeline(data[:-1]).whole
    whole = perfetto.Trace()
    with pytest.raises(Exception, match="pars"):
        whole.ParseFromString(data[:-1])


def test_the_records_of_an_instance_are_bounded(tmp_path: Path) -> None:
    clock = Clock()
    trace = TraceWriter(open_file(str(tmp_path / "t")), 2, clock, byte_limit=100_000)
    trace.begin("launch")
    trace.attempt(1)
    for rank in (0, 1):
        trace.instance_began(rank, "a")
    flood = b"".join(record(said.MARK, b"%04d" % i, clock(), clock()) for i in range(1000))
    for _ in range(20):
        trace.records(0, flood)
    trace.records(1, record(said.MARK, b"modest", clock(), clock()))
    trace.records(1, b"\xff" * 100)  # no record
    trace.records(1, record(said.MARK, b"too late", clock(), clock()))
    trace.records(7, flood)  # there is no such instance
    # What lies, lies on its own track alone: nothing is before the beginning or in the future.
    trace.records(0, record(said.MARK, b"liar", 1 << 61, 1 << 61))
    trace.close()
    assert (tmp_path / "t").stat().st_size < 100_000 / 2 + 60_000
    found = read_timeline(str(tmp_path / "t"))
    names = [i.name for i in found.instants]
    assert "modest" in names
    assert "too late" not in names
    kept = sum(name.isdigit() for name in names)
    assert kept + account(found).left_out == 20_001
    assert trace._said is not None
    assert len(trace._said._templates) <= 8192


def test_a_full_disk_ends_the_trace_and_not_the_launch() -> None:
    trace = TraceWriter(os.open("/dev/full", os.O_WRONLY), 1, Clock())
    trace.begin("launch")
    trace.open()
    assert trace.problem == "No space left on device"
    trace.attempt(1)
    trace.instance_began(0, "a")
    trace.records(0, b"anything")
    trace.close(code=0)


def test_a_trace_that_is_off_records_nothing() -> None:
    OFF.begin("launch")
    OFF.attempt(1)
    OFF.instance_began(0, "a")
    OFF.records(0, b"anything")
    OFF.close(code=1)
    assert not OFF.on
    assert not OFF._queue


def test_the_file_is_private_and_replaces_only_another_trace(tmp_path: Path) -> None:
    path = tmp_path / "t"
    launch(path, Clock())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    launch(path, Clock())  # a trace may be written over
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    program = tmp_path / "train.py"
    program.write_text("import popdist\n")
    link = tmp_path / "link"
    link.symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for wrong, why in (
        (program, "is there, and is not a trace"),
        (link, "symbolic links"),
        (tmp_path / "pipe", "is not a file"),
        (tmp_path, "directory"),
        (tmp_path / "none" / "t", "No such file"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            open_file(str(wrong))
    assert program.read_text() == "import popdist\n"


@pytest.mark.parametrize(
    "content", [b"hello", b"\x0a\x05", b"\x0a\xff\xff\xff\xff\xff\xff", b"\x12a"]
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(InvalidRequest, match="is not a trace of a launch"):
        read_timeline(str(path))
    with pytest.raises(NotFound):
        read_timeline(str(tmp_path / "none"))
