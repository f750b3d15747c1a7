"""The simulation beside a real Slurm: the same jobs, native, static partitions, host mapping."""

from __future__ import annotations

import json
import os
import threading

import pytest

from podwright.replay import TraceJob
from tests.outer.lab import Release
from tests.outer.lab import release as find_release
from tests.outer.slurm.fidelity import (
    Run,
    compare,
    lab_of,
    most,
    record,
    simulated,
    tau,
    wait,
    workload,
)

pytestmark = [pytest.mark.outer, pytest.mark.slurm]
#: Used for nothing else: the model was made with other seeds.
SEED = 4711
JOBS = int(os.environ.get("PODWRIGHT_REPLAY_JOBS", "200"))
RUNS = 3


def test_a_short_run_can_be_held_against_the_simulation() -> None:
    """What is sure of so few jobs: neither starts one too early, or without devices for it. How
    alike their orders are is said by the 200 jobs below, and by three runs of Slurm beside them."""
    jobs = workload(SEED, 24, "native", longest=7.0)
    with lab_of("native", find_release("oldest")) as lab:
        run = record(lab, "native", jobs, count=16)
    found = compare("native", [run])
    assert found["jobs"] == 24
    assert found["tau_itself"] == tau(run.jobs, run.jobs) == 1.0
    assert found["wait_s"]["slurm"] == [wait(run.jobs)]
    for made in (run.jobs, simulated("native", run)):
        assert sorted(job.name for job in made) == sorted(job.name for job in jobs)
        assert all(job.submit <= job.start for job in made)
        assert most(made) <= 64


@pytest.mark.soak
@pytest.mark.parametrize("release", ["oldest", "newest"], indirect=True)
@pytest.mark.parametrize("way", ["native", "static", "host-mapping"])
def test_order_waits_and_use_are_those_of_a_real_slurm(
    way: str, release: Release, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three clusters at once, with the same jobs. Their spread, and 5 %, is what may be between
    the simulation and them."""
    jobs = workload(SEED, JOBS, way)
    runs = _at_once(way, release, jobs)
    found = compare(way, runs)
    with capsys.disabled():
        print(f"\n{json.dumps({'release': release.name, **found})}")
    assert found["tau"] >= found["tau_itself"] - 0.05
    for name in ("wait_s", "used"):
        assert found[name]["apart"] <= found[name]["spread"] + 0.05, (name, found)


def _at_once(way: str, release: Release, jobs: list[TraceJob]) -> list[Run]:
    runs: list[Run] = []
    errors: list[BaseException] = []

    def one() -> None:
        try:
            with lab_of(way, release) as lab:
                runs.append(record(lab, way, jobs))
        except BaseException as error:  # told to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=one) for _ in range(RUNS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return runs
