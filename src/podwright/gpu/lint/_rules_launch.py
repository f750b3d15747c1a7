"""Rules about launchers: torchrun, accelerate and deepspeed among the nodes and tasks of a job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._address_expressions import FIRST_NODE_EXPRESSION, is_local
from podwright.gpu.lint._launchers import (
    Launch,
    names_slurm_launcher,
    names_task_count,
    ranks,
    read_launch,
    starts,
)
from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.gpu.lint._rules_counts import line_of_option, processes
from podwright.gpu.lint._script_counts import number, step_facts
from podwright.gpu.lint._shell import holes

_EVIDENCE_TEST = "tests/outer/gpu/test_lint_shown.py"
_OLD_EVIDENCE_TEST = "tests/outer/gpu/test_lint.py"
_TORCHRUN_DOCS_URL = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_ACCELERATE = "https://huggingface.co/docs/accelerate/package_reference/cli"
_RANK_VARIABLES = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
_RAW_RANK_PATTERN = re.compile(r"\$(SLURM_\w+|\{SLURM_\w+\})")
_NODE_COUNT_OPTIONS = ("nnodes", "num-machines", "num-nodes")


def _expected_node_range(launch: Launch, lint_case: Case) -> tuple[int, int] | None:
    """Return (fewest, most) nodes that the launcher waits for; None if nothing gives the number."""
    option_value = launch.given(*_NODE_COUNT_OPTIONS)
    if option_value is None:
        return None
    low_text, colon, high_text = option_value.partition(":")
    fewest_nodes = number(low_text, lint_case.facts)
    most_nodes = number(high_text, lint_case.facts) if colon else fewest_nodes
    return (
        (fewest_nodes, most_nodes) if fewest_nodes is not None and most_nodes is not None else None
    )


def _has_rendezvous(launch: Launch) -> bool:
    """Return whether a rendezvous assigns the ranks, whatever --node_rank is."""
    return launch.given("rdzv-backend") in ("c10d", "etcd", "etcd-v2")


def _is_unconditional(launch: Launch) -> bool:
    """Return whether nothing around the launch changes its effect."""
    place = launch.place
    return launch.complete and not (place.choice or place.function or place.loop or place.within)


@rule(
    "launcher-on-one-node",
    "mistake",
    "the script's commands run on the first node only; without srun the others stay idle, or the "
    "launcher waits for them for ever",
    f"{_OLD_EVIDENCE_TEST}::test_what_the_silent_mistakes_do",
)
def launcher_on_one_node(lint_case: Case) -> Iterator[Found]:
    if not lint_case.facts.several:
        return
    launches = lint_case.script.launches
    if any(launch.by in ("srun", "remote", "mpirun", "unknown") for launch in launches):
        return
    for launch in launches:
        if (
            launch.kind not in ("torchrun", "accelerate")
            or launch.by
            or not _is_unconditional(launch)
        ):
            continue
        if launch.given("deepspeed-hostfile", "hostfile") or launch.place.behind:
            continue
        if launch.kind == "accelerate" and launch.given("config-file") is not None:
            continue  # a configuration may add pdsh and a hostfile
        node_count = lint_case.facts.nodes
        reason = (
            f"a batch script runs on the first of its {node_count} nodes only: start it by srun"
        )
        yield Found(launch.line, reason)


@rule(
    "launcher-in-every-task",
    "mistake",
    "srun starts the launcher once for each task, and each launcher starts a process for each GPU",
    f"{_OLD_EVIDENCE_TEST}::test_what_more_silent_mistakes_do",
)
def launcher_in_every_task(lint_case: Case) -> Iterator[Found]:
    for launch in lint_case.script.launches:
        if launch.by != "srun" or not launch.distributed or launch.foreign or launch.place.function:
            continue
        step = step_facts(launch, lint_case.facts)
        tasks_per_node, expected_nodes = (
            step.tasks_per_node,
            _expected_node_range(launch, lint_case),
        )
        if tasks_per_node is None and step.tasks and not lint_case.facts.nodes_specified:
            # For one node, or for some: no launcher is given that number.
            tasks_per_node = step.tasks
        process_count = processes(launch, lint_case)
        if (
            not tasks_per_node
            or tasks_per_node < 2
            or process_count == 1
            or (expected_nodes and expected_nodes[1] >= (step.tasks or tasks_per_node))
        ):
            continue
        if (
            process_count
            and step.gpus_per_node
            and process_count * tasks_per_node <= step.gpus_per_node
        ):
            continue
        line_number = (
            lint_case.script.line_of("ntasks-per-node", "tasks-per-node", "ntasks") or launch.line
        )
        if launch.option("ntasks", "ntasks-per-node", "tasks-per-node"):
            line_number = launch.line
        line_text = lint_case.script.at(line_number)
        corrected_line = re.sub(r"(tasks-per-node[= ])\d+", r"\g<1>1", line_text, count=1)
        reason = (
            f"srun starts the launcher {tasks_per_node} times on a node, and each starts a process "
            "for each GPU: one launcher for each node is enough"
        )
        yield Found(line_number, reason, corrected_line if corrected_line != line_text else "")


@rule(
    "rank-of-batch-shell",
    "mistake",
    "SLURM_NODEID or SLURM_PROCID is put in by the batch shell, where it is 0, and every node gets "
    "the same rank",
    f"{_EVIDENCE_TEST}::test_the_batch_shell_expands_before_srun",
)
def rank_of_batch_shell(lint_case: Case) -> Iterator[Found]:
    for launch in lint_case.script.launches:
        step = step_facts(launch, lint_case.facts)
        if launch.by != "srun" or not step.nodes or step.nodes < 2 or _has_rendezvous(launch):
            continue
        for option_name in ("node-rank", "machine-rank"):
            option_value = launch.given(option_name)
            if option_value is None:
                continue
            variables = [
                variable
                for variable in holes(option_value)
                if variable.removesuffix(":-") in _RANK_VARIABLES
            ]
            if (
                _RAW_RANK_PATTERN.fullmatch(option_value)
                and not launch.place.quoted
                and starts(launch)
            ):
                reason = (
                    f"no shell is left to put {option_value} in: {launch.kind} gets it as it "
                    "stands; "
                )
                reason += (
                    f"srun bash -c '… --{option_name.replace('-', '_')}={option_value} …' has one"
                )
                yield Found(line_of_option(lint_case, launch, option_name), reason)
                continue
            if variables or option_value == "0":
                zero_cause = (
                    f"${variables[0].removesuffix(':-')} is put in before srun starts: it is 0"
                    if variables
                    else "it is 0"
                )
                reason = f"{zero_cause} on every node; single quotes leave it to the task: "
                reason += "srun bash -c 'torchrun --node_rank=$SLURM_NODEID …'"
                yield Found(line_of_option(lint_case, launch, option_name), reason)
    yield from _exported_ranks(lint_case)


def _exported_ranks(lint_case: Case) -> Iterator[Found]:
    """Find `export RANK=$SLURM_PROCID` above an srun of several tasks."""
    shell = lint_case.script.shell
    task_counts = [
        step_facts(launch, lint_case.facts).tasks
        for launch in lint_case.script.launches
        if launch.by == "srun" and launch.kind == "python"
    ]
    if not any(task_count and task_count > 1 for task_count in task_counts):
        return
    for assignment in shell.assignments:
        sets_rank = (
            assignment.name in ("RANK", "LOCAL_RANK")
            and assignment.exported
            and not assignment.place.quoted
        )
        if (
            sets_rank
            and set(holes(assignment.value)) & set(_RANK_VARIABLES)
            and not assignment.place.function
        ):
            yield Found(
                assignment.line,
                f"{assignment.name} is the same for all tasks: the batch shell sets it once",
            )


@rule(
    "no-node-rank",
    "mistake",
    "torchrun on several nodes without --node_rank and without a rendezvous: every node is rank 0",
    _TORCHRUN_DOCS_URL,
)
def no_node_rank(lint_case: Case) -> Iterator[Found]:
    for launch in lint_case.script.launches:
        expected_nodes = _expected_node_range(launch, lint_case)
        if (
            launch.kind != "torchrun"
            or launch.by != "srun"
            or not launch.complete
            or launch.foreign
        ):
            continue
        if (
            not expected_nodes
            or expected_nodes[0] < 2
            or launch.given("rdzv-backend", "standalone") is not None
        ):
            continue
        if not launch.program or "node-rank" in launch.options:
            continue
        if any(
            assignment.name == "PET_NODE_RANK" for assignment in lint_case.script.shell.assignments
        ):
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
    _TORCHRUN_DOCS_URL,
)
def nnodes_unlike(lint_case: Case) -> Iterator[Found]:
    if not lint_case.script.settled:
        return
    for launch in lint_case.script.launches:
        expected_nodes = _expected_node_range(launch, lint_case)
        if (
            not expected_nodes
            or not _is_unconditional(launch)
            or launch.by in ("remote", "unknown", "mpirun")
        ):
            continue
        nodes_value = launch.given(*_NODE_COUNT_OPTIONS) or ""
        if (
            not re.fullmatch(r"[\d:]+", nodes_value)
            or launch.place.behind
            or launch.kind == "deepspeed"
        ):
            continue
        step = step_facts(launch, lint_case.facts)
        node_count = step.nodes if launch.by == "srun" else lint_case.facts.nodes
        node_rank = launch.given("node-rank", "machine-rank")
        if (
            node_count == 1
            and node_rank is not None
            and re.fullmatch(r"[1-9]\d*|\$\{?\d\}?", node_rank)
        ):
            continue  # one of several jobs, each of which starts one node of the launch
        if node_count is None or expected_nodes[0] <= node_count <= expected_nodes[1]:
            continue
        if (
            launch.by == "srun"
            and step.tasks
            and expected_nodes[0] <= step.tasks <= expected_nodes[1]
        ):
            continue  # a launcher for each task, and its options fit that
        option_name = next(option for option in _NODE_COUNT_OPTIONS if option in launch.options)
        is_explicit = lint_case.facts.nodes_specified or launch.option("nodes") is not None
        if expected_nodes[1] < node_count and launch.by != "srun":
            continue  # launcher-on-one-node reports it
        consequence = "waits for ever" if expected_nodes[0] > node_count else "leaves nodes idle"
        reason = (
            f"--{option_name}={nodes_value} on {node_count} node{'s' * (node_count > 1)}: it "
            f"{consequence}"
        )
        yield Found(
            line_of_option(lint_case, launch, option_name),
            reason,
            level="mistake" if is_explicit else "better",
        )


@rule(
    "local-rendezvous",
    "mistake",
    "localhost as the meeting point of several nodes: each takes it for itself",
    _TORCHRUN_DOCS_URL,
)
def local_rendezvous(lint_case: Case) -> Iterator[Found]:
    address_options = ("rdzv-endpoint", "master-addr", "main-process-ip")
    for launch in lint_case.script.launches:
        step = step_facts(launch, lint_case.facts)
        expected_nodes = _expected_node_range(launch, lint_case)
        if (
            launch.by != "srun"
            or not step.nodes
            or step.nodes < 2
            or (expected_nodes and expected_nodes[1] < 2)
        ):
            continue
        if launch.given("standalone") is not None:
            continue
        if launch.kind == "torchrun" and not expected_nodes:
            continue  # for one node, since nothing gives another number
        for option_name in address_options:
            address = launch.given(option_name)
            line_number = line_of_option(lint_case, launch, option_name)
            is_local_master = is_local(lint_case.script.shell.value("MASTER_ADDR") or "")
            if is_local_master and not re.search(
                r"localhost|127\.|::1|0\.0\.0\.0", lint_case.script.at(line_number)
            ):
                continue  # master-addr reports it
            if address is not None and is_local(address):
                reason = (
                    f"each of {step.nodes} nodes takes {address!r} for itself, and they never meet"
                )
                yield Found(line_number, reason)


@rule(
    "master-addr",
    "mistake",
    "an address of rank 0 that is not an address, or that every node takes for its own",
    f"{_OLD_EVIDENCE_TEST}::test_what_the_silent_mistakes_do",
    "puts the job's first node into MASTER_ADDR",
)
def master_addr(lint_case: Case) -> Iterator[Found]:
    if not lint_case.facts.several:
        return
    srun_launches = [launch for launch in lint_case.script.launches if launch.by == "srun"]
    if not any((step_facts(launch, lint_case.facts).nodes or 0) > 1 for launch in srun_launches):
        return
    shell = lint_case.script.shell
    for assignment in shell.assignments:
        if assignment.name != "MASTER_ADDR" or assignment.place.choice or assignment.place.function:
            continue
        if any(
            later_assignment.name == assignment.name and later_assignment.line > assignment.line
            for later_assignment in shell.assignments
        ):
            continue  # it may have another value by then
        uses_nodelist = re.search(r"SLURM_(JOB_|STEP_)?NODELIST", assignment.value)
        expands_nodelist = re.search(
            r"scontrol|hostlist|nodeset|srun|python|sinfo", assignment.value
        )
        # A program that gets the bracket expression takes the first name out of it.
        expands_nodelist = expands_nodelist or re.search(
            r"\b(perl|sed|awk)\b.*\[", assignment.value
        )
        line_text = lint_case.script.at(assignment.line)
        if is_local(assignment.value):
            reason = "every node takes this for itself, and the ranks never meet"
        elif uses_nodelist and not expands_nodelist:
            reason = (
                "the node list is written short, as gpu[01-04]: cut by hand it names no host; "
                "`scontrol show hostnames` spells it out"
            )
        else:
            continue
        is_plain_assignment = (
            re.fullmatch(r"\s*(export\s+)?MASTER_ADDR=[^;&|]*", line_text) or uses_nodelist
        )
        assignment_prefix = re.match(r"\s*(export\s+)?", line_text)
        export_prefix = assignment_prefix[0] if assignment_prefix else ""
        corrected_line = f"{export_prefix}MASTER_ADDR={FIRST_NODE_EXPRESSION}"
        is_correctable = (
            bool(is_plain_assignment)
            and line_text.count("=") == 1
            and not line_text.rstrip().endswith("\\")
        )
        yield Found(
            assignment.line, reason, corrected_line if is_correctable else "", sure=is_correctable
        )


@rule(
    "world-size",
    "mistake",
    "WORLD_SIZE is written as another number than that of the tasks that srun starts",
    f"{_EVIDENCE_TEST}::test_the_batch_shell_expands_before_srun",
)
def world_size(lint_case: Case) -> Iterator[Found]:
    shell = lint_case.script.shell
    prefixed_commands = [
        (command.line, size_text, read_launch(command))
        for command in shell.commands
        for variable_name, size_text in command.set_before
        if variable_name == "WORLD_SIZE"
    ]
    for line_number, size_text, launch in prefixed_commands:
        if launch and launch.by == "srun" and launch.kind == "python":
            yield from _world_size_findings(lint_case, line_number, size_text, [launch])
    size_text = shell.value("WORLD_SIZE") or ""
    if prefixed_commands or not shell.exported("WORLD_SIZE"):
        return
    launches = [launch for launch in lint_case.script.launches if launch.kind != "other"]
    srun_launches = [
        launch for launch in launches if launch.by == "srun" and launch.kind == "python"
    ]
    if not srun_launches or len(srun_launches) != len(launches):
        return
    line_number = next(
        assignment.line for assignment in shell.assignments if assignment.name == "WORLD_SIZE"
    )
    yield from _world_size_findings(lint_case, line_number, size_text, srun_launches)


def _world_size_findings(
    lint_case: Case, line_number: int, size_text: str, srun_launches: list[Launch]
) -> Iterator[Found]:
    declared_size = number(size_text, lint_case.facts)
    task_counts = {step_facts(launch, lint_case.facts).tasks for launch in srun_launches}
    has_many_per_node = all(
        (step_facts(launch, lint_case.facts).tasks_per_node or 1) > 1 for launch in srun_launches
    )
    if (
        declared_size is None
        or len(task_counts) != 1
        or not (task_count := task_counts.pop())
        or task_count < 2
    ):
        return
    # A single task per node may start further processes by itself.
    if declared_size < task_count or (declared_size > task_count and has_many_per_node):
        reason = (
            f"srun starts {task_count} tasks: WORLD_SIZE={declared_size} is wrong; $SLURM_NTASKS "
            "says it"
        )
        yield Found(line_number, reason)


@rule(
    "one-process-of-many",
    "better",
    "a job of several tasks starts one plain python, without srun; over several nodes a mistake",
    f"{_OLD_EVIDENCE_TEST}::test_what_the_silent_mistakes_do",
)
def one_process_of_many(lint_case: Case) -> Iterator[Found]:
    launches = lint_case.script.launches
    facts = lint_case.facts
    if not launches or any(launch.by or launch.kind != "python" for launch in launches):
        return
    if any(launch.place.behind for launch in launches) or not lint_case.script.settled:
        return
    tasks = facts.tasks if facts.tasks_specified else None
    if not facts.several and (not tasks or tasks < 2):
        return
    extent = f"{facts.nodes} nodes" if facts.several else f"{tasks} tasks"
    reason = f"the job has {extent}, and this runs once, on the first node: srun starts it in all"
    if not facts.several:
        reason = f"the job has {extent}, and this runs once: srun, or --cpus-per-task={tasks}"
    last_launch = launches[-1]
    starts_tasks = names_slurm_launcher(last_launch) or names_task_count(last_launch, tasks)
    is_mistake = facts.several and _is_unconditional(last_launch) and not starts_tasks
    yield Found(last_launch.line, reason, level="mistake" if is_mistake else "better")


@rule(
    "more-ranks-than-tasks",
    "mistake",
    "mpirun of Open MPI asked for more ranks than the job has tasks: it refuses for lack of slots",
    "tests/outer/gpu/test_lint_programs.py::test_mpirun_refuses_more_ranks_than_tasks",
)
def more_ranks_than_tasks(lint_case: Case) -> Iterator[Found]:
    script_text = lint_case.script.text.lower()
    facts = lint_case.facts
    tasks = facts.tasks if facts.tasks_specified else None
    if not tasks or "oversubscribe" in script_text or "use-hwthread" in script_text:
        return
    is_open_mpi = "openmpi" in script_text or "--mca" in script_text or "ompi" in script_text
    for launch in lint_case.script.launches:
        if launch.by != "mpirun":
            continue
        wanted_ranks = ranks(launch.words)
        if wanted_ranks is None or wanted_ranks <= tasks:
            continue
        reason = f"mpirun of Open MPI finds {tasks} slots for {wanted_ranks} ranks and refuses"
        corrected_line = re.sub(
            r"(\s-(?:n|np)\s+)\d+", rf"\g<1>{tasks}", lint_case.script.at(launch.line), count=1
        )
        yield Found(
            launch.line, reason, corrected_line, level="mistake" if is_open_mpi else "better"
        )


@rule(
    "ray-symmetric-run",
    "mistake",
    "srun of `ray symmetric-run` ends with an error though the program succeeded (seen with Ray "
    "2.60): a worker waits for the head that has gone, and fails",
    "https://docs.ray.io/en/latest/cluster/vms/user-guides/community/slurm.html",
)
def ray_symmetric_run(lint_case: Case) -> Iterator[Found]:
    for launch in lint_case.script.launches:
        step = step_facts(launch, lint_case.facts)
        has_many_nodes = lint_case.facts.several or (step.nodes or step.tasks or 0) > 1
        if launch.by != "srun" or not has_many_nodes or launch.words[1:2] != ("symmetric-run",):
            continue
        if launch.words[0].rpartition("/")[2] == "ray":
            reason = (
                "the job fails though its program succeeded (seen with Ray 2.60): start the head "
                "and the workers by themselves, as `podwright slurm template ray` does"
            )
            yield Found(launch.line, reason)
