"""Rules about steps: srun and programs in the background, loops, and what srun asks for again."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.slurm.gpus.lint._facts import elsewhere
from podwright.slurm.gpus.lint._launchers import Launch
from podwright.slurm.gpus.lint._rule import Case, Found, rule
from podwright.slurm.gpus.requests import is_number
from podwright.slurm.site.releases import release_of

_SHOWN = "tests/outer/gpu/test_lint_shown.py"
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
        one for one in case.script.launches
        if one.place.behind and not one.place.quoted and not one.place.within
    ]  # fmt: skip


@rule(
    "no-wait",
    "mistake",
    "programs in the background, and the script ends: Slurm ends them with it",
    f"{_SHOWN}::test_the_end_of_the_script_ends_what_is_behind_it",
)
def no_wait(case: Case) -> Iterator[Found]:
    behind = _behind(case)
    if not behind or not case.script.directives:
        return  # what has no #SBATCH line of its own may be no job at all
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
        one.line >= end and not one.place.behind and (one.kind != "other" or one.by or one.program)
        for one in case.script.launches
        if one.line > last.last and one.words[0] != "sleep"
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
    f"{_SHOWN}::test_steps_without_exact_run_one_after_the_other",
)
def steps_not_exact(case: Case) -> Iterator[Found]:
    facts = case.facts
    steps = [one for one in _behind(case) if one.by == "srun" and not one.foreign]
    several = [one for one in steps if one.place.loop] or (steps if len(steps) > 1 else [])
    names = {a.name for a in case.script.shell.assignments}
    if facts.nodes != 1 or names & {"SLURM_OVERLAP", "SLURM_EXACT", "SLURM_EXCLUSIVE"}:
        return
    for one in several:
        asked = {given.name for given in one.step}
        few = asked & {"ntasks", "nodes", "gres", "gpus", "gpus-per-task", "mem"}
        greedy = facts.asks_gpus and not asked & _GPUS and asked & {"exact", "exclusive"}
        if not few or (asked & _SHARES and not greedy) or asked & _PLACED:
            continue
        sure = facts.nodes_said or not facts.tasks_said
        text = case.script.at(one.line)
        what, missing = ("GPUs", "--gres=gpu:N") if greedy else ("cores", "--exact")
        reason = (
            f"a step takes all {what} of the job on its node unless it says {missing}: these run "
            "one after the other"
        )
        right = "" if greedy else text.replace("srun ", "srun --exact ", 1)
        yield Found(one.line, reason, right, level="mistake" if sure else "better")


@rule(
    "step-beyond-job",
    "mistake",
    "srun asks for more nodes or GPUs than its job has, and fails",
    f"{_SHOWN}::test_a_step_cannot_have_more_than_its_job",
)
def step_beyond_job(case: Case) -> Iterator[Found]:
    facts = case.facts
    for one in case.script.launches:
        if one.by != "srun" or one.foreign or elsewhere(one):
            continue
        nodes = one.option("nodes")
        wanted = int(nodes.value) if nodes and is_number(nodes.value) else 0
        if facts.nodes_said and facts.nodes and wanted > facts.nodes:
            yield Found(one.line, f"srun asks for {wanted} nodes in a job of {facts.nodes}")
        gres = one.option("gres", "gpus-per-node")
        count = re.fullmatch(r"(?:gpu:)?(?:[A-Za-z]\w*:)?(\d+)", gres.value) if gres else None
        if gres and count and (gres.name != "gres" or gres.value.startswith("gpu")):
            held = facts.gpus_per_node
            if held and not facts.whole_nodes and int(count[1]) > held:
                yield Found(
                    one.line, f"srun asks for {count[1]} GPUs on a node in a job that has {held}"
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
    for one in script.launches:
        asked = {given.name for given in one.step}
        if one.by != "srun" or asked & {"cpus-per-task", "overlap", "pty", "cpus-per-gpu"}:
            continue
        text = script.at(one.line)
        if not re.match(r"\s*(time\s+)?srun\b", text):
            continue
        reason = (
            "in this Slurm srun does not take --cpus-per-task over from the job: each task gets "
            "one core"
        )
        right = text.replace("srun", 'srun --cpus-per-task="$SLURM_CPUS_PER_TASK"', 1)
        yield Found(one.line, reason, right, sure=True)
