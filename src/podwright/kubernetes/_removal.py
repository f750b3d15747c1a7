"""The operator's end: what jobs hold is given back, then nothing keeps them in the cluster.

A job's finalizer keeps it, and its namespace, until an operator has given its partitions back.
Where the operator is to go, or has gone, this does it in its place: pods end, partitions are given
back, finalizers go. Jobs stay as objects, unless they were deleted; the next operator starts them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from podwright.errors import Denied, Held, NotFound, WrongState
from podwright.kubernetes._ipu_job import IpuJob, JobKey
from podwright.kubernetes._job_partitions import Partitions
from podwright.kubernetes._kube import Kube
from podwright.kubernetes._leader import DURATION
from podwright.kubernetes._operator import Operator
from podwright.kubernetes._reconcile import JobPlan, plan_removal
from podwright.kubernetes._sightings import Holds, PodView, read_pod

_PAUSE_S = 1.0
_PATIENCE_S = 2.0 * DURATION


class Candidate(Protocol):
    """Who may act, if it gets the lease."""

    async def attempt(self) -> bool:
        """Take it; False: it is somebody else's."""
        ...


async def alone(leader: Candidate) -> bool:
    """Return once no operator acts. True: the lease is ours; False: no operator can have it, since
    its namespace is gone, or goes.

    Raises Held where one acts; Denied without the right to know.
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
                asked="podwright kubernetes remove",
                would_work="kubectl -n podwright delete deployment podwright-operator",
            )
        await asyncio.sleep(_PAUSE_S)


async def give_all_back(
    partitions: Partitions, told: Callable[[str], None], namespace: str = ""
) -> int:
    """What jobs hold of a cluster that is no more; how many jobs that were. Its pods are not asked
    for: whoever calls this knows that none runs. Raises PodwrightError."""
    await partitions.refresh()
    keys = [key for key in partitions.holders().values() if namespace in ("", key.namespace)]
    for key in keys:
        for holds in partitions.held(key.uid).values():
            await partitions.give_back(holds.name)
            told(f"job {key.namespace}/{key.name}: {holds.name} is given back")
    return len(keys)


class Removal:
    """namespace: only jobs of this; empty: all. told: a line of what was done."""

    def __init__(
        self,
        kube: Kube,
        partitions: Partitions,
        told: Callable[[str], None],
        *,
        namespace: str = "",
    ) -> None:
        self._kube, self._partitions, self._told = kube, partitions, told
        self._namespace = namespace
        self._operator = Operator(
            kube, partitions, wall=time.time, clock=time.monotonic, decide=_decide
        )

    async def run(self, pause_s: float = _PAUSE_S) -> int:
        """Until nothing is left; how many jobs that were. Raises PodwrightError where a controller
        or the API server does not answer."""
        done: set[JobKey] = set()
        said: dict[JobKey, str] = {}
        while True:
            await self._partitions.refresh()
            left = await self._left()
            for key in said.keys() - left:
                self._told(f"job {key.namespace}/{key.name}: nothing is left")
                del said[key]
            if not left:
                return len(done)
            for key in left:
                done.add(key)
                said.setdefault(key, "")
                try:
                    await self._operator.reconcile(key)
                except WrongState:
                    continue  # somebody changed it meanwhile
                words = await self._waits(key)
                if words and words != said[key]:
                    self._told(f"job {key.namespace}/{key.name}: {words}")
                    said[key] = words
            await asyncio.sleep(pause_s)

    async def _left(self) -> set[JobKey]:
        """Jobs that hold something, or are held by a finalizer."""
        held = {
            key
            for key in self._partitions.holders().values()
            if self._namespace in ("", key.namespace)
        }
        for item in await self._kube.jobs():
            meta = item["metadata"]
            if any("graphcore.ai" in mark for mark in meta.get("finalizers") or ()):
                held.add(JobKey(meta["namespace"], meta["name"], meta["uid"]))
        return held

    async def _waits(self, key: JobKey) -> str:
        """For which pods it waits: what may run keeps its devices."""
        pods = [read_pod(pod) for pod in await self._kube.pods(key.namespace, key.uid)]
        live = [f"{pod.name} on {pod.node}" for pod in pods if pod.live and pod.node]
        return f"waits for the end of {', '.join(live)}" if live else ""


def _decide(
    job: IpuJob,
    pods: Sequence[PodView],
    held: Mapping[int, Holds],
    now: float,
    **_: Any,
) -> JobPlan:
    return plan_removal(job, pods, held, now)
