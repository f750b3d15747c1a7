"""A mixed load under kill -9 of every daemon in turn: whatever starts holds exactly its devices.

Each start of a job says so in a file and goes on once it was looked at: is there a partition of its
size, for this start, while its process lives? Thus no start is missed, however short the job.
slurmctld that is killed forgets its last seconds: jobs that it no longer knows are counted apart.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from podwright.errors import PodwrightError
from podwright.wire import PartitionInfo
from tests.outer.lab import Job, LabError, Release, poll
from tests.outer.slurm.looking import Looking
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm, pytest.mark.soak]
SEED = int(os.environ.get("PODWRIGHT_SEED", "5"))
JOBS = int(os.environ.get("PODWRIGHT_JOBS", "900"))
DAEMONS = ("slurmctld", "service", "server")
#: $1: the job's name, $2: its devices, $3: seconds, $4: the folder of these files.
SCRIPT = """#!/bin/sh
me=$4/$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$$
echo "$1 $2 $$" >$me.new && mv $me.new $me.began
until test -e $me.seen; do sleep 0.1; done
sleep $3
srun -n1 -N1 true
"""


@dataclass(frozen=True)
class Start:
    """A start of a job, as its own process told it."""

    job: int
    restart: int
    name: str
    size: int
    pid: int

    @classmethod
    def read(cls, path: Path) -> Start:
        job, restart, _ = path.stem.split("-")
        name, size, pid = path.read_text().split()
        return cls(int(job), int(restart), name, int(size), int(pid))

    def lives(self) -> bool:
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
            return self.name.encode() in words
        except OSError:
            return False

    def is_held(self, found: PartitionInfo | None) -> bool:
        """Is it this start's partition?"""
        life = f"{self.job}/{self.restart}" if self.restart else f"{self.job}"
        return bool(
            found and found.size == self.size and found.job.startswith((f"{life},", f"{life} of "))
        )

    def is_known(self, job: Job | None) -> bool:
        """Is this start the one that slurmctld knows of?"""
        return bool(
            job
            and job.fields["JobName"] == self.name
            and int(job.fields["Restarts"]) == self.restart
        )


@dataclass
class Seen:
    starts: int = 0
    bare: list[Start] = field(default_factory=list)
    forgotten: list[Start] = field(default_factory=list)
    ended: int = 0  #: before they could be looked at: killed with their step


class Watch(Looking):
    """Looks at every start, and for devices in two partitions at once."""

    every = 0.05

    def __init__(self, lab: NativeLab, folder: Path) -> None:
        super().__init__()
        self.seen = Seen()
        self.twice: set[str] = set()
        self._lab, self._folder = lab, folder

    def look(self) -> None:
        # Where a daemon is down the next look asks again.
        with contextlib.suppress(PodwrightError, LabError):
            self._look()

    def _look(self) -> None:
        begun = [(path, Start.read(path)) for path in self._folder.glob("*.began")]
        held = self._lab.partitions()
        counted = Counter(
            (ref.domain, ref.offset) for one in held.values() for gcd in one.gcds for ref in gcd
        )
        self.twice |= {str(device) for device, count in counted.items() if count > 1}
        for path, start in begun:
            if not start.is_held(held.get(f"slurm_{start.job}")) and start.lives():
                job = self._lab.jobs().get(start.job)
                if not start.lives():
                    self.seen.ended += 1
                elif not start.is_known(job):
                    self.seen.forgotten.append(start)
                elif job and job.state == "RUNNING":
                    self.seen.bare.append(start)
                else:
                    self.seen.ended += 1  # on its way out
            self.seen.starts += 1
            path.with_suffix(".seen").touch()
            path.unlink()


class Load:
    """Jobs of all kinds, and what befalls them."""

    def __init__(self, lab: NativeLab, rng: random.Random, folder: Path) -> None:
        self.submitted = 0
        self._lab, self._rng, self._folder = lab, rng, folder
        self._names = itertools.count(1)

    def one(self) -> None:
        """Submits a job, or changes one."""
        kind = self._rng.choices(
            ("batch", "array", "het", "plain", "requeue", "cancel", "hold"),
            (60, 8, 8, 8, 8, 4, 4),
        )[0]
        # slurmctld may be away, or the job over.
        with contextlib.suppress(LabError):
            if kind in ("requeue", "cancel", "hold"):
                self._change(kind)
            else:
                self._submit(kind)

    def _submit(self, kind: str) -> None:
        rng, name = self._rng, f"m{next(self._names)}"
        size = 1 << min(5, int(rng.expovariate(0.6)))
        options = ["-J", name, "-o", "/dev/null"]
        if kind == "plain":
            self._lab.batch("sleep 1", *options)
        else:
            script = self._folder / f"{name}.sh"
            script.write_text(SCRIPT)
            script.chmod(0o755)
            body = f"exec {script} {name} {size} {rng.uniform(0, 3):.1f} {self._folder}"
            sizes = ["-n1", f"--ipus={size}"]
            if kind == "array":
                options.append("--array=1-3")
            elif kind == "het":
                sizes += [":", "-n1", f"--ipus={1 << rng.randrange(4)}"]
            self._lab.batch(body, *options, *sizes)
        self.submitted += 3 if kind == "array" else 1

    def _change(self, kind: str) -> None:
        living = [job for job in self._lab.jobs().values() if not job.over]
        if living:
            job = str(self._rng.choice(living).id)
            if kind == "hold":
                self._lab.run("scontrol", "hold", job)
                self._lab.run("scontrol", "release", job)
            else:
                self._lab.run(*(("scancel",) if kind == "cancel" else ("scontrol", kind)), job)


def kill(lab: NativeLab, who: str, rng: random.Random) -> None:
    """It dies, and is started again, at once or after a moment."""
    if who == "slurmctld":
        lab.kill_daemon(who)
    else:
        lab.end(who)
    time.sleep(rng.choice((0, rng.uniform(0, 2))))
    if who == "slurmctld":
        lab.start_daemon(who)
        poll("slurmctld", lambda: lab.run("scontrol", "ping").stdout.count("UP") == 1)
    elif who == "server":
        lab.start_server()
    else:
        lab.start_service()
        lab.wait_for_service()


def resume(lab: NativeLab) -> None:
    """A number given out again drains the node that still had a job of it (`Duplicate jobid`)."""
    for node in lab.nodes:
        lab.run("scontrol", "update", f"nodename={node}", "state=resume")


def released(lab: NativeLab) -> None:
    """What is held is let go: by Podwright, or by this test, and a kill came between."""
    for job in lab.jobs().values():
        if job.state == "PENDING" and job.fields["Priority"] == "0":
            lab.run("scontrol", "release", str(job.id))
            lab.run("scontrol", "update", f"jobid={job.id}", "starttime=now")


def asked_for(lab: NativeLab) -> dict[str, int]:
    """Requeues and holds that Podwright asked for, as it failed closed: its words, how many."""
    said = [line.partition(" WARNING ")[2] for line in lab.service_log().splitlines()]
    closed = [line for line in said if "Held: " in line or "ran without its devices" in line]
    return dict(Counter(re.sub(r"\d+", "N", line) for line in closed))


@pytest.fixture
def lab(release: Release) -> NativeLab:
    conf = {"KillWait": "1"}
    return NativeLab(nodes=4, cpus=64, conf=conf, release=release)


def test_a_mixed_load_under_kills_leaves_no_job_without_devices(
    lab: NativeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    told = loaded(lab, JOBS, DAEMONS)
    with capsys.disabled():
        print(f"\n{told.words}")
    assert not told.seen.bare
    assert not told.twice
    assert told.left == 0


def test_where_nothing_is_killed_podwright_requeues_nothing(
    lab: NativeLab, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nor holds it anything, whatever users requeue, hold and cancel."""
    told = loaded(lab, JOBS // 3, ())
    with capsys.disabled():
        print(f"\n{told.words}")
    assert not told.asked
    assert (told.seen.bare, told.seen.forgotten) == ([], [])
    assert not told.twice
    assert told.left == 0


@dataclass(frozen=True)
class Told:
    """What came of a load: starts, devices given twice, devices left, requeues that Podwright asked
    for, and all of it in words."""

    seen: Seen
    twice: set[str]
    left: int
    asked: dict[str, int]
    words: str


def loaded(lab: NativeLab, jobs: int, daemons: Sequence[str]) -> Told:
    """So many jobs, while these daemons are killed in turn; then all devices are free again."""
    rng = random.Random(SEED)
    killed: Counter[str] = Counter()
    with lab:
        folder = lab.folder / "out" / "starts"
        folder.mkdir()
        folder.chmod(0o1777)
        load, turn = Load(lab, rng, folder), itertools.cycle(daemons)
        with Watch(lab, folder) as watch:
            due = time.monotonic() + 3
            while load.submitted < jobs:
                load.one()
                time.sleep(rng.uniform(0, 0.3))
                if daemons and time.monotonic() > due:
                    who = next(turn)
                    kill(lab, who, rng)
                    killed[who] += 1
                    due = time.monotonic() + rng.uniform(0.2, 3)

            def over() -> bool:
                resume(lab)
                released(lab)
                time.sleep(1)
                return all(job.over for job in lab.jobs().values())

            poll("the end of all jobs", over, seconds=300)
        lab.wait_free(60)
        whole = lab.batch("true", "--ipus=64", "-o", "/dev/null")
        assert lab.wait_over(whole)[whole].state == "COMPLETED"
        lab.wait_free()
        states = Counter(job.state for job in lab.jobs().values())
        left, figures, seen = lab.held(), lab.state()["figures"], watch.seen
        asked = asked_for(lab)
    words = (
        f"{load.submitted} jobs, {seen.starts} starts, killed {dict(killed)}: without "
        f"partition {len(seen.bare)}, given twice {len(watch.twice)}, left {left}; ended "
        f"meanwhile {seen.ended}, forgotten by Slurm {len(seen.forgotten)}; {dict(states)}; "
        f"Podwright asked for: {asked or 0}; since its last start: {figures}"
    )
    return Told(seen, watch.twice, left, asked, words)
