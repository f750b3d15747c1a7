"""Decides what is to be done for a job, from the objects that exist: a function without effects.

The operator may call it after every change and at any time, and a restarted operator knows nothing
of what the process before it did. So the decision depends on the objects alone: the job, its pods
and its partitions. The operator carries a plan out in its order, the status first. If it is killed
in between, the next plan continues from the objects that exist by then.

No pod is made while its partition is not READY, and no partition is given back or reset while one
of its pods may run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from podwright.guests.kubernetes.job._attempt_end import AttemptEnd, end_of
from podwright.guests.kubernetes.job._ipu_job import FINALIZER, IpuJob
from podwright.guests.kubernetes.job._sightings import LAUNCHER, WORKER, Holds, PodView
from podwright.guests.kubernetes.job._status import StatusWords, status_of

#: Seconds until a pod is tried again whose name another pod has: nobody tells when that one goes.
_TAKEN_S: Final = 10.0


class Adopt(NamedTuple):
    """Set the finalizer: the job may hold partitions from now on."""


class Want(NamedTuple):
    """Partitions for these instances: all of them, or none."""

    instances: tuple[int, ...]


class Reset(NamedTuple):
    """The partitions of these instances, before they are used anew."""

    instances: tuple[int, ...]


class MakePod(NamedTuple):
    """A pod. number: of the worker, over all instances. workers: of a launcher, each with its
    address. pull_secrets: which they were given for their images."""

    role: str
    instance: int
    number: int
    partition: str
    workers: tuple[tuple[str, str], ...] = ()
    pull_secrets: tuple[str, ...] = ()


class EndPod(NamedTuple):
    """Delete a pod, if it still is the one with that uid."""

    name: str
    uid: str


class GiveBack(NamedTuple):
    """Give a partition back."""

    name: str


class LetGo(NamedTuple):
    """Drop the finalizers: the job holds nothing, and Kubernetes may remove it."""


Action = Adopt | Want | Reset | MakePod | EndPod | GiveBack | LetGo


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What is to be done, and what the job's status says from here on (None: as it is).

    look_at: seconds since 1970 at which to ask anew although nothing changed; 0: not.
    """

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None
    look_at: float = 0.0

    def lines(self) -> list[str]:
        """The plan in words, one line for each step."""
        out = []
        if self.status is not None:
            out.append(f"status: {self.status['launcherStatus']}, {self.status['lastMessage']}")
        for action in self.actions:
            words = " ".join(
                f"{name}={value}" for name, value in action._asdict().items() if value != ()
            )
            out.append(f"{type(action).__name__} {words}".rstrip())
        return out or ["nothing to do"]


@dataclass(slots=True)
class _JobView:
    """One job as it is. fresh: instances whose partitions this process has reset, or got new, for
    this attempt. taken_name: the name of a pod of its that another pod has, as was seen last."""

    job: IpuJob
    pods: Sequence[PodView]
    holdings: Mapping[int, Holds]
    now: float
    waiting_reason: str
    fresh: Collection[int]
    taken_name: str = ""
    actions: list[Action] = field(default_factory=list)

    def status(self, state: str, message: str, **extra_fields: Any) -> dict[str, Any] | None:
        """The status that this makes; None where it is as it was."""
        words = StatusWords(state, message, **extra_fields)
        return status_of(self.job, self.pods, self.holdings, self.now, words)

    def end(self, pods: Sequence[PodView]) -> None:
        self.actions += [EndPod(pod.name, pod.uid) for pod in pods if not pod.deleting]

    def give_back(self, instances: Sequence[int]) -> None:
        self.actions += [GiveBack(self.holdings[i].name) for i in instances if i in self.holdings]

    def plan(self, status: dict[str, Any] | None, look_at: float = 0.0) -> JobPlan:
        return JobPlan(tuple(self.actions), status, look_at)


def plan(
    job: IpuJob,
    pods: Sequence[PodView],
    holdings: Mapping[int, Holds],
    now: float,
    *,
    waiting_reason: str = "",
    fresh: Collection[int] = (),
    taken_name: str = "",
) -> JobPlan:
    """What is to be done for a job now. holdings: its partitions, by instance. now: seconds since
    1970. waiting_reason: what it waits for, where it waits for devices. fresh, taken_name: see
    `_JobView`."""
    view = _JobView(job, pods, holdings, now, waiting_reason, fresh, taken_name)
    if job.deleting:
        return _leave(view)
    if not job.finished and FINALIZER not in job.finalizers:
        return JobPlan((Adopt(),))
    if job.finished:
        return _finished(view)
    if job.suspended:
        return _suspended(view)
    if job.problem:
        return view.plan(view.status("Invalid", job.problem, reason="InvalidSpec"))
    return _run(view)


def plan_removal(
    job: IpuJob, pods: Sequence[PodView], holdings: Mapping[int, Holds], now: float
) -> JobPlan:
    """What is to be done for a job whose operator goes: it ends, and nothing keeps it any more."""
    view = _JobView(job, pods, holdings, now, "", ())
    if job.deleting:
        return _leave(view)
    view.end([pod for pod in pods if pod.live])
    if any(pod.live for pod in pods):
        return view.plan(None)
    view.give_back(list(holdings))
    status = None
    if not job.finished:
        status = view.status("Pending", "its operator was removed", reason="Removed")
    if status is None and not holdings and has_our_finalizer(job):
        view.actions.append(LetGo())
    return view.plan(status)


def _leave(view: _JobView) -> JobPlan:
    """The job is to go: pods, then partitions, then the mark that keeps it."""
    view.end(view.pods)
    if not any(pod.live for pod in view.pods):
        view.give_back(list(view.holdings))
        if not view.holdings and has_our_finalizer(view.job):
            view.actions.append(LetGo())
    return view.plan(None)


def has_our_finalizer(job: IpuJob) -> bool:
    """Does a finalizer keep it, of this operator or of Graphcore's?"""
    return any("graphcore.ai" in name for name in job.finalizers)


def _finished(view: _JobView) -> JobPlan:
    """It is over. Whatever runs still ends, since its devices are given back."""
    clean = view.job.clean
    ending = [
        pod
        for pod in view.pods
        if pod.live or clean == "All" or (clean == "Workers" and pod.role == WORKER)
    ]
    view.end(ending)
    if not any(pod.live for pod in view.pods):
        view.give_back(list(view.holdings))
    state = str(view.job.status.get("launcherStatus"))
    return view.plan(view.status(state, str(view.job.status.get("lastMessage")), over=True))


def _suspended(view: _JobView) -> JobPlan:
    view.end(view.pods)
    if not any(pod.live for pod in view.pods):
        view.give_back(list(view.holdings))
    return view.plan(view.status("Suspended", "it is suspended: spec.suspend is true"))


def _run(view: _JobView) -> JobPlan:
    job = view.job
    wanted = range(job.instances)
    spare = [pod for pod in view.pods if pod.instance >= job.instances]
    view.end(spare)
    alive = {pod.instance for pod in spare if pod.live}
    view.give_back([i for i in view.holdings if i >= job.instances and i not in alive])
    current = [
        pod for pod in view.pods if pod.instance < job.instances and pod.attempt == job.attempt
    ]
    old = [pod for pod in view.pods if pod.instance < job.instances and pod.attempt != job.attempt]
    if old:  # it is started anew: nothing begins before all of the last attempt is gone
        view.end(old)
        return view.plan(view.status("Restarting", str(job.status.get("lastMessage") or "")))
    if job.ttl and job.started and view.now >= job.started + job.ttl:
        return view.plan(
            view.status("Completed", f"its {job.ttl} s are over", over=True, reason="Ttl")
        )
    end = end_of(job, current, view.holdings)
    if end is not None:
        return _attempt_over(view, end)
    missing = [i for i in wanted if i not in view.holdings]
    if missing:
        # A pod without partition cannot be here: `end_of` takes that for a failure.
        view.actions.append(Want(tuple(missing)))
        message = view.waiting_reason or "it waits for its IPUs"
        return view.plan(view.status("Pending", message, reason="Waiting"))
    broken = [holding for holding in view.holdings.values() if holding.state in ("ERROR", "GONE")]
    if broken:
        view.give_back([holding.instance for holding in broken])
        message = _joined(holding.problem for holding in broken)
        return view.plan(view.status("Pending", message, reason="PartitionError"))
    unready = [view.holdings[i] for i in wanted if view.holdings[i].state != "READY"]
    if unready:
        message = _joined(holding.problem for holding in unready) or "its IPUs are being set up"
        return view.plan(view.status("Pending", message, reason="SettingUp"))
    return _pods(view, current)


def _attempt_over(view: _JobView, end: AttemptEnd) -> JobPlan:
    """All is done, or something failed: over for good, or once more."""
    job = view.job
    if not job.restart.restarts(failed=end.failed, code=end.code):
        state = "Failed" if end.failed else "Completed"
        return view.plan(view.status(state, end.words, over=True, reason=end.reason))
    if job.attempt >= job.restart.limit:
        words = f"{end.words}; it was started anew {job.attempt} times"
        state = "Failed" if end.failed else "Completed"
        return view.plan(view.status(state, words, over=True, reason="BackOffLimit"))
    words = f"{end.words}; it is started anew ({job.attempt + 1} of {job.restart.limit})"
    return view.plan(view.status("Restarting", words, reason=end.reason, restart=True))


def _pods(view: _JobView, current: Sequence[PodView]) -> JobPlan:
    """Pods that are missing, for partitions that are ready."""
    job = view.job
    resets: list[int] = []
    new_pods: list[MakePod] = []
    for i in range(job.instances):
        of_instance = [pod for pod in current if pod.instance == i]
        if not of_instance and job.started and i not in view.fresh:
            resets.append(i)
            continue
        name = view.holdings[i].name
        numbers = range(i * job.workers, (i + 1) * job.workers)
        names = {pod.name for pod in of_instance}
        for number in numbers:
            if pod_name(job, WORKER, i, number) not in names:
                new_pods.append(MakePod(WORKER, i, number, name))
        workers = [pod for pod in of_instance if pod.role == WORKER]
        ready = len(workers) == job.workers and all(
            pod.phase == "Running" and pod.address and not pod.deleting for pod in workers
        )
        if job.launcher is not None and ready and pod_name(job, LAUNCHER, i, i) not in names:
            workers.sort(key=lambda pod: pod.number)
            reached = tuple((pod.name, pod.address) for pod in workers)
            secrets = workers[0].pull_secrets
            new_pods.append(MakePod(LAUNCHER, i, i, name, reached, secrets))
    if resets:
        worn = [i for i in resets if view.holdings[i].worn]
        if worn:
            view.give_back(worn)
            message = _joined(view.holdings[i].worn for i in worn)
            return view.plan(view.status("Pending", message, reason="Drained"))
        view.actions.append(Reset(tuple(resets)))
        message = str(job.status.get("lastMessage") or "")
        return view.plan(view.status("Restarting", message or "its IPUs are reset"))
    view.actions += new_pods
    look_at = job.started + job.ttl if job.ttl and job.started else 0.0
    if view.taken_name in {
        pod_name(job, make.role, make.instance, make.number) for make in new_pods
    }:
        name = view.taken_name
        words = f"another pod has the name {name}: kubectl -n {job.key.namespace} delete pod {name}"
        status = view.status("Pending", words, reason="NameTaken", started=True)
        return view.plan(status, min(look_at or math.inf, view.now + _TAKEN_S))
    return view.plan(_running(view, current), look_at)


def _running(view: _JobView, current: Sequence[PodView]) -> dict[str, Any] | None:
    job = view.job
    live = {pod.instance for pod in current if pod.live}  # what has ended needs no machine
    worn = _joined(view.holdings[i].worn for i in sorted(live & view.holdings.keys()))
    decisive = [pod for pod in current if pod.role == (LAUNCHER if job.launcher else WORKER)]
    if not job.instances:
        return view.status("Running", "it has no job instances", started=True)
    if decisive and all(pod.phase != "Pending" for pod in decisive):
        return view.status("Running", worn or "All instances running", started=True)
    note = next((pod.note for pod in current if pod.phase == "Pending" and pod.note), "")
    return view.status("Pending", worn or note or "its pods are starting", started=True)


def _joined(messages: Iterable[str]) -> str:
    """Return all messages that say something, each once."""
    return "; ".join(dict.fromkeys(filter(None, messages)))


def pod_name(job: IpuJob, role: str, instance: int, number: int) -> str:
    """What a pod of a job's is called: as Graphcore's operator calls workers."""
    if role == WORKER:
        return f"{job.key.name}-worker-{number}"
    return f"{job.key.name}-launcher" + (f"-{instance}" if instance else "")
