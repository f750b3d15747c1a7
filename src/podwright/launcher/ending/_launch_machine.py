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

from podwright.launcher.ending._blame import Blame, Rank
from podwright.launcher.ending._launch_states import (
    EngineState,
    InstanceStates,
    LaunchFacts,
    LocalState,
    slow_start_warning,
)
from podwright.launcher.ending._relocation import Relocation
from podwright.launcher.hosts._host_states import LOST_HOST, HostState, HostStates
from podwright.launcher.hosts._relays import SLACK as REMOTE_SLACK
from podwright.launcher.instances._exit_cause import (
    TIMED_OUT,
    Cause,
    aborted,
    described,
    engine_gone,
    instance_failed,
    noticed,
    shell_code,
)
from podwright.launcher.options._move_notice import MOVED
from podwright.launcher.watchers import _launch_events as on
from podwright.launcher.watchers._guardian import LAST_WORDS, ORPHAN_GRACE
from podwright.launcher.watchers._launch_events import GUARDIAN, KEEPER, Action, Event
from podwright.launcher.watchers._lease_keeper import SLACK

#: Seconds that processes which instances left running may go on after the last instance.
PATIENCE = 1.0
#: Seconds for which the handling of mpirun's end waits for earlier reports of other hosts.
_ENGINE_WAITS = 5.0
_WORDS = 65536


class LaunchMachine:
    """One start of all instances, until everything has ended."""

    def __init__(self, facts: LaunchFacts, now: float) -> None:
        self._facts = facts
        self._hosts = HostStates(facts.ranks, now)
        self._blame = Blame([GUARDIAN, KEEPER, *facts.ranks], by_mpirun=facts.mpirun)
        self._instances, self._engine, self._local = InstanceStates(), EngineState(), LocalState()
        self.relocation = Relocation(facts.move, facts.instances)
        self._grace, self._deadline = facts.grace, facts.deadline
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
    def finished_here(self) -> bool:
        """Whether nothing is left on the host of poprun."""
        return self._local.finished

    @property
    def started(self) -> bool:
        """Whether all instances have started."""
        return len(self._instances.started) == self._facts.instances

    def turn(self, events: Sequence[Event], now: float) -> list[Action]:
        """Take the events since the last turn, and do what is due now."""
        self._now, self._actions = now, []
        for event in sorted(events, key=on.precedence):
            self._take(event)
        self._tick()
        return self._actions

    def pause(self, now: float) -> float:
        """Return the seconds until something is due without any event."""
        moments = (self._local.kill_at, self.relocation.together_by, self._engine.slow_at)
        least = min(max(moment - now, 0.1) for moment in moments)
        if self._deadline is not None:
            least = min(least, max(self._deadline - now, 0.0))
        return min(least, self.relocation.pause, 1.0 if self._hosts else math.inf)

    def _tick(self) -> None:
        now = self._now
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            text = f"--timeout: {self._facts.timeout:g} seconds are over"
            self._fail(Rank.FINAL, Cause(TIMED_OUT, text))
        self._actions += self.relocation.tick(now, started=self.started)
        if now > self.relocation.together_by:
            self.relocation.together_by = math.inf
            text = "some instances ended to move, others did not"
            self._fail(Rank.FINAL, Cause(MOVED, text, moved=True))
        if now > self._local.kill_at:
            self._local.kill_at, self._grace = math.inf, 0.0
            self._actions.append(on.KillWatchers())
        if now > self._engine.slow_at:
            self._warn_of_slow_start()
        for state, reason in self._hosts.overdue(now):
            self._lose(state, reason)
        engine = self._engine
        if engine.end and (self._hosts.all_answered(engine.round) or now > engine.wait_until):
            end, engine.end = engine.end, None
            self._engine_ended(end)
        local = self._local
        watchers_quiet = local.quiet or local.finished
        if self._hosts and watchers_quiet and self._hosts.quiet and not local.released:
            local.released = True
            self._actions.append(on.ReleaseEngine())

    def _warn_of_slow_start(self) -> None:
        self._engine.slow_at = math.inf
        if not self._instances.started and self.cause is None:
            self._actions.append(on.Log("W", slow_start_warning(self._facts.slow_start)))

    @singledispatchmethod
    def _take(self, event: Event) -> None:
        raise TypeError(event)

    # Events of instances

    @_take.register
    def _(self, event: on.InstanceStarted) -> None:
        if event.rank < self._facts.instances:
            self._instances.started.add(event.rank)
            self._actions.append(on.RecordStart(event.rank, event.pid, self.started))

    @_take.register
    def _(self, event: on.InstanceEnded) -> None:
        if event.rank < self._facts.instances and event.rank not in self._instances.codes:
            self._instance_ended(event.rank, event.code)

    def _instance_ended(self, rank: int, code: int) -> None:
        self._instances.codes[rank] = code
        moves = code == MOVED and bool(self.relocation.word)
        self._actions.append(on.RecordEnd(rank, code, bool(code) and not moves))
        if moves:
            self.relocation.one_ended(self._now)
        elif code:
            cause = instance_failed(rank, self._facts.places, code)
            self._fail(Rank.INSTANCE, cause, self._hosts.host_of(rank) or GUARDIAN)
        all_ended = len(self._instances.codes) == self._facts.instances
        if all_ended and not self._local.below and not self._instances.all_ended:
            # The request is sent once: the guardian does not read while it reports each instance,
            # so neither pipe may fill up.
            self._instances.all_ended = True
            self.relocation.together_by = math.inf
            moved = MOVED in self._instances.codes.values() and self.relocation.word
            if self.cause is None and moved:
                text = "its instances have ended to move"
                self._blame.report(Rank.FINAL, Cause(MOVED, text, moved=True), "", self._now)
            self._end(PATIENCE, self._grace)

    @_take.register
    def _(self, event: on.ScriptEnded) -> None:
        rank, code = event.rank, event.code
        if rank in self._instances.codes or not 0 <= rank < self._facts.instances:
            return
        if code is None:
            self._instances.started.add(rank)
            text = f"instance {rank} cannot be started: {event.problem}"
            self._fail(Rank.INSTANCE, Cause(126, text, rank), self._hosts.host_of(rank) or GUARDIAN)
            code = 126
        if code < 0:  # the script itself ended, and nobody watches the processes that it started
            self._grace = min(self._grace, ORPHAN_GRACE)
        self._instance_ended(rank, shell_code(code))

    # Events of mpirun and its daemons

    @_take.register
    def _(self, event: on.EngineStarted) -> None:
        self._engine.pid = event.pid
        self._engine.slow_at = self._now + self._facts.slow_start

    @_take.register
    def _(self, event: on.EngineWrote) -> None:
        self._engine.words = (self._engine.words + event.data)[-_WORDS:]

    @_take.register
    def _(self, event: on.EngineEnded) -> None:
        # The guardian goes on to answer, so whether it had answered by now is recorded here.
        self._engine.early = self._blame.may_explain(GUARDIAN, self._now)
        if not self._hosts:
            self._engine_ended(event)
            return
        # Reports of its instances on other hosts may still be on their way.
        self._engine.end, self._engine.wait_until = event, self._now + _ENGINE_WAITS
        self._engine.round = self._question()

    def _engine_ended(self, event: on.EngineEnded) -> None:
        if event.code is None:
            self._fail(Rank.FINAL, Cause(126, f"mpirun cannot be started: {event.problem}"))
            return
        self._actions.append(on.Log("I", f"mpirun terminated with exit code {event.code}"))
        named = self._named_by_mpirun()
        killed, codes = event.code < 0, self._instances.codes
        left = [i for i in range(self._facts.instances) if i not in codes]
        # If a signal ended mpirun, instances that failed at the same time ran until then.
        ran = [i for i in range(self._facts.instances) if codes.get(i, 1)] if killed else left
        if left or (ran and self._engine.early):
            running = ran if self._instances.started else []
            cause = engine_gone(event.code, running, self._engine.words)
            if killed:
                self._broken(Rank.ENGINE_KILLED, cause, GUARDIAN, early=self._engine.early)
            elif not named:
                self._broken(Rank.ENGINE_ENDED, cause, GUARDIAN, early=self._engine.early)
            self._end(0.0, self._grace)

    def _named_by_mpirun(self) -> bool:
        """Return whether mpirun names the instance for which it ended all others, and report
        that.
        """
        words, count = self._engine.words, self._facts.instances
        if cause := aborted(words, count):
            self._blame.named_by_mpirun(cause, self._now)
        elif cause := noticed(words, count, self._facts.places):
            self._blame.take_mpirun_notice(cause, self._now, early=self._engine.early)
        return cause is not None

    @_take.register
    def _(self, event: on.DaemonEnded) -> None:
        if event.code == 0:
            return
        # A shell is between the guardian and the daemon, and may pass on a signal as a code.
        code = event.code or 0
        killed = code < 0 or code > 128
        how = event.problem or described(shell_code(code))
        cause = Cause(1, f"mpirun's daemon on {event.host} {how}", restartable=True)
        self._broken(Rank.ENGINE_KILLED if killed else Rank.ENGINE_ENDED, cause, event.host)

    # Events of the watchers of this host

    @_take.register
    def _(self, event: on.WatcherGone) -> None:
        """The other one ends what it watched; poprun does, where it is alone."""
        local = self._local
        if local.finished or event.watcher in local.ended_watchers:
            return
        local.ended_watchers.add(event.watcher)
        text = f"poprun's {event.watcher} process was ended"
        self._broken(Rank.WATCHER, Cause(128 + 9, text), event.watcher)
        if local.ended_watchers == {GUARDIAN, KEEPER} and not local.below:
            local.below = True
            self._actions.append(on.EndBelow(self._grace, self._engine.pid))
        self._finish_if_cleared()

    @_take.register
    def _(self, event: on.KeeperCleared) -> None:
        self._local.cleared = True
        self._finish_if_cleared()

    def _finish_if_cleared(self) -> None:
        if self._local.cleared and GUARDIAN in self._local.ended_watchers:
            self._local.finished = True

    @_take.register(on.GuardianFinished)
    @_take.register(on.BelowEnded)
    def _(self, event: Event) -> None:
        self._local.finished = True

    @_take.register
    def _(self, event: on.GuardianQuiet) -> None:
        self._local.quiet = True

    # Events of other hosts

    @_take.register
    def _(self, event: on.Answered) -> None:
        if state := self._hosts.get(event.party):
            state.answered = max(state.answered, event.round)
        self._blame.answered(event.party)

    @_take.register
    def _(self, event: on.HostHeard) -> None:
        if state := self._hosts.get(event.host):
            state.heard = self._now

    @_take.register
    def _(self, event: on.HostsUnheard) -> None:
        self._hosts.heard_all(self._now)

    @_take.register
    def _(self, event: on.HostQuiet) -> None:
        if state := self._hosts.get(event.host):
            state.quiet = True

    @_take.register
    def _(self, event: on.HostFinished) -> None:
        if state := self._hosts.get(event.host):
            state.finished = True

    @_take.register
    def _(self, event: on.HostCut) -> None:
        if state := self._hosts.get(event.host):
            self._lose(state, event.reason)

    def _lose(self, state: HostState, reason: str) -> None:
        state.lost = True
        self._actions.append(on.HangUp(state.name))
        self._broken(Rank.HOST, state.loss(reason), state.name)

    @_take.register
    def _(self, event: on.HostBroken) -> None:
        if state := self._hosts.get(event.host):
            cause = Cause(LOST_HOST, f"host {event.host}: {event.reason}", restartable=True)
            self._broken(Rank.HOST, cause, event.host)
            state.answered = self._round  # no party is left there that could answer

    # Ends from outside

    @_take.register
    def _(self, event: on.LeaseLost) -> None:
        # The devices may soon belong to somebody else.
        cause = Cause(75, "the lease on the partition is over", restartable=True)
        self._broken(Rank.LEASE, cause, KEEPER)

    @_take.register
    def _(self, event: on.OutputUnread) -> None:
        self._fail(Rank.FINAL, Cause(128 + 13, "nobody reads the output any more"))

    @_take.register
    def _(self, event: on.RelayFailed) -> None:
        self._fail(Rank.FINAL, Cause(event.code, event.text))

    @_take.register
    def _(self, event: on.EndSignal) -> None:
        if self.cause is not None:
            self._end(0.0, 0.0)
            return
        text = f"{event.name}: asking the instances to end; once more ends them now"
        self._actions.append(on.Print(text))
        self._fail(Rank.FINAL, Cause(128 + event.number, f"{event.name} received"))

    @_take.register
    def _(self, event: on.ForwardSignal) -> None:
        self._actions.append(on.SendSignal(event.number))

    # Moves

    @_take.register
    def _(self, event: on.Listeners) -> None:
        self._actions += self.relocation.counted(event, len(self._instances.codes))

    @_take.register
    def _(self, event: on.MoveRequested) -> None:
        if not self.cause and not self._instances.all_ended:
            self.relocation.requested(event, self._now)

    # The end

    def _question(self) -> int:
        self._round += 1
        self._actions.append(on.LivenessCheck(self._round))
        return self._round

    def _broken(self, rank: Rank, cause: Cause, party: str, *, early: bool = False) -> None:
        """Handle the loss of one of the launcher's own processes. It leaves only a short grace
        period.
        """
        self._grace = min(self._grace, ORPHAN_GRACE)
        self._fail(rank, cause, party, early=early)

    def _fail(self, rank: Rank, cause: Cause, party: str = "", *, early: bool = False) -> None:
        """Handle a failure. The first failure begins the end, and makes all parties be asked to
        answer.
        """
        if self._blame.report(rank, cause, party, self._now, early=early):
            self._question()
            self._end(0.0, self._grace)

    def _end(self, patience: float, grace: float) -> None:
        if self.cause is not None:
            self._blame.begin_end(self._now, patience + grace, LAST_WORDS + SLACK)
        if self._local.below:
            self._actions.append(on.HastenBelow(patience, grace))
        # mpirun would end all instances at once, on all hosts.
        keep = bool(self._hosts) and self._engine.pid > 0
        longer = patience + (REMOTE_SLACK if keep else 0.0)
        if not self._local.below:
            deadline = self._now + longer + grace + LAST_WORDS + 2 * SLACK
            self._local.kill_at = min(self._local.kill_at, deadline)
        self._actions.append(on.EndInstances(patience, grace, keep, longer))
        end_by = self._now + patience + grace + REMOTE_SLACK
        self._hosts.end_by = min(self._hosts.end_by, end_by)
