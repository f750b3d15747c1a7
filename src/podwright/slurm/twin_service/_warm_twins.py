"""Twins that wait for questions. Each runs with the newest copy of the state before it is asked.

A question takes a warm twin. While that twin answers, and starts again afterwards, the next
question takes another, the spare. A twin with a copied state has to start for each request, because
a job that was granted leaves nodes that never answer. So it starts after an answer, and not before
one.

A slurmctld that has just started lets jobs wait: it reads how often it should look for them when it
looks for the first time, 3 s after its start. Such a twin is not settled. A question therefore goes
to a settled twin if one is idle, and a twin takes over a newer state only while another is settled.

The number of questions that wait is limited, for all users together and for each.
"""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Protocol

from podwright.errors import NoCapacity, PodwrightError, TimedOut, Unavailable, WrongState
from podwright.slurm.twin import Granted, Present, Refused, Submission, TaskOutcome, Waits
from podwright.slurm.twin_service._site_copy import SiteCopy
from podwright.slurm.twin_service._twin_question import TwinAnswer, TwinQuestion, without

_log = logging.getLogger("podwright.twin")
_LETTERS: Final = 32 * 1024  # characters of Slurm's own text in an answer
_MOST_TASKS: Final = 256
#: Seconds.
_STALE: Final = 5.0  # an idle twin with an older state starts with a newer one
_TOO_OLD: Final = 15.0  # a twin with an older state does so before it answers
_RENEW: Final = 45.0  # an idle twin starts again: Slurm would find its nodes silent
_ASKED_LATELY: Final = 300.0  # after that, spares end and one twin stays
_TICK: Final = 1.0
_TRY_AGAIN: Final = 10.0
_PATIENCE: Final = 45.0


class StartedTwin(Protocol):
    """What a worker needs of a twin. `Twin` provides it."""

    @property
    def knows_accounts(self) -> bool:
        """Whether limits of accounts apply."""

    @property
    def knows_groups(self) -> bool:
        """Whether AllowGroups applies."""

    def ask(self, request: Submission, *, as_uid: int | None = None) -> Granted | Waits | Refused:
        """Return Slurm's answer."""

    def tasks(self, request: Submission, granted: Granted | None = None) -> tuple[TaskOutcome, ...]:
        """Return what each task sees."""

    def renew(self, present: Present) -> None:
        """Start from a newer state."""

    def refresh(self) -> None:
        """Make the twin ready for the next question."""

    def close(self) -> None:
        """End the twin."""


@dataclass(frozen=True)
class TwinSource:
    """How to start twins.

    start: returns a started twin of a copy, with its present state or without. fits: whether a twin
    of the first copy serves the second as well, because the files that Slurm reads are the same.
    release: Slurm's. settle: the seconds after its start for which a twin lets jobs wait.
    """

    start: Callable[[SiteCopy, bool], StartedTwin]
    fits: Callable[[SiteCopy, SiteCopy], bool]
    release: str
    settle: float = 3.0


@dataclass
class _Waiting:
    uid: int  # the user who asks
    question: TwinQuestion
    future: Future[TwinAnswer]
    since: float


class WarmTwins:
    """The twins, and the questions that wait for them.

    workers: the number of twins. most: the most questions that wait; each: the most questions of
    one user. clock: returns seconds and never goes backwards. `update` gives the site; before the
    first call every question is refused.
    """

    def __init__(
        self,
        source: TwinSource,
        clock: Callable[[], float],
        *,
        workers: int = 2,
        most: int = 16,
        each: int = 2,
    ) -> None:
        self._source, self._clock = source, clock
        self._waiting_limit, self._each = most, each
        self._changed = threading.Condition()
        self._waiting: deque[_Waiting] = deque()
        self._active: Counter[int] = Counter()  # open questions by user
        self._copy: SiteCopy | None = None
        self._asked_at = clock()
        self._closed = False
        self._renewing = threading.Lock()  # one twin at a time starts without a question
        self.counts: Counter[str] = Counter()
        self._workers = [_Worker(self, worker_index) for worker_index in range(workers)]
        for worker in self._workers:
            worker.start()

    def update(self, copy: SiteCopy) -> None:
        """Take over the present site."""
        with self._changed:
            self._copy = copy
            self._changed.notify_all()

    def ask(self, uid: int, question: TwinQuestion) -> Future[TwinAnswer]:
        """Put a question into the queue, and return the future answer. uid: the user who asks.

        Raises NoCapacity where too many questions wait, and Unavailable where the site is not known
        yet. The future may raise what Twin.ask raises.
        """
        with self._changed:
            if self._closed or self._copy is None:
                raise Unavailable(
                    "the service does not know the site yet",
                    would_work="Try again in a few seconds; the service's log says why it waits",
                )
            if self._active[uid] >= self._each:
                self.counts["refused"] += 1
                raise NoCapacity(
                    f"{self._each} questions of yours are being answered",
                    would_work="Wait for their answers",
                )
            if len(self._waiting) >= self._waiting_limit:
                self.counts["refused"] += 1
                raise NoCapacity(
                    f"{self._waiting_limit} questions wait already",
                    would_work="Try again in a few seconds",
                )
            self._active[uid] += 1
            now = self._clock()
            self._asked_at = now
            entry = _Waiting(uid, question, Future(), now)
            self._waiting.append(entry)
            self._changed.notify_all()
            return entry.future

    def status(self) -> dict[str, object]:
        """Return figures that reveal nothing of anybody's questions."""
        with self._changed:
            copy = self._copy
            return {
                "release": self._source.release,
                "warm": sum(worker.warm for worker in self._workers),
                "waiting": len(self._waiting),
                "answered": self.counts["answered"],
                "refused": self.counts["refused"],
                "failed": self.counts["failed"],
                "age": round(self._clock() - copy.read_at, 1) if copy and copy.present else None,
                "no_state": copy.no_state if copy else "the site is not known yet",
            }

    def close(self, seconds: float) -> None:
        """End all twins within `seconds`. Those that still run then end with the process."""
        with self._changed:
            self._closed = True
            for entry in self._waiting:
                entry.future.cancel()
            self._waiting.clear()
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(seconds / len(self._workers))

    # What workers ask

    def next(self, worker: _Worker) -> tuple[SiteCopy | None, _Waiting | None, bool]:
        """Return the site, the next question if there is one, and whether this is the end."""
        with self._changed:
            worker.idle = True
            if not self._closed and not self._is_turn_of(worker):
                self._changed.wait(_TICK)
            worker.idle = False
            entry = self._waiting.popleft() if self._is_turn_of(worker) else None
            return self._copy, entry, self._closed

    def _is_turn_of(self, worker: _Worker) -> bool:
        """Return whether a question waits that no other twin would answer sooner."""
        if not self._waiting or self._copy is None:
            return False
        ready = [each for each in self._workers if each.settled and (each.idle or each is worker)]
        # The twin that has run for longest goes first, so that each has its time to settle.
        return worker is min(ready, key=lambda each: each.since, default=worker)

    def may_renew(self, worker: _Worker) -> bool:
        """Return whether a twin can start again while another answers at once."""
        settled = [each.settled for each in self._workers if each is not worker]
        return not settled or any(settled)

    def newest(self, copy: SiteCopy) -> SiteCopy:
        """Return the newest copy of the site."""
        with self._changed:
            return self._copy or copy

    def done(self, entry: _Waiting, kind: str) -> None:
        """Record that a question has its answer."""
        with self._changed:
            self.counts[kind] += 1
            self._active[entry.uid] -= 1
            if not self._active[entry.uid]:
                del self._active[entry.uid]

    def spare_wanted(self, worker_index: int) -> bool:
        """Return whether the worker of this number keeps a twin although nobody asks."""
        return worker_index == 0 or self._clock() < self._asked_at + _ASKED_LATELY

    @property
    def clock(self) -> Callable[[], float]:
        """The clock of all workers."""
        return self._clock

    @property
    def source(self) -> TwinSource:
        """What starts twins."""
        return self._source

    def start_quietly(self) -> bool:
        """Take the turn to start a twin without a question. Return False if another worker has it.

        `started` gives the turn back.
        """
        return self._renewing.acquire(blocking=False)

    def started(self) -> None:
        """Give the turn back."""
        self._renewing.release()


class _Worker(threading.Thread):
    """One twin, and the thread that asks it."""

    def __init__(self, twins: WarmTwins, worker_index: int) -> None:
        super().__init__(name=f"twin {worker_index}", daemon=True)
        self._twins, self._worker_index = twins, worker_index
        self._twin: StartedTwin | None = None
        self._copy: SiteCopy | None = None  # the copy that the twin runs with
        self._with_state = False
        self.since = 0.0  # when its twin was last started or renewed
        self._not_before = 0.0
        self.warm = False
        self.idle = False  # waits for a question

    @property
    def settled(self) -> bool:
        """Whether its twin answers at once."""
        return self.warm and self._twins.clock() >= self.since + self._twins.source.settle

    def run(self) -> None:
        while True:
            copy, entry, closed = self._twins.next(self)
            if closed:
                self._end()
                return
            if copy is None:
                continue
            if entry is not None:
                self._answer(copy, entry)
                copy = self._twins.newest(copy)
            self._keep_warm(copy, was_asked=entry is not None)

    def _keep_warm(self, copy: SiteCopy, *, was_asked: bool) -> None:
        clock = self._twins.clock
        if not self._twins.spare_wanted(self._worker_index):
            self._end()
            return
        if clock() < self._not_before or not (was_asked or self._due(copy)):
            return
        if not was_asked and not self._twins.start_quietly():
            return
        try:
            self._fit(copy, with_state=may_see_state(copy, None))
        except PodwrightError as error:
            _log.warning("no twin can be started: %s", error.problem)
            self._not_before = clock() + _TRY_AGAIN
        except Exception:
            _log.exception("no twin can be started")
            self._not_before = clock() + _TRY_AGAIN
        finally:
            if not was_asked:
                self._twins.started()

    def _due(self, copy: SiteCopy) -> bool:
        """Return whether the twin should start, or start again, although nobody asks."""
        now = self._twins.clock()
        if self._twin is None or self._copy is None or now > self.since + _RENEW:
            return True
        if not self._twins.spare_wanted(1) or not self._twins.may_renew(self):
            return False
        return now > self.since + _STALE and _differs(self._copy, copy)

    def _answer(self, copy: SiteCopy, entry: _Waiting) -> None:
        # A client that hung up has cancelled its question. From here on it can no longer do that,
        # so that each way out below may give the future its result.
        if not entry.future.set_running_or_notify_cancel():
            self._twins.done(entry, "cancelled")
            return
        kind = "failed"
        try:
            if self._twins.clock() > entry.since + _PATIENCE:
                raise TimedOut("the question waited too long for a twin of the controller")
            answer = self._ask(copy, entry)
            kind = "answered"
            entry.future.set_result(answer)
        except BaseException as error:
            if not isinstance(error, PodwrightError):
                _log.exception("a question failed")
                self._end()
            entry.future.set_exception(error)
        finally:
            self._twins.done(entry, kind)

    def _ask(self, copy: SiteCopy, entry: _Waiting) -> TwinAnswer:
        question = entry.question
        submission = question.submission()
        uid = entry.uid if question.as_uid is None else question.as_uid
        with_state = may_see_state(copy, entry.uid)
        too_old = self._twins.clock() > self.since + _TOO_OLD and _differs(self._copy, copy)
        if too_old or not self._fits(copy, with_state=with_state):
            self._fit(copy, with_state=with_state)
        assert self._twin
        assert self._copy
        self.warm = False
        unjudged = () if self._twin.knows_accounts else ("account", "qos")
        unjudged = unjudged if self._with_state else (*unjudged, "reservation")
        submission, left_out = without(submission, unjudged)
        answer = self._twin.ask(submission, as_uid=uid)
        reply = TwinAnswer(
            self._twins.source.release,
            age=max(0.0, self._twins.clock() - self._copy.read_at) if self._with_state else None,
            idle_because="" if self._with_state else _why_idle(copy, with_state=with_state),
            accounts=self._twin.knows_accounts,
            groups=self._twin.knows_groups,
            left_out=left_out,
        )
        hides = frozenset() if privileged(copy, entry.uid) else copy.hides
        reply = _with_answer(reply, answer, hides)
        return self._with_tasks(reply, submission) if question.tasks else reply

    def _with_tasks(self, reply: TwinAnswer, submission: Submission) -> TwinAnswer:
        if reply.granted is None or self._twin is None:
            return reply
        count = re.search(r"\bNumTasks=(\d+)", reply.granted.record)
        if count and int(count[1]) > _MOST_TASKS:
            return replace(reply, tasks_problem=f"the job has more than {_MOST_TASKS} tasks")
        try:
            return replace(reply, tasks=self._twin.tasks(submission, reply.granted))
        except WrongState as error:
            return replace(reply, step_problem=error.problem)
        except Unavailable as error:
            return replace(reply, tasks_problem=error.problem)

    def _fits(self, copy: SiteCopy, *, with_state: bool) -> bool:
        return (
            self._twin is not None
            and self._copy is not None
            and self._with_state == (with_state and copy.present is not None)
            and self._twins.source.fits(self._copy, copy)
        )

    def _fit(self, copy: SiteCopy, *, with_state: bool) -> None:
        """Let the twin run with this copy. Start it again where that is needed."""
        self.warm = False
        since = self._twins.clock()
        try:
            if self._twin is not None and self._fits(copy, with_state=with_state):
                if self._with_state and copy.present is not None:
                    self._twin.renew(copy.present)
                else:
                    self._twin.refresh()
            else:
                self._end()
                self._with_state = with_state and copy.present is not None
                self._twin = self._twins.source.start(copy, self._with_state)
        except BaseException:
            self._end()
            raise
        self._copy, self.since, self.warm = copy, since, True

    def _end(self) -> None:
        self.warm = False
        if self._twin is not None:
            with suppress(Exception):
                self._twin.close()
        self._twin = self._copy = None


def privileged(copy: SiteCopy, uid: int | None) -> bool:
    """Return whether a user sees everything in Slurm, whatever PrivateData says: root and SlurmUser
    do.
    """
    return uid in (0, copy.slurm_uid)


def may_see_state(copy: SiteCopy, uid: int | None) -> bool:
    """Return whether this user's answers come from the present state. None: any user without
    rights.

    An answer shows which GPUs and cores of which nodes are free. Slurm shows the same in its list
    of nodes. Where PrivateData hides that list, users get answers for a cluster with all nodes
    idle.
    """
    return privileged(copy, uid) or "nodes" not in copy.hides


def _why_idle(copy: SiteCopy, *, with_state: bool) -> str:
    if not with_state:
        return "PrivateData hides the present state of nodes"
    return copy.no_state or "the present state is not known"


def _differs(before: SiteCopy | None, now: SiteCopy) -> bool:
    if before is None or (before.present is None) != (now.present is None):
        return True
    return bool(now.present) and before.present != now.present


#: Fields of a waiting job that tell when jobs of others end.
_TIMES = re.compile(r" (?:StartTime|EndTime|SchedNodeList|LastSchedEval|Scheduler)=\S*")


def _with_answer(
    reply: TwinAnswer, answer: Granted | Waits | Refused, hides: frozenset[str]
) -> TwinAnswer:
    """Return the answer with Slurm's text cut, and without what PrivateData hides."""
    messages = answer.messages[-_LETTERS:]
    if isinstance(answer, Refused):
        return replace(reply, refused=replace(answer, messages=messages))
    record = answer.record[:_LETTERS]
    if isinstance(answer, Granted):
        return replace(reply, granted=replace(answer, record=record, messages=messages))
    if "jobs" in hides:
        record = _TIMES.sub("", record)
    if "nodes" in hides or "reservations" in hides:
        record = re.sub(r"(ReqNodeNotAvail)\S*", r"\1", record)
    return replace(reply, waits=replace(answer, record=record, messages=messages))
