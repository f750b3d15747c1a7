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
from podwright.guests.kubernetes.job._observed_pods import LAUNCHER, WORKER, Holds, PodView
from podwright.guests.kubernetes.job._status import StatusWords, status_of

#: Seconds until a pod is tried again whose name another pod has: nobody tells when that one goes.
_TAKEN_NAME_RETRY_S: Final = 10.0


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
    address."""

    role: str
    instance: int
    number: int
    partition: str
    workers: tuple[tuple[str, str], ...] = ()


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
        plan_lines = []
        if self.status is not None:
            plan_lines.append(
                f"status: {self.status['launcherStatus']}, {self.status['lastMessage']}"
            )
        for action in self.actions:
            words = " ".join(
                f"{name}={field_value}"
                for name, field_value in action._asdict().items()
                if field_value != ()
            )
            plan_lines.append(f"{type(action).__name__} {words}".rstrip())
        return plan_lines or ["nothing to do"]


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

    def status(self, job_state: str, message: str, **extra_fields: Any) -> dict[str, Any] | None:
        """The status that this makes; None where it is as it was."""
        words = StatusWords(job_state, message, **extra_fields)
        return status_of(self.job, self.pods, self.holdings, self.now, words)

    def end(self, pods: Sequence[PodView]) -> None:
        self.actions += [EndPod(pod.name, pod.uid) for pod in pods if not pod.deleting]

    def give_back(self, instances: Sequence[int]) -> None:
        self.actions += [
            GiveBack(self.holdings[instance].name)
            for instance in instances
            if instance in self.holdings
        ]

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
        return _plan_leaving(view)
    if not job.finished and FINALIZER not in job.finalizers:
        return JobPlan((Adopt(),))
    if job.finished:
        return _finished(view)
    if job.suspended:
        return _plan_suspended(view)
    if job.problem:
        return view.plan(view.status("Invalid", job.problem, reason="InvalidSpec"))
    return _plan_run(view)


def plan_removal(
    job: IpuJob, pods: Sequence[PodView], holdings: Mapping[int, Holds], now: float
) -> JobPlan:
    """What is to be done for a job whose operator goes: it ends, and nothing keeps it any more."""
    view = _JobView(job, pods, holdings, now, "", ())
    if job.deleting:
        return _plan_leaving(view)
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


def _plan_leaving(job_view: _JobView) -> JobPlan:
    """The job is to go: pods, then partitions, then the mark that keeps it."""
    job_view.end(job_view.pods)
    if not any(pod.live for pod in job_view.pods):
        job_view.give_back(list(job_view.holdings))
        if not job_view.holdings and has_our_finalizer(job_view.job):
            job_view.actions.append(LetGo())
    return job_view.plan(None)


def has_our_finalizer(job: IpuJob) -> bool:
    """Does a finalizer keep it, of this operator or of Graphcore's?"""
    return any("graphcore.ai" in finalizer for finalizer in job.finalizers)


def _finished(job_view: _JobView) -> JobPlan:
    """It is over. Whatever runs still ends, since its devices are given back."""
    policy = job_view.job.clean
    ending_pods = [
        pod
        for pod in job_view.pods
        if pod.live or policy == "All" or (policy == "Workers" and pod.role == WORKER)
    ]
    job_view.end(ending_pods)
    if not any(pod.live for pod in job_view.pods):
        job_view.give_back(list(job_view.holdings))
    status = str(job_view.job.status.get("launcherStatus"))
    return job_view.plan(
        job_view.status(status, str(job_view.job.status.get("lastMessage")), over=True)
    )


def _plan_suspended(job_view: _JobView) -> JobPlan:
    job_view.end(job_view.pods)
    if not any(pod.live for pod in job_view.pods):
        job_view.give_back(list(job_view.holdings))
    return job_view.plan(job_view.status("Suspended", "it is suspended: spec.suspend is true"))


def _plan_run(job_view: _JobView) -> JobPlan:
    job = job_view.job
    wanted_instances = range(job.instances)
    spare_pods = [pod for pod in job_view.pods if pod.instance >= job.instances]
    job_view.end(spare_pods)
    live_instances = {pod.instance for pod in spare_pods if pod.live}
    job_view.give_back(
        [
            instance
            for instance in job_view.holdings
            if instance >= job.instances and instance not in live_instances
        ]
    )
    current_pods = [
        pod for pod in job_view.pods if pod.instance < job.instances and pod.attempt == job.attempt
    ]
    old_pods = [
        pod for pod in job_view.pods if pod.instance < job.instances and pod.attempt != job.attempt
    ]
    if old_pods:  # it is started anew: nothing begins before all of the last attempt is gone
        job_view.end(old_pods)
        return job_view.plan(
            job_view.status("Restarting", str(job.status.get("lastMessage") or ""))
        )
    if job.ttl and job.started and job_view.now >= job.started + job.ttl:
        return job_view.plan(
            job_view.status("Completed", f"its {job.ttl} s are over", over=True, reason="Ttl")
        )
    attempt_end = end_of(job, current_pods, job_view.holdings)
    if attempt_end is not None:
        return _plan_attempt_over(job_view, attempt_end)
    missing_instances = [
        instance for instance in wanted_instances if instance not in job_view.holdings
    ]
    if missing_instances:
        # A pod without partition cannot be here: `end_of` takes that for a failure.
        job_view.actions.append(Want(tuple(missing_instances)))
        message = job_view.waiting_reason or "it waits for its IPUs"
        return job_view.plan(job_view.status("Pending", message, reason="Waiting"))
    broken_partitions = [
        holding for holding in job_view.holdings.values() if holding.state in ("ERROR", "GONE")
    ]
    if broken_partitions:
        job_view.give_back([holding.instance for holding in broken_partitions])
        message = _join_messages(holding.problem for holding in broken_partitions)
        return job_view.plan(job_view.status("Pending", message, reason="PartitionError"))
    unready_partitions = [
        job_view.holdings[instance]
        for instance in wanted_instances
        if job_view.holdings[instance].state != "READY"
    ]
    if unready_partitions:
        message = (
            _join_messages(holding.problem for holding in unready_partitions)
            or "its IPUs are being set up"
        )
        return job_view.plan(job_view.status("Pending", message, reason="SettingUp"))
    return _make_missing_pods(job_view, current_pods)


def _plan_attempt_over(job_view: _JobView, attempt_end: AttemptEnd) -> JobPlan:
    """All is done, or something failed: over for good, or once more."""
    job = job_view.job
    if not job.restart.restarts(failed=attempt_end.failed, exit_code=attempt_end.code):
        final_state = "Failed" if attempt_end.failed else "Completed"
        return job_view.plan(
            job_view.status(final_state, attempt_end.words, over=True, reason=attempt_end.reason)
        )
    if job.attempt >= job.restart.limit:
        end_message = f"{attempt_end.words}; it was started anew {job.attempt} times"
        final_state = "Failed" if attempt_end.failed else "Completed"
        return job_view.plan(
            job_view.status(final_state, end_message, over=True, reason="BackOffLimit")
        )
    end_message = (
        f"{attempt_end.words}; it is started anew ({job.attempt + 1} of {job.restart.limit})"
    )
    return job_view.plan(
        job_view.status("Restarting", end_message, reason=attempt_end.reason, restart=True)
    )


def _make_missing_pods(job_view: _JobView, current_pods: Sequence[PodView]) -> JobPlan:
    """Pods that are missing, for partitions that are ready."""
    job = job_view.job
    reset_instances: list[int] = []
    new_pods: list[MakePod] = []
    for instance in range(job.instances):
        instance_pods = [pod for pod in current_pods if pod.instance == instance]
        if not instance_pods and job.started and instance not in job_view.fresh:
            reset_instances.append(instance)
            continue
        name = job_view.holdings[instance].name
        worker_numbers = range(instance * job.workers, (instance + 1) * job.workers)
        pod_names = {pod.name for pod in instance_pods}
        for number in worker_numbers:
            if pod_name(job, WORKER, instance, number) not in pod_names:
                new_pods.append(MakePod(WORKER, instance, number, name))
        worker_pods = [pod for pod in instance_pods if pod.role == WORKER]
        workers_ready = len(worker_pods) == job.workers and all(
            pod.phase == "Running" and pod.address and not pod.deleting for pod in worker_pods
        )
        if (
            job.launcher is not None
            and workers_ready
            and pod_name(job, LAUNCHER, instance, instance) not in pod_names
        ):
            worker_pods.sort(key=lambda pod: pod.number)
            worker_addresses = tuple((pod.name, pod.address) for pod in worker_pods)
            new_pods.append(MakePod(LAUNCHER, instance, instance, name, worker_addresses))
    if reset_instances:
        worn_instances = [
            instance for instance in reset_instances if job_view.holdings[instance].worn
        ]
        if worn_instances:
            job_view.give_back(worn_instances)
            status_message = _join_messages(
                job_view.holdings[instance].worn for instance in worn_instances
            )
            return job_view.plan(job_view.status("Pending", status_message, reason="Drained"))
        job_view.actions.append(Reset(tuple(reset_instances)))
        status_message = str(job.status.get("lastMessage") or "")
        return job_view.plan(job_view.status("Restarting", status_message or "its IPUs are reset"))
    job_view.actions += new_pods
    look_at = job.started + job.ttl if job.ttl and job.started else 0.0
    if job_view.taken_name in {
        pod_name(job, new_pod.role, new_pod.instance, new_pod.number) for new_pod in new_pods
    }:
        name = job_view.taken_name
        taken_message = (
            f"another pod has the name {name}: kubectl -n {job.key.namespace} delete pod {name}"
        )
        pending_status = job_view.status("Pending", taken_message, reason="NameTaken", started=True)
        return job_view.plan(
            pending_status, min(look_at or math.inf, job_view.now + _TAKEN_NAME_RETRY_S)
        )
    return job_view.plan(_running_status(job_view, current_pods), look_at)


def _running_status(job_view: _JobView, current_pods: Sequence[PodView]) -> dict[str, Any] | None:
    job = job_view.job
    # An instance that has ended needs no machine.
    live_instances = {pod.instance for pod in current_pods if pod.live}
    trouble = _join_messages(
        [
            *(f"node {pod.node} of {pod.name} does not answer" for pod in current_pods if pod.lost),
            *(
                job_view.holdings[instance].worn
                for instance in sorted(live_instances & job_view.holdings.keys())
            ),
        ]
    )
    deciding_pods = [
        pod for pod in current_pods if pod.role == (LAUNCHER if job.launcher else WORKER)
    ]
    if not job.instances:
        return job_view.status("Running", "it has no job instances", started=True)
    if deciding_pods and all(pod.phase != "Pending" for pod in deciding_pods):
        return job_view.status("Running", trouble or "All instances running", started=True)
    pending_note = next(
        (pod.note for pod in current_pods if pod.phase == "Pending" and pod.note), ""
    )
    return job_view.status(
        "Pending", trouble or pending_note or "its pods are starting", started=True
    )


def _join_messages(messages: Iterable[str]) -> str:
    """Return all messages that say something, each once."""
    return "; ".join(dict.fromkeys(filter(None, messages)))


def pod_name(job: IpuJob, role: str, instance: int, worker_number: int) -> str:
    """What a pod of a job's is called: as Graphcore's operator calls workers."""
    if role == WORKER:
        return f"{job.key.name}-worker-{worker_number}"
    return f"{job.key.name}-launcher" + (f"-{instance}" if instance else "")
