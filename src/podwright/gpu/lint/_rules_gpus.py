"""Rules about GPUs: each GPU has one process, and each process its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._launches import Launch
from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.gpu.lint._rules_starts import line_of_option, trainings
from podwright.gpu.lint._shell import holes
from podwright.gpu.requests import is_number
from podwright.ground.plural import counted

_EVIDENCE_TEST = "tests/outer/gpu/test_lint_shown.py"
_OLD_EVIDENCE_TEST = "tests/outer/gpu/test_lint.py"
_TORCHRUN_DOCS_URL = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_VISIBILITY_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
# The option that fills a variable: without it Slurm leaves the variable empty.
_OPTIONS_BY_VARIABLE = {
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS": ("gpus",),
    "SLURM_GPUS_PER_TASK": ("gpus-per-task",),
    "SLURM_GPUS_PER_SOCKET": ("gpus-per-socket",),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node", "tasks-per-node"),
}


def _runs_on_cpus(launch: Launch) -> bool:
    text = " ".join(launch.words)
    return "gloo" in text or "--cpu" in launch.words or "use-cpu" in text.replace("_", "-")


@rule(
    "gpu-variable",
    "mistake",
    "SLURM_GPUS_PER_NODE and the like are empty unless the option of that name was given, and hold "
    "the type (a100:4) where it was given with one",
    f"{_EVIDENCE_TEST}::test_variables_of_gpus_as_the_job_sees_them",
)
def gpu_variable(lint_case: Case) -> Iterator[Found]:
    used: list[tuple[int, str]] = list(lint_case.script.shell.sums)
    for launch in trainings(lint_case):
        for option in (launch.data.nodes, launch.data.processes) if launch.distributed else ():
            value = launch.given(option) or ""
            names = [name for name in holes(value) if ":-" not in name]
            names += re.findall(r"\$\{?(SLURM_\w+)\b(?!:)", value)
            used += [(line_of_option(lint_case, launch, option), name) for name in names]
    for number, name in dict.fromkeys(used):
        if name in (*_OPTIONS_BY_VARIABLE, "SLURM_TASKS_PER_NODE"):
            yield from _variable_findings(lint_case, number, name)


def _variable_findings(lint_case: Case, line_number: int, variable_name: str) -> Iterator[Found]:
    script, facts = lint_case.script, lint_case.facts
    if any(assignment.name == variable_name for assignment in script.shell.assignments):
        return
    if variable_name == "SLURM_TASKS_PER_NODE":
        if facts.several and facts.tasks_per_node != 1:
            yield Found(
                line_number,
                f"{variable_name} is a list as 4(x2) where there are several nodes, no number",
            )
        return
    filling_options = _OPTIONS_BY_VARIABLE[variable_name]
    option = script.option(*filling_options)
    if option is None:
        is_requested = facts.asks_gpus if "GPU" in variable_name else facts.tasks_specified
        other_variable = "SLURM_GPUS_ON_NODE" if "GPU" in variable_name else "SLURM_NTASKS"
        reason = (
            f"{variable_name} is empty: it is set only for --{filling_options[0]}, which is not "
            "given"
        )
        hint = f"; {other_variable} is set" if is_requested else ""
        yield Found(line_number, reason + hint, level="mistake" if is_requested else "better")
    elif "GPU" in variable_name and not is_number(option.value) and "$" not in option.value:
        yield Found(
            line_number, f"{variable_name} holds {option.value!r} here, with the type: no number"
        )


@rule(
    "more-processes-than-gpus",
    "mistake",
    "the launcher starts more processes on a node than the job has GPUs there",
    f"{_OLD_EVIDENCE_TEST}::test_what_more_silent_mistakes_do",
)
def more_processes_than_gpus(lint_case: Case) -> Iterator[Found]:
    facts = lint_case.facts
    for launch in trainings(lint_case):
        if not launch.distributed or _runs_on_cpus(launch):
            continue
        count, gpus = launch.processes, launch.size.gpus_per_node
        has_own_gpus = launch.elsewhere or any("gpu" in option.text for option in launch.step)
        if gpus is None and not has_own_gpus:
            gpus = facts.gpus  # of the whole job: no node has more
        if lint_case.script.request.per_job and facts.several:
            continue  # gpus-total-too-small reports it
        if count and gpus and count > gpus:
            number = line_of_option(lint_case, launch, launch.data.processes)
            reason = (
                f"{counted(count, 'process', ('starts', 'start'))} on a node that has "
                f"{counted(gpus, 'GPU')} in this job"
            )
            yield Found(number, reason)


@rule(
    "fewer-processes-than-gpus",
    "mistake",
    "the one launcher of the script starts fewer processes than there are GPUs: the rest stay idle",
    _TORCHRUN_DOCS_URL,
)
def fewer_processes_than_gpus(lint_case: Case) -> Iterator[Found]:
    launches = trainings(lint_case)
    large = [launch for launch in launches if launch.distributed or launch.by]
    if len(large) != 1 or any(launch.place.behind for launch in launches):
        return  # another may use the rest
    (launch,) = large
    if not launch.distributed or not launch.judged or launch.place.loop or _runs_on_cpus(launch):
        return
    chooses = launch.given("gpu-ids", "include", "exclude", "i", "e") is not None
    if chooses or lint_case.script.shell.names & set(_VISIBILITY_VARIABLES):
        return
    copies, gpus = launch.size.tasks_per_node or 0, launch.size.gpus_per_node or 0
    count = (launch.processes or 0) * copies
    if not 0 < count < gpus:
        return
    is_mistake = count > 1 and copies == 1  # else one process may be meant to use several
    start = counted(count, "process", ("starts", "start"))
    stay = "stay" if is_mistake else "may stay"
    reason = f"{start} on a node with {gpus} GPUs: {gpus - count} {stay} idle"
    line_number = line_of_option(lint_case, launch, launch.data.processes)
    yield Found(line_number, reason, level="mistake" if is_mistake else "better")


@rule(
    "gpus-total-too-small",
    "mistake",
    "--gpus counts the whole job, and the launcher starts as many processes on each node",
    f"{_OLD_EVIDENCE_TEST}::test_what_more_silent_mistakes_do",
)
def gpus_total_too_small(lint_case: Case) -> Iterator[Found]:
    facts = lint_case.facts
    if not facts.several or facts.gpus is None or lint_case.script.request.per_node:
        return
    for launch in trainings(lint_case):
        count, nodes = launch.processes, launch.size.nodes
        if launch.distributed and count and nodes and nodes > 1 and count * nodes > facts.gpus:
            reason = (
                f"--gpus counts the whole job: {facts.gpus} GPUs over {facts.nodes} nodes, while "
                f"{count} process{'es' * (count > 1)} start on each node"
            )
            yield Found(lint_case.script.line_of("gpus"), reason)
            return


@rule(
    "no-gpus-asked",
    "better",
    "a launcher of GPU programs in a job that asks for no GPUs; a mistake where the site counts "
    "its GPUs (GRES) and the job does not take whole nodes",
    f"{_EVIDENCE_TEST}::test_a_job_that_asks_for_no_gpus_has_none",
)
def no_gpus_asked(lint_case: Case) -> Iterator[Found]:
    script, facts = lint_case.script, lint_case.facts
    if facts.asks_gpus or script.line_of("gres", "tres-per-task") or not script.settled:
        return
    for launch in trainings(lint_case):
        if not launch.distributed or _runs_on_cpus(launch) or launch.by == "unknown":
            continue
        names = {option.name for option in launch.step}
        if any("gpu" in name or name == "gres" for name in names) or launch.processes == 0:
            continue
        is_mistake = bool(lint_case.site.gpus) and not facts.whole_nodes
        reason = "the job asks for no GPUs: --gpus-per-node=N, or --gres=gpu:N"
        yield Found(launch.line, reason, level="mistake" if is_mistake else "better")
        return


def _hand_set_gpus(lint_case: Case) -> Iterator[tuple[int, str, list[int], bool]]:
    """Yield (line, variable, numbers, whether for one command only) wherever GPUs are named by
    hand.
    """
    shell = lint_case.script.shell
    visibility_settings = [
        (assignment.line, assignment.name, assignment.value, False)
        for assignment in shell.assignments
    ]
    visibility_settings += [
        (command.line, variable, variable_value, True)
        for command in shell.commands
        for variable, variable_value in command.set_before
    ]
    for line_number, variable_name, variable_value, is_for_one_command in visibility_settings:
        unquoted_value = variable_value.strip("'\"")
        if variable_name in _VISIBILITY_VARIABLES and re.fullmatch(r"\d+(,\d+)*", unquoted_value):
            yield (
                line_number,
                variable_name,
                [int(gpu_number) for gpu_number in unquoted_value.split(",")],
                is_for_one_command,
            )


@rule(
    "gpu-out-of-grant",
    "mistake",
    "CUDA_VISIBLE_DEVICES names a GPU beyond those of the job",
    f"{_EVIDENCE_TEST}::test_numbers_of_gpus_beyond_the_grant",
)
def gpu_out_of_grant(lint_case: Case) -> Iterator[Found]:
    granted_gpus = lint_case.facts.gpus_per_node
    if not granted_gpus or lint_case.facts.whole_nodes or not lint_case.script.settled:
        return
    for line_number, _, gpu_numbers, _ in _hand_set_gpus(lint_case):
        missing_gpus = ", ".join(
            str(gpu_number) for gpu_number in gpu_numbers if gpu_number >= granted_gpus
        )
        if missing_gpus:
            plural_ending = "s" * (granted_gpus > 1)
            reason = (
                f"the job has {granted_gpus} GPU{plural_ending} on a node, counted from 0: there "
                f"is no {missing_gpus}"
            )
            yield Found(line_number, reason)


@rule(
    "overrides-grant",
    "better",
    "CUDA_VISIBLE_DEVICES written by hand over what Slurm granted; where it does not confine "
    "devices, these may be another job's",
    f"{_OLD_EVIDENCE_TEST}::test_what_more_silent_mistakes_do",
)
def overrides_grant(lint_case: Case) -> Iterator[Found]:
    granted_gpus = lint_case.facts.gpus_per_node
    if not lint_case.facts.asks_gpus or lint_case.facts.whole_nodes:
        return
    for line_number, variable_name, gpu_numbers, is_for_one_command in _hand_set_gpus(lint_case):
        if is_for_one_command or (granted_gpus and max(gpu_numbers) >= granted_gpus):
            continue
        reason = (
            f"Slurm sets {variable_name} to the GPUs of this job; without ConstrainDevices these "
            "are any"
        )
        text = lint_case.script.at(line_number)
        indent = text[: len(text) - len(text.lstrip())]
        yield Found(line_number, reason, f"{indent}# {text.strip()}")


@rule(
    "gpu-shared-by-tasks",
    "better",
    "one GPU on each node for several tasks, as if it were one for each task",
    f"{_OLD_EVIDENCE_TEST}::test_what_the_silent_mistakes_do",
)
def gpu_shared_by_tasks(lint_case: Case) -> Iterator[Found]:
    script, request = lint_case.script, lint_case.script.request
    tasks_per_node = lint_case.facts.tasks_per_node or 0
    if not request.per_node or request.per_node.count != 1 or tasks_per_node < 2 or request.per_job:
        return
    mps = any("nvidia-cuda-mps-control" in command.words for command in script.shell.commands)
    if request.bind or mps or request.per_task:
        return
    launches = trainings(lint_case)
    if launches and not any(launch.by for launch in launches):
        return  # the script starts one process itself, whatever number of tasks it requested
    number = script.line_of("gres", "gpus-per-node")
    yield Found(
        number,
        f"this counts per node, not per task: the {tasks_per_node} tasks of a node share 1 GPU",
    )


@rule(
    "gpus-counted-over-nodes",
    "better",
    "as many GPUs on each node as the whole job has tasks",
    f"{_OLD_EVIDENCE_TEST}::test_what_the_silent_mistakes_do",
)
def gpus_counted_over_nodes(lint_case: Case) -> Iterator[Found]:
    script, request = lint_case.script, lint_case.script.request
    node_count, tasks_per_node = lint_case.facts.nodes or 1, request.tasks_per_node or 0
    if (
        not request.per_node
        or node_count < 2
        or tasks_per_node < 2
        or request.per_task
        or request.bind
    ):
        return
    task_count, gpus_per_node = tasks_per_node * node_count, request.per_node.count
    if gpus_per_node != task_count or any(launch.distributed for launch in trainings(lint_case)):
        return
    line_number = script.line_of("gres", "gpus-per-node")
    line_text = script.at(line_number)
    yield Found(
        line_number,
        f"this counts per node: {gpus_per_node} on each of {node_count} nodes are "
        f"{gpus_per_node * node_count} GPUs for "
        f"{task_count} tasks; one for each task is {gpus_per_node // node_count} per node",
        re.sub(
            rf"\b{gpus_per_node}\b(?!.*\b{gpus_per_node}\b)",
            str(gpus_per_node // node_count),
            line_text,
            count=1,
        ),
    )
