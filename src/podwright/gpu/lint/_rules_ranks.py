"""Rules about how the processes of one training know each other: by rank, number and address."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._launches import Launch, amount_of, starts_unchanged
from podwright.gpu.lint._rule_types import Case, Found, rule
from podwright.gpu.lint._rules_starts import (
    TORCHRUN_PAGE,
    flag,
    line_of_option,
    starts_other_nodes,
    trainings,
)
from podwright.gpu.lint._shell import holes

_FIRST_NODE_EXPRESSION = '$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
_SHOWN_TEST = "tests/outer/gpu/test_lint_shown.py"
_LOCAL_ADDRESS_PATTERN = re.compile(
    r"(tcp://)?(localhost|127\.0\.0\.1|::1|\[::1\]|0\.0\.0\.0)(:\S*)?$"
)
_RANK_VARIABLES = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
_RAW_RANK_PATTERN = re.compile(r"\$(SLURM_\w+|\{SLURM_\w+\})")
_OWN_NAME_PATTERN = re.compile(
    r"(\$\(hostname\b[^)]*\)|\$\{?(HOSTNAME|SLURMD_NODENAME)\}?)(:.*)?", re.S
)
_HOST_LIST_PATTERN = re.compile(r"\$\(\s*scontrol show hostnames?\b[^|]*\)")


def _across_nodes(lint_case: Case) -> Iterator[Launch]:
    """Yield the launchers that srun starts on several nodes."""
    for launch in trainings(lint_case):
        if launch.distributed and launch.by == "srun" and (launch.size.nodes or 1) > 1:
            yield launch


def _deals_ranks(launch: Launch) -> bool:
    """Return whether a rendezvous numbers the copies, whatever their rank option is."""
    return launch.given("rdzv-backend") in launch.data.dealing or "standalone" in launch.options


@rule(
    "rank-of-batch-shell",
    "mistake",
    "SLURM_NODEID or SLURM_PROCID is put in by the batch shell, where it is 0, and every node gets "
    "the same rank",
    f"{_SHOWN_TEST}::test_the_batch_shell_expands_before_srun",
)
def rank_of_batch_shell(lint_case: Case) -> Iterator[Found]:
    for launch in _across_nodes(lint_case):
        rank = launch.given(launch.data.rank)
        is_for_one = launch.copies is not None and launch.copies[1] < 2
        if rank is None or is_for_one or _deals_ranks(launch) or starts_other_nodes(launch):
            continue
        line_number = line_of_option(lint_case, launch, launch.data.rank)
        option = flag(launch.data.rank)
        names = [name.partition(":-")[0] for name in holes(rank)]
        variables = [name for name in names if name in _RANK_VARIABLES]
        if _RAW_RANK_PATTERN.fullmatch(rank) and not launch.place.quoted:
            if starts_unchanged(launch):
                reason = (
                    f"no shell is left to put {rank} in: {launch.launcher} gets it as it stands; "
                    f"srun bash -c '… {option}={rank} …' has one"
                )
                yield Found(line_number, reason)
        elif variables or rank.isdecimal():
            cause = f"it is {rank}"
            if variables:
                cause = f"${variables[0]} is put in before srun starts: it is 0"
            reason = (
                f"{cause} on every node; single quotes leave it to the task: "
                f"srun bash -c '{launch.data.call} {option}=$SLURM_NODEID …'"
            )
            yield Found(line_number, reason)
    yield from _exported_ranks(lint_case)


def _exported_ranks(lint_case: Case) -> Iterator[Found]:
    """Find `export RANK=$SLURM_PROCID` above an srun of several tasks."""
    if not any((launch.size.tasks or 1) > 1 for launch in trainings(lint_case)
               if launch.by == "srun" and launch.launcher == "python"):  # fmt: skip
        return
    for assignment in lint_case.script.shell.assignments:
        place = assignment.place
        sets_rank = assignment.name in ("RANK", "LOCAL_RANK") and assignment.exported
        if (
            sets_rank
            and not (place.quoted or place.function)
            and set(holes(assignment.value)) & set(_RANK_VARIABLES)
        ):
            yield Found(
                assignment.line,
                f"{assignment.name} is the same for all tasks: the batch shell sets it once",
            )


@rule(
    "same-rank",
    "mistake",
    "SLURM_LOCALID as the rank of a node: it counts the tasks of one node, and begins with 0 on "
    "each",
    f"{_SHOWN_TEST}::test_the_number_of_a_task_on_its_node_begins_with_0_on_each",
)
def same_rank(lint_case: Case) -> Iterator[Found]:
    for launch in _across_nodes(lint_case):
        rank = launch.given(launch.data.rank) or ""
        if not launch.place.quoted or not re.fullmatch(r"\$\{?SLURM_LOCALID\}?", rank):
            continue
        if not _deals_ranks(launch):
            reason = (
                f"{rank} begins with 0 on each of {launch.size.nodes} nodes: $SLURM_NODEID is the "
                "number of the node"
            )
            yield Found(line_of_option(lint_case, launch, launch.data.rank), reason)


@rule(
    "no-node-rank",
    "mistake",
    "torchrun on several nodes without --node_rank and without a rendezvous: every node is rank 0; "
    "accelerate without --machine_rank could be better, as a file may say it",
    TORCHRUN_PAGE,
)
def no_node_rank(lint_case: Case) -> Iterator[Found]:
    for launch in trainings(lint_case):
        if launch.launcher not in ("torchrun", "accelerate") or launch.by != "srun":
            continue
        launcher, option = launch.data, flag(launch.data.rank)
        waits = launch.copies is not None and launch.copies[0] > 1
        if not waits or not launch.judged or not launch.program or starts_other_nodes(launch):
            continue
        other_ways = (launcher.rank, "rdzv-backend", "standalone", "config-file")
        is_exported = f"{launcher.environment}{option[2:].upper()}" in lint_case.script.shell.names
        if launch.given(*other_ways) is not None or is_exported:
            continue
        if launch.launcher == "accelerate":
            reason = (
                "every node takes the rank of accelerate's own configuration, or 0: "
                f"srun bash -c '{launcher.call} {option}=$SLURM_NODEID …' numbers them"
            )
            yield Found(launch.line, reason, level="better")
            continue
        reason = (
            "every node takes rank 0: --rdzv_backend=c10d --rdzv_endpoint=HOST:PORT deals the "
            f"ranks out, or {option} says them"
        )
        yield Found(launch.line, reason)


def _address_problem(address: str, *, in_task: bool) -> str:
    """Return why an address of rank 0 leads the nodes nowhere; empty where it may lead there."""
    if _LOCAL_ADDRESS_PATTERN.match(address.strip().strip("'\"")):
        return f"each node takes {address!r} for itself, and they never meet"
    if in_task and _OWN_NAME_PATTERN.fullmatch(address):
        return f"each task puts its own node's name in for {address!r}, and they never meet"
    if any(_HOST_LIST_PATTERN.fullmatch(hole) for hole in holes(address)):
        return "this is the list of all nodes, and no address: `| head -n 1` takes the first"
    return ""


@rule(
    "local-rendezvous",
    "mistake",
    "localhost, or a list, as the meeting point of several nodes: they never meet",
    TORCHRUN_PAGE,
)
def local_rendezvous(lint_case: Case) -> Iterator[Found]:
    master = lint_case.script.shell.value("MASTER_ADDR") or ""
    has_bad_master = bool(_address_problem(master, in_task=False))  # which master-addr reports
    for launch in _across_nodes(lint_case):
        is_for_one = launch.copies is not None and launch.copies[1] < 2
        if is_for_one or "standalone" in launch.options:
            continue
        for option in launch.data.addresses:
            address = launch.given(option) or ""
            problem = _address_problem(address, in_task=launch.place.quoted)
            number = line_of_option(lint_case, launch, option)
            text = lint_case.script.at(number)
            is_here = re.search(r"localhost|127\.|::1|0\.0\.0\.0|host", text)
            if problem and (is_here or not has_bad_master):
                yield Found(number, problem)


@rule(
    "master-addr",
    "mistake",
    "an address of rank 0 that is not an address, or that every node takes for its own",
    "tests/outer/gpu/test_lint.py::test_what_the_silent_mistakes_do",
    "puts the job's first node into MASTER_ADDR",
)
def master_addr(lint_case: Case) -> Iterator[Found]:
    launches = [launch for launch in trainings(lint_case) if launch.by == "srun"]
    if not lint_case.facts.several or not any((launch.size.nodes or 0) > 1 for launch in launches):
        return
    shell = lint_case.script.shell
    for assignment in shell.assignments:
        place = assignment.place
        if assignment.name != "MASTER_ADDR" or place.choice or place.function or place.quoted:
            continue
        if any(a.name == assignment.name and a.line > assignment.line for a in shell.assignments):
            continue  # it may have another value by then
        # A program that gets the bracket expression takes the first name out of it.
        expands_list = re.search(
            r"scontrol|hostlist|nodeset|srun|python|sinfo|\b(perl|sed|awk)\b.*\[", assignment.value
        )
        uses_list = re.search(r"SLURM_(JOB_|STEP_)?NODELIST", assignment.value)
        reason = _address_problem(assignment.value, in_task=False)
        if not reason and uses_list and not expands_list:
            reason = (
                "the node list is written short, as gpu[01-04]: cut by hand it names no host; "
                "`scontrol show hostnames` spells it out"
            )
        if not reason:
            continue
        line_text = lint_case.script.at(assignment.line)
        is_plain = uses_list or re.fullmatch(r"\s*(export\s+)?MASTER_ADDR=[^;&|]*", line_text)
        prefix = re.match(r"\s*(export\s+)?", line_text)
        corrected_line = f"{prefix[0] if prefix else ''}MASTER_ADDR={_FIRST_NODE_EXPRESSION}"
        is_sure = (
            bool(is_plain)
            and line_text.lstrip().startswith(("MASTER_ADDR=", "export "))
            and line_text.count("=") == 1
            and not line_text.rstrip().endswith("\\")
        )
        yield Found(assignment.line, reason, corrected_line if is_sure else "", sure=is_sure)


@rule(
    "world-size",
    "mistake",
    "WORLD_SIZE is written as another number than that of the tasks that srun starts",
    f"{_SHOWN_TEST}::test_the_batch_shell_expands_before_srun",
)
def world_size(lint_case: Case) -> Iterator[Found]:
    shell = lint_case.script.shell
    by_line = {launch.line: launch for launch in trainings(lint_case)}
    prefixed = [
        (command.line, text)
        for command in shell.commands
        for name, text in command.set_before
        if name == "WORLD_SIZE"
    ]
    for line_number, size_text in prefixed:
        launch = by_line.get(line_number)
        if launch and launch.by == "srun" and launch.launcher == "python":
            yield from _wrong_size(lint_case, line_number, size_text, [launch])
    if prefixed or not shell.exported("WORLD_SIZE"):
        return
    launches = [n for n in trainings(lint_case) if n.launcher != "program"]
    if not launches or any(n.by != "srun" or n.launcher != "python" for n in launches):
        return
    line_number = next(a.line for a in shell.assignments if a.name == "WORLD_SIZE")
    yield from _wrong_size(lint_case, line_number, shell.value("WORLD_SIZE") or "", launches)


def _wrong_size(
    lint_case: Case, line_number: int, size_text: str, launches: list[Launch]
) -> Iterator[Found]:
    amount = amount_of(size_text, lint_case.script, lint_case.facts)
    declared = amount.number if amount else None
    counts = {launch.size.tasks for launch in launches}
    many_per_node = all((launch.size.tasks_per_node or 1) > 1 for launch in launches)
    tasks = counts.pop() if len(counts) == 1 else None
    if declared is None or not tasks or tasks < 2:
        return
    # A single task per node may start further processes by itself.
    if declared < tasks or (declared > tasks and many_per_node):
        reason = f"srun starts {tasks} tasks: WORLD_SIZE={declared} is wrong; $SLURM_NTASKS says it"
        yield Found(line_number, reason)
