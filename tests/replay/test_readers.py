"""Traces are read as they are written; what cannot be read is counted and shown."""

from __future__ import annotations

import gzip
import io
import math
from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from podwright.errors import InvalidRequest
from podwright.replay import (
    SACCT_COMMAND,
    Status,
    Trace,
    example,
    read_lines,
    read_trace,
    write_anonymous,
)
from podwright.replay.traces._parse_sacct_values import duration, memory, when
from podwright.replay.traces._sacct import _REQUESTED_COLUMNS
from podwright.slurm.reader import accounting_format

HEADER = accounting_format(*_REQUESTED_COLUMNS).replace(",", "|")
BERLIN = ZoneInfo("Europe/Berlin")


def sacct(*rows: str, header: str = HEADER, **options: object) -> Trace:
    return read_lines([f"{row}\n" for row in (header, *rows)], "sacct.txt", **options)  # type: ignore[arg-type]


def row(name: str = "7", state: str = "COMPLETED", **changes: str) -> str:
    """A line of sacct's: submitted at 1000, eligible at 1010, begun at 1100."""
    words = {
        "JobID": name,
        "User": "alice",
        "State": state,
        "Submit": "1000",
        "Eligible": "1010",
        "Start": "1100",
        "End": "1160",
        "ElapsedRaw": "60",
        "TimelimitRaw": "10",
        "ReqTRES": "billing=4,cpu=8,gres/gpu=4,mem=16G,node=2",
        "AllocTRES": "billing=4,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=16G,node=2",
        "NNodes": "2",
        "NCPUS": "8",
        "ReqMem": "8Gn",
        "AdminComment": "",
    } | changes
    return "|".join(words[name] for name in HEADER.split("|"))


def test_a_line_of_sacct_is_a_job() -> None:
    (job,) = sacct(row()).jobs()
    assert job.name == "7"
    assert job.user == "alice"
    assert (job.submit, job.eligible, job.start) == (0, 10, 100)
    assert (job.runtime, job.limit, job.devices) == (60, 600, 4)
    assert (job.nodes, job.cpus, job.memory) == (2, 8, 16 << 30)


def test_fields_may_stand_in_any_order() -> None:
    words = dict(zip(HEADER.split("|"), row().split("|"), strict=True))
    turned = sorted(words)
    text = "|".join(words[name] for name in turned)
    assert list(sacct(text, header="|".join(turned)).jobs()) == list(sacct(row()).jobs())


def test_a_missing_field_says_what_to_ask_for() -> None:
    with pytest.raises(InvalidRequest) as error:
        sacct("7|COMPLETED|1|60", header="JobID|State|Submit|ElapsedRaw")
    assert "AllocTRES" in str(error.value)
    assert SACCT_COMMAND in str(error.value)


def test_each_life_of_a_requeued_job_and_each_row_of_an_array_is_a_job() -> None:
    trace = sacct(
        row("7", "REQUEUED"),
        row("7", Submit="1200", Eligible="1200", Start="1300"),
        row("8_1"),
        row("8_2", "CANCELLED by 1000"),
        row("8_[3-9%2]", "PENDING", Start="Unknown", ElapsedRaw="0"),
    )
    assert [job.name for job in trace.jobs()] == ["7", "8_1", "8_2", "7"]
    assert [Status(one) for one in trace.status] == [
        Status.REQUEUED,
        Status.COMPLETED,
        Status.CANCELLED,
        Status.COMPLETED,
    ]
    assert trace.skipped.reasons == {"jobs that were still waiting": 1}


NO_DEVICES = "billing=4,cpu=8,mem=16G,node=2"


def parts(*licences: int, notes: tuple[str, ...] = ("", "")) -> Trace:
    """A heterogeneous job of two components, with as many licences and such notes."""
    tres = [f"{NO_DEVICES},license/ipu={count}" if count else NO_DEVICES for count in licences]
    return sacct(
        *(
            row(f"9+{k}", ReqTRES=text, AllocTRES=text, AdminComment=note)
            for k, (text, note) in enumerate(zip(tres, notes, strict=True))
        ),
        row("10", ReqTRES="cpu=1,license/ipu=4", AllocTRES="cpu=1,license/ipu=4"),
    )


def devices_of(trace: Trace) -> dict[str, int]:
    return {job.name: job.devices for job in trace.jobs()}


def test_components_of_a_heterogeneous_job_are_several_requests() -> None:
    trace = sacct(row("9+0"), row("9+1", ElapsedRaw="70"))
    assert [(job.name, job.devices, job.runtime) for job in trace.jobs()] == [
        ("9+0", 4, 60),
        ("9+1", 4, 70),
    ]
    assert devices_of(parts(16, 8)) == {"9+0": 16, "9+1": 8, "10": 4}


def test_the_sum_that_slurm_writes_at_the_first_component_is_no_request() -> None:
    """From 24.11 on it has the licences of all; job_submit's notes have those of each."""
    noted = parts(24, 0, notes=("ipus=16", "ipus=8; waits for room"))
    assert devices_of(noted) == {"9+0": 16, "9+1": 8, "10": 4}
    without = parts(16, 0, notes=("ipus=16", "ipus=0"))
    assert devices_of(without) == {"9+0": 16, "10": 4}
    unknown = parts(24, 0)
    assert devices_of(unknown) == {"10": 4}
    assert unknown.skipped.reasons == {
        "components of heterogeneous jobs of which sacct has only the sum": 2
    }


def test_a_component_without_gpus_is_left_out_alone() -> None:
    """GPUs are counted with each component, on all releases."""
    trace = sacct(row("9+0"), row("9+1", ReqTRES=NO_DEVICES, AllocTRES=NO_DEVICES))
    assert devices_of(trace) == {"9+0": 4}


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_fields_may_be_between_commas_or_tabs(delimiter: str) -> None:
    """sacct writes no quotation marks, and a TRES has commas."""
    rows = [
        row(),
        row("8", ReqTRES="", AllocTRES="cpu=8,gres/gpu=2"),
        row("9", ReqTRES="cpu=1", AllocTRES="billing=1,cpu=1,gres/gpu=8,gres/gpu:a100=8,mem=1G"),
        row("10", User="a b"),
    ]
    plain = sacct(*rows)
    others = [text.replace("|", delimiter) for text in (HEADER, *rows)]
    trace = read_lines([f"{text}\r\n" for text in others], "sacct.csv")
    assert list(trace.jobs()) == list(plain.jobs())
    assert list(trace.devices) == [4, 2, 8, 4]


def test_a_line_with_a_comma_in_a_name_is_a_bad_line() -> None:
    rows = [text.replace("|", ",") for text in (HEADER, row(), row("8", User="a,b"))]
    trace = read_lines([f"{text}\n" for text in rows], "sacct.csv")
    assert (len(trace), trace.skipped.bad) == (1, 1)


def test_what_is_left_out_is_counted_and_what_is_broken_is_shown() -> None:
    trace = sacct(
        row(),
        row("7.batch"),
        row("10", "CANCELLED", Start="None", ElapsedRaw="0", ReqTRES="cpu=1", AllocTRES=""),
        row("11", ReqTRES="cpu=1", AllocTRES="cpu=1"),
        row("12", "EXPLODED"),
        row("13", Submit="yesterday"),
        "14|too|short",
        row("15", ReqTRES="gres", AllocTRES="gres"),
    )
    assert len(trace) == 1
    assert trace.skipped.bad == 4
    assert [one.number for one in trace.skipped.shown] == [6, 7, 8, 9]
    assert "EXPLODED" in trace.skipped.shown[0].problem
    assert trace.skipped.reasons == {
        "steps of jobs": 1,
        "jobs that were cancelled before they began": 1,
        "jobs without devices": 1,
    }


def test_a_file_without_one_job_says_why() -> None:
    with pytest.raises(InvalidRequest) as error:
        sacct(row("11", ReqTRES="cpu=1", AllocTRES="cpu=1"))
    assert "1 jobs without devices" in str(error.value)
    assert error.value.would_work == "--tres NAME, one of cpu"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1-02:03:04", 93784), ("02:03:04", 7384), ("03:04", 184), ("10", 600), ("00:00:01.5", 1.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


def test_no_limit_is_not_an_unknown_one() -> None:
    assert duration("UNLIMITED") == math.inf
    assert duration("Partition_Limit") == math.inf
    assert math.isnan(duration(""))
    for wrong in ("1:2:3:4", "a", "-5", "x-01:00:00"):
        with pytest.raises(ValueError, match=r"is not a time|could not convert"):
            duration(wrong)


def test_times_are_of_the_zone_that_is_said_and_in_order_over_its_changes() -> None:
    summer = when("2026-10-25T01:59:59", BERLIN)
    winter = when("2026-10-25T03:00:00", BERLIN)
    assert winter - summer == 2 * 3600 - 59 * 60 - 59 + 59 * 60 + 60
    assert when("2026-01-01T00:00:00", UTC) == when("2026-01-01T01:00:00+01:00", None)
    assert when("1767225600", BERLIN) == when("2026-01-01T00:00:00", UTC)
    assert math.isnan(when("Unknown", UTC))


def test_memory_of_each_core_and_node() -> None:
    assert memory("4Gc", 8, 2) == 32 << 30
    assert memory("64Gn", 8, 2) == 128 << 30
    assert memory("1.50T", 8, 2) == 1536 << 30
    assert memory("512000K", 1, 1) == 500 << 20
    with pytest.raises(ValueError, match="is not an amount"):
        memory("much", 1, 1)


def test_what_counts_as_a_device_can_be_said() -> None:
    one = row(AllocTRES="cpu=8,gres/gpu=4,license/ipu=16,node=2")
    assert sacct(one).devices[0] == 16
    assert sacct(one, tres="gres/gpu").devices[0] == 4
    assert sacct(one, tres="node").devices[0] == 2
    assert sacct(row(AllocTRES="gres/gpu:a=2,gres/gpu:b=3")).devices[0] == 5


def test_csv_with_more_columns_and_bad_lines() -> None:
    text = """\
user,job,submit_s,runtime_s,devices,walltime_s,status,after
bob,a,0,10,4,60,COMPLETED,
bob,b,5,20,8,,FAILED,a
bob,c,5,x,8,,FAILED,
bob,d,5,1,0,,FAILED,
bob,e,5,1,2,,ODD,
bob,f,5
"""
    trace = read_lines(text.splitlines(keepends=True), "t.csv")
    one, other = trace.jobs()
    assert (one.name, one.limit, other.after, other.devices) == ("a", 60, "a", 8)
    assert math.isnan(other.limit)
    assert trace.skipped.bad == 3
    assert trace.skipped.reasons == {"jobs without devices": 1}


@pytest.mark.parametrize("column", ["devices", "nodes", "cpus", "memory_mb"])
def test_a_job_whose_numbers_no_machine_has_is_left_out(column: str) -> None:
    rows = [
        {"submit_s": 0, "runtime_s": 5, "devices": 2, column: 10**15},
        {"submit_s": 1, "runtime_s": 5, "devices": 2, column: 2},
    ]
    lines = [",".join(rows[0]), *(",".join(map(str, one.values())) for one in rows)]
    trace = read_lines(lines, "a file")
    assert len(trace) == 1
    assert trace.skipped.reasons == {"jobs with a number that is too large": 1}


def test_swf() -> None:
    text = """\
; Version: 2.2
  1   100  20  300  16  -1 -1  16  600 -1 1 3 1 1 1 -1 -1 -1
  2   150  -1   -1  -1  -1 -1  32  600 -1 5 4 1 1 1 -1 -1 -1
  3   200   0   60   8  -1 -1  -1   -1 -1 0 -1 1 1 1 -1 1 10
  4   200   0   60
"""
    trace = read_lines(text.splitlines(keepends=True), "t.swf")
    one, other = trace.jobs()
    assert (one.submit, one.start, one.runtime, one.devices, one.limit) == (0, 20, 300, 16, 600)
    assert (other.status, other.devices, other.after) == (Status.FAILED, 8, "1")
    assert trace.skipped.bad == 1
    assert trace.skipped.reasons == {"jobs that were cancelled before they began": 1}


@pytest.mark.parametrize("elapsed", ["-60", "nan", "inf", "1e15"])
def test_a_line_of_sacct_with_no_time_that_a_job_has_is_bad(elapsed: str) -> None:
    trace = sacct(row(), row("8", ElapsedRaw=elapsed))
    assert (len(trace), trace.skipped.bad) == (1, 1)
    assert "a run time of" in trace.skipped.shown[0].problem


def test_times_that_no_job_has_make_bad_lines_of_csv_and_swf() -> None:
    text = """\
submit_s,runtime_s,devices,walltime_s,start_s
0,10,4,,
inf,10,4,,
1767225600000,10,4,,
0,inf,4,,
0,10,4,-1,
0,10,4,,1e12
"""
    trace = read_lines(text.splitlines(keepends=True), "t.csv")
    assert (len(trace), trace.skipped.bad) == (1, 5)
    lines = ["1 0 1 10 4 -1 -1 4 60 -1 1 1 1 1 1 -1 -1 -1\n", "2 0 1 nan 4" + " 1" * 13 + "\n"]
    trace = read_lines(lines, "t.swf")
    assert (len(trace), trace.skipped.bad) == (1, 1)


def test_csv_as_other_programs_write_it() -> None:
    text = '"job", "submit_s","runtime_s",devices,user\r\n"a, b",0,10,4,"x ""y"""\r\n'
    (job,) = read_lines(text.splitlines(keepends=True), "t.csv").jobs()
    assert (job.name, job.devices, job.user) == ("a, b", 4, 'x "y"')


def test_a_forgotten_quotation_mark_takes_its_own_line_alone() -> None:
    rows = [f"{at},0,10,4\n" for at in range(50)]
    rows[3] = '"3,0,10,4\n'
    rows[4] = f'"{"x" * 200_000}",0,10,4\n'
    trace = read_lines(["job,submit_s,runtime_s,devices\n", *rows], "t.csv")
    assert (len(trace), trace.skipped.bad) == (48, 2)
    assert [one.number for one in trace.skipped.shown] == [5, 6]


def test_a_job_that_the_file_has_twice_is_one() -> None:
    """Exports of two months share what ran over the end of the first."""
    again = row("8", Submit="2000", Eligible="2000", Start="2100", ElapsedRaw="500")
    trace = sacct(
        row(), row("8", "RUNNING", Submit="2000", Eligible="2000", Start="2100"), again, row()
    )
    assert [(job.name, job.runtime) for job in trace.jobs()] == [("7", 60), ("8", 500)]
    assert trace.skipped.reasons == {"lines that say a job again": 2}
    assert len(sacct(row("9+0"), row("9+1"), row("9+0"), row("9+1"))) == 2


def test_the_number_of_a_bad_line_is_that_of_the_file() -> None:
    trace = read_lines(["\n", "\n", f"{HEADER}\n", f"{row()}\n", "x\n"], "sacct.txt")
    assert trace.skipped.shown[0].number == 5


def test_a_file_that_is_no_utf_8_loses_no_job(tmp_path: Path) -> None:
    path = tmp_path / "s.txt"
    path.write_bytes(f"{HEADER}\n{row(User='Müller')}\n".encode("latin-1"))
    trace = read_trace(str(path))
    assert trace.users == ["M\\xfcller"]


def test_a_packed_file_comes_by_a_pipe_too_and_may_not_be_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = gzip.compress(f"{HEADER}\n{row()}\n".encode())
    path = tmp_path / "s.gz"
    path.write_bytes(packed)
    with path.open("rb") as file:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(file))
        assert len(read_trace("-")) == 1
    path.write_bytes(packed[:-20])
    with pytest.raises(InvalidRequest, match="cut off"):
        read_trace(str(path))


def test_times_without_an_offset_are_named() -> None:
    local = row(Submit="2026-10-25T02:30:00", Eligible="2026-10-25T02:30:00")
    assert "no offset" in " ".join(sacct(local, zone=BERLIN).notes)
    assert "no offset" not in " ".join(sacct(row()).notes)


def test_anything_else_is_refused_with_what_would_do() -> None:
    with pytest.raises(InvalidRequest, match="neither"):
        read_lines(["hello world\n"], "notes.txt")
    with pytest.raises(InvalidRequest, match="neither"):
        read_lines([], "empty")


def test_csv_without_our_columns_is_told_which_are_missing_and_how_to_name_them() -> None:
    lines = [
        "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,start_time,duration,queue\n",
        "1,ue1,vcA,ji1,8,48,COMPLETED,2020-04-01 00:08:45,2020-04-01 00:08:50,7200,5\n",
    ]
    with pytest.raises(InvalidRequest) as error:
        read_lines(lines, "helios.csv")
    assert "does not name the columns submit_s, runtime_s, devices" in error.value.problem
    advice = "submit_time as submit_s, duration as runtime_s, gpu_num as devices"
    assert advice in error.value.would_work
    changed = lines[0]
    for name in advice.split(", "):
        theirs, ours = name.split(" as ")
        changed = changed.replace(theirs, ours)
    (job,) = read_lines([changed, lines[1]], "helios.csv").jobs()
    assert (job.runtime, job.devices) == (7200, 8)
    with pytest.raises(InvalidRequest, match="the columns submit_s, runtime_s, devices") as error:
        read_lines(["name,colour,taste\n"], "fruit.csv")
    assert "submit_s, runtime_s, devices (submit_s: seconds" in error.value.would_work


def test_times_of_csv_may_be_dates() -> None:
    lines = ["submit_s,runtime_s,devices\n", "2020-04-01 00:00:00,60,1\n", "2020-04-01T01:00,5,1\n"]
    trace = read_lines(lines, "t.csv", zone=UTC)
    assert list(trace.submit) == [0, 3600]
    assert trace.epoch == 1585699200


def test_what_is_anonymised_reads_as_the_same_jobs_and_names_nobody() -> None:
    trace = sacct(row(), row("8", User="bob", Submit="2000", Eligible="2500", Start="2600"))
    out = io.StringIO()
    write_anonymous(trace, out)
    assert "alice" not in out.getvalue()
    again = read_lines(out.getvalue().splitlines(keepends=True), "a.csv")
    strip = [job._replace(name="", user="") for job in trace.jobs()]
    assert [job._replace(name="", user="") for job in again.jobs()] == strip
    assert again.users == ["0", "1"]


def test_what_is_anonymised_keeps_who_waits_for_whom_and_what_they_ask_of_hosts() -> None:
    text = "job,submit_s,runtime_s,devices,cpus,after\nx,5,1,2,8,secret\nsecret,0,9,2,8,\n"
    out = io.StringIO()
    write_anonymous(read_lines(text.splitlines(keepends=True), "t.csv"), out)
    assert "secret" not in out.getvalue()
    _, last = read_lines(out.getvalue().splitlines(keepends=True), "a.csv").jobs()
    assert (last.after, last.cpus) == ("0", 8)


def test_the_example_is_the_same_for_a_seed_and_asks_for_its_load() -> None:
    one, other = example(3, days=5), example(3, days=5)
    assert repr(list(one.jobs())) == repr(list(other.jobs()))
    assert repr(list(one.jobs())) != repr(list(example(4, days=5).jobs()))
    assert one.device_seconds == pytest.approx(0.9 * 64 * 5 * 86400, rel=0.2)
    assert max(one.devices) <= 32
