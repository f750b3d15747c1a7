"""The operator: reads the state of the cluster, lets `plan` decide, and carries the plan out.

It keeps no state that it could not read again. Jobs and pods are read from the API server before
each decision, and partitions from the controllers every few seconds. So the operator may be killed
at any moment, and two of them may run at once: the names of objects are the same each time, and
each object that is changed is identified by its uid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

from podwright.errors import Denied, PodwrightError
from podwright.guests.kubernetes.cluster._kube import Kube, Object
from podwright.guests.kubernetes.cluster._request_queue import LATER, NOW, SOON, ranked
from podwright.guests.kubernetes.job._crd import KIND
from podwright.guests.kubernetes.job._ipu_job import FINALIZER, IpuJob, JobKey, read_job
from podwright.guests.kubernetes.job._job_events import events_of
from podwright.guests.kubernetes.job._job_keys import build_secret
from podwright.guests.kubernetes.job._reconcile import (
    Adopt,
    EndPod,
    GiveBack,
    JobPlan,
    LetGo,
    MakePod,
    Reset,
    Want,
    plan,
)
from podwright.guests.kubernetes.job._sightings import UID_LABEL, PodView, read_pod
from podwright.guests.kubernetes.operator._operator_metrics import OperatorCounts
from podwright.guests.kubernetes.operator._work_queue import RETRY_S, WorkQueue
from podwright.guests.kubernetes.partitions._job_partitions import Partitions
from podwright.guests.kubernetes.partitions._job_queue import Granted
from podwright.guests.kubernetes.partitions._sites import program_environment
from podwright.guests.kubernetes.pods._exec_rights import exec_rights
from podwright.guests.kubernetes.pods._pod_objects import PodOptions, build_pod, owned_by
from podwright.guests.shared import Locks, Room, until_done

_log = logging.getLogger("podwright.guests.kubernetes")

_STEPS: Final = 8  # steps for one job without a pause


class Operator:
    """Reconciles all jobs of a cluster.

    kube: the cluster. partitions: the partitions of the controllers. wall: returns seconds since
    1970. clock: returns seconds and never goes backwards. refresh_s: seconds between two looks at
    partitions. sweep_s: seconds between two looks at all jobs. room_s: seconds that the first job
    in the queue waits before room is made for it. decide: returns what is to be done for a job.
    counts: what is counted for /metrics.
    """

    def __init__(
        self,
        kube: Kube,
        partitions: Partitions,
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        options: PodOptions | None = None,
        refresh_s: float = 2.0,
        sweep_s: float = 60.0,
        room_s: float = 60.0,
        decide: Callable[..., JobPlan] = plan,
        counts: OperatorCounts | None = None,
    ) -> None:
        self.kube, self.partitions = kube, partitions
        self.options = options or PodOptions()
        self.counts = counts or OperatorCounts()
        self._wall, self._decide = wall, decide
        self._refresh_s, self._sweep_s = refresh_s, sweep_s
        self._locks: Locks[str] = Locks()
        self.jobs = WorkQueue(self.reconcile, wall=wall, clock=clock, counts=self.counts)
        self._nodes: dict[str, set[str]] = {}  # node -> uids of jobs with pods there
        self._taken_names: dict[str, str] = {}  # uid -> the name of its pod that another pod has
        self._created: set[tuple[str, str]] = set()  # uids, each with a secret or right that exists
        self._lost: frozenset[str] = frozenset()
        self._queue_wanted = asyncio.Event()
        self.partitions.room = Room(self.partitions.books, room_s, clock, self._queue_wanted.set)

    async def run(self) -> None:
        """Run until cancelled."""
        await until_done(self._known, RETRY_S, lambda problem: _log.warning("%s", problem))
        loops = [
            asyncio.ensure_future(work)
            for work in (self._watching(), self._refreshing(), self._sweeping(), self._queueing())
        ]
        try:
            await asyncio.gather(*loops)
        finally:
            for loop in loops:
                loop.cancel()
            await self.jobs.stop()  # at once: no loop goes on before nothing can be requested
            await asyncio.gather(*loops, return_exceptions=True)

    # -- what goes on beside -----------------------------------------------------------------

    async def _known(self) -> None:
        """Read what exists, before anything is decided."""
        await self.partitions.refresh()
        await self._look_at_nodes()
        await self._look_at_priorities()

    async def _watching(self) -> None:
        await self.kube.watch(self._on_event)

    def _on_event(self, kind: str, event: str, item: Object) -> None:
        meta = item.get("metadata") or {}
        if kind == KIND:
            self.jobs.poke(JobKey(meta["namespace"], meta["name"], meta["uid"]))
        elif kind == "Pod":
            uid = (meta.get("labels") or {}).get(UID_LABEL, "")
            if key := self.jobs.key_of(uid):
                self.jobs.poke(key)
        elif kind == "Node":
            self._on_node(meta["name"], event != "DELETED" and not _is_lost(item))

    def _on_node(self, name: str, well: bool) -> None:
        before = self._lost
        self._lost = before - {name} if well else before | {name}
        if self._lost != before:
            for uid in self._nodes.get(name, ()):
                if key := self.jobs.key_of(uid):
                    self.jobs.poke(key)

    async def _look_at_nodes(self) -> None:
        nodes = await self.kube.nodes()
        self._lost = frozenset(node["metadata"]["name"] for node in nodes if _is_lost(node))

    async def _look_at_priorities(self) -> None:
        """Read the PriorityClasses. Without the right to read them all jobs have one priority."""
        try:
            priorities = await self.kube.priorities()
        except Denied as error:
            priorities = {"": 0}
            if self.partitions.line.priorities != priorities:
                _log.warning(
                    "priorityClassName of jobs counts for nothing: %s. Apply the manifests of this "
                    "release: podwright kubernetes manifests",
                    error,
                )
        if priorities != self.partitions.line.priorities:
            self.partitions.line.priorities = priorities
            self._queue_wanted.set()

    async def _refreshing(self) -> None:
        last_problem = ""
        while True:
            await asyncio.sleep(self._refresh_s)
            try:
                changed = await self.partitions.refresh()
            except PodwrightError as error:
                if str(error) != last_problem:
                    _log.warning("%s", error)
                last_problem = str(error)
                continue
            last_problem = ""
            for uid in changed:
                if key := self.jobs.key_of(uid) or self.partitions.key_of(uid):
                    self.jobs.poke(key)
            self._queue_wanted.set()

    async def _sweeping(self) -> None:
        while True:
            try:
                await self._sweep()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(self._sweep_s)

    async def _sweep(self) -> None:
        """Reconcile all jobs, and all partitions whose job is gone.

        A partition whose job is gone for good is given back once no pod of the job is left.
        `holders` is read before the jobs. So a partition that is made for a new job meanwhile is
        not taken for one of a job that is gone.
        """
        holders = self.partitions.holders()
        jobs = await self.kube.jobs()
        await self._look_at_nodes()
        await self._look_at_priorities()
        for item in jobs:
            meta = item["metadata"]
            self.jobs.poke(JobKey(meta["namespace"], meta["name"], meta["uid"]))
        uids = {item["metadata"]["uid"] for item in jobs}
        for uid, key in holders.items():
            if uid not in uids:
                self.jobs.poke(key)
        for uid in self.jobs.idle_uids() - uids:
            if uid not in self.partitions.holders():
                self._forget(uid)

    async def _queueing(self) -> None:
        while True:
            await self._queue_wanted.wait()
            self._queue_wanted.clear()
            for granted in self.partitions.grant():
                self.jobs.begin(self._make(granted))
            for key in self.partitions.unexplained():
                self.jobs.poke(key)
            with contextlib.suppress(PodwrightError):
                await self.partitions.report()

    # -- one job -----------------------------------------------------------------------------

    async def reconcile(self, key: JobKey) -> float:
        """Do what a job needs now.

        Returns when to look again although nothing changes, in seconds since 1970, or 0 if that is
        not needed. Raises PodwrightError.
        """
        async with self._locks(key.uid):
            for _ in range(_STEPS):
                with ranked(self._rank(key.uid)):
                    look_at = await self._step(key)
                if look_at is not None:
                    return look_at
        return self._wall() + RETRY_S

    def _rank(self, uid: str) -> int:
        if self.partitions.fresh(uid):
            return NOW
        return SOON if self.partitions.holdings_of(uid) else LATER

    async def _step(self, key: JobKey) -> float | None:
        """Do one step for a job. Return when to look again, or None if another step is due at
        once.
        """
        item = await self.kube.job(key.namespace, key.name)
        if item is None or item["metadata"]["uid"] != key.uid:
            await self._orphaned(key)
            return 0.0
        job = read_job(item)
        # The status says that the job has started before its first pod is made, so a job that has
        # not started has no pods. To find pods, the API server searches the whole namespace.
        objects = await self.kube.pods(key.namespace, key.uid) if job.started else []
        pods = [read_pod(pod, self._lost) for pod in objects]
        self._remember(job, pods)
        waiting_reason = await self.partitions.waiting_reason(job)
        todo = self._decide(
            job,
            pods,
            self.partitions.holdings_of(key.uid),
            self._wall(),
            waiting_reason=waiting_reason,
            fresh=self.partitions.fresh(key.uid),
            taken_name=self._taken_names.get(key.uid, ""),
        )
        return None if await self._do(job, todo) else todo.look_at

    async def _orphaned(self, key: JobKey) -> None:
        """End the pods of a job that is gone, and then give back what it holds. Somebody may have
        removed its finalizer.
        """
        self.partitions.leave(key.uid)
        pods = [read_pod(pod) for pod in await self.kube.pods(key.namespace, key.uid)]
        for pod in pods:
            if not pod.deleting:
                await self.kube.delete_pod(key.namespace, pod.name, pod.uid)
        if any(pod.live for pod in pods):
            self.jobs.later(key, RETRY_S)
            return
        for holding in self.partitions.holdings_of(key.uid).values():
            _log.warning("job %s/%s is gone: %s is given back", *key[:2], holding.name)
            await self._give_back(holding.name)
        self._forget(key.uid)

    def _remember(self, job: IpuJob, pods: list[PodView]) -> None:
        for uids in self._nodes.values():
            uids.discard(job.key.uid)
        for pod in pods:
            if pod.live and pod.node:
                self._nodes.setdefault(pod.node, set()).add(job.key.uid)
            if self._taken_names.get(job.key.uid) == pod.name:
                del self._taken_names[job.key.uid]  # the pod of that name is the job's own

    def _forget(self, uid: str) -> None:
        self.jobs.forget(uid)
        self._created = {mark for mark in self._created if mark[0] != uid}
        self.counts.states.pop(uid, None)
        self._taken_names.pop(uid, None)
        self.partitions.forget(uid)
        for uids in self._nodes.values():
            uids.discard(uid)

    # -- what a plan says --------------------------------------------------------------------

    async def _do(self, job: IpuJob, todo: JobPlan) -> bool:
        """Carry out a plan. Return True if something came of it at once, so that another step is
        due.
        """
        namespace, name, uid = job.key
        request = next((action for action in todo.actions if isinstance(action, Want)), None)
        if request is None:
            self.partitions.leave(uid)
        if todo.status is not None:
            await self.kube.set_status(namespace, name, job.version, todo.status)
            if events := events_of(job, todo.status, self._wall()):
                self.jobs.begin(self._make_events(namespace, events))
            if todo.status.get("startTime") and not job.started:
                self.counts.waits += 1
                self.counts.wait_s += max(0.0, self._wall() - job.created)
        status = job.status if todo.status is None else todo.status
        self.counts.states[uid] = str(status.get("launcherStatus") or "Pending")
        more = todo.status is not None and todo.status["restartCount"] != job.attempt
        for action in todo.actions:
            if isinstance(action, Adopt):
                added = [*job.finalizers, FINALIZER]
                await self.kube.set_finalizers(namespace, name, job.version, added)
                more = True
            elif isinstance(action, LetGo):
                finalizers = [mark for mark in job.finalizers if "graphcore.ai" not in mark]
                await self.kube.set_finalizers(namespace, name, job.version, finalizers)
            elif isinstance(action, EndPod):
                await self.kube.delete_pod(namespace, action.name, action.uid)
            elif isinstance(action, GiveBack):
                await self._give_back(action.name)
                more = True
            elif isinstance(action, Reset):
                await self.partitions.reset(job, action.instances)
                more = True
            elif isinstance(action, MakePod):
                more |= await self._make_pod(job, action)
            elif isinstance(action, Want):
                known = self.partitions.line.priorities
                if len(known) > 1 and job.priority_class not in known:
                    await self._look_at_priorities()  # a class that is newer than the last sweep
                self.partitions.enqueue(job, action.instances)
                self._queue_wanted.set()
        return more

    async def _make_events(self, namespace: str, events: list[dict[str, Any]]) -> None:
        """Create Events. Nothing waits for them, and nothing fails without them."""
        try:
            with ranked(LATER):
                for event in events:
                    await self.kube.create_item(namespace, event)
        except PodwrightError as error:
            _log.warning("events of jobs: %s", error)

    async def _give_back(self, partition: str) -> None:
        await self.partitions.give_back(partition)
        self._queue_wanted.set()

    async def _make_pod(self, job: IpuJob, make: MakePod) -> bool:
        """Create a pod. Return True if another pod has its name and that is new, so that another
        step is due.
        """
        site, simulated = self.partitions.site_of(make.partition)
        self.partitions.used(job.key.uid, make.instance)
        environment = program_environment(site, make.partition, simulated=simulated)
        if self.options.image and job.launcher is not None:
            await self._make_keys(job)
            if self.options.exec_fallback:
                await self._give_exec(job, make.instance)
        pod = build_pod(job, make, environment, site.selector, self.options)
        name = str(pod["metadata"]["name"])
        if await self.kube.create_pod(job.key.namespace, pod):
            if self._taken_names.get(job.key.uid) == name:
                del self._taken_names[job.key.uid]
            return False
        new = self._taken_names.get(job.key.uid) != name
        self._taken_names[job.key.uid] = name
        return new

    async def _make_keys(self, job: IpuJob) -> None:
        mark = job.key.uid, "keys"
        if mark not in self._created:
            secret = await asyncio.to_thread(build_secret, job.key, owned_by(job))
            await self.kube.create_item(job.key.namespace, secret)
            self._created.add(mark)

    async def _give_exec(self, job: IpuJob, instance: int) -> None:
        """Give an instance's launcher its rights, before the first pod, because new rights take
        effect after a moment.
        """
        rights = exec_rights(job, instance, owned_by(job))
        mark = job.key.uid, str(rights[-1]["metadata"]["name"])
        if mark not in self._created:
            for item in rights:
                await self.kube.create_item(job.key.namespace, item)
            self._created.add(mark)

    async def _make(self, granted: Granted) -> None:
        """Make the partitions of a job that has its blocks: all, or none."""
        key = granted.job.key
        async with self._locks(key.uid):
            with contextlib.suppress(PodwrightError):
                await self.partitions.make(granted)
        self.jobs.poke(key)


def _is_lost(node: Object) -> bool:
    """Return whether Kubernetes says that a node does not answer."""
    for condition in (node.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return bool(condition.get("status") == "Unknown")
    return False
