"""Rules about options that exclude each other, or that Slurm resolves in its own way."""

from __future__ import annotations

from collections.abc import Iterator

from podwright.errors import InvalidRequest
from podwright.gpu.lint._rule import Case, Found, rule
from podwright.hosts import expand

_SHOWN_BY = "tests/outer/gpu/test_lint_shown.py"
_SIZES = ("mem", "mem-per-cpu", "mem-per-gpu")


@rule(
    "refused",
    "mistake",
    "counts that Slurm cannot bring into line",
    "tests/outer/gpu/test_lint.py::test_slurm_refuses_what_lint_says_it_refuses",
)
def refused(case: Case) -> Iterator[Found]:
    script = case.script
    units = [unit for unit, _ in script.request.gpu_options]
    request = script.request
    few = len(set(units)) < 2 and not request.tasks_per_gpu and not request.bind
    alone = request.per_socket and not request.sockets_per_node
    if script.problems or script.unknown or not script.settled:
        return
    if few and not alone and not request.per_task and not (request.per_job and request.min_nodes):
        return
    from podwright.gpu.requests import refusal  # loaded only when it is needed

    answer = refusal(request)
    if answer:
        line = script.line_of(
            "gpus-per-task", "ntasks-per-gpu", "gpus-per-socket", "gpu-bind", "gpus"
        ) or script.line_of("gres", "gpus-per-node")
        hint = f". What works: {answer.would_work}" if answer.would_work else ""
        yield Found(line, f"Slurm refuses this: {answer.reason}{hint}")


@rule(
    "memory-twice",
    "mistake",
    "--mem, --mem-per-cpu and --mem-per-gpu exclude each other",
    f"{_SHOWN_BY}::test_conflicting_ways_of_asking",
)
def memory_twice(case: Case) -> Iterator[Found]:
    script = case.script
    given = [name for name in _SIZES if script.option(name)]
    if len(given) > 1 and script.settled:
        line = max(script.line_of(name) for name in given)
        names = " and ".join(f"--{name}" for name in given)
        yield Found(line, f"{names} exclude each other: sbatch refuses the job")


@rule(
    "gpus-disagree",
    "mistake",
    "--gres and --gpus-per-node ask for different counts; one is not heard",
    f"{_SHOWN_BY}::test_conflicting_ways_of_asking",
)
def gpus_disagree(case: Case) -> Iterator[Found]:
    script = case.script
    per_node = [gpus for unit, gpus in script.request.gpu_options if unit == "node"]
    if not script.line_of("gres") or not script.line_of("gpus-per-node") or not script.settled:
        return
    if len({gpus.count for gpus in per_node}) > 1 and len({gpus.kind for gpus in per_node}) < 2:
        line = max(script.line_of("gres"), script.line_of("gpus-per-node"))
        yield Found(line, "--gres=gpu and --gpus-per-node say the same thing with different counts")


@rule(
    "tasks-disagree",
    "mistake",
    "more tasks than nodes times tasks of each node: no node can be found",
    f"{_SHOWN_BY}::test_conflicting_ways_of_asking",
)
def tasks_disagree(case: Case) -> Iterator[Found]:
    script, request = case.script, case.script.request
    nodes = request.max_nodes
    if not (request.tasks and request.tasks_per_node and nodes) or not script.settled:
        return
    product = nodes * request.tasks_per_node
    if request.tasks > product:
        reason = (
            f"{request.tasks} tasks do not fit on {nodes} nodes with {request.tasks_per_node} "
            "each: Slurm refuses the job"
        )
        yield Found(script.line_of("ntasks"), reason)
    elif request.tasks < product and request.tasks >= nodes:
        reason = f"--ntasks={request.tasks} stands against {nodes} x {request.tasks_per_node} tasks"
        yield Found(script.line_of("ntasks"), reason, level="better")


@rule(
    "fewer-tasks-than-nodes",
    "mistake",
    "Slurm gives back nodes that have no task",
    "tests/outer/gpu/test_lint.py::test_what_more_silent_mistakes_do",
)
def fewer_tasks_than_nodes(case: Case) -> Iterator[Found]:
    script, request = case.script, case.script.request
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
    f"{_SHOWN_BY}::test_more_nodes_named_than_allowed",
)
def more_nodes_named(case: Case) -> Iterator[Found]:
    script = case.script
    names, limit = script.option("nodelist"), script.request.max_nodes
    if names is None or limit is None or not script.settled or "/" in names.value:
        return  # a value with a slash names a file
    try:
        count = len(set(expand(names.value)))
    except InvalidRequest:
        return  # another rule reports what cannot be read
    tasks = script.request.tasks
    if count > limit and (tasks is None or tasks >= count):
        reason = (
            f"the list names {count} nodes, and --nodes allows {limit}: Slurm 22.05 refuses the "
            f"job, and newer releases give {limit} of them"
        )
        yield Found(script.line_of("nodelist"), reason)
