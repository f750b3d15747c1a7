"""The job that measures nodes: the same command, in an allocation of its own."""

from __future__ import annotations

import os
import sys
from typing import NoReturn, Protocol

from podwright.errors import Unavailable
from podwright.gpu.nodebench._find_slow_nodes import most_rounds
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
    bench_arguments = [sys.executable, "-P", "-m", "podwright.cli.podwright", "node", "bench"]
    bench_arguments += [f"--way={choice.transport}", f"--seconds={choice.seconds:g}"]
    bench_arguments += [f"--expect={choice.expect:g}"] if choice.expect else []
    bench_arguments += [f"--keep={os.path.abspath(choice.keep)}"] if choice.keep else []
    return [*bench_arguments, "--json"] if choice.json else bench_arguments


def job_command(choice: BenchChoice) -> list[str]:
    """Return the command that runs it in a job of its own."""
    salloc_arguments = [
        "salloc",
        "--exclusive",
        f"--time={choice.time}",
        "--job-name=podwright-bench",
    ]
    for option_name in ("nodes", "nodelist", "partition", "gpus_per_node"):
        option_value = getattr(choice, option_name)
        salloc_arguments += (
            [f"--{option_name.replace('_', '-')}={option_value}"] if option_value else []
        )
    return [*salloc_arguments, "--quiet", *bench_command(choice)]


def extent(choice: BenchChoice, job_nodes: tuple[str, ...]) -> str:
    """Return how many nodes would be measured, and in how many rounds. job_nodes: a job's nodes."""
    node_count = len(job_nodes) or choice.nodes or len(expand(choice.nodelist))
    round_limit = most_rounds(node_count)
    rounds_text = (
        "" if choice.transport == "none" else f", then at most {round_limit} rounds of pairs"
    )
    return f"{node_count} nodes: each by itself{rounds_text}."


def become_job(choice: BenchChoice) -> NoReturn:
    """Become the command of the job. Raises Unavailable without salloc."""
    command = job_command(choice)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise Unavailable(
            f"salloc: {error.strerror}", operation="run a job", would_work="install Slurm's client"
        ) from None
