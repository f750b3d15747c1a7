"""The job that measures nodes: the same command, in an allocation of its own."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Protocol

from podwright.errors import Unavailable
from podwright.gpu.nodebench._rounds import most_rounds
from podwright.hosts import expand


class BenchChoice(Protocol):
    """The options of `podwright node bench`. time: minutes. seconds: of each measurement."""

    nodes: int | None
    nodelist: str
    partition: str
    gpus_per_node: int | None
    time: int
    transport: str
    expect: float
    seconds: float
    keep: str
    json: bool


def bench_command(choice: BenchChoice) -> list[str]:
    """Return the command that measures the nodes of the job in which it runs."""
    own = [sys.executable, "-P", "-m", "podwright.cli.podwright", "node", "bench"]
    own += [f"--way={choice.transport}", f"--seconds={choice.seconds:g}"]
    own += [f"--expect={choice.expect:g}"] if choice.expect else []
    own += [f"--keep={os.path.abspath(choice.keep)}"] if choice.keep else []
    return [*own, "--json"] if choice.json else own


def job_command(choice: BenchChoice) -> list[str]:
    """Return the command that runs it in a job of its own."""
    words = ["salloc", "--exclusive", f"--time={choice.time}", "--job-name=podwright-bench"]
    for option in ("nodes", "nodelist", "partition", "gpus_per_node"):
        value = getattr(choice, option)
        words += [f"--{option.replace('_', '-')}={value}"] if value else []
    return [*words, "--quiet", *bench_command(choice)]


def extent(choice: BenchChoice, inside: tuple[str, ...]) -> str:
    """Return how many nodes would be measured, and in how many rounds. inside: a job's nodes."""
    count = len(inside) or choice.nodes or len(expand(choice.nodelist))
    round_limit = most_rounds(count)
    rounds = "" if choice.transport == "none" else f", then at most {round_limit} rounds of pairs"
    return f"{count} nodes: each by itself{rounds}."


def become_job(choice: BenchChoice) -> NoReturn:
    """Become the command of the job. Raises Unavailable without salloc."""
    command = job_command(choice)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Unavailable(
            f"salloc: {error.strerror}", operation="run a job", would_work="install Slurm's client"
        ) from None
