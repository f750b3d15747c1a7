"""The model of what a script starts: which command starts how many processes, on how many nodes,
with which world size, rank, meeting place and GPUs each.

A number is a whole number, an expression of Slurm's variables (`Amount`), or None: not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.lint._amounts import Amount, calculate, constant, variable
from podwright.gpu.lint._job_facts import JobFacts
from podwright.gpu.lint._launchers import (
    LAUNCHERS,
    Launcher,
    behind_retry,
    find_call,
    read_configuration,
)
from podwright.gpu.lint._script import Script
from podwright.gpu.lint._shell import HOLE_CLOSE, HOLE_OPEN, ShellCommand, WordPlace, inner_text
from podwright.gpu.requests import Given, is_number, known, parse_options, read_request

# Words in front of a program that it never sees.
_PREFIXES = {"time", "exec", "nohup", "command", "sudo", "then", "!", "env", "setsid"}
# Programs that start the program behind them, after options and numbers of their own.
_RUNNER_PATTERN = re.compile(
    r"(\S*/)?(timeout|nice|ionice|stdbuf|numactl|taskset|chrt|catchsegv|setarch|tini)"
)
# Tools that start no training, wherever they run.
_TOOLS = {
    ".", "7z", ":", "[", "[[", "alias", "amd-smi", "aria2c", "awk", "aws", "azcopy", "basename",
    "bc", "bg", "break", "builtin", "cat", "cd", "chmod", "chown", "clear", "cmake", "cmp",
    "column", "comm", "complete", "continue", "cp", "curl", "cut", "date", "dc", "dcgmi", "dd",
    "declare", "df", "diff", "dig", "dirname", "disown", "dos2unix", "dstat", "du", "echo", "egrep",
    "enable", "env", "eval", "exit", "export", "expr", "fallocate", "false", "fg", "file", "fmt",
    "fold", "free", "fusermount", "fusermount3", "g++", "gawk", "gcc", "gcloud", "gdown", "getent",
    "getfacl", "getopts", "git", "globus", "gpustat", "grep", "gsutil", "gunzip", "gzip", "hash",
    "head", "hf", "history", "host", "hostid", "hostname", "htop", "huggingface-cli", "hwloc-ls",
    "ibnetdiscover", "ibstat", "ibstatus", "ibv_devices", "ibv_devinfo", "iconv", "id", "ifconfig",
    "iostat", "ip", "jobs", "join", "jot", "jq", "kaggle", "kill", "ldconfig", "ldd", "let", "lfs",
    "ln", "local", "logger", "ls", "lscpu", "lsof", "lspci", "lstopo", "lstopo-no-graphics", "mail",
    "mailx", "mapfile", "md5sum", "mkdir", "mktemp", "ml", "module", "mount", "mpstat", "mv",
    "netstat", "newgrp", "nl", "nproc", "nslookup", "numastat", "nvcc", "nvidia-cuda-mps-control",
    "nvidia-debugdump", "nvidia-persistenced", "nvidia-smi", "nvtop", "od", "paste", "patch",
    "pigz", "ping", "pip", "pip-sync", "pip3", "pkill", "popd", "printenv", "printf", "ps", "pushd",
    "pwd", "rclone", "read", "readarray", "readlink", "readonly", "realpath", "return", "rev", "rm",
    "rmdir", "rocm-smi", "rocminfo", "rsync", "s3cmd", "s5cmd", "sacct", "sacctmgr", "sattach",
    "sbcast", "scancel", "scontrol", "scp", "sdiag", "sed", "seff", "sendmail", "seq", "set",
    "setfacl", "sftp", "sha1sum", "sha256sum", "sha512sum", "shift", "shopt", "shuf", "sinfo",
    "sleep", "sort", "source", "split", "sprio", "squeue", "ss", "ssh-add", "ssh-agent",
    "ssh-keygen", "ssh-keyscan", "sstat", "stat", "sync", "tac", "tail", "tar", "tee",
    "tensorboard", "test", "times", "top", "touch", "tput", "tr", "trap", "true", "truncate",
    "type", "typeset", "ulimit", "umask", "umount", "uname", "uniq", "unpigz", "unset", "unzip",
    "uptime", "usermod", "usleep", "virtualenv", "vmstat", "wait", "watch", "wc", "wget", "which",
    "whoami", "xxd", "yes", "yq", "zip", "zstd",
}  # fmt: skip
# Tools with one or two commands that start a program; all of their others do not.
_MANAGER_COMMANDS = {
    "conda": ("run",), "mamba": ("run",), "micromamba": ("run",), "uv": ("run", "x"),
    "poetry": ("run",), "pipenv": ("run",), "pixi": ("run",), "hatch": ("run",),
    "singularity": ("exec", "run", "shell"), "apptainer": ("exec", "run", "shell"),
    "docker": ("exec", "run", "start"), "podman": ("exec", "run", "start"),
    "podman-hpc": ("exec", "run", "start", "shared-run"), "enroot": ("start", "exec", "batch"),
    "npm": ("run", "start", "exec"), "wandb": ("agent", "launch"), "dvc": ("repro", "exp", "run"),
    "find": ("-exec", "-execdir"), "ray": ("start", "job", "symmetric-run", "up", "submit"),
}  # fmt: skip
_PYTHON_TOOLS = {
    "pip", "venv", "ensurepip", "json.tool", "compileall", "zipfile", "tarfile", "site",
    "virtualenv", "http.server", "torch.utils.collect_env", "ipykernel", "spacy",
    "nltk.downloader", "zipapp",
}  # fmt: skip
# Programs that start the program behind them unchanged: launchers, containers, environments, tools.
_STARTER_PATTERN = re.compile(
    r"(\S*/)?(python[\d.]*|torchrun|torch_run|accelerate(-launch)?|deepspeed|singularity|apptainer|"
    r"shifter|docker|podman|podman-hpc|enroot|ch-run|uv|uvx|poetry|pipenv|pixi|conda|mamba|micromamba|"
    r"hatch|nsys|ncu|rocprof\w*|xvfb-run|bash|sh|env|coverage|scalene|numactl|taskset|timeout|nice|stdbuf)"
)
_REMOTE_PATTERN = re.compile(
    r"(\S*/)?(ssh|pdsh|clush|parallel|xargs|parallel-ssh|pssh|ibrun|aprun|jsrun|flux)"
)
_SSH_VALUES = set("bBcDeEFiIJlLmoOpQRSwW")
_XARGS_VALUES = {"-n", "-P", "-I", "-L", "-d", "-a", "-s", "-E", "-j", "--jobs", "-N", "--joblog"}
_MPIRUN_PATTERN = re.compile(r"(\S*/)?mpi(run|exec)(\.\w+)?")
# Options of plugins, used to find the start of the program; they are not judged. The first take no
# value. The others are those of pyxis that take one (its wiki, "Usage").
_SRUN_FLAGS = {
    "container-mount-home", "no-container-mount-home", "container-remap-root",
    "no-container-remap-root", "container-entrypoint", "no-container-entrypoint",
    "container-entrypoint-log", "container-writable", "container-readonly", "clearenv", "vpn",
}  # fmt: skip
_SRUN_VALUES = {
    "container-image", "container-mounts", "container-workdir", "container-name", "container-save",
    "container-env",
}  # fmt: skip
_MPI_VALUE_COUNTS = {
    "n": 1, "np": 1, "c": 1, "x": 1, "H": 1, "host": 1, "hostfile": 1, "machinefile": 1,
    "map-by": 1, "bind-to": 1, "rank-by": 1, "mca": 2, "gmca": 2, "wdir": 1, "wd": 1, "prefix": 1,
    "npernode": 1, "N": 1, "npersocket": 1, "path": 1, "output-filename": 1, "output": 1,
}  # fmt: skip
_MPI_FLAGS = {
    "display-map", "report-bindings", "tag-output", "allow-run-as-root", "v", "verbose", "q",
    "bynode", "bycore", "byslot", "bind-to-core", "bind-to-none", "timestamp-output",
}  # fmt: skip
_VALUE_PATTERN = re.compile(
    f"(?:{HOLE_OPEN}(.*){HOLE_CLOSE}|\\$\\{{?(\\w+)\\}}?|\\$(\\(\\(.*\\)\\)))"
)
_NODE_COUNT_PATTERN = re.compile(r"\$\(\s*scontrol show hostnames?\b[^|]*\|\s*wc -l\s*\)")
_GPU_COUNT_PATTERN = re.compile(r"\$\(\s*nvidia-smi (-L|--list-gpus)\s*\|\s*wc -l\s*\)")
_OWN_GPU_OPTIONS = {"gpus-per-task", "gpu-bind", "tres-per-task", "ntasks-per-gpu", "tres-bind"}
_GPU_OPTIONS = {"gres", "gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket"}
_MASKING_PATTERN = re.compile(r"(CUDA|ROCR|HIP)_VISIBLE_DEVICES")


class Size(NamedTuple):
    """The nodes and tasks of one launch, with its tasks and GPUs per node."""

    nodes: int | None
    tasks: int | None
    tasks_per_node: int | None
    gpus_per_node: int | None


_UNKNOWN_SIZE = Size(None, None, None, None)


class Launch(NamedTuple):
    """One command that starts processes.

    launcher: of LAUNCHERS, "python", "program", "tool" or "shell" (whose commands are launches of
    their own). by: srun, mpirun, remote, unknown, or nothing for the batch shell. step: the options
    of srun; unread: it has words that could not be read. options: those of the launcher, with
    dashes; complete: whether all of them could be told from the program's own.
    size: the copies of the launcher. copies: the least and most that it says there are. processes:
    what each copy starts. own_gpus: whether each copy sees GPUs that no other sees.
    """

    launcher: str
    by: str
    line: int
    last: int
    place: WordPlace
    words: tuple[str, ...]
    step: tuple[Given, ...] = ()
    unread: bool = False
    options: Mapping[str, str] = {}
    program: tuple[str, ...] = ()
    complete: bool = True
    size: Size = _UNKNOWN_SIZE
    copies: tuple[int, int] | None = None
    processes: int | None = None
    own_gpus: bool = False

    @property
    def distributed(self) -> bool:
        """Whether a launcher starts processes that communicate."""
        return self.launcher in LAUNCHERS

    @property
    def data(self) -> Launcher:
        """The facts about the launcher. Raises KeyError where the launch is not distributed."""
        return LAUNCHERS[self.launcher]

    @property
    def may_train(self) -> bool:
        """Whether this can be the training: no tool, and not within $(…)."""
        inline = self.launcher == "python" and self.program[:1] in (("-c",), ())
        return self.launcher not in ("tool", "shell") and not self.place.within and not inline

    @property
    def certain(self) -> bool:
        """Whether it runs exactly once, with the options that the script shows."""
        place = self.place
        around = place.choice or place.function or place.loop or place.within
        return self.complete and not self.unread and not around

    @property
    def judged(self) -> bool:
        """Whether the model knows who starts it, and with which options."""
        return self.by not in ("remote", "unknown") and self.complete and not self.unread

    def given(self, *names: str) -> str | None:
        """Return the value of the first of these options of the launcher that was given."""
        return next((self.options[name] for name in names if name in self.options), None)

    def option(self, *names: str) -> Given | None:
        """Return the last of these options of srun."""
        return next((option for option in reversed(self.step) if option.name in names), None)

    @property
    def elsewhere(self) -> bool:
        """Whether srun runs in another job, or in one part of a job."""
        jobid = self.option("jobid")
        job = jobid is not None and not re.search(r"SLURM_JOB_?ID", jobid.value)
        return job or self.option("het-group", "pack-group") is not None


def read_launches(script: Script, facts: JobFacts) -> Iterator[Launch]:
    """Yield what a script starts, in order."""
    job = Size(facts.nodes, facts.tasks, None, facts.gpus_per_node)
    for command in script.shell.commands:
        launch = read_command(command)
        if launch is None:
            continue
        launch = launch._replace(options=_with_file(launch, script))
        size = _size(launch, facts, _Meaning(script, facts, _UNKNOWN_SIZE))
        launch = launch._replace(size=size, own_gpus=_has_own_gpus(launch, script))
        if launch.distributed:
            meaning = _Meaning(script, facts, size if launch.place.quoted else job)
            says_elsewhere = any(
                re.search(rf"\b{launch.data.environment or ' '}", name)
                for name in (*script.shell.names, *_passed_on(launch))
            )
            copies = _copies(launch, meaning, says_elsewhere=says_elsewhere)
            processes = _processes(launch, meaning, size, says_elsewhere=says_elsewhere)
            launch = launch._replace(copies=copies, processes=processes)
        yield launch


def _passed_on(launch: Launch) -> list[str]:
    """Return the variables that srun's --export sets."""
    return [option.value for option in launch.step if option.name == "export"]


def _with_file(launch: Launch, script: Script) -> Mapping[str, str]:
    """Return the options of a launch, with those of accelerate's file where it can be read."""
    path = launch.given("config-file") if launch.launcher == "accelerate" else None
    text = script.file_text(path) if path and HOLE_OPEN not in path else ""
    if not text:
        return launch.options
    given = {name: value for name, value in launch.options.items() if name != "config-file"}
    return {**read_configuration(text), **given}


def read_command(command: ShellCommand) -> Launch | None:
    """Return what a command starts; None for echo, cd and others that start nothing by themselves.

    Its numbers are not known yet: they hang on the job.
    """
    words = list(command.words)
    by, unread = "", False
    step: list[Given] = []
    while words:
        word = words[0]
        if word in _PREFIXES or re.fullmatch(r"\w+=.*", word, re.S):
            words = words[1:]
        elif _RUNNER_PATTERN.fullmatch(word) and len(words) > 1:
            words = _behind_runner(words)
        elif behind := behind_retry(words):
            words = behind
        elif re.fullmatch(r"(\S*/)?srun", word) and not by:
            by = "srun"
            step, words, unread = _read_step(words[1:])
        elif _MPIRUN_PATTERN.fullmatch(word) and not by:
            by = "mpirun"
            break
        elif _REMOTE_PATTERN.fullmatch(word) and not by:
            by = "remote"
            break
        else:
            by = by or ("unknown" if HOLE_OPEN in word else "")
            break
    inner = list(command.words[command.outside :])
    is_tool = _is_tool(words, by) or (command.outside > 0 and _is_tool(inner, ""))
    if not words or (is_tool and not by and words[0] != "sleep"):
        return None
    unread = unread or command.garbled
    call = find_call(words)
    name = call.name
    if is_tool:
        name = "tool"
    elif inner_text(tuple(words)) is not None:
        name = "shell"
    elif not by and call.name != "program" and not _STARTER_PATTERN.fullmatch(words[0]):
        by = "unknown"  # a wrapper of the site
    return Launch(
        name, by, command.line, command.last, command.place, tuple(words), tuple(step), unread,
        call.options, call.program, call.complete,
    )  # fmt: skip


def starts_unchanged(launch: Launch) -> bool:
    """Return whether the first word is known to start what follows unchanged."""
    return bool(launch.words) and bool(_STARTER_PATTERN.fullmatch(launch.words[0]))


def _behind_runner(words: list[str]) -> list[str]:
    """Return the program behind `timeout 60` or `numactl --cpunodebind=0`."""
    index = 1
    while index < len(words) and re.fullmatch(
        r"-.*|[\d.]+[smhd]?|0x[\da-f]+|\d[\d,-]*", words[index]
    ):
        index += 1
    return words[index:]


def _is_tool(words: list[str], by: str) -> bool:
    """Return whether the program can train nothing."""
    if not words:
        return False
    if by == "mpirun":
        return _is_tool(read_mpi(words)[1], "")
    if by == "remote":
        return _is_remote_tool(words)
    first, name = words[0], words[0].rpartition("/")[2]
    if len(words) == 1 and first.lstrip(HOLE_OPEN).startswith("$("):
        return True  # eval "$(conda shell.bash hook)": settings that a program prints
    if name in _MANAGER_COMMANDS:
        return not any(word in _MANAGER_COMMANDS[name] for word in words[1:])
    if re.fullmatch(r"python[\d.]*", name):
        options = words[1:3]
        return options[:1] in (["-V"], ["--version"], ["-VV"]) or (
            options[:1] == ["-m"] and options[1:] != [] and options[1] in _PYTHON_TOOLS
        )
    return name in _TOOLS or first in _TOOLS


def _is_remote_tool(words: list[str]) -> bool:
    name = words[0].rpartition("/")[2]
    index = 1
    if name == "ssh":
        while index < len(words) and words[index].startswith("-"):
            if re.match(r"-\w*N", words[index]):
                return True  # a tunnel: no command runs
            index += 1 + (len(words[index]) == 2 and words[index][1] in _SSH_VALUES)
        remote = words[index + 1 :]
        return not remote or _is_tool(" ".join(remote).split(), "")
    if name in ("xargs", "parallel"):
        while index < len(words) and words[index].startswith("-"):
            index += 1 + (words[index] in _XARGS_VALUES)
        if index >= len(words):
            return name == "xargs"  # which then echoes
        return _is_tool(" ".join(words[index:]).split(), "")
    return False


def read_mpi(words: Sequence[str]) -> tuple[int | None, list[str]]:
    """Return (the ranks that Open MPI's mpirun is to start, the program behind its options).

    The ranks are None if they are not given, or some options are not known.
    """
    ranks, all_known, index = None, True, 1
    while index < len(words) and words[index].startswith("-"):
        name = words[index].lstrip("-")
        value = words[index + 1] if index + 1 < len(words) else ""
        if name in ("n", "np", "c") and is_number(value):
            ranks = int(value)
        all_known = all_known and (name in _MPI_VALUE_COUNTS or name in _MPI_FLAGS)
        index += 1 + _MPI_VALUE_COUNTS.get(name, 0)
    return ranks if all_known else None, list(words[index:])


def _read_step(words: list[str]) -> tuple[list[Given], list[str], bool]:
    """Return (options of srun, the words behind them, whether some could not be read)."""
    known_options = known("srun")
    options: list[Given] = []
    unread = False
    left = list(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word = left[0]
        if word == "--":
            return options, left[1:], unread
        name = word[2:].partition("=")[0] if word.startswith("--") else ""
        if (
            name
            and name not in known_options
            and sum(known_name.startswith(name) for known_name in known_options) != 1
        ):
            left = left[1:]
            if "=" in word or name in _SRUN_FLAGS:
                continue  # a plugin's option, which is certainly no more than this word
            unread = unread or name not in _SRUN_VALUES
            if left and not left[0].startswith("-"):
                left = left[1:]
            continue
        consumed = 1
        try:
            try:
                parsed, _ = parse_options([word], "srun")
            except InvalidRequest:
                parsed, _ = parse_options(left[:2], "srun")
                consumed = 2
            options += parsed
        except InvalidRequest:
            unread = True
        left = left[consumed:]
    return options, left, unread or bool(left and left[0].startswith(HOLE_OPEN))


# Numbers


def _size(launch: Launch, facts: JobFacts, meaning: _Meaning) -> Size:
    """The numbers of the srun around a launch, with the job's numbers where srun gives none.

    Once the job has a number of tasks, srun hears its own --ntasks, and --ntasks-per-node only
    beside --nodes, from some release on (tests/outer/gpu/test_lint_shown.py).
    """
    if launch.by != "srun":
        return Size(1, 1, 1, facts.gpus_per_node)
    nodes = _option_number(launch, meaning, "nodes")
    tasks = _option_number(launch, meaning, "ntasks")
    if launch.elsewhere:
        return Size(nodes, tasks, None, None)
    tasks_per_node = _option_number(launch, meaning, "ntasks-per-node", "tasks-per-node")
    names = {option.name for option in launch.step}
    gpus_per_node = _step_gpus(launch) if names & _GPU_OPTIONS else facts.gpus_per_node
    has_own_nodes = "nodes" in names and nodes != facts.nodes
    says_per_node = bool(names & {"ntasks-per-node", "tasks-per-node"})
    nodes = nodes if "nodes" in names else facts.nodes
    if "ntasks" in names:
        if tasks is not None and nodes and tasks <= nodes:
            nodes, tasks_per_node = tasks, 1
        elif tasks_per_node is None and tasks and nodes and tasks % nodes == 0:
            tasks_per_node = tasks // nodes
    elif facts.tasks_specified and (has_own_nodes or ("nodes" in names and says_per_node)):
        is_same = not has_own_nodes and tasks_per_node == facts.tasks_per_node
        tasks_per_node = tasks_per_node if is_same else None  # releases differ
    elif facts.tasks_specified or not says_per_node:
        tasks, tasks_per_node = facts.tasks, facts.tasks_per_node
        tasks = None if has_own_nodes else tasks
    if tasks is None and tasks_per_node and nodes:
        tasks = tasks_per_node * nodes
    return Size(nodes, tasks, tasks_per_node, gpus_per_node)


def _option_number(launch: Launch, meaning: _Meaning, *names: str) -> int | None:
    option = launch.option(*names)
    amount = meaning.amount(option.value) if option else None
    return amount.number if amount else None


def _step_gpus(launch: Launch) -> int | None:
    gpu_options = [option for option in launch.step if option.name in ("gres", "gpus-per-node")]
    try:
        request = read_request(gpu_options, "srun")
    except InvalidRequest:
        return None
    other_options = launch.option("gpus", "gpus-per-task", "gpus-per-socket")
    return request.per_node.count if request.per_node and not other_options else None


def _has_own_gpus(launch: Launch, script: Script) -> bool:
    """Return whether something gives each copy GPUs of its own, or may."""
    names = {option.name for option in (*launch.step, *(given for _, given in script.directives))}
    return bool(names & _OWN_GPU_OPTIONS) or bool(_MASKING_PATTERN.search(script.text))


class _Meaning:
    """What the script's words mean as numbers: to the batch shell, and to a shell in a task."""

    def __init__(self, script: Script, facts: JobFacts, task: Size) -> None:
        self.script, self.facts, self.task = script, facts, task
        self.job = Size(facts.nodes, facts.tasks, None, facts.gpus_per_node)

    def amount(self, word: str | None) -> Amount | None:
        """Return the number that a word stands for, as far as the script or Slurm fixes it."""
        if word is None:
            return None
        word = word.strip()
        if is_number(word):
            return constant(int(word))
        match = _VALUE_PATTERN.fullmatch(word)
        if not match:
            return None
        if match[1] is None:
            return calculate(match[2] or match[3][2:-2], lambda name: self._slurm(name, self.task))
        inner = match[1]
        if inner.startswith("$((") and inner.endswith("))"):
            return calculate(inner[3:-2], lambda name: self._slurm(name, self.job))
        if _NODE_COUNT_PATTERN.fullmatch(inner):
            return self._slurm("SLURM_JOB_NUM_NODES", self.job)
        if _GPU_COUNT_PATTERN.fullmatch(inner):
            return self._slurm("SLURM_GPUS_ON_NODE", self.job)
        name, has_default, default = inner.partition(":-")
        amount = self._slurm(name, self.job)
        if amount is None and has_default and is_number(default) and self._never_set(name):
            return constant(int(default))
        return amount

    def _slurm(self, name: str, size: Size) -> Amount | None:
        """Return the value of one of Slurm's variables."""
        script, request = self.script, self.script.request
        if any(assignment.name == name for assignment in script.shell.assignments):
            return None
        if name in ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"):
            nodes = self.job.nodes if name == "SLURM_JOB_NUM_NODES" else size.nodes
            return variable("SLURM_NNODES") if nodes is None else constant(nodes)
        if not script.settled:
            return None
        counts = {
            "SLURM_NTASKS": size.tasks if self.facts.tasks_specified else None,
            "SLURM_NPROCS": size.tasks if self.facts.tasks_specified else None,
            "SLURM_NTASKS_PER_NODE": self.facts.tasks_per_node if request.tasks_per_node else None,
            "SLURM_GPUS_ON_NODE": size.gpus_per_node,
            "SLURM_GPUS_PER_NODE": _plain_number(script, "gpus-per-node"),
            "SLURM_GPUS": _plain_number(script, "gpus"),
            "SLURM_GPUS_PER_TASK": _plain_number(script, "gpus-per-task"),
            "SLURM_CPUS_PER_TASK": _plain_number(script, "cpus-per-task"),
        }
        count = counts.get(name)
        return None if count is None else constant(count)

    def _never_set(self, name: str) -> bool:
        """Return whether the job certainly lacks one of Slurm's variables."""
        options = {
            "SLURM_GPUS_PER_NODE": "gpus-per-node",
            "SLURM_GPUS_PER_TASK": "gpus-per-task",
            "SLURM_GPUS": "gpus",
        }
        return name in options and self.script.settled and not self.script.option(options[name])


def amount_of(word: str, script: Script, facts: JobFacts) -> Amount | None:
    """Return the number that a word of the batch shell stands for."""
    return _Meaning(script, facts, _UNKNOWN_SIZE).amount(word)


def _plain_number(script: Script, name: str) -> int | None:
    option = script.option(name)
    return int(option.value) if option and is_number(option.value) else None


def _copies(launch: Launch, meaning: _Meaning, *, says_elsewhere: bool) -> tuple[int, int] | None:
    """Return the least and most copies of itself that the launcher says make one training."""
    value = launch.given(launch.data.nodes)
    if value is None:
        default = launch.data.nodes_unsaid
        return None if default is None or says_elsewhere else (default, default)
    is_range = HOLE_OPEN not in value and "$" not in value
    low_text, colon, high_text = value.partition(":") if is_range else (value, "", "")
    low = meaning.amount(low_text)
    high = meaning.amount(high_text) if colon else low
    if low is None or high is None or low.number is None or high.number is None:
        return None
    return low.number, high.number


def _processes(
    launch: Launch, meaning: _Meaning, size: Size, *, says_elsewhere: bool
) -> int | None:
    """Return the processes that each copy starts."""
    launcher, value = launch.data, launch.given(launch.data.processes)
    if value in ("gpu", "auto"):
        return size.gpus_per_node
    if value is None:
        return None if says_elsewhere else launcher.processes_unsaid
    amount = meaning.amount(value)
    if amount is None or not launcher.counts_all:
        return amount.number if amount else None
    machines = meaning.amount(launch.given(launcher.nodes))
    if launcher.nodes not in launch.options and not meaning.facts.several:
        machines = constant(1)  # on several, a file of the launcher's own may say it
    share = amount.divided_by(machines) if machines and machines.terms else None
    return share.number if share else None
