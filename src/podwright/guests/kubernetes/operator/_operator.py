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
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from podwright.errors import Denied, PodwrightError
from podwright.guests.kubernetes.cluster._api_request_queue import LATER, NOW, SOON, ranked
from podwright.guests.kubernetes.cluster._kube_interface import Kube, Object
from podwright.guests.kubernetes.job._crd import JOB_KIND
from podwright.guests.kubernetes.job._ipu_job import FINALIZER, IpuJob, JobKey, read_job
from podwright.guests.kubernetes.job._job_events import events_of
from podwright.guests.kubernetes.job._job_secret import build_secret
from podwright.guests.kubernetes.job._observed_pods import UID_LABEL, PodView, read_pod
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
from podwright.guests.kubernetes.operator._operator_metrics import OperatorCounts
from podwright.guests.kubernetes.operator._work_queue import FIRST_RETRY_S, WorkQueue
from podwright.guests.kubernetes.partitions._job_partitions import DevicePlace, Partitions
from podwright.guests.kubernetes.partitions._job_queue import Granted
from podwright.guests.kubernetes.partitions._vipu_controller_client import JobServer
from podwright.guests.kubernetes.partitions._vipu_controller_list import program_environment
from podwright.guests.kubernetes.pods._pod_objects import PodOptions, build_pod, owned_by
from podwright.guests.shared import Locks, Room, until_done

_log = logging.getLogger("podwright.guests.kubernetes")

FindPlaces = Callable[[], Awaitable[list[DevicePlace]]]
_MAX_STEPS: Final = 8  # steps for one job without a pause


class Operator:
    """Reconciles all jobs of a cluster.

    kube: the cluster. partitions: the partitions of the controllers. wall: returns seconds since
    1970. clock: returns seconds and never goes backwards. refresh_s: seconds between two looks at
    partitions. sweep_s: seconds between two looks at all jobs. room_s: seconds that the first job
    in the queue waits before room is made for it. decide: returns what is to be done for a job.
    counts: what is counted for /metrics. more_places: by the names of controllers, functions that
    find their places, or raise PodwrightError while they do not answer.
    """

    def __init__(
        self,
        kube: Kube,
        partitions: Partitions,
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        pod_options: PodOptions | None = None,
        refresh_s: float = 2.0,
        sweep_s: float = 60.0,
        room_s: float = 60.0,
        decide: Callable[..., JobPlan] = plan,
        more_places: Mapping[str, FindPlaces] | None = None,
        counts: OperatorCounts | None = None,
    ) -> None:
        self.kube, self.partitions = kube, partitions
        self.options = pod_options or PodOptions()
        self.counts = counts or OperatorCounts()
        self._wall, self._decide = wall, decide
        self._more_places = dict(more_places or {})
        self._began_at = float(int(wall()))  # as times of creation are
        #: The names of controllers that were not found yet.
        self._absent = set(self._more_places)
        self._refresh_s, self._sweep_s = refresh_s, sweep_s
        self._locks: Locks[str] = Locks()
        self.jobs = WorkQueue(self.reconcile, wall=wall, clock=clock, counts=self.counts)
        self._nodes: dict[str, set[str]] = {}  # node -> uids of jobs with pods there
        # By the uid of a job: the name of its pod, if another pod already has that name.
        self._taken_pod_names: dict[str, str] = {}
        self._created: set[tuple[str, str]] = set()  # uids, each with a secret or right that exists
        self._lost: frozenset[str] = frozenset()
        self._grants_wanted = asyncio.Event()
        self.partitions.room = Room(self.partitions.books, room_s, clock, self._grants_wanted.set)

    async def run(self) -> None:
        """Run until cancelled."""
        await until_done(self._read_cluster, FIRST_RETRY_S, _log.warning)
        loop_tasks = [
            asyncio.ensure_future(coroutine)
            for coroutine in (
                self._watch_cluster(),
                *self._controller_loops(),
                self._sweep_loop(),
                self._grant_loop(),
            )
        ]
        try:
            await asyncio.gather(*loop_tasks)
        finally:
            for task in loop_tasks:
                task.cancel()
            await self.jobs.stop()  # at once: no loop goes on before nothing can be requested
            await asyncio.gather(*loop_tasks, return_exceptions=True)

    # -- what goes on beside -----------------------------------------------------------------

    async def _read_cluster(self) -> None:
        """Read what exists, before anything is decided."""
        await self._read_lost_nodes()
        await self._read_priorities()

    async def _watch_cluster(self) -> None:
        await self.kube.watch(self._on_event)

    def _on_event(self, object_kind: str, event_type: str, kube_object: Object) -> None:
        metadata = kube_object.get("metadata") or {}
        if object_kind == JOB_KIND:
            self.jobs.poke(JobKey(metadata["namespace"], metadata["name"], metadata["uid"]))
        elif object_kind == "Pod":
            uid = (metadata.get("labels") or {}).get(UID_LABEL, "")
            if key := self.jobs.key_of(uid):
                self.jobs.poke(key)
        elif object_kind == "Node":
            self._on_node_health(
                metadata["name"], event_type != "DELETED" and not _node_is_lost(kube_object)
            )

    def _on_node_health(self, node_name: str, is_healthy: bool) -> None:
        lost_before = self._lost
        self._lost = lost_before - {node_name} if is_healthy else lost_before | {node_name}
        if self._lost != lost_before:
            for uid in self._nodes.get(node_name, ()):
                if key := self.jobs.key_of(uid):
                    self.jobs.poke(key)

    async def _read_lost_nodes(self) -> None:
        nodes = await self.kube.nodes()
        self._lost = frozenset(node["metadata"]["name"] for node in nodes if _node_is_lost(node))

    async def _read_priorities(self) -> None:
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
            self._grants_wanted.set()

    def _controller_loops(self) -> Iterable[Coroutine[Any, Any, None]]:
        """One loop for each controller, so that none waits for another one."""
        known = {place.site.name: place.server for place in self.partitions.places.values()}
        for name, server in known.items():
            yield self._controller_loop(name, server)
        for name, places in self._more_places.items():
            yield self._controller_loop(name, places)

    async def _controller_loop(self, site_name: str, source: JobServer | FindPlaces) -> None:
        """Look at a controller's partitions for ever. source: it, or what finds its places."""
        server = None if callable(source) else source
        while True:
            try:
                if server is None and callable(source):
                    places = await source()
                    self.partitions.add_places(places)
                    self._absent.discard(site_name)
                    server = places[0].server
                was_unread = site_name in self.partitions.unread
                changed_uids = await self.partitions.refresh(server)
            except PodwrightError as error:
                self._note_problem(site_name, str(error))
            else:
                self._note_problem(site_name, "")
                for uid in changed_uids:
                    if job_key := self.jobs.key_of(uid) or self.partitions.key_of(uid):
                        self.jobs.poke(job_key)
                if was_unread:
                    self.jobs.poke_all()
                self._grants_wanted.set()
            await asyncio.sleep(self._refresh_s)

    def _note_problem(self, site_name: str, problem: str) -> None:
        """Remember what is wrong with a controller, for the status of the jobs that want it."""
        problems = self.partitions.problems
        if problem == problems.get(site_name, ""):
            return
        if problem:
            _log.warning("V-IPU controller %s: %s", site_name, problem)
            problems[site_name] = problem
        else:
            del problems[site_name]
        self.partitions.explain_anew()
        self._grants_wanted.set()

    async def _sweep_loop(self) -> None:
        while True:
            try:
                await self._sweep()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(self._sweep_s)

    async def _sweep(self) -> None:
        """Reconcile all jobs, and all partitions whose job is gone.

        A partition whose job is gone for good is given back once no pod of the job is left.
        `holding_jobs` is read before the jobs. So a partition that is made for a new job meanwhile
        is not taken for one of a job that is gone.
        """
        holding_jobs = self.partitions.holders()
        job_objects = await self.kube.jobs()
        await self._read_lost_nodes()
        await self._read_priorities()
        for job_object in job_objects:
            job_metadata = job_object["metadata"]
            self.jobs.poke(
                JobKey(job_metadata["namespace"], job_metadata["name"], job_metadata["uid"])
            )
        existing_uids = {job_object["metadata"]["uid"] for job_object in job_objects}
        for uid, key in holding_jobs.items():
            if uid not in existing_uids:
                self.jobs.poke(key)
        for uid in self.jobs.idle_uids() - existing_uids:
            if uid not in self.partitions.holders():
                self._forget_job(uid)

    async def _grant_loop(self) -> None:
        while True:
            await self._grants_wanted.wait()
            self._grants_wanted.clear()
            for granted in self.partitions.grant():
                self.jobs.begin(self._make_partitions(granted))
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
            for _ in range(_MAX_STEPS):
                with ranked(self._request_rank(key.uid)):
                    next_look_at = await self._reconcile_step(key)
                if next_look_at is not None:
                    return next_look_at
        return self._wall() + FIRST_RETRY_S

    def _request_rank(self, job_uid: str) -> int:
        if self.partitions.fresh(job_uid):
            return NOW
        return SOON if self.partitions.holdings_of(job_uid) else LATER

    async def _reconcile_step(self, job_key: JobKey) -> float | None:
        """Do one step for a job. Return when to look again, or None if another step is due at
        once.
        """
        job_object = await self.kube.job(job_key.namespace, job_key.name)
        if job_object is None or job_object["metadata"]["uid"] != job_key.uid:
            await self._clean_up_orphan(job_key)
            return 0.0
        job = read_job(job_object)
        if (self._absent or self.partitions.unread) and not self._may_decide(job):
            return self._wall() + FIRST_RETRY_S
        # The status says that the job has started before its first pod is made, so a job that has
        # not started has no pods. To find pods, the API server searches the whole namespace.
        pod_objects = await self.kube.pods(job_key.namespace, job_key.uid) if job.started else []
        pod_views = [read_pod(pod_object, self._lost) for pod_object in pod_objects]
        self._remember_pods(job, pod_views)
        waiting_reason = await self.partitions.waiting_reason(job)
        job_plan = self._decide(
            job,
            pod_views,
            self.partitions.holdings_of(job_key.uid),
            self._wall(),
            waiting_reason=waiting_reason,
            fresh=self.partitions.fresh(job_key.uid),
            taken_name=self._taken_pod_names.get(job_key.uid, ""),
        )
        return None if await self._carry_out_plan(job, job_plan) else job_plan.look_at

    def _may_decide(self, job: IpuJob) -> bool:
        """Whether it is known what a job holds although some controllers were not read yet: a new
        job holds nothing, and a job holds partitions of one controller only."""
        return job.created >= self._began_at or bool(self.partitions.holdings_of(job.key.uid))

    async def _clean_up_orphan(self, job_key: JobKey) -> None:
        """End the pods of a job that is gone, and then give back what it holds. Somebody may have
        removed its finalizer.
        """
        self.partitions.leave(job_key.uid)
        pods = [read_pod(pod) for pod in await self.kube.pods(job_key.namespace, job_key.uid)]
        for pod in pods:
            if not pod.deleting:
                await self.kube.delete_pod(job_key.namespace, pod.name, pod.uid)
        if any(pod.live for pod in pods):
            self.jobs.later(job_key, FIRST_RETRY_S)
            return
        for partition in self.partitions.holdings_of(job_key.uid).values():
            _log.warning("job %s/%s is gone: %s is given back", *job_key[:2], partition.name)
            await self._give_back_partition(partition.name)
        self._forget_job(job_key.uid)

    def _remember_pods(self, job: IpuJob, pods: list[PodView]) -> None:
        for uids_on_node in self._nodes.values():
            uids_on_node.discard(job.key.uid)
        for pod in pods:
            if pod.live and pod.node:
                self._nodes.setdefault(pod.node, set()).add(job.key.uid)
            if self._taken_pod_names.get(job.key.uid) == pod.name:
                del self._taken_pod_names[job.key.uid]  # the pod of that name is the job's own

    def _forget_job(self, job_uid: str) -> None:
        self.jobs.forget(job_uid)
        self._created = {
            created_object for created_object in self._created if created_object[0] != job_uid
        }
        self.counts.states.pop(job_uid, None)
        self._taken_pod_names.pop(job_uid, None)
        self.partitions.forget(job_uid)
        for uids_on_node in self._nodes.values():
            uids_on_node.discard(job_uid)

    # -- what a plan says --------------------------------------------------------------------

    async def _carry_out_plan(self, job: IpuJob, job_plan: JobPlan) -> bool:
        """Carry out a plan. Return True if something came of it at once, so that another step is
        due.
        """
        namespace, job_name, job_uid = job.key
        partitions_request = next(
            (action for action in job_plan.actions if isinstance(action, Want)), None
        )
        if partitions_request is None:
            self.partitions.leave(job_uid)
        if job_plan.status is not None:
            await self.kube.set_status(namespace, job_name, job.version, job_plan.status)
            if kube_events := events_of(job, job_plan.status, self._wall()):
                self.jobs.begin(self._make_events(namespace, kube_events))
            if job_plan.status.get("startTime") and not job.started:
                self.counts.waits += 1
                self.counts.wait_s += max(0.0, self._wall() - job.created)
        job_status = job.status if job_plan.status is None else job_plan.status
        self.counts.states[job_uid] = str(job_status.get("launcherStatus") or "Pending")
        step_due = job_plan.status is not None and job_plan.status["restartCount"] != job.attempt
        for plan_action in job_plan.actions:
            if isinstance(plan_action, Adopt):
                with_finalizer = [*job.finalizers, FINALIZER]
                await self.kube.set_finalizers(namespace, job_name, job.version, with_finalizer)
                step_due = True
            elif isinstance(plan_action, LetGo):
                other_finalizers = [
                    finalizer for finalizer in job.finalizers if "graphcore.ai" not in finalizer
                ]
                await self.kube.set_finalizers(namespace, job_name, job.version, other_finalizers)
            elif isinstance(plan_action, EndPod):
                await self.kube.delete_pod(namespace, plan_action.name, plan_action.uid)
            elif isinstance(plan_action, GiveBack):
                await self._give_back_partition(plan_action.name)
                step_due = True
            elif isinstance(plan_action, Reset):
                await self.partitions.reset(job, plan_action.instances)
                step_due = True
            elif isinstance(plan_action, MakePod):
                step_due |= await self._create_pod(job, plan_action)
            elif isinstance(plan_action, Want):
                priority_classes = self.partitions.line.priorities
                if len(priority_classes) > 1 and job.priority_class not in priority_classes:
                    await self._read_priorities()  # a class that is newer than the last sweep
                self.partitions.enqueue(job, plan_action.instances)
                self._grants_wanted.set()
        return step_due

    async def _make_events(self, namespace: str, events: list[dict[str, Any]]) -> None:
        """Create Events. Nothing waits for them, and nothing fails without them."""
        try:
            with ranked(LATER):
                for event in events:
                    await self.kube.create_item(namespace, event)
        except PodwrightError as error:
            _log.warning("events of jobs: %s", error)

    async def _give_back_partition(self, partition_name: str) -> None:
        await self.partitions.give_back(partition_name)
        self._grants_wanted.set()

    async def _create_pod(self, job: IpuJob, pod_action: MakePod) -> bool:
        """Create a pod. Return True if another pod has its name and that is new, so that another
        step is due.
        """
        vipu_site, is_simulated = self.partitions.site_of(pod_action.partition)
        self.partitions.used(job.key.uid, pod_action.instance)
        program_variables = program_environment(
            vipu_site, pod_action.partition, simulated=is_simulated
        )
        if self.options.image and job.launcher is not None:
            await self._make_keys(job)
        pod_object = build_pod(job, pod_action, program_variables, vipu_site.selector, self.options)
        pod_name = str(pod_object["metadata"]["name"])
        if await self.kube.create_pod(job.key.namespace, pod_object):
            if self._taken_pod_names.get(job.key.uid) == pod_name:
                del self._taken_pod_names[job.key.uid]
            return False
        newly_taken = self._taken_pod_names.get(job.key.uid) != pod_name
        self._taken_pod_names[job.key.uid] = pod_name
        return newly_taken

    async def _make_keys(self, job: IpuJob) -> None:
        created_object = job.key.uid, "keys"
        if created_object not in self._created:
            key_secret = await asyncio.to_thread(build_secret, job.key, owned_by(job))
            await self.kube.create_item(job.key.namespace, key_secret)
            self._created.add(created_object)

    async def _make_partitions(self, granted: Granted) -> None:
        """Make the partitions of a job that has its blocks: all, or none."""
        key = granted.job.key
        async with self._locks(key.uid):
            with contextlib.suppress(PodwrightError):
                await self.partitions.make(granted)
        self.jobs.poke(key)


def _node_is_lost(node_object: Object) -> bool:
    """Return whether Kubernetes says that a node does not answer."""
    for condition in (node_object.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return bool(condition.get("status") == "Unknown")
    return False
