"""Finds why a launch ended: the one cause among everything that was reported.

One death causes many. When a relay is killed, its guardian ends the instances there, mpirun ends
those of other hosts, and their peers fail with whatever code they have for a lost connection. All
of that is reported over separate connections, so the order in which poprun reads it says little.
Two rules find the cause:

- A process of the launcher's own does not end without a reason. Its death outranks what it can have
  brought about. The ranks, from the weakest: an instance failed; mpirun or a daemon of it ended by
  itself; a signal ended one of these; a host was lost, or its guardian; the keeper or the guardian
  of poprun's host was ended; the lease is over.
- A stronger report counts only if it may be older than the weaker one. When the first failure is
  read, every party is asked to answer, and its answer comes after everything that it had reported.
  A party that answers was alive after the failure, so its later death did not cause the failure. A
  party that never answers was already gone. Within SETTLE_SECONDS of the failure, a report
  counts in any case: a process closes its connections a moment before its parent learns of its end,
  and the parent may answer in between.

Of two instances, one that a signal ended outranks one that ended with a code of its own, because
peers that lose a connection end with codes of their own. Across hosts it is not known which of two
such codes came first, so the first that is read is blamed.

An end by a person or a limit (a signal, --timeout, the lease) is final, because everything else
follows from it.
"""

from __future__ import annotations

import signal
from collections.abc import Collection
from enum import IntEnum

from podwright.launcher.instances._exit_cause import Cause
from podwright.launcher.watchers._launch_events import GUARDIAN

#: Seconds after a failure in which the death of a launcher's process still counts as its cause.
SETTLE_SECONDS = 1.0
#: The codes with which mpirun ends the instances of other hosts once one of its daemons is gone.
MPIRUN_END_EXIT_CODES = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


class ReportRank(IntEnum):
    """The strength of a report. A stronger report explains a weaker one."""

    INSTANCE = 0
    ENGINE_ENDED = 1
    ENGINE_KILLED = 2
    HOST = 3
    WATCHER = 4
    LEASE = 5
    FINAL = 6


class LaunchBlame:
    """Keeps the cause. parties: those who answer questions (GUARDIAN, KEEPER, hosts by name).

    by_mpirun: whether mpirun starts the instances, and ends the others once one of them has failed.
    """

    def __init__(self, parties: Collection[str], *, by_mpirun: bool) -> None:
        self.cause: Cause | None = None
        self._mpirun_starts_instances = by_mpirun
        self._rank = ReportRank.INSTANCE
        #: The parties that have not answered since the first report.
        self._silent = set(parties)
        self._explanations_until = self._kill_due_at = 0.0

    def report(
        self,
        rank: ReportRank,
        cause: Cause,
        answering_party: str,
        now: float,
        *,
        early: bool = False,
    ) -> bool:
        """Take the report of a failure. Returns whether it is the first, which begins the end.

        answering_party: the party that answers for it. early: `may_precede_failure` was true when
        the report arrived.
        """
        if self.cause is None:
            self._take(rank, cause)
            self._explanations_until = now + SETTLE_SECONDS
            return True
        if self._outranks_current(rank, cause, answering_party, now, early):
            self._take(rank, cause)
        return False

    def may_precede_failure(self, answering_party: str, now: float) -> bool:
        """Whether what a party reports now may be older than the first report."""
        return (
            self.cause is None or answering_party in self._silent or now <= self._explanations_until
        )

    def _take(self, report_rank: ReportRank, cause: Cause) -> None:
        self.cause, self._rank = cause, report_rank

    def _outranks_current(
        self,
        report_rank: ReportRank,
        cause: Cause,
        answering_party: str,
        now: float,
        arrived_early: bool,
    ) -> bool:
        assert self.cause
        if report_rank == ReportRank.FINAL:
            return False
        ended_by_mpirun = self._mpirun_starts_instances and self.cause.code in MPIRUN_END_EXIT_CODES
        if report_rank == self._rank == ReportRank.INSTANCE:
            # Once a host has answered, its instances may fail because poprun ends them. A script
            # reports a SIGKILL a moment later than the instance's peers notice it. poprun itself
            # kills only when the grace period is over.
            killed_early = cause.code == 128 + signal.SIGKILL and now <= self._explanations_until
            return (answering_party in self._silent or killed_early) and self._own_failure_weight(
                cause
            ) > self._own_failure_weight(self.cause)
        if report_rank <= self._rank:
            return False
        if report_rank == ReportRank.ENGINE_ENDED and not ended_by_mpirun:
            return False  # mpirun ends by itself after an instance that skipped MPI_Finalize
        if report_rank == ReportRank.WATCHER and now >= self._kill_due_at > 0:
            return False  # from then on the keeper kills a late guardian
        return arrived_early or self.may_precede_failure(answering_party, now)

    def _own_failure_weight(self, instance_cause: Cause) -> int:
        """Return how likely it is that the instance failed by itself.

        The end of an instance by SIGTERM explains no other end: poprun ends the other instances
        that way after the first failure, and mpirun does so before poprun has heard of the failure.
        """
        if instance_cause.code == 128 + signal.SIGTERM:
            return 0 if self._mpirun_starts_instances else 1
        return 2 if instance_cause.code > 128 else 1

    def answered(self, answering_party: str) -> None:
        """Record that a party answered after the first report, so it was alive then."""
        if self.cause:
            self._silent.discard(answering_party)

    def begin_end(self, now: float, seconds_to_kill: float, guardian_slack_s: float) -> None:
        """Record that the end begins.

        seconds_to_kill: the time from now until poprun kills the instances and mpirun.
        guardian_slack_s: the further time until it kills a guardian.
        """
        self._explanations_until = min(self._explanations_until, now + seconds_to_kill)
        deadline = now + seconds_to_kill + guardian_slack_s
        self._kill_due_at = min(self._kill_due_at or deadline, deadline)

    def named_by_mpirun(self, instance_cause: Cause, now: float) -> None:
        """Take mpirun's message that names the instance for which it ended all others."""
        if (
            not self.report(ReportRank.INSTANCE, instance_cause, GUARDIAN, now)
            and self._rank == ReportRank.INSTANCE
        ):
            self._take(ReportRank.INSTANCE, instance_cause)

    def take_mpirun_notice(self, instance_cause: Cause, now: float, *, arrived_early: bool) -> None:
        """Take mpirun's message that names an instance whose script a signal ended.

        arrived_early: see `report`. mpirun also names scripts that poprun itself has ended. The
        earlier cause then stays. A process that mpirun has just forked does not yet ignore SIGTERM
        as the script does, so its end by SIGTERM does not explain the failure of another instance.
        """
        if (
            self.report(ReportRank.INSTANCE, instance_cause, GUARDIAN, now)
            or self._rank != ReportRank.INSTANCE
        ):
            return
        assert self.cause
        if arrived_early and self._own_failure_weight(instance_cause) >= self._own_failure_weight(
            self.cause
        ):
            self._take(ReportRank.INSTANCE, instance_cause)
