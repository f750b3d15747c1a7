"""Slurm as the simulation has it: its settings, and in words what is simpler than the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from podwright.replay._tres import duration

SIMPLER = (
    "The main scheduler looks at the queue at each submission and each end, with no pause between "
    "(sched_min_interval, batch_sched_delay), and to its full depth.",
    "A job that lacks licences (devices of a pod) is passed; one that lacks nodes stops the main "
    "scheduler, and backfill goes on behind it: as job_scheduler.c and backfill.c of 22.05 do.",
    "Backfill counts free nodes (GPU nodes: free GPUs) over time and not which ones they are.",
    "Jobs that were cancelled before they began are not in the queue.",
    "Components of a heterogeneous job are one job with the devices of all.",
    "Tasks of an array are jobs of their own, as sacct lists them.",
    "Dependencies bind only where the trace names them; sacct does not, so a job counts as "
    "waiting from when Slurm found it eligible.",
    "Priorities are reckoned anew: age, size, and fair share among users of equal shares "
    "(ranked by decayed use, as Fair Tree does in one account). Quality of service, partitions "
    "and associations' limits are not known.",
    "No job is preempted, suspended or resized, and there are no reservations.",
)


@dataclass(frozen=True)
class SlurmModel:
    """Slurm's settings, in seconds, with Slurm's defaults.

    weight_*: of the multifactor plugin; all 0: first come, first served. room_s: after how long
    the first job in the queue has a block emptied for it (`--room-after` of `podwright slurm
    configure`); 0: never. sweep_s: how often the service looks for that. overhead_s: how much
    longer than its program a job holds its devices.
    """

    bf_interval: float = 30.0
    bf_window: float = 86400.0
    bf_resolution: float = 60.0
    bf_max_job_test: int = 10_000
    bf_max_job_start: int = 0
    bf_max_job_user: int = 0
    weight_age: float = 0.0
    weight_size: float = 0.0
    weight_fairshare: float = 0.0
    max_age: float = 7 * 86400.0
    half_life: float = 7 * 86400.0
    calc_period: float = 300.0
    favor_small: bool = False
    room_s: float = 300.0
    sweep_s: float = 10.0
    overhead_s: float = 0.0

    @property
    def ranks(self) -> bool:
        """Is the order another than that of submission?"""
        return bool(self.weight_age or self.weight_size or self.weight_fairshare)


_SCHEDULER = {
    "bf_interval": ("bf_interval", 1.0),
    "bf_window": ("bf_window", 60.0),
    "bf_resolution": ("bf_resolution", 1.0),
    "bf_max_job_test": ("bf_max_job_test", 1),
    "bf_max_job_start": ("bf_max_job_start", 1),
    "bf_max_job_user": ("bf_max_job_user", 1),
}
_WEIGHTS = {
    "priorityweightage": "weight_age",
    "priorityweightjobsize": "weight_size",
    "priorityweightfairshare": "weight_fairshare",
}
_TIMES = {
    "prioritymaxage": "max_age",
    "prioritydecayhalflife": "half_life",
    "prioritycalcperiod": "calc_period",
}


def from_conf(settings: Mapping[str, str], base: SlurmModel | None = None) -> SlurmModel:
    """The model of a site's slurm.conf. settings: by lower-case name. Raises ValueError for a
    number that is none."""
    found: dict[str, float | int | bool] = {}
    for word in settings.get("schedulerparameters", "").lower().split(","):
        name, _, value = word.strip().partition("=")
        if name in _SCHEDULER and value:
            field, unit = _SCHEDULER[name]
            found[field] = int(value) if isinstance(unit, int) else float(value) * unit
    if settings.get("prioritytype", "priority/multifactor").lower() == "priority/multifactor":
        found |= {_WEIGHTS[key]: float(settings[key]) for key in _WEIGHTS if key in settings}
    found |= {field: duration(settings[key]) for key, field in _TIMES.items() if key in settings}
    found["favor_small"] = settings.get("priorityfavorsmall", "no").lower() in ("yes", "true", "1")
    return replace(base or SlurmModel(), **found)  # type: ignore[arg-type]
