"""Runs a step in a twin: starts the slurmd of each node of a grant, and the probe as every task.

`_step_probe` says which parts of the result come from Slurm and which are simulated.
"""

from __future__ import annotations

import base64
import signal
import time
from collections.abc import Mapping, Sequence

from podwright.errors import Unavailable, WrongState
from podwright.slurm.twin._read_twin_answer import granted_nodes
from podwright.slurm.twin._step_probe import (
    AFFINITY_LIBRARY,
    AFFINITY_VARIABLE,
    TASK_PROBE_SCRIPT,
    batch_script,
    build_affinity_library,
    is_step_waiting,
    read_tasks,
    topology,
)
from podwright.slurm.twin._twin_conf import TwinConf
from podwright.slurm.twin._twin_process_client import CONTROLLER_USER, NAMESPACES_ADVICE, TwinCell
from podwright.slurm.twin._twin_types import Granted, InstalledSlurm, Submission, Task

MOST_STEP_NODES = 32
_START_LIMIT_S = 20.0  # seconds
_STEP_LIMIT_S = 40.0


class UncertainStep(Exception):
    """The result of a step may come from a node that was late, and not from a decision of Slurm.

    result: what the step showed.
    """

    def __init__(self, result: tuple[Task, ...] | WrongState) -> None:
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
        if len(names) > MOST_STEP_NODES:
            raise Unavailable(
                f"tasks are looked at on up to {MOST_STEP_NODES} nodes, and the job gets "
                f"{len(names)}"
            )
        if self._cell.place.munge:
            raise Unavailable(
                "tasks are looked at by a private slurmd, which other machines could reach without "
                "namespaces of its own",
                would_work=NAMESPACES_ADVICE,
            )
        library_bytes = build_affinity_library() if self._conf.bound else None
        if self._conf.bound and library_bytes is None:
            raise Unavailable(
                "the tasks of this site are bound to CPUs, which takes a library to look at",
                would_work="Install a C compiler (gcc)",
            )
        if library_bytes:
            self._cell.write({AFFINITY_LIBRARY: base64.b64encode(library_bytes).decode()}, {})
            self._cell.folder("affinity")
        self._cell.folder("out")
        self._cell.silence([self._conf.nodes[name] for name in names])
        for node_name in names:
            self._cell.folder(f"spool/{node_name}")
            self._cell.daemon(
                f"slurmd.{node_name}",
                [f"{self._slurm.sbin}/slurmd", "-D", "-N", node_name],
                CONTROLLER_USER,
                self._environment
                | self._node_environment(node_name, bound=library_bytes is not None),
            )
            self._started.append(node_name)
        deadline = time.monotonic() + _START_LIMIT_S
        waiting_nodes = list(names)
        while waiting_nodes:
            node_name = waiting_nodes[0]
            slurmd_log = self._cell.read(f"log/slurmd.{node_name}")
            if "slurmd started" in slurmd_log:
                waiting_nodes.pop(0)
            elif not self._cell.alive(f"slurmd.{node_name}") or time.monotonic() > deadline:
                log_lines = [line for line in slurmd_log.splitlines() if line] or [
                    "it does not start"
                ]
                raise Unavailable(f"slurmd of {node_name}: {log_lines[-1]}")
            else:
                time.sleep(0.02)
        self._wait_until_registered(names, deadline)

    def run(self, request: Submission, answer: Granted) -> tuple[Task, ...]:
        """Return the tasks.

        Raises WrongState where no step starts, Unavailable where the job now gets other nodes, and
        UncertainStep where the result should be checked by a second run: srun gave no reason, or
        failed, or ran on fewer nodes than the job was granted.
        """
        if request.command != "sbatch":
            return self._run_step_command(request, answer)
        output_prefix = f"out/{time.monotonic_ns()}"  # earlier steps have left files
        probe_script = batch_script(f"{self._cell.place.folder}/{output_prefix}")
        sbatch_result = self._cell.run(
            ["sbatch", "--parsable", "--output=/dev/null", *request.options],
            CONTROLLER_USER,
            self._environment,
            probe_script,
        )
        job_id = sbatch_result.out.strip().partition(";")[0]
        if sbatch_result.code != 0 or not job_id.isdecimal():
            raise WrongState(f"with slurmd running, sbatch refuses the job: {sbatch_result.text}")
        deadline = time.monotonic() + _STEP_LIMIT_S
        while not self._cell.read(f"{output_prefix}.code"):
            if (
                is_step_waiting(self._cell.read(f"{output_prefix}.tasks"))
                or time.monotonic() > deadline
            ):
                raise self._not_started_error(self._cell.read(f"{output_prefix}.tasks"))
            time.sleep(0.02)
        # slurmctld ends jobs that a newly started slurmd does not know: what the job gets may
        # differ from the answer in a cluster with jobs.
        running_nodes = granted_nodes(self._cell.read(f"{output_prefix}.job"))
        if running_nodes and running_nodes != answer.nodes:
            raise Unavailable("other jobs on its nodes keep its tasks from being looked at")
        return self._tasks_in_output(self._cell.read(f"{output_prefix}.tasks"))

    def end(self) -> None:
        """End every slurmd that was started."""
        for name in self._started:
            if self._cell.alive(f"slurmd.{name}"):
                self._cell.stop(f"slurmd.{name}", signal.SIGKILL, 5)
        self._started.clear()

    def _run_step_command(self, submission: Submission, granted: Granted) -> tuple[Task, ...]:
        probe_command = ["sh", "-c", TASK_PROBE_SCRIPT]
        argv = ["srun", *submission.options, *probe_command]
        if submission.command == "salloc":
            argv = ["salloc", *submission.options, "srun", *probe_command]
        command_result = self._cell.run(
            argv, CONTROLLER_USER, self._environment, limit=_STEP_LIMIT_S
        )
        if command_result.code == 124:
            raise self._not_started_error(command_result.err)
        tasks = self._tasks_in_output(command_result.out + command_result.err)
        if command_result.code != 0 or len({task.node for task in tasks}) < len(granted.nodes):
            raise UncertainStep(tasks)
        return tasks

    def _tasks_in_output(self, srun_output: str) -> tuple[Task, ...]:
        tasks = read_tasks(srun_output)
        if not tasks:
            raise UncertainStep(self._step_failure("srun in the job fails", srun_output))
        return tasks

    def _not_started_error(self, srun_output: str) -> WrongState | UncertainStep:
        step_error = self._step_failure("no step starts", srun_output)
        return step_error if is_step_waiting(srun_output) else UncertainStep(step_error)

    def _step_failure(self, failure: str, srun_output: str) -> WrongState:
        output_lines = [line for line in srun_output.splitlines() if line.strip()] or [
            "no reason given"
        ]
        return WrongState(f"the job starts, but {failure}: {output_lines[-1]}")

    def _node_environment(self, node_name: str, *, bound: bool) -> dict[str, str]:
        """Return the variables that make this machine look like the node to its slurmd."""
        if not bound:
            return {}
        return {
            "HWLOC_SYNTHETIC": topology(self._conf.fields[node_name]),
            "LD_PRELOAD": f"{self._cell.place.folder}/{AFFINITY_LIBRARY}",
            AFFINITY_VARIABLE: f"{self._cell.place.folder}/affinity",
        }

    def _wait_until_registered(self, node_names: Sequence[str], deadline: float) -> None:
        """Wait until slurmctld knows every slurmd. Raises Unavailable."""
        argv = ["scontrol", "--oneliner", "show", "node", ",".join(node_names)]
        while time.monotonic() < deadline:
            listing = self._cell.run(argv, CONTROLLER_USER, self._environment).out
            count = listing.count(" SlurmdStartTime=") - listing.count(" SlurmdStartTime=None")
            if count >= len(node_names):
                return
            time.sleep(0.05)
        raise Unavailable("slurmctld does not know the slurmd that was started for a node")
