"""Any of a launch's own processes may be killed or stopped, any number of them at a time.

The kernel or the remaining processes end what a killed process leaves. A stopped process keeps its
lease, and a requested end comes all the same. The instances ignore every signal that can be
ignored, and have started daemons that left their session. The soak run tries all sets of processes.
This test tries each one, each pair, all at once, and thirty sets from a seed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from podwright.hosts import HELD, Process, can_hold, descendants
from tests.launcher.conftest import Launcher, wait_until

SOAK = bool(os.environ.get("PODWRIGHT_SOAK"))
WATCHERS = ("poprun", "keeper", "guardian")
PARTS = (*WATCHERS, "mpirun", "wrappers", "one instance")
#: A user that may do nothing: nobody.
ORDINARY = 65534
#: Hears nothing, and leaves a daemon that hears nothing either.
DEAF = """\
trap '' TERM INT HUP QUIT USR1
(setsid sh -c 'trap "" TERM HUP; sleep 1000; :' >/dev/null 2>&1 &)
echo up
sleep 1000
:
"""
LINE = ("--num-replicas=2", "--num-instances=2", "--grace=1", "sh", "-c", DEAF)

needs_namespace = pytest.mark.skipif(
    can_hold()[0] != HELD, reason="only whoever may make a PID namespace without a user namespace"
)


def sets(parts: Sequence[str], draws: int = 30) -> list[tuple[str, ...]]:
    """Return all sets in the soak run; otherwise single parts, pairs, all, and some random ones."""
    every = [
        some for size in range(1, len(parts) + 1) for some in itertools.combinations(parts, size)
    ]
    if SOAK:
        return every
    few = [some for some in every if len(some) in (1, 2, len(parts))]
    rest = [some for some in every if some not in few]
    return few + random.Random(10).sample(rest, min(draws, len(rest)))


class Run:
    """One launch whose instances are up, and the pids of its parts."""

    def __init__(self, launcher: Launcher, *options: str) -> None:
        self._launcher = launcher
        self.process = launcher.start(*options, *LINE)

    def up(self) -> Run:
        """Wait until its instances are up."""
        assert self.process.stdout
        for _ in range(2):
            assert self.process.stdout.readline().endswith("up\n"), self.process.communicate()
        tree = self._launcher.tree(self.process)
        self.pids = {name: [pid] for name, pid in tree._asdict().items()}
        below = {p.pid: p.parent for p in descendants(tree.mpirun)}
        self.pids["wrappers"] = [pid for pid, parent in below.items() if parent == tree.mpirun]
        # A shell between each script and what its instance has started.
        wrappers = self.pids["wrappers"]
        self.pids["one instance"] = [p for p, parent in below.items() if parent == wrappers[0]]
        return self

    def signal(self, parts: Sequence[str], number: int) -> None:
        for pid in [pid for part in parts for pid in self.pids[part]]:
            with contextlib.suppress(ProcessLookupError):  # the kernel may have been faster
                os.kill(pid, number)


@pytest.fixture
def many(tmp_path: Path) -> Iterator[list[Launcher]]:
    """Start several launches at the same time."""
    made: list[Launcher] = []
    yield made
    for launcher in made:
        launcher.clear()


def _batches(wanted: Sequence[tuple[str, ...]], size: int = 13) -> list[list[tuple[str, ...]]]:
    return [list(wanted[at : at + size]) for at in range(0, len(wanted), size)]


def _launchers(folder: Path, count: int, user: int | None = None) -> list[Launcher]:
    found = []
    for at in range(count):
        place = folder / str(at)
        memory = place / "memory"
        memory.mkdir(parents=True)
        found.append(Launcher(place, memory, user))
    return found


@needs_namespace
@pytest.mark.outer
@pytest.mark.parametrize("batch", _batches(sets(PARTS)), ids=lambda b: "+".join(b[0]))
def test_any_set_that_is_killed(
    tmp_path: Path, many: list[Launcher], batch: list[tuple[str, ...]]
) -> None:
    """With the kernel's help nothing is left, even if no watcher is."""
    many += _launchers(tmp_path, len(batch))
    runs = [Run(launcher) for launcher in many]
    for run in runs:
        run.up()
    for run, parts in zip(runs, batch, strict=True):
        run.signal(parts, signal.SIGKILL)
    for launcher, run, parts in zip(many, runs, batch, strict=True):
        launcher.leaves_no_process()
        run.process.communicate(timeout=300)
        launcher.leaves_nothing()
        if not {"poprun", "keeper"} <= set(parts):
            assert launcher.calls() == ["Acquire", "Release"], parts


@pytest.mark.outer
def test_an_ordinary_user_has_the_kernels_help_too(many: list[Launcher]) -> None:
    """In a user namespace nothing is left, whichever of them are killed, even all."""
    batch = [(part,) for part in PARTS] + [WATCHERS, PARTS]
    with tempfile.TemporaryDirectory(prefix="podwright-test-", dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        many += _launchers(Path(folder), len(batch), ORDINARY)
        runs = [Run(launcher, "-v") for launcher in many]
        for run in runs:
            run.up()
        for run, parts in zip(runs, batch, strict=True):
            run.signal(parts, signal.SIGKILL)
        for launcher, run, parts in zip(many, runs, batch, strict=True):
            launcher.leaves_nothing()
            _, err = run.process.communicate(timeout=300)
            assert "a PID namespace in a user namespace: whatever is killed" in err, parts


@pytest.mark.outer
@pytest.mark.parametrize("batch", _batches(sets(PARTS)), ids=lambda b: "+".join(b[0]))
def test_any_set_that_leaves_a_watcher(
    tmp_path: Path, many: list[Launcher], batch: list[tuple[str, ...]]
) -> None:
    """Without the kernel's help, whichever of the three watchers is left ends everything."""
    batch = [parts for parts in batch if not set(WATCHERS) <= set(parts)]
    many += _launchers(tmp_path, len(batch))
    runs = [Run(launcher, "--pid-namespace=no") for launcher in many]
    for run in runs:
        run.up()
    for run, parts in zip(runs, batch, strict=True):
        run.signal(parts, signal.SIGKILL)
    for launcher, run, parts in zip(many, runs, batch, strict=True):
        launcher.leaves_nothing()
        run.process.communicate(timeout=300)
        if not {"poprun", "keeper"} <= set(parts):
            assert launcher.calls() == ["Acquire", "Release"], parts


@needs_namespace
@pytest.mark.outer
@pytest.mark.parametrize("batch", _batches(sets(PARTS)), ids=lambda b: "+".join(b[0]))
def test_any_set_that_is_stopped(
    tmp_path: Path, many: list[Launcher], batch: list[tuple[str, ...]]
) -> None:
    """Nothing ends and nothing is given back. A requested end comes all the same."""
    many += _launchers(tmp_path, len(batch))
    runs = [Run(launcher) for launcher in many]
    for run in runs:
        run.up()
    for run, parts in zip(runs, batch, strict=True):
        run.signal(parts, signal.SIGSTOP)
    for run, parts in zip(runs, batch, strict=True):
        assert run.process.poll() is None
        if "poprun" in parts:  # nobody hears; when it wakes, it ends what did not wake with it
            run.signal(["poprun"], signal.SIGCONT)
        run.process.terminate()
    for launcher, run, parts in zip(many, runs, batch, strict=True):
        run.process.communicate(timeout=300)
        assert run.process.returncode == 128 + signal.SIGTERM, parts
        launcher.leaves_nothing()
        assert launcher.calls() == ["Acquire", "Release"], parts


def test_a_poprun_that_is_stopped_keeps_its_lease(launcher: Launcher) -> None:
    run = Run(launcher).up()
    run.signal(["poprun"], signal.SIGSTOP)
    before = launcher.renewals()
    wait_until(lambda: launcher.renewals() >= before + 3)
    run.signal(["poprun"], signal.SIGCONT)
    run.process.terminate()
    run.process.communicate(timeout=300)
    assert run.process.returncode == 128 + signal.SIGTERM
    launcher.leaves_nothing()


def test_a_poprun_that_sleeps_too_long_learns_it_when_it_wakes(launcher: Launcher) -> None:
    """All of a launch is stopped, as by `kill -STOP -1`, and its lease ends meanwhile."""
    run = Run(launcher).up()
    everyone = [p.pid for p in (*descendants(run.process.pid),)] + [run.process.pid]
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    (launcher.folder / "lost").touch()
    for pid in everyone:
        os.kill(pid, signal.SIGCONT)
    _, err = run.process.communicate(timeout=300)
    assert run.process.returncode == 75, err
    assert "the lease on the partition is over: somebody else has it now" in err
    assert launcher.calls() == ["Acquire"]
    launcher.leaves_nothing()


def test_a_launch_suspended_for_an_hour_goes_on_while_its_lease_is_held(
    launcher: Launcher,
) -> None:
    """As with `scontrol suspend`, the job's lease decides, so nothing was fenced."""
    slept = launcher.folder / "slept"
    program = f"while :; do test -e {slept} && echo after || echo before; sleep 0.05; done"
    process = launcher.start("--num-replicas=2", "--num-instances=2", "sh", "-c", program)
    assert process.stdout
    assert "before" in process.stdout.readline()
    keeper = launcher.tree(process).keeper
    os.kill(keeper, signal.SIGSTOP)  # it wakes last, and renews then
    slept.touch()
    while "after" not in process.stdout.readline():
        assert process.poll() is None
    os.kill(keeper, signal.SIGCONT)
    before = launcher.renewals()
    wait_until(lambda: launcher.renewals() >= before + 2 or process.poll() is not None)
    process.terminate()
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM, err
    launcher.leaves_nothing()
    assert launcher.calls() == ["Acquire", "Release"]


def test_names_that_are_typed_hit_one_watcher_alone(launcher: Launcher) -> None:
    """`pkill -9 poprun` matches the name of a process, fifteen letters at most."""
    run = Run(launcher).up()
    names = [Path(f"/proc/{run.pids[who][0]}/comm").read_text().strip() for who in WATCHERS]
    assert names[1:] == ["podwright-keep", "podwright-guard"]
    assert len(set(names)) == 3
    run.process.terminate()
    run.process.communicate(timeout=300)


def none_runs(below: Sequence[Process]) -> bool:
    """Return whether all these processes are stopped.

    A shell that starts a program by vfork waits in the kernel, in state D, until its child executes
    the program. If the child is stopped before that, the shell stays in D.
    """
    above_stopped = {p.parent for p in below if p.state == "T"}
    return bool(below) and all(
        p.state == "T" or (p.state == "D" and p.pid in above_stopped) for p in below
    )


def test_ctrl_z_stops_the_instances_and_fg_goes_on(launcher: Launcher) -> None:
    """This runs in a terminal of its own, under a shell with job control."""
    program = "i=0; while :; do i=$((i + 1)); echo $i >>count; sleep 0.05; done"
    words = ("--num-replicas=2", "--num-instances=2", "sh", "-c", program)
    process = launcher.start(*words)
    count = launcher.cwd / "count"
    wait_until(lambda: count.exists() and count.read_text().split().count("1") == 2)
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: _state(process.pid) == "T")
    mpirun = launcher.tree(process).mpirun
    # The guardian stops them, and poprun does not wait for it.
    wait_until(lambda: none_runs([p for p in descendants(mpirun) if p.parent != mpirun]))
    size = count.stat().st_size
    before = launcher.renewals()
    wait_until(lambda: launcher.renewals() > before)
    assert count.stat().st_size == size
    process.send_signal(signal.SIGCONT)
    wait_until(lambda: count.stat().st_size > size)
    process.terminate()
    process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGTERM
    launcher.leaves_nothing()


def test_ctrl_z_before_mpirun_has_started_instances_stops_the_launch(launcher: Launcher) -> None:
    """mpirun is stopped with poprun, so no instance begins meanwhile. `fg` continues."""
    binaries, begin, ran = launcher.folder / "bin", launcher.folder / "begin", launcher.cwd / "ran"
    binaries.mkdir()
    fake = binaries / "mpirun"
    fake.write_text(
        f"#!/bin/sh\nwhile [ ! -e {begin} ]; do sleep 0.01; done\n"
        f'while [ "$1" != /bin/sh ]; do shift; done\n"$1" "$2" 0 sh -c "echo >{ran}"\n'
    )
    fake.chmod(0o755)
    path = f"{binaries}:{os.environ['PATH']}"
    process = launcher.start("-v", "--num-replicas=1", "true", PATH=path)
    assert process.stderr
    while "Waiting for mpirun" not in process.stderr.readline():
        assert process.poll() is None
    mpirun = launcher.tree(process).mpirun
    process.send_signal(signal.SIGTSTP)
    wait_until(lambda: _state(process.pid) == "T")
    wait_until(lambda: none_runs(living_of(process.pid, mpirun)))
    begin.touch()
    assert not ran.exists()
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert ran.exists()
    launcher.leaves_nothing()


def living_of(poprun: int, mpirun: int) -> list[Process]:
    """Return mpirun and its children, without those that have ended and that it has not awaited."""
    return [p for p in descendants(poprun) if mpirun in (p.pid, p.parent) and p.state != "Z"]


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
