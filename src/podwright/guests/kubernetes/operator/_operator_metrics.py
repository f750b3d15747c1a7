"""What the operator counts and shows at /metrics, and its probes.

`/readyz` fails as long as a watch is deaf, or the last call had no answer. `/livez` fails when a
watch has been deaf for FAILING_DEAF_SECONDS, so that the kubelet starts an operator again that
cannot help itself. An operator that waits for the lease watches nothing, and is ready and alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from podwright.guests.kubernetes.cluster._kube_watch import KindWatch
from podwright.http import Figure

FAILING_DEAF_SECONDS: Final = 120.0


@dataclass
class OperatorCounts:
    """states: the state of each job that exists, by uid. waits: jobs whose first pods were made,
    and wait_s the seconds from their creation to that. reconcile_s: seconds of all
    reconciliations.
    """

    states: dict[str, str] = field(default_factory=dict)
    waits: int = 0
    wait_s: float = 0.0
    reconciles: int = 0
    reconcile_s: float = 0.0
    errors: int = 0


def figures(
    counts: OperatorCounts, watches: Sequence[KindWatch], *, writes: int, acts: bool, now: float
) -> Iterable[Figure]:
    """Return what /metrics shows. writes: changes requested of the API server. acts: whether this
    operator has the lease. now: by the clock of the watches.
    """
    yield Figure("operator_acts", "1 where this operator has the lease.", float(acts))
    for job_state, jobs_in_state in sorted(Counter(counts.states.values()).items()):
        yield Figure("operator_jobs", "IPUJobs by state.", jobs_in_state, {"state": job_state})
    for watch in watches:
        deaf_seconds = 0.0 if watch.deaf_since is None else now - watch.deaf_since
        help_text = "Seconds for which no change of this kind would have been noticed."
        yield Figure("operator_watch_deaf_seconds", help_text, deaf_seconds, {"kind": watch.kind})
    for metric_name, help_text, metric_value in (
        ("operator_job_waits", "Jobs whose first pods were made.", counts.waits),
        ("operator_job_wait_seconds", "From their creation to their first pods.", counts.wait_s),
        ("operator_reconciles", "Reconciliations of a job.", counts.reconciles),
        ("operator_reconcile_seconds", "Time of all reconciliations.", counts.reconcile_s),
        ("operator_reconcile_errors", "Those that ended with an error.", counts.errors),
        ("operator_api_writes", "Changes requested of the API server.", writes),
    ):
        yield Figure(metric_name, help_text, float(metric_value), total=True)


def deaf(watches: Sequence[KindWatch], now: float, least_seconds: float = 0.0) -> str:
    """Return a line for each watch that has been deaf for `least_seconds` seconds; none: ""."""
    deaf_watches = [
        (watch, now - watch.deaf_since) for watch in watches if watch.deaf_since is not None
    ]
    return "".join(
        f"watch of {watch.kind}: nothing heard for {deaf_seconds:.0f} s: {watch.problem}\n"
        for watch, deaf_seconds in deaf_watches
        if deaf_seconds >= least_seconds
    )
