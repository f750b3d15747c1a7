"""Compares a pod that guests share with the same pod split among them: who gains, and who loses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NotRequired, TypedDict

from podwright.errors import InvalidRequest
from podwright.replay._advice import duration
from podwright.replay._outcome import Outcome
from podwright.replay._outcome_figures import bounded_slowdowns, spread
from podwright.replay._parallel import run_each
from podwright.replay._ranking import WayMeasures, clearly_better, trace_noise
from podwright.replay._report_types import Spread, TraceFigures
from podwright.replay.sharing._shared_guest import KUBERNETES, PEOPLE, SLURM, SharedGuest
from podwright.replay.sharing._simulate_guests import LOOK_INTERVAL_S, simulate_shared
from podwright.replay.sharing._split_pod import split
from podwright.replay.traces._offered_load import offered_load, stretch_for, stretched

Progress = Callable[[int, int], None]

COMMON_SETUP: Final = "common queue"
SEPARATE_SETUP: Final = "separate parts"
UNSHARED_SETUP: Final = "no common queue"

SIMPLER: Final = (
    "A scheduler starts its jobs first come, first served, and any that fits. Priorities, "
    "backfill, hosts and quotas are not in the model, and no machine fails.",
    f"A scheduler looks every {LOOK_INTERVAL_S:g} s. Starting a job, ending it and resetting its "
    "devices "
    "take no time.",
    "Each scheduler takes what it is offered, and none falls silent.",
    "The time limit of a job of people is what they announce; a job without one announces nothing.",
    "Sizes are rounded up to powers of two, also those that people ask for.",
)


class GuestFigures(TraceFigures):
    """A guest and its jobs. part: its devices where the pod is split. begins_s: when its trace
    begins, on the clock of all guests.
    """

    guest: str
    weight: float
    part: int
    begins_s: float


class SetupFigures(TypedDict):
    """A guest in a setup. The row of all guests together has no name and only the first figures.

    used: of the whole pod until the last submission. wait, bounded_slowdown: of compared_jobs,
    those that run in all setups; a wait also has `longest`.
    """

    setup: str
    guest: str
    devices: int
    used: float
    jobs: NotRequired[int]
    refused: NotRequired[dict[str, int]]
    refused_device_hours: NotRequired[float]
    compared_jobs: NotRequired[int]
    wait: NotRequired[Spread]
    bounded_slowdown: NotRequired[Spread]


class GuestVerdict(TypedDict):
    """What a guest has of the common queue.

    noise: differences that do not count, by measure; None where there are too few jobs to tell.
    """

    guest: str
    verdict: str
    why: str
    noise: dict[str, float | None]


class SharedFigures(TypedDict):
    """The figures of guests on one pod, in the shape of their JSON."""

    devices: int
    load: float
    guests: list[GuestFigures]
    setups: list[SetupFigures]
    who_gains: list[GuestVerdict]
    simpler: list[str]


@dataclass(frozen=True)
class SharedSimulation:
    """One simulation, to be run in a process of its own."""

    name: str
    guests: tuple[SharedGuest, ...]
    devices: int
    common_queue: bool = True

    @property
    def jobs(self) -> int:
        """The number of jobs of all guests."""
        return sum(len(guest.trace) for guest in self.guests)

    def run(self, progress: Progress) -> list[Outcome]:
        """Return the outcome of each guest."""
        return simulate_shared(
            self.guests, self.devices, common_queue=self.common_queue, progress=progress
        )


def compare(
    guests: Sequence[SharedGuest],
    devices: int,
    *,
    parts: Mapping[str, int] | None = None,
    at_load: float | None = None,
    processes: int = 0,
    progress: Progress | None = None,
) -> SharedFigures:
    """Return the figures of guests on one pod: with the common queue, each alone on its part, and
    together without the common queue.

    parts: devices of the guests whose part is set; the others as `split` says. at_load: the share
    of the pod that all jobs together are to ask for; None: as recorded.

    The same traces and options give the same figures. Raises InvalidRequest, SimulationFailed.
    """
    weights = {guest.name: guest.weight for guest in guests}
    device_shares = split(devices, weights, parts)
    guests = _guests_at_load(_align_guest_clocks(guests), devices, at_load)
    all_guests = tuple(guests)
    simulations = [SharedSimulation(COMMON_SETUP, all_guests, devices)]
    simulations += [
        SharedSimulation(f"{SEPARATE_SETUP}, {guest.name}", (guest,), device_shares[guest.name])
        for guest in guests
    ]
    simulations.append(SharedSimulation(UNSHARED_SETUP, all_guests, devices, common_queue=False))
    results = run_each(simulations, processes=processes, progress=progress)
    outcomes = {
        COMMON_SETUP: results[0],
        SEPARATE_SETUP: [
            outcome for separate_outcomes in results[1:-1] for outcome in separate_outcomes
        ],
        UNSHARED_SETUP: results[-1],
    }
    return {
        "devices": devices,
        "load": offered_load(
            [shared_guest.trace for shared_guest in guests],
            [shared_guest.begin for shared_guest in guests],
            devices,
        ),
        "guests": [_guest_figures(guest, device_shares[guest.name]) for guest in guests],
        "setups": _setup_figures(guests, devices, outcomes),
        "who_gains": [
            _guest_verdict(
                guest,
                device_shares[guest.name],
                outcomes[COMMON_SETUP][guest_index],
                outcomes[SEPARATE_SETUP][guest_index],
            )
            for guest_index, guest in enumerate(guests)
        ],
        "simpler": list(SIMPLER),
    }


def _align_guest_clocks(guests: Sequence[SharedGuest]) -> list[SharedGuest]:
    """Return the guests on one clock: by their dates if all traces have dates and overlap, and
    else all from the same moment on.
    """
    epochs = [guest.trace.epoch for guest in guests]
    first_epoch = min(epochs)
    last_begin, first_end = (
        max(epochs),
        min(shared_guest.trace.epoch + shared_guest.trace.span for shared_guest in guests),
    )
    dates_overlap = first_epoch > 0 and last_begin <= first_end
    return [
        replace(guest, begin=guest.trace.epoch - first_epoch if dates_overlap else 0.0)
        for guest in guests
    ]


def _guests_at_load(
    guests: Sequence[SharedGuest], devices: int, target_load: float | None
) -> list[SharedGuest]:
    if target_load is None:
        return list(guests)
    first_times = [guest.begin for guest in guests]
    factor = stretch_for([guest.trace for guest in guests], first_times, devices, target_load)
    return [
        replace(guest, trace=stretched(guest.trace, factor), begin=guest.begin * factor)
        for guest in guests
    ]


def _guest_figures(guest: SharedGuest, part_devices: int) -> GuestFigures:
    trace = guest.trace
    return {
        "guest": guest.name,
        "weight": guest.weight,
        "part": part_devices,
        "begins_s": guest.begin,
        "source": trace.source,
        "jobs": len(trace),
        "users": len(trace.users),
        "days": trace.span / 86400,
        "device_hours": trace.device_seconds / 3600,
        "largest": max(trace.devices),
        "notes": trace.notes,
        **trace.skipped.figures(),
    }


# -- figures ---------------------------------------------------------------------------------


def _setup_figures(
    guests: Sequence[SharedGuest], devices: int, outcomes: Mapping[str, Sequence[Outcome]]
) -> list[SetupFigures]:
    """Return the figures of each guest in each setup. Waits are of the jobs that run in all."""
    window_s = max(1.0, max(guest.last_submission for guest in guests))
    setup_rows: list[SetupFigures] = []
    for setup, guest_outcomes in outcomes.items():
        used_by_all = 0.0
        for guest_index, (guest, outcome) in enumerate(zip(guests, guest_outcomes, strict=True)):
            jobs = _common_jobs(
                [setup_outcomes[guest_index] for setup_outcomes in outcomes.values()]
            )
            used_share = _used_device_seconds(guest, outcome, window_s) / (devices * window_s)
            used_by_all += used_share
            waits = _job_waits_s(guest, outcome, jobs)
            setup_rows.append(
                {
                    "setup": setup,
                    "guest": guest.name,
                    "devices": outcome.size,
                    "jobs": len(_common_jobs([outcome])),
                    "refused": dict(sorted(outcome.refused.items())),
                    "refused_device_hours": outcome.refused_seconds / 3600,
                    "used": used_share,
                    "compared_jobs": len(jobs),
                    "wait": {**spread(waits), "longest": max(waits, default=0.0)},
                    "bounded_slowdown": spread(bounded_slowdowns(guest.trace, jobs, waits)),
                }
            )
        setup_rows.append({"setup": setup, "guest": "", "devices": devices, "used": used_by_all})
    return setup_rows


def _common_jobs(outcomes: Sequence[Outcome]) -> list[int]:
    """Return the jobs that ran in all of these."""
    return [
        job
        for job in range(len(outcomes[0].start_times))
        if not any(math.isnan(outcome.start_times[job]) for outcome in outcomes)
    ]


def _job_waits_s(guest: SharedGuest, outcome: Outcome, jobs: Sequence[int]) -> list[float]:
    eligible = guest.trace.eligible if outcome.eligible is None else outcome.eligible
    return [max(0.0, outcome.start_times[job] - eligible[job]) for job in jobs]


def _used_device_seconds(guest: SharedGuest, outcome: Outcome, window_s: float) -> float:
    """Return the device-seconds that a guest's jobs asked for and had until the last submission of
    all guests.
    """
    window_end = window_s - guest.begin
    return sum(
        guest.trace.devices[job]
        * (min(window_end, outcome.end_times[job]) - min(window_end, outcome.start_times[job]))
        for job in _common_jobs([outcome])
    )


# -- who gains -------------------------------------------------------------------------------


def _guest_verdict(
    guest: SharedGuest, part_devices: int, shared_outcome: Outcome, alone_outcome: Outcome
) -> GuestVerdict:
    """Return whether a guest gains or loses by the common queue, against a part of its own.

    Waits and slowdowns decide. How much of its work is done by its last submission depends on that
    one moment, so it is only reported.
    """
    jobs = _common_jobs([shared_outcome, alone_outcome])
    measures = [
        _guest_measures(guest, outcome, jobs) for outcome in (shared_outcome, alone_outcome)
    ]
    noise = trace_noise(guest.trace, (shared_outcome, alone_outcome))
    _, *better_shared = clearly_better(measures[0], measures[1], noise)
    _, *better_alone = clearly_better(measures[1], measures[0], noise)
    fewer_refused = sum(shared_outcome.refused.values()) < sum(alone_outcome.refused.values())
    verdict = {
        (True, False): "gains",
        (False, True): "loses",
        (True, True): "gains and loses",
        (False, False): "no clear difference",
    }[any(better_shared) or fewer_refused, any(better_alone)]
    return {
        "guest": guest.name,
        "verdict": verdict,
        "why": _verdict_reason(
            guest, part_devices, (shared_outcome, alone_outcome), measures, noise
        ),
        "noise": {
            measure_name: noise_size if noise_size < math.inf else None
            for measure_name, noise_size in noise._asdict().items()
        },
    }


def _guest_measures(guest: SharedGuest, outcome: Outcome, jobs: Sequence[int]) -> WayMeasures:
    waits = _job_waits_s(guest, outcome, jobs)
    slowdowns = bounded_slowdowns(guest.trace, jobs, waits)
    window_s = max(1.0, guest.trace.span)
    used_seconds = _used_device_seconds(guest, outcome, window_s + guest.begin)
    return WayMeasures(
        used_seconds / max(1.0, guest.trace.device_seconds),
        spread(waits)["mean"],
        spread(slowdowns)["mean"],
    )


def _verdict_reason(
    guest: SharedGuest,
    part_devices: int,
    outcomes: tuple[Outcome, Outcome],
    measures: Sequence[WayMeasures],
    noise: WayMeasures,
) -> str:
    shared_measures, alone_measures = measures
    reason_text = (
        f"a mean wait of {duration(shared_measures.wait)} beside the others, and "
        f"{duration(alone_measures.wait)} "
        f"alone on {part_devices} devices; a mean slowdown of {shared_measures.slowdown:.3g} and "
        f"{alone_measures.slowdown:.3g}; {shared_measures.used:.1%} and {alone_measures.used:.1%} "
        "of its work done by its last submission"
    )
    refused_difference = sum(outcomes[1].refused.values()) - sum(outcomes[0].refused.values())
    if refused_difference > 0:
        reason_text += f"; {refused_difference} of its jobs are too large for that part"
    if math.isinf(noise.wait):
        return f"{reason_text}. These are too few jobs to tell a difference from chance."
    return (
        f"{reason_text}. Differences of up to {duration(noise.wait)} and {noise.slowdown:.2g} are "
        "within this trace's noise."
    )


def check_names(guest_names: Sequence[str]) -> None:
    """Raise InvalidRequest for a name that no guest of a pod has, or that two traces have."""
    for guest_name in guest_names:
        cluster_name = guest_name.removeprefix("kubernetes ").strip()
        is_known = guest_name in (SLURM, KUBERNETES, PEOPLE)
        if not (
            is_known or (cluster_name and cluster_name != guest_name and guest_name.isprintable())
        ):
            raise InvalidRequest(
                f"{guest_name[:80]!r} is not a guest of a pod",
                operation="--with",
                would_work="kubernetes=FILE, 'kubernetes NAME=FILE' or people=FILE",
            )
        if guest_names.count(guest_name) > 1:
            raise InvalidRequest(
                f"there are two traces of {guest_name}",
                operation="--with",
                would_work="one trace for each guest; TRACE has the jobs of slurm",
            )
