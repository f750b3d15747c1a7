"""Checks the promises of Slurm's files against the slurmctld that would read them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol

from podwright.errors import InvalidRequest
from podwright.gpu.configure import Promise, SiteInventory
from podwright.gpu.lint import read_script
from podwright.gpu.requests import twin_submission
from podwright.gpu.templates import TemplateOptions, all_templates, of_inventory, render
from podwright.hosts import fold
from podwright.slurm.reader import (
    SHOW_NODES,
    SHOW_PARTITIONS,
    SlurmNode,
    read_nodes,
    read_partitions,
)
from podwright.slurm.site.releases import Version
from podwright.slurm.twin import FilledTwin, Granted, Refused, Submission, Waits

_ARRAY = 1000  # tasks of one array: below the default of MaxArraySize


class ProvingTwin(Protocol):
    """The part of a twin that proofs use."""

    def ask(self, request: Submission) -> Granted | Waits | Refused:
        """Ask Slurm about one request."""

    def fill(self, requests: Sequence[Submission]) -> FilledTwin:
        """Submit many jobs at once and return what becomes of them."""

    def show(self, *words: str) -> str:
        """The output of a scontrol command."""


def prove(twin: ProvingTwin, inventory: SiteInventory, version: Version) -> Iterator[Promise]:
    """Yield each proof when it is finished: one-GPU jobs fill the nodes of each partition, and each
    job script of `podwright slurm template` starts on idle nodes.

    Raises Unavailable where slurmctld ends meanwhile, and FieldNotKnown where Slurm does not show
    what the count of a node or partition needs.
    """
    nodes = read_nodes(twin.show(*SHOW_NODES[1:]))
    partitions = read_partitions(twin.show(*SHOW_PARTITIONS[1:]))
    alone = {partition.name for partition in partitions if partition.whole_nodes}
    names = list(dict.fromkeys(name for node in nodes for name in node.partitions))
    for name in names:
        partition_nodes = [n for n in nodes if name in n.partitions and n.name in inventory.nodes]
        partition_nodes = [node for node in partition_nodes if _gpus(node)]
        if partition_nodes:
            yield _filled(twin, name, partition_nodes, alone=name in alone)
    for name in ("", *(partition.name for partition in inventory.partitions)):
        yield from _templates(twin, inventory, version, name)


def _filled(twin: ProvingTwin, partition: str, nodes: list[SlurmNode], *, alone: bool) -> Promise:
    text = f"one-GPU jobs fill {fold([n.name for n in nodes])} in partition {partition}"
    jobs = len(nodes) if alone else sum(map(_gpus, nodes))
    options = (f"--partition={partition}", "--gres=gpu:1")
    arrays = [
        Submission("sbatch", (*options, f"--array=0-{min(_ARRAY, jobs - first_job) - 1}"))
        for first_job in range(0, jobs, _ARRAY)
    ]
    filled = twin.fill(arrays)
    if filled.refused:
        return Promise(text, f"Slurm: {_line(filled.refused[0])}")
    running: Counter[str] = Counter()
    busy: Counter[str] = Counter()
    for job in filled.granted:
        for node in job.nodes:
            running[node.name] += 1
            busy[node.name] += len(node.gpus)
    short = [n for n in nodes if (running[n.name] if alone else busy[n.name]) < _due(n, alone)]
    if not short:
        return Promise(text)
    first = short[0]
    return Promise(
        text,
        f"{fold([node.name for node in short])}: {busy[first.name]} of {_gpus(first)} GPUs of "
        f"{first.name} are in use{_refusal(filled, first)}",
    )


def _due(node: SlurmNode, alone: bool) -> int:
    return 1 if alone else _gpus(node)


def _refusal(filled: FilledTwin, node: SlurmNode) -> str:
    """Return what the jobs on the node take, and why the next one waits."""
    on_node = [part for job in filled.granted for part in job.nodes if part.name == node.name]
    parts = []
    if on_node:
        cpus, memory = sum(len(p.cpus) for p in on_node), sum(p.memory for p in on_node)
        parts.append(
            f" by {len(on_node)} jobs with {cpus} of {node.cpus} CPUs and {memory} of "
            f"{node.memory_mib} MiB"
        )
    if filled.waiting:
        parts.append(f"; Slurm: the next job waits ({filled.waiting[0].reason})")
    return "".join(parts)


def _templates(
    twin: ProvingTwin, inventory: SiteInventory, version: Version, partition: str
) -> Iterator[Promise]:
    """Yield each job script in the sizes that users take: as it is printed, and over all such
    nodes.
    """
    tried: set[tuple[str, ...]] = set()
    for name in all_templates():
        options = TemplateOptions(partition=partition)
        try:
            fit = of_inventory(inventory, options, version)
        except InvalidRequest:
            return  # no GPU node of the inventory is in it
        for count in dict.fromkeys((min(2, fit.nodes), 1, fit.nodes)):
            script = render(name, fit, options._replace(nodes=count))
            submission, _ = twin_submission(read_script(script).request)
            if submission.options in tried or not submission.options:
                continue  # without options it is not a job itself, and submits others
            tried.add(submission.options)
            where = f" in partition {partition}" if partition else ""
            text = f"template {name} on {_nodes_of(submission)}{where} starts"
            answer = twin.ask(submission)
            yield Promise(text, _problem(answer, submission))


def _nodes_of(submission: Submission) -> str:
    """Return the number of nodes that a submission requests, in words."""
    given = (option for option in submission.options if option.startswith("--nodes="))
    count = next(given, "--nodes=1").partition("=")[2]
    return f"{count} node{'' if count == '1' else 's'}"


def _problem(answer: Granted | Waits | Refused, submission: Submission) -> str:
    if isinstance(answer, Granted):
        return ""
    options = " ".join(submission.options)
    if isinstance(answer, Refused):
        return f"Slurm: {_line(answer)} ({options})"
    return f"Slurm: the job waits ({answer.reason}) on idle nodes ({options})"


def _line(answer: Refused) -> str:
    return re.sub(r"^\w+: (?:error: )?", "", answer.message)


def _gpus(node: SlurmNode) -> int:
    return sum(gpus.amount for gpus in node.gpus)
