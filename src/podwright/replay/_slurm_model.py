"""The model of Slurm: its settings, and a list of what is simpler than in the real one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from podwright.replay.traces._parse_sacct_values import duration

SIMPLER = (
    "The main scheduler looks at the queue at each submission and each end, with no pause between "
    "(sched_min_interval, batch_sched_delay), and to its full depth.",
    "A job that lacks licences (devices of a pod) is passed; one that lacks nodes stops the main "
    "scheduler, and backfill goes on behind it: as job_scheduler.c and backfill.c of 22.05 do.",
    "Backfill counts free nodes over time and not which ones they are.",
    "Jobs that were cancelled before they began are not in the queue.",
    "Components of a heterogeneous job are jobs of their own, and need not start together.",
    "Tasks of an array are jobs of their own, as sacct lists them.",
    "Dependencies bind only where the trace names them; sacct does not, so a job counts as "
    "waiting from when Slurm found it eligible.",
    "Priorities are reckoned anew: age, size, and fair share among users of equal shares "
    "(ranked by decayed use, as Fair Tree does in one account). Quality of service, partitions "
    "and associations' limits are not known.",
    "No job is preempted, suspended or resized, and there are no reservations.",
)


#: By the kind of a way: the deviation from a real Slurm that exceeded its bound. The report prints
#: the line of each kind that is replayed. tests/outer/slurm/test_replay.py makes the comparison.
#: Each bound is the largest deviation of three real Slurms from each other, plus 5 %. Remove a line
#: only when that test passes on a quiet machine.
DEVIATIONS = {
    "static": "The model's mean wait was 9.5 % from that of a real Slurm 22.05 with static "
    "partitions, where 5.8 % are allowed: read no meaning into smaller differences of mean waits.",
    "host-mapping": "The model's mean wait was 8.9 % from that of a real Slurm 22.05 with host "
    "mapping, where 6.4 % are allowed: read no meaning into smaller differences of mean waits.",
}


@dataclass(frozen=True)
class SlurmModel:
    """Slurm's settings, in seconds, with Slurm's defaults.

    weight_*: of the multifactor plugin; all 0: first come, first served. room_s: after how long a
    block is emptied for the first job in the queue (`--room-after` of `podwright slurm configure`);
    0: never. sweep_s: how often the service checks that. overhead_s: how much longer than its
    program a job holds its devices.
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
        """Whether the order may differ from that of submission."""
        return bool(self.weight_age or self.weight_size or self.weight_fairshare)


_SCHEDULER_FIELDS = {
    "bf_interval": ("bf_interval", 1.0),
    "bf_window": ("bf_window", 60.0),
    "bf_resolution": ("bf_resolution", 1.0),
    "bf_max_job_test": ("bf_max_job_test", 1),
    "bf_max_job_start": ("bf_max_job_start", 1),
    "bf_max_job_user": ("bf_max_job_user", 1),
}
_WEIGHT_FIELDS = {
    "priorityweightage": "weight_age",
    "priorityweightjobsize": "weight_size",
    "priorityweightfairshare": "weight_fairshare",
}
_TIME_FIELDS = {
    "prioritymaxage": "max_age",
    "prioritydecayhalflife": "half_life",
    "prioritycalcperiod": "calc_period",
}


def from_conf(settings: Mapping[str, str], base_model: SlurmModel | None = None) -> SlurmModel:
    """Return the model of a site's slurm.conf. settings: by lower-case name.

    Raises ValueError for text that is not a number where one belongs.
    """
    field_values: dict[str, float | int | bool] = {}
    for parameter in settings.get("schedulerparameters", "").lower().split(","):
        parameter_name, _, parameter_value = parameter.strip().partition("=")
        if parameter_name in _SCHEDULER_FIELDS and parameter_value:
            field, unit_seconds = _SCHEDULER_FIELDS[parameter_name]
            field_values[field] = (
                int(parameter_value)
                if isinstance(unit_seconds, int)
                else float(parameter_value) * unit_seconds
            )
    if settings.get("prioritytype", "priority/multifactor").lower() == "priority/multifactor":
        field_values |= {
            _WEIGHT_FIELDS[setting_name]: float(settings[setting_name])
            for setting_name in _WEIGHT_FIELDS
            if setting_name in settings
        }
    field_values |= {
        field: duration(settings[setting_name])
        for setting_name, field in _TIME_FIELDS.items()
        if setting_name in settings
    }
    field_values["favor_small"] = settings.get("priorityfavorsmall", "no").lower() in (
        "yes",
        "true",
        "1",
    )
    return replace(base_model or SlurmModel(), **field_values)  # type: ignore[arg-type]
