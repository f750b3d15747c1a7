"""The operator: sees what there is, asks `plan` what to do, and does it.

It keeps no state that it could not find again: jobs and pods are read anew from the API server
before each decision, partitions from the controller every few seconds. So it may be killed at any
moment, and be started twice: names are the same each time, and what is changed is named by uid.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from podwright.errors import PodwrightError, WrongState
from podwright.guests import Locks, Room
from podwright.kubernetes._crd import KIND
from podwright.kubernetes._exec_rights import exec_rights
from podwright.kubernetes._ipu_job import FINALIZER, IpuJob, JobKey, read_job
from podwright.kubernetes._job_keys import build_secret
from podwright.kubernetes._job_partitions import Partitions
from podwright.kubernetes._job_queue import Granted
from podwright.kubernetes._kube import Kube, Object
from podwright.kubernetes._pod_objects import PodOptions, build_pod, owned_by
from podwright.kubernetes._reconcile import (
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
from podwright.kubernetes._request_queue import LATER, NOW, SOON, ranked
from podwright.kubernetes._sightings import UID_LABEL, PodView, read_pod
from podwright.kubernetes._sites import program_environment

_log = logging.getLogger("podwright.kubernetes")

_STEPS: Final = 8  # of one job without a pause
_RETRY_S: Final = 1.0
_SLOWEST_S: Final = 60.0


class Operator:
    """kube: the cluster. partitions: what the controllers have. wall: seconds since 1970. clock:
    seconds, never backwards. refresh_s, sweep_s: how often partitions, and all jobs, are looked
    through. room_s: how long the first of those that wait waits before room is made for it.
    decide: what is to be done for a job."""

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
    ) -> None:
        self.kube, self.partitions = kube, partitions
        self.options = options or PodOptions()
        self._wall, self._clock, self._decide = wall, clock, decide
        self._refresh_s, self._sweep_s = refresh_s, sweep_s
        self._locks: Locks[str] = Locks()
        self._tasks: set[asyncio.Task[None]] = set()
        self._again: dict[str, asyncio.Task[None]] = {}  # uid -> reconciling now, or soon
        self._asked: set[str] = set()  # uids to look at once more when that is done
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._keys: dict[str, JobKey] = {}
        self._nodes: dict[str, set[str]] = {}  # node -> uids of jobs with pods there
        self._taken: dict[str, str] = {}  # uid -> a pod's name that another pod has
        self._keyed: set[str] = set()  # uids whose secrets are there
        self._may_exec: set[tuple[str, str]] = set()  # uids and rights that are there
        self._lost: frozenset[str] = frozenset()
        self._over = False
        self._queue_wanted = asyncio.Event()
        self.partitions.room = Room(self.partitions.books, room_s, clock, self._queue_wanted.set)

    async def run(self) -> None:
        """Until it is cancelled. Raises Unavailable where the watch of the API server ends."""
        await self._forever(self._known)
        beside = [
            asyncio.ensure_future(work)
            for work in (self._watching(), self._refreshing(), self._sweeping(), self._queueing())
        ]
        try:
            await asyncio.gather(*beside)
        finally:
            self._over = True  # what ends asks for no more looks: others act by now
            for timer in self._timers.values():
                timer.cancel()
            ending = [*beside, *self._tasks]
            for task in ending:
                task.cancel()
            await asyncio.gather(*ending, return_exceptions=True)

    # -- what goes on beside -----------------------------------------------------------------

    async def _known(self) -> None:
        """What there is, before anything is decided."""
        await self.partitions.refresh()
        await self._look_at_nodes()

    async def _forever(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        told = ""
        while True:
            try:
                await work()
                return
            except PodwrightError as error:
                if str(error) != told:
                    _log.warning("%s", error)
                told = str(error)
                await asyncio.sleep(_RETRY_S)

    async def _watching(self) -> None:
        await self.kube.watch(self._told)

    def _told(self, kind: str, event: str, item: Object) -> None:
        meta = item.get("metadata") or {}
        if kind == KIND:
            self.poke(JobKey(meta["namespace"], meta["name"], meta["uid"]))
        elif kind == "Pod":
            uid = (meta.get("labels") or {}).get(UID_LABEL, "")
            if key := self._keys.get(uid):
                self.poke(key)
        elif kind == "Node":
            self._told_of_node(meta["name"], event != "DELETED" and not _is_lost(item))

    def _told_of_node(self, name: str, well: bool) -> None:
        before = self._lost
        self._lost = before - {name} if well else before | {name}
        if self._lost != before:
            for uid in self._nodes.get(name, ()):
                if key := self._keys.get(uid):
                    self.poke(key)

    async def _look_at_nodes(self) -> None:
        nodes = await self.kube.nodes()
        self._lost = frozenset(node["metadata"]["name"] for node in nodes if _is_lost(node))

    async def _refreshing(self) -> None:
        told = ""
        while True:
            await asyncio.sleep(self._refresh_s)
            try:
                changed = await self.partitions.refresh()
            except PodwrightError as error:
                if str(error) != told:
                    _log.warning("%s", error)
                told = str(error)
                continue
            told = ""
            for uid in changed:
                if key := self._keys.get(uid) or self.partitions.key_of(uid):
                    self.poke(key)
            self._queue_wanted.set()

    async def _sweeping(self) -> None:
        while True:
            try:
                await self._sweep()
            except PodwrightError as error:
                _log.warning("sweep: %s", error)
            await asyncio.sleep(self._sweep_s)

    async def _sweep(self) -> None:
        """All jobs, and what is held for none of them. A partition whose job is gone for good is
        given back once no pod of the job is left."""
        holders = self.partitions.holders()
        jobs = await self.kube.jobs()
        await self._look_at_nodes()
        for item in jobs:
            meta = item["metadata"]
            self.poke(JobKey(meta["namespace"], meta["name"], meta["uid"]))
        there = {item["metadata"]["uid"] for item in jobs}
        for uid, key in holders.items():
            if uid not in there:
                self.poke(key)
        for uid in self._keys.keys() - there - self._again.keys():
            if uid not in self.partitions.holders():
                self._forget(uid)

    async def _queueing(self) -> None:
        while True:
            await self._queue_wanted.wait()
            self._queue_wanted.clear()
            for granted in self.partitions.grant():
                self._begin(self._make(granted))
            for key in self.partitions.unexplained():
                self.poke(key)
            with contextlib.suppress(PodwrightError):
                await self.partitions.report()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # -- one job -----------------------------------------------------------------------------

    def poke(self, key: JobKey) -> None:
        """Look at a job, now or as soon as the look that goes on is done."""
        if self._over:
            return
        self._keys[key.uid] = key
        if key.uid in self._again:
            self._asked.add(key.uid)
            return
        if timer := self._timers.pop(key.uid, None):
            timer.cancel()
        self._again[key.uid] = self._begin(self._look(key))

    def _later(self, key: JobKey, seconds: float) -> None:
        if self._over:
            return
        if timer := self._timers.pop(key.uid, None):
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[key.uid] = loop.call_later(max(seconds, 0.05), self.poke, key)

    async def _look(self, key: JobKey) -> None:
        uid = key.uid
        try:
            again = await self.reconcile(key)
            self._failures.pop(uid, None)
            if again:
                self._later(key, again - self._wall())
        except WrongState:
            self._asked.add(uid)  # somebody changed it meanwhile
        except PodwrightError as error:
            count = self._failures[uid] = self._failures.get(uid, 0) + 1
            pause = min(_RETRY_S * 2 ** (count - 1), _SLOWEST_S)
            _log.warning("job %s/%s: %s", key.namespace, key.name, error)
            self._later(key, pause)
        except Exception:
            _log.exception("job %s/%s", key.namespace, key.name)
            self._later(key, _SLOWEST_S)
        finally:
            self._again.pop(uid, None)
            if uid in self._asked:
                self._asked.discard(uid)
                self._later(key, 0.0)

    async def reconcile(self, key: JobKey) -> float:
        """Do for a job what there is to do now. Returns when to look again although nothing
        changes, in seconds since 1970; 0: not. Raises PodwrightError."""
        async with self._locks(key.uid):
            for _ in range(_STEPS):
                with ranked(self._rank(key.uid)):
                    again = await self._step(key)
                if again is not None:
                    return again
        return self._wall() + _RETRY_S

    def _rank(self, uid: str) -> int:
        if self.partitions.fresh(uid):
            return NOW
        return SOON if self.partitions.held(uid) else LATER

    async def _step(self, key: JobKey) -> float | None:
        """None: it is worth another look."""
        item = await self.kube.job(key.namespace, key.name)
        if item is None or item["metadata"]["uid"] != key.uid:
            await self._orphaned(key)
            return 0.0
        job = read_job(item)
        # The status says that it has started before the first pod is made; and the API server
        # looks through all pods of the namespace for those of one job.
        found = await self.kube.pods(key.namespace, key.uid) if job.started else []
        pods = [read_pod(pod, self._lost) for pod in found]
        self._remember(job, pods)
        why = await self.partitions.why(job)
        todo = self._decide(
            job,
            pods,
            self.partitions.held(key.uid),
            self._wall(),
            why=why,
            fresh=self.partitions.fresh(key.uid),
            taken=self._taken.get(key.uid, ""),
        )
        return None if await self._do(job, todo) else todo.again

    async def _orphaned(self, key: JobKey) -> None:
        """The job is gone, whoever took its finalizer away: its pods end, then it holds nothing."""
        self.partitions.leave(key.uid)
        pods = [read_pod(pod) for pod in await self.kube.pods(key.namespace, key.uid)]
        for pod in pods:
            if not pod.deleting:
                await self.kube.delete_pod(key.namespace, pod.name, pod.uid)
        if any(pod.live for pod in pods):
            self._later(key, _RETRY_S)
            return
        for holds in self.partitions.held(key.uid).values():
            _log.warning("job %s/%s is gone: %s is given back", *key[:2], holds.name)
            await self._give_back(holds.name)
        self._forget(key.uid)

    def _remember(self, job: IpuJob, pods: list[PodView]) -> None:
        for uids in self._nodes.values():
            uids.discard(job.key.uid)
        for pod in pods:
            if pod.live and pod.node:
                self._nodes.setdefault(pod.node, set()).add(job.key.uid)
            if self._taken.get(job.key.uid) == pod.name:
                del self._taken[job.key.uid]  # it is the job's own

    def _forget(self, uid: str) -> None:
        self._keys.pop(uid, None)
        self._keyed.discard(uid)
        self._may_exec = {mark for mark in self._may_exec if mark[0] != uid}
        self._failures.pop(uid, None)
        self._taken.pop(uid, None)
        self.partitions.forget(uid)
        if timer := self._timers.pop(uid, None):
            timer.cancel()
        for uids in self._nodes.values():
            uids.discard(uid)

    # -- what a plan says --------------------------------------------------------------------

    async def _do(self, job: IpuJob, todo: JobPlan) -> bool:
        """Do it. True: something came of it at once, and it is worth another look."""
        namespace, name, uid = job.key
        wants = next((one for one in todo.actions if isinstance(one, Want)), None)
        if wants is None:
            self.partitions.leave(uid)
        if todo.status is not None:
            await self.kube.set_status(namespace, name, job.version, todo.status)
        more = todo.status is not None and todo.status["restartCount"] != job.attempt
        for one in todo.actions:
            if isinstance(one, Adopt):
                added = [*job.finalizers, FINALIZER]
                await self.kube.set_finalizers(namespace, name, job.version, added)
                more = True
            elif isinstance(one, LetGo):
                kept = [mark for mark in job.finalizers if "graphcore.ai" not in mark]
                await self.kube.set_finalizers(namespace, name, job.version, kept)
            elif isinstance(one, EndPod):
                await self.kube.delete_pod(namespace, one.name, one.uid)
            elif isinstance(one, GiveBack):
                await self._give_back(one.name)
                more = True
            elif isinstance(one, Reset):
                await self.partitions.reset(job, one.instances)
                more = True
            elif isinstance(one, MakePod):
                more |= await self._make_pod(job, one)
            elif isinstance(one, Want):
                self.partitions.want(job, one.instances)
                self._queue_wanted.set()
        return more

    async def _give_back(self, partition: str) -> None:
        await self.partitions.give_back(partition)
        self._queue_wanted.set()

    async def _make_pod(self, job: IpuJob, make: MakePod) -> bool:
        """True: another pod has its name, which is worth another look."""
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
            if self._taken.get(job.key.uid) == name:
                del self._taken[job.key.uid]
            return False
        new = self._taken.get(job.key.uid) != name
        self._taken[job.key.uid] = name
        return new

    async def _make_keys(self, job: IpuJob) -> None:
        if job.key.uid not in self._keyed:
            secret = await asyncio.to_thread(build_secret, job.key, owned_by(job))
            await self.kube.create_item(job.key.namespace, secret)
            self._keyed.add(job.key.uid)

    async def _give_exec(self, job: IpuJob, instance: int) -> None:
        """To its launcher, before the first pod: new rights take a moment to count."""
        rights = exec_rights(job, instance, owned_by(job))
        mark = job.key.uid, str(rights[-1]["metadata"]["name"])
        if mark not in self._may_exec:
            for item in rights:
                await self.kube.create_item(job.key.namespace, item)
            self._may_exec.add(mark)

    async def _make(self, granted: Granted) -> None:
        """The partitions of a job that has its blocks: all, or none."""
        key = granted.job.key
        async with self._locks(key.uid):
            with contextlib.suppress(PodwrightError):
                await self.partitions.make(granted)
        self.poke(key)


def _is_lost(node: Object) -> bool:
    """Does a node not answer, by the word of Kubernetes."""
    for one in (node.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Ready":
            return bool(one.get("status") == "Unknown")
    return False
