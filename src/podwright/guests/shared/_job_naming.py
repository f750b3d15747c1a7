"""Which of its waiting jobs a guest names to the server, and whether that job is due. No effects.

The server keeps a place for the job that a guest names. So a name is a promise: once a job was
named as due, or has a place, it stays named until it starts, leaves the queue, cannot fit, or
leaves an offer untaken, whatever comes before it meanwhile in the guest's own order.

A job has waited since it was eligible, or since the guest's last due job started on its place,
whichever is later: otherwise every task of an old array would be due at once. Of the jobs that are
due, the guest's own order decides; but after a start that passed an older job, the oldest is next.
So a job of high priority waits for one place of another job, and a stream of such jobs takes every
second place at most.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

_MAX_DOUBLINGS: Final = 6  #: times at most


class Waits(NamedTuple):
    """A job that waits for devices and for nothing else. orders: what it wants of each pod, the
    largest first. alone: its place is for it alone, also once all of it is free. started: the
    guest has started it already, so it is due at once. name, owner: as people know the job; an
    empty name: as `job` is. since: when it was eligible, by the clock of its guest; None: when it
    was first seen.
    """

    priority: int
    job: Any
    orders: dict[str, list[int]]
    alone: bool = False
    started: bool = False
    name: str = ""
    owner: str = ""
    since: float | None = None

    @property
    def title(self) -> str:
        """The job's name for people."""
        return self.name or f"job {self.job}"


class Decline(NamedTuple):
    """How often a job has left an offer untaken, and when it last did."""

    times: int
    moment: float


@dataclass(slots=True)
class NamedJob:
    """The job that is named for a pod.

    since: when its waiting began. is_due: it was due when it was named, or has become so.
    has_place, is_offered: the server keeps devices for it, and all of them are free. was_offered:
    they once were.
    """

    job: Waits
    since: float
    is_due: bool
    has_place: bool = False
    is_offered: bool = False
    was_offered: bool = False


class JobNaming:
    """The named jobs of all pods.

    patience_s: how long a job waits before it is due; 0: no job ever is.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self.named: dict[str, NamedJob] = {}  #: by pod
        self._since: dict[str, float] = {}  # by title
        self._declined: dict[str, Decline] = {}  # by title
        self._lost_offers: set[str] = set()  # titles
        self._last_start: dict[str, float] = {}  # by pod: on a place that was kept
        self._oldest_next: set[str] = set()  # pods

    def update(
        self,
        waiting: Collection[Waits],
        now: float,
        *,
        declined: Collection[str] = (),
        busy_pods: Collection[str] = (),
    ) -> None:
        """Name jobs as the queue is now.

        declined: titles of those that left an offer untaken since the last look. busy_pods: those
        where no job is named now, and nothing changes.
        """
        since = {
            job.title: self._since.get(job.title, now) if job.since is None else job.since
            for job in waiting
        }
        for title in {*declined, *self._lost_offers} & since.keys():
            earlier = self._declined.get(title)
            self._declined[title] = Decline(1 + (earlier.times if earlier else 0), now)
            for pod in [pod for pod, named in self.named.items() if named.job.title == title]:
                del self.named[pod]
        self._lost_offers.clear()
        self._declined = {
            title: decline for title, decline in self._declined.items() if title in since
        }
        for title, decline in self._declined.items():
            since[title] = max(since[title], decline.moment)
        self._since = since
        for pod, named in list(self.named.items()):
            if named.job.title not in since and pod not in busy_pods:
                self._note_left(pod, named, waiting, now)
                del self.named[pod]
        candidates = [job for job in waiting if not job.orders.keys() & busy_pods]
        due = {job.title for job in candidates if self._is_due(job, now)}
        eldest = {
            pod: min(
                (job for job in candidates if pod in job.orders and job.title in due),
                key=lambda job: self._since[job.title],
                default=None,
            )
            for pod in self._oldest_next
        }

        before = self.named

        def rank(job: Waits) -> tuple[int, int, Any]:
            own = [
                before[pod]
                for pod in job.orders
                if pod in before and before[pod].job.title == job.title
            ]
            if any(named.has_place for named in own):
                group = 0
            elif job.started:
                group = 1
            elif any(named.is_due for named in own):
                group = 2
            elif any(eldest.get(pod) is job for pod in job.orders):
                group = 3
            else:
                group = 4 if job.title in due else 5
            return group, -job.priority, job.job

        self.named = {pod: named for pod, named in before.items() if pod in busy_pods}
        for job in first_in_line(candidates, rank):
            for pod in job.orders:
                old = before.get(pod)
                if old is None or old.job.title != job.title:
                    old = NamedJob(job, self._since[job.title], is_due=False)
                old.job, old.is_due = job, old.is_due or job.title in due
                self.named[pod] = old

    def _note_left(self, pod: str, named: NamedJob, waiting: Iterable[Waits], now: float) -> None:
        """The named job of a pod is no longer in the queue: it has started, or has left.

        What took its turn at free devices without being due changes nothing for those that wait.
        """
        if not (named.was_offered and named.is_due):
            return
        self._last_start[pod] = now
        if any(pod in job.orders and self._since[job.title] < named.since for job in waiting):
            self._oldest_next.add(pod)
        else:
            self._oldest_next.discard(pod)

    def _is_due(self, job: Waits, now: float) -> bool:
        if not self._patience_s:
            return False
        decline = self._declined.get(job.title)
        doublings = min(decline.times, _MAX_DOUBLINGS) if decline else 0
        starts = [self._last_start[pod] for pod in job.orders if pod in self._last_start]
        waited_s = now - max([self._since[job.title], *starts])
        return job.started or waited_s >= self._patience_s * 2**doublings

    def hear(self, pod: str, *, has_place: bool, offered: bool) -> None:
        """Take over what the server keeps for the named job of a pod."""
        named = self.named.get(pod)
        if named is None:
            return
        if named.is_offered and not has_place:
            self._lost_offers.add(named.job.title)
        named.has_place, named.is_offered = has_place, offered
        named.was_offered = named.was_offered or offered

    def passed(self) -> list[Waits]:
        """The jobs that wait although their places were offered and are not complete any more:
        another job of the guest has started there."""
        return [
            named.job
            for named in self.named.values()
            if named.was_offered and named.has_place and not named.is_offered
        ]


def first_in_line(
    waiting: Iterable[Waits], rank: Callable[[Waits], Any] = lambda job: (-job.priority, job.job)
) -> list[Waits]:
    """Who is first in the queue for each pod that it wants devices of."""
    first_jobs: list[Waits] = []
    pods: set[str] = set()
    for job in sorted(waiting, key=rank):
        if pods.isdisjoint(job.orders):
            first_jobs.append(job)
            pods |= job.orders.keys()
    return first_jobs
