"""When each job is reconciled: now, once more, later, or after a pause because it failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from podwright.errors import PodwrightError, WrongState
from podwright.guests.kubernetes.job._ipu_job import JobKey
from podwright.guests.kubernetes.operator._operator_metrics import OperatorCounts

_log = logging.getLogger("podwright.guests.kubernetes")

#: Seconds after which a failed reconciliation is repeated. Each further failure doubles the pause.
FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 60.0
_MIN_DELAY_S: Final = 0.05


class WorkQueue:
    """Reconciles jobs one by one, each as often as something of it changes.

    reconcile: does what a job needs now. Returns when to look at it again although nothing changes,
    in seconds since 1970 by `wall`, or 0 if that is not needed. It may raise WrongState when the
    job was changed meanwhile, and PodwrightError. clock: returns seconds and never goes backwards.
    counts: what is counted for /metrics.

    A job is reconciled at most once at a time, and no change is lost. `poke` either starts a
    reconciliation, which reads the job after the call, or one is under way, which may have read the
    job before the change. Then the job is marked, and reconciled again afterwards. The end of a
    reconciliation removes its task and looks at the mark without giving way in between. So there is
    no instant in which a change finds a task that no longer looks. What a mark requests comes
    before any pause of the reconciliation that has ended. Each job has at most one timer, and a
    reconciliation that starts cancels it.

    After `stop` nothing starts: another operator may act already.
    """

    def __init__(
        self,
        reconcile: Callable[[JobKey], Awaitable[float]],
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        counts: OperatorCounts,
    ) -> None:
        self._reconcile = reconcile
        self._wall, self._clock, self._counts = wall, clock, counts
        self._keys: dict[str, JobKey] = {}
        self._reconciling_uids: set[str] = set()  # uids of jobs with a task that is under way
        self._reconcile_again_uids: set[str] = set()  # uids to reconcile once more after that
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = False

    def key_of(self, uid: str) -> JobKey | None:
        """Return the key of a job that was poked and not forgotten since."""
        return self._keys.get(uid)

    def idle_uids(self) -> set[str]:
        """Return the uids of known jobs that are not being reconciled."""
        return self._keys.keys() - self._reconciling_uids

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way and nothing is due later."""
        return not (self._tasks or self._timers)

    def poke_all(self) -> None:
        """Reconcile all known jobs now."""
        for key in list(self._keys.values()):
            self.poke(key)

    def poke(self, job_key: JobKey) -> None:
        """Reconcile a job now, or as soon as the reconciliation that is under way has finished."""
        if self._over:
            return
        self._keys[job_key.uid] = job_key
        if job_key.uid in self._reconciling_uids:
            self._reconcile_again_uids.add(job_key.uid)
            return
        self._cancel_timer(job_key.uid)
        self._reconciling_uids.add(job_key.uid)
        self.begin(self._reconcile_soon(job_key))

    def later(self, job_key: JobKey, delay_s: float) -> None:
        """Poke a job after a time. An earlier call for the job no longer counts."""
        if self._over:
            return
        self._cancel_timer(job_key.uid)
        loop = asyncio.get_running_loop()
        self._timers[job_key.uid] = loop.call_later(max(delay_s, _MIN_DELAY_S), self.poke, job_key)

    def forget(self, uid: str) -> None:
        """Forget a job that is gone. What is under way for it ends by itself."""
        self._keys.pop(uid, None)
        self._failures.pop(uid, None)
        self._cancel_timer(uid)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside, until its end or `stop`."""
        if self._over:
            work.close()
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Cancel everything, and wait until it has ended."""
        self._over = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        cancelled_tasks = list(self._tasks)
        for task in cancelled_tasks:
            task.cancel()
        await asyncio.gather(*cancelled_tasks, return_exceptions=True)

    def _cancel_timer(self, job_uid: str) -> None:
        if poke_timer := self._timers.pop(job_uid, None):
            poke_timer.cancel()

    async def _reconcile_soon(self, job_key: JobKey) -> None:
        job_uid, began_at = job_key.uid, self._clock()
        try:
            next_look_at = await self._reconcile(job_key)
            self._failures.pop(job_uid, None)
            if next_look_at:
                self.later(job_key, next_look_at - self._wall())
        except WrongState:
            self._reconcile_again_uids.add(job_uid)  # it was changed meanwhile
        except PodwrightError as error:
            failure_count = self._failures[job_uid] = self._failures.get(job_uid, 0) + 1
            self._counts.errors += 1
            _log.warning("job %s/%s: %s", job_key.namespace, job_key.name, error)
            self.later(job_key, min(FIRST_RETRY_S * 2 ** (failure_count - 1), _MAX_RETRY_S))
        except Exception:
            self._counts.errors += 1
            _log.exception("job %s/%s", job_key.namespace, job_key.name)
            self.later(job_key, _MAX_RETRY_S)
        finally:
            self._counts.reconciles += 1
            self._counts.reconcile_s += self._clock() - began_at
            self._reconciling_uids.discard(job_uid)
            if job_uid in self._reconcile_again_uids:
                self._reconcile_again_uids.discard(job_uid)
                self.later(job_key, 0.0)
