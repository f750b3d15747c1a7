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
from podwright.slurm.site.command_result import CommandResult
from podwright.slurm.site.releases import SlurmVersion, release_of
from podwright.slurm.twin import FilledTwin, Granted, Refused, Submission, Waits

_HARMLESS_SLURMD_LINE = re.compile(r"Domain socket directory|is empty|differs from hardware")
_SLURMD_PREFIX = re.compile(r"^(?:\[\S+\] )?(?:slurmd\S*: )?(?:fatal: |error: )?")
_MAX_ARRAY_TASKS = 1000  # tasks of one array: below the default of MaxArraySize


class ProvingTwin(Protocol):
    """The part of a twin that proofs use."""

    def ask(self, request: Submission) -> Granted | Waits | Refused:
        """Ask Slurm about one request."""

    def fill(self, requests: Sequence[Submission]) -> FilledTwin:
        """Submit many jobs at once and return what becomes of them."""

    def slurmd_reads_gres(self, node_name: str, gres_text: str) -> CommandResult:
        """Let slurmd of a node read gres.conf as it is written."""

    def show(self, *words: str) -> str:
        """The output of a scontrol command."""


def prove(
    twin: ProvingTwin, inventory: SiteInventory, version: SlurmVersion, gres_conf: str
) -> Iterator[Promise]:
    """Yield each proof when it is finished: slurmd of each kind of node reads gres.conf, one-GPU
    jobs fill the nodes of each partition, and each job script of `podwright slurm template` starts
    on idle nodes.

    Raises Unavailable where slurmctld ends meanwhile, and FieldNotKnown where Slurm does not show
    what the count of a node or partition needs.
    """
    for kind, names in inventory.kinds().items():
        if kind.gpus:
            result = twin.slurmd_reads_gres(names[0], gres_conf)
            yield _gres_promise(names[0], result.code, result.err + result.out)
    nodes = read_nodes(twin.show(*SHOW_NODES[1:]))
    partitions = read_partitions(twin.show(*SHOW_PARTITIONS[1:]))
    exclusive_partitions = {partition.name for partition in partitions if partition.whole_nodes}
    partition_names = list(dict.fromkeys(name for node in nodes for name in node.partitions))
    for partition_name in partition_names:
        partition_nodes = [
            slurm_node
            for slurm_node in nodes
            if partition_name in slurm_node.partitions and slurm_node.name in inventory.nodes
        ]
        partition_nodes = [node for node in partition_nodes if _gpu_count(node)]
        if partition_nodes:
            yield _prove_filling(
                twin, partition_name, partition_nodes, alone=partition_name in exclusive_partitions
            )
    default = [""] if any(partition.default for partition in partitions) else []
    for partition_name in (*default, *(partition.name for partition in inventory.partitions)):
        yield from _prove_templates(twin, inventory, version, partition_name)


def _gres_promise(node_name: str, exit_code: int, output: str) -> Promise:
    """Judge what `slurmd -G` printed."""
    text = f"slurmd of {node_name} reads gres.conf"
    if exit_code == 127:
        return Promise(text, not_known="there is no slurmd here")
    lines = [line for line in output.splitlines() if not _HARMLESS_SLURMD_LINE.search(line)]
    faults = [line for line in lines if "unknown autodetect flag" in line]
    if exit_code:
        fatal = [line for line in lines if "fatal:" in line]
        faults += fatal or [line for line in lines if "error:" in line] or ["no reason given"]
    return Promise(text, _SLURMD_PREFIX.sub("", faults[0]) if faults else "")


def _prove_filling(
    twin: ProvingTwin, partition: str, nodes: list[SlurmNode], *, alone: bool
) -> Promise:
    promise_text = (
        f"one-GPU jobs fill {fold([slurm_node.name for slurm_node in nodes])} in partition "
        f"{partition}"
    )
    job_count = len(nodes) if alone else sum(map(_gpu_count, nodes))
    options = (f"--partition={partition}", "--gres=gpu:1")
    job_arrays = [
        Submission(
            "sbatch", (*options, f"--array=0-{min(_MAX_ARRAY_TASKS, job_count - first_job) - 1}")
        )
        for first_job in range(0, job_count, _MAX_ARRAY_TASKS)
    ]
    fill_result = twin.fill(job_arrays)
    if fill_result.refused:
        return Promise(promise_text, f"Slurm: {_refusal_text(fill_result.refused[0])}")
    jobs_by_node: Counter[str] = Counter()
    gpus_by_node: Counter[str] = Counter()
    for job in fill_result.granted:
        for node in job.nodes:
            jobs_by_node[node.name] += 1
            gpus_by_node[node.name] += len(node.gpus)
    short_nodes = [
        slurm_node
        for slurm_node in nodes
        if (jobs_by_node[slurm_node.name] if alone else gpus_by_node[slurm_node.name])
        < _expected_jobs(slurm_node, alone)
    ]
    if not short_nodes:
        return Promise(promise_text)
    first_short = short_nodes[0]
    return Promise(
        promise_text,
        f"{fold([node.name for node in short_nodes])}: {gpus_by_node[first_short.name]} of "
        f"{_gpu_count(first_short)} GPUs of "
        f"{first_short.name} are in use{_shortfall_reason(fill_result, first_short)}",
    )


def _expected_jobs(node: SlurmNode, whole_nodes: bool) -> int:
    return 1 if whole_nodes else _gpu_count(node)


def _shortfall_reason(fill_result: FilledTwin, node: SlurmNode) -> str:
    """Return what the jobs on the node take, and why the next one waits."""
    node_parts = [
        job_part
        for job in fill_result.granted
        for job_part in job.nodes
        if job_part.name == node.name
    ]
    phrases = []
    if node_parts:
        cpu_count, memory_mib = (
            sum(len(node_part.cpus) for node_part in node_parts),
            sum(node_part.memory for node_part in node_parts),
        )
        phrases.append(
            f" by {len(node_parts)} jobs with {cpu_count} of {node.cpus} CPUs and {memory_mib} of "
            f"{node.memory_mib} MiB"
        )
    if fill_result.waiting:
        phrases.append(f"; Slurm: the next job waits ({fill_result.waiting[0].reason})")
    return "".join(phrases)


def _prove_templates(
    twin: ProvingTwin, inventory: SiteInventory, version: SlurmVersion, partition: str
) -> Iterator[Promise]:
    """Yield each job script in the sizes that users take: as it is printed, and over all such
    nodes.
    """
    tried_options: set[tuple[str, ...]] = set()
    keeps_reserved = release_of(version).twin_keeps_reserved_cores
    for template_name in all_templates():
        options = TemplateOptions(partition=partition)
        try:
            site_fit = of_inventory(inventory, options, version)
        except InvalidRequest:
            return  # no GPU node of the inventory is in it
        for node_count in dict.fromkeys((min(2, site_fit.nodes), 1, site_fit.nodes)):
            script = render(template_name, site_fit, options._replace(nodes=node_count))
            submission, _ = twin_submission(read_script(script).request)
            if submission.options in tried_options or not submission.options:
                continue  # without options it is not a job itself, and submits others
            tried_options.add(submission.options)
            partition_text = f" in partition {partition}" if partition else ""
            promise_text = (
                f"template {template_name} on {_node_phrase(submission)}{partition_text} starts"
            )
            twin_answer = twin.ask(submission)
            problem = _answer_problem(twin_answer, submission)
            if problem and _reserves_cores(inventory) and not keeps_reserved:
                yield Promise(
                    promise_text,
                    not_known="nodes reserve cores (CoreSpecCount), and a slurmctld of this "
                    f"release without its nodes counts them otherwise ({problem})",
                )
                continue
            yield Promise(promise_text, problem)


def _reserves_cores(inventory: SiteInventory) -> bool:
    return any(kind.core_spec_count for kind in inventory.kinds())


def _node_phrase(submission: Submission) -> str:
    """Return the number of nodes that a submission requests, in words."""
    node_options = (option for option in submission.options if option.startswith("--nodes="))
    text = next(node_options, "--nodes=1").partition("=")[2]
    return f"{text} node{'' if text == '1' else 's'}"


def _answer_problem(twin_answer: Granted | Waits | Refused, submission: Submission) -> str:
    if isinstance(twin_answer, Granted):
        return ""
    options = " ".join(submission.options)
    if isinstance(twin_answer, Refused):
        return f"Slurm: {_refusal_text(twin_answer)} ({options})"
    return f"Slurm: the job waits ({twin_answer.reason}) on idle nodes ({options})"


def _refusal_text(refusal: Refused) -> str:
    return re.sub(r"^\w+: (?:error: )?", "", refusal.message)


def _gpu_count(node: SlurmNode) -> int:
    return sum(gpus.amount for gpus in node.gpus)
