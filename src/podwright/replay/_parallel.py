"""Runs several simulations at once, each in a process of its own, and reports their progress."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from podwright.errors import PodwrightError
from podwright.replay._outcome import Outcome
from podwright.replay._run_state import Chances
from podwright.replay._simulate import simulate
from podwright.replay._slurm_settings import SlurmModel
from podwright.replay.grounds._ways import ReplayWay
from podwright.replay.traces._trace import Trace

#: Called with the number of finished jobs and of all jobs, of all simulations together.
Progress = Callable[[int, int], None]


class SimulationFailed(PodwrightError):
    """The process of a simulation ended without a result."""


@dataclass(frozen=True)
class ReplayTask:
    """One simulation. stretch: the factor for times between submissions."""

    way: ReplayWay
    slurm: SlurmModel
    chances: Chances


def run_all(
    trace: Trace,
    tasks: Sequence[ReplayTask],
    *,
    processes: int = 0,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Return the outcome of each task, in their order.

    processes: how many run at once; 0: as many as cores. Raises SimulationFailed. The processes end
    with this call, however it ends.
    """
    at_once = max(1, min(processes or os.cpu_count() or 1, len(tasks)))
    if at_once == 1:
        return _one_by_one(trace, tasks, progress)
    return _Pool(trace, tasks, at_once, progress).run()


def _one_by_one(
    trace: Trace, tasks: Sequence[ReplayTask], progress: Progress | None
) -> list[Outcome]:
    outcomes, total = [], len(trace) * len(tasks)
    for number, task in enumerate(tasks):
        before = number * len(trace)

        def report(done: int, _: int, before: int = before) -> None:
            if progress:
                progress(before + done, total)

        outcomes.append(run_task(trace, task, report))
    return outcomes


def run_task(trace: Trace, task: ReplayTask, progress: Progress | None = None) -> Outcome:
    """Run one simulation."""
    return simulate(trace, task.way.ground(), task.slurm, task.chances, progress=progress)


class _Pool:
    def __init__(
        self, trace: Trace, tasks: Sequence[ReplayTask], at_once: int, progress: Progress | None
    ) -> None:
        self._trace, self._tasks, self._at_once = trace, tasks, at_once
        self._progress = progress
        self._done = [0] * len(tasks)
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[Connection, tuple[int, BaseProcess]] = {}

    def run(self) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(self._tasks)))[::-1]
        try:
            while waiting or self._running:
                while waiting and len(self._running) < self._at_once:
                    self._begin(waiting.pop())
                for ready in wait(list(self._running)):
                    assert isinstance(ready, Connection)
                    number, process = self._running[ready]
                    try:
                        message = ready.recv()
                    except (EOFError, ConnectionError):
                        raise self._failed(number, process) from None
                    if isinstance(message, Outcome):
                        outcomes[number] = message
                        del self._running[ready]
                        ready.close()
                        process.join()
                        self._report(number, len(self._trace))
                    elif isinstance(message, str):
                        raise SimulationFailed(message)
                    else:
                        self._report(number, message)
        finally:
            for _, process in self._running.values():
                process.terminate()
            for _, process in self._running.values():
                process.join()
        return [outcomes[number] for number in range(len(self._tasks))]

    def _begin(self, number: int) -> None:
        own_end, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        # Ctrl-C reaches the whole process group, and a process that has just begun would die of it
        # with a traceback. The tracker is started before, because starting it unblocks the signal.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
            self._running[own_end] = number, process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        # The task does not travel as an argument: a large one does not fit into the pipe, and the
        # parent would wait for ever if the process ended before it read the pipe.
        try:
            own_end.send((self._trace, self._tasks[number]))
        except ConnectionError:
            raise self._failed(number, process) from None

    def _failed(self, number: int, process: BaseProcess) -> SimulationFailed:
        process.join()
        name = self._tasks[number].way.name
        return SimulationFailed(f"the simulation of {name} ended with {process.exitcode}")

    def _report(self, number: int, done: int) -> None:
        self._done[number] = done
        if self._progress:
            self._progress(sum(self._done), len(self._trace) * len(self._tasks))


def _work(pipe: Connection) -> None:
    """Run the task of a process. Ctrl-C is blocked here, since the parent handles it."""
    trace, task = pipe.recv()
    try:
        pipe.send(run_task(trace, task, lambda done, _: pipe.send(done)))
    except Exception as error:
        pipe.send(f"the simulation of {task.way.name} failed: {type(error).__name__}: {error}")
        raise
