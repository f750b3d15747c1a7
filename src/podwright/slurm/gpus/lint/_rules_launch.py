"""Rules about launchers: torchrun, accelerate and deepspeed among the nodes and tasks of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.slurm.gpus.lint._facts import number, step_of
from podwright.slurm.gpus.lint._launchers import Launch, launch_of, ranks, starts
from podwright.slurm.gpus.lint._rule import Case, Found, rule
from podwright.slurm.gpus.lint._rules_counts import line_of_option, processes
from podwright.slurm.gpus.lint._script_addresses import FREE_ADDRESS, is_local
from podwright.slurm.gpus.lint._shell import holes

_SHOWN = "tests/outer/gpu/test_lint_shown.py"
_OLD = "tests/outer/gpu/test_lint.py"
_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
_RANKS = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
_RAW_RANK = re.compile(r"\$(SLURM_\w+|\{SLURM_\w+\})")
_MACHINES = ("nnodes", "num-machines", "num-nodes")


def _machines(launch: Launch, case: Case) -> tuple[int, int] | None:
    """(fewest, most) nodes that the launcher waits for, None where nothing says it."""
    value = launch.given(*_MACHINES)
    if value is None:
        return None
    low, colon, high = value.partition(":")
    first = number(low, case.facts)
    last = number(high, case.facts) if colon else first
    return (first, last) if first is not None and last is not None else None


def _rendezvous(launch: Launch) -> bool:
    """Whether ranks are dealt out by a rendezvous, whatever --node_rank says."""
    return launch.given("rdzv-backend") in ("c10d", "etcd", "etcd-v2")


def _sure(launch: Launch) -> bool:
    """Whether nothing around the launch changes what it does."""
    place = launch.place
    return launch.whole and not (place.choice or place.function or place.loop or place.within)


def _told_of_slurm(launch: Launch) -> bool:
    """Whether an argument of the program names what starts tasks: it may do so itself."""
    return any(
        re.search(r"(^|[=:\"'_-])(srun|slurm|mpirun|mpiexec|submitit)", word)
        for word in launch.words[1:]
    )


@rule(
    "launcher-on-one-node",
    "mistake",
    "the script's commands run on the first node only; without srun the others stay idle, or the "
    "launcher waits for them for ever",
    f"{_OLD}::test_what_the_silent_mistakes_do",
)
def launcher_on_one_node(case: Case) -> Iterator[Found]:
    if not case.facts.several:
        return
    launches = case.script.launches
    if any(one.by in ("srun", "remote", "mpirun", "unknown") for one in launches):
        return
    for launch in launches:
        if launch.kind not in ("torchrun", "accelerate") or launch.by or not _sure(launch):
            continue
        if launch.given("deepspeed-hostfile", "hostfile") or launch.place.behind:
            continue
        if launch.kind == "accelerate" and launch.given("config-file") is not None:
            continue  # a configuration may bring pdsh and a hostfile
        nodes = case.facts.nodes
        reason = f"a batch script runs on the first of its {nodes} nodes only: start it by srun"
        yield Found(launch.line, reason)


@rule(
    "launcher-in-every-task",
    "mistake",
    "srun starts the launcher once for each task, and each launcher starts a process for each GPU",
    f"{_OLD}::test_what_more_silent_mistakes_do",
)
def launcher_in_every_task(case: Case) -> Iterator[Found]:
    for launch in case.script.launches:
        if launch.by != "srun" or not launch.distributed or launch.foreign or launch.place.function:
            continue
        step = step_of(launch, case.facts)
        each, machines = step.tasks_per_node, _machines(launch, case)
        if each is None and step.tasks and not case.facts.nodes_said:
            each = step.tasks  # of one node, or of some: no launcher is told of so many
        count = processes(launch, case)
        if not each or each < 2 or count == 1 or (machines and machines[1] >= (step.tasks or each)):
            continue
        if count and step.gpus_per_node and count * each <= step.gpus_per_node:
            continue
        number_ = case.script.line_of("ntasks-per-node", "tasks-per-node", "ntasks") or launch.line
        if launch.option("ntasks", "ntasks-per-node", "tasks-per-node"):
            number_ = launch.line
        text = case.script.at(number_)
        right = re.sub(r"(tasks-per-node[= ])\d+", r"\g<1>1", text, count=1)
        reason = (
            f"srun starts the launcher {each} times on a node, and each starts a process for each "
            "GPU: one launcher for each node is enough"
        )
        yield Found(number_, reason, right if right != text else "")


@rule(
    "rank-of-batch-shell",
    "mistake",
    "SLURM_NODEID or SLURM_PROCID is put in by the batch shell, where it is 0, and every node gets "
    "the same rank",
    f"{_SHOWN}::test_the_batch_shell_expands_before_srun",
)
def rank_of_batch_shell(case: Case) -> Iterator[Found]:
    for launch in case.script.launches:
        step = step_of(launch, case.facts)
        if launch.by != "srun" or not step.nodes or step.nodes < 2 or _rendezvous(launch):
            continue
        for name in ("node-rank", "machine-rank"):
            value = launch.given(name)
            if value is None:
                continue
            taken = [one for one in holes(value) if one.removesuffix(":-") in _RANKS]
            if _RAW_RANK.fullmatch(value) and not launch.place.quoted and starts(launch):
                reason = f"no shell is left to put {value} in: {launch.kind} gets it as it stands; "
                reason += f"srun bash -c '… --{name.replace('-', '_')}={value} …' has one"
                yield Found(line_of_option(case, launch, name), reason)
                continue
            if taken or value == "0":
                what = (
                    f"${taken[0].removesuffix(':-')} is put in before srun starts: it is 0"
                    if taken
                    else "it is 0"
                )
                reason = f"{what} on every node; single quotes leave it to the task: "
                reason += "srun bash -c 'torchrun --node_rank=$SLURM_NODEID …'"
                yield Found(line_of_option(case, launch, name), reason)
    yield from _exported_ranks(case)


def _exported_ranks(case: Case) -> Iterator[Found]:
    """export RANK=$SLURM_PROCID above an srun of several tasks."""
    shell = case.script.shell
    tasks = [step_of(one, case.facts).tasks for one in case.script.launches if one.by == "srun"
             and one.kind == "python"]  # fmt: skip
    if not any(count and count > 1 for count in tasks):
        return
    for one in shell.assignments:
        ranks = one.name in ("RANK", "LOCAL_RANK") and one.exported and not one.place.quoted
        if ranks and set(holes(one.value)) & set(_RANKS) and not one.place.function:
            yield Found(
                one.line, f"{one.name} is the same for all tasks: the batch shell sets it once"
            )


@rule(
    "no-node-rank",
    "mistake",
    "torchrun on several nodes without --node_rank and without a rendezvous: every node is rank 0",
    _TORCHRUN,
)
def no_node_rank(case: Case) -> Iterator[Found]:
    for launch in case.script.launches:
        machines = _machines(launch, case)
        if launch.kind != "torchrun" or launch.by != "srun" or not launch.whole or launch.foreign:
            continue
        if (
            not machines
            or machines[0] < 2
            or launch.given("rdzv-backend", "standalone") is not None
        ):
            continue
        if not launch.program or "node-rank" in launch.options:
            continue
        if any(a.name == "PET_NODE_RANK" for a in case.script.shell.assignments):
            continue
        reason = (
            "every node takes rank 0: --rdzv_backend=c10d --rdzv_endpoint=HOST:PORT deals the "
            "ranks out, or --node_rank says them"
        )
        yield Found(launch.line, reason)


@rule(
    "nnodes-unlike",
    "mistake",
    "the launcher waits for another count of nodes than the job has",
    _TORCHRUN,
)
def nnodes_unlike(case: Case) -> Iterator[Found]:
    if not case.script.settled:
        return
    for launch in case.script.launches:
        machines = _machines(launch, case)
        if not machines or not _sure(launch) or launch.by in ("remote", "unknown", "mpirun"):
            continue
        value = launch.given(*_MACHINES) or ""
        if not re.fullmatch(r"[\d:]+", value) or launch.place.behind or launch.kind == "deepspeed":
            continue
        step = step_of(launch, case.facts)
        here = step.nodes if launch.by == "srun" else case.facts.nodes
        if here is None or machines[0] <= here <= machines[1]:
            continue
        if launch.by == "srun" and step.tasks and machines[0] <= step.tasks <= machines[1]:
            continue  # a launcher for each task, told so
        name = next(one for one in _MACHINES if one in launch.options)
        said = case.facts.nodes_said or launch.option("nodes") is not None
        if machines[1] < here and launch.by != "srun":
            continue  # launcher-on-one-node says it
        waits = "waits for ever" if machines[0] > here else "leaves nodes idle"
        reason = f"--{name}={value} on {here} node{'s' * (here > 1)}: it {waits}"
        yield Found(
            line_of_option(case, launch, name), reason, level="mistake" if said else "better"
        )


@rule(
    "local-rendezvous",
    "mistake",
    "localhost as the meeting point of several nodes: each takes it for itself",
    _TORCHRUN,
)
def local_rendezvous(case: Case) -> Iterator[Found]:
    names = ("rdzv-endpoint", "master-addr", "main-process-ip")
    for launch in case.script.launches:
        step = step_of(launch, case.facts)
        machines = _machines(launch, case)
        if (
            launch.by != "srun"
            or not step.nodes
            or step.nodes < 2
            or (machines and machines[1] < 2)
        ):
            continue
        if launch.given("standalone") is not None:
            continue
        if launch.kind == "torchrun" and not machines:
            continue  # of one node, as nothing says otherwise
        for name in names:
            value = launch.given(name)
            line = line_of_option(case, launch, name)
            named = is_local(case.script.shell.value("MASTER_ADDR") or "")
            if named and not re.search(r"localhost|127\.|::1|0\.0\.0\.0", case.script.at(line)):
                continue  # master-addr says it
            if value is not None and is_local(value):
                reason = (
                    f"each of {step.nodes} nodes takes {value!r} for itself, and they never meet"
                )
                yield Found(line, reason)


@rule(
    "master-addr",
    "mistake",
    "an address of rank 0 that is no address, or that every node takes for its own",
    f"{_OLD}::test_what_the_silent_mistakes_do",
    "puts the job's first node into MASTER_ADDR",
)
def master_addr(case: Case) -> Iterator[Found]:
    if not case.facts.several:
        return
    over = [one for one in case.script.launches if one.by == "srun"]
    if not any((step_of(one, case.facts).nodes or 0) > 1 for one in over):
        return
    shell = case.script.shell
    for one in shell.assignments:
        if one.name != "MASTER_ADDR" or one.place.choice or one.place.function:
            continue
        if any(other.name == one.name and other.line > one.line for other in shell.assignments):
            continue  # it may be another by then
        cut = re.search(r"SLURM_(JOB_|STEP_)?NODELIST", one.value)
        spelt = re.search(r"scontrol|hostlist|nodeset|srun|python|sinfo", one.value)
        text = case.script.at(one.line)
        if is_local(one.value):
            reason = "every node takes this for itself, and the ranks never meet"
        elif cut and not spelt:
            reason = (
                "the node list is written short, as gpu[01-04]: cut by hand it names no host; "
                "`scontrol show hostnames` spells it out"
            )
        else:
            continue
        plain = re.fullmatch(r"\s*(export\s+)?MASTER_ADDR=[^;&|]*", text) or cut
        right = re.match(r"\s*(export\s+)?", text)
        corrected = f"{right[0] if right else ''}MASTER_ADDR={FREE_ADDRESS}"
        alone = bool(plain) and text.count("=") == 1 and not text.rstrip().endswith("\\")
        yield Found(one.line, reason, corrected if alone else "", sure=alone)


@rule(
    "world-size",
    "mistake",
    "WORLD_SIZE is written as another number than that of the tasks that srun starts",
    f"{_SHOWN}::test_the_batch_shell_expands_before_srun",
)
def world_size(case: Case) -> Iterator[Found]:
    shell = case.script.shell
    said = [(one.line, value, launch_of(one)) for one in shell.commands
            for name, value in one.set_before if name == "WORLD_SIZE"]  # fmt: skip
    for line, value, launch in said:
        if launch and launch.by == "srun" and launch.kind == "python":
            yield from _wrong_size(case, line, value, [launch])
    value = shell.value("WORLD_SIZE") or ""
    if said or not shell.exported("WORLD_SIZE"):
        return
    steps = [one for one in case.script.launches if one.by == "srun" and one.kind == "python"]
    if not steps or len(steps) != len([one for one in case.script.launches if one.kind != "other"]):
        return
    line = next(one.line for one in shell.assignments if one.name == "WORLD_SIZE")
    yield from _wrong_size(case, line, value, steps)


def _wrong_size(case: Case, line: int, value: str, steps: list[Launch]) -> Iterator[Found]:
    size = number(value, case.facts)
    counts = {step_of(one, case.facts).tasks for one in steps}
    several = all((step_of(one, case.facts).tasks_per_node or 1) > 1 for one in steps)
    if size is None or len(counts) != 1 or not (count := counts.pop()) or count < 2:
        return
    if size < count or (size > count and several):  # one task of a node may start more itself
        reason = f"srun starts {count} tasks: WORLD_SIZE={size} is wrong; $SLURM_NTASKS says it"
        yield Found(line, reason)


@rule(
    "one-process-of-many",
    "better",
    "a job of several tasks starts one plain python, without srun; over several nodes a mistake",
    f"{_OLD}::test_what_the_silent_mistakes_do",
)
def one_process_of_many(case: Case) -> Iterator[Found]:
    launches = case.script.launches
    facts = case.facts
    if not launches or any(one.by or one.kind != "python" for one in launches):
        return
    if any(one.place.behind for one in launches) or not case.script.settled:
        return
    tasks = facts.tasks if facts.tasks_said else None
    if not facts.several and (not tasks or tasks < 2):
        return
    what = f"{facts.nodes} nodes" if facts.several else f"{tasks} tasks"
    reason = f"the job has {what}, and this runs once, on the first node: srun starts it in all"
    if not facts.several:
        reason = f"the job has {what}, and this runs once: srun, or --cpus-per-task={tasks}"
    last = launches[-1]
    sure = facts.several and _sure(last) and not _told_of_slurm(last)
    yield Found(last.line, reason, level="mistake" if sure else "better")


@rule(
    "more-ranks-than-tasks",
    "mistake",
    "mpirun of Open MPI asked for more ranks than the job has tasks: it refuses for lack of slots",
    "tests/outer/gpu/test_lint_programs.py::test_mpirun_refuses_more_ranks_than_tasks",
)
def more_ranks_than_tasks(case: Case) -> Iterator[Found]:
    text = case.script.text.lower()
    facts = case.facts
    tasks = facts.tasks if facts.tasks_said else None
    if not tasks or "oversubscribe" in text or "use-hwthread" in text:
        return
    openmpi = "openmpi" in text or "--mca" in text or "ompi" in text
    for launch in case.script.launches:
        if launch.by != "mpirun":
            continue
        wanted = ranks(launch.words)
        if wanted is None or wanted <= tasks:
            continue
        reason = f"mpirun of Open MPI finds {tasks} slots for {wanted} ranks and refuses"
        right = re.sub(
            r"(\s-(?:n|np)\s+)\d+", rf"\g<1>{tasks}", case.script.at(launch.line), count=1
        )
        yield Found(launch.line, reason, right, level="mistake" if openmpi else "better")
