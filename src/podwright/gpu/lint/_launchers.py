"""Reads what a script starts: the launcher (torchrun, accelerate, deepspeed, mpirun, python), the
srun around it, and the options of both, as far as the script fixes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from podwright.errors import InvalidRequest
from podwright.gpu.lint._shell import CLOSE, OPEN, ShellCommand, WordPlace
from podwright.gpu.requests import Given, is_number, known, parse_options

# Words in front of a program, and the number of words that belong to each.
_PREFIXES = {"time": 0, "exec": 0, "nohup": 0, "command": 0, "sudo": 0, "then": 0, "!": 0}
_NO_PROGRAM = re.compile(
    r"(\S*/)?(echo|printf|which|type|pip3?|ls|cd|cat|grep|sed|awk|module|ml|source|\.|export|mkdir|"
    r"cp|mv|rm|ps|kill|pkill|wget|curl|git|chmod|tee|true|false|:|set|alias|test|\[|exit|return|"
    r"break|continue|shift|unset|trap|ulimit|umask|declare|typeset|local|readonly|shopt|date|"
    r"hostname|uname|pwd|pushd|popd|nvidia-smi|rocm-smi|amd-smi|lscpu|free|df|du|head|wc|sort|find|"
    r"touch|ln|rsync|tar|unzip|printenv|squeue|sinfo|scontrol|sacct|seff)"
)
_CONDA = re.compile(r"(\S*/)?(conda|(micro)?mamba)")
_REMOTE = re.compile(r"(\S*/)?(ssh|pdsh|clush|parallel|xargs|parallel-ssh|ibrun|aprun|jsrun|flux)")
_MPI = re.compile(r"(\S*/)?mpi(run|exec)(\.\w+)?")
_PYTHON = re.compile(r"(\S*/)?python[\d.]*")
_TORCH = re.compile(r"torch\.distributed\.(run|launch|launcher)|torch\.distributed\.elastic\.\w+")
# Programs that start the program behind them unchanged: launchers themselves, containers,
# environments, tools.
_STARTS = re.compile(
    r"(\S*/)?(python[\d.]*|torchrun|torch_run|accelerate|deepspeed|singularity|apptainer|shifter|docker|"
    r"podman|podman-hpc|enroot|ch-run|uv|uvx|poetry|pipenv|pixi|conda|micromamba|hatch|numactl|"
    r"taskset|nsys|ncu|rocprof\w*|timeout|nice|stdbuf|xvfb-run|bash|sh|env|coverage|scalene)"
)
# Options of plugins that take no value, used to find the start of the program. They are not judged.
_FLAGS = {
    "container-mount-home", "no-container-mount-home", "container-remap-root",
    "no-container-remap-root", "container-entrypoint", "no-container-entrypoint",
    "container-entrypoint-log", "container-writable", "container-readonly", "clearenv", "vpn",
}  # fmt: skip
_MPI_VALUES = {
    "n": 1, "np": 1, "c": 1, "x": 1, "H": 1, "host": 1, "hostfile": 1, "machinefile": 1,
    "map-by": 1, "bind-to": 1, "rank-by": 1, "mca": 2, "gmca": 2, "wdir": 1, "wd": 1, "prefix": 1,
    "npernode": 1, "N": 1, "npersocket": 1, "path": 1, "output-filename": 1, "output": 1,
}  # fmt: skip
_MPI_FLAGS = {
    "display-map", "report-bindings", "tag-output", "allow-run-as-root", "v", "verbose", "q",
    "bynode", "bycore", "byslot", "bind-to-core", "bind-to-none", "timestamp-output",
}  # fmt: skip
_OPTIONS = {
    "torchrun": {
        "nnodes", "nproc-per-node", "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id",
        "rdzv-conf", "master-addr", "master-port", "max-restarts", "monitor-interval", "role",
        "start-method", "log-dir", "local-addr", "redirects", "tee", "r", "t", "local-ranks-filter",
        "logs-specs", "numa-binding", "event-log-handler", "local-rank",
    },
    "accelerate": {
        "config-file", "num-processes", "num-machines", "machine-rank", "main-process-ip",
        "main-process-port", "mixed-precision", "gpu-ids", "rdzv-backend", "rdzv-conf",
        "deepspeed-config-file", "deepspeed-hostfile", "deepspeed-multinode-launcher",
        "dynamo-backend", "zero-stage", "gradient-accumulation-steps",
        "num-cpu-threads-per-process",
        "max-restarts", "monitor-interval", "role", "log-dir", "tee", "main-training-function",
        "gradient-clipping", "offload-optimizer-device", "offload-param-device",
    },
    "deepspeed": {
        "num-gpus", "num-nodes", "hostfile", "include", "exclude", "master-addr", "master-port",
        "launcher", "launcher-args", "node-rank", "module", "i", "e", "H", "bind-core-list",
    },
}  # fmt: skip


class Launch(NamedTuple):
    """One start of a program.

    `kind` is torchrun, accelerate, deepspeed, python or other. `by` is srun, mpirun, remote or
    empty. `step` has the options of srun, `options` those of the launcher, with dashes, and
    `program` what it starts. `complete`: whether all options could be told from the program's own.
    """

    kind: str
    by: str
    line: int
    last: int
    place: WordPlace
    step: tuple[Given, ...] = ()
    options: Mapping[str, str] = {}
    program: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    complete: bool = True
    foreign: bool = False  # srun has words that could not be read

    @property
    def distributed(self) -> bool:
        """Whether the launcher starts several processes that communicate."""
        return self.kind in ("torchrun", "accelerate", "deepspeed")

    def given(self, *names: str) -> str | None:
        """Return the value of the first of these options of the launcher that was given."""
        return next((self.options[name] for name in names if name in self.options), None)

    def option(self, *names: str) -> Given | None:
        """Return the last of these options of srun."""
        return next((option for option in reversed(self.step) if option.name in names), None)


def launch_of(command: ShellCommand) -> Launch | None:
    """Return the program that a command starts; None for echo, cd and other commands that start
    none.
    """
    words = list(command.words)
    by, foreign = "", False
    step: list[Given] = []
    while words:
        head = words[0]
        if head in _PREFIXES or head == "env" or re.fullmatch(r"\w+=.*", head):
            words = words[1:]
        elif re.fullmatch(r"(\S*/)?srun", head) and not by:
            by = "srun"
            step, words, foreign = read_step(words[1:])
        elif _MPI.fullmatch(head) and not by:
            by = "mpirun"
            break
        elif _REMOTE.fullmatch(head) and not by:
            by = "remote"
            break
        elif OPEN in head and not by:
            by = "unknown"
            break
        else:
            break
    if not words or (not by and _NO_PROGRAM.fullmatch(words[0])):
        return None
    if _CONDA.fullmatch(words[0]) and "run" not in words[1:]:
        return None
    kind, options, program, complete = _launcher(words)
    if not by and kind != "other" and not _STARTS.fullmatch(words[0]):
        by = "unknown"  # a wrapper of the site
    return Launch(
        kind, by, command.line, command.last, command.place, tuple(step), options,
        tuple(program), tuple(words), complete, foreign,
    )  # fmt: skip


def starts(launch: Launch) -> bool:
    """Return whether the first word is known to start what follows unchanged."""
    return bool(launch.words) and bool(_STARTS.fullmatch(launch.words[0]))


def ranks(words: tuple[str, ...]) -> int | None:
    """Return the ranks that Open MPI's mpirun is to start; None if some of its options are not
    known.
    """
    count = None
    index = 1
    while index < len(words) and words[index].startswith("-"):
        name = words[index].lstrip("-")
        if name in ("n", "np", "c") and index + 1 < len(words) and is_number(words[index + 1]):
            count = int(words[index + 1])
        if name not in _MPI_VALUES and name not in _MPI_FLAGS:
            return None
        index += 1 + _MPI_VALUES.get(name, 0)
    return count


def read_step(words: list[str]) -> tuple[list[Given], list[str], bool]:
    """Return (options of srun, the words behind them, whether some could not be read)."""
    table = known("srun")
    given: list[Given] = []
    foreign = False
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest[0]
        if word == "--":
            return given, rest[1:], foreign
        name = word[2:].partition("=")[0] if word.startswith("--") else ""
        if name and name not in table and sum(k.startswith(name) for k in table) != 1:
            rest = rest[1:]
            if "=" in word or name in _FLAGS:
                continue  # a plugin's option, which is certainly no more than this word
            foreign = True
            if rest and not rest[0].startswith("-"):
                rest = rest[1:]
            continue
        consumed = 1
        try:
            try:
                options, _ = parse_options([word], "srun")
            except InvalidRequest:
                options, _ = parse_options(rest[:2], "srun")
                consumed = 2
            given += options
        except InvalidRequest:
            foreign = True
        rest = rest[consumed:]
    if rest and rest[0].startswith(OPEN):
        foreign = True
    return given, rest, foreign


def _launcher(words: list[str]) -> tuple[str, dict[str, str], list[str], bool]:
    """Return (kind, options, program, complete) of the first launcher among the words."""
    for index, word in enumerate(words):
        base = word.rpartition("/")[2]
        if base in ("torchrun", "torch_run"):
            return ("torchrun", *_options("torchrun", words[index + 1 :]))
        if base == "accelerate" and words[index + 1 : index + 2] == ["launch"]:
            return ("accelerate", *_options("accelerate", words[index + 2 :]))
        if base == "deepspeed" and index + 1 < len(words):
            return ("deepspeed", *_options("deepspeed", words[index + 1 :]))
        if _PYTHON.fullmatch(word):
            return _python(words[index + 1 :])
        if base.endswith((".py", ".sh")):
            break
    return "other", {}, words, True


def _python(words: list[str]) -> tuple[str, dict[str, str], list[str], bool]:
    for index, word in enumerate(words):
        if word == "-m" and index + 1 < len(words):
            module = words[index + 1]
            if _TORCH.fullmatch(module):
                options, program, complete = _options("torchrun", words[index + 2 :])
                if module.endswith("launch"):
                    options = {"launch": "", **options}
                return "torchrun", options, program, complete
            if module in ("accelerate.commands.launch", "accelerate.commands.accelerate_cli"):
                return ("accelerate", *_options("accelerate", words[index + 2 :]))
            return "python", {}, words[index:], True
        if word == "-c" or not word.startswith("-"):
            return "python", {}, words[index:], True
    return "python", {}, [], True


def _options(kind: str, words: list[str]) -> tuple[dict[str, str], list[str], bool]:
    """Return the launcher's options, up to the program, and whether all of them could be read."""
    table = _OPTIONS[kind]
    options: dict[str, str] = {}
    index = 0
    complete = True
    while index < len(words):
        word = words[index]
        if word in ("-m", "--module") and kind != "deepspeed":
            return options, words[index + 1 :], complete
        if not word.startswith("-"):
            if word.startswith(OPEN) and CLOSE in word and not re.search(r"\.py$", word):
                complete = False  # options may be in a variable
                index += 1
                continue
            return options, words[index:], complete
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-") if len(name) > 1 else name
        if equals:
            options[name] = value
        elif name in table and index + 1 < len(words):
            index += 1
            options[name] = words[index]
        else:
            options[name] = ""
        index += 1
    return options, [], complete


def told_of_slurm(launch: Launch) -> bool:
    """Return whether an argument of the program names something that starts tasks.

    Then the program may start tasks itself.
    """
    return any(
        re.search(r"(^|[=:\"'_-])(srun|slurm|mpirun|mpiexec|submitit)", word)
        for word in launch.words[1:]
    )


def told_of_all(launch: Launch, tasks: int | None) -> bool:
    """Return whether an argument of the program is the number of the job's tasks
    (`--num_gpus=1024`).

    Then the program knows of all tasks, and may start them itself.
    """
    counted = r"(?i)--?\w*(gpu|task|rank|proc|world|worker|np)\w*[= ](\d+)(?!\S)"
    matches = re.findall(counted, " ".join(launch.words[1:]))
    return bool(tasks) and any(int(number) == tasks for _, number in matches)
