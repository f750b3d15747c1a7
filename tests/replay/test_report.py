"""The report: the same each time, in text, JSON and one page; and the command."""

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
    example,
    html,
    pod_ways,
    replay,
    run_all,
)
from podwright.replay._advice import duration

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
    trace, page = tmp_path / "t.csv", tmp_path / "report.html"
    trace.write_text("job,submit_s,runtime_s,devices,walltime_s,status,user\n1,0,60,4,600,,a\n")
    words = [str(trace), "--pod", "pod64", "--ways", way]
    code, text, _ = said(capsys, *words, "--html", str(page))
    assert code == 0
    stated = "from that of a real Slurm 22.05"
    for shown in (" ".join(text.split()), page.read_text()):
        assert (stated in shown) == bool(apart)
        assert apart in shown
    found = json.loads(said(capsys, *words, "--json")[1])
    assert [apart in line for line in found["deviations"]] == ([True] if apart else [])


def test_the_same_seed_gives_the_same_bytes_in_one_process_or_several() -> None:
    ways = pod_ways(["native", "static:8x4+2x16"], 64)
    texts = []
    for processes in (1, 2):
        found = replay(TRACE, ways, SlurmModel(), Chances(), processes=processes, what_if=False)
        texts.append(json.dumps(found.figures))
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


def test_the_command_says_what_to_change_and_how_far_to_trust_it(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = said(capsys, trace, "--ways", "native,host-mapping:4x16", "--processes", "1")
    assert (code, err) == (0, "")
    assert "1 lines could not be read:" in out
    assert "What to change" in out
    assert "As recorded" in out
    assert re.search(r"Jobs used [\d.]+% of these devices; [\d.]+% were free", out)
    assert "It has no time limits." in out
    assert re.search(r"host-mapping:4x16 \| 64 ", out)


def test_json_holds_the_same(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [trace, "--policy", "best-fit,lowest,moves", "--json", "--processes", "1"]
    _, out, _ = said(capsys, *words, "--no-what-if")
    found = json.loads(out)
    assert [row["way"] for row in found["ways"]] == ["native", "native, lowest", "native, moves"]
    assert found["trace"]["bad_lines"] == 1
    assert set(found["distance"]) == {"wait_p50_s", "wait_p95_s", "bounded_slowdown_mean", "used"}
    for row in found["ways"]:
        assert 0 < row["used"] <= row["held"] <= 1
        assert sum(size["jobs"] for size in row["by_size"]) == row["jobs"]


def test_the_page_needs_nothing_else_and_is_the_same_twice() -> None:
    ways = pod_ways(["native", "host-mapping:4x16"], 64)
    found = replay(TRACE, ways, SlurmModel(), Chances(), processes=1, what_if=False)
    text = html.page(found)
    assert text.count("<svg") == 4
    assert not re.search(r"(?:src|href)=[\"']?http", text)
    assert "<script" not in text
    assert html.page(found) == text


def test_without_matplotlib_the_page_says_what_to_install_before_anything_runs(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    code, out, err = said(capsys, trace, "--html", "never.html")
    assert (code, out) == (2, "")
    assert "podwright[report]" in err


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
    assert "1 lines could not be read:" in out
    assert "x,1,2" in out


def test_what_no_pod_can_do_is_never_advised(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(
        capsys, trace, "--pod", "pod8", "--policy", "best-fit,trim,no-shape", "--processes", "1"
    )
    assert "Take native" not in out
    assert "V-IPU's IPUs cannot" in out
    assert "no pod can join any devices" in out


def test_json_is_the_same_bytes_twice(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [trace, "--json", "--processes", "1"]
    assert said(capsys, *words) == said(capsys, *words)


def test_native_mode_is_changed_wherever_it_stands_among_the_ways(
    trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = said(capsys, trace, "--ways", "static:8x4, native", "--processes", "1", "--json")
    found = json.loads(out)
    assert [row["way"] for row in found["ways"]] == ["static:8x4", "native"]
    assert len(found["what_if"]) == 4


def test_a_slurm_conf_counts_with_what_it_includes(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("SchedulerParameters=bf_interval=60,\\\nbf_window=2880\nInclude more.conf\n")
    (tmp_path / "more.conf").write_text("PriorityWeightAge=7\n")
    words = [trace, "--slurm-conf", str(conf), "--json", "--processes", "1", "--no-what-if"]
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
        (["--example", "--gpus", "x.toml", "--pod", "pod64"], "--gpus FILE"),
        (["t.csv", "--timezone", "Mars/Base"], "Europe/Berlin"),
        (["--example", "--movable", "200"], "0 to 100"),
        (["t.csv", "--timezone", "Europe"], "Europe/Berlin"),
        (["--example", "--gpus", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (["--example", "--html", "nowhere/r.html"], "there is no such folder"),
        (["--example", "--html", "."], "it is a folder"),
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


def test_gpu_nodes_from_a_file(
    trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = tmp_path / "site.toml"
    domains = "".join(
        f'[[link_domains]]\nname = "d{at}"\nmachines = ["n{at}"]\n' for at in range(8)
    )
    site.write_text(f'name = "site"\nfamily = "hgx8"\ntopology = "switched"\n{domains}')
    words = [trace, "--gpus", str(site), "--json", "--processes", "1"]
    code, out, err = said(capsys, *words)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert "not a power of two" not in " ".join(found["what_to_change"])
    shared, alone = found["ways"]
    assert (shared["way"], alone["way"]) == ("shared", "exclusive")
    assert shared["used"] > alone["used"]


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


def test_times_for_people() -> None:
    assert [duration(s) for s in (5, 100, 7200, 400000)] == ["5 s", "2 min", "2.0 h", "4.6 d"]


PAGE = Path(__file__).parents[2] / "docs" / "replay.md"
LINES = re.findall(r"^podwright replay .*$", PAGE.read_text(), re.MULTILINE)


def test_the_page_of_the_documentation_has_lines_to_type() -> None:
    assert len(LINES) >= 6


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
    rows = "".join(f'[[link_domains]]\nname = "d{k}"\nmachines = ["n{k}"]\n' for k in range(8))
    Path("site.toml").write_text(f'name = "s"\nfamily = "hgx8"\ntopology = "switched"\n{rows}')
    monkeypatch.setattr("podwright.replay.example", lambda seed, devices: TRACE)
    code, out, err = said(capsys, *line.split()[2:])
    assert (code, err) == (0, "")
    assert out
