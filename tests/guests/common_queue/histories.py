"""Random histories of one pod: what traces lack, such as arrays, priorities that change, announced
ends, holds, cancels, requeues, guests that go away and machines that fail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from random import Random

from tests.guests.common_queue.simulated_pod import Job, SimulatedPod

HOUR = 3600.0
SIZES = (1, 2, 4, 4, 8, 8, 16, 16, 32, 64)
KINDS = ("people", "slurm", "kubernetes a", "kubernetes b")


def jobs_of(random: Random, name: str, *, span: float) -> list[Job]:
    """Some 25 jobs of a guest: single ones, arrays, and scripts in a loop."""
    jobs: list[Job] = []
    while len(jobs) < 12 + random.randrange(24):
        submit, size = random.uniform(0, span), random.choice(SIZES)
        seconds = float(random.choice((random.randint(5, 120), random.randint(60, 900))))
        limit = random.choice((0.0, 0.0, seconds, seconds * random.uniform(1, 5)))
        priority = random.choice((0, 0, 0, 0, 5, 9))
        tasks = random.choice((1, 1, 1, 1, random.randint(3, 20)))
        group = f"{name}-{len(jobs)}"
        made = [
            Job(f"{group}_{task}", size, seconds, submit, priority, limit, task_of=group)
            for task in range(tasks)
        ]
        if tasks > 1 and random.random() < 0.3:
            for job, then in pairwise(made):
                job.then = then
        jobs += made
    return jobs


def history(
    seed: int, *, events: bool = True, span: float = HOUR, load: float = 0.0
) -> SimulatedPod:
    """A pod with two to four guests. events: also what happens to jobs, guests and machines. load:
    of the pod, that all guests together ask for in the first half of the span; 0: as it comes.
    """
    random = Random(seed)
    names = random.sample(KINDS, random.choice((2, 2, 3, 4)))
    jobs = {name: jobs_of(random, name, span=span / 2) for name in names}
    while load and sum(j.size * j.seconds for js in jobs.values() for j in js) < load * 32 * span:
        for name in names:
            jobs[name] += jobs_of(random, f"{name}-{len(jobs[name])}", span=span / 2)
    weights = {name: random.choice((1.0, 1.0, 3.0)) for name in names}
    pod = SimulatedPod(64, jobs, weights=weights, room_s=random.choice((20.0, 60.0, 300.0)))
    if events:
        plant(pod, random, span)
    return pod


def plant(pod: SimulatedPod, random: Random, span: float) -> None:
    """Let things happen to jobs, guests and machines."""

    def moment() -> float:
        return random.uniform(0, span * 0.75)

    for guest in pod.guests:
        for job in random.sample(guest.jobs, min(5, len(guest.jobs))):
            pod.at(moment(), partial(pod.set_priority, guest, job, random.randrange(12)))
        for job in random.sample(guest.jobs, min(2, len(guest.jobs))):
            pod.at(moment(), partial(pod.hold, guest, job, random.uniform(5, 300)))
        for job in random.sample(guest.jobs, min(2, len(guest.jobs))):
            pod.at(moment(), partial(pod.cancel, guest, job))
        for job in random.sample(guest.jobs, min(2, len(guest.jobs))):
            pod.at(moment(), partial(pod.requeue, job))
        if random.random() < 0.3:
            pod.at(moment(), partial(pod.go_away, guest, random.uniform(10, 240)))
    if random.random() < 0.3:
        machine, seconds = random.randrange(16), random.uniform(60, 600)
        pod.at(moment(), partial(pod.fail_machine, machine, seconds))


def broken_promises(pod: SimulatedPod) -> list[str]:
    """What a history that was played to its end shows to be broken, in words."""
    never = [
        f"{job.name} never ended"
        for guest in pod.guests
        for job in guest.jobs
        if job.ended < 0 and not job.gone
    ]
    return [
        *never,
        *(f"late: {text}" for text in pod.late),
        *(f"on a kept place: {text}" for text in pod.on_kept),
        *(f"out of turn: {text}" for text in pod.out_of_turn),
    ]


def as_one(jobs: Sequence[Sequence[Job]]) -> dict[str, list[Job]]:
    """The same jobs as those of one scheduler."""
    copies = {
        job.name: Job(job.name, job.size, job.seconds, job.submit, job.priority, job.limit)
        for guest_jobs in jobs
        for job in guest_jobs
    }
    for guest_jobs in jobs:
        for job in guest_jobs:
            copies[job.name].then = copies[job.then.name] if job.then else None
    return {"slurm": sorted(copies.values(), key=lambda job: job.submit)}
