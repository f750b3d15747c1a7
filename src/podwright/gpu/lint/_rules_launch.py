"""Rules about launchers: torchrun, accelerate and deepspeed among the nodes and tasks of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._facts import number, step_of
from podwright.gpu.lint._launchers import (
    Launch,
    launch_of,
    ranks,
    starts,
    told_of_all,
    told_of_slurm,
)
from podwright.gpu.lint._rule import Case, Found, rule
from podwright.gpu.lint._rules_counts import line_of_option, processes
from podwright.gpu.lint._script_addresses import FREE_ADDRESS, is_local
from podwright.gpu.lint._shell import holes

_SHOWN_BY = "tests/outer/gpu/test_lint_shown.py"
_OLD = "tests/outer/gpu/test_lint.py"
_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
_RANKS = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
_RAW_RANK = re.compile(r"\$(SLURM_\w+|\{SLURM_\w+\})")
_MACHINES = ("nnodes", "num-machines", "num-nodes")


def _machines(launch: Launch, case: Case) -> tuple[int, int] | None:
    """Return (fewest, most) nodes that the launcher waits for; None if nothing gives the number."""
    value = launch.given(*_MACHINES)
    if value is None:
        return None
    low, colon, high = value.partition(":")
    first = number(low, case.facts)
    last = number(high, case.facts) if colon else first
    return (first, last) if first is not None and last is not None else None


def _rendezvous(launch: Launch) -> bool:
    """Return whether a rendezvous assigns the ranks, whatever --node_rank is."""
    return launch.given("rdzv-backend") in ("c10d", "etcd", "etcd-v2")


def _sure(launch: Launch) -> bool:
    """Return whether nothing around the launch changes its effect."""
    place = launch.place
    return launch.complete and not (place.choice or place.function or place.loop or place.within)


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
    if any(launch.by in ("srun", "remote", "mpirun", "unknown") for launch in launches):
        return
    for launch in launches:
        if launch.kind not in ("torchrun", "accelerate") or launch.by or not _sure(launch):
            continue
        if launch.given("deepspeed-hostfile", "hostfile") or launch.place.behind:
            continue
        if launch.kind == "accelerate" and launch.given("config-file") is not None:
            continue  # a configuration may add pdsh and a hostfile
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
            each = step.tasks  # for one node, or for some: no launcher is given that number
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
    f"{_SHOWN_BY}::test_the_batch_shell_expands_before_srun",
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
            variables = [
                variable for variable in holes(value) if variable.removesuffix(":-") in _RANKS
            ]
            if _RAW_RANK.fullmatch(value) and not launch.place.quoted and starts(launch):
                reason = f"no shell is left to put {value} in: {launch.kind} gets it as it stands; "
                reason += f"srun bash -c '… --{name.replace('-', '_')}={value} …' has one"
                yield Found(line_of_option(case, launch, name), reason)
                continue
            if variables or value == "0":
                source = (
                    f"${variables[0].removesuffix(':-')} is put in before srun starts: it is 0"
                    if variables
                    else "it is 0"
                )
                reason = f"{source} on every node; single quotes leave it to the task: "
                reason += "srun bash -c 'torchrun --node_rank=$SLURM_NODEID …'"
                yield Found(line_of_option(case, launch, name), reason)
    yield from _exported_ranks(case)


def _exported_ranks(case: Case) -> Iterator[Found]:
    """Find `export RANK=$SLURM_PROCID` above an srun of several tasks."""
    shell = case.script.shell
    tasks = [
        step_of(launch, case.facts).tasks
        for launch in case.script.launches
        if launch.by == "srun" and launch.kind == "python"
    ]
    if not any(count and count > 1 for count in tasks):
        return
    for assignment in shell.assignments:
        ranks = (
            assignment.name in ("RANK", "LOCAL_RANK")
            and assignment.exported
            and not assignment.place.quoted
        )
        if ranks and set(holes(assignment.value)) & set(_RANKS) and not assignment.place.function:
            yield Found(
                assignment.line,
                f"{assignment.name} is the same for all tasks: the batch shell sets it once",
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
        if (
            launch.kind != "torchrun"
            or launch.by != "srun"
            or not launch.complete
            or launch.foreign
        ):
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
        nodes = step.nodes if launch.by == "srun" else case.facts.nodes
        rank = launch.given("node-rank", "machine-rank")
        if nodes == 1 and rank is not None and re.fullmatch(r"[1-9]\d*|\$\{?\d\}?", rank):
            continue  # one of several jobs, each of which starts one node of the launch
        if nodes is None or machines[0] <= nodes <= machines[1]:
            continue
        if launch.by == "srun" and step.tasks and machines[0] <= step.tasks <= machines[1]:
            continue  # a launcher for each task, and its options fit that
        name = next(option for option in _MACHINES if option in launch.options)
        is_explicit = case.facts.nodes_said or launch.option("nodes") is not None
        if machines[1] < nodes and launch.by != "srun":
            continue  # launcher-on-one-node reports it
        waits = "waits for ever" if machines[0] > nodes else "leaves nodes idle"
        reason = f"--{name}={value} on {nodes} node{'s' * (nodes > 1)}: it {waits}"
        yield Found(
            line_of_option(case, launch, name), reason, level="mistake" if is_explicit else "better"
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
            continue  # for one node, since nothing gives another number
        for name in names:
            value = launch.given(name)
            line = line_of_option(case, launch, name)
            named = is_local(case.script.shell.value("MASTER_ADDR") or "")
            if named and not re.search(r"localhost|127\.|::1|0\.0\.0\.0", case.script.at(line)):
                continue  # master-addr reports it
            if value is not None and is_local(value):
                reason = (
                    f"each of {step.nodes} nodes takes {value!r} for itself, and they never meet"
                )
                yield Found(line, reason)


@rule(
    "master-addr",
    "mistake",
    "an address of rank 0 that is not an address, or that every node takes for its own",
    f"{_OLD}::test_what_the_silent_mistakes_do",
    "puts the job's first node into MASTER_ADDR",
)
def master_addr(case: Case) -> Iterator[Found]:
    if not case.facts.several:
        return
    by_srun = [launch for launch in case.script.launches if launch.by == "srun"]
    if not any((step_of(launch, case.facts).nodes or 0) > 1 for launch in by_srun):
        return
    shell = case.script.shell
    for assignment in shell.assignments:
        if assignment.name != "MASTER_ADDR" or assignment.place.choice or assignment.place.function:
            continue
        if any(
            other.name == assignment.name and other.line > assignment.line
            for other in shell.assignments
        ):
            continue  # it may have another value by then
        cut = re.search(r"SLURM_(JOB_|STEP_)?NODELIST", assignment.value)
        spelt = re.search(r"scontrol|hostlist|nodeset|srun|python|sinfo", assignment.value)
        # A program that gets the bracket expression takes the first name out of it.
        spelt = spelt or re.search(r"\b(perl|sed|awk)\b.*\[", assignment.value)
        text = case.script.at(assignment.line)
        if is_local(assignment.value):
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
        yield Found(assignment.line, reason, corrected if alone else "", sure=alone)


@rule(
    "world-size",
    "mistake",
    "WORLD_SIZE is written as another number than that of the tasks that srun starts",
    f"{_SHOWN_BY}::test_the_batch_shell_expands_before_srun",
)
def world_size(case: Case) -> Iterator[Found]:
    shell = case.script.shell
    prefixed = [
        (command.line, value, launch_of(command))
        for command in shell.commands
        for name, value in command.set_before
        if name == "WORLD_SIZE"
    ]
    for line, value, launch in prefixed:
        if launch and launch.by == "srun" and launch.kind == "python":
            yield from _wrong_size(case, line, value, [launch])
    value = shell.value("WORLD_SIZE") or ""
    if prefixed or not shell.exported("WORLD_SIZE"):
        return
    launches = [launch for launch in case.script.launches if launch.kind != "other"]
    steps = [launch for launch in launches if launch.by == "srun" and launch.kind == "python"]
    if not steps or len(steps) != len(launches):
        return
    line = next(item.line for item in shell.assignments if item.name == "WORLD_SIZE")
    yield from _wrong_size(case, line, value, steps)


def _wrong_size(case: Case, line: int, value: str, steps: list[Launch]) -> Iterator[Found]:
    size = number(value, case.facts)
    counts = {step_of(step, case.facts).tasks for step in steps}
    several = all((step_of(step, case.facts).tasks_per_node or 1) > 1 for step in steps)
    if size is None or len(counts) != 1 or not (count := counts.pop()) or count < 2:
        return
    if size < count or (size > count and several):  # one task per node may start more itself
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
    if not launches or any(launch.by or launch.kind != "python" for launch in launches):
        return
    if any(launch.place.behind for launch in launches) or not case.script.settled:
        return
    tasks = facts.tasks if facts.tasks_said else None
    if not facts.several and (not tasks or tasks < 2):
        return
    extent = f"{facts.nodes} nodes" if facts.several else f"{tasks} tasks"
    reason = f"the job has {extent}, and this runs once, on the first node: srun starts it in all"
    if not facts.several:
        reason = f"the job has {extent}, and this runs once: srun, or --cpus-per-task={tasks}"
    last = launches[-1]
    starts_them = told_of_slurm(last) or told_of_all(last, tasks)
    sure = facts.several and _sure(last) and not starts_them
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


@rule(
    "ray-symmetric-run",
    "mistake",
    "srun of `ray symmetric-run` ends with an error though the program succeeded (seen with Ray "
    "2.60): a worker waits for the head that has gone, and fails",
    "https://docs.ray.io/en/latest/cluster/vms/user-guides/community/slurm.html",
)
def ray_symmetric_run(case: Case) -> Iterator[Found]:
    for launch in case.script.launches:
        step = step_of(launch, case.facts)
        several = case.facts.several or (step.nodes or step.tasks or 0) > 1
        if launch.by != "srun" or not several or launch.words[1:2] != ("symmetric-run",):
            continue
        if launch.words[0].rpartition("/")[2] == "ray":
            reason = (
                "the job fails though its program succeeded (seen with Ray 2.60): start the head "
                "and the workers by themselves, as `podwright slurm template ray` does"
            )
            yield Found(launch.line, reason)
