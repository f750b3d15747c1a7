"""Rules about options that exclude each other, or that Slurm resolves in its own way."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.hosts import BadHostList, expand
from podwright.slurm.site.releases import release_of

_EVIDENCE_TEST = "tests/outer/gpu/test_lint_shown.py"
_MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")


@rule(
    "refused",
    "mistake",
    "counts that Slurm cannot bring into line",
    "tests/outer/gpu/test_lint.py::test_slurm_refuses_what_lint_says_it_refuses",
)
def refused(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    gpu_units = [unit for unit, _ in script.request.gpu_options]
    request = script.request
    has_few_units = len(set(gpu_units)) < 2 and not request.tasks_per_gpu and not request.bind
    lacks_sockets = request.per_socket and not request.sockets_per_node
    if script.problems or script.unknown or not script.settled:
        return
    if (
        has_few_units
        and not lacks_sockets
        and not request.per_task
        and not (request.per_job and request.min_nodes)
    ):
        return
    from podwright.gpu.requests import refusal  # loaded only when it is needed

    slurm_refusal = refusal(request)
    if slurm_refusal:
        line_number = script.line_of(
            "gpus-per-task", "ntasks-per-gpu", "gpus-per-socket", "gpu-bind", "gpus"
        ) or script.line_of("gres", "gpus-per-node")
        hint = f". What works: {slurm_refusal.would_work}" if slurm_refusal.would_work else ""
        yield Found(line_number, f"Slurm refuses this: {slurm_refusal.reason}{hint}")


@rule(
    "memory-twice",
    "mistake",
    "--mem, --mem-per-cpu and --mem-per-gpu exclude each other",
    f"{_EVIDENCE_TEST}::test_conflicting_ways_of_asking",
)
def memory_twice(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    options = [name for name in _MEMORY_OPTIONS if script.option(name)]
    if len(options) > 1 and script.settled:
        number = max(script.line_of(name) for name in options)
        text = " and ".join(f"--{name}" for name in options)
        yield Found(number, f"{text} exclude each other: sbatch refuses the job")


@rule(
    "gpus-disagree",
    "mistake",
    "--gres=gpu beside --gpus-per-node: Slurm 26.05 refuses both together, 22.05 where one of them "
    "has a type; of two counts an older release hears one",
    f"{_EVIDENCE_TEST}::test_conflicting_ways_of_asking",
)
def gpus_disagree(lint_case: Case) -> Iterator[Found]:
    script, version = lint_case.script, lint_case.site.version
    refuses = bool(version) and release_of(version).refuses_gres_beside_gpus_per_node
    for launch in lint_case.launches if refuses and script.line_of("gpus-per-node") else ():
        gres = launch.option("gres")
        if gres and gres.value.startswith("gpu") and not launch.elsewhere:
            reason = (
                "srun takes --gpus-per-node over from the job, and this Slurm refuses --gres=gpu "
                "beside it: write --gpus-per-node"
            )
            yield Found(launch.line, reason)
    per_node = [gpus for unit, gpus in script.request.gpu_options if unit == "node"]
    line_number = max(script.line_of("gres"), script.line_of("gpus-per-node"))
    if not script.line_of("gpus-per-node") or len(per_node) < 2 or not script.settled:
        return
    if refuses:
        reason = f"Slurm {release_of(version)} refuses --gres=gpu beside --gpus-per-node: write one"
        yield Found(line_number, reason)
    elif "" in {gpus.kind for gpus in per_node} != {""}:
        yield Found(line_number, "a GPU with a type beside one without: Slurm refuses the job")
    elif len({gpus.count for gpus in per_node}) > 1 and len({gpus.kind for gpus in per_node}) < 2:
        reason = "--gres=gpu and --gpus-per-node say the same thing with different counts"
        yield Found(line_number, reason)
    elif not version:
        reason = "Slurm 26.05 and newer refuse --gres=gpu beside --gpus-per-node: write one of them"
        yield Found(line_number, reason, level="better")


@rule(
    "tasks-disagree",
    "mistake",
    "more tasks than nodes times tasks of each node: no node can be found",
    f"{_EVIDENCE_TEST}::test_conflicting_ways_of_asking",
)
def tasks_disagree(lint_case: Case) -> Iterator[Found]:
    script, request = lint_case.script, lint_case.script.request
    tasks, per_node = request.tasks, request.tasks_per_node
    max_nodes = request.max_nodes or (1 if tasks == 1 else None)
    if not (tasks and per_node and max_nodes) or not script.settled:
        return
    if tasks > max_nodes * per_node:
        reason = (
            f"{tasks} tasks do not fit on {max_nodes} nodes with {per_node} each: Slurm refuses "
            "the job"
        )
        yield Found(script.line_of("ntasks"), reason)
    elif max_nodes <= tasks < max_nodes * per_node:
        idle = (lint_case.facts.gpus_per_node or 0) * max_nodes - tasks
        reason = (
            f"--ntasks={tasks} counts, and --ntasks-per-node={per_node} only limits it: {tasks} of "
            f"{max_nodes * per_node} tasks start"
        )
        if idle > 0:
            verb = "s stay" if idle > 1 else " stays"
            reason += f", and with a GPU for each of them {idle} GPU{verb} idle"
        if tasks == 1:
            reason += "; Slurm 26.05 never starts such a job"
        version = lint_case.site.version
        never_starts = version and release_of(version).never_starts_one_task_of_several
        is_mistake = tasks == 1 and never_starts
        yield Found(script.line_of("ntasks"), reason, level="mistake" if is_mistake else "better")


@rule(
    "fewer-tasks-than-nodes",
    "mistake",
    "Slurm gives back nodes that have no task",
    "tests/outer/gpu/test_lint.py::test_what_more_silent_mistakes_do",
)
def fewer_tasks_than_nodes(lint_case: Case) -> Iterator[Found]:
    script, request = lint_case.script, lint_case.script.request
    if not script.settled or not (request.tasks and request.min_nodes):
        return
    if request.tasks < request.min_nodes:
        reason = (
            f"{request.tasks} tasks need no {request.min_nodes} nodes: Slurm gives {request.tasks}"
        )
        yield Found(script.line_of("ntasks"), reason)


@rule(
    "more-nodes-named",
    "mistake",
    "--nodelist names more nodes than --nodes allows: Slurm 22.05 refuses the job, and newer "
    "releases leave out nodes that were named",
    f"{_EVIDENCE_TEST}::test_more_nodes_named_than_allowed",
)
def more_nodes_named(lint_case: Case) -> Iterator[Found]:
    script = lint_case.script
    nodelist, nodes = script.option("nodelist"), script.request.max_nodes
    if nodelist is None or nodes is None or not script.settled or "/" in nodelist.value:
        return  # a value with a slash names a file
    try:
        count = len(set(expand(nodelist.value)))
    except BadHostList:
        return  # another rule reports what cannot be read
    tasks = script.request.tasks
    if count > nodes and (tasks is None or tasks >= count):
        reason = (
            f"the list names {count} nodes, and --nodes allows {nodes}: Slurm 22.05 "
            f"refuses the job, and newer releases give {nodes} of them"
        )
        yield Found(script.line_of("nodelist"), reason)
