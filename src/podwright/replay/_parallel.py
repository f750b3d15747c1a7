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
from typing import Generic, Protocol, TypeVar

from podwright.errors import PodwrightError
from podwright.replay._outcome import Outcome
from podwright.replay._run_state import Chances
from podwright.replay._simulate import simulate
from podwright.replay._slurm_model import SlurmModel
from podwright.replay.grounds._scheduling_ways import ReplayWay
from podwright.replay.traces._trace import Trace

#: Called with the number of finished jobs and of all jobs, of all simulations together.
Progress = Callable[[int, int], None]
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class SimulationFailed(PodwrightError):
    """The process of a simulation ended without a result."""


class Simulation(Protocol[R_co]):
    """One simulation, which can be sent to another process.

    name: for messages. jobs: how many it simulates.
    """

    @property
    def name(self) -> str: ...

    @property
    def jobs(self) -> int: ...

    def run(self, progress: Progress) -> R_co:
        """Return the result. progress: called sometimes with finished jobs, and all jobs."""
        ...


@dataclass(frozen=True)
class ReplayTask:
    """One way to simulate, and the model of Slurm for it."""

    way: ReplayWay
    slurm: SlurmModel
    chances: Chances


@dataclass(frozen=True)
class _TraceSimulation:
    trace: Trace
    task: ReplayTask

    @property
    def name(self) -> str:
        return self.task.way.name

    @property
    def jobs(self) -> int:
        return len(self.trace)

    def run(self, progress: Progress) -> Outcome:
        task = self.task
        return simulate(self.trace, task.way.ground(), task.slurm, task.chances, progress=progress)


def run_all(
    trace: Trace,
    tasks: Sequence[ReplayTask],
    *,
    processes: int = 0,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Return the outcome of each task, in their order. The rest as in `run_each`."""
    simulations = [_TraceSimulation(trace, task) for task in tasks]
    return run_each(simulations, processes=processes, progress=progress)


def run_each(
    simulations: Sequence[Simulation[R]],
    *,
    processes: int = 0,
    progress: Progress | None = None,
) -> list[R]:
    """Return the result of each simulation, in their order.

    processes: how many run at once; 0: as many as cores. Raises SimulationFailed. The processes end
    with this call, however it ends.
    """
    count = max(1, min(processes or os.cpu_count() or 1, len(simulations)))
    if count == 1:
        return _run_in_this_process(simulations, progress)
    return _SimulationPool(simulations, count, progress).run()


def _run_in_this_process(
    simulations: Sequence[Simulation[R]], progress: Progress | None
) -> list[R]:
    results: list[R] = []
    jobs, jobs_before = sum(simulation.jobs for simulation in simulations), 0
    for simulation in simulations:

        def report(done: int, _: int, jobs_before: int = jobs_before) -> None:
            if progress:
                progress(jobs_before + done, jobs)

        results.append(simulation.run(report))
        jobs_before += simulation.jobs
    return results


class _SimulationPool(Generic[R]):
    def __init__(
        self, simulations: Sequence[Simulation[R]], process_count: int, progress: Progress | None
    ) -> None:
        self._simulations, self._at_once = simulations, process_count
        self._progress = progress
        self._done = [0] * len(simulations)
        self._context = multiprocessing.get_context("spawn")
        self._running: dict[Connection, tuple[int, BaseProcess]] = {}

    def run(self) -> list[R]:
        results: dict[int, R] = {}
        waiting_indices = list(range(len(self._simulations)))[::-1]
        try:
            while waiting_indices or self._running:
                while waiting_indices and len(self._running) < self._at_once:
                    self._begin_simulation(waiting_indices.pop())
                for connection in wait(list(self._running)):
                    assert isinstance(connection, Connection)
                    simulation_index, process = self._running[connection]
                    try:
                        pipe_message = connection.recv()
                    except (EOFError, ConnectionError):
                        raise self._simulation_failure(simulation_index, process) from None
                    if isinstance(pipe_message, int):
                        self._report_progress(simulation_index, pipe_message)
                    elif isinstance(pipe_message, str):
                        raise SimulationFailed(pipe_message)
                    else:
                        results[simulation_index] = pipe_message
                        del self._running[connection]
                        connection.close()
                        process.join()
                        self._report_progress(
                            simulation_index, self._simulations[simulation_index].jobs
                        )
        finally:
            for _, process in self._running.values():
                process.terminate()
            for _, process in self._running.values():
                process.join()
        return [results[index] for index in range(len(self._simulations))]

    def _begin_simulation(self, simulation_index: int) -> None:
        parent_end, child_end = self._context.Pipe()
        process = self._context.Process(target=_run_worker, args=(child_end,), daemon=True)
        # Ctrl-C reaches the whole process group, and a process that has just begun would die of it
        # with a traceback. The tracker is started before, because starting it unblocks the signal.
        resource_tracker.ensure_running()
        former_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
            self._running[parent_end] = simulation_index, process
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former_mask)
        child_end.close()
        # The task does not travel as an argument: a large one does not fit into the pipe, and the
        # parent would wait for ever if the process ended before it read the pipe.
        try:
            parent_end.send(self._simulations[simulation_index])
        except ConnectionError:
            raise self._simulation_failure(simulation_index, process) from None

    def _simulation_failure(self, simulation_index: int, process: BaseProcess) -> SimulationFailed:
        process.join()
        name = self._simulations[simulation_index].name
        return SimulationFailed(f"the simulation of {name} ended with {process.exitcode}")

    def _report_progress(self, simulation_index: int, finished_jobs: int) -> None:
        self._done[simulation_index] = finished_jobs
        if self._progress:
            self._progress(
                sum(self._done), sum(simulation.jobs for simulation in self._simulations)
            )


def _run_worker(pipe: Connection) -> None:
    """Run the simulation of a process. Ctrl-C is blocked here, since the parent handles it."""
    simulation = pipe.recv()
    try:
        pipe.send(simulation.run(lambda finished_jobs, _: pipe.send(finished_jobs)))
    except Exception as error:
        pipe.send(f"the simulation of {simulation.name} failed: {type(error).__name__}: {error}")
        raise
