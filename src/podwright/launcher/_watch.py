"""The time between start and end: passes on output and signals, and notices every ending.

One loop over everything that can happen. What began the end is kept as the cause, and decides
the exit code: an instance that failed, a signal, mpirun or a watcher gone, the lease lost, or
nobody left to read the output. Whatever else happens afterwards is a consequence.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

from podwright.errors import Fenced
from podwright.hosts import in_words, marked, outside, reap
from podwright.launcher._attempt import Attempt
from podwright.launcher._exit_cause import TIMED_OUT, Cause, aborted, described, engine_gone
from podwright.launcher._failures import FailureLog
from podwright.launcher._folder import RUN_VARIABLE
from podwright.launcher._guardian import (
    END,
    ENDED,
    ENGINE,
    GONE,
    LAST_WORDS,
    LISTENS,
    ORPHAN_GRACE,
    QUIET,
    RELEASE,
    SIGNAL,
    STARTED,
    TELL,
    Ending,
)
from podwright.launcher._instance_output import InstanceOutput
from podwright.launcher._instance_wrapper import Event, open_status, read_events
from podwright.launcher._instances_told import MOVED, TOGETHER, signal_name
from podwright.launcher._lease_keeper import CLEARED, KEPT, LOST, MOVE, SLACK
from podwright.launcher._output import Output
from podwright.launcher._plan import Plan
from podwright.launcher._relays import SLACK as REMOTE_SLACK
from podwright.launcher._signals import ENDING, FORWARDED, stop
from podwright.launcher._stopped import Turns, boottime

#: Seconds that what instances left running may go on after the last instance.
PATIENCE = 1.0
_CHUNK = 65536
#: What this host is called.
HERE = os.uname().nodename
#: Seconds from one look whether instances can be moved to the next.
_LOOK = 1.0
#: Seconds that all instances have to be seen listening once the launch is asked to move.
_ANSWER = 10.0
#: Seconds that the keeper has to renew a lease once poprun has stood still: two tries, and the
#: time that a busy server takes.
_TO_RENEW = 10.0
#: Seconds in which mpirun starts its first instance, or the user is told that it has not. Open MPI
#: 5's may hang before it starts any (open-mpi/ompi issue 10586).
_SLOW = 20.0
#: How mpirun ends the instances on other hosts once one of its daemons is gone.
_BY_MPIRUN = (128 + signal.SIGTERM, 128 + signal.SIGKILL)


def _readable(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(0))


def _cut(handle: int) -> bool:
    poll = select.poll()
    poll.register(handle, 0)
    return bool(poll.poll(0))


class Watch:
    """Watches one start of all instances. wake: readable with the numbers of signals.

    written: what the instances write. end: when --timeout is over.
    fence: seconds without a renewal after which a lease is over; 0: there is none.
    lost: told of the code and the words when the lease is over.
    """

    def __init__(
        self,
        attempt: Attempt,
        plan: Plan,
        output: Output,
        written: InstanceOutput,
        *,
        wake: int,
        fence: float,
        lost: Callable[[str, str], None],
        end: float | None,
    ) -> None:
        #: Children of this process that are no part of the run.
        self._spare = attempt.spare()
        self._remotes, self._trace = attempt.remotes, written.trace
        self._remotes.watch(self)
        self._written = written
        written.watch(self.fail)
        if self._trace.on:
            self._remotes.keep_time(self._trace.clock_answered)
        self._kept, self._folder = attempt.kept, attempt.folder
        self._channel = self._kept.guardian
        self._guardian, how, why, _ = self._kept.inner
        output.log("I", f"instances are in {in_words(how, why, bool(self._folder.reach))}")
        self._fence, self._lost, self._renewed = fence, lost, boottime()
        self._turns = Turns(boottime)
        self._output = output
        self._instances = len(plan.instances)
        self._words, self._wake = attempt.words, wake
        self._grace, self._timeout, self._limit = plan.grace, plan.timeout, end
        self._hosts = [instance.host for instance in plan.instances]
        self._failures = FailureLog(self._folder, self._hosts, plan.log_folder or "")
        self._status = open_status(self._folder)
        self._rest = b""
        self._engine_words = b""
        self._codes: dict[int, int] = {}
        self._started: set[int] = set()
        self._here: Ending | None = None
        self._engine = 0
        self._gone: tuple[int | None, str] | None = None
        self._done = self._ended = self._quiet = self._released = self._all_ended = False
        self._cleared = False
        self._kill_at = self._slow_at = math.inf
        #: Until when something that broke counts as why an instance was ended by a signal.
        self._suspect = 0.0
        self.cause: Cause | None = None
        #: Where the launch may move: the signal, and what it loses. Until it can, and again when it
        #: is asked to, instances are looked at: the next look, and how many listen, by host.
        self._move, self._ask_at = plan.move if fence else None, 0.0
        self._listening: dict[str, int] = {}
        self._looks = self._move is not None
        #: What the server asks, and until when it is known whether all listen still.
        self._asked: tuple[str, float] | None = None
        self._answer_by = math.inf
        #: The word under which it is asked to move, as the last one was; until when all must end.
        self.move_word, self._together_at = "", math.inf

    def run(self) -> Cause | None:
        """See it through. None: all went well."""
        while not self._done:
            self._turn()
        self._drain()
        return self.cause

    # One turn of the loop

    def _turn(self) -> None:
        pause = self._pause()
        ready = self._wait(pause)
        if self._wake in ready:
            for number in os.read(self._wake, 64):
                self._signal(number)
        # Stopped in front of the poll, or in a signal just now.
        if self._turns.stood_still(math.inf if pause is None else pause):
            self._renewed = max(self._renewed, boottime() - self._fence + _TO_RENEW)
            self._remotes.woke()
        # Where a watcher is gone, that is why the other one ends instances: it comes first.
        while not self._kept.channel.closed and _readable(self._kept.channel.handle):
            self._read_keeper()
        while self.cause is None and not self._channel.closed and _cut(self._channel.handle):
            self._read_guardian()
        if self._status in ready:
            self._read_status()
        if self._words in ready:
            self._read_words()
        if self._fence and boottime() - self._renewed > self._fence:
            self._fence = 0.0
            self._lost(Fenced.code, "nobody renewed it in time")
            self._lease_over()
        if self._written.handle in ready:
            self._written.read()
        if self._channel.handle in ready:
            self._read_guardian()
        if self._limit is not None and time.monotonic() >= self._limit:
            self._limit = None
            self.fail(Cause(TIMED_OUT, f"--timeout: {self._timeout:g} seconds are over"))
        if self._looks:
            self._look_who_listens()
        if time.monotonic() > self._together_at:
            self._together_at = math.inf
            self.fail(Cause(MOVED, "some instances ended to move, others did not", moved=True))
        if time.monotonic() > self._kill_at:
            self._force()
        if time.monotonic() > self._slow_at:
            self._say_slow()
        if self._remotes:
            self._remotes.hear(ready)
            if self._gone and self._remotes.in_step:
                self._engine_ended(*self._gone)
                self._gone = None
            if (self._quiet or self._ended) and self._remotes.quiet and not self._released:
                self._released = True
                self._channel.send(RELEASE)
                self._remotes.send(RELEASE)
        if self._here:
            reap(lambda pid, code: None)
            if self._here.step():
                self._folder.remove()
                self._ended = True
        self._done = self._ended and self._remotes.ended

    def _pause(self) -> float | None:
        """Seconds until there is something to do though nothing happens."""
        pauses = [self._here.pause] if self._here else []
        if self._kill_at < math.inf:
            pauses.append(max(self._kill_at - time.monotonic(), 0.1))
        if self._remotes:
            pauses.append(min(1.0, self._remotes.tick()))
        if self._fence:
            pauses.append(self._fence / 10)
        if self._limit is not None:
            pauses.append(max(self._limit - time.monotonic(), 0.0))
        if self._looks:
            pauses.append(_LOOK)
        for moment in (self._together_at, self._slow_at):
            if moment < math.inf:
                pauses.append(max(moment - time.monotonic(), 0.1))
        return min(pauses, default=None)

    def _wait(self, pause: float | None) -> set[int]:
        poll = select.poll()
        for handle in (self._wake, self._status, self._words):
            if handle >= 0:
                poll.register(handle, select.POLLIN)
        for channel in (self._channel, self._kept.channel):
            if not channel.closed:
                poll.register(channel.handle, select.POLLIN)
        room = not any(sink.full for sink in self._output.sinks)
        if room:
            poll.register(self._written.handle, select.POLLIN)
        self._remotes.register(poll, reading=room)
        for sink in self._output.sinks:
            if sink.size:
                poll.register(sink.handle, select.POLLOUT)
        ready = {handle for handle, _ in poll.poll(None if pause is None else pause * 1000)}
        for sink in self._output.sinks:
            if sink.handle in ready:
                sink.pump()
                if sink.broken:
                    self.fail(Cause(128 + signal.SIGPIPE, "nobody reads the output any more"))
        return ready

    def _drain(self) -> None:
        """All writers are gone: what is left in the streams is all there will ever be."""
        self._written.close()
        self._read_words()
        if self._words >= 0:
            os.close(self._words)
        os.close(self._status)
        if problem := self._failures.write(self.last_words):
            self._output.warn(problem)
        self._output.flush()

    # What the scripts, mpirun and the guardian say

    def _read_status(self) -> None:
        events, self._rest = read_events(self._status, self._rest)
        self.happened(events)

    def happened(self, events: Sequence[Event]) -> None:
        """What scripts of instances said, here or on another host."""
        for index, kind, number in events:
            if kind == "daemon":
                self._remotes.launch(self._folder, number)
                continue
            if index >= self._instances:
                continue
            if kind == "start":
                self._started.add(index)
                self._failures.began(index, number)
                host = self._hosts[index]
                self._trace.instance_began(index, HERE if host == "localhost" else host)
                if len(self._started) == self._instances:
                    self._trace.started()
                if self._output.verbosity > 1 and index not in self._remotes.ranks:
                    number = self._outside(number)
                self._output.log("D", f"instance {index} runs as process {number}")
            elif kind == "end" and index not in self._codes:
                self._codes[index] = number
                self._output.log("D", f"instance {index} ended with code {number}")
                self._written.ended(index, number)
                if number == MOVED and self.move_word:
                    self._together_at = min(self._together_at, time.monotonic() + TOGETHER)
                elif number:
                    self._failures.failed(index, number, first=self.cause is None)
                    who = f"instance {index}{self._remotes.place(index)}"
                    again = number not in (126, 127)  # it could not even be started
                    suspect = self.cause is None and self._remotes and number in _BY_MPIRUN
                    self.fail(Cause(number, f"{who} {described(number)}", index, again))
                    self._suspect = time.monotonic() + LAST_WORDS if suspect else self._suspect
        if len(self._codes) == self._instances and not self._here and not self._all_ended:
            # Once: the guardian does not listen while it tells of each, so neither may fill up.
            self._all_ended = True
            self._together_at = math.inf
            if self.cause is None and MOVED in self._codes.values() and self.move_word:
                self.cause = Cause(MOVED, "its instances have ended to move", moved=True)
            self._end(PATIENCE, self._grace)

    # What is heard of other hosts

    def wrote(self, index: int, number: int, data: bytes) -> None:
        """What an instance on another host wrote."""
        self._written.wrote(index, number, data)

    def reported(self, index: int, folder: str, files: Sequence[Any], more: int) -> None:
        """Where an instance on another host put its profile, and what is there."""
        self._written.reported(index, folder, files, more)

    def said(self, index: int, text: str) -> None:
        """What an instance on another host wrote of its end."""
        self._failures.said(index, text)

    def _outside(self, pid: int) -> int:
        """What a process of this host's instances is called outside their namespace."""
        return outside(os.getpid(), pid) if self._output.verbosity else pid

    def engine_said(self, data: bytes) -> None:
        """What mpirun said, or one of its daemons."""
        self._output.log("D", data.decode(errors="replace"))
        self._engine_words = (self._engine_words + data)[-_CHUNK:]

    def instance_gone(self, index: int, code: int | None, problem: str) -> None:
        """The script of an instance that we started ourselves has ended, or could not start."""
        if index in self._codes or not 0 <= index < self._instances:
            return
        if code is None:
            self._started.add(index)
            self.fail(Cause(126, f"instance {index} cannot be started: {problem}", index))
            code = 126
        if code < 0:  # the script itself: what it started may still run, and has nobody
            self._grace = min(self._grace, ORPHAN_GRACE)
        self.happened([Event(index, "end", code if code >= 0 else 128 - code)])

    def _read_words(self) -> None:
        if self._words < 0:
            return
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._words, _CHUNK):
                self.engine_said(data)
            os.close(self._words)
            self._words = -1

    def _read_guardian(self) -> None:
        for kind, *values in self._channel.receive():
            if kind == STARTED:
                self._engine = values[0]
                pid = self._outside(values[0])
                self._output.log("I", f"Waiting for mpirun (PID {pid})")
                self._slow_at = time.monotonic() + _SLOW
            elif kind == GONE:
                self._read_status()
                what, code, problem = values
                if what != ENGINE:
                    self.instance_gone(what, code, problem)
                elif self._remotes:
                    # What its instances on other hosts said may still be on the way.
                    self._gone = code, problem
                    self._remotes.step()
                else:
                    self._engine_ended(code, problem)
            elif kind == LISTENS:
                self.listens("", values[0])
            elif kind == QUIET:
                self._quiet = True
            elif kind == ENDED:
                self._ended = True
        if self._channel.closed and not self._ended:
            self._broken("guardian")

    def _say_slow(self) -> None:
        self._slow_at = math.inf
        if not self._started and self.cause is None:
            self._output.warn(
                f"mpirun has started no instance for {_SLOW:.0f} s. If this goes on, mpirun hangs: "
                "press Ctrl-C and start again, or add --launcher=local to do without mpirun."
            )

    def _read_keeper(self) -> None:
        for kind, *values in self._kept.channel.receive():
            if kind == KEPT:
                self._renewed = boottime()
            elif kind == LOST:
                self._lost(values[0], values[1])
                self._lease_over()
            elif kind == MOVE:
                self._asked_to_move(*values)
            elif kind == CLEARED:
                self._cleared = True
        if self._kept.channel.closed:
            self._broken("keeper")
        elif self._cleared and self._channel.closed:
            self._ended = True

    # Moving

    def _look_who_listens(self) -> None:
        now = time.monotonic()
        if self._asked and now >= self._answer_by:
            self._asked, self._answer_by = None, math.inf
            self._output.log("I", "not all instances can be moved any more")
            self._kept.movable(0.0)
        if now < self._ask_at or len(self._started) < self._instances:
            return
        assert self._move
        self._ask_at = now + _LOOK
        self._channel.send(LISTENS, self._move[0])
        self._remotes.send(LISTENS, self._move[0])

    def listens(self, host: str, count: int) -> None:
        """How many instances of a host can be told to move; once all can, the server may know."""
        self._listening[host] = count
        done = len(self._codes) if self._asked else 0
        if not self._looks or sum(self._listening.values()) + done < self._instances:
            return
        self._looks = False
        if self._asked:
            self._tell_to_move(*self._asked)
        else:
            assert self._move
            self._output.log("I", "all instances can be moved")
            self._kept.movable(self._move[1])

    def _asked_to_move(self, word: str, within: float) -> None:
        """The server asks the launch to move: once for each word. One that ended while another has
        no handler any more would end the launch, so it is looked again."""
        if word == self.move_word or self.cause or self._all_ended:
            return
        if self._asked is None:
            self._listening.clear()
            self._looks, self._ask_at = True, 0.0
            self._answer_by = time.monotonic() + _ANSWER
        self._asked = word, within

    def _tell_to_move(self, word: str, within: float) -> None:
        assert self._move
        self._asked, self._answer_by = None, math.inf
        self.move_word = word
        self._trace.happened("asked to move", within=within)
        self._output.say(
            "POPRUN: the server asks this launch to move to other devices: telling the instances "
            f"({signal_name(self._move[0])}), which have {within:.0f} s to end"
        )
        self._channel.send(TELL, self._move[0])
        self._remotes.send(TELL, self._move[0])

    def _lease_over(self) -> None:
        # The devices may soon be somebody else's.
        self._fence = 0.0
        self.fail(Cause(75, "the lease on the partition is over", again=True), broken=True)

    def _broken(self, who: str) -> None:
        """A watcher is gone. The others end what it watched; this one does, if it is alone."""
        self._grace = min(self._grace, ORPHAN_GRACE)
        if self._channel.closed and self._kept.channel.closed and not self._here:
            with contextlib.suppress(OSError):
                os.waitpid(self._kept.pid, 0)
            # mpirun may have become our child before we counted those that are spared.
            run = {process.pid for process in marked(RUN_VARIABLE, self._folder.name)}
            self._here = Ending(
                os.getpid(),
                0.0,
                self._grace,
                engine=self._engine,
                group=self._folder.group,
                spare=[pid for pid in self._spare if pid not in run],
            )
        if not self._ended:
            text = f"poprun's {who} process was ended"
            self.fail(Cause(128 + signal.SIGKILL, text), broken=True)
        if self._cleared and self._channel.closed:
            self._ended = True

    def _engine_ended(self, code: int | None, problem: str) -> None:
        if code is None:
            self.fail(Cause(126, f"mpirun cannot be started: {problem}"))
            return
        self._output.log("I", f"mpirun terminated with exit code {code}")
        self._read_words()
        if self.cause is None or self.cause.instance >= 0:
            self.cause = aborted(self._engine_words, self._instances) or self.cause
        left = [i for i in range(self._instances) if i not in self._codes]
        if left:
            cause = engine_gone(code, left if self._started else [], self._engine_words)
            self.fail(cause, broken=True)
            self._end(0.0, self._grace)

    # Ending

    def _signal(self, number: int) -> None:
        if number in FORWARDED:
            self._channel.send(SIGNAL, number)
            self._remotes.send(SIGNAL, number)
        elif number == signal.SIGTSTP:
            self._stop()
        elif number in ENDING:
            name = signal.Signals(number).name
            if self.cause is None:
                self._output.say(f"{name}: asking the instances to end; once more ends them now")
                self.fail(Cause(128 + number, f"{name} received"))
            else:
                self._end(0.0, 0.0)

    def _stop(self) -> None:
        """Ctrl-Z: the instances first, then this process, until it is told to go on."""
        self._channel.send(SIGNAL, int(signal.SIGSTOP))
        self._remotes.pause()
        stop()
        self._channel.send(SIGNAL, int(signal.SIGCONT))
        self._remotes.go_on()

    def fail(self, cause: Cause, *, broken: bool = False) -> None:
        """The first cause stands; it begins the end.

        broken: a process of ours was ended by force, so there is little time for politeness.
        """
        if broken:
            self._grace = min(self._grace, ORPHAN_GRACE)
            if self._suspect and time.monotonic() < self._suspect:
                self.cause = cause  # this is why that instance was ended
                self._suspect = 0.0
        if self.cause is None:
            self.cause = cause
            self._end(0.0, self._grace)

    def _force(self) -> None:
        """The other watchers have not made an end: they may have been stopped."""
        self._kill_at, self._grace = math.inf, 0.0
        for pid, channel in ((self._guardian, self._channel), (self._kept.pid, self._kept.channel)):
            if pid and not channel.closed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _end(self, patience: float, grace: float) -> None:
        wish = patience, grace
        if self._here:
            self._here.sooner(patience, grace)
        else:
            # mpirun would end all instances at once, on all hosts.
            held = bool(self._remotes) and self._engine > 0
            self._channel.send(END, patience, grace, held)
            patience += REMOTE_SLACK if held else 0.0
            self._kept.channel.send(END, patience, grace)
            at = time.monotonic() + patience + grace + LAST_WORDS + 2 * SLACK
            self._kill_at = min(self._kill_at, at)
        self._remotes.end(*wish, self._engine > 0)

    def last_words(self, index: int) -> list[bytes]:
        """The last lines that an instance wrote."""
        return self._written.last_words(index)
