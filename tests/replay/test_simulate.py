"""The simulation: what Slurm and the product would decide, event by event."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from podwright.errors import InvalidRequest
from podwright.replay import (
    Chances,
    HostKind,
    Outcome,
    ReplayWay,
    SlurmModel,
    Trace,
    TraceJob,
    example,
    figures,
    from_conf,
    pod_ways,
    simulate,
)
from podwright.replay._backfill_profile import FreeUnitsProfile
from podwright.replay.grounds._ground import StartAnswer
from podwright.replay.grounds._pod_ground import PodGround

PLAIN = SlurmModel(room_s=0.0)
Take = Callable[[int, int, float], StartAnswer]


def run(
    jobs: Sequence[TraceJob],
    way: str = "native",
    size: int = 16,
    slurm: SlurmModel = PLAIN,
    **more: object,
) -> Outcome:
    policies = [str(more.pop("policy"))] if "policy" in more else []
    hosts = more.pop("hosts", None)
    (made,) = pod_ways([way], size, policies, hosts)  # type: ignore[arg-type]
    return simulate(Trace("t", jobs), made.ground(), slurm, Chances(**more))  # type: ignore[arg-type]


def job(at: float, runtime: float, devices: int, **more: object) -> TraceJob:
    return TraceJob(f"{at}", at, runtime, devices, **more)  # type: ignore[arg-type]


def began(out: Outcome) -> list[float]:
    return list(out.start_times)


def test_small_jobs_pass_a_large_one_that_lacks_licences() -> None:
    jobs = [job(0, 100, 8), job(1, 100, 16), job(2, 10, 8), job(3, 10, 8)]
    assert began(run(jobs)) == [0, 100, 2, 12]


def test_free_devices_that_are_no_block_start_nothing() -> None:
    jobs = [job(0, 100, 4), job(0, 50, 4), job(0, 100, 4), job(0, 50, 4), job(1, 9, 8)]
    assert began(run(jobs))[4] == 100, "8 are free from 50 on, and no 8 side by side"
    assert began(run(jobs, policy="no-shape"))[4] == 50


def test_room_is_made_for_the_first_in_the_queue() -> None:
    small = [job(at, 100, 4) for at in range(0, 1000, 20)]
    jobs = sorted([*small, job(30, 10, 16)])
    jobs.sort(key=lambda one: one.submit)
    large = [one.devices for one in jobs].index(16)
    passed = began(run(jobs))
    assert passed[large] == max(passed), "small ones pass it as long as there are any"
    roomy = began(run(jobs, slurm=replace(PLAIN, room_s=60.0)))
    assert roomy[large] == pytest.approx(190, abs=30)


def test_without_shape_room_is_made_as_well() -> None:
    jobs = sorted([*(job(at, 100, 4) for at in range(0, 1000, 20)), job(30, 10, 16)])
    jobs.sort(key=lambda one: one.submit)
    large = [one.devices for one in jobs].index(16)
    assert began(run(jobs, policy="no-shape"))[large] > 500
    roomy = began(run(jobs, policy="no-shape", slurm=replace(PLAIN, room_s=60.0)))
    assert roomy[large] == pytest.approx(190, abs=30)


def test_without_limits_room_is_made_where_jobs_are_young() -> None:
    """The old one goes on for long, and small ones take what comes free beside the others."""
    old, young = [job(0, 10_000, 1), job(0, 55, 4)], [job(50, 150, 4), job(50, 200, 4)]
    jobs = [*old, *young, job(60, 10, 8), job(130, 5000, 4)]
    jobs = [one._replace(limit=math.nan) for one in jobs]
    out = run(jobs, slurm=replace(PLAIN, room_s=60.0))
    assert out.start_times[4] == pytest.approx(250, abs=1)


def test_what_moves_is_in_the_way_of_the_first_that_fits_by_count() -> None:
    """One before it is too large, and stays where it is in the queue."""
    jobs = [job(0, 1000, 4), job(0, 50, 4), job(0, 1000, 4), job(0, 50, 4), job(55, 1, 16)]
    out = run([*jobs, job(60, 9, 8)], policy="moves", move_s=10.0)
    assert out.start_times[5] == 70
    assert out.start_times[4] >= 1000


def test_nobody_ever_has_a_device_twice() -> None:
    """Any load, any policy, machines that fail: by the outcome's own word."""
    trace = example(5, devices=64, days=0.4, load=1.5)
    for policy in ("best-fit", "lowest", "moves", "trim"):
        (way,) = pod_ways(["native"], 64, [policy])
        ground = way.ground()
        assert isinstance(ground, PodGround)
        take = ground.take

        def checked(
            name: int, demand: int, end: float, take: Take = take, pod: PodGround = ground
        ) -> StartAnswer:
            answer = take(name, demand, end)
            spans = [span for one in pod.jobs for span in pod.spans(one)]
            places = [place for first, count in spans for place in range(first, first + count)]
            assert len(places) == len(set(places))
            return answer

        ground.take = checked  # type: ignore[method-assign, assignment]
        out = simulate(trace, ground, SlurmModel(), Chances(mtbf_s=20 * 86400.0))
        assert not any(math.isnan(at) for at in out.start_times)
        assert ground.occupied == 0


def test_a_job_that_a_machine_ends_begins_again() -> None:
    trace = Trace("t", [job(0, 1000, 4)])
    (way,) = pod_ways(["native"], 4)
    out = simulate(trace, way.ground(), PLAIN, Chances(seed=3, mtbf_s=600.0, repair_s=50.0))
    assert out.failed > 0
    assert out.end_times[0] - out.start_times[0] == 1000


@pytest.mark.parametrize(
    "way", ["native", "native no-shape", "static:4x4", "host-mapping:4x4", "host-mapping:8x2"]
)
def test_machines_fail_under_every_way(way: str) -> None:
    kind, _, policy = way.partition(" ")
    more: dict[str, Any] = {"policy": policy} if policy else {}
    jobs = [job(at, 1000, 2) for at in range(0, 50_000, 500)]
    out = run(jobs, kind, 16, seed=3, mtbf_s=5000.0, repair_s=2000.0, **more)
    assert out.failed > 10
    whole = [
        out.end_times[at] - out.start_times[at] for at in range(len(jobs)) if out.end_times[at] > 0
    ]
    assert whole == pytest.approx([1000.0] * len(whole))
    assert len(whole) + sum(out.refused.values()) == len(jobs)


def test_a_job_that_never_gets_through_between_failures_is_given_up() -> None:
    """Slurm would begin it again for ever, and the simulation with it."""
    out = run([job(0, 1e6, 16)], seed=3, mtbf_s=600.0, repair_s=50.0)
    assert out.refused == {"ended 10 times by machines that failed": 1}
    assert math.isnan(out.start_times[0])


def test_jobs_that_wait_for_one_another_are_counted() -> None:
    jobs = [
        TraceJob("a", 0, 50, 1, after="b"),
        TraceJob("b", 1, 5, 1, after="a"),
        TraceJob("c", 1, 5, 1),
    ]
    assert run(jobs).refused == {"wait for a job that never ends": 2}


def test_a_job_of_many_years_takes_no_more_memory() -> None:
    out = run([job(0, 10, 4), job(60, 3e9, 4)])
    assert len(out.series.useful) < 10
    assert sum(out.series.useful) == pytest.approx(4 * 10 + 4 * 3e9)


def test_who_moved_is_drawn_where_it_was_and_then_where_it_is() -> None:
    jobs = [job(0, 1000, 4), job(0, 50, 4), job(0, 1000, 4), job(0, 50, 4), job(60, 9, 8)]
    out = run(jobs, policy="moves", move_s=10.0)
    bars = list(zip(out.where[::3], out.where[1::3], out.when[::2], out.when[1::2], strict=True))
    mover = next(one for one, *_ in bars if [name for name, *_ in bars].count(one) == 2)
    (before, after) = [bar for bar in bars if bar[0] == mover]
    assert (before[2], before[3]) == (0, 70)
    assert (after[2], after[3]) == (60, 1010)
    assert before[1] != after[1]


def test_static_partitions_count_by_size() -> None:
    jobs = [job(0, 100, 3), job(0, 100, 4), job(0, 100, 1), job(1, 10, 9), job(2, 10, 32)]
    out = run(jobs, "static:2x4+1x16", 64)
    assert began(out)[:4] == [0, 0, 100, 1]
    assert out.refused == {"larger than any partition: more than 16 devices": 1}


def test_hosts_are_taken_whole_and_backfill_fills_behind_a_large_job() -> None:
    jobs = [
        job(0, 1200, 16, limit=1200.0),
        job(1, 10, 64, limit=60.0),
        job(2, 300, 4, limit=600.0),
        job(3, 500, 4, limit=6000.0),
    ]
    out = run(jobs, "host-mapping:4x16", 64)
    first, whole, short, long = began(out)
    assert (first, whole) == (0, 1200)
    assert short < 40, "it is over before the large one begins"
    assert long == 1210, "it would not be"


def test_three_hosts_are_no_allocation() -> None:
    out = run([job(0, 10, 48)], "host-mapping:4x16", 64)
    assert list(out.where) == [0, 0, 64]


def test_jobs_wait_for_the_cores_and_memory_that_they_asked_for() -> None:
    one = job(0, 100, 1, nodes=1, cpus=8, limit=600.0)
    jobs = [one, one, job(1, 5, 1, nodes=1, cpus=8, limit=60.0)]
    assert began(run(jobs, hosts=HostKind(2, 8))) == [0, 0, 100]
    heavy = [job(0, 100, 1, memory=900, limit=600.0), job(0, 100, 1, memory=900, limit=600.0)]
    assert began(run(heavy, hosts=HostKind(1, 8, 1000))) == [0, 100]
    assert run([job(0, 1, 1, cpus=9)], hosts=HostKind(1, 8)).refused


def test_dependencies_wait_for_their_job() -> None:
    jobs = [
        TraceJob("a", 0, 50, 1),
        TraceJob("b", 1, 5, 1, after="a"),
        TraceJob("c", 1, 5, 1, after="lost"),
    ]
    trace = Trace("t", jobs)
    (way,) = pod_ways(["native"], 16)
    out = simulate(trace, way.ground(), PLAIN)
    assert list(out.start_times) == [0, 50, 1]
    assert figures(trace, out)["wait"]["mean"] == 0, "they were not eligible before"
    assert trace.skipped.reasons


def test_a_trace_is_replayed_twice_alike_and_is_not_changed() -> None:
    trace = Trace("t", [TraceJob("a", 0, 50, 1), TraceJob("b", 1, 5, 1, after="a")])
    before = repr(list(trace.jobs()))
    (way,) = pod_ways(["native"], 16)
    outs = [simulate(trace, way.ground(), PLAIN) for _ in range(2)]
    assert outs[0] == outs[1]
    assert repr(list(trace.jobs())) == before


def test_fair_share_lets_the_user_pass_who_has_used_less() -> None:
    jobs = [TraceJob("0", 0, 1000, 16, user="greedy")]
    jobs += [TraceJob(str(at), at, 10, 16, user="greedy") for at in (1, 2)]
    jobs += [TraceJob("9", 3, 10, 16, user="modest")]
    slurm = replace(PLAIN, weight_fairshare=1000.0, calc_period=60.0)
    assert began(run(jobs, slurm=slurm)) == [0, 1010, 1020, 1000]
    assert began(run(jobs)) == [0, 1000, 1010, 1020]


def test_size_may_weigh() -> None:
    jobs = [job(0, 100, 16), job(1, 10, 2), job(2, 10, 16)]
    assert began(run(jobs, slurm=replace(PLAIN, weight_size=1000.0)))[1:] == [110, 100]
    small = replace(PLAIN, weight_size=1000.0, favor_small=True)
    assert began(run(jobs, slurm=small))[1:] == [100, 110]


def test_a_slurm_conf_sets_the_model() -> None:
    found = from_conf(
        {
            "schedulerparameters": "bf_interval=60,bf_window=2880,bf_max_job_test=50,defer",
            "prioritytype": "priority/multifactor",
            "priorityweightage": "1000",
            "prioritymaxage": "1-0",
            "priorityfavorsmall": "YES",
        }
    )
    assert (found.bf_interval, found.bf_window, found.bf_max_job_test) == (60, 172800, 50)
    assert (found.weight_age, found.max_age, found.favor_small) == (1000, 86400, True)
    basic = {"prioritytype": "priority/basic", "priorityweightage": "1000"}
    assert not from_conf(basic).ranks


def test_a_move_makes_the_block_that_is_missing() -> None:
    jobs = [job(0, 1000, 4), job(0, 50, 4), job(0, 1000, 4), job(0, 50, 4), job(60, 9, 8)]
    out = run(jobs, policy="moves", move_s=10.0)
    assert out.moves == 1
    assert out.start_times[4] == 70
    assert sorted(out.end_times)[-2:] == [1000, 1010], "who moved ends as much later"
    work = sum(one.devices * one.runtime for one in jobs)
    assert sum(out.series.useful) == pytest.approx(work), "a move is not work"
    assert run(jobs, policy="moves", movable=0.0).start_times[4] == 1000


def test_the_profile_plans_around_what_ends() -> None:
    profile = FreeUnitsProfile(0.0, 2, [(100.0, 4), (50.0, 2)])
    assert profile.earliest(2, 1000.0, 1e9) == 0
    assert profile.earliest(4, 10.0, 1e9) == 50
    profile.reserve(50.0, 200.0, 4)
    assert profile.earliest(2, 60.0, 1e9) == 100
    assert profile.earliest(2, 50.0, 1e9) == 0
    assert profile.earliest(8, 1.0, 1e9) == 200
    assert profile.earliest(9, 1.0, 1e9) == math.inf
    assert profile.earliest(8, 1.0, 150.0) == math.inf


def test_ways_are_checked_before_anything_runs() -> None:
    for words in (
        ["natve"],
        ["static"],
        ["static:8x5"],
        ["static:99x4"],
        ["host-mapping:2x16+1x8"],
    ):
        with pytest.raises(InvalidRequest):
            pod_ways(words, 64)
    with pytest.raises(InvalidRequest):
        pod_ways(["native"], 64, ["worst-fit"])


def test_a_way_goes_to_another_process_and_back() -> None:
    for way in pod_ways(["native", "shared", "static:1x4", "host-mapping:1x16"], 64):
        assert pickle.loads(pickle.dumps(way)) == way
        assert isinstance(way, ReplayWay)
