"""Rules about what is asked of Slurm: the #SBATCH lines, and the srun lines under them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.slurm.lint._rules import Finding, Site, found, rule
from podwright.slurm.lint._script import Script
from podwright.slurm.requests import OPTIONS, TASKS_ALONE, refusal

_GRES = re.compile(r"(--gres[= ]|--gpus[\w-]*[= ])(gpu:)?(\S+)")
DISTRIBUTED = (
    r"\btorchrun\b",
    r"torch\.distributed\.(run|launch)",
    r"\bdeepspeed\b",
    r"\baccelerate launch\b",
    r"\bcolossalai run\b",
)


def nodes_of(script: Script) -> int:
    """The nodes asked for, 1 where nothing is said."""
    return script.request.min_nodes or 1


def per_node_of(script: Script) -> int:
    """GPUs of one node as far as the request tells, else 0."""
    request = script.request
    if request.per_node:
        return request.per_node.count
    tasks = request.tasks_per_node or (request.tasks or 0) // nodes_of(script)
    return request.per_task.count * tasks if request.per_task else 0


def is_training(script: Script) -> bool:
    """Whether the script starts one program that talks across its tasks."""
    if script.uses(*DISTRIBUTED):
        return True
    return bool(script.assigned("MASTER_ADDR") and script.uses(r"\bsrun\b"))


def swap(text: str, option: str, value: str) -> str:
    """The line with another value for a long option."""
    return re.sub(rf"(--{option})(=|\s+)\S+", rf"\g<1>\g<2>{value}", text, count=1)


@rule
def unreadable_option(script: Script, site: Site) -> Iterator[Finding]:
    """Slurm cannot read the line, and refuses the script; the GPU type in the wrong place."""
    for number, error in script.broken:
        text = script.lines[number - 1]
        match = _GRES.search(text)
        words = match[3].split(":") if match else []
        counts = [w for w in words if w.isdigit()]
        kinds = [w for w in words if w and not w.isdigit()]
        if match and len(counts) == 1 and kinds:
            right = f"{match[1]}{match[2] or ''}{kinds[-1]}:{counts[0]}"
            yield found(
                script,
                "gres-order",
                number,
                f"GRES are written name:type:count, with one type: {error.problem}",
                text[: match.start()] + right + text[match.end() :],
                sure=True,
            )
            continue
        option = str(error.data.get("option", ""))
        close = re.search(r"The nearest is --([\w-]+)", error.would_work)
        corrected = text.replace(f"--{option}", f"--{close[1]}", 1) if close and option else ""
        strange = close or "has no option" in error.problem or "ambiguous" in error.problem
        name = "unknown-option" if strange else "bad-value"
        yield found(script, name, number, error.problem, corrected)


@rule
def option_this_slurm_lacks(script: Script, site: Site) -> Iterator[Finding]:
    """An option that came later than this site's Slurm, or went before it."""
    if site.version is None:
        return
    for number, given in script.directives:
        option = next(o for o in OPTIONS if o.name == given.name and "b" in o.commands)
        here = f"{site.version[0]}.{site.version[1]:02}"
        if option.since > site.version:
            since = f"{option.since[0]}.{option.since[1]:02}"
            yield found(
                script,
                "option-this-slurm-lacks",
                number,
                f"--{given.name} came with Slurm {since}; this is {here}, which refuses the job",
            )
        elif option.until <= site.version:
            yield found(
                script,
                "option-this-slurm-lacks",
                number,
                f"--{given.name} is gone since Slurm {option.until[0]}.{option.until[1]:02}",
            )


@rule
def late_directive(script: Script, site: Site) -> Iterator[Finding]:
    """Slurm reads #SBATCH lines only above the first command."""
    for number in script.late:
        yield found(
            script,
            "late-directive",
            number,
            "Slurm stops reading #SBATCH at the first command: this line does nothing",
        )


@rule
def refused(script: Script, site: Site) -> Iterator[Finding]:
    """Counts that Slurm cannot bring into line."""
    if script.broken or not script.request.asks_for_gpus:
        return
    answer = refusal(script.request)
    if answer:
        line = script.line_of(
            "gpus-per-task", "ntasks-per-gpu", "gpus-per-socket", "gpu-bind", "gpus"
        ) or script.line_of("gres", "gpus-per-node")
        hint = f". What works: {answer.would_work}" if answer.would_work else ""
        yield found(script, "refused", line, f"Slurm refuses this: {answer.reason}{hint}")


@rule
def gpu_shared_by_tasks(script: Script, site: Site) -> Iterator[Finding]:
    """One GPU per node asked for, as if it were one per task."""
    request = script.request
    tasks = request.tasks_per_node or 0
    if not tasks and request.tasks and request.min_nodes:
        tasks = request.tasks // request.min_nodes
    if not request.per_node or request.per_node.count != 1 or tasks < 2 or request.per_job:
        return
    if request.bind or script.uses(r"nvidia-cuda-mps-control") or request.per_task:
        return
    line = script.line_of("gres", "gpus-per-node")
    text = script.lines[line - 1]
    yield found(
        script,
        "gpu-shared-by-tasks",
        line,
        f"this counts per node, not per task: the {tasks} tasks of a node share 1 GPU",
        re.sub(r"(gpu(?:s-per-node)?[=:](?:[A-Za-z]\w*:)?)1\b", rf"\g<1>{tasks}", text, count=1),
    )


@rule
def gpus_counted_over_nodes(script: Script, site: Site) -> Iterator[Finding]:
    """A total of GPUs given where Slurm counts per node."""
    request, nodes = script.request, nodes_of(script)
    each = request.tasks_per_node or 0
    if not request.per_node or nodes < 2 or each < 2 or request.per_task or request.bind:
        return
    tasks, count = each * nodes, request.per_node.count
    if count != tasks or count % nodes:
        return
    line = script.line_of("gres", "gpus-per-node")
    text = script.lines[line - 1]
    yield found(
        script,
        "gpus-counted-over-nodes",
        line,
        f"this counts per node: {count} on each of {nodes} nodes are {count * nodes} GPUs for "
        f"{tasks} tasks; one for each task is {count // nodes} per node",
        re.sub(rf"\b{count}\b(?!.*\b{count}\b)", str(count // nodes), text, count=1),
    )


@rule
def gpus_total_too_small(script: Script, site: Site) -> Iterator[Finding]:
    """--gpus counts the whole job, and the program starts more processes than that."""
    request, nodes = script.request, nodes_of(script)
    launch = script.uses(r"--nproc[_-]per[_-]node[= ]\d+")
    if not request.per_job or nodes < 2 or not launch or request.per_node:
        return
    match = re.search(r"--nproc[_-]per[_-]node[= ](\d+)", launch.text)
    assert match
    wanted = int(match[1])
    if wanted * nodes <= request.per_job.count:
        return
    line = script.line_of("gpus")
    kind = f"{request.per_job.kind}:" if request.per_job.kind else ""
    yield found(
        script,
        "gpus-total-too-small",
        line,
        f"--gpus counts the whole job: {request.per_job.count} GPUs over {nodes} nodes, while "
        f"{wanted} processes start on each node",
        re.sub(r"(--gpus[= ]|-G ?)\S+", f"--gpus-per-node={kind}{wanted}", script.lines[line - 1]),
        sure=request.per_job.count == wanted,
    )


@rule
def fewer_tasks_than_nodes(script: Script, site: Site) -> Iterator[Finding]:
    """Slurm gives back nodes that have no task."""
    request = script.request
    if request.tasks and request.min_nodes and request.tasks < request.min_nodes:
        line = script.line_of("ntasks")
        yield found(
            script,
            "fewer-tasks-than-nodes",
            line,
            f"{request.tasks} tasks need no {request.min_nodes} nodes: Slurm gives {request.tasks}",
            swap(script.lines[line - 1], "ntasks", str(request.min_nodes)),
        )


@rule
def missing_exclusive(script: Script, site: Site) -> Iterator[Finding]:
    """Training over nodes shared with other jobs."""
    if nodes_of(script) < 2 or not is_training(script) or script.request.option("exclusive"):
        return
    line = script.line_of("nodes")
    yield found(
        script,
        "missing-exclusive",
        line,
        "another job on one of these nodes would share NVLink, PCIe and the adapters, and slow "
        "every step of all nodes",
        "#SBATCH --exclusive",
        before=True,
    )


@rule
def missing_topology(script: Script, site: Site) -> Iterator[Finding]:
    """The site knows its switches, and the job does not ask for few of them."""
    request = script.request
    if nodes_of(script) < 2 or not is_training(script) or site.topology not in ("tree", "block"):
        return
    if request.option("switches") or request.option("segment"):
        return
    wanted = (
        f"#SBATCH --segment={nodes_of(script)}"
        if site.topology == "block" and (site.version or (0, 0)) >= (24, 5)
        else "#SBATCH --switches=1@01:00:00"
    )
    yield found(
        script,
        "missing-topology",
        script.line_of("nodes"),
        "nodes under several leaf switches make every all-reduce cross the spine",
        wanted,
        before=True,
    )


@rule
def cpus_not_passed_on(script: Script, site: Site) -> Iterator[Finding]:
    """Slurm 22.05 and 23.02: srun does not take --cpus-per-task over from its job."""
    if site.version is None or not TASKS_ALONE[0] <= site.version < TASKS_ALONE[1]:
        return
    if (script.request.cpus_per_task or 1) < 2 or script.assigned("SRUN_CPUS_PER_TASK"):
        return
    for line in script.commands:
        if not re.match(r"(time\s+)?srun\b", line.text):
            continue
        if re.search(r"\s(-c\s*\S+|--cpus-per-task|--overlap|--pty)", line.text):
            continue
        text = script.lines[line.number - 1]
        yield found(
            script,
            "cpus-not-passed-on",
            line.number,
            "in this Slurm srun does not take --cpus-per-task over from the job: each task gets "
            "one core",
            text.replace("srun", 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK"', 1),
            sure=True,
        )
