"""All sets of a launch's processes are killed or stopped, in virtual time; the remaining ones end
the rest.

The keeper's and guardians' own code runs over a kernel of a few lines, which has parents,
subreapers, PID namespaces and stopped processes. What poprun and a relay do when a watcher is gone
is written here as briefly as in docs/design/house.md. Instances ignore every signal that can be
ignored, and each has a daemon. The real processes are tested in test_killed.py, and in
tests/outer/test_hosts_killed.py.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, cast

import pytest

from podwright.hosts import Process
from podwright.launcher.hosts import _host_sweep, _poprun_liveness
from podwright.launcher.watchers import _guardian, _lease_keeper
from podwright.launcher.watchers._guardian import END, ENDED, ORPHAN_GRACE_S, Ending, _Guardian
from podwright.launcher.watchers._lease_keeper import CLEARED, FREE, HOLD, HOSTS, _Keeper

LIMIT = 15.0
TICK = 0.1
HERE = ("poprun", "keeper", "guardian", "mpirun", "wrapper")
THERE = ("relay", "far guardian", "daemon", "far wrapper", "ssh")
INSTANCES = ("instance", "its daemon", "far instance", "far daemon of it")
#: Who adopts what its descendants leave behind.
SUBREAPERS = ("poprun", "keeper", "guardian", "relay", "far guardian")
PARENTS = {
    "poprun": "",
    "ssh": "poprun",
    "keeper": "poprun",
    "guardian": "keeper",
    "mpirun": "guardian",
    "wrapper": "mpirun",
    "instance": "wrapper",
    "its daemon": "guardian",
    "relay": "",
    "far guardian": "relay",
    "daemon": "far guardian",
    "far wrapper": "daemon",
    "far instance": "far wrapper",
    "far daemon of it": "far guardian",
}
PIDS = {name: at for at, name in enumerate(PARENTS, 100)}
NAMES = {pid: name for name, pid in PIDS.items()}


class Line:
    """One end of a connection in memory; closed when the other side is gone."""

    def __init__(self, kernel: Kernel, peer: str) -> None:
        self.kernel, self.peer = kernel, peer
        self.box: list[tuple[Any, ...]] = []
        self.other: Line = self
        self.handle = -1

    @property
    def closed(self) -> bool:
        return not self.kernel.alive(self.peer)

    def send(self, *message: Any) -> None:
        self.other.box.append(message)

    def receive(self) -> list[tuple[Any, ...]]:
        said, self.box[:] = list(self.box), []
        return said


def lines(kernel: Kernel, one: str, other: str) -> tuple[Line, Line]:
    """Return the end of `one`, and that of `other`."""
    ours, theirs = Line(kernel, other), Line(kernel, one)
    ours.other, theirs.other = theirs, ours
    return ours, theirs


class Folder:
    """The files of a run on disk."""

    def __init__(self) -> None:
        self.there = True
        self.name, self.group = "run", ""

    def remove(self) -> None:
        self.there = False


class Kernel:
    """Processes by name. held: whether guardians are the first processes of PID namespaces."""

    def __init__(self, held: bool) -> None:
        self.now, self.held, self.acting = 0.0, held, ""
        self.parents = dict(PARENTS)
        self.states = dict.fromkeys(PARENTS, "S")
        self.unseen: list[str] = []

    def alive(self, name: str) -> bool:
        return name in self.states

    def runs(self, name: str) -> bool:
        return self.states.get(name) == "S"

    def signal(self, name: str, number: int) -> None:
        if name not in self.states:
            return
        if number == signal.SIGKILL:
            below = self.below(name) if self.held and name.endswith("guardian") else []
            for gone in (*below, name):
                self.end(gone)
        elif number == signal.SIGSTOP:
            self.states[name] = "T"
        elif number == signal.SIGCONT:
            self.states[name] = "S"

    def end(self, name: str) -> None:
        if self.states.pop(name, None) is None:
            return
        self.unseen.append(name)
        heir = self.parents[name]
        while heir and (heir not in SUBREAPERS or not self.alive(heir)):
            heir = self.parents[heir]
        for child, parent in self.parents.items():
            if parent == name and self.alive(child):
                self.parents[child] = heir

    def below(self, name: str) -> list[str]:
        line = [name]
        for parent in line:
            line += [n for n in self.states if self.parents[n] == parent and n not in line]
        return line[1:]

    # In place of podwright.hosts

    def descendants(self, root: int, *, spare: Collection[int] = ()) -> list[Process]:
        found = self.below(NAMES[root])
        return [Process(PIDS[n], PIDS.get(self.parents[n], 1), 0, self.states[n]) for n in found]

    def kill_all(self, victims: Iterable[Process], number: int) -> None:
        for victim in victims:
            self.signal(NAMES[victim.pid], number)

    def kill(self, pid: int, number: int) -> None:
        self.signal(NAMES[pid], number)

    def has_children(self) -> bool:
        return any(self.parents[name] == self.acting for name in self.states)

    def reap(self, ended: Callable[[int, int], None]) -> None:
        for name in [n for n in self.unseen if self.parents[n] == self.acting]:
            self.unseen.remove(name)
            ended(PIDS[name], -9)


class World:
    """A launch over two hosts, with all instances up."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.released: float | None = None
        self.folder, self.far_folder = Folder(), Folder()
        clock = lambda: kernel.now  # noqa: E731
        self.to_keeper, keepers = lines(kernel, "poprun", "keeper")
        self.to_guardian, guardians = lines(kernel, "poprun", "guardian")
        self.to_far, fars = lines(kernel, "relay", "far guardian")
        means = cast(Any, self)
        with acting(kernel, "keeper"):
            self.keeper = _Keeper(
                cast(Any, keepers), cast(Any, self.folder), PIDS["guardian"], means, clock
            )
        self.guardians = {
            "guardian": _watch(guardians, self.folder, "mpirun", clock),
            "far guardian": _watch(fars, self.far_folder, "", clock),
        }
        self.guardians["far guardian"].daemons.add(PIDS["daemon"])
        self.to_keeper.send(HOLD, "lease", "there", "id", 1)
        self.to_keeper.send(HOSTS, {"far": ["sweep"]}, 1.0)
        self.ending: dict[str, Ending] = {}
        self.ended: set[str] = set()
        self.heard = 0.0
        self.failed: float | None = None
        self.sweep_at: float | None = None

    # The keeper's means

    def open(self, holding: object) -> Any:
        return self

    def renew(self) -> None:
        return None

    well = True

    def cleared_hosts(self, sweepers: object, login_s: float) -> None:
        """Sweep at once. The time that a sweep takes counts all the same."""
        self.kernel.now += _host_sweep._PATIENCE if self.kernel.alive("relay") else 0.0
        self.sweep()

    def give_back(self, gone: object) -> None:
        self.release()

    def release(self) -> None:
        left = [name for name in INSTANCES if self.kernel.alive(name)]
        assert not left, f"given back while these run: {left}"
        self.released = self.kernel.now

    def sweep(self) -> None:
        for name in ("far guardian", "relay", *THERE, *INSTANCES[2:]):
            if name != "ssh":
                self.kernel.signal(name, signal.SIGKILL)
        self.far_folder.remove()

    # One turn of each

    def turn(self) -> None:
        for name in ("poprun", "keeper", "relay", "guardian", "far guardian"):
            if self.kernel.runs(name):
                with acting(self.kernel, name):
                    getattr(self, f"_{name.split()[-1]}")(name)

    def _guardian(self, name: str) -> None:
        watcher = self.guardians[name]
        leash = "keeper" if name == "guardian" else "relay"
        watcher.turn(heard=True, cut=not self.kernel.alive(leash))
        if watcher.finished:
            self.kernel.end(name)

    def _keeper(self, name: str) -> None:
        if self.keeper.turn(heard=True):
            self.kernel.end(name)

    def _relay(self, name: str) -> None:
        """Act as a relay: its connection closes with ssh or poprun, and is silent when either is
        stopped.
        """
        kernel = self.kernel
        if kernel.runs("ssh") and kernel.runs("poprun"):
            self.heard = kernel.now
        cut = not (kernel.alive("ssh") and kernel.alive("poprun"))
        over = cut or kernel.now - self.heard > _poprun_liveness.SILENCE or self.failed is not None
        if over and name not in self.ended:
            self.ended.add(name)
            self.to_far.send(END, 0.0, ORPHAN_GRACE_S, False)
        self._end(name, ("far guardian",), self.far_folder)

    def _end(self, name: str, others: Collection[str], folder: Folder) -> bool:
        """End what is left after the other watchers are gone. Returns whether that is over."""
        if any(map(self.kernel.alive, others)):
            return False
        clock = lambda: self.kernel.now  # noqa: E731
        ending = self.ending.setdefault(
            name, Ending(PIDS[name], 0.0, self.grace, spared_pids=[], clock=clock)
        )
        if not ending.step():
            return False
        folder.remove()
        if name != "poprun":
            self.kernel.end(name)
        return True

    def _poprun(self, name: str) -> None:
        """Act as poprun: any death ends everything. At last it sweeps, gives back and exits."""
        kernel = self.kernel
        if self.failed is None:
            if all(kernel.alive(part) for part in (*HERE, *THERE)) and not self.asked:
                return
            self.failed = kernel.now
            self.to_guardian.send(END, 0.0, ORPHAN_GRACE_S, False)
            self.to_keeper.send(END, 0.0, ORPHAN_GRACE_S)
        late = ORPHAN_GRACE_S + _guardian.MPIRUN_END_WAIT_S + 2 * _lease_keeper.SLACK
        if kernel.now - self.failed > late:
            self.grace = 0.0
            for other in ("guardian", "keeper"):
                kernel.signal(other, signal.SIGKILL)
        said = {
            message[0] for line in (self.to_guardian, self.to_keeper) for message in line.receive()
        }
        self.ended |= said
        alone = self._end(name, ("guardian", "keeper"), self.folder)
        here = alone or ENDED in self.ended or (CLEARED in self.ended and self.to_guardian.closed)
        if not here:
            return
        there = kernel.alive("relay") or any(map(kernel.alive, INSTANCES[2:]))
        if there and kernel.now - self.failed < _host_sweep._PATIENCE:
            return
        self.sweep()
        self.folder.remove()
        self.release()
        self.to_keeper.send(FREE)
        kernel.signal("keeper", signal.SIGCONT)
        kernel.end("ssh")
        kernel.end(name)

    asked = False
    grace = ORPHAN_GRACE_S


def _watch(line: Line, folder: Folder, engine: str, clock: Callable[[], float]) -> _Guardian:
    watcher = _Guardian(cast(Any, line), cast(Any, folder), -1, _guardian.spawn, -1, clock)
    watcher.engine = PIDS[engine] if engine else 0
    return watcher


class acting:
    """Mark the process that acts at present."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel, self.name = kernel, name

    def __enter__(self) -> None:
        self.kernel.acting = self.name

    def __exit__(self, *_: object) -> None:
        self.kernel.acting = ""


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], World]:
    """Makes worlds. The code under test sees the last one."""

    def made(held: bool) -> World:
        kernel = Kernel(held)
        for module in (_guardian, _lease_keeper):
            monkeypatch.setattr(module, "reap", kernel.reap)
        monkeypatch.setattr(_guardian, "descendants", kernel.descendants)
        monkeypatch.setattr(_guardian, "kill_all", kernel.kill_all)
        monkeypatch.setattr(_guardian, "has_children", kernel.has_children)
        monkeypatch.setattr(_guardian, "is_script", lambda pid: False)
        monkeypatch.setattr(_guardian, "is_daemon", lambda process: process.pid == PIDS["daemon"])
        monkeypatch.setattr(os, "getpid", lambda: PIDS[kernel.acting])
        monkeypatch.setattr(os, "kill", kernel.kill)
        return World(kernel)

    return made


def sets(parts: Collection[str]) -> Iterator[tuple[str, ...]]:
    for size in range(1, len(parts) + 1):
        yield from itertools.combinations(parts, size)


@pytest.mark.parametrize("held", [True, False], ids=["held", "not held"])
def test_any_set_that_is_killed(make: Callable[[bool], World], held: bool) -> None:
    longest = 0.0
    for killed in sets((*HERE, *THERE)):
        world = make(held)
        kernel = world.kernel
        for name in killed:
            kernel.signal(name, signal.SIGKILL)
        watched = {
            "here": held or not {"poprun", "keeper", "guardian"} <= {*killed},
            "there": held
            or not {"relay", "far guardian"} <= {*killed}
            or not {"poprun", "keeper"} <= {*killed},
        }
        wanted = [*INSTANCES[:2]] * watched["here"] + [*INSTANCES[2:]] * watched["there"]
        while any(map(kernel.alive, wanted)):
            assert kernel.now <= LIMIT, (killed, [n for n in wanted if kernel.alive(n)])
            world.turn()
            kernel.now += TICK
        longest = max(longest, kernel.now)
        until = kernel.now + 30.0
        while kernel.now < until and any(map(kernel.alive, SUBREAPERS)):
            world.turn()
            kernel.now += TICK
        assert (world.released is None) == ({"poprun", "keeper"} <= {*killed}), killed
        if world.released is not None:
            assert not world.folder.there, killed
            assert not world.far_folder.there, killed
    assert 0 < longest <= LIMIT


@pytest.mark.parametrize("held", [True, False], ids=["held", "not held"])
def test_any_set_that_is_stopped(make: Callable[[bool], World], held: bool) -> None:
    """Nothing is given back while an instance is left, and a requested end comes all the same."""
    for stopped in sets((*HERE, *THERE)):
        if "poprun" in stopped:
            continue  # it is a person's to wake
        world = make(held)
        kernel = world.kernel
        for name in stopped:
            kernel.signal(name, signal.SIGSTOP)
        world.asked = True
        while kernel.alive("poprun"):
            assert kernel.now < 60.0, stopped
            world.turn()
            kernel.now += TICK
        assert world.released is not None, stopped


@pytest.mark.parametrize("held", [True, False], ids=["held", "not held"])
def test_watchers_of_which_some_are_killed_and_others_stopped_leave_nothing(
    make: Callable[[bool], World], held: bool
) -> None:
    """One running watcher is enough, whatever has become of the other two."""
    watchers = ("poprun", "keeper", "guardian")
    for fates in itertools.product("SKT", repeat=3):
        if "K" not in fates or "S" not in fates:
            continue
        world = make(held)
        kernel = world.kernel
        for name, fate in zip(watchers, fates, strict=True):
            if fate != "S":
                kernel.signal(name, signal.SIGKILL if fate == "K" else signal.SIGSTOP)
        while any(map(kernel.alive, INSTANCES[:2])):
            assert kernel.now <= LIMIT, fates
            world.turn()
            kernel.now += TICK
