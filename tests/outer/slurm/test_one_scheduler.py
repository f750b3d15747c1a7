"""Slurm decides who runs; waiting holds nothing; what Slurm starts, fits."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.outer.lab import ALICE, Job, Release, poll
from tests.outer.slurm.looking import Looking
from tests.outer.slurm.native import NativeLab

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
SOAK = os.environ.get("PODWRIGHT_SOAK") == "1"
WAITING = 300 if SOAK else 60
#: Seconds for which jobs come; the share of the pod that they ask for; how long one takes.
LOAD_S = 300 if SOAK else 8
SHARE = 0.85
LENGTH_S = 15 if SOAK else 5
FRAGMENTS = 64 if SOAK else 16


@pytest.fixture(scope="module")
def large(release: Release) -> Iterator[NativeLab]:
    with NativeLab(preset="pod256", nodes=4, cpus=128, release=release) as made:
        yield made


@pytest.fixture
def lab(large: NativeLab) -> Iterator[NativeLab]:
    yield large
    left = [str(job.id) for job in large.jobs().values() if not job.over]
    if left:
        large.run("scancel", *left)
    large.wait("an empty cluster", lambda jobs: all(job.over for job in jobs.values()))
    large.wait_free()


def loop(lab: NativeLab, count: int, *options: str, script: str = "sleep 600") -> None:
    """Submits one by one from a single shell, as a user's loop does."""
    lab.write("out/one.sh", f"#!/bin/sh\n{script}\n")
    words = " ".join(options)
    line = f"i=0; while [ $i -lt {count} ]; do sbatch -Q -n1 -o /dev/null {words} one.sh >&2"
    done = lab.run("sh", "-c", f"{line} || exit 1; i=$((i+1)); done", user=ALICE, timeout=300)
    assert done.returncode == 0, done.stderr[-1000:]


def restarts(jobs: dict[int, Job]) -> int:
    return sum(int(job.fields["Restarts"]) for job in jobs.values())


def test_a_job_that_waits_for_nodes_holds_no_devices_and_small_ones_pass(lab: NativeLab) -> None:
    busy = lab.batch("sleep 36000", "-N3", "--exclusive", "-t600")
    lab.wait_state(busy, "RUNNING")
    whole = lab.batch("true", "-N4", "-n4", "--exclusive", "-t60", "--ipus=256")
    poll("Slurm looked at it", lambda: lab.job(whole).reason in ("Resources", "Priority"))
    assert lab.held() == 0
    small = lab.batch("true", "-N1", "-n1", "-t1", "--ipus=4")
    lab.wait_over(small, seconds=15)
    assert lab.job(whole).state == "PENDING"
    assert lab.held() == 0
    lab.ok("scancel", str(busy))
    assert lab.wait_over(whole)[whole].state == "COMPLETED"


def logged(lab: NativeLab, words: str) -> bool:
    return words in lab.service_log()


def test_heterogeneous_jobs_are_offered_no_devices_while_nodes_are_busy(lab: NativeLab) -> None:
    busy = lab.batch("sleep 36000", "-N4", "--exclusive", "-t600")
    lab.wait_state(busy, "RUNNING")
    part = ["-N1", "-n2", "--ipus=128"]
    both = [lab.batch("true", *part, ":", *part) for _ in range(2)]
    for job in both:
        words = f"job {job} is not offered devices: free CPUs in main: 0, needed: 4"
        poll(f"job {job} was looked at", partial(logged, lab, words))
    assert lab.held() == 0
    assert not any(f"job {job} may start" in lab.service_log() for job in both)
    lab.ok("scancel", str(busy))
    jobs = lab.wait_over(*both, *(job + 1 for job in both))
    assert {jobs[job].state for job in both} == {"COMPLETED"}
    assert restarts(jobs) == 0


def test_many_waiting_jobs_do_not_delay_one_that_fits(lab: NativeLab) -> None:
    for size in (128, 64, 32, 16):
        lab.batch("sleep 600", f"-n{max(1, size // 64)}", f"--ipus={size}")
    lab.wait("four running", lambda now: sum(j.state == "RUNNING" for j in now.values()) == 4)
    loop(lab, WAITING, "--ipus=32")
    last = lab.batch("true", "-n1", "--ipus=4")
    lab.wait_over(last, seconds=20)
    running = [job for job in lab.jobs().values() if job.state == "RUNNING"]
    assert len(running) == 4, "a job of 32 started where 16 are free"


def test_a_fragmented_pod_starts_only_what_fits(lab: NativeLab) -> None:
    count = 32
    loop(lab, count, "--ipus=8")
    lab.wait("all running", lambda now: sum(j.state == "RUNNING" for j in now.values()) == count)
    at = {
        name: min(ref.domain * 64 + ref.offset for gcd in one.gcds for ref in gcd)
        for name, one in lab.partitions().items()
    }
    order = [name.removeprefix("slurm_") for name in sorted(at, key=lambda name: at[name])]
    lab.ok("scancel", *order[::2])
    poll("half the pod", lambda: lab.held() == 128)
    sixteen = lab.batch("true", "-n1", "--ipus=16")
    poll("Slurm looked at it", lambda: lab.job(sixteen).reason == "Licenses")
    assert lab.job(sixteen).state == "PENDING"
    lab.ok("scancel", order[1])
    lab.wait_over(sixteen, seconds=15)
    assert lab.job(sixteen).fields["Restarts"] == "0"


class Idle(Looking):
    """Looks all the while: devices held for jobs that wait, and how full the pod is."""

    def __init__(self, lab: NativeLab) -> None:
        super().__init__()
        self.waiting = self.held = self.seconds = 0.0
        self._lab = lab
        self._last = time.monotonic()

    def look(self) -> None:
        # In this order: what holds devices by now has been started, unless it waits.
        held = self._lab.state()["pods"]["pod256"]["held"]
        said = self._lab.ok("squeue", "-h", "-r", "-t", "PENDING", "-o", "%A").split()
        passed, self._last = time.monotonic() - self._last, time.monotonic()
        self.seconds += passed
        self.held += passed * sum(held.values())
        self.waiting += passed * sum(held[job] for job in said if job in held)


def test_a_random_load_wastes_nothing(lab: NativeLab, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs of all sizes come at random, as fast as they would fill 85 % of the pod. The first
    ones, small, fragment it."""
    rng = random.Random(7)
    before = lab.state()["figures"]
    submitted = []
    asked = 0.0

    def submit(size: int, seconds: float) -> None:
        options = ["-o", "/dev/null", f"-n{max(1, size // 64)}", f"--ipus={size}"]
        submitted.append(lab.batch(f"sleep {seconds:.2f}", *options))

    start = time.monotonic()
    with Idle(lab) as idle:
        for _ in range(FRAGMENTS):
            submit(rng.choice((1, 2, 4)), rng.uniform(0, LOAD_S / 2))
        came = time.monotonic()
        while time.monotonic() - came < LOAD_S:
            size = 1 << min(7, int(rng.expovariate(0.6)))
            seconds = rng.uniform(0.2, 1.8) * LENGTH_S
            submit(size, seconds)
            asked += size * seconds
            # If the machine is too slow for the pace, jobs queue later; the share is the same.
            while asked > SHARE * 256 * (time.monotonic() - came):
                time.sleep(0.02)
        jobs = lab.wait_over(*submitted, seconds=300 + LOAD_S)
    took = time.monotonic() - start
    figures = lab.state()["figures"]
    nodes = figures["waited_s"] - before["waited_s"]
    requeues = restarts({job: jobs[job] for job in submitted})
    with capsys.disabled():
        print(
            f"\n{len(submitted)} jobs of 1 to 128 devices in {took:.0f} s; asked for "
            f"{asked / 256 / LOAD_S:.0%} of the pod, it was {idle.held / idle.seconds / 256:.0%} "
            f"full; held idle by waiting jobs: node-seconds {nodes:.2f} of {4 * took:.0f}, "
            f"device-seconds {idle.waiting:.1f} of {256 * idle.seconds:.0f}; started without "
            f"shape {figures['waited'] - before['waited']}; requeues {requeues}"
        )
    assert {jobs[job].state for job in submitted} == {"COMPLETED"}
    assert requeues == 0
    assert nodes < 0.01 * 4 * took
    assert idle.waiting < 0.01 * 256 * idle.seconds
    assert figures["waited"] == before["waited"]
