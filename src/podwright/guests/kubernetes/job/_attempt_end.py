"""Whether a job's attempt is over, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from podwright.guests.kubernetes.job._ipu_job import IpuJob
from podwright.guests.kubernetes.job._observed_pods import LAUNCHER, WORKER, Holds, PodView


class AttemptEnd(NamedTuple):
    """How an attempt ended. code: the program's; None: it was not the program."""

    failed: bool
    words: str
    reason: str
    code: int | None = None


def end_of(
    job: IpuJob, pods: Sequence[PodView], holdings: Mapping[int, Holds]
) -> AttemptEnd | None:
    """How it ended; None: it goes on. pods: those of this attempt."""
    deciding_role = LAUNCHER if job.launcher is not None else WORKER
    for pod in pods:  # the programs' own word comes first
        if pod.phase == "Failed" and pod.role == deciding_role and pod.code is not None:
            end_words = f"{pod.name} ended with exit code {pod.code}"
            return AttemptEnd(True, end_words, "ExitCode", pod.code)
    for pod in pods:
        holding = holdings.get(pod.instance)
        if pod.live and (holding is None or holding.state == "GONE"):
            return AttemptEnd(True, f"{pod.name} has lost its partition", "PartitionLost")
        if pod.live and holding is not None and holding.state == "ERROR":
            return AttemptEnd(
                True, f"partition {holding.name}: {holding.problem}", "PartitionError"
            )
        if pod.live and holding is not None and pod.partition not in ("", holding.name):
            return AttemptEnd(
                True, f"{pod.name} was started for another partition", "PartitionLost"
            )
        if pod.lost and pod.deleting:  # Kubernetes waits no longer: tolerationSeconds are over
            return AttemptEnd(True, f"node {pod.node} of {pod.name} does not answer", "NodeLost")
        if pod.phase == "Failed":
            exit_text = f"with exit code {pod.code}" if pod.code is not None else pod.note
            return AttemptEnd(True, f"{pod.name} failed {exit_text}".rstrip(), "PodFailed")
    done_instances = {
        instance
        for instance in range(job.instances)
        if _all_succeeded(
            [pod for pod in pods if pod.instance == instance and pod.role == deciding_role],
            job,
            deciding_role,
        )
    }
    if job.instances and len(done_instances) == job.instances:
        return AttemptEnd(False, "All instances done", "Completed")
    return None


def _all_succeeded(pods: Sequence[PodView], job: IpuJob, deciding_role: str) -> bool:
    count = 1 if deciding_role == LAUNCHER else job.workers
    return len(pods) == count and all(pod.phase == "Succeeded" for pod in pods)
