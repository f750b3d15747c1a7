"""Removes the operator's marks: what jobs hold is given back, and then nothing keeps them in the
cluster.

A job's finalizer keeps it, and its namespace, until an operator has given its partitions back.
Where the operator is to be removed, or is gone already, this does the work in its place: pods end,
partitions are given back, and finalizers are removed. The jobs themselves stay as objects, unless
they were deleted. The next operator starts them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from podwright.errors import Denied, Held, NotFound, WrongState
from podwright.guests.kubernetes.cluster._kube_interface import Kube
from podwright.guests.kubernetes.cluster._leader import LEASE_SECONDS
from podwright.guests.kubernetes.job._ipu_job import IpuJob, JobKey
from podwright.guests.kubernetes.job._observed_pods import Holds, PodView, read_pod
from podwright.guests.kubernetes.job._reconcile import JobPlan, plan_removal
from podwright.guests.kubernetes.operator._operator import Operator
from podwright.guests.kubernetes.partitions._job_partitions import Partitions

_POLL_PAUSE_S = 1.0
_OPERATOR_WAIT_S = 2.0 * LEASE_SECONDS


class LeaseCandidate(Protocol):
    """A candidate for the lease, which may act if it gets it."""

    async def attempt(self) -> bool:
        """Take the lease. Return False if it is somebody else's."""
        ...


async def alone(lease_candidate: LeaseCandidate) -> bool:
    """Return once no operator acts.

    Returns True if the lease is ours, and False if no operator can have it, because its namespace
    is gone or is being removed. Raises Held where an operator acts, and Denied without the right to
    find out.
    """
    deadline = time.monotonic() + _OPERATOR_WAIT_S
    while True:
        try:
            if await lease_candidate.attempt():
                return True
        except NotFound:
            return False
        except Denied as error:
            if "being terminated" not in str(error):
                raise
            return False
        if time.monotonic() > deadline:
            raise Held(
                "an operator acts: it holds the lease, and renews it",
                operation="podwright kubernetes remove",
                would_work="kubectl -n podwright delete deployment podwright-operator",
            )
        await asyncio.sleep(_POLL_PAUSE_S)


async def give_all_back(
    partitions: Partitions, report_progress: Callable[[str], None], namespace: str = ""
) -> int:
    """Give back what jobs of a cluster hold that no longer exists, and return the number of jobs.

    Pods are not looked for: the caller knows that none runs. Raises PodwrightError.
    """
    await partitions.refresh()
    job_keys = [key for key in partitions.holders().values() if namespace in ("", key.namespace)]
    for job_key in job_keys:
        for partition in partitions.holdings_of(job_key.uid).values():
            await partitions.give_back(partition.name)
            report_progress(
                f"job {job_key.namespace}/{job_key.name}: {partition.name} is given back"
            )
    return len(job_keys)


class Removal:
    """Removes jobs.

    namespace: only jobs of this one; empty: of all. progress: called with a line for each thing
    done.
    """

    def __init__(
        self,
        kube: Kube,
        partitions: Partitions,
        progress: Callable[[str], None],
        *,
        namespace: str = "",
    ) -> None:
        self._kube, self._partitions, self._progress = kube, partitions, progress
        self._namespace = namespace
        self._operator = Operator(
            kube, partitions, wall=time.time, clock=time.monotonic, decide=_decide_removal
        )

    async def run(self, pause_s: float = _POLL_PAUSE_S) -> int:
        """Work until nothing is left, and return the number of jobs.

        Raises PodwrightError where a controller or the API server does not answer.
        """
        jobs_seen: set[JobKey] = set()
        reported_waits: dict[JobKey, str] = {}
        while True:
            await self._partitions.refresh()
            remaining_jobs = await self._remaining_jobs()
            for job_key in reported_waits.keys() - remaining_jobs:
                self._progress(f"job {job_key.namespace}/{job_key.name}: nothing is left")
                del reported_waits[job_key]
            if not remaining_jobs:
                return len(jobs_seen)
            for job_key in remaining_jobs:
                jobs_seen.add(job_key)
                reported_waits.setdefault(job_key, "")
                try:
                    await self._operator.reconcile(job_key)
                except WrongState:
                    continue  # it was changed meanwhile
                wait_reason = await self._waiting_reason(job_key)
                if wait_reason and wait_reason != reported_waits[job_key]:
                    self._progress(f"job {job_key.namespace}/{job_key.name}: {wait_reason}")
                    reported_waits[job_key] = wait_reason
            await asyncio.sleep(pause_s)

    async def _remaining_jobs(self) -> set[JobKey]:
        """Return the jobs that hold something or have a finalizer of the operator."""
        remaining_jobs = {
            key
            for key in self._partitions.holders().values()
            if self._namespace in ("", key.namespace)
        }
        for job_object in await self._kube.jobs():
            metadata = job_object["metadata"]
            if any("graphcore.ai" in finalizer for finalizer in metadata.get("finalizers") or ()):
                remaining_jobs.add(JobKey(metadata["namespace"], metadata["name"], metadata["uid"]))
        return remaining_jobs

    async def _waiting_reason(self, job_key: JobKey) -> str:
        """Return which pods the job waits for, in words, or "". Pods that may still run keep their
        devices.
        """
        views = [read_pod(pod) for pod in await self._kube.pods(job_key.namespace, job_key.uid)]
        live_pods = [f"{pod.name} on {pod.node}" for pod in views if pod.live and pod.node]
        return f"waits for the end of {', '.join(live_pods)}" if live_pods else ""


def _decide_removal(
    job: IpuJob,
    pod_views: Sequence[PodView],
    held_partitions: Mapping[int, Holds],
    now: float,
    **_: Any,
) -> JobPlan:
    return plan_removal(job, pod_views, held_partitions, now)
