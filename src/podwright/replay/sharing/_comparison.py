"""Compares a pod that guests share with the same pod split among them: who gains, and who loses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NotRequired, TypedDict

from podwright.errors import InvalidRequest
from podwright.replay._advice import duration
from podwright.replay._figures import bounded_slowdowns, spread
from podwright.replay._outcome import Outcome
from podwright.replay._parallel import run_each
from podwright.replay._ranking import Measures, clearly_better, trace_noise
from podwright.replay._report_values import Spread, TraceFigures
from podwright.replay.sharing._parts import split
from podwright.replay.sharing._shared_guest import KUBERNETES, PEOPLE, SLURM, SharedGuest
from podwright.replay.sharing._simulate_shared import LOOK_S, simulate_shared
from podwright.replay.traces._offered_load import offered_load, stretch_for, stretched

Progress = Callable[[int, int], None]

COMMON: Final = "common queue"
SEPARATE: Final = "separate parts"
UNSHARED: Final = "no common queue"

SIMPLER: Final = (
    "A scheduler starts its jobs first come, first served, and any that fits. Priorities, "
    "backfill, hosts and quotas are not in the model, and no machine fails.",
    f"A scheduler looks every {LOOK_S:g} s. Starting a job, ending it and resetting its devices "
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
    shares = split(devices, weights, parts)
    guests = _at_load(_aligned(guests), devices, at_load)
    together = tuple(guests)
    simulations = [SharedSimulation(COMMON, together, devices)]
    simulations += [
        SharedSimulation(f"{SEPARATE}, {guest.name}", (guest,), shares[guest.name])
        for guest in guests
    ]
    simulations.append(SharedSimulation(UNSHARED, together, devices, common_queue=False))
    results = run_each(simulations, processes=processes, progress=progress)
    outcomes = {
        COMMON: results[0],
        SEPARATE: [outcome for alone in results[1:-1] for outcome in alone],
        UNSHARED: results[-1],
    }
    return {
        "devices": devices,
        "load": offered_load([g.trace for g in guests], [g.begin for g in guests], devices),
        "guests": [_about(guest, shares[guest.name]) for guest in guests],
        "setups": _setups(guests, devices, outcomes),
        "who_gains": [
            _verdict(
                guest,
                shares[guest.name],
                outcomes[COMMON][guest_index],
                outcomes[SEPARATE][guest_index],
            )
            for guest_index, guest in enumerate(guests)
        ],
        "simpler": list(SIMPLER),
    }


def _aligned(guests: Sequence[SharedGuest]) -> list[SharedGuest]:
    """Return the guests on one clock: by their dates if all traces have dates and overlap, and
    else all from the same moment on.
    """
    epochs = [guest.trace.epoch for guest in guests]
    first = min(epochs)
    last_begin, first_end = max(epochs), min(g.trace.epoch + g.trace.span for g in guests)
    dated = first > 0 and last_begin <= first_end
    return [replace(guest, begin=guest.trace.epoch - first if dated else 0.0) for guest in guests]


def _at_load(
    guests: Sequence[SharedGuest], devices: int, target: float | None
) -> list[SharedGuest]:
    if target is None:
        return list(guests)
    first_times = [guest.begin for guest in guests]
    factor = stretch_for([guest.trace for guest in guests], first_times, devices, target)
    return [
        replace(guest, trace=stretched(guest.trace, factor), begin=guest.begin * factor)
        for guest in guests
    ]


def _about(guest: SharedGuest, part: int) -> GuestFigures:
    trace = guest.trace
    return {
        "guest": guest.name,
        "weight": guest.weight,
        "part": part,
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


def _setups(
    guests: Sequence[SharedGuest], devices: int, outcomes: Mapping[str, Sequence[Outcome]]
) -> list[SetupFigures]:
    """Return the figures of each guest in each setup. Waits are of the jobs that run in all."""
    window = max(1.0, max(guest.last_submission for guest in guests))
    rows: list[SetupFigures] = []
    for setup, of_guests in outcomes.items():
        used_by_all = 0.0
        for guest_index, (guest, outcome) in enumerate(zip(guests, of_guests, strict=True)):
            jobs = _ran([of_setup[guest_index] for of_setup in outcomes.values()])
            used = _used(guest, outcome, window) / (devices * window)
            used_by_all += used
            waits = _waits(guest, outcome, jobs)
            rows.append(
                {
                    "setup": setup,
                    "guest": guest.name,
                    "devices": outcome.size,
                    "jobs": len(_ran([outcome])),
                    "refused": dict(sorted(outcome.refused.items())),
                    "refused_device_hours": outcome.refused_seconds / 3600,
                    "used": used,
                    "compared_jobs": len(jobs),
                    "wait": {**spread(waits), "longest": max(waits, default=0.0)},
                    "bounded_slowdown": spread(bounded_slowdowns(guest.trace, jobs, waits)),
                }
            )
        rows.append({"setup": setup, "guest": "", "devices": devices, "used": used_by_all})
    return rows


def _ran(outcomes: Sequence[Outcome]) -> list[int]:
    """Return the jobs that ran in all of these."""
    return [
        job
        for job in range(len(outcomes[0].start_times))
        if not any(math.isnan(outcome.start_times[job]) for outcome in outcomes)
    ]


def _waits(guest: SharedGuest, outcome: Outcome, jobs: Sequence[int]) -> list[float]:
    eligible = guest.trace.eligible if outcome.eligible is None else outcome.eligible
    return [max(0.0, outcome.start_times[job] - eligible[job]) for job in jobs]


def _used(guest: SharedGuest, outcome: Outcome, window: float) -> float:
    """Return the device-seconds that a guest's jobs asked for and had until the last submission of
    all guests.
    """
    local = window - guest.begin
    return sum(
        guest.trace.devices[job]
        * (min(local, outcome.end_times[job]) - min(local, outcome.start_times[job]))
        for job in _ran([outcome])
    )


# -- who gains -------------------------------------------------------------------------------


def _verdict(guest: SharedGuest, part: int, shared: Outcome, alone: Outcome) -> GuestVerdict:
    """Return whether a guest gains or loses by the common queue, against a part of its own.

    Waits and slowdowns decide. How much of its work is done by its last submission depends on that
    one moment, so it is only reported.
    """
    jobs = _ran([shared, alone])
    rows = [_measures(guest, outcome, jobs) for outcome in (shared, alone)]
    noise = trace_noise(guest.trace, (shared, alone))
    _, *shorter = clearly_better(rows[0], rows[1], noise)
    _, *longer = clearly_better(rows[1], rows[0], noise)
    more = sum(shared.refused.values()) < sum(alone.refused.values())
    verdict = {
        (True, False): "gains",
        (False, True): "loses",
        (True, True): "gains and loses",
        (False, False): "no clear difference",
    }[any(shorter) or more, any(longer)]
    return {
        "guest": guest.name,
        "verdict": verdict,
        "why": _reason(guest, part, (shared, alone), rows, noise),
        "noise": {
            name: size if size < math.inf else None for name, size in noise._asdict().items()
        },
    }


def _measures(guest: SharedGuest, outcome: Outcome, jobs: Sequence[int]) -> Measures:
    waits = _waits(guest, outcome, jobs)
    slow = bounded_slowdowns(guest.trace, jobs, waits)
    window = max(1.0, guest.trace.span)
    used = _used(guest, outcome, window + guest.begin)
    return Measures(
        used / max(1.0, guest.trace.device_seconds), spread(waits)["mean"], spread(slow)["mean"]
    )


def _reason(
    guest: SharedGuest,
    part: int,
    outcomes: tuple[Outcome, Outcome],
    rows: Sequence[Measures],
    noise: Measures,
) -> str:
    shared, alone = rows
    words = (
        f"a mean wait of {duration(shared.wait)} beside the others, and {duration(alone.wait)} "
        f"alone on {part} devices; a mean slowdown of {shared.slowdown:.3g} and "
        f"{alone.slowdown:.3g}; {shared.used:.1%} and {alone.used:.1%} of its work done by its "
        "last submission"
    )
    refused = sum(outcomes[1].refused.values()) - sum(outcomes[0].refused.values())
    if refused > 0:
        words += f"; {refused} of its jobs are too large for that part"
    if math.isinf(noise.wait):
        return f"{words}. These are too few jobs to tell a difference from chance."
    return (
        f"{words}. Differences of up to {duration(noise.wait)} and {noise.slowdown:.2g} are within "
        "this trace's noise."
    )


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidRequest for a name that no guest of a pod has, or that two traces have."""
    for name in names:
        cluster = name.removeprefix("kubernetes ").strip()
        known = name in (SLURM, KUBERNETES, PEOPLE)
        if not (known or (cluster and cluster != name and name.isprintable())):
            raise InvalidRequest(
                f"{name[:80]!r} is not a guest of a pod",
                operation="--with",
                would_work="kubernetes=FILE, 'kubernetes NAME=FILE' or people=FILE",
            )
        if names.count(name) > 1:
            raise InvalidRequest(
                f"there are two traces of {name}",
                operation="--with",
                would_work="one trace for each guest; TRACE has the jobs of slurm",
            )
