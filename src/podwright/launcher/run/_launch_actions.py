"""Carries out the decisions of `_launch_state_machine`: messages, signals, records, and kills."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence

from podwright.hosts import marked, reap
from podwright.launcher.instances._failures import FailureLog
from podwright.launcher.instances._instance_output import InstanceOutput
from podwright.launcher.instances._poprun_output import Output
from podwright.launcher.instances._run_folder import RUN_VARIABLE
from podwright.launcher.options._move_notice import signal_name
from podwright.launcher.run._attempt import Attempt
from podwright.launcher.run._local_reports import outside_pid
from podwright.launcher.watchers import _launch_events as on
from podwright.launcher.watchers._guardian import END, LISTENS, RELEASE, SIGNAL, SYNC, TELL, Ending
from podwright.launcher.watchers._launch_events import Action

#: The name of this host.
OWN_HOST_NAME = os.uname().nodename


class LaunchActions:
    """The effects of one start of all instances. hosts: of each instance.

    failures: collects what instances wrote about their ends.
    """

    def __init__(
        self,
        attempt: Attempt,
        output: Output,
        instance_output: InstanceOutput,
        hosts: Sequence[str],
        failures: FailureLog,
    ) -> None:
        #: Children of this process that are no part of the run.
        self._spare = attempt.spare()
        self._attempt, self._remotes = attempt, attempt.remotes
        self._guardian, self._keeper = attempt.keeper.guardian, attempt.keeper.channel
        self._output, self._written, self._trace = output, instance_output, instance_output.trace
        self._hosts, self._failures = hosts, failures
        self._children_ending: Ending | None = None

    @property
    def pause(self) -> float | None:
        """The seconds until `step` has something to do; None: it has nothing."""
        return self._children_ending.pause if self._children_ending else None

    def step(self) -> bool:
        """Continue to end processes that have become children of this process. Returns whether none
        is left.
        """
        if not self._children_ending:
            return False
        reap(lambda pid, exit_code: None)
        if not self._children_ending.step():
            return False
        self._attempt.folder.remove()
        return True

    def suspend(self, signal_number: int) -> None:
        """Stop the instances of this host, or let them continue: SIGSTOP or SIGCONT."""
        self._guardian.send(SIGNAL, int(signal_number))

    def run(self, action: Action) -> None:
        """Carry out an action."""
        match action:
            case on.LivenessCheck(number):
                self._send_all(SYNC, number)
                self._keeper.send(SYNC, number)
            case on.EndInstances(patience, grace, keep_engine, keeper_patience):
                self._send_all(END, patience, grace, keep_engine)
                self._keeper.send(END, keeper_patience, grace)
            case on.EndBelow(grace, engine):
                self._end_children(grace, engine)
            case on.HastenBelow(patience, grace):
                if self._children_ending:
                    self._children_ending.sooner(patience, grace)
            case on.ReleaseEngine():
                self._send_all(RELEASE)
            case on.KillWatchers():
                self._kill_watchers()
            case on.HangUp(host):
                self._remotes.hang_up(host)
            case on.SendSignal(number):
                self._send_all(SIGNAL, number)
            case on.CountListeners(number):
                self._send_all(LISTENS, number)
            case on.ReportMovable(lost_seconds):
                self._attempt.keeper.movable(lost_seconds)
            case on.TellListeners(number, within_seconds):
                self._ask_to_move(number, within_seconds)
            case _:
                self._record_action(action)

    def _send_all(self, message_kind: str, *values: object) -> None:
        """Send a message to the guardian of this host and to those of all other hosts."""
        self._guardian.send(message_kind, *values)
        self._remotes.send(message_kind, *values)

    def _record_action(self, action: Action) -> None:
        match action:
            case on.RecordStart(rank, pid, is_last):
                self._record_start(rank, pid, is_last)
            case on.RecordEnd(rank, exit_code, failed):
                self._output.log("D", f"instance {rank} ended with code {exit_code}")
                self._written.instance_ended(rank, exit_code)
                if failed:
                    self._failures.failed(rank, exit_code)
            case on.Log("W", message):
                self._output.warn(message)
            case on.Log(log_level, message):
                self._output.log(log_level, message)
            case on.Print(message):
                self._output.write_line(message)

    def _record_start(self, rank: int, pid: int, is_last: bool) -> None:
        self._failures.record_process(rank, pid)
        host = self._hosts[rank]
        self._trace.instance_began(rank, OWN_HOST_NAME if host == "localhost" else host)
        if is_last:
            self._trace.started()
        if self._output.verbosity > 1 and rank not in self._remotes.ranks:
            pid = outside_pid(pid, self._output)
        self._output.log("D", f"instance {rank} runs as process {pid}")

    def _ask_to_move(self, signal_number: int, within_seconds: float) -> None:
        self._trace.happened("asked to move", within=within_seconds)
        self._output.write_line(
            "POPRUN: the server asks this launch to move to other devices: telling the instances "
            f"({signal_name(signal_number)}), which have {within_seconds:.0f} s to end"
        )
        self._send_all(TELL, signal_number)

    def _end_children(self, grace: float, engine_pid: int) -> None:
        """Begin to end what has become a child of this process, because both watchers here are
        gone.
        """
        with contextlib.suppress(OSError):
            os.waitpid(self._attempt.keeper.pid, 0)
        folder = self._attempt.folder
        # mpirun may have become a child of this process before the spared ones were counted.
        run_pids = {process.pid for process in marked(RUN_VARIABLE, folder.name)}
        self._children_ending = Ending(
            os.getpid(),
            0.0,
            grace,
            engine=engine_pid,
            group=folder.group,
            spared_pids=[pid for pid in self._spare if pid not in run_pids],
        )

    def _kill_watchers(self) -> None:
        """Kill the watchers that have not ended in time; they may have been stopped."""
        keeper = self._attempt.keeper
        for pid, channel in ((keeper.inner.pid, self._guardian), (keeper.pid, self._keeper)):
            if pid and not channel.closed:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
