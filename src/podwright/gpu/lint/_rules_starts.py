"""Rules about what starts: the processes of one training know each other, nobody waits for a node
that starts nothing, and ranks are distinct."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._address_expressions import FIRST_NODE_EXPRESSION, is_local
from podwright.gpu.lint._launches import Launch, amount_of, read_mpi, starts_unchanged
from podwright.gpu.lint._rule_types import Case, Found, Level, rule
from podwright.gpu.lint._shell import holes

NOT_JUDGED = "not-judged"
_SHOWN_TEST = "tests/outer/gpu/test_lint_shown.py"
_OLD_TEST = "tests/outer/gpu/test_lint.py"
_TORCHRUN_PAGE = "https://docs.pytorch.org/docs/stable/elastic/run.html"
_RANK_VARIABLES = ("SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID")
_RAW_RANK_PATTERN = re.compile(r"\$(SLURM_\w+|\{SLURM_\w+\})")
_OWN_NAME_PATTERN = re.compile(
    r"(\$\(hostname\b[^)]*\)|\$\{?(HOSTNAME|SLURMD_NODENAME)\}?)(:.*)?", re.S
)
_HOST_LIST_PATTERN = re.compile(r"\$\(\s*scontrol show hostnames?\b[^|]*\)")
_TASK_VARIABLE_PATTERN = re.compile(r"\$\{?SLURM_(PROCID|NODEID|LOCALID)\b|\$\{?SLURMD_NODENAME\b")


def trainings(lint_case: Case) -> list[Launch]:
    """Return the launches that can be the training: no tools, and nothing within $(…)."""
    return [launch for launch in lint_case.launches if launch.may_train]


def line_of_option(lint_case: Case, launch: Launch, option_name: str) -> int:
    """Return the line that has an option of a launcher."""
    pattern = re.compile(option_name.replace("-", "[-_]"))
    for number in range(launch.line, launch.last + 1):
        if pattern.search(lint_case.script.at(number)):
            return number
    return launch.line


def _across_nodes(lint_case: Case) -> Iterator[Launch]:
    """Yield the launchers that srun starts on several nodes."""
    for launch in trainings(lint_case):
        if launch.distributed and launch.by == "srun" and (launch.size.nodes or 1) > 1:
            yield launch


def _flag(option_name: str) -> str:
    return f"--{option_name.replace('-', '_')}"


def _may_run_beside(launch: Launch) -> bool:
    return launch.place.behind or launch.by in ("remote", "unknown")


def _deals_ranks(launch: Launch) -> bool:
    """Return whether a rendezvous numbers the copies, whatever their rank option is."""
    return launch.given("rdzv-backend") in launch.data.dealing or "standalone" in launch.options


def _starts_other_nodes(launch: Launch) -> bool:
    """Return whether this launcher reaches other nodes by itself, or may."""
    if launch.launcher == "deepspeed":
        options = ("hostfile", "H", "no-ssh", "node-rank", "force-multi", "launcher")
        return launch.given(*options) is not None
    is_standard = launch.given("deepspeed-multinode-launcher") == "standard"
    return not is_standard and launch.given("deepspeed-hostfile", "use-deepspeed") is not None


def _has_file(launch: Launch) -> bool:
    """Return whether a file that lint does not read may give options: accelerate's own does."""
    is_settled = "config-file" not in launch.options and "num-machines" in launch.options
    return launch.launcher == "accelerate" and not is_settled


@rule(
    "launcher-on-one-node",
    "mistake",
    "the script's commands run on the first node only; without srun the others stay idle, or the "
    "launcher waits for them for ever",
    f"{_OLD_TEST}::test_what_the_silent_mistakes_do",
)
def launcher_on_one_node(lint_case: Case) -> Iterator[Found]:
    if not lint_case.facts.several:
        return
    launches = trainings(lint_case)
    for launch in launches:
        if not launch.distributed or launch.by or not launch.certain or launch.place.behind:
            continue
        neighbours = [other for other in launches if other is not launch]
        if _starts_other_nodes(launch) or any(n.by in ("remote", "unknown") for n in neighbours):
            continue
        is_deepspeed = launch.launcher == "deepspeed"  # which takes what is there, and waits not
        waits = not is_deepspeed and bool(launch.copies and launch.copies[0] > 1)
        # What ran in the foreground has ended: only what runs beside it can be waited for.
        if any(n.place.behind or (n.by and not waits) for n in neighbours):
            continue
        consequence = "it waits for ever for the others" if waits else "the others stay idle"
        remedy = "a --hostfile names them" if is_deepspeed else "start it by srun"
        reason = (
            f"a batch script runs on the first of its {lint_case.facts.nodes} nodes only, and "
            f"{consequence}: {remedy}"
        )
        yield Found(launch.line, reason, level="better" if _has_file(launch) else "mistake")


def _copies_on_node(lint_case: Case, launch: Launch) -> int | None:
    """Return how often srun starts the launcher on one node."""
    if launch.size.tasks_per_node is None and not lint_case.facts.nodes_specified:
        return launch.size.tasks  # for one node, or for some: no launcher is given that number
    return launch.size.tasks_per_node


def _crowds_gpus(lint_case: Case, launch: Launch) -> Level | None:
    """Return whether several copies on a node start processes on the same GPUs."""
    copies, size, count = _copies_on_node(lint_case, launch), launch.size, launch.processes
    if launch.by != "srun" or launch.unread or launch.place.function or not copies or copies < 2:
        return None
    world = bool(launch.copies and launch.copies[1] >= (size.tasks or copies))
    many = not (count and size.gpus_per_node and count * copies <= size.gpus_per_node)
    if count != 1 and many and (count or not world):
        return "mistake"
    can_collide = count and (count > 1 or world) and (size.gpus_per_node or 0) > 1
    return "better" if can_collide and not launch.own_gpus else None


@rule(
    "launcher-in-every-task",
    "mistake",
    "srun starts the launcher once for each task, and each launcher starts a process for each GPU",
    f"{_OLD_TEST}::test_what_more_silent_mistakes_do",
)
def launcher_in_every_task(lint_case: Case) -> Iterator[Found]:
    for launch in trainings(lint_case):
        level = _crowds_gpus(lint_case, launch) if launch.distributed else None
        if level is None:
            continue
        line_number = (
            lint_case.script.line_of("ntasks-per-node", "tasks-per-node", "ntasks") or launch.line
        )
        if launch.option("ntasks", "ntasks-per-node", "tasks-per-node"):
            line_number = launch.line
        line_text = lint_case.script.at(line_number)
        corrected_line = re.sub(r"(tasks-per-node[= ])\d+", r"\g<1>1", line_text, count=1)
        copies = _copies_on_node(lint_case, launch)
        if level == "better":
            reason = (
                f"srun starts the launcher {copies} times on a node, and each counts the node's "
                "GPUs from 0: one launcher for each node gives each process its own"
            )
            yield Found(line_number, reason, level=level)
            continue
        reason = (
            f"srun starts the launcher {copies} times on a node, and each starts a process "
            "for each GPU: one launcher for each node is enough"
        )
        if launch.option("ntasks-per-node", "tasks-per-node") and not launch.option("ntasks"):
            reason += f" (srun hears --ntasks={launch.size.nodes or 1} beside the job's tasks only)"
        launcher = launch.data
        written = launch.options.get(launcher.processes, "")
        if "NTASKS" in written:
            reason += f", with the GPUs of a node as --{launcher.processes.replace('-', '_')}"
        if (launch.size.nodes or 1) > 1 and launcher.nodes not in launch.options:
            reason += f", and --{launcher.nodes.replace('-', '_')} makes one training of them"
        yield Found(line_number, reason, corrected_line if corrected_line != line_text else "")


@rule(
    "separate-trainings",
    "mistake",
    "srun starts a launcher on several nodes that is not told of the others: they make no common "
    "training",
    _TORCHRUN_PAGE,
)
def separate_trainings(lint_case: Case) -> Iterator[Found]:
    for launch in trainings(lint_case):
        if launch.by != "srun" or not launch.distributed or not launch.certain or launch.elsewhere:
            continue
        copies, nodes = launch.size.tasks or launch.size.nodes or 1, launch.size.nodes or 1
        crowds = _crowds_gpus(lint_case, launch) == "mistake"  # which is told instead
        if copies < 2 or crowds or launch.option("multi-prog"):
            continue
        if _is_told_its_share(lint_case, launch):
            continue
        is_mistake = nodes > 1 and launch.launcher != "accelerate"
        if launch.launcher == "deepspeed":
            if launch.given("no-ssh", "node-rank") is not None:
                continue
            reason = (
                f"each of {copies} tasks starts deepspeed, and deepspeed starts a whole training: "
                "start it once, without srun, with a --hostfile"
            )
        elif launch.data.nodes in launch.options or not _is_only_copy(launch):
            continue
        else:
            where = f"{nodes} nodes" if nodes > 1 else f"{copies} tasks"
            option = _flag(launch.data.nodes)
            reason = f"the {where} make no common training: {option} is missing, and it is 1"
            if launch.launcher == "accelerate":
                reason += " unless accelerate's own configuration says another number"
            is_mistake = is_mistake and "standalone" not in launch.options
        yield Found(launch.line, reason, level="mistake" if is_mistake else "better")


def _is_told_its_share(lint_case: Case, launch: Launch) -> bool:
    """Return whether the text of a task's shell gives each copy work of its own."""
    texts = [other.words for other in lint_case.launches if other.line == launch.line]
    is_ranked = launch.data.rank in launch.options
    words = launch.program if is_ranked else [word for text in texts for word in text]
    return bool(_TASK_VARIABLE_PATTERN.search(" ".join(words)))


def _is_only_copy(launch: Launch) -> bool:
    """Return whether a launcher without the option takes itself for the only copy."""
    if launch.launcher == "accelerate":
        return "config-file" not in launch.options and not _starts_other_nodes(launch)
    return launch.copies == (1, 1)


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
        if rank is None or is_for_one or _deals_ranks(launch) or _starts_other_nodes(launch):
            continue
        line_number = line_of_option(lint_case, launch, launch.data.rank)
        option = _flag(launch.data.rank)
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
    _TORCHRUN_PAGE,
)
def no_node_rank(lint_case: Case) -> Iterator[Found]:
    for launch in trainings(lint_case):
        if launch.launcher not in ("torchrun", "accelerate") or launch.by != "srun":
            continue
        launcher, option = launch.data, _flag(launch.data.rank)
        waits = launch.copies is not None and launch.copies[0] > 1
        if not waits or not launch.judged or not launch.program or _starts_other_nodes(launch):
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


@rule(
    "nnodes-unlike",
    "mistake",
    "the launcher waits for another count of nodes than the job has",
    _TORCHRUN_PAGE,
)
def nnodes_unlike(lint_case: Case) -> Iterator[Found]:
    facts = lint_case.facts
    for launch in trainings(lint_case) if lint_case.script.settled else ():
        if launch.launcher not in ("torchrun", "accelerate") or launch.by not in ("", "srun"):
            continue
        option = launch.data.nodes
        if not launch.certain or launch.place.behind or option not in launch.options:
            continue
        nodes = launch.size.nodes if launch.by == "srun" else facts.nodes
        if nodes is None or launch.copies is None:
            continue
        fewest, largest = launch.copies
        if nodes == 1 and launch.given(launch.data.rank) not in (None, "0"):
            continue  # one of several jobs, each of which starts one node of the launch
        if fewest <= nodes <= largest:
            continue
        if launch.by == "srun" and fewest <= (launch.size.tasks or 0) <= largest:
            continue  # a launcher for each task, and its options fit that
        if largest < nodes and launch.by != "srun":
            continue  # launcher-on-one-node reports it
        if fewest > nodes and any(_may_run_beside(other) for other in trainings(lint_case)):
            continue  # which may start the others
        consequence = "it waits for ever" if fewest > nodes else "it leaves nodes idle"
        if launch.by == "srun" and largest == 1:
            consequence = "each node trains alone"
        count = f"{fewest}:{largest}" if fewest != largest else str(fewest)
        reason = f"--{option}={count} on {nodes} node{'s' * (nodes > 1)}: {consequence}"
        is_explicit = facts.nodes_specified or launch.option("nodes") is not None
        line_number = line_of_option(lint_case, launch, option)
        yield Found(line_number, reason, level="mistake" if is_explicit else "better")


def _address_problem(address: str, *, in_task: bool) -> str:
    """Return why an address of rank 0 leads the nodes nowhere; empty where it may lead there."""
    if is_local(address):
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
    _TORCHRUN_PAGE,
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
    f"{_OLD_TEST}::test_what_the_silent_mistakes_do",
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
        corrected_line = f"{prefix[0] if prefix else ''}MASTER_ADDR={FIRST_NODE_EXPRESSION}"
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


@rule(
    "one-process-of-many",
    "better",
    "a job of several tasks starts one plain python, without srun; over several nodes a mistake",
    f"{_OLD_TEST}::test_what_the_silent_mistakes_do",
)
def one_process_of_many(lint_case: Case) -> Iterator[Found]:
    launches, facts = trainings(lint_case), lint_case.facts
    if not launches or any(n.by or n.launcher != "python" for n in launches):
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
    last = launches[-1]
    is_mistake = facts.several and last.certain and not _may_start_tasks(last, tasks)
    yield Found(last.line, reason, level="mistake" if is_mistake else "better")


def _may_start_tasks(launch: Launch, tasks: int | None) -> bool:
    """Return whether an argument of the program names something that starts tasks, or their number
    (`--num_gpus=1024`): then the program may start them itself.
    """
    if any(
        re.search(r"(^|[=:\"'/_-])(srun|slurm|mpirun|mpiexec|submitit|launcher=)", argument)
        for argument in launch.words[1:]
    ):
        return True
    pattern = r"(?i)--?\w*(gpu|task|rank|proc|world|worker|np)\w*[= ](\d+)(?!\S)"
    counts = re.findall(pattern, " ".join(launch.words[1:]))
    return bool(tasks) and any(int(count) == tasks for _, count in counts)


@rule(
    "more-ranks-than-tasks",
    "mistake",
    "mpirun of Open MPI asked for more ranks than the job has tasks: it refuses for lack of slots",
    "tests/outer/gpu/test_lint_programs.py::test_mpirun_refuses_more_ranks_than_tasks",
)
def more_ranks_than_tasks(lint_case: Case) -> Iterator[Found]:
    script_text = lint_case.script.text.lower()
    tasks = lint_case.facts.tasks if lint_case.facts.tasks_specified else None
    if not tasks or "oversubscribe" in script_text or "use-hwthread" in script_text:
        return
    is_open_mpi = "openmpi" in script_text or "--mca" in script_text or "ompi" in script_text
    for launch in lint_case.launches:
        ranks = read_mpi(launch.words)[0] if launch.by == "mpirun" else None
        if ranks is None or ranks <= tasks:
            continue
        line_text = lint_case.script.at(launch.line)
        yield Found(
            launch.line,
            f"mpirun of Open MPI finds {tasks} slots for {ranks} ranks and refuses",
            re.sub(r"(\s-(?:n|np)\s+)\d+", rf"\g<1>{tasks}", line_text, count=1),
            level="mistake" if is_open_mpi else "better",
        )


@rule(
    "ray-symmetric-run",
    "mistake",
    "srun of `ray symmetric-run` ends with an error though the program succeeded (seen with Ray "
    "2.60): a worker waits for the head that has gone, and fails",
    "https://docs.ray.io/en/latest/cluster/vms/user-guides/community/slurm.html",
)
def ray_symmetric_run(lint_case: Case) -> Iterator[Found]:
    for launch in trainings(lint_case):
        size = launch.size
        has_many_nodes = lint_case.facts.several or (size.nodes or size.tasks or 0) > 1
        if launch.by != "srun" or not has_many_nodes or launch.words[1:2] != ("symmetric-run",):
            continue
        if launch.words[0].rpartition("/")[2] == "ray":
            reason = (
                "the job fails though its program succeeded (seen with Ray 2.60): start the head "
                "and the workers by themselves, as `podwright slurm template ray` does"
            )
            yield Found(launch.line, reason)


@rule(
    "python-behind-launcher",
    "mistake",
    "`torchrun python train.py`: the launcher puts python before the program itself, and python "
    "finds no file of the name python",
    _TORCHRUN_PAGE,
)
def python_behind_launcher(lint_case: Case) -> Iterator[Found]:
    for launch in trainings(lint_case):
        if not launch.distributed or not launch.judged or len(launch.program) < 2:
            continue
        if launch.given("no-python", "module", "run-path") is not None:
            continue
        if not re.fullmatch(r"python[\d.]*", launch.program[0]):
            continue
        line_number = line_of_option(lint_case, launch, f"{launch.program[0]} ")
        line_text = lint_case.script.at(line_number)
        words = re.findall(r"(?<!\S)python[\d.]*\s+", line_text)
        corrected_line = line_text.replace(words[0], "", 1) if len(words) == 1 else ""
        reason = (
            f"{launch.data.call} puts python before the program itself: it looks for a file named "
            f"{launch.program[0]}"
        )
        yield Found(line_number, reason, corrected_line)


@rule(
    "unset-program",
    "better",
    "the program is named by a variable that the script does not set",
    f"{_SHOWN_TEST}::test_a_variable_that_nobody_sets_is_no_program",
)
def unset_program(lint_case: Case) -> Iterator[Found]:
    script, shell = lint_case.script, lint_case.script.shell
    may_set = {"source", ".", "eval", "module", "ml", "read"}
    if script.template or any(may_set & set(command.words[:1]) for command in shell.commands):
        return
    set_here = shell.names | shell.unsteady
    for launch in trainings(lint_case):
        program = launch.program[0] if launch.program and launch.launcher != "program" else ""
        for name in filter(str.isidentifier, holes(program)):
            is_foreign = name.startswith("SLURM") or name in ("HOME", "USER", "PWD", "TMPDIR")
            is_set = name in set_here or re.search(rf"\$\{{{name}:?=", script.text)
            if is_foreign or is_set:
                continue
            reason = (
                f"nothing here sets ${name}, which names the program: it is empty unless the "
                "environment of sbatch has it"
            )
            yield Found(launch.line, reason)


@rule(
    NOT_JUDGED,
    "better",
    "a launcher that lint does not know, or options that it cannot read: what this starts is not "
    "judged",
    "tests/gpu/lint/test_corrections.py::test_no_mistakes_found_says_what_was_not_judged",
)
def not_judged(lint_case: Case) -> Iterator[Found]:
    facts = lint_case.facts
    if not (facts.several or facts.asks_gpus):
        return
    unjudged = [
        launch
        for launch in trainings(lint_case)
        if not launch.judged or "config-file" in launch.options
    ]
    if unjudged:
        names = {_name_of(launch): launch.line for launch in reversed(unjudged)}
        listed = ", ".join(f"{name} (line {line})" for name, line in reversed(names.items()))
        yield Found(unjudged[0].line, f"not judged is what this starts: {listed}")


def _name_of(launch: Launch) -> str:
    if launch.judged:
        return "accelerate by a file that is not here"
    name = launch.launcher if launch.distributed else launch.words[0].rpartition("/")[2]
    return name if re.fullmatch(r"[\w.-]+", name) else "a command in a variable"
