"""Functions as jobs of Slurm's, against the fake that ships: what is asked, what comes home."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import podwright
from podwright.errors import LaunchFailed, NotFound, PodwrightError, Unavailable
from podwright.slurm.jobs import FakeSlurmJobs, SlurmJobCommands
from podwright.slurm.jobs._job_states import (
    FORGOTTEN_STATE,
    LONGEST_PAUSE_S,
    SHORTEST_PAUSE_S,
    States,
)


@pytest.fixture
def slurm() -> Iterator[FakeSlurmJobs]:
    fake = FakeSlurmJobs()
    yield fake
    fake.close()


@pytest.fixture
def submit(slurm: FakeSlurmJobs, tmp_path: Path) -> Callable[..., podwright.slurm.SlurmJob[Any]]:
    def submitted(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        folder = str(tmp_path / "jobs")
        return podwright.slurm.submit(function, *args, folder=folder, commands=slurm, **options)

    return submitted


Submit = Callable[..., Any]


def test_each_task_returns_its_own(submit: Submit, slurm: FakeSlurmJobs, tmp_path: Path) -> None:
    job = submit(
        lambda x: (int(os.environ["SLURM_PROCID"]), x),
        "config.yaml",
        ipus=16,
        tasks=4,
        time="1:00:00",
        exclusive=True,
        requeue=False,
    )
    assert job.results(120) == [(k, "config.yaml") for k in range(4)]
    assert (job.state, job.progress(), job.result(1)[0]) == ("COMPLETED", (4, 4), 1)
    assert slurm.commands[0] == [
        *("sbatch", "--parsable", "--job-name=<lambda>", "--ntasks=4"),
        *(f"--output={job.folder}/log", "--open-mode=append", "--ipus=16"),
        *("--time=1:00:00", "--exclusive"),
    ]
    assert job.folder.startswith(str(tmp_path))
    assert stat.S_IMODE(os.stat(job.folder).st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in Path(job.folder).iterdir()} == {0}


def test_a_job_is_found_again_by_its_number(
    submit: Submit, slurm: FakeSlurmJobs, tmp_path: Path
) -> None:
    number = submit(pow, 2, 5).id
    folder = str(tmp_path / "jobs")
    job = podwright.slurm.attach(number, folder=folder, commands=slurm)
    assert job.results(120) == [32]
    job.remove()
    assert not os.path.exists(job.folder)
    with pytest.raises(NotFound, match=str(number)):
        podwright.slurm.attach(number, folder=folder, commands=slurm)


def test_an_exception_comes_home(submit: Submit) -> None:
    def bad() -> None:
        print("before", flush=True)
        raise ValueError("no such file: config.yaml")

    job = submit(bad, tasks=2)
    with pytest.raises(ValueError, match=r"config\.yaml") as raised:
        job.results(120)
    assert "in bad\n" in str(raised.value.__cause__)
    assert "before\n" in job.logs()
    assert job.state == "FAILED"


def test_a_job_that_is_cancelled_says_so(submit: Submit) -> None:
    job = submit(time.sleep, 1000)
    with pytest.raises(TimeoutError):
        job.results(0)
    with pytest.raises(TimeoutError):
        job.remove()
    job.cancel()
    assert job.wait(60)
    with pytest.raises(LaunchFailed, match="CANCELLED") as raised:
        job.results()
    assert raised.value.data["state"] == "CANCELLED"
    job.cancel()  # again is not an error


def test_a_job_that_slurm_forgot_is_judged_by_what_it_left(
    submit: Submit, slurm: FakeSlurmJobs
) -> None:
    slurm.forgets = True
    job = submit(pow, 2, 3)
    assert job.results(120) == [8]
    assert job.state == "COMPLETED"
    gone = submit(time.sleep, 1000)
    gone.cancel()
    assert gone.wait(60)
    assert gone.state == "UNKNOWN"
    with pytest.raises(LaunchFailed, match="UNKNOWN"):
        gone.results()


def test_slurms_refusal_is_told_in_its_words(submit: Submit, slurm: FakeSlurmJobs) -> None:
    slurm.refuses = "Batch job submission failed: Invalid partition name specified"
    with pytest.raises(PodwrightError, match="Invalid partition name"):
        submit(pow, 2, 3)
    with pytest.raises(Unavailable, match="sbatch cannot be run"):
        podwright.slurm.submit(pow, 2, 3, commands=SlurmJobCommands(["/nowhere/ssh", "login"]))


def test_a_job_that_waits_is_pending(submit: Submit, slurm: FakeSlurmJobs) -> None:
    slurm.hold = True
    job = submit(pow, 2, 3)
    assert (job.state, job.done(), job.logs(), job.progress()) == ("PENDING", False, "", (0, 1))
    job.cancel()
    assert job.wait(60)


async def test_a_job_can_be_awaited(submit: Submit) -> None:
    assert await submit(pow, 2, 4) == [16]


def test_slurmctld_is_asked_for_all_jobs_at_once_and_ever_more_rarely(slurm: FakeSlurmJobs) -> None:
    now = [0.0]
    states = States(slurm, clock=lambda: now[0])
    slurm.hold = True
    for _ in range(3):
        slurm.run(["sbatch", "--ntasks=1", "--output=/dev/null"])
    del slurm.commands[:]
    for _ in range(1000):
        now[0] += 0.1
        assert [states.state(str(n)) for n in (100, 101, 102)] == ["PENDING"] * 3
    assert 100 / LONGEST_PAUSE_S < len(slurm.commands) < 20 < 1000 * 0.1 / SHORTEST_PAUSE_S
    assert states.state("999") == FORGOTTEN_STATE


def test_while_slurmctld_is_away_nothing_is_over() -> None:
    states = States(SlurmJobCommands(["false"]))
    assert states.state("1") is None
