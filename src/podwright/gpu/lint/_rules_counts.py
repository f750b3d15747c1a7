"""Rules about the numbers of GPUs and processes, in the request and in the launcher."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._launchers import Launch
from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.gpu.lint._script_counts import elsewhere, number, step_facts
from podwright.gpu.lint._shell import holes
from podwright.gpu.requests import is_number

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
_COUNT_OPTIONS = (
    "nproc-per-node", "nnodes", "num-processes", "num-machines", "num-gpus", "num-nodes",
)  # fmt: skip


def processes(launch: Launch, lint_case: Case) -> int | None:
    """Return the number of processes that a launcher starts on each node, if the script fixes
    it.
    """
    if launch.kind == "torchrun":
        return number(launch.given("nproc-per-node"), lint_case.facts)
    if launch.kind == "deepspeed":
        return number(launch.given("num-gpus"), lint_case.facts)
    total_processes = number(launch.given("num-processes"), lint_case.facts)
    machine_count = number(launch.given("num-machines") or "1", lint_case.facts)
    if total_processes is None or not machine_count or total_processes % machine_count:
        return None
    return total_processes // machine_count


def _process_count_option(launch: Launch) -> str:
    option_by_launcher = {"torchrun": "nproc-per-node", "deepspeed": "num-gpus"}
    return option_by_launcher.get(launch.kind, "num-processes")


def line_of_option(lint_case: Case, launch: Launch, option_name: str) -> int:
    """Return the line that has an option of a launcher."""
    pattern = re.compile(option_name.replace("-", "[-_]"))
    for line_number in range(launch.line, launch.last + 1):
        if pattern.search(lint_case.script.at(line_number)):
            return line_number
    return launch.line


@rule(
    "gpu-variable",
    "mistake",
    "SLURM_GPUS_PER_NODE and the like are empty unless the option of that name was given, and hold "
    "the type (a100:4) where it was given with one",
    f"{_EVIDENCE_TEST}::test_variables_of_gpus_as_the_job_sees_them",
)
def gpu_variable(lint_case: Case) -> Iterator[Found]:
    used_variables: list[tuple[int, str]] = list(lint_case.script.shell.sums)
    for launch in lint_case.script.launches:
        for name in _COUNT_OPTIONS:
            option_value = launch.given(name)
            variables = holes(option_value or "") or re.findall(
                r"\$\{?(SLURM_\w+)", option_value or ""
            )
            used_variables += [
                (line_of_option(lint_case, launch, name), variable) for variable in variables
            ]
    reported: set[tuple[int, str]] = set()
    for line_number, name in used_variables:
        if (line_number, name) in reported or name not in (
            *_OPTIONS_BY_VARIABLE,
            "SLURM_TASKS_PER_NODE",
        ):
            continue
        reported.add((line_number, name))
        yield from _variable_findings(lint_case, line_number, name)


def _variable_findings(lint_case: Case, line_number: int, variable_name: str) -> Iterator[Found]:
    script, facts = lint_case.script, lint_case.facts
    if script.shell.value(variable_name) is not None or any(
        assignment.name == variable_name for assignment in script.shell.assignments
    ):
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
    for launch in lint_case.script.launches:
        process_count = processes(launch, lint_case) if launch.distributed else None
        available_gpus = step_facts(launch, lint_case.facts).gpus_per_node
        has_own_gpus = elsewhere(launch) or any("gpu" in option.text for option in launch.step)
        if available_gpus is None and not has_own_gpus:
            available_gpus = lint_case.facts.gpus  # of the whole job: no node has more
        if (
            process_count is None
            or available_gpus is None
            or available_gpus == 0
            or process_count <= available_gpus
            or _runs_on_cpus(launch)
        ):
            continue
        if (
            lint_case.script.request.per_job
            and lint_case.facts.nodes_specified
            and (lint_case.facts.nodes or 0) > 1
        ):
            continue
        line_number = line_of_option(lint_case, launch, _process_count_option(launch))
        yield Found(
            line_number,
            f"{process_count} processes start on a node that has {available_gpus} GPUs in this job",
        )


def _runs_on_cpus(launch: Launch) -> bool:
    command_text = " ".join(launch.words)
    return (
        "gloo" in command_text
        or "--cpu" in launch.words
        or "use-cpu" in command_text.replace("_", "-")
    )


@rule(
    "fewer-processes-than-gpus",
    "mistake",
    "the one launcher of the script starts fewer processes than there are GPUs: the rest stay idle",
    _TORCHRUN_DOCS_URL,
)
def fewer_processes_than_gpus(lint_case: Case) -> Iterator[Found]:
    launches = [
        launch for launch in lint_case.script.launches if launch.kind != "other" or launch.by
    ]
    is_only_launch = len(launches) == 1 and not any(
        command.place.behind for command in lint_case.script.shell.commands
    )
    if not is_only_launch or _sets_visible_gpus(lint_case) or launches[0].place.loop:
        return
    launch = launches[0]
    step = step_facts(launch, lint_case.facts)
    if not launch.distributed or not launch.complete:
        return
    process_count, available_gpus = processes(launch, lint_case), step.gpus_per_node
    if (
        process_count is None
        or available_gpus is None
        or not 0 < process_count < available_gpus
        or _runs_on_cpus(launch)
    ):
        return
    if launch.by == "srun" and step.tasks_per_node != 1:
        return
    line_number = line_of_option(lint_case, launch, _process_count_option(launch))
    reason = (
        f"{process_count} processes start on a node with {available_gpus} GPUs: "
        f"{available_gpus - process_count} stay idle"
    )
    yield Found(line_number, reason, level="mistake" if process_count > 1 else "better")


def _sets_visible_gpus(lint_case: Case) -> bool:
    shell = lint_case.script.shell
    assigned_names = {assignment.name for assignment in shell.assignments}
    assigned_names |= {
        variable_name for command in shell.commands for variable_name, _ in command.set_before
    }
    return bool(assigned_names & set(_VISIBILITY_VARIABLES))


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
    for launch in lint_case.script.launches:
        process_count = processes(launch, lint_case) if launch.distributed else None
        node_count = step_facts(launch, facts).nodes
        if (
            process_count
            and node_count
            and node_count > 1
            and process_count * node_count > facts.gpus
        ):
            line_number = lint_case.script.line_of("gpus")
            reason = (
                f"--gpus counts the whole job: {facts.gpus} GPUs over {facts.nodes} nodes, while "
                f"{process_count} processes start on each node"
            )
            yield Found(line_number, reason)
            return


@rule(
    "no-gpus-asked",
    "better",
    "a launcher of GPU programs in a job that asks for no GPUs; a mistake where the site counts "
    "its GPUs (GRES) and the job does not take whole nodes",
    f"{_EVIDENCE_TEST}::test_a_job_that_asks_for_no_gpus_has_none",
)
def no_gpus_asked(lint_case: Case) -> Iterator[Found]:
    facts = lint_case.facts
    if (
        facts.asks_gpus
        or lint_case.script.line_of("gres", "tres-per-task")
        or not lint_case.script.settled
    ):
        return
    for launch in lint_case.script.launches:
        if not launch.distributed or _runs_on_cpus(launch) or launch.by == "unknown":
            continue
        option_names = {option.name for option in launch.step}
        if (
            any("gpu" in option or option == "gres" for option in option_names)
            or processes(launch, lint_case) == 0
        ):
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
        (command.line, prefix_variable, variable_value, True)
        for command in shell.commands
        for prefix_variable, variable_value in command.set_before
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
        line_text = lint_case.script.at(line_number)
        indent = line_text[: len(line_text) - len(line_text.lstrip())]
        yield Found(line_number, reason, f"{indent}# {line_text.strip()}")


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
    uses_mps = any("nvidia-cuda-mps-control" in command.words for command in script.shell.commands)
    if request.bind or uses_mps or request.per_task:
        return
    if script.launches and not any(launch.by for launch in script.launches):
        return  # the script starts one process itself, whatever number of tasks it requested
    line_number = script.line_of("gres", "gpus-per-node")
    yield Found(
        line_number,
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
    if gpus_per_node != task_count or any(launch.distributed for launch in script.launches):
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
