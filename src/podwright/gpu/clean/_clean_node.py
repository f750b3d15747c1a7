"""Looks at this node's GPUs and their processes, ends what may be ended, and reports.

Processes are read before Slurm is asked for its jobs: a job that begins in between is listed, and
none of its processes has been read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from podwright.gpu.clean._leftovers import (
    Belongs,
    GpuState,
    Here,
    NodeProcess,
    ProcessVerdict,
    held_memory,
    judge_process,
    victims,
)
from podwright.gpu.clean._listed_jobs import LIST_JOBS_COMMAND, read_jobs
from podwright.gpu.clean._node_processes import end, read_processes
from podwright.gpu.health import HELD_PREFIX, LIBRARY_TIMEOUT_S, apart
from podwright.ground.judgement import Judgement, Says
from podwright.ground.plural import counted
from podwright.ground.tables import table
from podwright.hosts.gpus import LibraryError, open_libraries

_ROUNDS = 3  # of ending: what starts its processes anew may itself end later than they do
_MAX_REASON_CHARS = 120  # sinfo shows a reason in one line
_SOURCE = "the kernel, the driver and Slurm"


class GpusSeen(msgspec.Struct, frozen=True):
    """The GPUs of this node. problems: what the libraries could not tell."""

    gpus: tuple[GpuState, ...] = ()
    problems: tuple[str, ...] = ()


class CleanReport(msgspec.Struct, frozen=True):
    """What holds this node's GPUs. processes: those that hold one. ended: what was ended.

    memory: GPUs whose memory is in use without a visible right to it. problems: what could not be
    asked. left_out: what was not looked at, one noun phrase each.
    """

    node: str
    gpus: int
    processes: tuple[ProcessVerdict, ...] = ()
    memory: tuple[GpuState, ...] = ()
    ended: tuple[NodeProcess, ...] = ()
    problems: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def left(self) -> list[ProcessVerdict]:
        """The processes of ended jobs, proved or not, that hold a GPU."""
        of_ended = (Belongs.ENDED_JOB, Belongs.MAYBE_ENDED_JOB)
        return [verdict for verdict in self.processes if verdict.belongs in of_ended]

    @property
    def faults(self) -> list[str]:
        """Why GPUs are not free, a phrase each."""
        by_process = [
            f"{gpu_words(verdict.process.gpus)} by {verdict} ({verdict.because})"
            for verdict in self.left
        ]
        return by_process + [
            f"GPU {gpu.index} has {(gpu.memory or 0) >> 20} MiB in use and no job"
            for gpu in self.memory
        ]

    @property
    def judgement(self) -> Judgement:
        """Whether all GPUs are free of ended jobs."""
        if self.faults:
            because = "held: " + "; ".join(self.faults)
            return Judgement(says=Says.NO, because=because, source=_SOURCE, left_out=self.left_out)
        doubts = [*self.problems]
        doubts += [
            f"{gpu_words(verdict.process.gpus)} by {verdict}: {verdict.because}"
            for verdict in self.processes
            if verdict.belongs is Belongs.NOT_KNOWN
        ]
        if doubts:
            return Judgement(says=Says.NOT_KNOWN, because="; ".join(doubts), left_out=self.left_out)
        because = "nothing of an ended job holds a GPU"
        return Judgement(says=Says.YES, because=because, source=_SOURCE, left_out=self.left_out)

    @property
    def reason(self) -> str:
        """The reason of a drain, in one line; empty where the GPUs are free."""
        if not self.faults:
            return ""
        first = f"{HELD_PREFIX}{self.faults[0]}"
        if self.left:
            verdict = self.left[0]
            first = f"{HELD_PREFIX}{gpu_words(verdict.process.gpus)} by {verdict}"
        more = f" (+{len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        return first[: _MAX_REASON_CHARS - len(more)] + more


def clean(
    here: Here,
    run_slurm: Callable[[Sequence[str]], str | None],
    see_gpus: Callable[[], GpusSeen],
    *,
    hook_job: int | None = None,
    end_leftovers: bool = False,
) -> CleanReport:
    """Look at all GPUs. hook_job: the job whose Epilog this is.

    end_leftovers: end what provably belongs to ended jobs. Slurm is asked only if a process that
    holds a GPU names a job.
    """
    ended: list[NodeProcess] = []
    for attempt in range(_ROUNDS + 1):
        seen = see_gpus()
        processes = read_processes(here, seen.gpus)
        listing = None
        if any(process.gpus and process.named_jobs for process in processes):
            listing = run_slurm(LIST_JOBS_COMMAND)
        jobs = None if listing is None else read_jobs(listing, here.node)
        verdicts = [judge_process(process, jobs, hook_job) for process in processes]
        chosen = victims(verdicts)
        if not end_leftovers or not chosen or attempt == _ROUNDS:
            break
        end(chosen, here)
        ended += chosen
    holders = tuple(verdict for verdict in verdicts if verdict.process.gpus)
    left_out = ["GPUs, since no driver shows any"] if not seen.gpus else []
    problems = list(seen.problems)
    if os.geteuid() != 0:
        problems.append("only root may see which processes hold GPUs")
    return CleanReport(
        here.node,
        len(seen.gpus),
        holders,
        tuple(held_memory(seen.gpus, holders)),
        tuple({(process.pid, process.start): process for process in ended}.values()),
        tuple(problems),
        tuple(left_out),
    )


def ask_driver(environ: Mapping[str, str]) -> GpusSeen:
    """The GPUs, by the vendors' libraries, which may hang: a process of its own asks them."""
    try:
        seen = apart(lambda: _ask_libraries(environ), LIBRARY_TIMEOUT_S)
    except ChildProcessError as error:
        return GpusSeen(problems=(str(error),))
    return seen or GpusSeen(problems=(f"no answer of the driver in {LIBRARY_TIMEOUT_S:g} s",))


def _ask_libraries(environ: Mapping[str, str]) -> GpusSeen:
    libraries, notes = open_libraries(environ)
    problems = [*notes]
    gpus: list[GpuState] = []
    for library in libraries:
        try:
            for number, gpu in enumerate(library.gpus()):
                gpus.append(
                    GpuState(
                        len(gpus),
                        gpu.files,
                        library.sample(number).memory,
                        tuple(user.pid for user in library.holders(number)),
                        bool(gpu.slices),
                    )
                )
        except LibraryError as error:
            problems.append(f"{library.vendor}: {error}")
        finally:
            library.close()
    return GpusSeen(tuple(gpus), tuple(problems))


def gpu_words(indexes: Sequence[int]) -> str:
    """The name of one GPU, or of several."""
    return f"GPU{'s' if len(indexes) > 1 else ''} {','.join(map(str, indexes))}"


def text(report: CleanReport) -> str:
    """The report in words: the outcome first, then who holds which GPU."""
    says = report.judgement.says
    outcome = {Says.YES: "are free", Says.NO: "are not free", Says.NOT_KNOWN: "may not be free"}
    lines = [f"{report.node}: {counted(report.gpus, 'GPU')} {outcome[says]} of ended jobs."]
    lines.append(f"{report.judgement.because[0].upper()}{report.judgement.because[1:]}.")
    if report.ended:
        ended = ", ".join(f"{process.command} {process.pid}" for process in report.ended)
        lines.append(f"Ended: {ended}.")
    if report.processes:
        rows = [
            (
                ",".join(map(str, verdict.process.gpus)),
                verdict.process.pid,
                verdict.process.user,
                verdict.process.command,
                verdict.belongs,
                verdict.because,
            )
            for verdict in report.processes
        ]
        header = ("GPU", "PID", "User", "Command", "Belongs to", "Because")
        lines += ["", table(header, rows)]
    if report.left_out:
        lines += ["", f"Not looked at: {'; '.join(report.left_out)}."]
    return "\n".join(lines)
