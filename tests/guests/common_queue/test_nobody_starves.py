"""Nobody starves, whatever the guests submit: the server's queue on virtual time, and its judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from podwright.guests.shared import JobNaming, Waits
from tests.guests.common_queue.histories import as_one, broken_promises, history
from tests.guests.common_queue.simulated_pod import Job, SimulatedPod

DAY = 86400.0
#: Histories of one test: a failure names its seed.
BATCH = 20


def array(name: str, count: int, size: int, seconds: float, **more: float) -> list[Job]:
    """The tasks of a job array. Their ends are spread."""
    return [
        Job(f"{name}_{task}", size, seconds + task % 16, task_of=name, **more)  # type: ignore[arg-type]
        for task in range(count)
    ]


def played(pod: SimulatedPod, until: float = DAY) -> SimulatedPod:
    pod.run(until)
    return pod


# -- the faults that were seen ---------------------------------------------------------------


def beside_an_array(other: str, name_of: Callable[[Job], str] = lambda job: job.name) -> Job:
    large = Job("large", 16, 50.0, submit=60.0)
    jobs = {"slurm": array("array", 1500, 4, 20.0), other: [large]}
    played(SimulatedPod(64, jobs, room_s=20.0, name_of=name_of), 1140.0)
    return large


@pytest.mark.parametrize("other", ["kubernetes a", "people"])
def test_a_job_array_starves_nobody(other: str) -> None:
    """The large one is due at 80 s, and by then the place of at most one task comes first."""
    assert 0 < beside_an_array(other).started <= 80.0 + 2 * 36.0 + 30.0


def test_one_name_for_all_tasks_of_an_array_would_starve_the_others() -> None:
    assert beside_an_array("kubernetes a", lambda job: job.task_of or job.name).started < 0


class Forgetful(JobNaming):
    """Names whatever comes first now, and forgets what waited before."""

    def update(self, waiting: Collection[Waits], now: float, **more: Any) -> None:
        first = sorted(waiting, key=lambda job: -job.priority)[:1]
        if {named.job.title for named in self.named.values()} != {job.title for job in first}:
            self.named.clear()
            self._since.clear()
        super().update([job._replace(since=None) for job in first], now, **more)


def with_urgent_ones(kind: str, gap: float, naming: type[JobNaming] = JobNaming) -> Job:
    """A stream of small jobs fills the pod. A large job waits, and urgent ones come before it."""
    large = Job("large", 16, 50.0, submit=60.0)
    urgent = [Job(f"urgent-{n}", 4, 60.0, 100.0 + gap * n, priority=9) for n in range(70)]
    small = [Job(f"small-{n}", 4, 100.0 + 7 * (n % 16)) for n in range(2000)]
    pod = SimulatedPod(64, {"slurm": small, kind: [large, *urgent]}, room_s=300.0)
    pod.guests[1].naming = naming(300.0)
    played(pod, 4 * 3600.0)
    return large


@pytest.mark.parametrize("gap", [200.0, 400.0])
@pytest.mark.parametrize("kind", ["kubernetes a", "slurm b"])
def test_urgent_jobs_of_the_same_guest_do_not_starve_an_old_one(kind: str, gap: float) -> None:
    longest = 100.0 + 7 * 15
    assert 0 < with_urgent_ones(kind, gap).started <= 60.0 + 300.0 + 3 * longest + 30.0


def test_a_guest_that_forgets_its_old_job_would_starve_it() -> None:
    assert not 0 < with_urgent_ones("kubernetes a", 200.0, Forgetful).started <= 3 * 3600.0


def test_two_jobs_whose_order_flips_both_start() -> None:
    pair = [Job("a", 16, 50.0, 60.0, priority=1), Job("b", 16, 50.0, 60.0, priority=2)]
    small = [Job(f"small-{n}", 4, 100.0 + 7 * (n % 16)) for n in range(800)]
    pod = SimulatedPod(64, {"slurm": small, "kubernetes a": pair}, room_s=100.0)
    for turn in range(50):
        for place, job in enumerate(pair):
            change = (turn + place) % 2
            pod.at(60.0 * turn, partial(pod.set_priority, pod.guests[1], job, change))
    played(pod, 3000.0)
    assert all(0 < job.started <= 1500.0 for job in pair)


def test_a_small_old_job_holds_up_an_urgent_one_for_one_place() -> None:
    old = [Job(f"old-{n}", 4, 50.0, 10.0) for n in range(40)]
    urgent = Job("urgent", 64, 50.0, 400.0, priority=9)
    small = [Job(f"small-{n}", 4, 100.0 + 7 * (n % 16)) for n in range(800)]
    pod = SimulatedPod(64, {"slurm": small, "kubernetes a": [*old, urgent]}, room_s=60.0)
    played(pod, 3000.0)
    longest = 100.0 + 7 * 15
    assert 0 < urgent.started <= 400.0 + 60.0 + 60.0 + 3 * longest + 30.0


def test_announced_ends_admit_nothing_onto_a_kept_place() -> None:
    """Two of 32 announce an hour and end after 60 and 120 s; a 64 has its place meanwhile."""
    first = [Job("a1", 32, 60.0, limit=3600.0), Job("a2", 32, 120.0, limit=3600.0)]
    later = [
        Job("b1", 32, 3000.0, 70.0, limit=3000.0),
        Job("b2", 32, 2500.0, 130.0, limit=2500.0),
    ]
    whole = Job("whole", 64, 50.0, submit=5.0)
    pod = SimulatedPod(64, {"people": [*first, *later], "slurm": [whole]}, room_s=20.0)
    played(pod)
    assert 120.0 <= whole.started <= 150.0
    assert not broken_promises(pod)


def test_what_a_guest_has_running_does_not_put_its_due_job_back() -> None:
    """Slurm holds 40 of 64 for two hours and has a job of 8, beside a stream of others' 8s."""
    running = [Job("r1", 32, 7200.0), Job("r2", 8, 7200.0)]
    waiting = Job("waiting", 8, 60.0, submit=30.0)
    stream = [Job(f"s-{n}", 8, 100.0 + 9 * (n % 3), submit=1.0) for n in range(400)]
    pod = SimulatedPod(64, {"slurm": [*running, waiting], "kubernetes a": stream}, room_s=60.0)
    played(pod, 7300.0)
    assert 0 < waiting.started <= 30.0 + 60.0 + 3 * 118.0 + 30.0


# -- shares ----------------------------------------------------------------------------------


def scripts(name: str, count: int, size: int, seconds: float, runs: int) -> list[Job]:
    """Scripts that each submit a job, wait for it, and submit the next."""
    jobs: list[Job] = []
    for script in range(count):
        chain = [Job(f"{name}-{script}.{run}", size, seconds + script) for run in range(runs)]
        for job, then in pairwise(chain):
            job.then = then
        jobs += chain
    return jobs


@pytest.mark.parametrize("looping", [2, 8])
@pytest.mark.parametrize("size", [4, 8, 16])
def test_shares_of_an_hour_are_three_to_one_within_one_largest_job(size: int, looping: int) -> None:
    """People's scripts have no request in the queue for a moment between two jobs."""
    seconds, hour = 100.0, 3600.0
    people = scripts("people", looping, size, seconds, 200)
    slurm = [Job(f"s-{n}", size, seconds + n % 7) for n in range(1200)]
    pod = SimulatedPod(64, {"people": people, "slurm": slurm}, weights={"slurm": 3.0}, room_s=60.0)
    played(pod, 600.0)
    had = [device_seconds(pod, guest) for guest in (0, 1)]
    pod.run_on(600.0 + hour)
    got = [device_seconds(pod, guest) - had[guest] for guest in (0, 1)]
    largest = 16 * (seconds + 7)
    assert got[0] <= sum(got) / 4 + largest
    if looping * size > 64 / 4:  # they always want more than their share
        assert got[0] >= sum(got) / 4 - 3 * largest  # what is kept for them counts as had
    assert sum(got) >= 0.98 * 64 * hour


def device_seconds(pod: SimulatedPod, guest: int) -> float:
    """What the jobs of a guest have had so far."""
    return sum(
        job.size * ((job.ended if job.ended >= 0 else pod.now) - job.started)
        for job in pod.guests[guest].jobs
        if job.started >= 0
    )


# -- random histories ------------------------------------------------------------------------


def check_histories(first_seed: int, count: int) -> None:
    for seed in range(first_seed, first_seed + count):
        pod = played(history(seed), 3 * DAY)
        assert not broken_promises(pod), f"seed {seed}: {broken_promises(pod)[:5]}"
        assert pod.idle <= 0.02 * 64 * max(3600.0, pod.last_end()), f"seed {seed}: {pod.idle:.0f}"


@pytest.mark.parametrize("first_seed", range(0, 300, BATCH))
def test_promises_are_kept_in_random_histories(first_seed: int) -> None:
    check_histories(first_seed, BATCH)


@pytest.mark.soak
@pytest.mark.parametrize("first_seed", range(1000, 11000, 500))
def test_promises_are_kept_in_random_histories_often(first_seed: int) -> None:
    check_histories(first_seed, 500)


def check_use(seeds: range) -> None:
    """The pod is used as if one scheduler had all jobs, in all histories of a day together. One of
    them says little: which jobs are left to fill a gap depends on every earlier start."""
    used = [0.0, 0.0]
    for seed in seeds:
        shared = history(seed, events=False, span=DAY, load=1.2)
        alone = SimulatedPod(64, as_one([guest.jobs for guest in shared.guests]), room_s=60.0)
        for place, pod in enumerate((shared, alone)):
            used[place] += played(pod, DAY / 2).used
    assert used[0] >= 0.97 * used[1], f"{seeds}: {used[0] / used[1]:.3f}"


def test_use_of_a_day_is_that_of_one_scheduler() -> None:
    check_use(range(2))


@pytest.mark.soak
def test_use_of_a_day_is_that_of_one_scheduler_often() -> None:
    check_use(range(100, 150))


def test_the_judge_sees_a_place_that_is_used_by_others() -> None:
    pod = SimulatedPod(64, {"slurm": [Job("a", 4, 10.0)], "kubernetes a": []}, room_s=60.0)
    pod._present_place = lambda: ("other of kubernetes a", (1 << 64) - 1, False)  # type: ignore[method-assign]
    pod.kept["other of kubernetes a"] = kept = pod.make_kept("other of kubernetes a", 0)
    assert math.isclose(kept.until(), 0.0)
    played(pod, 5.0)
    assert pod.on_kept
