"""A Slurm in memory, for tests of what asks Slurm."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from podwright.slurm.reader import squeue_text
from podwright.slurm.site.command_result import CommandResult

#: What a test answers in Slurm's place; None leaves the answer to Slurm.
Answer = Callable[[Sequence[str]], CommandResult | str | None]


@dataclass
class FakeJob:
    """A job as squeue lists it. Its fields have the names of our columns."""

    state: str = "RUNNING"
    restarts: int = 0
    licences: str = ""
    comment: str = ""
    het_job: int = 0
    priority: int = 1
    reason: str = "None"
    end: str = ""
    time_limit: str = "1:00"
    user_id: str = ""
    submitted: str = ""
    array_job: str = ""
    array_task: str = ""
    eligible: str = ""
    node_list: str = ""


@dataclass
class FakeNode:
    """A node as sinfo lists it."""

    state: str = "idle"
    reason: str = "none"
    partition: str = "gpu"
    since: str = "1700000000"


class FakeSlurm:
    """Slurm's commands over jobs and nodes that a test sets.

    squeue and sinfo list these, in the columns that they are asked for. `scontrol hold`, `release`
    and `update` change them. Every other command succeeds and prints nothing.

    jobs: by number. nodes: by name. down: slurmctld does not answer. refusals: by the verb of
    scontrol, what it says instead of doing it. commands: all that were run, in order. answer: is
    asked first about each command.
    """

    def __init__(self, answer: Answer = lambda argv: None) -> None:
        self.jobs: dict[int, FakeJob] = {}
        self.nodes: dict[str, FakeNode] = {}
        self.down = False
        self.refusals: dict[str, str] = {}
        self.commands: list[tuple[str, ...]] = []
        self._answer = answer
        self._changed = asyncio.Event()

    async def run(self, *argv: str) -> CommandResult:
        """Run a command, and return its result, as `slurm.site.commands.Slurm` does."""
        self.commands.append(argv)
        await asyncio.sleep(0)
        result = self._result(argv)
        self._changed.set()
        return result

    def text(self, argv: Sequence[str]) -> str | None:
        """Run a command, and return what it prints; None where it fails."""
        self.commands.append(tuple(argv))
        result = self._result(argv)
        return None if result.code else result.out

    def said(self, *words: str) -> list[tuple[str, ...]]:
        """Return the commands so far that begin with these words."""
        return [argv for argv in self.commands if argv[: len(words)] == words]

    async def wait_for(self, *words: str) -> tuple[str, ...]:
        """Wait for a command that begins with these words, and return it."""
        while not (found := self.said(*words)):
            self._changed.clear()
            await self._changed.wait()
        return found[0]

    def _result(self, argv: Sequence[str]) -> CommandResult:
        answer = self._answer(argv)
        if answer is None:
            answer = self._own_answer(argv)
        return answer if isinstance(answer, CommandResult) else CommandResult(0, answer, "")

    def _own_answer(self, argv: Sequence[str]) -> CommandResult | str:
        if self.down:
            return CommandResult(1, "", "Unable to contact slurm controller")
        if argv[0] == "squeue" and "-O" in argv:
            return self._listing(argv)
        if argv[0] == "sinfo" and "-o" in argv:
            state = argv[argv.index("-t") + 1] if "-t" in argv else ""
            names = [name for name, node in self.nodes.items() if node.state.startswith(state)]
            return "".join(self._node_line(argv[argv.index("-o") + 1], name) for name in names)
        if argv[0] == "scontrol":
            if argv[1] in self.refusals:
                return CommandResult(1, "", self.refusals[argv[1]])
            self._control(argv[1], argv[2:])
        return ""

    def _listing(self, argv: Sequence[str]) -> CommandResult | str:
        numbers = list(self.jobs)
        if "-j" in argv:
            asked = argv[argv.index("-j") + 1].split(",")
            numbers = [number for number in numbers if str(number) in asked]
            if not numbers:
                return CommandResult(1, "", "slurm_load_jobs error: Invalid job id specified")
        rows = [{"job": str(number), **vars(self.jobs[number])} for number in numbers]
        return squeue_text(argv[argv.index("-O") + 1], rows)

    def _node_line(self, line_format: str, name: str) -> str:
        node = self.nodes[name]
        values = {"N": name, "R": node.partition, "T": node.state}
        values |= {"H": node.since, "E": node.reason}
        return re.sub(r"%([A-Z])", lambda match: values[match[1]], line_format) + "\n"

    def _job(self, name: str) -> FakeJob | None:
        """Return a job by `7`, by `5_2` of an array, or by `6+1` of a heterogeneous job."""
        array, _, task = name.partition("_")
        leader, _, part = name.partition("+")
        if task:
            found = [
                job
                for job in self.jobs.values()
                if (job.array_job, job.array_task) == (array, task)
            ]
            return found[0] if found else None
        if part:
            numbers = sorted(
                number for number, job in self.jobs.items() if str(job.het_job) == leader
            )
            return self.jobs[numbers[int(part)]] if int(part) < len(numbers) else None
        return self.jobs.get(int(name)) if name.isdecimal() else None

    def _control(self, verb: str, words: Sequence[str]) -> None:
        if verb in ("hold", "release"):
            if job := self._job(words[0]):
                job.priority = int(verb == "release")
            return
        fields = {key.lower(): text for key, _, text in (word.partition("=") for word in words)}
        if verb == "update" and (job := self._job(fields.get("jobid", ""))):
            job.comment = fields.get("admincomment", job.comment)
            job.licences = fields.get("licenses", job.licences)
        if verb == "update" and (node := self.nodes.get(fields.get("nodename", ""))):
            state = fields.get("state", "").upper()
            node.state = {"DRAIN": "drained", "RESUME": "idle"}.get(state, node.state)
            node.reason = fields.get("reason", "none" if state == "RESUME" else node.reason)
