"""The report: the same each time, in text and JSON; and the command."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker, spawn
from pathlib import Path

import pytest

from podwright.cli import podwright
from podwright.replay import (
    Chances,
    ReplayTask,
    SlurmModel,
    Trace,
    TraceJob,
    example,
    pod_ways,
    replay,
    run_all,
)
from podwright.replay._report_tables import way_table
from podwright.replay._report_types import WayFigures

TRACE = example(2, days=1)


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = podwright.main(["replay", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A short trace with recorded starts."""
    path = tmp_path / "t.csv"
    rows = ["job,submit_s,runtime_s,devices,walltime_s,status,user,start_s"]
    for at, job in enumerate(TRACE.jobs()):
        if at % 3 == 0:
            begun = job.submit + 60
            rows.append(f"{at},{job.submit},{job.runtime},{job.devices},,FAILED,u{at % 4},{begun}")
    path.write_text("\n".join([*rows, "x,1,2", ""]))
    return str(path)


@pytest.mark.parametrize(
    ("way", "apart"), [("static:8x4+2x16", "9.5 %"), ("host-mapping:4x16", "8.9 %"), ("native", "")]
)
def test_the_report_states_how_far_a_way_was_from_a_real_slurm(
    way: str, apart: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.csv"
    trace.write_text("job,submit_s,runtime_s,devices,walltime_s,status,user\n1,0,60,4,600,,a\n")
    words = [str(trace), "--pod", "pod64", "--ways", way]
    code, text, _ = said(capsys, *words)
    assert code == 0
    stated = "from that of a real Slurm 22.05"
    shown = " ".join(text.split())
    assert (stated in shown) == bool(apart)
    assert apart in shown
    found = json.loads(said(capsys, *words, "--json")[1])
    assert [apart in line for line in found["deviations"]] == ([True] if apart else [])


def test_the_same_seed_gives_the_same_bytes_in_one_process_or_several() -> None:
    ways = pod_ways(["native", "static:8x4+2x16"], 64)
    texts = []
    for processes in (1, 2):
        found = replay(TRACE, ways, SlurmModel(), Chances(), processes=processes)
        texts.append(json.dumps(found))
    assert texts[0] == texts[1]


def test_a_process_that_dies_is_an_error_that_names_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from podwright.replay import SimulationFailed

    broken = ReplayTask(
        pod_ways(["native"], 64)[0], SlurmModel(bf_interval=1.0), Chances(move_s=1.0)
    )
    other = ReplayTask(
        pod_ways(["host-mapping:4x16"], 64)[0], SlurmModel(bf_resolution=0.0), Chances()
    )
    with pytest.raises(SimulationFailed, match="host-mapping:4x16"):
        run_all(Trace("t", TRACE.jobs()), [broken, other], processes=2)


def test_a_process_that_never_begins_is_no_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs are more than a pipe takes: nobody reads them."""
    from podwright.replay import SimulationFailed

    resource_tracker.ensure_running()  # it is a Python, too
    monkeypatch.setattr(spawn, "_python_exe", b"/bin/false")
    (way,) = pod_ways(["native"], 64)
    tasks = [ReplayTask(way, SlurmModel(), Chances())] * 2
    jobs = list(TRACE.jobs()) * (20_000 // len(TRACE) + 1)
    with pytest.raises(SimulationFailed, match="native ended with 1"):
        run_all(Trace("t", jobs), tasks, processes=2)


def test_refusals_come_first_and_waits_are_of_jobs_that_all_ways_run(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [trace, "--ways", "native,static:4x4", "--processes", "1"]
    code, out, err = said(capsys, *words)
    assert (code, err) == (0, "")
    assert "1 line could not be read:" in out
    assert "It has no time limits." in out
    places = [
        out.index(text) for text in ("Jobs that a way refuses", "that all ways run", "Beside")
    ]
    assert places == sorted(places)
    found = json.loads(said(capsys, *words, "--json")[1])
    native, static = found["ways"]
    refused = sum(static["refused"].values())
    assert refused > 0
    assert native["refused"] == {}
    assert native["jobs"] == found["trace"]["jobs"]
    assert found["common_jobs"] == static["jobs"] == native["jobs"] - refused
    assert f"of the {found['common_jobs']} jobs that all ways run" in out


def test_a_way_s_figures_count_the_jobs_that_the_others_run_too() -> None:
    """A large job that waits for long is no part of a comparison with a way that refuses it."""
    jobs = [TraceJob("1", 0, 3600, 4), TraceJob("2", 1, 3600, 64), TraceJob("3", 2, 60, 4)]
    ways = pod_ways(["native", "static:16x4"], 64)
    found = replay(Trace("t", jobs), ways, SlurmModel(room_s=0.0), Chances(), processes=1)
    native, static = found["ways"]
    assert (native["jobs"], static["jobs"], found["common_jobs"]) == (3, 2, 2)
    assert native["wait"]["mean"] == static["wait"]["mean"] == 0
    (alone,) = replay(Trace("t", jobs), ways[:1], SlurmModel(room_s=0.0), Chances())["ways"]
    assert alone["wait"]["mean"] > 1000


def test_a_difference_stands_beside_those_of_the_halves() -> None:
    jobs = [TraceJob(str(k), 10.0 * k, 100, 4) for k in range(40)]
    ways = pod_ways(["native", "static:2x4"], 16)
    found = replay(Trace("t", jobs), ways, SlurmModel(), Chances(), processes=1)
    (row,) = found["differences"]
    means = [way["wait"]["mean"] for way in found["ways"]]
    whole, first, second = row["wait_s"]
    assert row["way"] == "static:2x4"
    assert whole == pytest.approx(means[1] - means[0])
    assert (first + second) / 2 == pytest.approx(whole)
    assert 0 < first < second


def way_that_waits(seconds: float) -> WayFigures:
    return {
        "way": "native",
        "devices": 64,
        "jobs": 1,
        "refused": {},
        "refused_device_hours": 0.0,
        "used": 0.5,
        "held": 0.5,
        "free_of_no_use": 0.0,
        "makespan_s": 1.0,
        "events": 1,
        "wait": dict.fromkeys(("mean", "p50", "p95", "p99"), seconds),
        "bounded_slowdown": {"mean": 1234.5},
        "simpler": [],
    }


def test_a_column_has_one_unit() -> None:
    """The longest wait chooses it."""
    header, rows = way_table([way_that_waits(9e5), way_that_waits(60)])
    assert header[5] == "mean wait (d)"
    assert [row[5] for row in rows] == ["10.4", "0.00"]
    header, rows = way_table([way_that_waits(60)])
    assert (header[5], rows[0][5]) == ("mean wait (s)", "60.0")


def test_json_holds_the_same(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [trace, "--policy", "best-fit,lowest,moves", "--json", "--processes", "1"]
    found = json.loads(said(capsys, *words)[1])
    assert [row["way"] for row in found["ways"]] == ["native", "native, lowest", "native, moves"]
    assert [row["way"] for row in found["differences"]] == ["native, lowest", "native, moves"]
    assert found["trace"]["bad_lines"] == 1
    for row in found["ways"]:
        assert 0 < row["used"] <= row["held"] <= 1


def test_anonymising_writes_a_trace_that_reads_again(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = said(capsys, trace, "--anonymise", str(tmp_path / "a.csv"))
    assert code == 0
    assert "without names" in out
    assert (tmp_path / "a.csv").read_text().startswith("job,submit_s,")
    assert said(capsys, str(tmp_path / "a.csv"), "--anonymise", str(tmp_path / "b.csv"))[0] == 0
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()


def test_what_is_left_out_is_said_when_a_trace_is_anonymised(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(capsys, trace, "--anonymise", str(tmp_path / "a.csv"))
    assert "1 line could not be read:" in out
    assert "x,1,2" in out


def test_what_no_pod_can_do_is_named(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(
        capsys, trace, "--pod", "pod8", "--policy", "best-fit,trim,no-shape", "--processes", "1"
    )
    assert "V-IPU's IPUs cannot" in out
    assert "no pod can join any devices" in out


def test_json_is_the_same_bytes_twice(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [trace, "--json", "--processes", "1"]
    assert said(capsys, *words) == said(capsys, *words)


def test_a_slurm_conf_counts_with_what_it_includes(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("SchedulerParameters=bf_interval=60,\\\nbf_window=2880\nInclude more.conf\n")
    (tmp_path / "more.conf").write_text("PriorityWeightAge=7\n")
    words = [trace, "--slurm-conf", str(conf), "--json", "--processes", "1"]
    slurm = json.loads(said(capsys, *words)[1])["slurm"]
    assert (slurm["bf_interval"], slurm["bf_window"], slurm["weight_age"]) == (60, 172800, 7)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--example"),
        (["nowhere.csv"], "No such file"),
        (["--example", "--pod", "pod65"], "pod256"),
        (["--example", "--ways", "natve"], "native"),
        (["--example", "--hosts", "many"], "16x64x512"),
        (["t.csv", "--timezone", "Mars/Base"], "Europe/Berlin"),
        (["--example", "--movable", "200"], "0 to 100"),
        (["t.csv", "--timezone", "Europe"], "Europe/Berlin"),
        (["--example", "--ways", "static:8x4", "--policy", "lowest"], "Add native to the ways"),
    ],
)
def test_mistakes_say_what_would_work(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, *words)
    assert code != 0
    assert out == ""
    assert told in err


def test_the_command_to_run_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--fields")
    assert code == 0
    assert out.startswith("SLURM_TIME_FORMAT=%s sacct ")


def test_control_c_ends_all_of_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "podwright.cli.podwright", "replay", "--example"]
    with subprocess.Popen(
        [*argv, "--pod", "pod512", "--processes", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until = time.monotonic() + 300
        while len(children.read_text().split()) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err


PAGE = Path(__file__).parents[2] / "docs" / "replay.md"
LINES = re.findall(r"^podwright replay .*$", PAGE.read_text(), re.MULTILINE)


def test_the_page_of_the_documentation_has_lines_to_type() -> None:
    assert len(LINES) >= 5


@pytest.mark.parametrize("line", LINES)
def test_a_line_of_the_documentation_runs_as_printed(
    line: str,
    trace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In a folder with the files that it names; the example's month is a day here."""
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(Path(trace).read_text())
    Path("jobs.csv").write_text(Path(trace).read_text())
    monkeypatch.setattr("podwright.replay.example", lambda seed, devices: TRACE)
    code, out, err = said(capsys, *line.split()[2:])
    assert (code, err) == (0, "")
    assert out
