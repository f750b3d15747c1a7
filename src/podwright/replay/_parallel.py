"""Several simulations at once, each in a process of its own; and how far they are."""

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
from podwright.replay._simulate import Chances, simulate
from podwright.replay._slurm_settings import SlurmModel
from podwright.replay._trace import Trace
from podwright.replay._ways import ReplayWay

#: Called with jobs done and all jobs, of all simulations together.
Progress = Callable[[int, int], None]


class SimulationFailed(PodwrightError):
    """A process that simulated ended without a result."""


@dataclass(frozen=True)
class ReplayTask:
    """One simulation. stretch: times between submissions are multiplied by it."""

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
    """The outcome of each task, in their order. processes: at once; 0: as many as cores.

    Raises SimulationFailed. Whatever ends this, the processes end with it.
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

        def told(done: int, _: int, before: int = before) -> None:
            if progress:
                progress(before + done, total)

        outcomes.append(run_task(trace, task, told))
    return outcomes


def run_task(trace: Trace, task: ReplayTask, progress: Progress | None = None) -> Outcome:
    """One simulation."""
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
                        said = ready.recv()
                    except (EOFError, ConnectionError):
                        raise self._failed(number, process) from None
                    if isinstance(said, Outcome):
                        outcomes[number] = said
                        del self._running[ready]
                        ready.close()
                        process.join()
                        self._tell(number, len(self._trace))
                    elif isinstance(said, str):
                        raise SimulationFailed(said)
                    else:
                        self._tell(number, said)
        finally:
            for _, process in self._running.values():
                process.terminate()
            for _, process in self._running.values():
                process.join()
        return [outcomes[number] for number in range(len(self._tasks))]

    def _begin(self, number: int) -> None:
        mine, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        # Ctrl-C comes to the whole group: one that only begins would die of it with a traceback.
        # The tracker is there before: starting it unblocks the signal.
        resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
            self._running[mine] = number, process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        # Not as an argument: what does not fit into the pipe of those waits for ever for a process
        # that ended before it read them.
        try:
            mine.send((self._trace, self._tasks[number]))
        except ConnectionError:
            raise self._failed(number, process) from None

    def _failed(self, number: int, process: BaseProcess) -> SimulationFailed:
        process.join()
        name = self._tasks[number].way.name
        return SimulationFailed(f"the simulation of {name} ended with {process.exitcode}")

    def _tell(self, number: int, done: int) -> None:
        self._done[number] = done
        if self._progress:
            self._progress(sum(self._done), len(self._trace) * len(self._tasks))


def _work(pipe: Connection) -> None:
    """A process's work. Ctrl-C is its parent's matter, and blocked here."""
    trace, task = pipe.recv()
    try:
        pipe.send(run_task(trace, task, lambda done, _: pipe.send(done)))
    except Exception as error:
        pipe.send(f"the simulation of {task.way.name} failed: {type(error).__name__}: {error}")
        raise
