"""Runs a step in a twin: starts the slurmd of each node of a grant, and the probe as every task.

`_step_probe` says which parts of the result come from Slurm and which are simulated.
"""

from __future__ import annotations

import base64
import signal
import time
from collections.abc import Mapping, Sequence

from podwright.errors import Unavailable, WrongState
from podwright.slurm.twin._cell import CONTROLLER, NAMESPACES, TwinCell
from podwright.slurm.twin._job_record import granted_nodes
from podwright.slurm.twin._step_probe import (
    AFFINITY,
    LIBRARY,
    PROBE,
    batch_script,
    build_library,
    read_tasks,
    step_waits,
    topology,
)
from podwright.slurm.twin._twin_conf import TwinConf
from podwright.slurm.twin._values import Granted, InstalledSlurm, Submission, TaskOutcome

MOST_NODES = 32
_START_LIMIT = 20.0  # seconds
_STEP_LIMIT = 40.0


class UncertainStep(Exception):
    """The result of a step may come from a node that was late, and not from a decision of Slurm.

    result: what the step showed.
    """

    def __init__(self, result: tuple[TaskOutcome, ...] | WrongState) -> None:
        super().__init__(result)
        self.result = result


class StepRunner:
    """Runs one step, once. `end` ends what `start` started."""

    def __init__(
        self,
        cell: TwinCell,
        slurm: InstalledSlurm,
        conf: TwinConf,
        environment: Mapping[str, str],
    ) -> None:
        self._cell = cell
        self._slurm = slurm
        self._conf = conf
        self._environment = dict(environment)
        self._started: list[str] = []

    def start(self, names: Sequence[str]) -> None:
        """Start slurmd for these nodes. Raises Unavailable where one does not start."""
        if len(names) > MOST_NODES:
            raise Unavailable(
                f"tasks are looked at on up to {MOST_NODES} nodes, and the job gets {len(names)}"
            )
        if self._cell.place.munge:
            raise Unavailable(
                "tasks are looked at by a private slurmd, which other machines could reach without "
                "namespaces of its own",
                would_work=NAMESPACES,
            )
        library = build_library() if self._conf.bound else None
        if self._conf.bound and library is None:
            raise Unavailable(
                "the tasks of this site are bound to CPUs, which takes a library to look at",
                would_work="Install a C compiler (gcc)",
            )
        if library:
            self._cell.write({LIBRARY: base64.b64encode(library).decode()}, {})
            self._cell.folder("affinity")
        self._cell.folder("out")
        self._cell.silence([self._conf.nodes[name] for name in names])
        for name in names:
            self._cell.folder(f"spool/{name}")
            self._cell.daemon(
                f"slurmd.{name}",
                [f"{self._slurm.sbin}/slurmd", "-D", "-N", name],
                CONTROLLER,
                self._environment | self._node(name, bound=library is not None),
            )
            self._started.append(name)
        deadline = time.monotonic() + _START_LIMIT
        waiting = list(names)
        while waiting:
            name = waiting[0]
            log = self._cell.read(f"log/slurmd.{name}")
            if "slurmd started" in log:
                waiting.pop(0)
            elif not self._cell.alive(f"slurmd.{name}") or time.monotonic() > deadline:
                lines = [line for line in log.splitlines() if line] or ["it does not start"]
                raise Unavailable(f"slurmd of {name}: {lines[-1]}")
            else:
                time.sleep(0.02)
        self._registered(names, deadline)

    def run(self, request: Submission, answer: Granted) -> tuple[TaskOutcome, ...]:
        """Return the tasks.

        Raises WrongState where no step starts, Unavailable where the job now gets other nodes, and
        UncertainStep where the result should be checked by a second run: srun gave no reason, or
        failed, or ran on fewer nodes than the job was granted.
        """
        if request.command != "sbatch":
            return self._run_command(request, answer)
        output = f"out/{time.monotonic_ns()}"  # earlier steps have left files
        script = batch_script(f"{self._cell.place.folder}/{output}")
        done = self._cell.run(
            ["sbatch", "--parsable", "--output=/dev/null", *request.options],
            CONTROLLER,
            self._environment,
            script,
        )
        job = done.out.strip().partition(";")[0]
        if done.code != 0 or not job.isdecimal():
            raise WrongState(f"with slurmd running, sbatch refuses the job: {done.text}")
        deadline = time.monotonic() + _STEP_LIMIT
        while not self._cell.read(f"{output}.code"):
            if step_waits(self._cell.read(f"{output}.tasks")) or time.monotonic() > deadline:
                raise self._not_started(self._cell.read(f"{output}.tasks"))
            time.sleep(0.02)
        # slurmctld ends jobs that a newly started slurmd does not know: what the job gets may
        # differ from the answer in a cluster with jobs.
        nodes = granted_nodes(self._cell.read(f"{output}.job"))
        if nodes and nodes != answer.nodes:
            raise Unavailable("other jobs on its nodes keep its tasks from being looked at")
        return self._read(self._cell.read(f"{output}.tasks"))

    def end(self) -> None:
        """End every slurmd that was started."""
        for name in self._started:
            if self._cell.alive(f"slurmd.{name}"):
                self._cell.stop(f"slurmd.{name}", signal.SIGKILL, 5)
        self._started.clear()

    def _run_command(self, request: Submission, answer: Granted) -> tuple[TaskOutcome, ...]:
        probe = ["sh", "-c", PROBE]
        argv = ["srun", *request.options, *probe]
        if request.command == "salloc":
            argv = ["salloc", *request.options, "srun", *probe]
        done = self._cell.run(argv, CONTROLLER, self._environment, limit=_STEP_LIMIT)
        if done.code == 124:
            raise self._not_started(done.err)
        tasks = self._read(done.out + done.err)
        if done.code != 0 or len({task.node for task in tasks}) < len(answer.nodes):
            raise UncertainStep(tasks)
        return tasks

    def _read(self, text: str) -> tuple[TaskOutcome, ...]:
        tasks = read_tasks(text)
        if not tasks:
            raise UncertainStep(self._failed("srun in the job fails", text))
        return tasks

    def _not_started(self, text: str) -> WrongState | UncertainStep:
        problem = self._failed("no step starts", text)
        return problem if step_waits(text) else UncertainStep(problem)

    def _failed(self, problem: str, text: str) -> WrongState:
        lines = [line for line in text.splitlines() if line.strip()] or ["no reason given"]
        return WrongState(f"the job starts, but {problem}: {lines[-1]}")

    def _node(self, name: str, *, bound: bool) -> dict[str, str]:
        """Return the variables that make this machine look like the node to its slurmd."""
        if not bound:
            return {}
        return {
            "HWLOC_SYNTHETIC": topology(self._conf.fields[name]),
            "LD_PRELOAD": f"{self._cell.place.folder}/{LIBRARY}",
            AFFINITY: f"{self._cell.place.folder}/affinity",
        }

    def _registered(self, names: Sequence[str], deadline: float) -> None:
        """Wait until slurmctld knows every slurmd. Raises Unavailable."""
        argv = ["scontrol", "--oneliner", "show", "node", ",".join(names)]
        while time.monotonic() < deadline:
            text = self._cell.run(argv, CONTROLLER, self._environment).out
            started = text.count(" SlurmdStartTime=") - text.count(" SlurmdStartTime=None")
            if started >= len(names):
                return
            time.sleep(0.05)
        raise Unavailable("slurmctld does not know the slurmd that was started for a node")
