"""What is to be done for a job, by what there is: a function without effects.

It is asked after every change and at any time, by a process that may know nothing of what the one
before it did. So it looks at the objects alone: the job, its pods, its partitions. What it says is
done in its order, the status first; killed in between, the next answer goes on from there.

No pod is made while its partition is not READY, and no partition is given back or reset while a
pod of its may run.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from podwright.kubernetes._attempt_end import AttemptEnd, end_of
from podwright.kubernetes._ipu_job import FINALIZER, IpuJob
from podwright.kubernetes._sightings import LAUNCHER, WORKER, Holds, PodView
from podwright.kubernetes._status import StatusWords, status_of

#: Seconds until a pod is tried again whose name another pod has: nobody tells when that one goes.
_TAKEN_S: Final = 10.0


class Adopt(NamedTuple):
    """The job may hold something from here on."""


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
    """A pod goes; only the one with that uid."""

    name: str
    uid: str


class GiveBack(NamedTuple):
    """A partition."""

    name: str


class LetGo(NamedTuple):
    """The job holds nothing: Kubernetes may remove it."""


Action = Adopt | Want | Reset | MakePod | EndPod | GiveBack | LetGo


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What is to be done, and what the job's status says from here on (None: as it is).

    again: seconds since 1970 at which to ask anew although nothing changed; 0: not.
    """

    actions: tuple[Action, ...] = ()
    status: dict[str, Any] | None = None
    again: float = 0.0

    def lines(self) -> list[str]:
        """A line each, to be read."""
        out = []
        if self.status is not None:
            out.append(f"status: {self.status['launcherStatus']}, {self.status['lastMessage']}")
        for one in self.actions:
            words = " ".join(
                f"{name}={value}" for name, value in one._asdict().items() if value != ()
            )
            out.append(f"{type(one).__name__} {words}".rstrip())
        return out or ["nothing to do"]


@dataclass(slots=True)
class _Look:
    """One job as it is. fresh: instances whose partitions this process has reset, or got new, for
    this attempt. taken: the name of a pod of its that another pod has, as was seen last."""

    job: IpuJob
    pods: Sequence[PodView]
    held: Mapping[int, Holds]
    now: float
    why: str
    fresh: Collection[int]
    taken: str = ""
    actions: list[Action] = field(default_factory=list)

    def said(self, state: str, message: str, **more: Any) -> dict[str, Any] | None:
        """The status that this makes; None where it is as it was."""
        said = StatusWords(state, message, **more)
        return status_of(self.job, self.pods, self.held, self.now, said)

    def end(self, pods: Sequence[PodView]) -> None:
        self.actions += [EndPod(pod.name, pod.uid) for pod in pods if not pod.deleting]

    def give_back(self, instances: Sequence[int]) -> None:
        self.actions += [GiveBack(self.held[i].name) for i in instances if i in self.held]

    def plan(self, status: dict[str, Any] | None, again: float = 0.0) -> JobPlan:
        return JobPlan(tuple(self.actions), status, again)


def plan(
    job: IpuJob,
    pods: Sequence[PodView],
    held: Mapping[int, Holds],
    now: float,
    *,
    why: str = "",
    fresh: Collection[int] = (),
    taken: str = "",
) -> JobPlan:
    """What is to be done for a job now. held: its partitions, by instance. now: seconds since
    1970. why: what it waits for, where it waits for devices. fresh, taken: see `_Look`."""
    look = _Look(job, pods, held, now, why, fresh, taken)
    if job.deleting:
        return _leave(look)
    if not job.finished and FINALIZER not in job.finalizers:
        return JobPlan((Adopt(),))
    if job.finished:
        return _finished(look)
    if job.suspended:
        return _suspended(look)
    if job.problem:
        return look.plan(look.said("Invalid", job.problem, reason="InvalidSpec"))
    return _run(look)


def plan_removal(
    job: IpuJob, pods: Sequence[PodView], held: Mapping[int, Holds], now: float
) -> JobPlan:
    """What is to be done for a job whose operator goes: it ends, and nothing keeps it any more."""
    look = _Look(job, pods, held, now, "", ())
    if job.deleting:
        return _leave(look)
    look.end([pod for pod in pods if pod.live])
    if any(pod.live for pod in pods):
        return look.plan(None)
    look.give_back(list(held))
    status = None
    if not job.finished:
        status = look.said("Pending", "its operator was removed", reason="Removed")
    if status is None and not held and _kept(job):
        look.actions.append(LetGo())
    return look.plan(status)


def _leave(look: _Look) -> JobPlan:
    """The job is to go: pods, then partitions, then the mark that keeps it."""
    look.end(look.pods)
    if not any(pod.live for pod in look.pods):
        look.give_back(list(look.held))
        if not look.held and _kept(look.job):
            look.actions.append(LetGo())
    return look.plan(None)


def _kept(job: IpuJob) -> bool:
    """Does a finalizer keep it, of this operator or of Graphcore's?"""
    return any("graphcore.ai" in name for name in job.finalizers)


def _finished(look: _Look) -> JobPlan:
    """It is over. Whatever runs still ends, since its devices are given back."""
    clean = look.job.clean
    goes = [
        pod
        for pod in look.pods
        if pod.live or clean == "All" or (clean == "Workers" and pod.role == WORKER)
    ]
    look.end(goes)
    if not any(pod.live for pod in look.pods):
        look.give_back(list(look.held))
    state = str(look.job.status.get("launcherStatus"))
    return look.plan(look.said(state, str(look.job.status.get("lastMessage")), over=True))


def _suspended(look: _Look) -> JobPlan:
    look.end(look.pods)
    if not any(pod.live for pod in look.pods):
        look.give_back(list(look.held))
    return look.plan(look.said("Suspended", "it is suspended: spec.suspend is true"))


def _run(look: _Look) -> JobPlan:
    job = look.job
    wanted = range(job.instances)
    spare = [pod for pod in look.pods if pod.instance >= job.instances]
    look.end(spare)
    alive = {pod.instance for pod in spare if pod.live}
    look.give_back([i for i in look.held if i >= job.instances and i not in alive])
    mine = [pod for pod in look.pods if pod.instance < job.instances and pod.attempt == job.attempt]
    old = [pod for pod in look.pods if pod.instance < job.instances and pod.attempt != job.attempt]
    if old:  # it is started anew: nothing begins before all of the last attempt is gone
        look.end(old)
        return look.plan(look.said("Restarting", str(job.status.get("lastMessage") or "")))
    if job.ttl and job.started and look.now >= job.started + job.ttl:
        return look.plan(
            look.said("Completed", f"its {job.ttl} s are over", over=True, reason="Ttl")
        )
    end = end_of(job, mine, look.held)
    if end is not None:
        return _ended(look, end)
    missing = [i for i in wanted if i not in look.held]
    if missing:
        # A pod without partition cannot be here: `end_of` takes that for a failure.
        look.actions.append(Want(tuple(missing)))
        message = look.why or "it waits for its IPUs"
        return look.plan(look.said("Pending", message, reason="Waiting"))
    broken = [one for one in look.held.values() if one.state in ("ERROR", "GONE")]
    if broken:
        look.give_back([one.instance for one in broken])
        return look.plan(look.said("Pending", broken[0].problem, reason="PartitionError"))
    unready = [look.held[i] for i in wanted if look.held[i].state != "READY"]
    if unready:
        message = unready[0].problem or "its IPUs are being set up"
        return look.plan(look.said("Pending", message, reason="SettingUp"))
    return _pods(look, mine)


def _ended(look: _Look, end: AttemptEnd) -> JobPlan:
    """All is done, or something failed: over for good, or once more."""
    job = look.job
    if not job.restart.restarts(failed=end.failed, code=end.code):
        state = "Failed" if end.failed else "Completed"
        return look.plan(look.said(state, end.words, over=True, reason=end.reason))
    if job.attempt >= job.restart.limit:
        words = f"{end.words}; it was started anew {job.attempt} times"
        state = "Failed" if end.failed else "Completed"
        return look.plan(look.said(state, words, over=True, reason="BackOffLimit"))
    words = f"{end.words}; it is started anew ({job.attempt + 1} of {job.restart.limit})"
    return look.plan(look.said("Restarting", words, reason=end.reason, restart=True))


def _pods(look: _Look, mine: Sequence[PodView]) -> JobPlan:
    """Pods that are missing, for partitions that are ready."""
    job = look.job
    resets: list[int] = []
    makes: list[MakePod] = []
    for i in range(job.instances):
        here = [pod for pod in mine if pod.instance == i]
        if not here and job.started and i not in look.fresh:
            resets.append(i)
            continue
        name = look.held[i].name
        numbers = range(i * job.workers, (i + 1) * job.workers)
        there = {pod.name for pod in here}
        for number in numbers:
            if pod_name(job, WORKER, i, number) not in there:
                makes.append(MakePod(WORKER, i, number, name))
        workers = [pod for pod in here if pod.role == WORKER]
        ready = len(workers) == job.workers and all(
            pod.phase == "Running" and pod.address and not pod.deleting for pod in workers
        )
        if job.launcher is not None and ready and pod_name(job, LAUNCHER, i, i) not in there:
            workers.sort(key=lambda pod: pod.number)
            reached = tuple((pod.name, pod.address) for pod in workers)
            secrets = workers[0].pull_secrets
            makes.append(MakePod(LAUNCHER, i, i, name, reached, secrets))
    if resets:
        worn = [i for i in resets if look.held[i].worn]
        if worn:
            look.give_back(worn)
            return look.plan(look.said("Pending", look.held[worn[0]].worn, reason="Drained"))
        look.actions.append(Reset(tuple(resets)))
        message = str(job.status.get("lastMessage") or "")
        return look.plan(look.said("Restarting", message or "its IPUs are reset"))
    look.actions += makes
    again = job.started + job.ttl if job.ttl and job.started else 0.0
    if look.taken in {pod_name(job, make.role, make.instance, make.number) for make in makes}:
        words = f"another pod has the name {look.taken}: kubectl -n {job.key.namespace} delete pod "
        said = look.said("Pending", words + look.taken, reason="NameTaken", begun=True)
        return look.plan(said, min(again or math.inf, look.now + _TAKEN_S))
    return look.plan(_running(look, mine), again)


def _running(look: _Look, mine: Sequence[PodView]) -> dict[str, Any] | None:
    job = look.job
    worn = next((one.worn for one in look.held.values() if one.worn), "")
    decisive = [pod for pod in mine if pod.role == (LAUNCHER if job.launcher else WORKER)]
    if not job.instances:
        return look.said("Running", "it has no job instances", begun=True)
    if decisive and all(pod.phase != "Pending" for pod in decisive):
        return look.said("Running", worn or "All instances running", begun=True)
    note = next((pod.note for pod in mine if pod.phase == "Pending" and pod.note), "")
    return look.said("Pending", worn or note or "its pods are starting", begun=True)


def pod_name(job: IpuJob, role: str, instance: int, number: int) -> str:
    """What a pod of a job's is called: as Graphcore's operator calls workers."""
    if role == WORKER:
        return f"{job.key.name}-worker-{number}"
    return f"{job.key.name}-launcher" + (f"-{instance}" if instance else "")
