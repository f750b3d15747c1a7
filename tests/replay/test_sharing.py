"""Guests that share a pod: the server's own queue in replay's time, and what is compared."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podwright.cli import podwright
from podwright.errors import InvalidRequest
from podwright.replay import SlurmModel, Trace, TraceJob, example, pod_ways, simulate
from podwright.replay._outcome import Outcome
from podwright.replay.sharing import SharedGuest, check_names, compare
from podwright.replay.sharing._simulate_guests import LOOK_INTERVAL_S, simulate_shared
from podwright.replay.sharing._split_pod import split
from podwright.replay.traces._offered_load import offered_load, stretch_for, stretched
from tests.controller.world import virtually
from tests.guests.common_queue.shared_pod import Guest, Job, People, SharedPod, User
from tests.guests.common_queue.test_common_queue import history

NAMES = ("slurm", "kubernetes", "people")
ROOM_S = 60.0


def guest(name: str, jobs: list[TraceJob], weight: float = 1.0) -> SharedGuest:
    trace = Trace(name, jobs)
    return SharedGuest(name, trace, weight, begin=jobs[0].submit, room_s=ROOM_S)


def fours(count: int) -> list[TraceJob]:
    """Jobs of 4 devices whose ends are spread, so that no block of 16 is free by itself."""
    return [TraceJob(f"s{n}", 0.0, 100.0 + 7 * (n % 16), 4) for n in range(count)]


def starts(guests: list[SharedGuest], outcomes: list[Outcome]) -> dict[tuple[str, int], float]:
    """When each job starts, by the clock of all."""
    return {
        (guest.name, job): start + guest.begin
        for guest, outcome in zip(guests, outcomes, strict=True)
        for job, start in enumerate(outcome.start_times)
    }


PAIRS = [(many, single) for many in NAMES for single in NAMES if many != single]


@pytest.mark.parametrize(("many", "single"), PAIRS)
def test_a_large_job_has_its_place_once_the_last_small_one_there_ends(
    many: str, single: str
) -> None:
    """Sixteen small jobs begin at 0 s. The first ends at 100 s, and its place is kept for the
    stream's own next job, which has waited longer. That one runs there until 200 s. The next place
    is the large job's. All of the pod's blocks of 16 seem to be free as soon, so it is the first
    one. The jobs there end at 107, 114, 121 and 200 s.
    """
    guests = [guest(many, fours(60)), guest(single, [TraceJob("large", 20.0, 50.0, 16)])]
    start = starts(guests, simulate_shared(guests, 64))[single, 0]
    assert 200 <= start <= 200 + LOOK_INTERVAL_S


def test_without_the_common_queue_a_large_job_waits_for_the_whole_stream() -> None:
    guests = [
        guest("slurm", fours(60)),
        guest("kubernetes", [TraceJob("large", 20.0, 50.0, 16)]),
    ]
    outcomes = simulate_shared(guests, 64, common_queue=False)
    large = starts(guests, outcomes)["kubernetes", 0]
    assert large >= max(outcomes[0].start_times)


@pytest.mark.parametrize("room", [0.0, ROOM_S])
@pytest.mark.parametrize("common_queue", [True, False])
def test_a_scheduler_alone_has_what_replay_computes_for_it(room: float, common_queue: bool) -> None:
    trace = example(3, days=2)
    (shared,) = simulate_shared(
        [SharedGuest("slurm", trace, room_s=room)], 64, common_queue=common_queue
    )
    alone = simulate(trace, pod_ways(["native"], 64)[0].ground(), SlurmModel(room_s=room))
    if not room:
        assert shared.start_times.tobytes() == alone.start_times.tobytes()
    waits = [
        sum(
            start - eligible
            for start, eligible in zip(out.start_times, trace.eligible, strict=True)
        )
        for out in (shared, alone)
    ]
    assert waits[0] == pytest.approx(waits[1], rel=0.02)


# -- the running system ----------------------------------------------------------------------


async def real_starts(guests: list[SharedGuest]) -> dict[tuple[str, int], float]:
    """The same with the real controller, and calls between it and the guests, in virtual time."""
    pod = SharedPod()
    await pod.world.start()
    for each in guests:
        jobs = [
            Job(f"{each.name}-{at}", job.devices, job.runtime, due=job.submit + each.begin)
            for at, job in enumerate(each.trace.jobs())
        ]
        kind: type[User] = People if each.name == "people" else Guest
        pod.users.append(kind(pod, each.name, jobs))
    while any(job.started < 0 for user in pod.users for job in user.jobs):
        await pod.run(20.0)
    await pod.world.stop()
    return {(u.name, at): job.started for u in pod.users for at, job in enumerate(u.jobs)}


@pytest.mark.parametrize(("many", "single"), PAIRS[::2])
@virtually
async def test_a_large_job_starts_when_it_does_with_the_real_controller(
    many: str, single: str
) -> None:
    guests = [guest(many, fours(40)), guest(single, [TraceJob("large", 20.0, 50.0, 16)])]
    model = starts(guests, simulate_shared(guests, 64))[single, 0]
    real = (await real_starts(guests))[single, 0]
    assert real == pytest.approx(model, abs=5.0)


@virtually
async def test_waits_are_those_of_the_real_controller() -> None:
    """Where the two differ in one start, all later starts differ. So only means agree."""
    waits = [0.0, 0.0]
    for seed in (0, 2, 3, 4):
        guests = [
            guest(
                name,
                [
                    TraceJob(job.name, job.due, job.seconds, job.size)
                    for job in sorted(jobs, key=lambda job: job.due)
                ],
            )
            for name, jobs in history(seed).items()
        ]
        model = starts(guests, simulate_shared(guests, 64))
        for at, out in enumerate((model, await real_starts(guests))):
            waits[at] += sum(
                out[each.name, job] - each.begin - submitted
                for each in guests
                for job, submitted in enumerate(each.trace.submit)
            )
    assert waits[0] == pytest.approx(waits[1], rel=0.1)


# -- shares ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "weight", "share"), [(100.0, 1.0, 0.5), (100.0, 3.0, 0.75), (1000.0, 1.0, 0.5)]
)
def test_under_equal_load_shares_of_schedulers_follow_weights(
    seconds: float, weight: float, share: float
) -> None:
    jobs = [TraceJob(f"{n}", 0.0, seconds * (1 + 0.07 * (n % 16)), 4) for n in range(300)]
    guests = [guest("slurm", jobs, weight), guest("kubernetes", jobs)]
    outcomes = simulate_shared(guests, 64)
    begin, end = 5 * seconds, min(max(outcome.start_times) for outcome in outcomes)
    used = [
        sum(
            max(0.0, min(end, last) - max(begin, first))
            for first, last in zip(outcome.start_times, outcome.end_times, strict=True)
        )
        for outcome in outcomes
    ]
    assert end > 20 * seconds
    assert used[0] / sum(used) == pytest.approx(share, abs=0.06)


JOB = st.tuples(
    st.sampled_from((1, 2, 3, 4, 8, 16, 20, 32)),
    st.integers(0, 400),
    st.integers(1, 300),
    st.booleans(),
)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.lists(JOB, min_size=1, max_size=25), min_size=1),
    st.sampled_from((32, 64, 40)),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_no_device_is_given_twice_and_each_job_starts(
    histories: dict[str, list[tuple[int, int, int, bool]]], devices: int, common_queue: bool
) -> None:
    guests = [
        guest(
            name,
            [
                TraceJob(
                    str(n),
                    float(at),
                    float(length),
                    size,
                    limit=2.0 * length if known else math.nan,
                )
                for n, (size, at, length, known) in enumerate(sorted(jobs, key=lambda job: job[1]))
            ],
        )
        for name, jobs in sorted(histories.items())
    ]
    taken: list[tuple[float, float, int]] = []
    for each, outcome in zip(
        guests, simulate_shared(guests, devices, common_queue=common_queue), strict=True
    ):
        assert not outcome.refused
        for job, (start, end) in enumerate(
            zip(outcome.start_times, outcome.end_times, strict=True)
        ):
            assert start >= each.trace.eligible[job]
            assert end == start + each.trace.runtime[job]
        for row in range(len(outcome.where) // 3):
            job, first, count = outcome.where[3 * row : 3 * row + 3]
            assert count >= each.trace.devices[job]
            assert first + count <= devices
            bits = ((1 << count) - 1) << first
            begin, end = outcome.when[2 * row : 2 * row + 2]
            taken.append((begin + each.begin, end + each.begin, bits))
    taken.sort()
    for at, (_, end, bits) in enumerate(taken):
        for begin, _, other in taken[at + 1 :]:
            assert begin >= end or not bits & other


def test_a_job_waits_for_the_one_that_it_names() -> None:
    jobs = [
        TraceJob("a", 0.0, 100.0, 4),
        TraceJob("b", 0.0, 10.0, 4, after="a"),
        TraceJob("large", 0.0, 10.0, 128),
        TraceJob("d", 5.0, 10.0, 4, after="large"),
    ]
    for name in NAMES:
        (out,) = simulate_shared([guest(name, jobs)], 64)
        assert list(out.start_times)[:2] == [0.0, 100.0]
        assert out.refused == {"more than 64 devices": 1}
        assert out.start_times[3] == 5.0


# -- parts, load, clock ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("devices", "weights", "given", "parts"),
    [
        (64, (1, 1), {}, (32, 32)),
        (64, (3, 1), {}, (48, 16)),
        (64, (1, 1, 1), {}, (24, 20, 20)),
        (64, (1, 1), {"slurm": 48}, (48, 16)),
        (64, (1, 1), {"slurm": 16, "kubernetes": 16}, (16, 16)),
        (8, (1000, 1), {}, (4, 4)),
        (256, (3, 1), {}, (192, 64)),
    ],
)
def test_the_pod_is_split_by_weights(
    devices: int, weights: tuple[float, ...], given: dict[str, int], parts: tuple[int, ...]
) -> None:
    by_name = dict(zip(NAMES, weights, strict=False))
    assert tuple(split(devices, by_name, given).values()) == parts


@given(
    st.integers(3, 64).map(lambda machines: 4 * machines),
    st.lists(st.floats(0.01, 100), min_size=1, max_size=3),
)
def test_parts_are_whole_machines_and_all_of_the_pod(devices: int, weights: list[float]) -> None:
    parts = split(devices, dict(zip(NAMES, weights, strict=False)))
    assert sum(parts.values()) == devices
    assert all(size >= 4 and size % 4 == 0 for size in parts.values())


@pytest.mark.parametrize("given", [{"slurm": 6}, {"slurm": 0}, {"slurm": 64}, {"slurm": 128}])
def test_parts_that_cannot_be_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(InvalidRequest):
        split(64, {"slurm": 1.0, "people": 1.0}, given)


def test_times_are_stretched_to_a_load() -> None:
    trace = Trace(
        "t", [TraceJob("a", 0.0, 100.0, 32), TraceJob("b", 100.0, 100.0, 32, eligible=130.0)]
    )
    assert offered_load([trace], [0.0], 64) == 1.0
    at_half = stretched(trace, stretch_for([trace], [0.0], 64, 0.5))
    assert offered_load([at_half], [0.0], 64) == 0.5
    assert (list(at_half.submit), list(at_half.eligible)) == ([0.0, 200.0], [0.0, 230.0])
    with pytest.raises(InvalidRequest):
        stretch_for([Trace("t", [TraceJob("a", 0.0, 100.0, 32)])], [0.0], 64, 0.5)


@pytest.mark.parametrize(("later", "begin"), [(50.0, 50.0), (1e6, 0.0)])
def test_traces_with_dates_that_overlap_are_on_one_clock(later: float, begin: float) -> None:
    guests = [
        SharedGuest(
            name, Trace(name, [TraceJob(f"{n}", at + 100.0 * n, 10.0, 4) for n in range(2)])
        )
        for name, at in (("slurm", 1.7e9), ("people", 1.7e9 + later))
    ]
    figures = compare(guests, 64, processes=1)
    assert [row["begins_s"] for row in figures["guests"]] == [0.0, begin]


# -- who gains -------------------------------------------------------------------------------


def test_who_gains_and_who_loses() -> None:
    """One guest asks for three quarters of the pod all the time, the other for a tenth. On halves
    the first waits longer and longer. Together there is enough for both."""
    busy = [TraceJob(f"{n}", 50.0 * n, 100.0 * 24 / 4, 4) for n in range(400)]
    idle = [TraceJob(f"{n}", 500.0 * n, 400.0, 8) for n in range(40)]
    figures = compare([guest("slurm", busy), guest("people", idle)], 64, processes=1)
    gains = {row["guest"]: row["verdict"] for row in figures["who_gains"]}
    assert gains == {"slurm": "gains", "people": "no clear difference"}
    rows = {(row["setup"], row["guest"]): row for row in figures["setups"]}
    assert rows["common queue", "slurm"]["wait"]["longest"] == 0
    assert rows["separate parts", "slurm"]["wait"]["longest"] > 4000
    assert rows["separate parts", "slurm"]["devices"] == 32


def test_a_guest_whose_part_was_enough_can_lose() -> None:
    """A guest that fills its half beside one that asks for twice its own."""
    calm = [TraceJob(f"{n}", 250.0 * n, 1990.0, 4) for n in range(80)]
    greedy = [TraceJob(f"{n}", 60.0 * n, 2000.0, 4) for n in range(300)]
    figures = compare([guest("slurm", calm), guest("kubernetes", greedy)], 64, processes=1)
    rows = {
        (row["setup"], row["guest"]): row["wait"]["mean"]
        for row in figures["setups"]
        if row["guest"]
    }
    assert rows["separate parts", "slurm"] == 0
    verdict = next(row for row in figures["who_gains"] if row["guest"] == "slurm")
    assert verdict["verdict"] == "loses"
    assert rows["common queue", "slurm"] > 0


# -- the command -----------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    head = "job,submit_s,runtime_s,devices,walltime_s,status,user"
    for name in "ab":
        rows = [f"{n},{30 * n},{200 + n},{4 << n % 4},900,,u{n % 3}" for n in range(40)]
        Path(f"{name}.csv").write_text("\n".join([head, *rows, ""]))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = podwright.main(["replay", *words])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.mark.usefixtures("files")
def test_the_report_compares_the_setups(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("a.csv", "--with", "kubernetes=b.csv", "--share", "slurm=3")
    code, out, err = said(capsys, *words)
    assert (code, err) == (0, "")
    assert "Who gains" in out
    for setup in ("common queue", "separate parts", "no common queue"):
        assert out.count(f"\n{setup} ") == 3
    assert "alone on 48 devices" in out
    figures = []
    for count in "12":
        code, text, _ = said(capsys, *words, "--json", "--processes", count)
        assert code == 0
        figures.append(text)
    assert figures[0] == figures[1]
    report = json.loads(figures[0])
    assert [row["weight"] for row in report["guests"]] == [3.0, 1.0]
    assert report["load"] > 0


@pytest.mark.usefixtures("files")
def test_load_and_parts_can_be_set(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("a.csv", "--with", "people=b.csv", "--load", "0.25", "--part", "people=16", "--json")
    code, out, _ = said(capsys, *words)
    assert code == 0
    report = json.loads(out)
    assert report["load"] == pytest.approx(0.25)
    assert [row["part"] for row in report["guests"]] == [48, 16]
    code, out, _ = said(capsys, "a.csv", "--load", "0.25", "--json")
    assert code == 0
    assert "multiplied" in " ".join(json.loads(out)["trace"]["notes"])


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--with", "slurm=b.csv"], "there are two traces of slurm"),
        (["--with", "people=b.csv", "--with", "people=a.csv"], "there are two traces of people"),
        (["--with", "nomad=b.csv"], "'nomad' is not a guest of a pod"),
        (["--with", "kubernetes =b.csv", "--with", "kubernetes=b.csv"], "two traces"),
        (["--with", "b.csv"], "names no guest and its trace"),
        (["--with", "people="], "names no guest and its trace"),
        (["--with", "people=none.csv"], "read none.csv"),
        (["--with", "people=-", "--with", "kubernetes=-"], "standard input"),
        (["--with", "people=b.csv", "--share", "kubernetes=2"], "'kubernetes' has no trace here"),
        (["--with", "people=b.csv", "--share", "people=0"], "is not a scheduler's weight"),
        (["--with", "people=b.csv", "--part", "people=6"], "multiple of 4"),
        (["--with", "people=b.csv", "--part", "people=many"], "is not a part of a pod"),
        (["--with", "people=b.csv", "--part", "people=1234567890"], "is not a part of a pod"),
        (["--with", "people=b.csv", "--part", "kubernetes=8"], "'kubernetes' has no trace here"),
        (["--with", "people=b.csv", "--ways", "native"], "--ways does not go with --with"),
        (["--share", "slurm=2"], "--share is for guests that share a pod"),
        (["--part", "slurm=8"], "--part is for guests that share a pod"),
        (["--load", "0"], "is not a share of the devices"),
    ],
)
def test_what_cannot_be_is_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code, out, err = said(capsys, "a.csv", *words)
    except SystemExit as end:
        code, (out, err) = int(end.code or 0), capsys.readouterr()
    assert code
    assert not out
    assert problem in err


@pytest.mark.parametrize("name", ["slurm", "kubernetes", "kubernetes lab", "people"])
def test_names_of_guests(name: str) -> None:
    check_names([name])


@pytest.mark.parametrize("name", ["", "kubernetes ", "kuber", "kuberneteslab", "People"])
def test_names_of_nobody(name: str) -> None:
    with pytest.raises(InvalidRequest):
        check_names([name])
