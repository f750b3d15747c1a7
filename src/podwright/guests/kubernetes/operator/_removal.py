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
from podwright.guests.kubernetes.cluster._kube import Kube
from podwright.guests.kubernetes.cluster._leader import DURATION
from podwright.guests.kubernetes.job._ipu_job import IpuJob, JobKey
from podwright.guests.kubernetes.job._reconcile import JobPlan, plan_removal
from podwright.guests.kubernetes.job._sightings import Holds, PodView, read_pod
from podwright.guests.kubernetes.operator._operator import Operator
from podwright.guests.kubernetes.partitions._job_partitions import Partitions

_PAUSE_S = 1.0
_PATIENCE_S = 2.0 * DURATION


class Candidate(Protocol):
    """A candidate for the lease, which may act if it gets it."""

    async def attempt(self) -> bool:
        """Take the lease. Return False if it is somebody else's."""
        ...


async def alone(leader: Candidate) -> bool:
    """Return once no operator acts.

    Returns True if the lease is ours, and False if no operator can have it, because its namespace
    is gone or is being removed. Raises Held where an operator acts, and Denied without the right to
    find out.
    """
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if await leader.attempt():
                return True
        except NotFound:
            return False
        except Denied as error:
            if "being terminated" not in str(error):
                raise
            return False
        if time.monotonic() > end:
            raise Held(
                "an operator acts: it holds the lease, and renews it",
                operation="podwright kubernetes remove",
                would_work="kubectl -n podwright delete deployment podwright-operator",
            )
        await asyncio.sleep(_PAUSE_S)


async def give_all_back(
    partitions: Partitions, progress: Callable[[str], None], namespace: str = ""
) -> int:
    """Give back what jobs of a cluster hold that no longer exists, and return the number of jobs.

    Pods are not looked for: the caller knows that none runs. Raises PodwrightError.
    """
    await partitions.refresh()
    keys = [key for key in partitions.holders().values() if namespace in ("", key.namespace)]
    for key in keys:
        for holding in partitions.holdings_of(key.uid).values():
            await partitions.give_back(holding.name)
            progress(f"job {key.namespace}/{key.name}: {holding.name} is given back")
    return len(keys)


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
            kube, partitions, wall=time.time, clock=time.monotonic, decide=_decide
        )

    async def run(self, pause_s: float = _PAUSE_S) -> int:
        """Work until nothing is left, and return the number of jobs.

        Raises PodwrightError where a controller or the API server does not answer.
        """
        done: set[JobKey] = set()
        reported: dict[JobKey, str] = {}
        while True:
            await self._partitions.refresh()
            left = await self._left()
            for key in reported.keys() - left:
                self._progress(f"job {key.namespace}/{key.name}: nothing is left")
                del reported[key]
            if not left:
                return len(done)
            for key in left:
                done.add(key)
                reported.setdefault(key, "")
                try:
                    await self._operator.reconcile(key)
                except WrongState:
                    continue  # it was changed meanwhile
                words = await self._waits(key)
                if words and words != reported[key]:
                    self._progress(f"job {key.namespace}/{key.name}: {words}")
                    reported[key] = words
            await asyncio.sleep(pause_s)

    async def _left(self) -> set[JobKey]:
        """Return the jobs that hold something or have a finalizer of the operator."""
        holders = {
            key
            for key in self._partitions.holders().values()
            if self._namespace in ("", key.namespace)
        }
        for item in await self._kube.jobs():
            meta = item["metadata"]
            if any("graphcore.ai" in mark for mark in meta.get("finalizers") or ()):
                holders.add(JobKey(meta["namespace"], meta["name"], meta["uid"]))
        return holders

    async def _waits(self, key: JobKey) -> str:
        """Return which pods the job waits for, in words, or "". Pods that may still run keep their
        devices.
        """
        pods = [read_pod(pod) for pod in await self._kube.pods(key.namespace, key.uid)]
        live = [f"{pod.name} on {pod.node}" for pod in pods if pod.live and pod.node]
        return f"waits for the end of {', '.join(live)}" if live else ""


def _decide(
    job: IpuJob,
    pods: Sequence[PodView],
    holdings: Mapping[int, Holds],
    now: float,
    **_: Any,
) -> JobPlan:
    return plan_removal(job, pods, holdings, now)
