"""`poprun --trace`: the content of the file after a real launch, whatever its end."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from podwright.errors import InvalidRequest
from podwright.timeline import Timeline, account, parse_timeline, read_timeline
from tests.launcher.conftest import Launcher, wait_until
from tests.launcher.test_hosts import far  # noqa: F401

TWO = ("--num-replicas=2", "--num-instances=2", "--launcher=local")
#: Three epochs of two sums each; instance 1 comes to each of them later: once 0 has said it began.
PROGRAM = """\
import os, time, numpy, popdist
from popdist._trace_records import Records
popdist.init()
print("here I am", flush=True)
me, begin, begun = popdist.getInstanceIndex(), Records.begin, 0

def say(records):
    global begun
    at, begun = begin(records), begun + 1
    open(f"begun.{me}.{begun}", "w").close()
    return at

def later():
    while me and not os.path.exists(f"begun.0.{begun + 1}"): time.sleep(0.01)
    time.sleep(0.1 * me)

Records.begin = say
for epoch in range(3):
    popdist.mark("epoch")
    for _ in range(2):
        later()
        popdist.allReduceSum(numpy.ones(1000))
later()
popdist.barrier()
"""


def traced(launcher: Launcher, *words: str, code: int = 0) -> Timeline:
    """Run to the end, and return the timeline."""
    path = launcher.folder / "trace"
    ran = launcher.run(f"--trace={path}", *words)
    assert ran.code == code, ran
    assert "timeline is not whole" not in ran.err
    found = read_timeline(str(path))
    assert found.whole
    assert all(s.done for s in found.slices)
    return found


def test_a_timeline_has_every_stage_of_a_launch(launcher: Launcher) -> None:
    found = traced(launcher, *TWO, sys.executable, "-c", PROGRAM)
    phases = [(s.name, s.depth) for s in found.of("launch")]
    assert phases == [
        *(("launch", 0), ("run", 1), ("hosts", 2), ("partition", 2), ("waiting", 3)),
        *(("fabric", 3), ("giving back", 1)),
    ]
    launch = found.of("launch")[0]
    assert (launch.annotations["instances"], launch.annotations["code"]) == (2, 0)
    assert "here I am" in launch.annotations["program"]
    partition = found.of("launch")[3]
    assert (partition.annotations["name"], partition.annotations["devices"]) == ("run-1", 2)
    assert [s.name for s in found.of("start")] == ["start"]
    for instance in found.of("instance"):
        mine = [s for s in found.slices if s.track == instance.track and s.depth]
        assert [s.name for s in mine] == [
            *("join by TCP", *["allReduceSum"] * 6, "barrier", "leave by TCP")
        ]
        assert all(s.depth == 1 and instance.begin <= s.begin <= s.end for s in mine)
        assert {s.annotations["bytes"] for s in mine if s.name == "allReduceSum"} == {8000}
        here = [i.name for i in found.instants if i.track == instance.track]
        assert sorted(here) == ["epoch", "epoch", "epoch", "first line"]
        assert instance.annotations["code"] == 0
    told = account(found)
    assert told.slowest is not None
    assert told.slowest.rank == 1
    assert told.slowest.last >= 6
    assert told.slowest.waited >= 0.3
    assert told.by_rank.keys() == {0, 1}
    launcher.leaves_nothing()


def test_mpi_starts_while_the_partition_is_made(launcher: Launcher) -> None:
    program = "import popdist; popdist.init(); popdist.barrier()"
    words = ("--num-replicas=2", "--num-instances=2", sys.executable, "-c", program)
    found = traced(launcher, *words)
    assert [s.name for s in found.of("start")] == ["MPI start"]
    names = [s.name for s in found.slices if s.depth == 1 and s.category != "launch"]
    assert names.count("join by MPI") == names.count("barrier") == 2
    partition = next(s for s in found.of("launch") if s.name == "partition")
    assert found.of("start")[0].begin <= partition.begin


def test_a_timeline_has_each_restart(launcher: Launcher) -> None:
    program = "echo up; [ $PODWRIGHT_RESTART = 2 ] || [ $RANK = 0 ] || exit 9"
    found = traced(launcher, *TWO, "--max-restarts=3", "sh", "-c", program)
    assert [s.name for s in found.of("launch") if s.depth == 1] == [
        *("run", "start 2", "start 3", "giving back")
    ]
    restarts = [i.annotations for i in found.instants if i.name == "restart"]
    assert [r["number"] for r in restarts] == [1, 2]
    assert all("instance 1" in r["cause"] for r in restarts)
    codes = [s.annotations["code"] for s in found.of("instance") if s.annotations["rank"] == 1]
    assert codes == [9, 9, 0]
    assert account(found).starts == 3


def test_a_failed_launch_says_why_it_ended(launcher: Launcher) -> None:
    found = traced(launcher, *TWO, "sh", "-c", "exit 7", code=7)
    launch = found.of("launch")[0]
    assert launch.annotations["code"] == 7
    assert "ended with exit code 7" in launch.annotations["cause"]
    found = traced(launcher, *TWO, "--vipu-partition=full", "true", code=75)
    assert "nothing is free" in found.of("launch")[0].annotations["cause"]


def test_kill_9_leaves_a_file_that_is_read_up_to_there(launcher: Launcher) -> None:
    path = launcher.folder / "trace"
    # What follows another record at once is sent with the next one.
    program = PROGRAM + "time.sleep(0.5)\npopdist.mark('end')\ntime.sleep(600)\n"
    process = launcher.start(f"--trace={path}", *TWO, sys.executable, "-c", program)
    assert process.stdout
    for _ in range(2):
        process.stdout.readline()

    def all_said() -> bool:
        found = parse_timeline(path.read_bytes())
        return sum(i.name == "end" for i in found.instants) == 2

    wait_until(all_said)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=300)
    launcher.leaves_nothing()
    found = read_timeline(str(path))
    assert not found.of("launch")[0].done
    assert [s.name for s in found.of("collective")].count("allReduceSum") == 12
    assert account(found).total > 0


def test_a_timeline_of_several_hosts_has_one_clock(far: Launcher) -> None:  # noqa: F811
    """The hosts' relays are asked for their time. Records come over the launch's own
    connections.
    """
    found = traced(
        far,
        *("--host=far[1-2]", *TWO, "--mpi-local-args=-x MASTER_ADDR=127.0.0.1"),
        *(sys.executable, "-c", PROGRAM),
    )
    tracks = {name for name, _ in found.tracks.values()}
    assert {"host far1", "host far2"} <= tracks
    assert sorted(i.annotations["host"] for i in found.instants if i.name == "host reached") == [
        *("far1", "far2")
    ]
    clocks = {i.annotations["host"]: i.annotations for i in found.instants if i.name == "clock"}
    assert clocks.keys() == {"far1", "far2"}
    for told in clocks.values():  # it is one clock in truth
        assert abs(told["offset"]) <= told["error"]
    assert account(found).clock_error > 0
    assert [s.name for s in found.of("collective")].count("allReduceSum") == 12
    slowest = account(found).slowest
    assert slowest is not None
    assert slowest.rank == 1


@pytest.mark.parametrize("hosts", [(), ("--host=far1,far2",)])
def test_reports_of_popvision_are_listed(
    far: Launcher,  # noqa: F811
    tmp_path: Path,
    hosts: tuple[str, ...],
) -> None:
    reports = tmp_path / "reports"
    program = (
        'd=$POPDIST_AUTOREPORT_DIRECTORY/$RANK; mkdir -p "$d/training"; '
        'echo 12345 >"$d/profile.pop"; echo 1 >"$d/training/profile.pop"'
    )
    found = traced(far, *hosts, *TWO, f"--autoreport-dir={reports}", "sh", "-c", program)
    told = [i.annotations for i in found.instants if i.name == "report"]
    assert sorted(t["folder"] for t in told) == [str(reports / "0"), str(reports / "1")]
    for one in told:
        assert one["file profile.pop"] == 6
        assert one["file training/profile.pop"] == 2
        assert one["more"] == 0


def test_a_folder_that_the_user_named_is_listed(launcher: Launcher, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    for i in range(60):
        (tmp_path / "own" / f"f{i:02}").write_text("x")
    (tmp_path / "own" / "loop").symlink_to(tmp_path / "own")
    launcher.environ["POPLAR_ENGINE_OPTIONS"] = json.dumps(
        {"autoReport.all": "true", "autoReport.directory": str(tmp_path / "own")}
    )
    found = traced(launcher, *TWO, "true")
    told = [i.annotations for i in found.instants if i.name == "report"]
    assert len(told) == 2
    assert told[0]["folder"] == str(tmp_path / "own")
    assert sum(name.startswith("file ") for name in told[0]) == 50
    assert told[0]["more"] == 10


def test_a_timeline_that_cannot_be_written_is_refused_before_the_start(launcher: Launcher) -> None:
    (launcher.cwd / "train.py").write_text("import popdist")
    ran = launcher.run("--trace=train.py", *TWO, "true")
    assert ran.code == InvalidRequest.exit_code
    assert "--trace: train.py is there, and is not a trace" in ran.err
    assert launcher.calls() == []
    launcher.leaves_nothing()


def test_a_launch_without_trace_writes_no_timeline(launcher: Launcher) -> None:
    program = (
        "import os, sys, popdist\npopdist.init()\npopdist.mark('epoch')\n"
        "print('POPDIST_TRACE' in os.environ, 'popdist._trace_records' in sys.modules)"
    )
    # As the environment of a launch that poprun itself is part of has it.
    launcher.environ["POPDIST_TRACE"] = "/nowhere"
    ran = launcher.run(*TWO, sys.executable, "-c", program)
    assert ran.code == 0, ran
    assert sorted(ran.out.splitlines()) == [f"[1,{i}]<stdout>: False False" for i in range(2)]
