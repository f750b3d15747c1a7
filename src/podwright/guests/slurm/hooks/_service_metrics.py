"""The service's figures for Prometheus, computed from the state that an administrator sees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from podwright.http import Figure

#: What each counter of the service counts since its start (`ServiceFigures`).
_FIGURE_DESCRIPTIONS: Final = {
    "begun": "Jobs that got devices.",
    "ended": "Jobs whose devices were given back.",
    "held": "Jobs that were held, since their request and their licences differ.",
    "proven": "Job steps that began with their devices.",
    "unproven": "Job steps that were ended, since their job did not hold its devices.",
    "bare": "Jobs that ran without the devices that they asked for.",
    "waited": "Jobs that waited in their prolog for devices of the right shape.",
    "waited_s": "Seconds that jobs waited in their prologs.",
    "refused": "Jobs that were sent away.",
    "moved": "Jobs that moved to other devices.",
    "stayed": "Plans of moves that were given up.",
    "preempted": "Jobs that ended for an urgent job that waited for devices.",
    "swept": "Partitions that the sweep ended, since no hook had.",
}


def figures(mode: str, state: Mapping[str, Any]) -> Iterable[Figure]:
    """Yield the figures of a service. mode: the way of scheduling; state: what `Post.state`
    returns.
    """
    yield Figure("slurm_mode", "1: the way in which Slurm schedules devices.", 1, {"mode": mode})
    help_text = "1: this service answers hooks; 0: it begins, or stands by."
    yield Figure("slurm_active", help_text, int(bool(state.get("ready", True))))
    yield Figure(
        "slurm_counts_current",
        "1: Slurm has been told how many devices may be given out.",
        int(not state.get("problem")),
    )
    for counter_name, counter_value in state.get("figures", {}).items():
        metric_name = (
            "slurm_waited_seconds" if counter_name == "waited_s" else f"slurm_jobs_{counter_name}"
        )
        yield Figure(
            metric_name,
            _FIGURE_DESCRIPTIONS.get(counter_name, counter_name),
            counter_value,
            total=True,
        )
    for device_type, pod_state in state.get("pods", {}).items():
        yield from _pod_figures(device_type, pod_state)


def _pod_figures(device_type: str, pod_state: Mapping[str, Any]) -> Iterator[Figure]:
    devices_by_job: Mapping[str, int] = pod_state["held"]
    # Scraped data already have a label `pod`, and the Slurm of one pod may have several types of
    # devices. So the label here is `type`.
    labels = {"type": device_type}
    yield Figure(
        "slurm_devices", "Devices of the pod that Slurm schedules.", pod_state["devices"], labels
    )
    yield Figure(
        "slurm_devices_held", "Devices that jobs hold.", sum(devices_by_job.values()), labels
    )
    yield Figure("slurm_jobs_holding", "Jobs that hold devices.", len(devices_by_job), labels)
    emptied_devices = pod_state["emptied_for_a_large_job"]
    yield Figure(
        "slurm_devices_emptied", "Devices kept for the first in the queue.", emptied_devices, labels
    )
    for size, free_devices in pod_state["free_together"].items():
        help_text = "Free devices that lie in whole blocks of this size."
        yield Figure(
            "slurm_devices_free_in_blocks", help_text, free_devices, {**labels, "size": size}
        )
