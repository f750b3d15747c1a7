"""Nobody starves on a shared pod, and whoever waits gets his share."""

from __future__ import annotations

from random import Random

import pytest

from tests.controller.world import virtually
from tests.guests.common_queue.shared_pod import ROOM_S, Guest, Job, People, SharedPod, User

KINDS = {"people": People, "slurm": Guest, "kubernetes": Guest}


def stream(name: str, count: int, size: int = 4, seconds: float = 100.0) -> list[Job]:
    """Jobs enough to fill the pod for a long time. Their ends are spread, so that no block of 16
    is ever free by itself."""
    return [Job(f"{name}-{n}", size, seconds + 7 * (n % 16)) for n in range(count)]


def user(pod: SharedPod, name: str, jobs: list[Job]) -> User:
    made = KINDS[name](pod, name, jobs)
    pod.users.append(made)
    return made


@pytest.mark.parametrize(
    ("many", "one"),
    [(a, b) for a in KINDS for b in KINDS if a != b],
    ids=lambda pair: "-".join(pair) if isinstance(pair, tuple) else pair,
)
@virtually
async def test_a_stream_of_small_jobs_starves_no_large_one(many: str, one: str) -> None:
    pod = SharedPod()
    await pod.world.start()
    user(pod, many, stream(many, 200))
    large = Job(f"{one}-large", 16, 50.0, due=20.0)
    user(pod, one, [large])
    await pod.run(400.0)
    assert large.started > 0, "it never started"
    longest = 100.0 + 7 * 15
    assert large.started <= large.due + ROOM_S + longest + 30.0
    await pod.run(100.0)
    assert large.ended > 0
    await pod.world.stop()


@virtually
async def test_a_scheduler_that_is_stopped_loses_its_place_and_gets_another() -> None:
    pod = SharedPod()
    await pod.world.start()
    busy = user(pod, "kubernetes", stream("kubernetes", 200))
    large = Job("slurm-large", 16, 50.0, due=20.0)
    slurm = user(pod, "slurm", [large])
    while large.name not in pod.kept:
        await pod.run(2.0)
    slurm.stopped_until = pod.now + 180.0
    await pod.run(180.0)
    started = [job.started for job in busy.jobs if job.started > pod.kept[large.name].until]
    assert started, "nobody else got the devices of the place"
    assert large.started < 0
    await pod.run(ROOM_S + 100.0 + 7 * 15 + 30.0)
    assert large.started > 0
    await pod.world.stop()


SIZES = (1, 2, 4, 4, 8, 8, 16, 16, 32, 64)
MOST_S = 6000.0
KEEP_S = 30.0  #: beyond the last end on a kept place: looks of two guests, and the place's reset


def history(seed: int) -> dict[str, list[Job]]:
    """Random jobs of two or three users. They ask for more than the pod has, for some minutes."""
    random = Random(seed)
    names = random.sample(sorted(KINDS), random.choice((2, 2, 3)))
    return {
        name: [
            Job(
                f"{name}-{n}",
                random.choice(SIZES),
                float(random.randint(5, 120)),
                due=float(random.randint(0, 240)),
            )
            for n in range(random.randint(5, 30))
        ]
        for name in names
    }


async def played(histories: dict[str, list[Job]], *, kills: Random | None = None) -> SharedPod:
    """The pod after all jobs have ended, or after MOST_S seconds. kills: everything is killed now
    and then, or somebody is stopped for up to three minutes."""
    pod = SharedPod()
    await pod.world.start()
    for name, jobs in histories.items():
        user(pod, name, sorted(jobs, key=lambda job: job.due))
    while pod.now < MOST_S and any(job.ended < 0 for u in pod.users for job in u.jobs):
        await pod.run(20.0)
        if kills is not None and pod.now < MOST_S / 2 and kills.random() < 0.3:
            await pod.kill(kills.randrange(200))
        elif kills is not None and pod.now < MOST_S / 2 and kills.random() < 0.1:
            kills.choice(pod.users).stopped_until = pod.now + kills.randrange(180)
    await pod.world.check()
    await pod.world.stop()
    return pod


async def check_history(seed: int) -> None:
    pod = await played(history(seed))
    for job in (job for user in pod.users for job in user.jobs):
        assert job.ended >= 0, f"seed {seed}: {job} never ended"
        kept = pod.kept.get(job.name)
        if kept is not None:
            late = job.started - kept.until
            assert late <= KEEP_S, f"seed {seed}: {job} started {late} s late ({kept})"


async def check_under_kills(seed: int) -> None:
    """Every job ends, and what is held belongs to a job (`World.check` sees the devices)."""
    pod = await played(history(seed), kills=Random(seed))
    assert all(job.ended >= 0 for user in pod.users for job in user.jobs), f"seed {seed}"


@pytest.mark.parametrize("seed", range(3))
@virtually
async def test_nothing_is_lost_under_kills(seed: int) -> None:
    await check_under_kills(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2000, 2100))
@virtually
async def test_nothing_is_lost_under_kills_often(seed: int) -> None:
    await check_under_kills(seed)


@pytest.mark.parametrize("seed", range(4))
@virtually
async def test_a_kept_place_is_had_once_it_is_free(seed: int) -> None:
    await check_history(seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1000, 1300))
@virtually
async def test_a_kept_place_is_had_once_it_is_free_often(seed: int) -> None:
    await check_history(seed)


#: Seconds of a job. Jobs of 1,000 s end less often than first jobs become due.
LENGTHS = [100.0, pytest.param(1000.0, marks=pytest.mark.soak)]


@pytest.mark.parametrize("seconds", LENGTHS)
@pytest.mark.parametrize(
    ("other", "weight", "expected"),
    [("kubernetes", 3.0, 0.75), ("people", 1.0, 0.5)],
)
@virtually
async def test_shares_follow_weights_and_the_pod_stays_used(
    other: str, weight: float, expected: float, seconds: float
) -> None:
    pod = SharedPod()
    await pod.world.start()
    pod.world.controller._services.waiting.line.guest_queue.configure({"slurm": weight})
    for name in ("slurm", other):
        jobs = [Job(f"{name}-{n}", 4, seconds * (1 + 0.07 * (n % 16))) for n in range(150)]
        user(pod, name, jobs)
    await pod.run(4 * seconds)
    before, used = {u.name: u.had() for u in pod.users}, pod.used
    await pod.run(9 * seconds)
    had = {u.name: u.had() - before[u.name] for u in pod.users}
    await pod.world.stop()
    share = had["slurm"] / sum(had.values())
    assert 0.9 * expected <= share <= 1.1 * expected, had
    assert (pod.used - used) / (64 * 9 * seconds) >= 0.95
