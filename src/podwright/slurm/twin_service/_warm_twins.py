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

from podwright.errors import NoCapacity, PodwrightError, TimedOut, Unavailable
from podwright.slurm.twin import Granted, Present, Refused, Submission, Task, Waits
from podwright.slurm.twin_service._site_copy import SiteCopy
from podwright.slurm.twin_service._twin_question import TwinAnswer, TwinQuestion, without

_log = logging.getLogger("podwright.twin")
_MAX_TEXT_CHARS: Final = 32 * 1024  # characters of Slurm's own text in an answer
_MOST_TASKS: Final = 256
#: Seconds.
_STALE_AFTER_S: Final = 5.0  # an idle twin with an older state starts with a newer one
_MAX_STATE_AGE_S: Final = 15.0  # a twin with an older state does so before it answers
_RENEW_AFTER_S: Final = 45.0  # an idle twin starts again: Slurm would find its nodes silent
_SPARE_KEPT_S: Final = 300.0  # after that, spares end and one twin stays
_TICK_S: Final = 1.0
_RETRY_DELAY_S: Final = 10.0
_QUESTION_PATIENCE_S: Final = 45.0


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

    def tasks(self, request: Submission, granted: Granted | None = None) -> tuple[Task, ...]:
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
class _WaitingQuestion:
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
        twin_source: TwinSource,
        clock: Callable[[], float],
        *,
        workers: int = 2,
        most: int = 16,
        each: int = 2,
    ) -> None:
        self._source, self._clock = twin_source, clock
        self._waiting_limit, self._each = most, each
        self._changed = threading.Condition()
        self._waiting: deque[_WaitingQuestion] = deque()
        self._active: Counter[int] = Counter()  # open questions by user
        self._copy: SiteCopy | None = None
        self._asked_at = clock()
        self._closed = False
        self._renewing = threading.Lock()  # one twin at a time starts without a question
        self.counts: Counter[str] = Counter()
        self._workers = [_TwinWorker(self, index) for index in range(workers)]
        for worker in self._workers:
            worker.start()

    def update(self, site_copy: SiteCopy) -> None:
        """Take over the present site."""
        with self._changed:
            self._copy = site_copy
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
            waiting_question = _WaitingQuestion(uid, question, Future(), now)
            self._waiting.append(waiting_question)
            self._changed.notify_all()
            return waiting_question.future

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
            for question in self._waiting:
                question.future.cancel()
            self._waiting.clear()
            self._changed.notify_all()
        for worker in self._workers:
            worker.join(seconds / len(self._workers))

    # What workers ask

    def next(self, worker: _TwinWorker) -> tuple[SiteCopy | None, _WaitingQuestion | None, bool]:
        """Return the site, the next question if there is one, and whether this is the end."""
        with self._changed:
            worker.idle = True
            if not self._closed and not self._is_turn_of(worker):
                self._changed.wait(_TICK_S)
            worker.idle = False
            question = self._waiting.popleft() if self._is_turn_of(worker) else None
            return self._copy, question, self._closed

    def _is_turn_of(self, worker: _TwinWorker) -> bool:
        """Return whether a question waits that no other twin would answer sooner."""
        if not self._waiting or self._copy is None:
            return False
        ready_workers = [
            candidate
            for candidate in self._workers
            if candidate.settled and (candidate.idle or candidate is worker)
        ]
        # The twin that has run for longest goes first, so that each has its time to settle.
        return worker is min(ready_workers, key=lambda candidate: candidate.since, default=worker)

    def may_renew(self, worker: _TwinWorker) -> bool:
        """Return whether a twin can start again while another answers at once."""
        others_settled = [
            other_worker.settled for other_worker in self._workers if other_worker is not worker
        ]
        return not others_settled or any(others_settled)

    def newest(self, site_copy: SiteCopy) -> SiteCopy:
        """Return the newest copy of the site."""
        with self._changed:
            return self._copy or site_copy

    def done(self, waiting_question: _WaitingQuestion, outcome: str) -> None:
        """Record that a question has its answer."""
        with self._changed:
            self.counts[outcome] += 1
            self._active[waiting_question.uid] -= 1
            if not self._active[waiting_question.uid]:
                del self._active[waiting_question.uid]

    def is_spare_wanted(self, worker_index: int) -> bool:
        """Return whether the worker of this number keeps a twin although nobody asks."""
        return worker_index == 0 or self._clock() < self._asked_at + _SPARE_KEPT_S

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


class _TwinWorker(threading.Thread):
    """One twin, and the thread that asks it."""

    def __init__(self, twins: WarmTwins, worker_index: int) -> None:
        super().__init__(name=f"twin {worker_index}", daemon=True)
        self._twins, self._worker_index = twins, worker_index
        self._twin: StartedTwin | None = None
        self._copy: SiteCopy | None = None  # the copy that the twin runs with
        self._with_state = False
        self.since = 0.0  # when its twin was last started or renewed
        self._retry_at = 0.0
        self.warm = False
        self.idle = False  # waits for a question

    @property
    def settled(self) -> bool:
        """Whether its twin answers at once."""
        return self.warm and self._twins.clock() >= self.since + self._twins.source.settle

    def run(self) -> None:
        while True:
            copy, question, closed = self._twins.next(self)
            if closed:
                self._end()
                return
            if copy is None:
                continue
            if question is not None:
                self._answer_waiting(copy, question)
                copy = self._twins.newest(copy)
            self._keep_warm(copy, was_asked=question is not None)

    def _keep_warm(self, site_copy: SiteCopy, *, was_asked: bool) -> None:
        clock = self._twins.clock
        if not self._twins.is_spare_wanted(self._worker_index):
            self._end()
            return
        if clock() < self._retry_at or not (was_asked or self._is_start_due(site_copy)):
            return
        if not was_asked and not self._twins.start_quietly():
            return
        try:
            self._make_twin_fit(site_copy, with_state=may_see_state(site_copy, None))
        except PodwrightError as error:
            _log.warning("no twin can be started: %s", error.problem)
            self._retry_at = clock() + _RETRY_DELAY_S
        except Exception:
            _log.exception("no twin can be started")
            self._retry_at = clock() + _RETRY_DELAY_S
        finally:
            if not was_asked:
                self._twins.started()

    def _is_start_due(self, site_copy: SiteCopy) -> bool:
        """Return whether the twin should start, or start again, although nobody asks."""
        now = self._twins.clock()
        if self._twin is None or self._copy is None or now > self.since + _RENEW_AFTER_S:
            return True
        if not self._twins.is_spare_wanted(1) or not self._twins.may_renew(self):
            return False
        return now > self.since + _STALE_AFTER_S and _state_differs(self._copy, site_copy)

    def _answer_waiting(self, site_copy: SiteCopy, waiting_question: _WaitingQuestion) -> None:
        # A client that hung up has cancelled its question. From here on it can no longer do that,
        # so that each way out below may give the future its result.
        if not waiting_question.future.set_running_or_notify_cancel():
            self._twins.done(waiting_question, "cancelled")
            return
        outcome = "failed"
        try:
            if self._twins.clock() > waiting_question.since + _QUESTION_PATIENCE_S:
                raise TimedOut("the question waited too long for a twin of the controller")
            twin_answer = self._ask_twin(site_copy, waiting_question)
            outcome = "answered"
            waiting_question.future.set_result(twin_answer)
        except BaseException as error:
            if not isinstance(error, PodwrightError):
                _log.exception("a question failed")
                self._end()
            waiting_question.future.set_exception(error)
        finally:
            self._twins.done(waiting_question, outcome)

    def _ask_twin(self, site_copy: SiteCopy, waiting_question: _WaitingQuestion) -> TwinAnswer:
        question = waiting_question.question
        submission = question.submission()
        uid = waiting_question.uid if question.as_uid is None else question.as_uid
        with_state = may_see_state(site_copy, waiting_question.uid)
        too_old = self._twins.clock() > self.since + _MAX_STATE_AGE_S and _state_differs(
            self._copy, site_copy
        )
        if too_old or not self._twin_fits(site_copy, with_state=with_state):
            self._make_twin_fit(site_copy, with_state=with_state)
        assert self._twin
        assert self._copy
        self.warm = False
        unjudged_options = () if self._twin.knows_accounts else ("account", "qos")
        unjudged_options = (
            unjudged_options if self._with_state else (*unjudged_options, "reservation")
        )
        submission, left_out = without(submission, unjudged_options)
        slurm_answer = self._twin.ask(submission, as_uid=uid)
        twin_answer = TwinAnswer(
            self._twins.source.release,
            age=max(0.0, self._twins.clock() - self._copy.read_at) if self._with_state else None,
            idle_because=""
            if self._with_state
            else _why_nodes_idle(site_copy, with_state=with_state),
            accounts=self._twin.knows_accounts,
            groups=self._twin.knows_groups,
            left_out=left_out,
        )
        hidden_data = (
            frozenset() if sees_everything(site_copy, waiting_question.uid) else site_copy.hides
        )
        twin_answer = _redacted_answer(twin_answer, slurm_answer, hidden_data)
        return self._add_task_outcomes(twin_answer, submission) if question.tasks else twin_answer

    def _add_task_outcomes(self, twin_answer: TwinAnswer, submission: Submission) -> TwinAnswer:
        if twin_answer.granted is None or self._twin is None:
            return twin_answer
        task_count_match = re.search(r"\bNumTasks=(\d+)", twin_answer.granted.record)
        if task_count_match and int(task_count_match[1]) > _MOST_TASKS:
            return replace(twin_answer, tasks_problem=f"the job has more than {_MOST_TASKS} tasks")
        twin, granted = self._twin, twin_answer.granted
        return twin_answer.with_tasks(lambda: twin.tasks(submission, granted))

    def _twin_fits(self, site_copy: SiteCopy, *, with_state: bool) -> bool:
        return (
            self._twin is not None
            and self._copy is not None
            and self._with_state == (with_state and site_copy.present is not None)
            and self._twins.source.fits(self._copy, site_copy)
        )

    def _make_twin_fit(self, site_copy: SiteCopy, *, with_state: bool) -> None:
        """Let the twin run with this copy. Start it again where that is needed."""
        self.warm = False
        started_at = self._twins.clock()
        try:
            if self._twin is not None and self._twin_fits(site_copy, with_state=with_state):
                if self._with_state and site_copy.present is not None:
                    self._twin.renew(site_copy.present)
                else:
                    self._twin.refresh()
            else:
                self._end()
                self._with_state = with_state and site_copy.present is not None
                self._twin = self._twins.source.start(site_copy, self._with_state)
        except BaseException:
            self._end()
            raise
        self._copy, self.since, self.warm = site_copy, started_at, True

    def _end(self) -> None:
        self.warm = False
        if self._twin is not None:
            with suppress(Exception):
                self._twin.close()
        self._twin = self._copy = None


def sees_everything(site_copy: SiteCopy, uid: int | None) -> bool:
    """Return whether a user sees everything in Slurm, whatever PrivateData says: root and SlurmUser
    do.
    """
    return uid in (0, site_copy.slurm_uid)


def may_see_state(site_copy: SiteCopy, uid: int | None) -> bool:
    """Return whether this user's answers come from the present state. None: any user without
    rights.

    An answer shows which GPUs and cores of which nodes are free. Slurm shows the same in its list
    of nodes. Where PrivateData hides that list, users get answers for a cluster with all nodes
    idle.
    """
    return sees_everything(site_copy, uid) or "nodes" not in site_copy.hides


def _why_nodes_idle(site_copy: SiteCopy, *, with_state: bool) -> str:
    if not with_state:
        return "PrivateData hides the present state of nodes"
    return site_copy.no_state or "the present state is not known"


def _state_differs(old_copy: SiteCopy | None, new_copy: SiteCopy) -> bool:
    if old_copy is None or (old_copy.present is None) != (new_copy.present is None):
        return True
    return bool(new_copy.present) and old_copy.present != new_copy.present


#: Fields of a waiting job that tell when jobs of others end.
_TIME_FIELDS_PATTERN = re.compile(
    r" (?:StartTime|EndTime|SchedNodeList|LastSchedEval|Scheduler)=\S*"
)


def _redacted_answer(
    twin_answer: TwinAnswer, slurm_answer: Granted | Waits | Refused, hidden_data: frozenset[str]
) -> TwinAnswer:
    """Return the answer with Slurm's text cut, and without what PrivateData hides."""
    messages = slurm_answer.messages[-_MAX_TEXT_CHARS:]
    if isinstance(slurm_answer, Refused):
        return replace(twin_answer, refused=replace(slurm_answer, messages=messages))
    record = slurm_answer.record[:_MAX_TEXT_CHARS]
    if isinstance(slurm_answer, Granted):
        return replace(twin_answer, granted=replace(slurm_answer, record=record, messages=messages))
    if "jobs" in hidden_data:
        record = _TIME_FIELDS_PATTERN.sub("", record)
    if "nodes" in hidden_data or "reservations" in hidden_data:
        record = re.sub(r"(ReqNodeNotAvail)\S*", r"\1", record)
    return replace(twin_answer, waits=replace(slurm_answer, record=record, messages=messages))
