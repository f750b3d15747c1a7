"""Rules about the numbers of GPUs and processes, in the request and in the launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._facts import elsewhere, number, step_of
from podwright.gpu.lint._launchers import Launch
from podwright.gpu.lint._rule import Case, Found, rule
from podwright.gpu.lint._shell import holes
from podwright.gpu.requests import is_number

_SHOWN_BY = "tests/outer/gpu/test_lint_shown.py"
_OLD = "tests/outer/gpu/test_lint.py"
_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_HIDES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
# The option that fills a variable: without it Slurm leaves the variable empty.
_FILLED_BY = {
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS": ("gpus",),
    "SLURM_GPUS_PER_TASK": ("gpus-per-task",),
    "SLURM_GPUS_PER_SOCKET": ("gpus-per-socket",),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node", "tasks-per-node"),
}
_NUMBERS = (
    "nproc-per-node", "nnodes", "num-processes", "num-machines", "num-gpus", "num-nodes",
)  # fmt: skip


def processes(launch: Launch, case: Case) -> int | None:
    """Return the number of processes that a launcher starts on each node, if the script fixes
    it.
    """
    if launch.kind == "torchrun":
        return number(launch.given("nproc-per-node"), case.facts)
    if launch.kind == "deepspeed":
        return number(launch.given("num-gpus"), case.facts)
    total = number(launch.given("num-processes"), case.facts)
    machines = number(launch.given("num-machines") or "1", case.facts)
    if total is None or not machines or total % machines:
        return None
    return total // machines


def _described(launch: Launch) -> str:
    options = {"torchrun": "nproc-per-node", "deepspeed": "num-gpus"}
    return options.get(launch.kind, "num-processes")


def line_of_option(case: Case, launch: Launch, name: str) -> int:
    """Return the line that has an option of a launcher."""
    pattern = re.compile(name.replace("-", "[-_]"))
    for line in range(launch.line, launch.last + 1):
        if pattern.search(case.script.at(line)):
            return line
    return launch.line


@rule(
    "gpu-variable",
    "mistake",
    "SLURM_GPUS_PER_NODE and the like are empty unless the option of that name was given, and hold "
    "the type (a100:4) where it was given with one",
    f"{_SHOWN_BY}::test_variables_of_gpus_as_the_job_sees_them",
)
def gpu_variable(case: Case) -> Iterator[Found]:
    used: list[tuple[int, str]] = list(case.script.shell.sums)
    for launch in case.script.launches:
        for name in _NUMBERS:
            value = launch.given(name)
            variables = holes(value or "") or re.findall(r"\$\{?(SLURM_\w+)", value or "")
            used += [(line_of_option(case, launch, name), variable) for variable in variables]
    seen: set[tuple[int, str]] = set()
    for line, name in used:
        if (line, name) in seen or name not in (*_FILLED_BY, "SLURM_TASKS_PER_NODE"):
            continue
        seen.add((line, name))
        yield from _variable(case, line, name)


def _variable(case: Case, line: int, name: str) -> Iterator[Found]:
    script, facts = case.script, case.facts
    if script.shell.value(name) is not None or any(
        a.name == name for a in script.shell.assignments
    ):
        return
    if name == "SLURM_TASKS_PER_NODE":
        if facts.several and facts.tasks_per_node != 1:
            yield Found(line, f"{name} is a list as 4(x2) where there are several nodes, no number")
        return
    options = _FILLED_BY[name]
    given = script.option(*options)
    if given is None:
        is_requested = facts.asks_gpus if "GPU" in name else facts.tasks_said
        other = "SLURM_GPUS_ON_NODE" if "GPU" in name else "SLURM_NTASKS"
        reason = f"{name} is empty: it is set only for --{options[0]}, which is not given"
        hint = f"; {other} is set" if is_requested else ""
        yield Found(line, reason + hint, level="mistake" if is_requested else "better")
    elif "GPU" in name and not is_number(given.value) and "$" not in given.value:
        yield Found(line, f"{name} holds {given.value!r} here, with the type: no number")


@rule(
    "more-processes-than-gpus",
    "mistake",
    "the launcher starts more processes on a node than the job has GPUs there",
    f"{_OLD}::test_what_more_silent_mistakes_do",
)
def more_processes_than_gpus(case: Case) -> Iterator[Found]:
    for launch in case.script.launches:
        count = processes(launch, case) if launch.distributed else None
        available = step_of(launch, case.facts).gpus_per_node
        own = elsewhere(launch) or any("gpu" in given.text for given in launch.step)
        if available is None and not own:
            available = case.facts.gpus  # of the whole job: no node has more
        if (
            count is None
            or available is None
            or available == 0
            or count <= available
            or _on_cpus(launch)
        ):
            continue
        if case.script.request.per_job and case.facts.nodes_said and (case.facts.nodes or 0) > 1:
            continue
        line = line_of_option(case, launch, _described(launch))
        yield Found(
            line, f"{count} processes start on a node that has {available} GPUs in this job"
        )


def _on_cpus(launch: Launch) -> bool:
    words = " ".join(launch.words)
    return "gloo" in words or "--cpu" in launch.words or "use-cpu" in words.replace("_", "-")


@rule(
    "fewer-processes-than-gpus",
    "mistake",
    "the one launcher of the script starts fewer processes than there are GPUs: the rest stay idle",
    _TORCHRUN,
)
def fewer_processes_than_gpus(case: Case) -> Iterator[Found]:
    launches = [launch for launch in case.script.launches if launch.kind != "other" or launch.by]
    alone = len(launches) == 1 and not any(c.place.behind for c in case.script.shell.commands)
    if not alone or _hidden(case) or launches[0].place.loop:
        return
    launch = launches[0]
    step = step_of(launch, case.facts)
    if not launch.distributed or not launch.complete:
        return
    count, available = processes(launch, case), step.gpus_per_node
    if count is None or available is None or not 0 < count < available or _on_cpus(launch):
        return
    if launch.by == "srun" and step.tasks_per_node != 1:
        return
    line = line_of_option(case, launch, _described(launch))
    reason = (
        f"{count} processes start on a node with {available} GPUs: {available - count} stay idle"
    )
    yield Found(line, reason, level="mistake" if count > 1 else "better")


def _hidden(case: Case) -> bool:
    shell = case.script.shell
    names = {assignment.name for assignment in shell.assignments}
    names |= {name for command in shell.commands for name, _ in command.set_before}
    return bool(names & set(_HIDES))


@rule(
    "gpus-total-too-small",
    "mistake",
    "--gpus counts the whole job, and the launcher starts as many processes on each node",
    f"{_OLD}::test_what_more_silent_mistakes_do",
)
def gpus_total_too_small(case: Case) -> Iterator[Found]:
    facts = case.facts
    if not facts.several or facts.gpus is None or case.script.request.per_node:
        return
    for launch in case.script.launches:
        count = processes(launch, case) if launch.distributed else None
        nodes = step_of(launch, facts).nodes
        if count and nodes and nodes > 1 and count * nodes > facts.gpus:
            line = case.script.line_of("gpus")
            reason = (
                f"--gpus counts the whole job: {facts.gpus} GPUs over {facts.nodes} nodes, while "
                f"{count} processes start on each node"
            )
            yield Found(line, reason)
            return


@rule(
    "no-gpus-asked",
    "better",
    "a launcher of GPU programs in a job that asks for no GPUs; a mistake where the site counts "
    "its GPUs (GRES) and the job does not take whole nodes",
    f"{_SHOWN_BY}::test_a_job_that_asks_for_no_gpus_has_none",
)
def no_gpus_asked(case: Case) -> Iterator[Found]:
    facts = case.facts
    if facts.asks_gpus or case.script.line_of("gres", "tres-per-task") or not case.script.settled:
        return
    for launch in case.script.launches:
        if not launch.distributed or _on_cpus(launch) or launch.by == "unknown":
            continue
        names = {option.name for option in launch.step}
        if (
            any("gpu" in option or option == "gres" for option in names)
            or processes(launch, case) == 0
        ):
            continue
        sure = bool(case.site.gpus) and not facts.whole_nodes
        reason = "the job asks for no GPUs: --gpus-per-node=N, or --gres=gpu:N"
        yield Found(launch.line, reason, level="mistake" if sure else "better")
        return


def _named_by_hand(case: Case) -> Iterator[tuple[int, str, list[int], bool]]:
    """Yield (line, variable, numbers, whether for one command only) wherever GPUs are named by
    hand.
    """
    shell = case.script.shell
    named = [
        (assignment.line, assignment.name, assignment.value, False)
        for assignment in shell.assignments
    ]
    named += [(c.line, n, value, True) for c in shell.commands for n, value in c.set_before]
    for line, name, value, alone in named:
        plain = value.strip("'\"")
        if name in _HIDES and re.fullmatch(r"\d+(,\d+)*", plain):
            yield line, name, [int(word) for word in plain.split(",")], alone


@rule(
    "gpu-out-of-grant",
    "mistake",
    "CUDA_VISIBLE_DEVICES names a GPU beyond those of the job",
    f"{_SHOWN_BY}::test_numbers_of_gpus_beyond_the_grant",
)
def gpu_out_of_grant(case: Case) -> Iterator[Found]:
    granted = case.facts.gpus_per_node
    if not granted or case.facts.whole_nodes or not case.script.settled:
        return
    for line, _, numbers, _ in _named_by_hand(case):
        too_high = ", ".join(str(number) for number in numbers if number >= granted)
        if too_high:
            many = "s" * (granted > 1)
            reason = (
                f"the job has {granted} GPU{many} on a node, counted from 0: there is no {too_high}"
            )
            yield Found(line, reason)


@rule(
    "overrides-grant",
    "better",
    "CUDA_VISIBLE_DEVICES written by hand over what Slurm granted; where it does not confine "
    "devices, these may be another job's",
    f"{_OLD}::test_what_more_silent_mistakes_do",
)
def overrides_grant(case: Case) -> Iterator[Found]:
    granted = case.facts.gpus_per_node
    if not case.facts.asks_gpus or case.facts.whole_nodes:
        return
    for line, name, numbers, alone in _named_by_hand(case):
        if alone or (granted and max(numbers) >= granted):
            continue
        reason = (
            f"Slurm sets {name} to the GPUs of this job; without ConstrainDevices these are any"
        )
        text = case.script.at(line)
        indent = text[: len(text) - len(text.lstrip())]
        yield Found(line, reason, f"{indent}# {text.strip()}")


@rule(
    "gpu-shared-by-tasks",
    "better",
    "one GPU on each node for several tasks, as if it were one for each task",
    f"{_OLD}::test_what_the_silent_mistakes_do",
)
def gpu_shared_by_tasks(case: Case) -> Iterator[Found]:
    script, request = case.script, case.script.request
    tasks = case.facts.tasks_per_node or 0
    if not request.per_node or request.per_node.count != 1 or tasks < 2 or request.per_job:
        return
    mps = any("nvidia-cuda-mps-control" in c.words for c in script.shell.commands)
    if request.bind or mps or request.per_task:
        return
    if script.launches and not any(launch.by for launch in script.launches):
        return  # the script starts one process itself, whatever number of tasks it requested
    line = script.line_of("gres", "gpus-per-node")
    yield Found(
        line, f"this counts per node, not per task: the {tasks} tasks of a node share 1 GPU"
    )


@rule(
    "gpus-counted-over-nodes",
    "better",
    "as many GPUs on each node as the whole job has tasks",
    f"{_OLD}::test_what_the_silent_mistakes_do",
)
def gpus_counted_over_nodes(case: Case) -> Iterator[Found]:
    script, request = case.script, case.script.request
    nodes, each = case.facts.nodes or 1, request.tasks_per_node or 0
    if not request.per_node or nodes < 2 or each < 2 or request.per_task or request.bind:
        return
    tasks, count = each * nodes, request.per_node.count
    if count != tasks or any(launch.distributed for launch in script.launches):
        return
    line = script.line_of("gres", "gpus-per-node")
    text = script.at(line)
    yield Found(
        line,
        f"this counts per node: {count} on each of {nodes} nodes are {count * nodes} GPUs for "
        f"{tasks} tasks; one for each task is {count // nodes} per node",
        re.sub(rf"\b{count}\b(?!.*\b{count}\b)", str(count // nodes), text, count=1),
    )
