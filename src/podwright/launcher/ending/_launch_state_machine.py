"""A running launch as a pure state machine: events in, actions out, and at the end the cause.

Every ending is decided here: who is asked to end and when, who is killed, when nothing is left, and
what caused the end (_blame). The machine touches no process, descriptor or clock. So every order in
which processes and hosts can die is tested as a list of events. `_watch` connects the machine to
the world.

Events of one turn are taken in the order of what they can explain, and not in the order of the
connections that they came by: first a watcher that is gone, then hosts, then mpirun and its
daemons, then instances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatchmethod

from podwright.launcher.ending._find_end_cause import LaunchBlame, ReportRank
from podwright.launcher.ending._launch_states import (
    InstanceStates,
    LaunchFacts,
    LocalHostState,
    MpirunState,
    slow_start_warning,
)
from podwright.launcher.ending._move_decisions import Relocation
from podwright.launcher.hosts._host_states import HostState, HostStates
from podwright.launcher.hosts._relay_connections import SLACK as REMOTE_SLACK
from podwright.launcher.instances._exit_cause import (
    TIMED_OUT,
    TRY_AGAIN,
    Cause,
    abort_cause,
    described,
    instance_failed,
    mpirun_end_cause,
    mpirun_notice_cause,
    shell_code,
)
from podwright.launcher.options._move_notice import MOVED
from podwright.launcher.watchers import _launch_events as on
from podwright.launcher.watchers._guardian import MPIRUN_END_WAIT_S, ORPHAN_GRACE_S
from podwright.launcher.watchers._launch_events import GUARDIAN, KEEPER, Action, Event
from podwright.launcher.watchers._lease_keeper import SLACK

#: Seconds that processes which instances left running may go on after the last instance.
LEFTOVER_PATIENCE_S = 1.0
#: Seconds for which the handling of mpirun's end waits for earlier reports of other hosts.
_MPIRUN_END_WAIT_S = 5.0
_MPIRUN_OUTPUT_LIMIT_BYTES = 65536


class LaunchMachine:
    """One start of all instances, until everything has ended."""

    def __init__(self, launch_facts: LaunchFacts, now: float) -> None:
        self._facts = launch_facts
        self._hosts = HostStates(launch_facts.ranks, now)
        self._blame = LaunchBlame(
            [GUARDIAN, KEEPER, *launch_facts.ranks], by_mpirun=launch_facts.mpirun
        )
        self._instances, self._engine, self._local = (
            InstanceStates(),
            MpirunState(),
            LocalHostState(),
        )
        self.relocation = Relocation(launch_facts.move, launch_facts.instances)
        self._grace, self._deadline = launch_facts.grace, launch_facts.deadline
        self._round = 0
        self._now = now
        self._actions: list[Action] = []

    @property
    def cause(self) -> Cause | None:
        """The cause of the end. It is final once `done` is true. None: no failure so far."""
        return self._blame.cause

    @property
    def done(self) -> bool:
        """Whether nothing is left anywhere, as far as can be known."""
        return self._local.finished and self._hosts.over

    @property
    def finished_on_own_host(self) -> bool:
        """Whether nothing is left on the host of poprun."""
        return self._local.finished

    @property
    def started(self) -> bool:
        """Whether all instances have started."""
        return len(self._instances.started) == self._facts.instances

    def turn(self, events: Sequence[Event], now: float) -> list[Action]:
        """Take the events since the last turn, and do what is due now."""
        self._now, self._actions = now, []
        for event in sorted(events, key=on.event_precedence):
            self._take_event(event)
        self._do_due_work()
        return self._actions

    def pause(self, now: float) -> float:
        """Return the seconds until something is due without any event."""
        due_times = (self._local.kill_at, self.relocation.together_by, self._engine.slow_at)
        shortest_wait = min(max(due_time - now, 0.1) for due_time in due_times)
        if self._deadline is not None:
            shortest_wait = min(shortest_wait, max(self._deadline - now, 0.0))
        return min(shortest_wait, self.relocation.pause, 1.0 if self._hosts else math.inf)

    def _do_due_work(self) -> None:
        now = self._now
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            cause_text = f"--timeout: the limit of {self._facts.timeout:g} s is over"
            self._handle_failure(ReportRank.FINAL, Cause(TIMED_OUT, cause_text))
        self._actions += self.relocation.tick(now, started=self.started)
        if now > self.relocation.together_by:
            self.relocation.together_by = math.inf
            cause_text = "some instances ended to move, others did not"
            self._handle_failure(ReportRank.FINAL, Cause(MOVED, cause_text, moved=True))
        if now > self._local.kill_at:
            self._local.kill_at, self._grace = math.inf, 0.0
            self._actions.append(on.KillWatchers())
        if now > self._engine.slow_at:
            self._warn_slow_start()
        for host_state, reason in self._hosts.overdue(now):
            self._lose_host(host_state, reason)
        mpirun = self._engine
        if mpirun.end and (self._hosts.all_answered(mpirun.round) or now > mpirun.wait_until):
            mpirun_end, mpirun.end = mpirun.end, None
            self._handle_mpirun_end(mpirun_end)
        local_state = self._local
        watchers_quiet = local_state.quiet or local_state.finished
        if self._hosts and watchers_quiet and self._hosts.quiet and not local_state.released:
            local_state.released = True
            self._actions.append(on.ReleaseEngine())

    def _warn_slow_start(self) -> None:
        self._engine.slow_at = math.inf
        if not self._instances.started and self.cause is None:
            self._actions.append(on.Log("W", slow_start_warning(self._facts.slow_start)))

    @singledispatchmethod
    def _take_event(self, launch_event: Event) -> None:
        raise TypeError(launch_event)

    # Events of instances

    @_take_event.register
    def _(self, launch_event: on.InstanceStarted) -> None:
        if launch_event.rank < self._facts.instances:
            self._instances.started.add(launch_event.rank)
            self._actions.append(on.RecordStart(launch_event.rank, launch_event.pid, self.started))

    @_take_event.register
    def _(self, launch_event: on.InstanceEnded) -> None:
        if (
            launch_event.rank < self._facts.instances
            and launch_event.rank not in self._instances.codes
        ):
            self._instance_ended(launch_event.rank, launch_event.code)

    def _instance_ended(self, instance_rank: int, exit_code: int) -> None:
        self._instances.codes[instance_rank] = exit_code
        ended_to_move = exit_code == MOVED and bool(self.relocation.word)
        self._actions.append(
            on.RecordEnd(instance_rank, exit_code, bool(exit_code) and not ended_to_move)
        )
        if ended_to_move:
            self.relocation.instance_ended_to_move(self._now)
        elif exit_code:
            cause = instance_failed(instance_rank, self._facts.places, exit_code)
            self._handle_failure(
                ReportRank.INSTANCE, cause, self._hosts.host_of(instance_rank) or GUARDIAN
            )
        all_ended = len(self._instances.codes) == self._facts.instances
        if all_ended and not self._local.below and not self._instances.all_ended:
            # The request is sent once: the guardian does not read while it reports each instance,
            # so neither pipe may fill up.
            self._instances.all_ended = True
            self.relocation.together_by = math.inf
            some_moved = MOVED in self._instances.codes.values() and self.relocation.word
            if self.cause is None and some_moved:
                cause_text = "its instances have ended to move"
                self._blame.report(
                    ReportRank.FINAL, Cause(MOVED, cause_text, moved=True), "", self._now
                )
            self._begin_end(LEFTOVER_PATIENCE_S, self._grace)

    @_take_event.register
    def _(self, launch_event: on.ScriptEnded) -> None:
        instance_rank, exit_code = launch_event.rank, launch_event.code
        if instance_rank in self._instances.codes or not 0 <= instance_rank < self._facts.instances:
            return
        if exit_code is None:
            self._instances.started.add(instance_rank)
            message = f"instance {instance_rank} cannot be started: {launch_event.problem}"
            self._handle_failure(
                ReportRank.INSTANCE,
                Cause(126, message, instance_rank),
                self._hosts.host_of(instance_rank) or GUARDIAN,
            )
            exit_code = 126
        # The script itself ended, and nobody watches the processes that it started.
        if exit_code < 0:
            self._grace = min(self._grace, ORPHAN_GRACE_S)
        self._instance_ended(instance_rank, shell_code(exit_code))

    # Events of mpirun and its daemons

    @_take_event.register
    def _(self, launch_event: on.EngineStarted) -> None:
        self._engine.pid = launch_event.pid
        self._engine.slow_at = self._now + self._facts.slow_start

    @_take_event.register
    def _(self, launch_event: on.EngineWrote) -> None:
        self._engine.words = (self._engine.words + launch_event.data)[-_MPIRUN_OUTPUT_LIMIT_BYTES:]

    @_take_event.register
    def _(self, launch_event: on.EngineEnded) -> None:
        # The guardian goes on to answer, so whether it had answered by now is recorded here.
        self._engine.early = self._blame.may_precede_failure(GUARDIAN, self._now)
        if not self._hosts:
            self._handle_mpirun_end(launch_event)
            return
        # Reports of its instances on other hosts may still be on their way.
        self._engine.end, self._engine.wait_until = launch_event, self._now + _MPIRUN_END_WAIT_S
        self._engine.round = self._question()

    def _handle_mpirun_end(self, mpirun_ended: on.EngineEnded) -> None:
        if mpirun_ended.code is None:
            self._handle_failure(
                ReportRank.FINAL, Cause(126, f"mpirun cannot be started: {mpirun_ended.problem}")
            )
            return
        self._actions.append(on.Log("I", f"mpirun terminated with exit code {mpirun_ended.code}"))
        mpirun_named_instance = self._named_by_mpirun()
        killed_by_signal, exit_codes = mpirun_ended.code < 0, self._instances.codes
        running_instances = [
            rank for rank in range(self._facts.instances) if rank not in exit_codes
        ]
        # If a signal ended mpirun, instances that failed at the same time ran until then.
        ran_until_end = (
            [rank for rank in range(self._facts.instances) if exit_codes.get(rank, 1)]
            if killed_by_signal
            else running_instances
        )
        if running_instances or (ran_until_end and self._engine.early):
            blamed_instances = ran_until_end if self._instances.started else []
            cause = mpirun_end_cause(mpirun_ended.code, blamed_instances, self._engine.words)
            if killed_by_signal:
                self._handle_broken_party(
                    ReportRank.ENGINE_KILLED, cause, GUARDIAN, early=self._engine.early
                )
            elif not mpirun_named_instance:
                self._handle_broken_party(
                    ReportRank.ENGINE_ENDED, cause, GUARDIAN, early=self._engine.early
                )
            self._begin_end(0.0, self._grace)

    def _named_by_mpirun(self) -> bool:
        """Return whether mpirun names the instance for which it ended all others, and report
        that.
        """
        output, count = self._engine.words, self._facts.instances
        if cause := abort_cause(output, count):
            self._blame.named_by_mpirun(cause, self._now)
        elif cause := mpirun_notice_cause(output, count, self._facts.places):
            self._blame.take_mpirun_notice(cause, self._now, arrived_early=self._engine.early)
        return cause is not None

    @_take_event.register
    def _(self, launch_event: on.DaemonEnded) -> None:
        if launch_event.code == 0:
            return
        # A shell is between the guardian and the daemon, and may pass on a signal as a code.
        exit_code = launch_event.code or 0
        killed_by_signal = exit_code < 0 or exit_code > 128
        ending_text = launch_event.problem or described(shell_code(exit_code))
        cause = Cause(
            TRY_AGAIN if killed_by_signal else 1,
            f"mpirun's daemon on {launch_event.host} {ending_text}",
            restartable=True,
        )
        self._handle_broken_party(
            ReportRank.ENGINE_KILLED if killed_by_signal else ReportRank.ENGINE_ENDED,
            cause,
            launch_event.host,
        )

    # Events of the watchers of this host

    @_take_event.register
    def _(self, launch_event: on.WatcherGone) -> None:
        """The other one ends what it watched; poprun does, where it is alone."""
        state = self._local
        if state.finished or launch_event.watcher in state.ended_watchers:
            return
        state.ended_watchers.add(launch_event.watcher)
        message = f"poprun's {launch_event.watcher} process was ended"
        self._handle_broken_party(
            ReportRank.WATCHER, Cause(TRY_AGAIN, message), launch_event.watcher
        )
        if state.ended_watchers == {GUARDIAN, KEEPER} and not state.below:
            state.below = True
            self._actions.append(on.EndBelow(self._grace, self._engine.pid))
        self._finish_if_cleared()

    @_take_event.register
    def _(self, launch_event: on.KeeperCleared) -> None:
        self._local.cleared = True
        self._finish_if_cleared()

    def _finish_if_cleared(self) -> None:
        if self._local.cleared and GUARDIAN in self._local.ended_watchers:
            self._local.finished = True

    @_take_event.register(on.GuardianFinished)
    @_take_event.register(on.BelowEnded)
    def _(self, launch_event: Event) -> None:
        self._local.finished = True

    @_take_event.register
    def _(self, launch_event: on.GuardianQuiet) -> None:
        self._local.quiet = True

    # Events of other hosts

    @_take_event.register
    def _(self, launch_event: on.LivenessAnswered) -> None:
        if state := self._hosts.get(launch_event.party):
            state.answered = max(state.answered, launch_event.round)
        self._blame.answered(launch_event.party)

    @_take_event.register
    def _(self, launch_event: on.HostHeard) -> None:
        if state := self._hosts.get(launch_event.host):
            state.heard = self._now

    @_take_event.register
    def _(self, launch_event: on.HostsUnheard) -> None:
        self._hosts.heard_all(self._now)
        if launch_event.stood_still:
            self._hosts.stood_still(launch_event.stood_still, self._now)

    @_take_event.register
    def _(self, launch_event: on.HostQuiet) -> None:
        if state := self._hosts.get(launch_event.host):
            state.quiet = True

    @_take_event.register
    def _(self, launch_event: on.HostFinished) -> None:
        if state := self._hosts.get(launch_event.host):
            state.finished = True

    @_take_event.register
    def _(self, launch_event: on.HostCut) -> None:
        if state := self._hosts.get(launch_event.host):
            self._lose_host(state, launch_event.reason)

    @_take_event.register
    def _(self, launch_event: on.PoprunUnheard) -> None:
        if state := self._hosts.get(launch_event.host):
            stood_still_s = self._hosts.silence_of_poprun(self._now)
            cause = state.ended_unheard(launch_event.reason, stood_still_s)
            self._handle_broken_party(ReportRank.HOST, cause, state.name)

    def _lose_host(self, host_state: HostState, loss_reason: str) -> None:
        host_state.lost = True
        self._actions.append(on.HangUp(host_state.name))
        cause = host_state.loss(loss_reason)
        if stood_still_s := self._hosts.silence_of_poprun(self._now):
            # Its relay gave up poprun, and could not say so any more.
            cause = host_state.ended_unheard(loss_reason, stood_still_s)
        self._handle_broken_party(ReportRank.HOST, cause, host_state.name)

    @_take_event.register
    def _(self, launch_event: on.HostBroken) -> None:
        if state := self._hosts.get(launch_event.host):
            cause = Cause(
                TRY_AGAIN,
                f"host {launch_event.host}: {launch_event.reason}",
                restartable=True,
            )
            self._handle_broken_party(ReportRank.HOST, cause, launch_event.host)
            state.answered = self._round  # no party is left there that could answer

    # Ends from outside

    @_take_event.register
    def _(self, launch_event: on.LeaseLost) -> None:
        # The devices may soon belong to somebody else.
        cause = Cause(TRY_AGAIN, "the lease on the partition is over", restartable=True)
        self._handle_broken_party(ReportRank.LEASE, cause, KEEPER)

    @_take_event.register
    def _(self, launch_event: on.OutputUnread) -> None:
        self._handle_failure(ReportRank.FINAL, Cause(128 + 13, "nobody reads the output any more"))

    @_take_event.register
    def _(self, launch_event: on.RelayFailed) -> None:
        self._handle_failure(ReportRank.FINAL, Cause(launch_event.code, launch_event.text))

    @_take_event.register
    def _(self, launch_event: on.EndSignal) -> None:
        if self.cause is not None:
            self._begin_end(0.0, 0.0)
            return
        message = f"{launch_event.name}: asking the instances to end; once more ends them now"
        self._actions.append(on.Print(message))
        self._handle_failure(
            ReportRank.FINAL, Cause(128 + launch_event.number, f"{launch_event.name} received")
        )

    @_take_event.register
    def _(self, launch_event: on.ForwardSignal) -> None:
        self._actions.append(on.SendSignal(launch_event.number))

    # Moves

    @_take_event.register
    def _(self, launch_event: on.ListenersCounted) -> None:
        self._actions += self.relocation.counted(launch_event, len(self._instances.codes))

    @_take_event.register
    def _(self, launch_event: on.PartitionFaulty) -> None:
        if launch_event.errors:
            text = f"the partition is in error, and the program runs on: {launch_event.errors}"
        else:
            text = "the partition is not in error any more"
        self._actions.append(on.Log("W", text))

    @_take_event.register
    def _(self, launch_event: on.MoveRequested) -> None:
        if not self.cause and not self._instances.all_ended:
            self.relocation.requested(launch_event, self._now)

    # The end

    def _question(self) -> int:
        self._round += 1
        self._actions.append(on.LivenessCheck(self._round))
        return self._round

    def _handle_broken_party(
        self, report_rank: ReportRank, cause: Cause, answering_party: str, *, early: bool = False
    ) -> None:
        """Handle the loss of one of the launcher's own processes. It leaves only a short grace
        period.
        """
        self._grace = min(self._grace, ORPHAN_GRACE_S)
        self._handle_failure(report_rank, cause, answering_party, early=early)

    def _handle_failure(
        self,
        report_rank: ReportRank,
        cause: Cause,
        answering_party: str = "",
        *,
        early: bool = False,
    ) -> None:
        """Handle a failure. The first failure begins the end, and makes all parties be asked to
        answer.
        """
        if self._blame.report(report_rank, cause, answering_party, self._now, early=early):
            self._question()
            self._begin_end(0.0, self._grace)

    def _begin_end(self, patience_s: float, grace_s: float) -> None:
        if self.cause is not None:
            self._blame.begin_end(self._now, patience_s + grace_s, MPIRUN_END_WAIT_S + SLACK)
        if self._local.below:
            self._actions.append(on.HastenBelow(patience_s, grace_s))
        # mpirun would end all instances at once, on all hosts.
        mpirun = bool(self._hosts) and self._engine.pid > 0
        mpirun_patience_s = patience_s + (REMOTE_SLACK if mpirun else 0.0)
        if not self._local.below:
            kill_watchers_at = (
                self._now + mpirun_patience_s + grace_s + MPIRUN_END_WAIT_S + 2 * SLACK
            )
            self._local.kill_at = min(self._local.kill_at, kill_watchers_at)
        self._actions.append(on.EndInstances(patience_s, grace_s, mpirun, mpirun_patience_s))
        hosts_end_by = self._now + patience_s + grace_s + REMOTE_SLACK
        self._hosts.end_by = min(self._hosts.end_by, hosts_end_by)
