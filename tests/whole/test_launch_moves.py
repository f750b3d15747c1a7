"""poprun --movable against a real server: it moves, and whoever is killed, nothing is left over."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podwright.hosts import descendants
from podwright.timeline import account, read_timeline
from tests.whole.conftest import BIN, Pod

#: Ends in order to move once it may; the second time it is done.
TRAPS = """
trap 'while [ ! -e may-end ]; do sleep 0.05; done; echo "$PODWRIGHT_RESTART" >>ended; exit 75' USR1
echo "up $PODWRIGHT_RESTART"
[ "$PODWRIGHT_RESTART" = 1 ] && exit 0
while :; do sleep 0.05; done
"""
#: The same, but it goes on for ever.
LASTING = """
trap 'while [ ! -e may-end ]; do sleep 0.05; done; echo >>ended; exit 75' USR1
[ "$PODWRIGHT_RESTART" = 1 ] && echo >>again
while :; do sleep 0.05; done
"""
_IDLE = {"FREE", "DRAINED"}
STEPS = """
import os, sys, time
import popdist

popdist.init()
popdist.onMove()
me = popdist.getInstanceIndex()
there = os.path.exists("checkpoint")
step = int(open("checkpoint").read()) if there else 0
print("up from", step, flush=True)
while not there:
    if popdist.mustMove():
        if me == 0:
            with open("checkpoint", "w") as file:
                file.write(str(step))
        sys.exit(popdist.MOVED)
    step += 1
    time.sleep(0.05)
"""
LINE = (
    "--vipu-partition=p",
    "--movable",
    "--move-seconds=1",
    "--num-replicas=4",
    "--num-instances=2",
)
#: However busy this machine is, it has the time to end.
PATIENT = tuple(word.replace("--move-seconds=1", "--move-seconds=900") for word in LINE)
BIG = ("--vipu-partition=big", "--num-replicas=8", "--num-instances=1")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(pod16: Pod) -> Iterator[Start]:
    """Starts launches beside the test; ends them with it."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["poprun", "--allow-run-as-root=yes", *words],
            executable=BIN / "poprun",
            env=pod16.environ,
            cwd=pod16.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        begun.append(process)
        return process

    yield begin
    for process in begun:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=300)


def until(true: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 300
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def moves(pod: Pod) -> dict[str, Any]:
    """Return the server's list of moves."""
    found: dict[str, Any] = pod.json("vipu-admin", "moves")
    return found


def asked(pod: Pod, launch: subprocess.Popen[str]) -> None:
    """Drain the machine of the only launch, once that can be moved, and see its instances told."""
    until(lambda: moves(pod)["movable"] == 1)
    rows = pod.json("vipu-admin", "list", "machines")
    (machine,) = [row["machine"] for row in rows if row["partitions"]]
    pod.good("vipu-admin", "drain", "machine", machine)
    assert launch.stdout is not None
    assert any("asks this launch to move" in line for line in launch.stdout), "it ended instead"


def process_of(launch: subprocess.Popen[str], name: str) -> int:
    """Return one of a launch's own processes, by its name; 0: there is none now."""
    for process in descendants(launch.pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{process.pid}/comm").read_text().strip() == name:
                return process.pid
    return 0


def is_empty(pod: Pod) -> None:
    """Return whether nothing is held, kept or waited for."""
    until(lambda: pod.partitions() == {})
    until(lambda: {row["state"] for row in pod.json("vipu", "list", "devices")} <= _IDLE)


def test_popdist_moves_with_its_checkpoint(pod16: Pod, start: Start) -> None:
    """Eight devices are free and scattered; the launch in between makes room, and goes on."""
    (pod16.folder / "steps.py").write_text(STEPS)
    for name in ("x1", "x2", "x3"):
        pod16.good("vipu", "create", "partition", name, "--size", "4")
    launch = start(*LINE, "python3", "steps.py")
    until(lambda: moves(pod16)["movable"] == 1)
    machines = pod16.json("vipu-admin", "list", "machines")
    (place,) = [
        i for i, row in enumerate(machines) if row["partitions"] not in (["x1"], ["x2"], ["x3"])
    ]
    pair, other = place ^ 1, (place ^ 2) & ~1
    for row in (machines[pair], machines[other]):
        pod16.good("vipu", "remove", "partition", row["partitions"][0])
    ran = pod16.run("poprun", "--allow-run-as-root=yes", "--vipu-wait", *BIG, "true")
    assert ran.code == 0, ran
    out, _ = launch.communicate(timeout=300)
    assert launch.returncode == 0, out
    assert "asks this launch to move" in out
    assert "is on other devices; starting again" in out
    assert out.count("up from 0") == 2
    assert out.count("up from") == 4
    assert moves(pod16)["done"] == 1
    assert "p" not in pod16.partitions()


def test_a_server_killed_in_between_has_moved_nothing(pod16: Pod, start: Start) -> None:
    launch = start(*LINE, "--launcher=local", "--move-signal=USR1", "sh", "-c", TRAPS)
    asked(pod16, launch)
    pod16.stop(signal.SIGKILL)
    (pod16.folder / "may-end").touch()
    until(lambda: (pod16.folder / "ended").exists() or launch.poll() is not None)
    pod16.start()
    out, _ = launch.communicate(timeout=300)
    assert launch.returncode == 0, out
    assert out.count("up 1") == 2
    is_empty(pod16)


def test_a_poprun_killed_while_it_is_asked_gives_all_back(pod16: Pod, start: Start) -> None:
    launch = start(*LINE, "--launcher=local", "--move-signal=USR1", "sh", "-c", TRAPS)
    asked(pod16, launch)
    launch.kill()
    launch.communicate(timeout=300)
    is_empty(pod16)


def test_a_launch_that_took_its_handler_back_is_told_nothing(pod16: Pod, start: Start) -> None:
    """One instance has no handler any more, and the other has one: its end alone would end the
    launch.
    """
    program = """
trap 'exit 75' USR1
while [ ! -e off ]; do sleep 0.05; done
[ "$RANK" = 0 ] && trap - USR1 && touch taken
while [ ! -e on ]; do sleep 0.05; done
"""
    words = ("--verbose", "--launcher=local", "--move-signal=USR1", "sh", "-c", program)
    launch = start(*PATIENT, *words)
    until(lambda: moves(pod16)["movable"] == 1)
    (pod16.folder / "off").touch()
    until((pod16.folder / "taken").exists)
    rows = pod16.json("vipu-admin", "list", "machines")
    (machine,) = [row["machine"] for row in rows if row["partitions"]]
    pod16.good("vipu-admin", "drain", "machine", machine)
    assert launch.stdout is not None
    assert any("can be moved any more" in line for line in launch.stdout), "it ended instead"
    pod16.good("vipu-admin", "resume", "machine", machine)
    # The keeper's next renewal says so, which may come after the words that were read above.
    until(lambda: moves(pod16)["movable"] == 0 and not moves(pod16)["moves"])
    (pod16.folder / "on").touch()
    out, _ = launch.communicate(timeout=300)
    assert launch.returncode == 0, out
    assert "asks this launch to move" not in out
    assert "p" not in pod16.partitions()


def test_a_partition_that_was_made_movable_moves_and_stays(pod16: Pod, start: Start) -> None:
    """A bare partition has no launch; once one on it can be told, it moves with that."""
    pod16.good("vipu", "create", "partition", "p", "--size=4", "--num-gcds=2", "--movable")
    before = pod16.json("vipu-admin", "list", "machines")
    launch = start(*PATIENT, "--launcher=local", "--move-signal=USR1", "sh", "-c", TRAPS)
    asked(pod16, launch)
    (pod16.folder / "may-end").touch()
    out, _ = launch.communicate(timeout=300)
    assert launch.returncode == 0, out
    assert out.count("up 1") == 2
    after = pod16.json("vipu-admin", "list", "machines")
    assert [row["partitions"] for row in after] != [row["partitions"] for row in before]
    assert list(pod16.partitions()) == ["p"]


#: What has been when somebody is killed, and what the test waits for until then.
STEPS_OF_A_MOVE = ("its instances are told", "they have ended", "it has moved", "it starts again")


@pytest.mark.soak
@pytest.mark.parametrize("who", ["podwright-keep", "podwright-guard", "poprun"])
def test_whoever_is_killed_in_any_step_of_a_move_it_is_finished_or_undone(
    pod16: Pod, start: Start, who: str
) -> None:
    """The launch ends and gives all back; or, where it has ended its first start and needs a new
    keeper anyway, it goes on where it is to be."""
    for step in STEPS_OF_A_MOVE:
        _kill_in(step, who, pod16, start)
        is_empty(pod16)
        for row in pod16.json("vipu-admin", "list", "machines"):
            pod16.good("vipu-admin", "resume", "machine", row["machine"])


def _kill_in(step: str, who: str, pod: Pod, start: Start) -> None:
    marks = {name: pod.folder / name for name in ("may-end", "ended", "again")}
    for mark in marks.values():
        mark.unlink(missing_ok=True)
    done = moves(pod)["done"]
    launch = start(*PATIENT, "--launcher=local", "--move-signal=USR1", "sh", "-c", LASTING)
    asked(pod, launch)
    assert pod.process is not None
    if step == "they have ended":  # and nobody hears poprun say so
        pod.process.send_signal(signal.SIGSTOP)
    if step != "its instances are told":
        marks["may-end"].touch()
        until(marks["ended"].exists)
    if step == "it has moved":
        until(lambda: moves(pod)["done"] > done)
    if step == "it starts again":
        until(marks["again"].exists)
    killed = launch.pid if who == "poprun" else process_of(launch, who)
    if killed:  # else there is none between two starts
        with contextlib.suppress(ProcessLookupError):
            os.kill(killed, signal.SIGKILL)
    pod.process.send_signal(signal.SIGCONT)
    if step != "it starts again":
        until(lambda: launch.poll() is not None or marks["again"].exists())
    if step != "it starts again" or not killed:
        launch.terminate()
    launch.communicate(timeout=300)


@pytest.mark.soak
def test_a_move_stands_in_the_timeline(pod16: Pod, start: Start) -> None:
    path = pod16.folder / "trace"
    words = (f"--trace={path}", "--launcher=local", "--move-signal=USR1", "sh", "-c", TRAPS)
    launch = start(*PATIENT, *words)
    asked(pod16, launch)
    (pod16.folder / "may-end").touch()
    out, _ = launch.communicate(timeout=300)
    assert launch.returncode == 0, out
    found = read_timeline(str(path))
    phases = [piece for piece in found.of("launch") if piece.depth == 1]
    assert [piece.name for piece in phases] == ["run", "move", "start 2", "giving back"]
    told = phases[1].annotations
    assert told["left"]
    assert told["now"]
    assert told["left"] != told["now"]
    assert [i.name for i in found.instants].count("asked to move") == 1
    account_of = account(found)
    assert (account_of.moves, account_of.starts) == (1, 2)
    said = pod16.good("podwright", "trace", str(path), "--html", str(pod16.folder / "page.html"))
    assert "All instances were started 2 times, 1 of them after a move." in said
    assert re.search(rf"{told['left']} +\| {told['now']}", said), said
    page = (pod16.folder / "page.html").read_text()
    assert f"left: {told['left']}" in page
    assert f"now: {told['now']}" in page
    is_empty(pod16)
