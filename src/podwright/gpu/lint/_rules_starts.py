"""Rules about what starts: how often, on which nodes, and that nobody waits for a node that starts
nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podwright.gpu.lint._launches import Launch, read_mpi
from podwright.gpu.lint._rule_types import Case, Found, Level, rule
from podwright.gpu.lint._shell import holes

NOT_JUDGED = "not-judged"
_SHOWN_TEST = "tests/outer/gpu/test_lint_shown.py"
_OLD_TEST = "tests/outer/gpu/test_lint.py"
TORCHRUN_PAGE = "https://docs.pytorch.org/docs/stable/elastic/run.html"
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


def flag(option_name: str) -> str:
    """Return an option as launchers write it."""
    return f"--{option_name.replace('-', '_')}"


def _may_run_beside(launch: Launch) -> bool:
    return launch.place.behind or launch.by in ("remote", "unknown")


def starts_other_nodes(launch: Launch) -> bool:
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
        if starts_other_nodes(launch) or any(n.by in ("remote", "unknown") for n in neighbours):
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
    TORCHRUN_PAGE,
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
            option = flag(launch.data.nodes)
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
        return "config-file" not in launch.options and not starts_other_nodes(launch)
    return launch.copies == (1, 1)


@rule(
    "nnodes-unlike",
    "mistake",
    "the launcher waits for another count of nodes than the job has",
    TORCHRUN_PAGE,
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
    TORCHRUN_PAGE,
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
