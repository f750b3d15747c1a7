"""Rules about job steps: srun and programs in the background, in loops, and with options
repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._launches import Launch
from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.gpu.requests import is_number
from podwright.slurm.site.releases import release_of

_EVIDENCE_TEST = "tests/outer/gpu/test_lint_shown.py"
_WAIT_COMMANDS = {"wait", "fg", "jobs", "pgrep", "tail"}
_GPU_STEP_OPTIONS = {"gres", "gpus", "gpus-per-task", "gpus-per-node", "tres-per-task", "overlap"}
_PLACEMENT_OPTIONS = {"nodelist", "relative", "nodefile", "overlap", "oversubscribe", "pty"}
_SHARING_OPTIONS = {
    "exact", "exclusive", "overlap", "oversubscribe", "whole", "cpus-per-task", "nodelist",
    "relative", "het-group", "pack-group", "cpus-per-gpu", "threads-per-core", "pty",
    "core-spec", "thread-spec", "distribution", "nodefile",
}  # fmt: skip


def _background_launches(lint_case: Case) -> list[Launch]:
    return [
        launch for launch in lint_case.launches
        if launch.place.behind and not launch.place.quoted and not launch.place.within
        and (launch.launcher != "tool" or launch.words[0] == "sleep")
    ]  # fmt: skip


@rule(
    "no-wait",
    "mistake",
    "programs in the background, and the script ends: Slurm ends them with it",
    f"{_EVIDENCE_TEST}::test_the_end_of_the_script_ends_what_is_behind_it",
)
def no_wait(lint_case: Case) -> Iterator[Found]:
    background_launches = _background_launches(lint_case)
    if not background_launches or not lint_case.script.directives:
        return  # a script without a #SBATCH line of its own may not be a job
    shell = lint_case.script.shell
    if any(
        shell_command.words and shell_command.words[0] in _WAIT_COMMANDS
        for shell_command in shell.commands
    ):
        return
    if re.search(r"\bwait\b|kill -0|parallel|sleep inf", lint_case.script.text):
        return
    last_launch = background_launches[-1]
    end_line = max(last_launch.place.loop, last_launch.line)
    for command in shell.commands:
        if command.line <= last_launch.last or command.place.behind:
            continue
        if last_launch.place.loop and command.place.loop == last_launch.place.loop:
            continue  # between one start and the next
        if command.words and command.words[0] == "sleep":
            return
    if any(
        launch.line >= end_line
        and not launch.place.behind
        and (launch.launcher != "program" or launch.by or launch.program)
        for launch in lint_case.launches
        if launch.line > last_launch.last and launch.words[0] != "sleep"
    ):
        return  # something runs on before them
    if last_launch.place.function or last_launch.place.choice:
        return
    yield Found(
        last_launch.line,
        "nothing waits for this: Slurm ends it with the script; write `wait` below",
    )


@rule(
    "steps-not-exact",
    "mistake",
    "several srun at once that take all cores or all GPUs of the job on a node (no --exact, no "
    "--gres): they run one after the other",
    f"{_EVIDENCE_TEST}::test_steps_without_exact_run_one_after_the_other",
)
def steps_not_exact(lint_case: Case) -> Iterator[Found]:
    facts = lint_case.facts
    background_steps = [
        step for step in _background_launches(lint_case) if step.by == "srun" and not step.unread
    ]
    simultaneous_steps = [step for step in background_steps if step.place.loop] or (
        background_steps if len(background_steps) > 1 else []
    )
    assigned_variables = {assignment.name for assignment in lint_case.script.shell.assignments}
    if facts.nodes != 1 or assigned_variables & {"SLURM_OVERLAP", "SLURM_EXACT", "SLURM_EXCLUSIVE"}:
        return
    for step in simultaneous_steps:
        option_names = {option.name for option in step.step}
        size_options = option_names & {"ntasks", "nodes", "gres", "gpus", "gpus-per-task", "mem"}
        takes_all_gpus = (
            facts.asks_gpus
            and not option_names & _GPU_STEP_OPTIONS
            and option_names & {"exact", "exclusive"}
        )
        if (
            not size_options
            or (option_names & _SHARING_OPTIONS and not takes_all_gpus)
            or option_names & _PLACEMENT_OPTIONS
        ):
            continue
        is_mistake = facts.nodes_specified or not facts.tasks_specified
        line_text = lint_case.script.at(step.line)
        resource, missing_option = (
            ("GPUs", "--gres=gpu:N") if takes_all_gpus else ("cores", "--exact")
        )
        reason = (
            f"a step takes all {resource} of the job on its node unless it says {missing_option}: "
            "these run one after the other"
        )
        corrected_line = "" if takes_all_gpus else line_text.replace("srun ", "srun --exact ", 1)
        yield Found(step.line, reason, corrected_line, level="mistake" if is_mistake else "better")


@rule(
    "step-beyond-job",
    "mistake",
    "srun asks for more nodes or GPUs than its job has, and fails",
    f"{_EVIDENCE_TEST}::test_a_step_cannot_have_more_than_its_job",
)
def step_beyond_job(lint_case: Case) -> Iterator[Found]:
    facts = lint_case.facts
    for launch in lint_case.launches:
        if launch.by != "srun" or launch.unread or launch.elsewhere:
            continue
        nodes_option = launch.option("nodes")
        wanted_nodes = (
            int(nodes_option.value) if nodes_option and is_number(nodes_option.value) else 0
        )
        if facts.nodes_specified and facts.nodes and wanted_nodes > facts.nodes:
            yield Found(
                launch.line, f"srun asks for {wanted_nodes} nodes in a job of {facts.nodes}"
            )
        gpu_option = launch.option("gres", "gpus-per-node")
        gpu_count_match = (
            re.fullmatch(r"(?:gpu:)?(?:[A-Za-z]\w*:)?(\d+)", gpu_option.value)
            if gpu_option
            else None
        )
        if (
            gpu_option
            and gpu_count_match
            and (gpu_option.name != "gres" or gpu_option.value.startswith("gpu"))
        ):
            granted_gpus = facts.gpus_per_node
            if granted_gpus and not facts.whole_nodes and int(gpu_count_match[1]) > granted_gpus:
                yield Found(
                    launch.line,
                    f"srun asks for {gpu_count_match[1]} GPUs on a node in a job that has "
                    f"{granted_gpus}",
                )


@rule(
    "cpus-not-passed-on",
    "mistake",
    "srun of Slurm 22.05 and 23.02 does not take --cpus-per-task over from its job",
    "tests/outer/gpu/test_lint.py::test_what_the_silent_mistakes_do",
    "passes it on",
)
def cpus_not_passed_on(lint_case: Case) -> Iterator[Found]:
    script, version = lint_case.script, lint_case.site.version
    if version is None:
        return
    if not release_of(version).srun_ignores_cpus_per_task:
        return
    has_many_cpus = (script.request.cpus_per_task or 1) > 1
    if not has_many_cpus or any(
        assignment.name == "SRUN_CPUS_PER_TASK" for assignment in script.shell.assignments
    ):
        return
    for launch in lint_case.launches:
        option_names = {option.name for option in launch.step}
        if launch.by != "srun" or option_names & {
            "cpus-per-task",
            "overlap",
            "pty",
            "cpus-per-gpu",
        }:
            continue
        line_text = script.at(launch.line)
        if not re.match(r"\s*(time\s+)?srun\b", line_text):
            continue
        reason = (
            "in this Slurm srun does not take --cpus-per-task over from the job: each task gets "
            "one core"
        )
        corrected_line = line_text.replace("srun", 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK"', 1)
        yield Found(launch.line, reason, corrected_line, sure=True)
