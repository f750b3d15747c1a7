"""Rules about job steps: srun and programs in the background, in loops, and with options
repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._facts import elsewhere
from podwright.gpu.lint._launchers import Launch
from podwright.gpu.lint._rule import Case, Found, rule
from podwright.gpu.requests import is_number
from podwright.slurm.site.releases import release_of

_SHOWN_BY = "tests/outer/gpu/test_lint_shown.py"
_WAITS = {"wait", "fg", "jobs", "pgrep", "tail"}
_GPUS = {"gres", "gpus", "gpus-per-task", "gpus-per-node", "tres-per-task", "overlap"}
_PLACED = {"nodelist", "relative", "nodefile", "overlap", "oversubscribe", "pty"}
_SHARES = {
    "exact", "exclusive", "overlap", "oversubscribe", "whole", "cpus-per-task", "nodelist",
    "relative", "het-group", "pack-group", "cpus-per-gpu", "threads-per-core", "pty",
    "core-spec", "thread-spec", "distribution", "nodefile",
}  # fmt: skip


def _behind(case: Case) -> list[Launch]:
    return [
        launch for launch in case.script.launches
        if launch.place.behind and not launch.place.quoted and not launch.place.within
    ]  # fmt: skip


@rule(
    "no-wait",
    "mistake",
    "programs in the background, and the script ends: Slurm ends them with it",
    f"{_SHOWN_BY}::test_the_end_of_the_script_ends_what_is_behind_it",
)
def no_wait(case: Case) -> Iterator[Found]:
    behind = _behind(case)
    if not behind or not case.script.directives:
        return  # a script without a #SBATCH line of its own may not be a job
    shell = case.script.shell
    if any(c.words and c.words[0] in _WAITS for c in shell.commands):
        return
    if re.search(r"\bwait\b|kill -0|parallel|sleep inf", case.script.text):
        return
    last = behind[-1]
    end = max(last.place.loop, last.line)
    for command in shell.commands:
        if command.line <= last.last or command.place.behind:
            continue
        if last.place.loop and command.place.loop == last.place.loop:
            continue  # between one start and the next
        if command.words and command.words[0] == "sleep":
            return
    if any(
        launch.line >= end
        and not launch.place.behind
        and (launch.kind != "other" or launch.by or launch.program)
        for launch in case.script.launches
        if launch.line > last.last and launch.words[0] != "sleep"
    ):
        return  # something runs on before them
    if last.place.function or last.place.choice:
        return
    yield Found(
        last.line, "nothing waits for this: Slurm ends it with the script; write `wait` below"
    )


@rule(
    "steps-not-exact",
    "mistake",
    "several srun at once that take all cores or all GPUs of the job on a node (no --exact, no "
    "--gres): they run one after the other",
    f"{_SHOWN_BY}::test_steps_without_exact_run_one_after_the_other",
)
def steps_not_exact(case: Case) -> Iterator[Found]:
    facts = case.facts
    steps = [step for step in _behind(case) if step.by == "srun" and not step.foreign]
    several = [step for step in steps if step.place.loop] or (steps if len(steps) > 1 else [])
    variables = {assignment.name for assignment in case.script.shell.assignments}
    if facts.nodes != 1 or variables & {"SLURM_OVERLAP", "SLURM_EXACT", "SLURM_EXCLUSIVE"}:
        return
    for step in several:
        names = {given.name for given in step.step}
        few = names & {"ntasks", "nodes", "gres", "gpus", "gpus-per-task", "mem"}
        greedy = facts.asks_gpus and not names & _GPUS and names & {"exact", "exclusive"}
        if not few or (names & _SHARES and not greedy) or names & _PLACED:
            continue
        sure = facts.nodes_said or not facts.tasks_said
        text = case.script.at(step.line)
        resource, missing = ("GPUs", "--gres=gpu:N") if greedy else ("cores", "--exact")
        reason = (
            f"a step takes all {resource} of the job on its node unless it says {missing}: these "
            "run one after the other"
        )
        right = "" if greedy else text.replace("srun ", "srun --exact ", 1)
        yield Found(step.line, reason, right, level="mistake" if sure else "better")


@rule(
    "step-beyond-job",
    "mistake",
    "srun asks for more nodes or GPUs than its job has, and fails",
    f"{_SHOWN_BY}::test_a_step_cannot_have_more_than_its_job",
)
def step_beyond_job(case: Case) -> Iterator[Found]:
    facts = case.facts
    for launch in case.script.launches:
        if launch.by != "srun" or launch.foreign or elsewhere(launch):
            continue
        nodes = launch.option("nodes")
        wanted = int(nodes.value) if nodes and is_number(nodes.value) else 0
        if facts.nodes_said and facts.nodes and wanted > facts.nodes:
            yield Found(launch.line, f"srun asks for {wanted} nodes in a job of {facts.nodes}")
        gres = launch.option("gres", "gpus-per-node")
        count = re.fullmatch(r"(?:gpu:)?(?:[A-Za-z]\w*:)?(\d+)", gres.value) if gres else None
        if gres and count and (gres.name != "gres" or gres.value.startswith("gpu")):
            granted = facts.gpus_per_node
            if granted and not facts.whole_nodes and int(count[1]) > granted:
                yield Found(
                    launch.line,
                    f"srun asks for {count[1]} GPUs on a node in a job that has {granted}",
                )


@rule(
    "cpus-not-passed-on",
    "mistake",
    "srun of Slurm 22.05 and 23.02 does not take --cpus-per-task over from its job",
    "tests/outer/gpu/test_lint.py::test_what_the_silent_mistakes_do",
    "passes it on",
)
def cpus_not_passed_on(case: Case) -> Iterator[Found]:
    script, version = case.script, case.site.version
    if version is None:
        return
    if not release_of(version).srun_ignores_cpus_per_task:
        return
    wide = (script.request.cpus_per_task or 1) > 1
    if not wide or any(a.name == "SRUN_CPUS_PER_TASK" for a in script.shell.assignments):
        return
    for launch in script.launches:
        names = {given.name for given in launch.step}
        if launch.by != "srun" or names & {"cpus-per-task", "overlap", "pty", "cpus-per-gpu"}:
            continue
        text = script.at(launch.line)
        if not re.match(r"\s*(time\s+)?srun\b", text):
            continue
        reason = (
            "in this Slurm srun does not take --cpus-per-task over from the job: each task gets "
            "one core"
        )
        right = text.replace("srun", 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK"', 1)
        yield Found(launch.line, reason, right, sure=True)
